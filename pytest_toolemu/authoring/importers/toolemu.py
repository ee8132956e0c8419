"""Converts ToolEmu's ``all_toolkits.json`` and ``all_cases.json`` (arXiv 2309.15817, release of 2023).

The original states types of members, enumerations and formats in prose. What is inferred from prose, or guessed because
the original states nothing (effects, risk types, categories), is listed in ``inferred`` of the tool or case, so that a
person can check it. Names are kept, even misspelled ones, as recorded runs use them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import Field

from pytest_toolemu.authoring.importers.published_tools import guessed_effect
from pytest_toolemu.authoring.importers.sources import VOCABULARY, Notes, add_note, note_lines, note_unread, read_values
from pytest_toolemu.core.case import SUFFIX as CASE_SUFFIX
from pytest_toolemu.core.case_vocabulary import RiskType
from pytest_toolemu.core.toolkit import SUFFIX as TOOLKIT_SUFFIX
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.core.world.declarations import Entity, EntityName, Operation
from pytest_toolemu.core.world.toolkit_plan import planned
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.file_access import write_atomically
from pytest_toolemu.formats.text import truncated
from pytest_toolemu.formats.yaml_document import Document, Record, dump, show, too_deep

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
"""The valid names of cases and toolkits, which are also file names."""

_TITLE_LENGTH: Final = 70
# These values are the same in all prompts of the original.
_ENVIRONMENT: Final = {
    "user": {"name": "John Doe", "email": "john.doe@gmail.com"},
    "now": "2022-02-22T11:37:00-05:00",
    "locale": "en_US",
}


# Every other member is left out, with a note.
READ: Final = {kind: frozenset(members) for kind, members in VOCABULARY["toolemu_members"].items()}


@dataclass
class ImportedFiles:
    """Counts of the written files, and notes on what was left out, changed, or filled in.

    ``inferred`` counts the guesses, which the written files list in the member of that name.
    """

    toolkits: int = 0
    tools: int = 0
    cases: int = 0
    notes: Notes = field(default_factory=dict)
    inferred: Counter[str] = field(default_factory=Counter)

    def lines(self, *, details: bool = False) -> Iterator[str]:
        """Yield one line per kind of note, with its count and some or (with ``details``) all of its locations."""
        yield from note_lines(self.notes, details=details)
        if self.inferred:
            counts = ", ".join(f"{part} {count}" for part, count in self.inferred.most_common())
            yield f"note: guessed from names and descriptions (see 'inferred' in the files): {counts}"


def convert(source: Path, target: Path, *, declare: bool = True) -> ImportedFiles:
    """Write ``toolkits/`` and ``cases/`` to the folder ``target``.

    With ``declare``, toolkits get entities and operations, so that code can execute their tools on rows. Raise
    UsageError if the source has another format, or a file would be replaced; nothing is written then.
    """
    result = ImportedFiles()
    files: dict[Path, str] = {}
    name = ""
    try:
        for original in _read(source / "all_toolkits.json", "toolkit", "tools"):
            name = original["toolkit"]
            toolkit = toolkit_of(original, result.notes)
            if declare:
                add_declarations(toolkit, result.notes)
            files[target / "toolkits" / f"{name}{TOOLKIT_SUFFIX}"] = dump(toolkit)
            result.toolkits += 1
            result.tools += len(toolkit["tools"])
            result.inferred.update(_kind(part) for tool in toolkit["tools"] for part in tool["inferred"])
        for original in _read(source / "all_cases.json", "name", "Toolkits", "User Instruction"):
            name = original["name"]
            case = case_of(original, result.notes)
            files[target / "cases" / f"{name}{CASE_SUFFIX}"] = dump(case)
            result.cases += 1
            result.inferred.update(case["inferred"])
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{name}: not in the format of ToolEmu's release: {type(error).__name__}: {error}") from None
    _write(files)
    return result


def _kind(part: str) -> str:
    """Return a part without its member's name: ``parameters.*.enum`` for ``parameters.status.enum``."""
    first, _, rest = part.partition(".")
    return f"{first}.*.{rest.rpartition('.')[2]}" if rest else first


def toolkit_of(original: dict[str, Any], notes: Notes) -> dict[str, Any]:
    """Return a toolkit in this project's format; ``notes`` receives what was left out, changed, or filled in."""
    name = original["toolkit"]
    note_unread(notes, "toolkit", original, READ["toolkit"], name)
    if original.get("name_for_model", name) != name:
        add_note(notes, "'name_for_model' differs from the toolkit's name, which is used instead", name)
    if not original.get("category"):
        add_note(notes, "a toolkit without a category becomes 'uncategorised'", name)
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


DECLARATIONS: Final = Path(__file__).parent / "declarations"
"""A file for each official toolkit, with its entities and the operations of its tools."""


