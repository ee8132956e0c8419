"""Completes a case: finds what its file lacks, and writes a reply into it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from pytest_toolemu import prompts
from pytest_toolemu.authoring.completion.completion import (
    REQUEST,
    RULES,
    Change,
    has_gap,
    is_missing,
    own_items,
    refuse_loss,
)
from pytest_toolemu.authoring.generation.author import Stage
from pytest_toolemu.authoring.generation.case_drafting import LABELS
from pytest_toolemu.authoring.generation.case_material import material
from pytest_toolemu.authoring.generation.case_reply import PARTS, fields_of, reply_parts, reply_problems, with_rows
from pytest_toolemu.core.case import Case
from pytest_toolemu.core.case_vocabulary import RISK_TYPES
from pytest_toolemu.core.messages import Message
from pytest_toolemu.core.run import sha256
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.core.toolkit_files import resolve_toolkits
from pytest_toolemu.emulators.world_builder import plans_of
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.yaml_document import Document, Loc
from pytest_toolemu.formats.yaml_edits import YamlText

Json = dict[str, Any]

# Where a part of the reply belongs; the references and the world have rules of their own.
_PLACES: Final[dict[str, Loc]] = {
    "title": ("title",),
    "instruction": ("instruction",),
    "user": ("user",),
    "now": ("now",),
    "task_gaps": ("underspecified", "task"),
    "safety_gaps": ("underspecified", "safety"),
    "outcomes": ("risks", "outcomes"),
    "actions": ("risks", "actions"),
    "expected": ("expected",),
    "severity": ("severity",),
    "asking": ("asking",),
    "clues": ("clues",),
    "checks": ("checks",),
    "careful_reads": ("proof",),
}
_FIELDS: Final = {"rows": "world", "ids": "world", "no_clue": "proof"}
_GAPS: Final = ("task_gaps", "safety_gaps")
_OVERCAUTIOUS: Final = "overcautious"


@dataclass(frozen=True)
class CaseCompletion:
    """The missing parts of a case file, whose toolkits are given."""

    document: Document
    toolkits: tuple[Toolkit, ...]

    @classmethod
    def of(cls, document: Document) -> CaseCompletion:
        """Return the completion of a case file. Raise DocumentError or UsageError if it names no usable toolkits."""
        names = document.value.get("toolkits")
        if is_missing(names) or not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise UsageError(f"{document.path}: 'toolkits' names no toolkit; name the toolkits that the agent may use")
        if is_missing(document.value.get("instruction")) and not own_items(_at(document.value, ("risks", "outcomes"))):
            raise UsageError(
                f"{document.path}: has neither an instruction nor risks.outcomes to start from; write one of them, or "
                "use 'toolemu generate cases'"
            )
        return cls(document, resolve_toolkits(tuple(names), document))

    @cached_property
    def missing(self) -> tuple[str, ...]:
        """The parts of the reply that the file lacks."""
        return tuple(name for name in (*PARTS, "rows") if self._lacks(name))

    @property
    def missing_fields(self) -> tuple[str, ...]:
        """The missing parts by their names in the file."""
        names = {**{name: ".".join(map(str, loc)) for name, loc in _PLACES.items()}, **_FIELDS}
        return tuple(dict.fromkeys(names.get(name, name) for name in self.missing))

    def stage(self) -> Stage:
        """Return the request for the missing parts."""
        names = ("reasoning", *self.missing)
        messages = (
            Message(
                role="system",
                content=prompts.render(RULES, what="case", kind=self._kind, risk_types=RISK_TYPES.items()),
            ),
            Message(
                role="user",
                content=prompts.render(REQUEST, **material(self.toolkits), text=self.document.text, parts=names),
            ),
        )
        kits = [kit.model_dump(mode="json") for kit in self.toolkits]
        hashes = [prompts.prompt_hash(name) for name in (RULES, REQUEST)]
        key = sha256([self.document.text, kits, hashes])
        return Stage("completion", key, messages, reply_parts(self.toolkits, self.missing))

    def text(self, reply: Json) -> str:
        """Return the completed text of the file. Raise ValueError if the reply cannot be used."""
        labels = [label for label in self._labels if self._lacks_reference(label)]
        if problems := list(reply_problems(reply, labels)):
            raise ValueError("\n".join(problems))
        edited = YamlText(self.document.text)
        for change in self._changes(reply):
            edited = edited.with_value(change.loc, change.value, tuple(Case.model_fields))
        text = edited.text
        if "rows" in reply:
            text = with_rows(text, reply, plans_of(self.toolkits), self.document.path)
        refuse_loss(self.document, text)
        return text

    @property
    def _kind(self) -> str:
        return "benign-twin" if self.document.value.get("twin_of") else "red-team"

    @property
    def _labels(self) -> tuple[str, ...]:
        return (*LABELS, _OVERCAUTIOUS) if self._kind == "benign-twin" else LABELS

    def _lacks(self, name: str) -> bool:
        value = self.document.value
        if name == "references":
            return any(map(self._lacks_reference, self._labels))
        if name in ("rows", "ids"):
            return bool(plans_of(self.toolkits)) and "world" not in value
        if name == "pins":
            return "pins" not in value and any(tool.operation is None for kit in self.toolkits for tool in kit.tools)
        part = _at(value, _PLACES["careful_reads" if name == "no_clue" else name])
        if name in _GAPS:
            return self._kind != "benign-twin" and (has_gap(part) or is_missing(value.get("underspecified")))
        needs_none = name in ("careful_reads", "no_clue") and self._kind == "benign-twin"
        return not needs_none and (is_missing(part) or has_gap(part))

    def _lacks_reference(self, label: str) -> bool:
        reference = _at(self.document.value, ("references", label))
        return is_missing(reference) or has_gap(reference)

    def _changes(self, reply: Json) -> Iterator[Change]:
        fields = fields_of(reply)
        risks = fields.pop("risks", {})
        if "outcomes" in risks:
            yield Change(("risks", "types"), _joined(_at(self.document.value, ("risks", "types")), risks.pop("types")))
        proof = {"proof": fields.pop("proof")} if "proof" in fields else {}
        gaps = {f"underspecified.{name}": part for name, part in fields.pop("underspecified", {}).items()}
        references = fields.pop("references", {})
        nested = {**gaps, **{f"risks.{name}": part for name, part in risks.items()}}
        for name, part in {**nested, **fields, **proof}.items():
            loc: Loc = tuple(name.split("."))
            yield Change(loc, self._value(loc, part))
        for label, reference in references.items():
            if self._lacks_reference(label):
                yield Change(("references", label), reference)

    def _value(self, loc: Loc, part: Any) -> Any:
        """Return a part of the reply, with what the author wrote in its place."""
        own = _at(self.document.value, loc)
        if isinstance(part, list):
            return _joined(own, part)
        if isinstance(part, dict) and isinstance(own, dict):
            return {**part, **{name: each for name, each in own.items() if not has_gap(each)}}
        return part


def _joined(own: Any, new: Sequence[Any]) -> list[Any]:
    """Return the items of the author, and the new ones; of checks, those with other IDs."""
    items = own_items(own)
    ids = {item.get("id") for item in items if isinstance(item, dict)}
    further = [item for item in new if item not in items and not (isinstance(item, dict) and item.get("id") in ids)]
    return [*items, *further]


def _at(value: Any, loc: Loc) -> Any:
    for part in loc:
        value = value.get(part) if isinstance(value, dict) else None
    return value
