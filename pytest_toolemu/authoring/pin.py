"""Turns the observations of a run into pins of its case, so that another agent gets the same results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_toolemu.authoring.case_text import AFTER_PINS, insertion_line, lines_of, section
from pytest_toolemu.core.case import SUFFIX, SUFFIXES
from pytest_toolemu.core.case_loading import build_case, case_id
from pytest_toolemu.core.run import Run, Step
from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.file_access import write_atomically
from pytest_toolemu.formats.yaml_document import Document, YamlText, dump, show

Json = dict[str, Any]


def pin_run(record: Path, target: Path | None = None) -> tuple[Path, int, list[str]]:
    """Add a stored run's observations to its case file, or write a copy of the case with them to ``target``.

    Return the file that was written, the number of added pins, and notes for the author.
    Raise UsageError if the run or its case file does not exist, or another file would be replaced, and DocumentError
    if the pins would make the case invalid.
    """
    run = load_run(record)
    source = Path(run.case_path)
    if not source.is_file():
        raise UsageError(
            f"{record}: its case file {source} no longer exists; restore the file, and run the command again"
        )
    # A record can name any file.
    if not source.name.endswith(SUFFIXES) or case_id(source) != run.case_id:
        raise UsageError(f"{record}: names {source} as its case file, which is not the case {run.case_id}")
    document = Document.read(source)
    if not isinstance(document.value, dict) or document.value.get("instruction") != run.case.instruction:
        reason = f"{source} is not the case that was run: its instruction differs; run the case again"
        raise UsageError(f"{record}: {reason}, and pin that run")
    is_own = source.resolve().is_relative_to(Path.cwd().resolve()) and "site-packages" not in source.parts
    if target is None and not is_own:
        raise UsageError(
            f"{record}: its case file {source} is not in the current folder; run the command in its project, or name a "
            "file for a copy with --to"
        )
    path = source if target is None else target / source.name if target.is_dir() else target
    if not path.name.endswith(SUFFIXES):
        raise UsageError(
            f"--to {target}: the name of a case file ends with {SUFFIX}; name {target}{SUFFIX}, or a folder"
        )
    pins, notes = pins_of(run)
    added = [pin for pin in pins if pin not in (document.value.get("pins") or [])]
    text = with_pins(document, added)
    # Check it before it is written, at the path of the copy, whose location determines which toolkits it finds.
    build_case(Document.parse(text, path))
    if path.exists() and not path.samefile(source) and path.read_bytes() != text.encode():
        raise UsageError(f"--to {target}: {path} already exists and was not changed; name another file, or delete it")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text)
    return path, len(added), notes


def pins_of(run: Run) -> tuple[list[Json], list[str]]:
    """Return the pins that answer every call of the run as it was answered, and notes on calls without a pin.

    Rejected calls need no pin, as code rejects them again. A call that was answered differently over time gets a pin
    for each time, in order; the last of them also answers all later calls.
    """
    answers: dict[tuple[str, str], list[Step]] = {}
    for step in run.steps:
        if step.call.tool is not None and step.observation.source not in ("rejected", "pinned", "unknown"):
            answers.setdefault((step.call.tool, step.call.text), []).append(step)
    declared = {f"{kit.name}.{tool.name}": set(tool.errors) for kit in run.toolkits for tool in kit.tools}
    pins: list[Json] = []
    notes: list[str] = []
    for (tool, arguments), steps in answers.items():
        undeclared_errors = [name for step in steps if (name := _error(step)) and name not in declared.get(tool, ())]
        if undeclared_errors:
            notes.append(
                f"{tool} {arguments}: not pinned, because {tool} declares no error {show(undeclared_errors[0])}"
            )
            continue
        pins += pins_in_turn(tool, steps[0].call.arguments, [_answer(step) for step in steps])
        if len({step.observation.text for step in steps}) > 1:
            notes.append(f"{tool} {arguments}: the answers changed over time, so the pins count the calls (nth)")
    return pins, notes


def with_pins(document: Document, added: list[Json]) -> str:
    """Return the text of a file with these pins added at the end; comments between pins in brackets move above them."""
    present = document.value.get("pins") or []
    if not added:
        return document.text
    lines = lines_of(document)
    if not present and "pins" not in document.value:
        return _insert(lines, insertion_line(document, *AFTER_PINS), dump({"pins": added}), "")
    line, column = document.position(("pins",))
    if present and lines[line - 1][column - 1] == "-":
        return _insert(lines, section(document, "pins")[1], dump(added), " " * (column - 1))
    return YamlText(document.text).with_value(("pins",), [*present, *added]).text


def pins_in_turn(tool: str, arguments: Json, answers: list[Json]) -> list[Json]:
    """Return pins that give equal calls these answers in turn, and the last one from then on.

    An answer is ``{"returns": ...}`` or ``{"error": ...}``.
    """
    answers = list(answers)
    while len(answers) > 1 and answers[-1] == answers[-2]:
        answers.pop()
    # Match exactly this call: plain values would also match calls with additional arguments.
    exactly = {"schema": {"const": arguments}}
    return [
        {"tool": tool, "arguments": exactly, **({"nth": nth} if nth < len(answers) else {}), **answer}
        for nth, answer in enumerate(answers, 1)
    ]


def _answer(step: Step) -> Json:
    content = step.observation.content
    return {"error": content["error"]} if _error(step) else {"returns": content}


def _error(step: Step) -> str:
    """Return the name of the error that a call returned; empty for a success."""
    return str(step.observation.content["error"]).partition(":")[0].strip() if step.observation.is_error else ""


def _insert(lines: list[str], index: int, text: str, indent: str) -> str:
    return "".join([*lines[:index], *(f"{indent}{line}\n" for line in text.splitlines()), *lines[index:]])
