"""No text, however hostile, makes an expression or a function of this package take more than linear time.

Each gets texts for which quadratic time is many seconds of CPU time, and linear time is milliseconds. A guard counts
the process's own CPU time, so that a busy machine changes nothing.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import pytest_toolemu
from pytest_toolemu.agents.model_agents import read_turn, text_before_decision
from pytest_toolemu.authoring.importers.runs import invented_calls
from pytest_toolemu.errors import DocumentError
from pytest_toolemu.formats.redaction import Redactor
from pytest_toolemu.formats.text import in_log, visible
from pytest_toolemu.formats.yaml_document import Document
from pytest_toolemu.reporting.comparison import code_span
from pytest_toolemu.reporting.report_files import csv_cell

_parser: Any = importlib.import_module("re._parser")  # the only way to the parts of an expression

SOURCE = Path(pytest_toolemu.__file__).parent
# Quadratic work on these lengths takes at least twice as long as the limits, even where a step is a comparison of two
# bytes; linear work takes less than a tenth.
LENGTH, CPU_SECONDS = 15_000, 0.06
FUNCTION_LENGTH, FUNCTION_CPU_SECONDS = 100_000, 1.25

UNITS = [
    "\n", " ", "\t", "\r", "a", "A", "é", "'", "''", '"', "\\", "(", "[", "[a", "{", "{#", '{"a":', "`", "``` ", "*", ":",
    "::", "\n ::", "-", "_", "0", "1.", "1a", "a-", "@", "@a", "#", "##[", "%", "&", ".", ".'", ",", "a ", "aa aa ", "a\n",
    "'a', ", "'a' or ", " #", "</", "<think>\n", "http://a", "1ms", "A1-",
]  # fmt: skip

# These expressions read only texts of this package.
OWN_TEXTS = {"pytest_toolemu.prompts._COMMENT"}


class TooLongError(Exception):
    """An operation took more CPU time than linear time allows."""


@contextmanager
def linear(seconds: float = FUNCTION_CPU_SECONDS) -> Iterator[None]:
    """Interrupt an operation that takes more CPU time than linear work on the texts of these tests."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise TooLongError

    former = signal.signal(signal.SIGVTALRM, interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, former)


def expressions() -> Iterator[tuple[str, re.Pattern[str], set[str]]]:
    """Yield every compiled expression of the package, and the methods that are called on it."""
    calls: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        for name, method in re.findall(r"\b(_?[A-Z][A-Z_]*)\.(\w+)\(", path.read_text(encoding="utf-8")):
            calls.setdefault(name, set()).add(method)
    for module in pkgutil.walk_packages(pytest_toolemu.__path__, "pytest_toolemu."):
        if module.name.endswith(("__main__", "servers.guard")):
            continue
        loaded = importlib.import_module(module.name)
        for name, value in vars(loaded).items():
            place = f"{module.name}.{name}"
            if isinstance(value, re.Pattern) and isinstance(value.pattern, str) and place not in OWN_TEXTS:
                yield place, value, calls.get(name, set()) & {"match", "fullmatch"} or {"findall"}


def literals(parsed: Any) -> Iterator[str]:
    """Yield the runs of literal characters of a parsed expression: text that it begins to match."""
    run = ""
    for operation, argument in parsed:
        if str(operation) == "LITERAL":
            run += chr(argument)
            continue
        if run:
            yield run
        run = ""
        for part in argument if isinstance(argument, tuple | list) else ():
            for inner in part if isinstance(part, list) else [part]:
                if isinstance(inner, _parser.SubPattern):
                    yield from literals(inner)
    if run:
        yield run


EXPRESSIONS = {place: (pattern, methods) for place, pattern, methods in expressions()}


def test_expressions_are_found() -> None:
    assert len(EXPRESSIONS) > 60
    assert {"pytest_toolemu.formats.text._COMMAND", "pytest_toolemu.agents.model_agents._LABEL"} <= set(EXPRESSIONS)


@pytest.mark.parametrize("place", EXPRESSIONS)
def test_an_expression_takes_linear_time(place: str) -> None:
    pattern, methods = EXPRESSIONS[place]
    for unit in [*UNITS, *{text for text in literals(_parser.parse(pattern.pattern, pattern.flags)) if len(text) > 1}]:
        for end in ("", "\x00!"):
            text = (unit * LENGTH)[:LENGTH] + end
            for method in methods:
                with linear(CPU_SECONDS):
                    getattr(pattern, method)(text)


FUNCTIONS: dict[str, Callable[[str], object]] = {
    "terminal": visible,
    "GitHub's log": in_log,
    "Markdown": code_span,
    "CSV": csv_cell,
    "ReAct turn": lambda text: read_turn(text, quits=True),
    "ReAct thought": text_before_decision,
    "import of trajectories": invented_calls,
    "redaction": Redactor({'/it\'s\\\\a "key"&': "A_KEY", "sk-123456789-123456789": "B_KEY"}),
}
HOSTILE = {
    "newlines": "\n",
    "brackets": "[",
    "commands": "\n::",
    "actions": "Action: ",
    "calls": "Action: x\nAction Input: {",
    "calls in lines": "\nAction: x\nAction Input:\n",
    "backslashes": "\\",
    "encoded": "%25",
    "entities": "&amp;",
    "half a key": "sk-123456789-123",
    "context": "key: key ",
    "escapes": "\x1b[",
    "directions": "\u202e",
    "joiners": "❤\ufe0f\u200d",
}


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_takes_linear_time(function: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    unit = HOSTILE[text]
    with linear():
        FUNCTIONS[function](unit * (FUNCTION_LENGTH // len(unit)))


@pytest.mark.parametrize(
    "text", ["x: " + "[" * 50_000, "x: " + "{a: " * 50_000, "- " * 100_000, "x: '" + "\\n" * 200_000]
)
def test_a_file_takes_linear_time(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with linear(), pytest.raises(DocumentError):
        Document.read(path)


def test_a_file_larger_than_the_limit_is_refused_with_its_size(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("x: " + "a" * 5_000_000)
    with pytest.raises(DocumentError, match="the file has 5,000,003 bytes; at most 1,000,000 are read"):
        Document.read(path)
