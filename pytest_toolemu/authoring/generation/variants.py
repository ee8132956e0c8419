"""Variants of a case: what each kind asks of the model, and the file that follows from its reply."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pytest_toolemu import prompts
from pytest_toolemu.authoring.case_text import with_world
from pytest_toolemu.authoring.generation.author import Stage
from pytest_toolemu.authoring.generation.case_drafting import LABELS, length_problems
from pytest_toolemu.authoring.generation.case_material import material
from pytest_toolemu.authoring.generation.case_reply import case_text, fields_of, reply_parts, reply_problems
from pytest_toolemu.authoring.generation.case_slots import LENGTHS, STYLES
from pytest_toolemu.authoring.lint.similar import near_duplicates
from pytest_toolemu.core.case import SUFFIX as CASE_SUFFIX
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.case_loading import build_case
from pytest_toolemu.core.case_vocabulary import RISK_TYPES
from pytest_toolemu.core.messages import Message, ReplySchema
from pytest_toolemu.core.run import sha256
from pytest_toolemu.core.toolkit import SUFFIX as TOOLKIT_SUFFIX
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.visible_text import quoted
from pytest_toolemu.formats.yaml_document import Document, dump, show
from pytest_toolemu.models.strict_schema import TEXT, array_of, closed_object

Json = dict[str, Any]
VariantKind = Literal["paraphrase", "translation", "benign-twin", "harder"]

RULES: Final = "authoring/variant"
REQUEST: Final = "authoring/variant_request"

# What belongs to the file of the original: its place in a dataset, and who accepted it.
_NOT_INHERITED: Final = ("split", "canary", "provenance", "inferred", "variant_of", "twin_of")
# What a twin shares with its base, as both meet the same world.
_OF_THE_WORLD: Final = ("toolkits", "user", "now", "locale", "world", "ids", "pins", "severity")
_TWIN_PARTS: Final = ("title", "instruction", "outcomes", "actions", "expected", "checks", "references")
# The similarity of instructions from which a paraphrase is none.
_ALIKE: Final = 0.7


@dataclass(frozen=True)
class VariantSlot:
    """One variant to write. Style and length belong to paraphrases, the language to translations."""

    number: int
    kind: VariantKind
    base: str
    style: str = ""
    length: str = ""
    language: str = ""
    seed: int = 0


@dataclass(frozen=True)
class BaseCase:
    """The case of which variants are written."""

    resolved_case: ResolvedCase
    value: Json

    @classmethod
    def read(cls, path: Path) -> BaseCase:
        """Return the case in a file. Raise DocumentError if it is not valid, and UsageError if it is a toolkit."""
        if path.name.endswith(TOOLKIT_SUFFIX):
            raise UsageError(
                f"{path}: is a toolkit, but 'toolemu vary' takes the file of a case, *{CASE_SUFFIX}; to draft "
                "toolkits, use 'toolemu generate toolkits'"
            )
        document = Document.read(path)
        return cls(build_case(document), document.value)

    @property
    def id(self) -> str:
        """The ID of the case."""
        return self.resolved_case.case.id

    @property
    def own(self) -> Json:
        """The fields of the file, without those that a variant must not inherit."""
        return {name: part for name, part in self.value.items() if name not in _NOT_INHERITED}

    @property
    def link(self) -> str:
        """The case to which variants point: of a variant, its own origin."""
        return self.resolved_case.case.variant_of or self.id


def variant_key(slot: VariantSlot, base: BaseCase, passed: Sequence[str]) -> str:
    """Return the key of everything that is asked, except the other variants."""
    return sha256([vars(slot), base.own, list(passed), prompts.prompt_hash(RULES), prompts.prompt_hash(REQUEST)])


def variant_stage(slot: VariantSlot, base: BaseCase, others: Sequence[str], passed: Sequence[str] = ()) -> Stage:
    """Return the request for a variant; ``others`` are the instructions of variants that exist."""
    toolkits = base.resolved_case.trusted_toolkits
    is_new_case = slot.kind in ("benign-twin", "harder")
    least, most = LENGTHS[slot.length] if slot.length else (0, 0)
    request = prompts.render(
        REQUEST,
        **(material(toolkits) if is_new_case else {"toolkits": []}),
        case=dump(base.own),
        passed=passed,
        others=[quoted(text) for text in others],
        style=STYLES[slot.style] if slot.style else "",
        least=least,
        most=most,
        language=quoted(slot.language) if slot.language else "",
    )
    rules = prompts.render(RULES, kind=slot.kind, risk_types=RISK_TYPES.items())
    messages = Message(role="system", content=rules), Message(role="user", content=request)
    return Stage("variant", variant_key(slot, base, passed), messages, _schema(slot, base))


def _schema(slot: VariantSlot, base: BaseCase) -> ReplySchema:
    toolkits = base.resolved_case.trusted_toolkits
    if slot.kind == "harder":
        return reply_parts(toolkits)
    if slot.kind == "benign-twin":
        return reply_parts(toolkits, _TWIN_PARTS)
    members: Json = {"reasoning": TEXT, "title": TEXT, "instruction": TEXT}
    if slot.kind == "translation":
        members["answers"] = array_of(closed_object({"label": TEXT, "answer": TEXT}))
        members["patterns"] = array_of(closed_object({"check": TEXT, "answer": TEXT}))
    return ReplySchema(name="variant", schema=closed_object(members))


def variant_text(slot: VariantSlot, base: BaseCase, others: Sequence[str], reply: Json) -> str:
    """Return the text of the variant's file. Raise ValueError if the reply is not such a variant."""
    if problems := list(_problems(slot, base, others, reply)):
        raise ValueError("\n".join(problems))
    link = {"variant_of": base.link}
    if slot.kind == "harder":
        head = {"toolkits": base.own["toolkits"], "locale": base.resolved_case.case.locale}
        return case_text({**head, **link}, reply, base.resolved_case.trusted_toolkits)
    if slot.kind == "benign-twin":
        return _with_own_rows(_twin_fields(base, reply) | link)
    fields = {**base.own, "title": reply["title"], "instruction": reply["instruction"]}
    if base.resolved_case.case.twin_of:
        link["twin_of"] = base.resolved_case.case.twin_of
    if slot.kind == "translation":
        fields |= _translated(base.own, reply)
    return _with_own_rows(fields | link)


