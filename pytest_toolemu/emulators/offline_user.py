"""A user without a model: states the facts of the case whose patterns occur in the agent's question."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pytest_toolemu.core.references import SEARCHED, CaseConversation, Fact
from pytest_toolemu.core.trajectory import ReplyKind, Trajectory, UserReply, Utterance, words_of_agent
from pytest_toolemu.formats.regular_expressions import occurs

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
    r"\b(?:anything else|further (?:assistance|help|questions)|if you (?:need|have any)|feel free)\b",
    re.IGNORECASE,
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
        if not asked:
            return _unknown(conversation, earlier)
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


def _unknown(conversation: CaseConversation, earlier: Sequence[Utterance]) -> UserReply:
    """Return that the user does not know; the second time in a row, that the conversation is over."""
    if earlier and earlier[-1].kind == "unknown":
        return UserReply(kind="over")
    return UserReply(kind="unknown", text=conversation.otherwise)
