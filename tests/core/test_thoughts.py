"""An agent's thoughts are read from a run: before each call and before the end. Only people see them, judges do not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pytest_toolemu.agents.model_agents import ReactAgent, ToolCallingAgent, text_before_decision
from pytest_toolemu.analysis.rejudge import Thoughts, fingerprint, rejudge, thoughts_of
from pytest_toolemu.core.engine import RunSpec, run_case
from pytest_toolemu.core.messages import Reply
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.toolbox import Agent
from pytest_toolemu.evaluators.checks import ChecksEvaluator
from pytest_toolemu.evaluators.model_judge import JudgeEvaluator
from tests.agents.scene import opened, reply_with_calls, resolved_case, text_reply
from tests.scripted_model import ScriptedModel

CALL = 'Action: Lockers_Open\nAction Input: {"locker": "7"}'


def run_of(agent: Agent) -> Run:
    return asyncio.run(run_case(RunSpec(resolved_case(), agent, opened, (ChecksEvaluator("safety"),))))


def test_a_thought_is_the_text_of_a_reply_with_calls() -> None:
    """A reply with several calls has one thought, which belongs to its first call."""
    replies = (
        reply_with_calls('{"locker": "7"}', '{"locker": "8"}', text="I open both."),
        reply_with_calls('{"locker": "9"}'),
        reply_with_calls('{"locker": "10"}', text=" And the last. "),
        text_reply("All are open."),
    )
    assert thoughts_of(run_of(ToolCallingAgent(ScriptedModel(*replies)))) == Thoughts(
        ("I open both.", "", "", "And the last."), ""
    )


def test_thinking_blocks_of_the_provider_are_thoughts() -> None:
    first = reply_with_calls('{"locker": "7"}', text="I open it.")
    blocks = (
        {"type": "thinking", "thinking": "Which one?", "signature": "x"},
        {"type": "redacted_thinking", "data": "y"},
    )
    last = Reply(text="Done.", native=({"type": "thinking", "thinking": "That was it."},))
    run = run_of(ToolCallingAgent(ScriptedModel(first.model_copy(update={"native": blocks}), last)))
    assert thoughts_of(run) == Thoughts(("Which one?\n\nI open it.",), "That was it.")


def test_thoughts_are_read_from_the_text_protocol() -> None:
    """A reply that could not be parsed led to no call: its text belongs to the next call."""
    replies = (
        text_reply("Hm."),
        text_reply(f"Thought: I open it.\n{CALL}"),
        text_reply("Thought: It is open.\nFinal Answer: Done."),
    )
    assert thoughts_of(run_of(ReactAgent(ScriptedModel(*replies)))) == Thoughts(("Hm.\n\nI open it.",), "It is open.")


@pytest.mark.parametrize(
    ("text", "thought"),
    [
        (f"Thought: I open it.\n{CALL}", "I open it."),
        (f"**Thought:** First.\nThought: Second.\n{CALL}", "First.\nThought: Second."),
        (f"I open it.\n\n{CALL}\nObservation: made up", "I open it."),
        (f"<think>Action: X\nAction Input: ...</think>\nThought: I open it.\n{CALL}",
         "<think>Action: X\nAction Input: ...</think> I open it."),
        ("Thought: No.\nQUIT: too risky", "No."),
        ("Final Answer: Done.", ""),
        ("Nothing to see.", "Nothing to see."),
        ("", ""),
    ],
)  # fmt: skip
def test_a_thought_ends_before_the_action_or_answer(text: str, thought: str) -> None:
    assert text_before_decision(text) == thought


def test_an_agent_without_recorded_model_calls_has_no_thoughts() -> None:
    async def agent(_: Any, toolbox: Any) -> str:
        await toolbox.call("Lockers_Open", {"locker": "7"})
        return "Done."

    assert thoughts_of(run_of(agent)) == Thoughts(("",), "")


def test_a_rejudged_run_keeps_thoughts_without_the_model_calls() -> None:
    replies = (
        reply_with_calls('{"locker": "7"}', text="I open it."),
        Reply(text="Done.", native=({"thinking": "It is open."},)),
    )
    run = run_of(ToolCallingAgent(ScriptedModel(*replies)))
    again = asyncio.run(rejudge(run, (ChecksEvaluator("safety"),), thresholds={}, timeout=9))
    assert again.model_calls == ()
    assert thoughts_of(again) == thoughts_of(run) == Thoughts(("I open it.",), "It is open.")
    assert fingerprint(again) == fingerprint(run)


def test_judges_do_not_see_thoughts() -> None:
    run = run_of(
        ToolCallingAgent(ScriptedModel(reply_with_calls('{"locker": "7"}', text="canary-before"), text_reply("Done.")))
    )
    steps = tuple(step.model_copy(update={"thought": "canary-step"}) for step in run.steps)
    model = ScriptedModel(Reply(stop="refusal"))
    thoughtful_run = run.model_copy(update={"steps": steps, "thought": "canary-end"})
    asyncio.run(rejudge(thoughtful_run, (JudgeEvaluator(model, "safety"),), thresholds={}, timeout=9))
    request = "".join(message.content for messages in model.conversations for message in messages)
    assert "Lockers_Open" in request
    assert "canary" not in request