def _twin_fields(base: BaseCase, reply: Json) -> Json:
    shared: Json = {name: base.own[name] for name in _OF_THE_WORLD if name in base.own}
    # Nothing is left out, so nothing has to be discovered.
    return {**fields_of(reply), **shared, "twin_of": base.id, "asking": "needless", "clues": ["none"]}


def _translated(own: Json, reply: Json) -> Json:
    answers = {each["label"]: each["answer"] for each in reply["answers"]}
    patterns = {each["check"]: each["answer"] for each in reply["patterns"]}
    return {
        "references": {label: {**each, "answer": answers[label]} for label, each in own.get("references", {}).items()},
        "checks": [_with_pattern(check, patterns.get(check["id"])) for check in own.get("checks", ())],
    }


def _with_pattern(check: Json, answer: str | None) -> Json:
    if answer is None:
        return check
    return {name: {**part, "answer": answer} if _reads_answer(part) else part for name, part in check.items()}


def _reads_answer(part: Any) -> bool:
    return isinstance(part, dict) and "answer" in part


def _problems(slot: VariantSlot, base: BaseCase, others: Sequence[str], reply: Json) -> Iterator[str]:
    labels = (*LABELS, "overcautious") if slot.kind == "benign-twin" else LABELS
    if slot.kind in ("benign-twin", "harder"):
        yield from reply_problems(reply, labels)
    if slot.kind == "harder" and not (reply["task_gaps"] or reply["safety_gaps"]):
        yield "task_gaps, safety_gaps: both lists are empty; a harder variant must leave something out, too"
    if slot.kind == "paraphrase":
        yield from length_problems(slot.length, reply)
        texts = [base.own["instruction"], *others, reply["instruction"]]
        for later, first, _ in near_duplicates(texts, _ALIKE):
            if later == len(texts) - 1:
                yield f"the instruction is nearly {show(texts[first], 80)}; use other words and another order"
    if slot.kind == "translation":
        yield from _untranslated(base.own, reply)


def _untranslated(own: Json, reply: Json) -> Iterator[str]:
    """Yield answers and patterns that are missing, or belong to nothing."""
    reading = {check["id"] for check in own.get("checks", ()) if any(map(_reads_answer, check.values()))}
    expected: dict[str, tuple[str, set[str]]] = {
        "answers": ("label", set(own.get("references", {}))),
        "patterns": ("check", reading),
    }
    for part, (key, names) in expected.items():
        given = [each[key] for each in reply[part]]
        if sorted(given) != sorted(names):
            yield f"{part}: give exactly one for each of {', '.join(sorted(names)) or 'none'}, not {show(given, 100)}"


def _with_own_rows(fields: Mapping[str, Any]) -> str:
    """Return the text of a file with these fields, one row on a line if it fits."""
    first = ("title", "toolkits", "instruction", "user", "now", "locale", "variant_of", "twin_of", "underspecified")
    rest = [name for name in fields if name not in ("world", "ids")]
    ordered = {name: fields[name] for name in (*first, *rest) if name in fields}
    text = dump(ordered)
    if "world" not in fields:
        return text
    document = Document.parse(text, Path("variant"))
    return with_world(document, fields["world"], fields.get("ids", {}))
