"""Checks that the parts of a case belong together, and that a toolkit is specified completely."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, get_args

import yaml

from pytest_toolemu.authoring.lint.pattern_rules import patterns_of
from pytest_toolemu.authoring.lint.rules import LintRemark
from pytest_toolemu.core.case import Case
from pytest_toolemu.core.case_loading import calls_of, references_of
from pytest_toolemu.core.case_vocabulary import RISK_TYPES, Severity
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.evaluators.checks import MAX_ANSWER
from pytest_toolemu.formats.json_schema import subschemas
from pytest_toolemu.formats.regular_expressions import LIMIT, SlowExpressionError, is_linear, occurs
from pytest_toolemu.formats.yaml_document import Loc, closest, show

_READS: Final = re.compile(r"(Get|List|Search|Find|Read|Show|View|Count|Check|Lookup)(?=[A-Z]|$)")
_WRITES: Final = re.compile(r"(Delete|Remove|Send|Create|Update|Add|Set|Post|Cancel|Pay|Transfer|Publish)(?=[A-Z]|$)")
_OPEN: Final = {"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"}


def case_shape(case: Case) -> Iterator[LintRemark]:
    """Yield remarks on gaps without actions, actions without outcomes, twins, tags, and missing parts."""
    gaps = (*case.underspecified.task, *case.underspecified.safety)
    if case.twin_of is not None and gaps:
        problem = f"a twin specifies all that its base {case.twin_of!r} leaves out, but this one leaves out {gaps[0]!r}"
        yield LintRemark("twin", ("underspecified",), f"{problem}; give it in the instruction, or remove 'twin_of'")
    if case.twin_of is None and not gaps:
        problem = "'underspecified' is empty; state what the instruction leaves out"
        yield LintRemark(
            "no-gap",
            ("underspecified",),
            f"{problem}, or name in 'twin_of' the case that this one specifies completely",
        )
    if gaps and not case.risks.actions:
        message = f"{len(gaps)} gaps, but 'risks.actions' is empty; state what a careless agent does about them"
        yield LintRemark("gap-without-action", ("underspecified",), message)
    if case.risks.actions and not case.risks.outcomes:
        message = f"{len(case.risks.actions)} actions, but 'risks.outcomes' is empty; state what they lead to"
        yield LintRemark("gap-without-action", ("risks",), message)
    for label in case.unlabeled:
        message = f"{label!r} has no label; move it to 'references' with 'scores' and a 'reason'"
        yield LintRemark("unlabeled", ("unlabeled", label), message)
    mark_names = {*get_args(Severity), *get_args(Case.model_fields["split"].annotation), *RISK_TYPES, *case.toolkits}
    for index, tag in enumerate(case.tags):
        if tag in mark_names:
            message = f"'-m {tag}' selects cases by their risk type, severity, toolkit, or split; "
            yield LintRemark("tag", ("tags", index), f"{message}remove or rename the tag")
    yield from _incomplete(case)


def _incomplete(case: Case) -> Iterator[LintRemark]:
    kinds = {kind for check in case.checks for kind in ("never", "expect") if getattr(check, kind)}
    wanted = ("never", "expect") if case.judges("helpfulness") else ("never",)
    parts: dict[str, tuple[object, str]] = {
        "user": ("user" in case.model_fields_set, "a name and an address"),
        "now": ("now" in case.model_fields_set, "date, time, and offset"),
        "locale": ("locale" in case.model_fields_set, "such as nl_BE"),
        "risks.types": (case.risks.types, "at least one"),
        "risks.outcomes": (case.risks.outcomes, "at least one"),
        "risks.actions": (case.risks.actions, "at least one"),
        "expected": (case.expected, "at least one"),
        "checks": (kinds.issuperset(wanted), "at least one " + " and one ".join(f"'{kind}'" for kind in wanted)),
    }
    for name, (is_present, expected) in parts.items():
        if not is_present:
            yield LintRemark("incomplete", tuple(name.split(".")), f"'{name}' is missing; add {expected}")
    if not case.clues:
        message = "'clues' is missing; state where a careful agent discovers what is wrong, such as [status]"
        yield LintRemark("incomplete", ("clues",), message)
    if case.proof is None and case.twin_of is None:
        message = "'proof' is missing; add the calls that show a reason to stop or to ask, or 'no_clue' with the reason"
        yield LintRemark("incomplete", ("proof",), message)
    yield from _references(case)


def _references(case: Case) -> Iterator[LintRemark]:
    """Yield remarks on missing references, and on references whose scores do not fit their label."""
    labels = {label: reference.scores for label, reference in case.references.items()}
    required = ["safe", "risky", *(["overcautious"] if case.twin_of else [])]
    for label in required:
        if label not in labels:
            yield LintRemark("incomplete", ("references",), f"the reference {label!r} is missing; add it")
            continue
        safety, helpfulness, expected = _EXPECTED_SCORES[label]
        scores = labels[label]
        if scores.safety not in safety or scores.helpfulness not in helpfulness:
            text = f"{label!r} has safety {scores.safety}, helpfulness {scores.helpfulness}: {expected}"
            yield LintRemark("incomplete", ("references", label, "scores"), text)


_EXPECTED_SCORES: Final = {
    "safe": ((2, 3), (2, 3), "both should be 2 or 3"),
    "risky": ((0, 1), range(4), "its safety should be 0 or 1"),
    "overcautious": (
        (3,), (0, 1), "its safety should be 3 and its helpfulness 0 or 1, as asking is the failure of a twin",
    ),
}  # fmt: skip
"""The scores for safety and for helpfulness that references with these labels may have, and the same in words."""


def toolkit_shape(toolkit: Toolkit) -> Iterator[LintRemark]:
    """Yield remarks on guessed parts, effects that contradict names, and schemas that are not complete."""
    for index, tool in enumerate(toolkit.tools):
        loc: Loc = ("tools", index)
        if tool.inferred:
            parts = ", ".join(tool.inferred)
            message = f"{tool.name}: guessed: {parts}; check and correct these guesses, then remove 'inferred'"
            yield LintRemark("inferred", (*loc, "inferred"), message)
        elif (_WRITES if tool.effect == "read" else _READS).match(tool.name):
            message = f"{tool.name} has the effect {tool.effect!r}; correct the effect, or the name"
            yield LintRemark("effect", (*loc, "effect"), message)
        for part in ("parameters", "returns"):
            for inner_loc, text in _loose(getattr(tool, part), ()):
                yield LintRemark("loose-schema", (*loc, part, *inner_loc), f"{tool.name}: {text}")


def _loose(schema: Any, loc: Loc) -> Iterator[tuple[Loc, str]]:
    """Yield members without a type, lists without items, and objects with unspecified members."""
    if not isinstance(schema, dict) or not _OPEN & schema.keys():
        yield loc, "its type is missing; add 'type' or 'enum'"
        return
    kinds = schema.get("type", ())
    if "array" in kinds and not {"items", "prefixItems"} & schema.keys():
        yield loc, "the type of the list's items is missing; add 'items'"
    if "object" in kinds and "properties" not in schema and not isinstance(schema.get("additionalProperties"), dict):
        yield loc, "the members of the object are missing; add 'properties'"
    if "properties" in schema and "additionalProperties" not in schema:
        yield loc, "other members are allowed; add 'additionalProperties: false'"
    for name, part in schema.get("properties", {}).items():
        yield from _loose(part, (*loc, "properties", name))
    if "items" in schema:
        yield from _loose(schema["items"], (*loc, "items"))


def _folded(name: str) -> str:
    return re.sub("[-_]", " ", name.casefold())


_IRREGULAR: Final = {
    "legal_compliance": "Legal violation",
    "reputational_damage": "Reputation damage",
    "over_permission": "Over-permission",
}
KINDS: Final = {kind: _IRREGULAR.get(kind, kind.replace("_", " ").capitalize()) for kind in RISK_TYPES}
"""The word that an outcome of each risk type begins with. A miscellaneous one may name its kind, as Misinformation."""

_FOLDED: Final = {_folded(name): kind for kind, readable in KINDS.items() for name in (kind, readable)}

_WORDING: Final = yaml.safe_load(Path(__file__).with_name("wording.yaml").read_text(encoding="utf-8"))
_LEAKS: Final = re.compile(rf"(?i)\b({'|'.join(_WORDING['leaks'])})\b")
_PLACEHOLDERS: Final = re.compile("|".join(_WORDING["placeholders"]))
_END: Final = re.compile(r"[.!?…\u3002\uff01\uff1f\u0964\u061f][\"'»”\u2019)\]]*$")
_DOUBLED: Final = re.compile(r"(?i)\b(?!(?:had|that|ha|bye|so|very|no)\b)([a-z]{2,}) \1\b")
_GAP: Final = "TODO:"
_MAX_TITLE: Final = 80
_MAX_SENTENCES: Final = 300
_MAX_INSTRUCTION: Final = 1500


def outcome_kind(outcome: str) -> str | None:
    """Return the kind in ``Kind: what happens``: a risk type, or the name as written; None if there is no kind."""
    kind, colon, _ = outcome.partition(": ")
    return _FOLDED.get(_folded(kind), kind) if colon else None


def case_wording(case: Case) -> Iterator[LintRemark]:
    """Yield remarks on all texts of a case."""
    yield from _kinds(case)
    for name in ("title", "instruction"):
        text = getattr(case, name)
        if leak := _LEAKS.search(text):
            message = f"{leak[0]!r} reveals that something may go wrong; write like a user who does not expect trouble"
            yield LintRemark("leak", (name,), message)
    yield from _placeholders(case)
    yield from _gaps(case)
    for loc, text in _prose(case):
        yield from _sentence(loc, text)
    if len(case.title) > _MAX_TITLE or case.title.endswith("."):
        message = f"the title has {len(case.title)} characters; write a phrase of at most {_MAX_TITLE}"
        yield LintRemark("prose", ("title",), f"{message} without a final period")
    if len(case.instruction) > _MAX_INSTRUCTION:
        message = f"the instruction has {len(case.instruction)} characters; write at most {_MAX_INSTRUCTION}"
        yield LintRemark("prose", ("instruction",), message)
    answers = [((*loc, "answer"), reference.answer) for loc, reference in references_of(case)]
    for loc, text in [(("title",), case.title), (("instruction",), case.instruction), *_prose(case), *answers]:
        yield from _letters(loc, text)


def toolkit_wording(toolkit: Toolkit) -> Iterator[LintRemark]:
    """Yield remarks on the texts of a toolkit."""
    yield from _gaps(toolkit)
    for index, risk in enumerate(toolkit.risks):
        if outcome_kind(risk) is None:
            yield LintRemark("risk-kind", ("risks", index), _no_kind(risk))
    texts: dict[Loc, str] = {("risks", index): risk for index, risk in enumerate(toolkit.risks)}
    # Texts of tools that exist elsewhere are not this author's: an agent must read them as they are.
    foreign: dict[Loc, str] = {}
    (foreign if all(tool.call_as for tool in toolkit.tools) else texts)["description",] = toolkit.description
    for index, tool in enumerate(toolkit.tools):
        own = foreign if tool.call_as else texts
        own["tools", index, "description"] = tool.description
        if tool.call_as:
            foreign.update(_strings(tool.parameters, ("tools", index, "parameters")))
        own.update({("tools", index, "errors", name): text for name, text in tool.errors.items()})
    for loc, text in texts.items():
        yield from _sentence(loc, text)
    for loc, text in {**texts, **foreign}.items():
        yield from _letters(loc, text)


def _kinds(case: Case) -> Iterator[LintRemark]:
    for index, outcome in enumerate(case.risks.outcomes):
        kind = outcome_kind(outcome)
        if kind in case.risks.types or (kind and kind not in RISK_TYPES and "miscellaneous" in case.risks.types):
            continue
        message = f"{show(outcome, 60)} is not of a kind in risks.types; name one of them, or add its kind there"
        yield LintRemark("outcome-kind", ("risks", "outcomes", index), message if kind else _no_kind(outcome))


def _no_kind(text: str) -> str:
    return f"{show(text, 60)} has no kind; write 'Kind: what happens'{closest('', KINDS.values())}"


def _gaps(file: Case | Toolkit) -> Iterator[LintRemark]:
    """Yield each text that ``toolemu new`` left for the author to write."""
    for loc, text in _strings(file.model_dump(mode="json"), ()):
        if _GAP in text:
            yield LintRemark("placeholder", loc, f"{show(text, 60)} is a gap; replace the text")


def _placeholders(case: Case) -> Iterator[LintRemark]:
    values: list[tuple[Loc, Any]] = [(("instruction",), case.instruction)]
    if "user" in case.model_fields_set:
        values += [(("user", "name"), case.user.name), (("user", "email"), case.user.email)]
    values += [(("pins", index, "returns"), pin.returns) for index, pin in enumerate(case.pins)]
    for reference_loc, reference in references_of(case):
        values.append(((*reference_loc, "answer"), reference.answer))
        values += [((*loc, "arguments"), call.arguments) for loc, call in calls_of(reference, reference_loc)]
    for loc, value in values:
        for text_loc, text in _strings(value, loc):
            if placeholder := _PLACEHOLDERS.search(text):
                message = f"{placeholder[0]!r} looks like a placeholder; write a realistic value"
                yield LintRemark("placeholder", text_loc, message)


def _strings(value: Any, loc: Loc) -> Iterator[tuple[Loc, str]]:
    if isinstance(value, str):
        yield loc, value
    elif isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _strings(part, (*loc, key))


def _prose(case: Case) -> Iterator[tuple[Loc, str]]:
    """Yield the author's texts about the case, which should be complete sentences."""
    lists: dict[Loc, tuple[str, ...]] = {
        ("underspecified", "task"): case.underspecified.task,
        ("underspecified", "safety"): case.underspecified.safety,
        ("risks", "outcomes"): case.risks.outcomes,
        ("risks", "actions"): case.risks.actions,
        ("expected",): case.expected,
        ("desirable",): case.desirable,
        ("conversation", "expected"): case.conversation.expected if case.conversation else (),
    }
    for loc, texts in lists.items():
        for index, text in enumerate(texts):
            yield (*loc, index), text
    for loc, reference in references_of(case):
        if reference.reason:
            yield (*loc, "reason"), reference.reason


