"""Completes a case or toolkit that a person began: finds what its file lacks, and writes a model's reply into it."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from pytest_toolemu.authoring.case_text import with_world
from pytest_toolemu.authoring.drafts.case_reply import (
    LABELS,
    PARTS,
    described_toolkits,
    fields_of,
    reply_parts,
    reply_problems,
    rows_and_ids,
)
from pytest_toolemu.authoring.drafts.check_draft import CheckReport, DraftCorpus, check_draft
from pytest_toolemu.authoring.drafts.draft_store import DraftFinding
from pytest_toolemu.authoring.drafts.generation import Author, Stage, checked_text, prompt_hashes, stage_messages
from pytest_toolemu.authoring.drafts.toolkits import (
    DATA_MODEL,
    EFFECT,
    ERRORS,
    OBJECT,
    RISKS,
    entities_of,
    errors_of,
    operations_by_tool,
    risk_lines,
)
from pytest_toolemu.core.case import SUFFIXES, Case
from pytest_toolemu.core.case_loading import find_toolkit, resolve_toolkits
from pytest_toolemu.core.case_vocabulary import RISK_TYPES
from pytest_toolemu.core.messages import ReplySchema
from pytest_toolemu.core.run import sha256
from pytest_toolemu.core.toolkit import SUFFIX as TOOLKIT_SUFFIX
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.emulators.world_builder import plans_of
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.yaml_document import Document, Loc, YamlText, format_location, show
from pytest_toolemu.models.strict_schema import TEXT, closed_object

Json = dict[str, Any]

_GAP: Final = "TODO:"
"""What ``toolemu new`` writes where the author should write something."""

# Where a part of the reply belongs; the references and the world have rules of their own.
_PLACES: Final[dict[str, Loc]] = {
    **{name: (name,) for name in ("title", "instruction", "user", "now")},
    "task_gaps": ("underspecified", "task"),
    "safety_gaps": ("underspecified", "safety"),
    "outcomes": ("risks", "outcomes"),
    "actions": ("risks", "actions"),
    **{name: (name,) for name in ("expected", "severity", "asking", "clues", "checks")},
    "careful_reads": ("proof",),
    "no_clue": ("proof",),
}
_OF_TWINS: Final = ("task_gaps", "safety_gaps", "careful_reads", "no_clue")
"""Parts that a benign twin lacks, because it leaves nothing out."""

_TEXTS: Final = ("title", "category", "description")
_TOOL_PARTS: Final[dict[str, Json]] = {"description": TEXT, "returns": OBJECT, "errors": ERRORS, "effect": EFFECT}


def completion_of(path: Path) -> CaseCompletion | ToolkitCompletion:
    """Return what a file lacks. Raise DocumentError or UsageError if it is neither a case nor a toolkit to build on."""
    document = Document.read(path)
    if not path.name.endswith((TOOLKIT_SUFFIX, *SUFFIXES)) or not isinstance(document.value, dict):
        raise UsageError(
            f"{path}: is neither a case ({SUFFIXES[0]}) nor a toolkit ({TOOLKIT_SUFFIX}) to start from; begin with "
            "'toolemu new case' or 'toolemu new toolkit'"
        )
    return (ToolkitCompletion if path.name.endswith(TOOLKIT_SUFFIX) else CaseCompletion).of(document)


async def complete_file(
    author: Author, completion: CaseCompletion | ToolkitCompletion
) -> tuple[str, Sequence[DraftFinding]]:
    """Return the completed text, which went back to the model with the findings of its checks at most twice.

    Also return the errors that the checks still find.

    Nothing is written but the replies. Raise InconclusiveError if the model gives no completion.
    """
    document = completion.document
    reports: list[CheckReport] = []

    async def check(text: str) -> list[str]:
        reports.append(await _checked(document, text))
        findings = reports[-1].findings if reports[-1].errors else ()
        # Operations are marked as inferred for a person, who is to remove the mark.
        return [str(finding) for finding in findings if finding.level != "note" and finding.rule != "inferred"]

    text = await checked_text(author, str(document.path), completion.stage(), check)
    return text, reports[-1].errors


async def _checked(document: Document, text: str) -> CheckReport:
    """Check a text in a folder of its own, with the toolkits that it names."""
    with TemporaryDirectory() as name:
        is_toolkit = document.path.name.endswith(TOOLKIT_SUFFIX)
        folder = Path(name) / ("toolkits" if is_toolkit else "cases")
        folder.mkdir()
        copy = folder / document.path.name
        copy.write_text(text, encoding="utf-8")
        for toolkit in () if is_toolkit else document.value["toolkits"]:
            if path := find_toolkit(toolkit, document.path.resolve().parent):
                (folder.parent / "toolkits").mkdir(exist_ok=True)
                shutil.copy(path, folder.parent / "toolkits")
        return await check_draft(copy, DraftCorpus())


@dataclass(frozen=True)
class CaseCompletion:
    """The missing parts of a case file, whose toolkits are given."""

    document: Document
    toolkits: tuple[Toolkit, ...]

    @classmethod
    def of(cls, document: Document) -> CaseCompletion:
        """Return the completion of a case file. Raise DocumentError or UsageError if it names no usable toolkits."""
        names = document.value.get("toolkits")
        has_toolkits = isinstance(names, list) and names and all(isinstance(name, str) for name in names)
        outcomes = _own_items(_at(document.value, ("risks", "outcomes")))
        if not has_toolkits or (_is_missing(document.value.get("instruction")) and not outcomes):
            raise UsageError(
                f"{document.path}: has too little to start from; name the toolkits, and write an instruction or "
                "risks.outcomes, or use 'toolemu generate cases'"
            )
        return cls(document, resolve_toolkits(tuple(names), document))

    @cached_property
    def missing(self) -> tuple[str, ...]:
        """The parts of the reply that the file lacks."""
        return tuple(name for name in (*PARTS, "rows") if self._lacks(name))

    @property
    def missing_fields(self) -> tuple[str, ...]:
        """The missing parts by their names in the file."""
        names = {**{name: ".".join(map(str, loc)) for name, loc in _PLACES.items()}, "rows": "world", "ids": "world"}
        return tuple(dict.fromkeys(names.get(name, name) for name in self.missing))

    def stage(self) -> Stage[str]:
        """Return the request for the missing parts."""
        kind = "benign-twin" if self._is_twin else "red-team"
        messages = stage_messages(
            "completion",
            {"what": "case", "kind": kind, "risk_types": RISK_TYPES.items()},
            {**described_toolkits(self.toolkits), "text": self.document.text, "parts": ("reasoning", *self.missing)},
        )
        kits = [kit.model_dump(mode="json") for kit in self.toolkits]
        key = sha256([self.document.text, kits, prompt_hashes("completion")])
        return Stage("completion", key, messages, reply_parts(self.toolkits, self.missing), self._text)

    @property
    def _is_twin(self) -> bool:
        return bool(self.document.value.get("twin_of"))

    @property
    def _missing_labels(self) -> list[str]:
        labels = (*LABELS, "overcautious") if self._is_twin else LABELS
        return [label for label in labels if _is_open(_at(self.document.value, ("references", label)))]

    def _lacks(self, name: str) -> bool:
        value = self.document.value
        if name == "references":
            return bool(self._missing_labels)
        if name in ("rows", "ids"):
            return bool(plans_of(self.toolkits)) and "world" not in value
        if name == "pins":
            return "pins" not in value and any(tool.operation is None for kit in self.toolkits for tool in kit.tools)
        if name in _OF_TWINS and self._is_twin:
            return False
        part = _at(value, _PLACES[name])
        if name in ("task_gaps", "safety_gaps"):
            return _has_gap(part) or _is_missing(value.get("underspecified"))
        return _is_open(part)

    def _text(self, reply: Json) -> str:
        """Return the completed text of the file. Raise ValueError if the reply cannot be used."""
        if problems := list(reply_problems(reply, self._missing_labels)):
            raise ValueError("\n".join(problems))
        edited = YamlText(self.document.text)
        for loc, value in self._changes(reply):
            edited = edited.with_value(loc, value, tuple(Case.model_fields))
        text = edited.text
        if "rows" in reply:
            world, ids = rows_and_ids(reply, self.toolkits)
            text = with_world(Document.parse(text, self.document.path), world, ids) if world else text
        refuse_loss(self.document, text)
        return text

    def _changes(self, reply: Json) -> Iterator[tuple[Loc, Any]]:
        fields = fields_of(reply)
        references, risks = fields.pop("references", {}), fields.pop("risks", {})
        gaps = fields.pop("underspecified", {})
        if "outcomes" in risks:
            own = _at(self.document.value, ("risks", "types"))
            yield ("risks", "types"), _joined(own, risks.pop("types"))
        proof = {"proof": fields.pop("proof")} if "proof" in fields else {}
        nested = {f"underspecified.{name}": part for name, part in gaps.items()}
        nested |= {f"risks.{name}": part for name, part in risks.items()}
        for name, part in {**nested, **fields, **proof}.items():
            loc: Loc = tuple(name.split("."))
            own = _at(self.document.value, loc)
            kept = {key: each for key, each in own.items() if not _has_gap(each)} if isinstance(own, dict) else {}
            yield loc, _joined(own, part) if isinstance(part, list) else {**part, **kept} if kept else part
        for label, reference in references.items():
            if _is_open(_at(self.document.value, ("references", label))):
                yield ("references", label), reference


@dataclass(frozen=True)
class ToolkitCompletion:
    """The parts of a toolkit file that are missing, or that an importer guessed."""

    document: Document

    @classmethod
    def of(cls, document: Document) -> ToolkitCompletion:
        """Return the completion of a toolkit file. Raise UsageError if it has no tools with a name."""
        tools = document.value.get("tools")
        if not isinstance(tools, list) or not tools or not all(isinstance(t, dict) and t.get("name") for t in tools):
            message = f"{document.path}: 'tools' lists no tools with names; write at least the name of each tool"
            raise UsageError(message)
        return cls(document)

    @cached_property
    def missing_fields(self) -> tuple[str, ...]:
        """The missing parts by their names in the file; none if the file is complete."""
        parts = [name for name in (*_TEXTS, "risks") if _is_open(self.document.value.get(name))]
        parts += [f"{tool['name']}.{name}" for tool in self._tools for name in _missing_of(tool)]
        return tuple(parts + (list(DATA_MODEL) if self._lacks_data else []))

    def stage(self) -> Stage[str]:
        """Return the request for the missing parts."""
        tools = {
            tool["name"]: closed_object({name: _TOOL_PARTS[name] for name in names})
            for tool in self._tools
            if (names := _missing_of(tool))
        }
        members: Json = {
            "reasoning": TEXT,
            **{name: TEXT for name in _TEXTS if name in self.missing_fields},
            **({"risks": RISKS} if "risks" in self.missing_fields else {}),
            **({"tools": closed_object(tools)} if tools else {}),
            **(DATA_MODEL if self._lacks_data else {}),
        }
        request = {"toolkits": [], "text": self.document.text, "parts": self.missing_fields}
        messages = stage_messages("completion", {"what": "toolkit"}, request)
        key = sha256([self.document.text, prompt_hashes("completion")])
        return Stage(
            "completion", key, messages, ReplySchema(name="toolkit", schema=closed_object(members)), self._text
        )

    @property
    def _tools(self) -> list[Json]:
        return list(self.document.value["tools"])

    @property
    def _lacks_data(self) -> bool:
        return "entities" not in self.document.value and not any("operation" in tool for tool in self._tools)

    def _text(self, reply: Json) -> str:
        """Return the completed text of the file. Raise ValueError if the reply cannot be used."""
        operations = operations_by_tool(reply, [tool["name"] for tool in self._tools], "toolkit")
        edited, guesses = YamlText(self.document.text), set()
        for loc, value in self._changes(reply, operations):
            edited = edited.with_value(loc, value, tuple(Toolkit.model_fields))
        for index, tool in enumerate(self._tools):
            inferred = list(tool.get("inferred") or ())
            guessed = [name for name in _missing_of(tool) if name in inferred]
            guesses |= {("tools", index, name) for name in (*guessed, *(["inferred"] if guessed else []))}
            marks = [name for name in inferred if name not in guessed]
            marks += ["operation"] if tool["name"] in operations else []  # a person should check it
            mark: Loc = ("tools", index, "inferred")
            if marks != inferred:
                edited = edited.with_value(mark, marks) if marks else edited.without(mark)
        refuse_loss(self.document, edited.text, frozenset(guesses))
        return edited.text

    def _changes(self, reply: Json, operations: Json) -> Iterator[tuple[Loc, Any]]:
        yield from (((name,), reply[name]) for name in _TEXTS if name in reply)
        if "risks" in reply:
            yield ("risks",), [*_own_items(self.document.value.get("risks")), *risk_lines(reply["risks"])]
        if reply.get("entities"):
            yield ("entities",), entities_of(reply)
        for index, tool in enumerate(self._tools):
            for name, part in reply.get("tools", {}).get(tool["name"], {}).items():
                if name != "errors" or part:
                    yield ("tools", index, name), errors_of(part) if name == "errors" else part
            if tool["name"] in operations:
                yield ("tools", index, "operation"), operations[tool["name"]]


def _missing_of(tool: Json) -> list[str]:
    """Return the parts that a tool lacks, or that an importer guessed. A tool may have no errors."""
    inferred = tool.get("inferred") or ()
    may_lack = ("errors",) if "returns" in tool and "returns" not in inferred else ()
    return [
        name
        for name in _TOOL_PARTS
        if name in inferred or _has_gap(tool.get(name)) or (_is_missing(tool.get(name)) and name not in may_lack)
    ]


def _is_missing(value: Any) -> bool:
    """Return whether a value says nothing: it is absent, empty, or a text that the author is to write."""
    return value in (None, "", [], {}) or (isinstance(value, str) and _GAP in value)


def _has_gap(value: Any) -> bool:
    """Return whether a value, or a part of it, is a text that the author is to write."""
    if isinstance(value, str):
        return _GAP in value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(map(_has_gap, parts))


def _is_open(value: Any) -> bool:
    return _is_missing(value) or _has_gap(value)


def _own_items(value: Any) -> list[Any]:
    """Return the items of a list that the author wrote."""
    return [item for item in value if not _has_gap(item)] if isinstance(value, list) else []


def _joined(own: Any, new: Sequence[Any]) -> list[Any]:
    """Return the items of the author, and the new ones; of checks, those with other IDs."""
    items = _own_items(own)
    ids = {item.get("id") for item in items if isinstance(item, dict)}
    further = [item for item in new if item not in items and not (isinstance(item, dict) and item.get("id") in ids)]
    return [*items, *further]


def _at(value: Any, loc: Loc) -> Any:
    for part in loc:
        value = value.get(part) if isinstance(value, dict) else None
    return value


def refuse_loss(before: Document, after: str, replaced: frozenset[Loc] = frozenset()) -> None:
    """Raise UsageError if a completed text lacks a value or a comment of the author; the file is then left alone.

    ``replaced`` are the locations of guesses that a completion may replace.
    """
    value = Document.parse(after, before.path).value
    losses = [f"the value at {format_location(loc) or 'the top'}" for loc in _lost(before.value, value, (), replaced)]
    comments = Counter(YamlText(before.text).comments) - Counter(YamlText(after).comments)
    losses += [f"the comment {show(comment)}" for comment in comments]
    if losses:
        raise UsageError(
            f"{before.path}: completing the file would lose {losses[0]}, so it was not changed; write the adjacent "
            "part yourself"
        )


def _lost(before: Any, after: Any, loc: Loc, replaced: frozenset[Loc]) -> Iterator[Loc]:
    if _is_missing(before) or loc in replaced:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key, part in before.items():
            yield from _lost(part, after.get(key), (*loc, key), replaced)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (part, other) in enumerate(zip(before, after, strict=True)):
            yield from _lost(part, other, (*loc, index), replaced)
    elif isinstance(before, list) and isinstance(after, list):
        yield from ((*loc, index) for index, part in enumerate(before) if not _has_gap(part) and part not in after)
    elif before != after:
        yield loc
