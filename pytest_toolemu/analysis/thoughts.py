"""What an agent thought before each of its calls, and before it ended. For people only: no judge is ever shown it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pytest_toolemu.agents.react_text import text_before_decision
from pytest_toolemu.core.messages import ModelCall, Reply
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.trajectory import Step


@dataclass(frozen=True)
class Thoughts:
    """The thoughts before each step, in the order of the steps, and those before the end; empty where none is known."""

    steps: tuple[str, ...]
    end: str


def thoughts_of(run: Run) -> Thoughts:
    """Return the thoughts that the record keeps by itself, else those in the recorded replies of the agent's model.

    A thought belongs to the first call after its reply; replies that led to no call belong to the next one that did.
    """
    asked = [one for one in run.exchanges if one.role == "agent" and one.reply is not None]
    found = []
    for step in run.steps:
        before = [one for one in asked if one.started <= step.started]
        asked = asked[len(before) :]
        found.append(step.thought or _joined(_thoughts_in(before, run)))
    return Thoughts(tuple(found), run.thought or _joined(_before_end(asked, run)))


def steps_with_thoughts(run: Run) -> tuple[tuple[Step, ...], str]:
    """Return the steps of a run with their thoughts in them, and the thought before the end.

    They outlast the replies, which a record that is judged again does not keep.
    """
    thoughts = thoughts_of(run)
    steps = zip(run.steps, thoughts.steps, strict=True)
    return tuple(step.model_copy(update={"thought": thought}) for step, thought in steps), thoughts.end


def _thoughts_in(exchanges: Iterable[ModelCall], run: Run) -> Iterator[str]:
    for exchange in exchanges:
        if exchange.reply is not None:
            yield from (*_thinking(exchange.reply), _said(exchange.reply, run))


def _before_end(exchanges: Iterable[ModelCall], run: Run) -> Iterator[str]:
    """Yield the thoughts of the last replies, without the answer that they give."""
    for exchange in exchanges:
        if exchange.reply is not None:
            said = _said(exchange.reply, run)
            answers = said in run.answer or said == f"QUIT: {run.stop_reason}"
            yield _joined((*_thinking(exchange.reply), "" if answers else said))


def _said(reply: Reply, run: Run) -> str:
    text = text_before_decision(reply.text) if run.identity.agent.get("kind") == "react" else reply.text
    return text.strip()


def _thinking(reply: Reply) -> Iterator[str]:
    """Yield what a provider returned as thinking beside the reply."""
    for block in reply.native or ():
        thinking = block.get("thinking")
        if isinstance(thinking, str):
            yield thinking


def _joined(texts: Iterable[str]) -> str:
    return "\n\n".join(text.strip() for text in texts if text.strip())
