"""Turns the observations of a run into pins of its case, so that another agent gets the same results."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.authoring.case_sections import AFTER_PINS, insertion_line, lines_of, section
from pytest_toolemu.core.case import SUFFIX, SUFFIXES
from pytest_toolemu.core.case_loading import build_case, case_id
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.core.toolkit_files import find_toolkit
from pytest_toolemu.core.trajectory import Step
from pytest_toolemu.errors import DocumentError, UsageError
from pytest_toolemu.formats.files.atomic_write import write_json_text
from pytest_toolemu.formats.yaml_document import Document, dump, show

Json = dict[str, Any]

# Files and folders that mark the root of a project.
_ROOTS: Final = ("pyproject.toml", "pytest.ini", "tox.ini", "setup.cfg", ".git")


@dataclass(frozen=True)
class PinnedCase:
    """The file that was written, the number of added pins, and notes for the author."""

    path: Path
    added: int
    notes: tuple[str, ...]


def pin_run(record: Path, target: Path | None = None) -> PinnedCase:
    """Add a stored run's observations to its case file, or write a copy of the case with them to ``target``.

    Raise UsageError if the run or its case file does not exist, or another file would be replaced, and DocumentError
    if the pins would make the case invalid.
    """
    run = _run(record)
    source = Path(run.case_path)
    if not source.is_file():
        raise UsageError(
            f"{record}: its case file {source} no longer exists; restore the file, and run the command again"
        )
    if target is None and "site-packages" in source.parts:
        raise UsageError(f"{source} belongs to an installed package; name a file for a copy with --to")
    old = _case_of(run, source, record)
    if target is None:
        _refuse_outside(source, record)
    present = old.value.get("pins") or []
    pins, notes = pins_of(run)
    added = [pin for pin in pins if pin not in present and _bare(pin) not in present]
    path = _copy(target, source, run) if target is not None else source
    text, comments_kept = with_pins(old, added)
    # Check it before it is written, at the path of the copy, whose location determines which toolkits it finds.
    build_case(Document.parse(text, path))
    if path.exists() and not path.samefile(source) and path.read_bytes() != text.encode():
        raise UsageError(f"--to {target}: {path} already exists and was not changed; name another file, or delete it")
    if not comments_kept:
        notes.append("comments between pins could not be kept")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json_text(path, text)
    return PinnedCase(path, len(added), tuple(notes))


def _copy(target: Path, source: Path, run: Run) -> Path:
    """Return the path of the copy. Raise UsageError if it is not a case file, or would not find its toolkits."""
    path = target / source.name if target.is_dir() else target
    if not path.name.endswith(SUFFIXES):
        raise UsageError(
            f"--to {target}: the name of a case file ends with {SUFFIX}; name {target}{SUFFIX}, or a folder"
        )
    for toolkit in run.toolkits:
        toolkit_path = find_toolkit(toolkit.name, source.resolve().parent)
        if toolkit_path is not None and find_toolkit(toolkit.name, path.resolve().parent) is None:
            raise UsageError(
                f"--to {target}: a case there cannot find the toolkit {toolkit.name!r}, which is {toolkit_path}; name "
                f"a file below {toolkit_path.parent.parent}, or copy the toolkit into "
                f"{path.resolve().parent / 'toolkits'} first"
            )
    return path


def pins_of(run: Run) -> tuple[list[Json], list[str]]:
    """Return the pins that answer every call of the run as it was answered, and notes on calls without a pin.

    Rejected calls need no pin, as code rejects them again. A call that was answered differently over time gets a pin
    for each time, in order; the last of them also answers all later calls.
    """
    answers: dict[tuple[str, str], list[Step]] = {}
    for step in run.steps:
        if step.call.tool is not None and step.observation.source not in ("rejected", "pinned"):
            answers.setdefault((step.call.tool, step.call.text), []).append(step)
    declared = _errors(run.toolkits)
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


def with_pins(document: Document, added: list[Json]) -> tuple[str, bool]:
    """Return the file's text with these pins added at the end, and whether it keeps all of its comments."""
    present = document.value.get("pins") or []
    expected = {**document.value, "pins": [*present, *added]}
    if not added:
        return document.text, True
    for text, keeps_comments in (
        (_inserted(document, added), True),
        (_replaced(document, expected["pins"]), not present),
    ):
        if text is not None and _value(text, document.path) == expected:
            return text, keeps_comments
    return dump(expected), False


def _case_of(run: Run, source: Path, record: Path) -> Document:
    """Return the file if it is the case of the run. Raise UsageError otherwise, as a record can name any file."""
    if not source.name.endswith(SUFFIXES) or case_id(source) != run.case_id:
        raise UsageError(f"{record}: names {source} as its case file, which is not the case {run.case_id}")
    document = Document.read(source)
    if not isinstance(document.value, dict) or document.value.get("instruction") != run.case.instruction:
        reason = f"{source} is not the case that was run: its instruction differs; run the case again"
        raise UsageError(f"{record}: {reason}, and pin that run")
    return document


def _refuse_outside(source: Path, record: Path) -> None:
    """Raise UsageError for a case file outside the current project; links are resolved."""
    current_folder = Path.cwd().resolve()
    root = next(
        (
            folder
            for folder in (current_folder, *current_folder.parents)
            if any((folder / name).exists() for name in _ROOTS)
        ),
        current_folder,
    )
    if not source.resolve().is_relative_to(root):
        reason = (
            f"{source} is outside this project ({root}); run the command in its project, or name a file for a "
            "copy with --to"
        )
        raise UsageError(f"{record}: its case file {reason}")


def _run(record: Path) -> Run:
    if record.is_dir():
        raise UsageError(f"{record} is a folder; name the record of one run in it, such as CASE--KEY.json")
    return load_run(record)


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


def _bare(pin: Json) -> Json:
    """Return the pin as earlier versions wrote it, with the schema itself as ``arguments``."""
    return {**pin, "arguments": pin["arguments"]["schema"]}


def _error(step: Step) -> str:
    """Return the name of the error that a call returned; empty for a success."""
    return str(step.observation.content["error"]).partition(":")[0].strip() if step.observation.is_error else ""


def _errors(toolkits: Iterable[Toolkit]) -> dict[str, set[str]]:
    return {f"{kit.name}.{tool.name}": set(tool.errors) for kit in toolkits for tool in kit.tools}


def _inserted(document: Document, added: list[Json]) -> str | None:
    """Return the text with the pins inserted and everything else unchanged; None if the pins are in flow style."""
    lines = lines_of(document)
    if document.value.get("pins"):
        line, column = document.position(("pins",))
        if lines[line - 1][column - 1] != "-":
            return None
        return _insert(lines, section(document, "pins")[1], dump(added), " " * (column - 1))
    if "pins" in document.value:
        return None
    return _insert(lines, insertion_line(document, *AFTER_PINS), dump({"pins": added}), "")


def _replaced(document: Document, pins: list[Json]) -> str | None:
    """Return the text with its section of pins rewritten; None if it has none."""
    if "pins" not in document.value:
        return None
    lines = lines_of(document)
    start, end = section(document, "pins")
    return _insert([*lines[:start], *lines[end:]], start, dump({"pins": pins}), "")


def _insert(lines: list[str], index: int, text: str, indent: str) -> str:
    return "".join([*lines[:index], *(f"{indent}{line}\n" for line in text.splitlines()), *lines[index:]])


def _value(text: str, path: Path) -> Any:
    try:
        return Document.parse(text, path).value
    except DocumentError:
        return None
