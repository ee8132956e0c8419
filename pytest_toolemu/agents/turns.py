"""Parts shared by the built-in agents: prompt variants, their values, and one turn of the model."""

from __future__ import annotations

from typing import Any, Final, get_args

from pytest_toolemu.core.messages import Message, Model, Reply, ToolSpec
from pytest_toolemu.core.run import sha256
from pytest_toolemu.core.toolbox import Task, Toolbox
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.yaml_document import closest
from pytest_toolemu.models.structured_output import ask
from pytest_toolemu.prompts import prompt_hash
from pytest_toolemu.prompts.tool_text import clock
from pytest_toolemu.settings import Prompt

QUITTING: Final[frozenset[Prompt]] = frozenset({"quit", "simple_quit"})
MAX_RETRIES: Final = 2
"""Number of times in a row that an unusable reply is requested again."""


def check_variant(variant: str) -> None:
    """Raise UsageError for an unknown prompt variant."""
    if variant not in get_args(Prompt):
        raise UsageError(f"unknown agent prompt {variant!r}{closest(variant, get_args(Prompt))}")


def identity(kind: str, variant: Prompt, follow_up: str, model: Model) -> dict[str, Any]:
    """Return an agent's identity; the hash covers every prompt that the agent can get."""
    hashes = [prompt_hash(f"agent/{kind}_{variant}"), prompt_hash(follow_up)]
    return {"kind": kind, "prompt": variant, "prompt_hash": sha256(hashes), "model": model.identity}


def environment(task: Task) -> dict[str, Any]:
    """Return user, time, and locale of the task as values for the prompts."""
    return {"user": task.user, "now": clock(task.now), "locale": task.locale}


async def next_reply(
    model: Model, messages: list[Message], toolbox: Toolbox, tools: tuple[ToolSpec, ...] = ()
) -> Reply:
    """Return the model's next turn; AgentStopped if the agent's reported tokens exceed the limit."""
    reply = await ask(model, "agent", toolbox.trajectory.ledger, messages, tools=tools)
    if error := toolbox.exceeded_tokens():
        raise error
    return reply


def refusal(reply: Reply) -> str:
    """Return the final answer of an agent that refuses: its text, or else the endpoint's explanation."""
    return reply.text.strip() or reply.stop_detail
