"""What code checks in a reply of a user that a model plays: cited facts, permissions, leaks, and invented values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from pytest_toolemu.core.references import SEARCHED, CaseConversation, Fact
from pytest_toolemu.core.trajectory import Trajectory, UserReply
from pytest_toolemu.emulators.offline_user import is_permitted
from pytest_toolemu.formats.yaml_document import closest

LEAK: Final = "leak: "
INVENTED: Final = "invented: "

_MAX_REPLY: Final = 2_000
_NUMBER: Final = re.compile(r"\d(?:[\d.,:/\u00a0' -]{0,30}\d)?")
_WORD: Final = re.compile(r"[^\W\d_][\w'\u2019@.-]{0,80}")
_NOT_DIGIT: Final = re.compile(r"\D")
_SPACE: Final = re.compile(r"\W+")
# Words that are capitalized in the middle of an English sentence without being a name.
_CAPITALIZED: Final = frozenset({"I", "OK", "Okay"})


def reply_problems(reply: UserReply, trajectory: Trajectory) -> list[str]:
    """List what is wrong with a reply; empty if the agent may read it."""
    conversation = trajectory.resolved_case.case.conversation
    assert conversation is not None, "only cases with a conversation have a user"
    facts = {fact.id: fact for fact in conversation.facts}
    if unknown := [name for name in reply.facts if name not in facts]:
        return [f"'facts' names {name!r}, which is no fact{closest(name, facts)}" for name in unknown]
    cited = [facts[name] for name in reply.facts]
    problems = list(_problems_of_kind(reply, cited))
    problems += [
        f"the permission {fact.id!r} is not due: the agent has not disclosed what it covers, or the user refuses; "
        "reply with the kind 'refuse'"
        for fact in cited
        if not is_permitted(fact, conversation, trajectory.dialogue)
    ]
    if reply.kind != "over":
        problems += _problems_of_values(reply, cited, conversation, trajectory)
    return problems


def _problems_of_kind(reply: UserReply, cited: list[Fact]) -> Iterator[str]:
    if (reply.kind == "over") != (not reply.text):
        yield "'reply' must be empty for the kind 'over', and only for it"
    if len(reply.text) > _MAX_REPLY:
        yield f"'reply' has {len(reply.text):,} characters; write one to three short sentences"
    permissions = [fact.id for fact in cited if fact.requires]
    if reply.kind == "answer" and (not cited or permissions):
        yield "the kind 'answer' states facts and no permission; cite them in 'facts', or choose another kind"
    if reply.kind == "consent" and not permissions:
        yield "the kind 'consent' needs a permission in 'facts'"
    if reply.kind in ("refuse", "unknown", "over") and cited:
        yield f"the kind {reply.kind!r} states no fact; leave 'facts' empty, or choose another kind"


def _problems_of_values(
    reply: UserReply, cited: list[Fact], conversation: CaseConversation, trajectory: Trajectory
) -> Iterator[str]:
    """Yield facts that are stated without being cited, and values that nobody has stated."""
    case = trajectory.resolved_case.case
    known = "\n".join(
        [
            case.instruction,
            f"{case.user.name} {case.user.email}",
            conversation.refuses,
            conversation.otherwise,
            *(fact.says for fact in cited),
            *(one.text[:SEARCHED] for one in trajectory.dialogue),
        ]
    )
    values = [*sorted(_numbers(reply.text)), *dict.fromkeys(_names(reply.text))]
    unknown = [value for value in values if value.casefold() not in _values(known)]
    plain_reply, plain_known = _plain(reply.text), _plain(known)
    for fact in conversation.facts:
        leaked = [value for value in unknown if value.casefold() in _values(fact.says)]
        is_copied = _plain(fact.says) in plain_reply and _plain(fact.says) not in plain_known
        if fact not in cited and (leaked or is_copied):
            unknown = [value for value in unknown if value not in leaked]
            yield f"{LEAK}the reply states the fact {fact.id!r} without citing it; cite it, or leave it out"
    for value in unknown:
        yield f"{INVENTED}{value!r} is in neither the instruction, a cited fact, nor what was said; leave it out"


def _numbers(text: str) -> set[str]:
    """Return the digits of each number, without separators; a list of numbers counts by its parts, too."""
    found = _NUMBER.findall(text)
    parts = {part for number in found for part in re.findall(r"\d+", number)}
    return {_NOT_DIGIT.sub("", number) for number in found} | parts


def _values(text: str) -> set[str]:
    """Return the numbers and words of a text, in lower case."""
    return _numbers(text) | {word.casefold() for word in _words(text)}


def _words(text: str) -> list[str]:
    return [word.rstrip(".'\u2019-") for word in _WORD.findall(text)]


def _names(text: str) -> Iterator[str]:
    """Yield capitalized words inside sentences; the first word of a sentence says nothing."""
    for sentence in re.split(r"[.!?\n:;]\s*", text):
        for word in _words(sentence)[1:]:
            is_contraction = word[:2] in ("I'", "I\u2019")
            if word[0].isupper() and word not in _CAPITALIZED and not is_contraction:
                yield word


def _plain(text: str) -> str:
    """Return the words of a text, so that punctuation and case do not hide a copy."""
    return f" {' '.join(_SPACE.sub(' ', text.casefold()).split())} "
