"""A user that a model plays. The model cites the facts that it states, and code checks what it says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pytest_toolemu import prompts
from pytest_toolemu.core.messages import Message, ReplySchema
from pytest_toolemu.core.references import SEARCHED, CaseConversation
from pytest_toolemu.core.run import sha256
from pytest_toolemu.core.trajectory import Trajectory, UserReply
from pytest_toolemu.emulators.simulated import secret_code
from pytest_toolemu.emulators.user_reply_checks import reply_problems
from pytest_toolemu.formats.visible_text import quoted
from pytest_toolemu.models.fallback import HarnessModel
from pytest_toolemu.models.strict_schema import TEXT, array_of, choice_of, closed_object
from pytest_toolemu.models.structured_output import ask_structured

RULES: Final = "user/rules"
CASE: Final = "user/case"
SAID: Final = "user/said"

SCHEMA: Final = ReplySchema(
    name="user_reply",
    schema=closed_object(
        {
            "kind": choice_of("answer", "consent", "refuse", "unknown", "over"),
            "facts": array_of(TEXT),
            "reply": TEXT,
        }
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
        case, code = trajectory.resolved_case.case, secret_code(trajectory)
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
            Message(role="user", content=prompts.render(SAID, text=quoted(one.text[:SEARCHED]), code=code))
            if one.by == "agent"
            else Message(role="assistant", content=quoted({"kind": one.kind, "facts": one.facts, "reply": one.text}))
            for one in trajectory.dialogue
        ]
        rules = prompts.render(RULES)
        return Message(role="system", content=rules), Message(role="system", content=about_case), *turns