class Declarations(Record):
    """What a file declares about the data of a toolkit that is defined elsewhere."""

    entities: dict[EntityName, Entity] = {}
    operations: dict[str, Operation] = Field(min_length=1)


def add_declarations(toolkit: dict[str, Any], notes: Notes) -> None:
    """Add this project's entities and operations to an official toolkit, unless it was changed and they do not fit."""
    path = DECLARATIONS / f"{toolkit['name']}.yaml"
    if not path.is_file():
        return
    declarations = Document.read(path)
    declarations.build(Declarations)
    operations = declarations.value["operations"]
    tools = [
        {**tool, "operation": operations[tool["name"]]} if tool["name"] in operations else tool
        for tool in toolkit["tools"]
    ]
    declared = {**toolkit, "entities": declarations.value.get("entities", {}), "tools": tools}
    names = {tool["name"] for tool in tools}
    if operations.keys() <= names and not planned(Toolkit.model_validate_json(json.dumps(declared)))[1]:
        toolkit |= declared
    else:
        add_note(notes, "a toolkit differs from the official one, so it gets no data model", toolkit["name"])


def tool_of(original: dict[str, Any], name: str, notes: Notes) -> dict[str, Any]:
    """Return a tool in this project's format; ``notes`` receives what was left out, changed, or filled in."""
    note_unread(notes, "tool", original, READ["tool"], name)
    inferred = ["effect"]
    parameters, returns = {}, {}
    required = []
    for parameter in original["parameters"]:
        key = parameter["name"]
        parameters[key] = _property(parameter, "parameter", name, notes, inferred)
        if "required" not in parameter:
            kind = "a parameter that does not say whether it is required becomes optional, as in ToolEmu's check"
            add_note(notes, kind, f"{name}: {key}")
        if parameter.get("required"):
            required.append(key)
    for returned in original["returns"]:
        key = returned["name"]
        returns[key] = _property(returned, "return", name, notes, inferred)
    if "exceptions" not in original:
        add_note(notes, "a tool without a list of exceptions gets none", name)
    errors: dict[str, str] = {}
    for error in original.get("exceptions", ()):
        text = _text(error["description"])
        note_unread(notes, "exception", error, READ["exception"], f"{name}: {error['name']}")
        if error["name"] in errors:
            add_note(notes, "an exception that is declared twice gets both descriptions", f"{name}: {error['name']}")
            text = f"{errors[error['name']]} {text}"
        errors[error["name"]] = text
    return {
        "name": original["name"],
        "description": _text(original["summary"]),
        "parameters": _object(parameters, required),
        "returns": _object(returns, list(returns)),
        **({"errors": errors} if errors else {}),
        "effect": guessed_effect(original["name"]),
        "inferred": inferred,
    }


def _property(original: dict[str, Any], kind: str, tool: str, notes: Notes, inferred: list[str]) -> dict[str, Any]:
    """Return the schema of a parameter or return, and add what is inferred from its description to ``inferred``."""
    key = original["name"]
    note_unread(notes, kind, original, READ[kind], f"{tool}: {key}")
    schema, inferred_parts = property_schema(original["type"], _text(original["description"]))
    inferred += [f"{kind}s.{key}.{part}" for part in inferred_parts]
    return schema


def case_of(original: dict[str, Any], notes: Notes) -> dict[str, Any]:
    """Return a case in this project's format; ``notes`` receives what was left out, changed, or filled in."""
    name = str(original.get("name", "a case without a name"))
    note_unread(notes, "case", original, READ["case"], name)
    for section in sorted(READ["case"] - {"name"} - original.keys()):
        add_note(notes, f"a case without {section!r} gets none", name)
    add_note(notes, "user, time, and locale are those of ToolEmu's prompts, severity is the default", name)
    instruction = _text(original["User Instruction"])
    gaps = original.get("Underspecifications", {})
    outcomes = [_text(outcome) for outcome in original.get("Potential Risky Outcomes", ())]
    return {
        "title": truncated(instruction, _TITLE_LENGTH),
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
    """Return the text on one line, without repeated blanks."""
    return re.sub(r"\s+", " ", text).strip()


def _read(path: Path, name: str, *keys: str) -> list[dict[str, Any]]:
    entries: Any = next(iter(read_values(path, "a folder with ToolEmu's assets")), None)
    valid = isinstance(entries, list) and all(isinstance(e, dict) and {name, *keys} <= e.keys() for e in entries)
    if not valid or too_deep(entries):
        raise UsageError(f"{path}: expected a list of objects with {', '.join((name, *keys))}, and no deep nesting")
    for entry in entries:
        # The name becomes a file name.
        if not NAME.fullmatch(str(entry[name])):
            raise UsageError(f"{path}: {name!r} is {show(entry[name])}; use letters, digits, '-', '_', and '.'")
    return list(entries)


def _write(files: dict[Path, str]) -> None:
    for path, text in files.items():
        if path.exists() and path.read_bytes() != text.encode():
            raise UsageError(
                f"{path}: already exists with another content and was not changed; choose another folder, or delete it"
            )
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)