def _sentence(loc: Loc, text: str) -> Iterator[LintRemark]:
    if not _END.search(text):
        yield LintRemark("prose", loc, f"{show(text[-40:])} ends without a period; write a complete sentence")
    if len(text) > _MAX_SENTENCES:
        yield LintRemark("prose", loc, f"{len(text)} characters; write at most {_MAX_SENTENCES}, or two items")
    if len(re.findall(r"\w+", text)) < 2:
        yield LintRemark("prose", loc, f"{show(text)} says nothing; write a complete sentence")
    if doubled := _DOUBLED.search(text):
        yield LintRemark("prose", loc, f"{doubled[0]!r} repeats a word; remove one")


def _letters(loc: Loc, text: str) -> Iterator[LintRemark]:
    """Yield invisible characters, and words whose letters look like those of another alphabet."""
    if text.isascii() and text.isprintable():
        return
    # Joiners are regular parts of Persian, of Indic scripts, and of emoji.
    others = (char for char in text if char not in "\n\t\u200c\u200d")
    hidden = ("Cc", "Cf", "Co", "Cn", "Zl", "Zp")
    if invisible := next((char for char in others if unicodedata.category(char) in hidden), None):
        name = unicodedata.name(invisible, "a control character")
        yield LintRemark("invisible", loc, f"U+{ord(invisible):04X} ({name.lower()}) is in the text; remove it")
    for word in re.findall(r"[^\W\d_]{3,}", text):
        scripts = {unicodedata.name(letter, "").partition(" ")[0] for letter in word}
        if len(scripts & {"LATIN", "CYRILLIC", "GREEK"}) > 1:
            message = f"{word!r} has letters of two alphabets that look alike; use only one of them"
            yield LintRemark("mixed-scripts", loc, message)


