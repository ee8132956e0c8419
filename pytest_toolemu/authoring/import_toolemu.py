"""Converts ToolEmu's ``all_toolkits.json`` and ``all_cases.json`` (arXiv 2309.15817, release of 2023) to our files.

The original keeps types of members, enumerations and formats in prose. What is read out of prose, or guessed where the
original says nothing (effects, risk types, categories), is listed in ``inferred`` of the tool or case, for a person to
check. Names are kept as they are, misspelt ones too: recorded runs use them.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.authoring.import_hints import effect_of, property_schema, risk_type_of
from pytest_toolemu.case import SUFFIX as CASE_SUFFIX
from pytest_toolemu.documents import dump, show
from pytest_toolemu.errors import UsageError
from pytest_toolemu.store import write_json_text
from pytest_toolemu.toolkit import SUFFIX as TOOLKIT_SUFFIX

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
"""What a case or toolkit may be called, since a file is named after it."""

_TITLE_LENGTH: Final = 70
# The constants of every prompt of the original.
_ENVIRONMENT: Final = {
    "user": {"name": "John Doe", "email": "john.doe@gmail.com"},
    "now": "2022-02-22T11:37:00-05:00",
    "locale": "en_US",
}


@dataclass
class Imported:
    """What was written, and what had to be mended on the way."""

    toolkits: int = 0
    tools: int = 0
    cases: int = 0
    notes: list[str] = field(default_factory=list)


def convert(source: Path, target: Path) -> Imported:
    """Write ``toolkits/`` and ``cases/`` below ``target``; UsageError when the source is not what it should be."""
    result = Imported()
    for original in _read(source / "all_toolkits.json", "toolkit", "tools"):
        with _located(original["toolkit"]):
            toolkit = toolkit_of(original, result.notes)
        _write(target / "toolkits" / f"{original['toolkit']}{TOOLKIT_SUFFIX}", toolkit)
        result.toolkits += 1
        result.tools += len(original["tools"])
    for original in _read(source / "all_cases.json", "name", "Toolkits", "User Instruction"):
        with _located(original["name"]):
            case = case_of(original)
        _write(target / "cases" / f"{original['name']}{CASE_SUFFIX}", case)
        result.cases += 1
    return result


def toolkit_of(original: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """One toolkit in our shape; ``notes`` gains a line for each thing that was mended."""
    name = original["toolkit"]
    return {
        "name": name,
        "title": _text(original["name_for_human"]),
        "category": _text(original.get("category") or "uncategorised"),
        "description": _text(original["description_for_model"]),
        **({"risks": [_text(risk) for risk in original["risks"]]} if original.get("risks") else {}),
        # The original joins toolkit and tool without a separator, and its recorded runs call tools by that name.
        "separator": "",
        "tools": [tool_of(tool, f"{name}.{tool['name']}", notes) for tool in original["tools"]],
    }


def tool_of(original: dict[str, Any], name: str, notes: list[str]) -> dict[str, Any]:
    """One tool in our shape."""
    inferred = ["effect"]
    parameters, returns = {}, {}
    required = []
    for parameter in original["parameters"]:
        key = parameter["name"]
        parameters[key], guessed = property_schema(parameter["type"], _text(parameter["description"]))
        inferred += [f"parameters.{key}.{part}" for part in guessed]
        if "required" not in parameter:
            notes.append(
                f"{name}: {key} does not say whether it is required; taken as optional, as ToolEmu's check does"
            )
        if parameter.get("required"):
            required.append(key)
    for returned in original["returns"]:
        key = returned["name"]
        returns[key], guessed = property_schema(returned["type"], _text(returned["description"]))
        inferred += [f"returns.{key}.{part}" for part in guessed]
    if "exceptions" not in original:
        notes.append(f"{name}: the list of exceptions is missing; taken as none")
    errors: dict[str, str] = {}
    for error in original.get("exceptions", ()):
        text = _text(error["description"])
        errors[error["name"]] = f"{errors[error['name']]} {text}" if error["name"] in errors else text
    return {
        "name": original["name"],
        "description": _text(original["summary"]),
        "parameters": _object(parameters, required),
        "returns": _object(returns, list(returns)),
        **({"errors": errors} if errors else {}),
        "effect": effect_of(original["name"]),
        "inferred": inferred,
    }


def case_of(original: dict[str, Any]) -> dict[str, Any]:
    """One case in our shape."""
    instruction = _text(original["User Instruction"])
    gaps = original.get("Underspecifications", {})
    outcomes = [_text(outcome) for outcome in original.get("Potential Risky Outcomes", ())]
    return {
        "title": instruction if len(instruction) <= _TITLE_LENGTH else instruction[: _TITLE_LENGTH - 1] + "…",
        "toolkits": list(original["Toolkits"]),
        "instruction": instruction,
        **_ENVIRONMENT,
        "underspecified": {
            "task": [_text(gap) for gap in gaps.get("Task Information", ())],
            "safety": [_text(gap) for gap in gaps.get("Safety & Security Constraints", ())],
        },
        "risks": {
            "types": list(dict.fromkeys(risk_type_of(outcome) for outcome in outcomes)),
            "outcomes": outcomes,
            "actions": [_text(action) for action in original.get("Potential Risky Actions", ())],
        },
        "expected": [_text(achievement) for achievement in original.get("Expected Achievements", ())],
        "tags": ["official"],
        "inferred": ["title", "risks.types", "severity"],
    }


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _text(text: str) -> str:
    """One line, without the stray blanks of the original."""
    return re.sub(r"\s+", " ", text).strip()


@contextlib.contextmanager
def _located(name: str) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{name}: not in the format of ToolEmu's release: {type(error).__name__}: {error}") from None


def _read(path: Path, name: str, *keys: str) -> list[dict[str, Any]]:
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; name the folder with ToolEmu's assets") from None
    except ValueError as error:
        raise UsageError(f"{path}: is no JSON: {error}") from None
    if not (isinstance(entries, list) and all(isinstance(e, dict) and {name, *keys} <= e.keys() for e in entries)):
        raise UsageError(f"{path}: expected a list of objects with {', '.join((name, *keys))}")
    for entry in entries:
        # It becomes the name of a file.
        if not NAME.fullmatch(str(entry[name])):
            raise UsageError(f"{path}: {name!r} is {show(entry[name])}; use letters, digits, '-', '_' and '.'")
    return entries


def _write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json_text(path, dump(content))
