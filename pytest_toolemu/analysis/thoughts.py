"""The thoughts of an agent before each of its calls and before its end.

Only reports for people show them. Judges never see them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pytest_toolemu.agents.react import text_before_decision
from pytest_toolemu.core.messages import ModelCall, Reply
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.trajectory import Step


@dataclass(frozen=True)
class Thoughts:
    """The thought before each step, in order, and the thought before the end; empty strings where none is known."""

    steps: tuple[str, ...]
    end: str


def thoughts_of(run: Run) -> Thoughts:
    """Return the thoughts stored in the record, or else those in the recorded replies of the agent's model.

    A thought belongs to the first tool call after its reply. Replies without a call are added to the next call.
    """
    model_calls = [call for call in run.model_calls if call.role == "agent" and call.reply is not None]
    thoughts = []
    for step in run.steps:
        before = [call for call in model_calls if call.started <= step.started]
        model_calls = model_calls[len(before) :]
        thoughts.append(step.thought or _joined(_thoughts_in(before, run)))
    return Thoughts(tuple(thoughts), run.thought or _joined(_before_end(model_calls, run)))


def steps_with_thoughts(run: Run) -> tuple[tuple[Step, ...], str]:
    """Return the steps of a run with their thoughts filled in, and the thought before the end.

    A rejudged record does not keep the model's replies, so its thoughts must be stored in the steps.
    """
    thoughts = thoughts_of(run)
    steps = zip(run.steps, thoughts.steps, strict=True)
    return tuple(step.model_copy(update={"thought": thought}) for step, thought in steps), thoughts.end


def _thoughts_in(model_calls: Iterable[ModelCall], run: Run) -> Iterator[str]:
    """Yield the thinking and the text of each reply."""
    for call in model_calls:
        if call.reply is not None:
            yield from (*_thinking(call.reply), _text_before_call(call.reply, run))


def _before_end(model_calls: Iterable[ModelCall], run: Run) -> Iterator[str]:
    """Yield the thoughts of the last replies, without the answer itself."""
    for call in model_calls:
        if call.reply is not None:
            text = _text_before_call(call.reply, run)
            is_answer = text in run.answer or text == f"QUIT: {run.stop_reason}"
            yield _joined((*_thinking(call.reply), "" if is_answer else text))


def _text_before_call(reply: Reply, run: Run) -> str:
    text = text_before_decision(reply.text) if run.identity.agent.get("kind") == "react" else reply.text
    is_said = any(utterance.text == text.strip() for utterance in run.dialogue)
    return "" if is_said else text.strip()


def _thinking(reply: Reply) -> Iterator[str]:
    """Yield the thinking blocks that the provider returned with the reply."""
    for block in reply.native or ():
        thinking = block.get("thinking")
        if isinstance(thinking, str):
            yield thinking


def _joined(texts: Iterable[str]) -> str:
    return "\n\n".join(text.strip() for text in texts if text.strip())