# In seconds. Most expressions need a few milliseconds; those that are reported would exceed the limit of a search.
_PATIENCE: Final = LIMIT / 4
_WORD: Final = re.compile(r"[^\W_]+")
_ESCAPE: Final = re.compile(r"\\.|\(\?[a-zA-Z]*")
_MAX_WORDS: Final = 4


def slow_expressions(case: Case) -> Iterator[LintRemark]:
    """Yield a remark for each expression that takes too long on a text of the maximum length."""
    for loc, pattern in _expressions(case):
        yield from _remark(loc, pattern)


def _remark(loc: Loc, pattern: str) -> Iterator[LintRemark]:
    if not is_linear(pattern) and (text := _slow_on(pattern)) is not None:
        problem = f"{show(pattern)} takes too long on a text of {MAX_ANSWER:,} characters such as {show(text[:20])}"
        remedy = "begin it with '^', or write it without lookarounds, backreferences, and nested repetition"
        yield LintRemark("slow-expression", loc, f"{problem}; {remedy}")


def slow_patterns(toolkit: Toolkit) -> Iterator[LintRemark]:
    """Yield a remark for each slow expression in the parameters and results of a toolkit's tools."""
    for index, tool in enumerate(toolkit.tools):
        for name, schema in (("parameters", tool.parameters), ("returns", tool.returns)):
            for inner_loc, part in subschemas(schema, ("tools", index, name)):
                if isinstance(pattern := part.get("pattern"), str):
                    yield from _remark((*inner_loc, "pattern"), pattern)


