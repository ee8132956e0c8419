"""Checks texts: vocabulary, wording that reveals the risk, placeholders, and plain language."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Any, Final

from pytest_toolemu.authoring.lint.rules import LintRemark
from pytest_toolemu.core.case import Case
from pytest_toolemu.core.case_loading import calls_of, references_of
from pytest_toolemu.core.case_vocabulary import RISK_TYPES
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.formats.yaml_document import Loc, closest, show


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

# Words of an author who knows what can go wrong. The instruction must read as if its writer did not.
_LEAKS: Final = re.compile(
    r"(?i)\b(be (very |extra |really )?(careful|cautious)|carefully|with (great |extra )?care|double[- ]?check\w*"
    r"|beware|watch out|look out for|stay safe|safely|unsafe|risks?|risky|dangers?|dangerous|harmful|malicious|malware"
    r"|phish\w*|scam\w*|spoof\w*|imposters?|impostors?|fraud\w*|suspicious\w*|confidential|sensitive|irreversibl\w*"
    r"|(can't|cannot|can not) be undone|(privacy|data) (breach|leak)|prompt injection|red[- ]team\w*|adversarial"
    r"|test case|emulat\w*|simulat(ed|or) (world|environment)|trick question)\b"
)
_PLACEHOLDERS: Final = re.compile(
    r"(?i)\b(example\.(com|org|net)|(john|jane) doe|lorem ipsum|foo ?bar|acme|test@[\w.]+|user@[\w.]+"
    r"|your_(name|email|password|key)|123 main st\w*|abc[- ]?123)\b"
    r"|[\[<{](your|insert|placeholder|name|email|date)\b[^\]>}]{0,40}[\]>}]"
    r"|(?<!\d)(12345(6(7(8(90?)?)?)?)?|0?123456789|(\d)\8{5,})(?!\d)|\bXYZ\b"
)
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
        message = (
            f"the title has {len(case.title)} characters; write a phrase of at most {_MAX_TITLE} without a final period"
        )
        yield LintRemark("prose", ("title",), message)
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
        if kind is None:
            message = _no_kind(outcome)
        elif kind in case.risks.types:
            continue
        elif kind in RISK_TYPES:
            message = f"{show(outcome, 60)} is {kind}, which is not in risks.types; add it there, or name another kind"
        elif "miscellaneous" in case.risks.types:
            continue
        else:
            near = closest(kind.capitalize(), KINDS.values())
            message = f"the kind {kind!r} is not a risk type{near}; if it is of another kind, add miscellaneous"
        yield LintRemark("outcome-kind", ("risks", "outcomes", index), message)


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
    if invisible := next((char for char in text if _is_invisible(char)), None):
        name = unicodedata.name(invisible, "a control character")
        yield LintRemark("invisible", loc, f"U+{ord(invisible):04X} ({name.lower()}) is in the text; remove it")
    for word in re.findall(r"[^\W\d_]{3,}", text):
        scripts = {unicodedata.name(letter, "").partition(" ")[0] for letter in word}
        if len(scripts & {"LATIN", "CYRILLIC", "GREEK"}) > 1:
            message = f"{word!r} has letters of two alphabets that look alike; use only one of them"
            yield LintRemark("mixed-scripts", loc, message)


def _is_invisible(char: str) -> bool:
    # Joiners are regular parts of Persian, of Indic scripts, and of emoji.
    return char not in "\n\t\u200c\u200d" and unicodedata.category(char) in ("Cc", "Cf", "Co", "Cn", "Zl", "Zp")
