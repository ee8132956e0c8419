"""Users in conversations: one whose facts have patterns, and one that a model plays, with checks of its replies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pytest_toolemu import prompts
from pytest_toolemu.core.case_rules import SEARCHED, CaseConversation, Fact
from pytest_toolemu.core.messages import Message, ReplySchema
from pytest_toolemu.core.run import ReplyKind, Trajectory, UserReply, Utterance, sha256, words_of_agent
from pytest_toolemu.emulators.simulated import mark_of
from pytest_toolemu.formats.regular_expressions import occurs
from pytest_toolemu.formats.text import quoted
from pytest_toolemu.formats.yaml_document import closest
from pytest_toolemu.models.retrying import HarnessModel
from pytest_toolemu.models.strict_schema import TEXT, array_of, choice_of, closed_object
from pytest_toolemu.models.structured_output import ask_structured

LEAK: Final = "leak: "
INVENTED: Final = "invented: "

_MAX_REPLY: Final = 2_000
_NUMBER: Final = re.compile(r"\d(?:[\d.,:/\u00a0' -]{0,30}\d)?")
_WORD: Final = re.compile(r"[^\W\d_][\w'\u2019@.-]{0,80}")
_NOT_DIGIT: Final = re.compile(r"\D")
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
    return " ".join(["", *re.findall(r"\w+", text.casefold()), ""])


# Version of how messages are read.
_READING: Final = 2

# English, Chinese, and Arabic marks, but not the one in a link; and requests without a question mark.
_ASKING: Final = re.compile(
    r"\?(?![A-Za-z0-9_=&%/#])|[\uff1f\u061f]"
    r"|\b(?:let me know|tell me|confirm|(?:need|require|await|wait(?:ing)? for) (?:your )?confirmation"
    r"|please (?:answer|choose|give|provide|reply|say|send|specify))\b",
    re.IGNORECASE,
)
# Polite endings, which ask for nothing unless the sentence also asks for a fact.
_CLOSING: Final = re.compile(
    r"\b(?:anything else|further (?:assistance|help|questions)|if you (?:need|have any)|feel free)\b", re.IGNORECASE
)
_SENTENCE: Final = re.compile(r"(?:[^.!?\uff1f\u061f\n]|\?(?=[A-Za-z0-9_=&%/#]))+[.!?\uff1f\u061f]?")


@dataclass(frozen=True)
class OfflineUser:
    """States each fact that the agent's message asks for. The same message always gets the same reply.

    The conversation is over once a message asks for nothing, or after two questions in a row that no fact answers.
    """

    @property
    def identity(self) -> dict[str, Any]:
        """Kind, and the version of how messages are read; the facts belong to the case."""
        return {"kind": "offline", "reading": _READING}

    async def __call__(self, trajectory: Trajectory) -> UserReply:
        """Return the reply to the agent's last message."""
        conversation = trajectory.resolved_case.case.conversation
        assert conversation is not None, "only cases with a conversation have a user"
        *earlier, last = trajectory.dialogue
        message = last.text[:SEARCHED]
        if not asks(message, conversation.facts):
            return UserReply(kind="over")
        asked = [fact for fact in conversation.facts if occurs(fact.asked, message)]
        stated = [fact for fact in asked if is_permitted(fact, conversation, trajectory.dialogue)]
        if not asked:  # the second time in a row, the conversation is over
            is_over = bool(earlier) and earlier[-1].kind == "unknown"
            return UserReply(kind="over") if is_over else UserReply(kind="unknown", text=conversation.otherwise)
        if not stated:
            return UserReply(kind="refuse", text=conversation.refuses)
        texts = [fact.says for fact in stated] + [conversation.refuses] * (len(stated) < len(asked))
        kind: ReplyKind = "consent" if any(fact.requires for fact in stated) else "answer"
        return UserReply(kind=kind, text=" ".join(texts), facts=tuple(fact.id for fact in stated))


def asks(message: str, facts: Sequence[Fact]) -> bool:
    """Return whether a sentence of the message asks for something, other than whether the user needs more help.

    A sentence that asks for a fact is a question even if it is phrased like such a polite ending.
    """
    return any(
        _ASKING.search(sentence)
        and (not _CLOSING.search(sentence) or any(occurs(fact.asked, sentence) for fact in facts))
        for sentence in _SENTENCE.findall(message[:SEARCHED])
    )


def is_permitted(fact: Fact, conversation: CaseConversation, dialogue: Sequence[Utterance]) -> bool:
    """Return whether the user states the fact if asked: always, unless it is a permission that is not due."""
    if not fact.requires or conversation.consents == "always":
        return True
    words = words_of_agent(dialogue)[-SEARCHED:]
    return conversation.consents == "if_disclosed" and all(occurs(pattern, words) for pattern in fact.requires)


RULES: Final = "user/rules"
CASE: Final = "user/case"
SAID: Final = "user/said"

SCHEMA: Final = ReplySchema(
    name="user_reply",
    schema=closed_object(
        {"kind": choice_of("answer", "consent", "refuse", "unknown", "over"), "facts": array_of(TEXT), "reply": TEXT}
    ),
)


@dataclass(frozen=True)
class ModelUser:
    """A model that plays the user of a conversation.

    It is a part of the evaluation harness: a reply that leaks a fact or invents a value is sent back, at most twice.
    InconclusiveError if the last one is still wrong, or if the model refuses.
    """

    model: HarnessModel

    @property
    def identity(self) -> dict[str, Any]:
        """Kind, prompts, schema of the reply, and model; the facts belong to the case."""
        texts = [*map(prompts.prompt_hash, (RULES, CASE, SAID)), SCHEMA.schema_]
        return {"kind": "simulated", "prompt": sha256(texts), "model": self.model.identity}

    async def __call__(self, trajectory: Trajectory) -> UserReply:
        """Return the reply to the agent's last message."""
        conversation = trajectory.resolved_case.case.conversation
        assert conversation is not None, "only cases with a conversation have a user"

        def parse(content: dict[str, Any]) -> UserReply:
            reply = UserReply(kind=content["kind"], text=content["reply"].strip(), facts=tuple(content["facts"]))
            if problems := reply_problems(reply, trajectory):
                raise ValueError("\n".join(problems))
            return reply

        messages = self.messages(trajectory, conversation)
        reply = await ask_structured(self.model, "user", trajectory.ledger, messages, SCHEMA, parse)
        return reply.value.model_copy(update={"repairs": reply.repairs})

    def messages(self, trajectory: Trajectory, conversation: CaseConversation) -> tuple[Message, ...]:
        """Build the conversation: the rules, which are the same for every case, the case, and what was said."""
        case = trajectory.resolved_case.case
        about_case = prompts.render(
            CASE,
            user=case.user.name,
            instruction=quoted(case.instruction),
            facts=conversation.facts,
            consents=conversation.consents,
            refuses=conversation.refuses,
            otherwise=conversation.otherwise,
        )
        turns = [
            Message(role="user", content=prompts.render(SAID, text=text, code=mark_of(text, trajectory)))
            if one.by == "agent"
            else Message(role="assistant", content=quoted({"kind": one.kind, "facts": one.facts, "reply": one.text}))
            for one, text in ((one, quoted(one.text[:SEARCHED])) for one in trajectory.dialogue)
        ]
        rules = prompts.render(RULES)
        return Message(role="system", content=rules), Message(role="system", content=about_case), *turns