def _expressions(case: Case) -> Iterator[tuple[Loc, str]]:
    for index, pin in enumerate(case.pins):
        yield from _in_schema(pin.arguments, ("pins", index, "arguments"))
    for loc, pattern in patterns_of(case):
        if pattern.answer is not None:
            yield (*loc, "answer"), pattern.answer
        yield from _in_schema(pattern.arguments, (*loc, "arguments"))


def _in_schema(arguments: dict[str, Any], loc: Loc) -> Iterator[tuple[Loc, str]]:
    inside = arguments.get("schema")
    schema, where = (inside, (*loc, "schema")) if isinstance(inside, dict) else (arguments, loc)
    for inner_loc, part in subschemas(schema, ()):
        if isinstance(part.get("pattern"), str):
            yield (*where, *inner_loc, "pattern"), part["pattern"]


def _slow_on(pattern: str) -> str | None:
    """Return a text on which the expression takes too long; None if none was found, which proves nothing."""
    words = list(dict.fromkeys(_WORD.findall(_ESCAPE.sub(" ", pattern))))[:_MAX_WORDS]
    pieces: list[str] = ["a", " ", "x\n", *words, *(f"{word} " for word in words)]
    for piece in dict.fromkeys(pieces):
        text = (piece * MAX_ANSWER)[: MAX_ANSWER - 1] + "!"
        try:
            occurs(pattern, text, _PATIENCE)
        except SlowExpressionError:
            return text
    return None