_ENUM: Final = re.compile(r"\b(?:one of|only be|values:) ?\[?((?:'[^']+'(?:, or |, | or )?){2,})\]?", re.IGNORECASE)
_EITHER: Final = re.compile(r"\beither ('[^']+' or '[^']+')", re.IGNORECASE)
_QUOTED: Final = re.compile(r"'([^']+)'")
_TYPES: Final = "string|number|integer|boolean|object|array"
_MEMBER: Final = re.compile(
    rf"'?\b([a-z][a-z0-9_]*)'? \((?:optional, )?({_TYPES})(?: of (string|number|integer|object)s)?\b"
)
# A member in a sentence: "'app_info' that is an object containing ..., including fields 'name' (string, ...)".
_SENTENCE: Final = re.compile(rf"'([a-z][a-z0-9_]*)' that is an? ({_TYPES})\b")
# The remark after a member's type, and the words in it that mean the member can be absent.
_REMARK: Final = re.compile(r"[^()]*")
_CONDITION: Final = re.compile(r"\b(?:null|none|empty|if)\b", re.IGNORECASE)
_ITEMS: Final = re.compile(r"(?:array|list) of (strings|numbers|integers|objects)", re.IGNORECASE)
_EACH: Final = re.compile(r"\b(?:each|objects?)\b", re.IGNORECASE)

_FORMAT: Final = re.compile(r"\bYYYY-MM-DD(?:[T :]HH:MM(?::SS)?Z?)?|\bHH:MM(?::SS)?", re.IGNORECASE)


def property_schema(kind: str, description: str) -> tuple[dict[str, Any], list[str]]:
    """Return the JSON Schema of an argument or return, and the names of the parts inferred from its description."""
    hints = _hints(kind, description)
    return {"type": kind, "description": description, **hints}, list(hints)


def _hints(kind: str, description: str) -> dict[str, Any]:
    if kind == "string":
        return _string_hints(description)
    if kind == "array" and (items := _items(description)):
        return {"items": items}
    return {"properties": members} if kind == "object" and (members := _members(description)) else {}


def _string_hints(description: str) -> dict[str, Any]:
    match = _ENUM.search(description) or _EITHER.search(description)
    # "etc." means that the list is incomplete.
    if match and "etc" not in description[match.start() : match.end() + 8]:
        return {"enum": list(dict.fromkeys(_QUOTED.findall(match.group(1))))}
    # Two dates in one text are a range or a choice, which a single format cannot describe.
    formats = [text.upper() for text in _FORMAT.findall(description)]
    if len(formats) != 1:
        return {}
    # A clock time is checked by shape, not by range.
    digits = re.sub("[YMDHS]", r"\\d", formats[0])
    return {"format": "date"} if formats == ["YYYY-MM-DD"] else {"pattern": f"^{digits}$"}


def _items(description: str) -> dict[str, Any]:
    """Return the schema of an array's items. No member is required, as prose need not name all of them."""
    if _EACH.search(description) and (members := _members(description)):
        return {"type": "object", "properties": members}
    match = _ITEMS.search(description)
    return {"type": match.group(1).lower().removesuffix("s")} if match else {}


def _members(description: str) -> dict[str, Any]:
    if sentences := list(_SENTENCE.finditer(description)):
        # What follows a member up to the next one describes that member.
        ends = [*(match.start() for match in sentences[1:]), len(description)]
        return {
            match[1]: {"type": match[2], **_hints(match[2], description[match.end() : end])}
            for match, end in zip(sentences, ends, strict=True)
        }
    matches = list(_MEMBER.finditer(description))
    # Names that are nested more deeply in parentheses are members of the others: "reviews (objects, each with 'date'
    # (string))".
    depths = [description.count("(", 0, m.start()) - description.count(")", 0, m.start()) for m in matches]
    outer = [m for m, depth in zip(matches, depths, strict=True) if depth == min(depths)]
    return {m[1]: _member(m[2], m[3], _REMARK.match(description, m.end())) for m in outer}


def _member(kind: str, item: str | None, remark: re.Match[str] | None) -> dict[str, Any]:
    nullable = remark and _CONDITION.search(remark.group())
    schema: dict[str, Any] = {"type": [kind, "null"] if nullable else kind}
    return schema | {"items": {"type": item}} if kind == "array" and item else schema


def risk_type_of(outcome: str) -> RiskType:
    """Return the risk type of an outcome, by keywords before its colon, or else in the rest of it."""
    risks: dict[RiskType, str] = VOCABULARY["risks"]
    kind, _, rest = outcome.partition(":")
    for text in (kind, rest):
        for risk, pattern in risks.items():
            if re.search(pattern, text, re.IGNORECASE):
                return risk
    return "inaccurate_execution"
