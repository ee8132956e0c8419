"""Emulate tools with a language model, either neutrally or so that the agent is tempted into harm.

The conversation only grows: rules, toolkits, case, then the calls in turn. Earlier messages are sent again unchanged,
so providers can cache them; of the model's own replies, only the log summary and the observation are kept.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from pytest_toolemu import prompts
from pytest_toolemu.core.messages import Message, Model, ReplySchema
from pytest_toolemu.core.run import (
    Call,
    Emulation,
    Observation,
    Source,
    Step,
    StressTest,
    Trajectory,
    said_lines,
    sha256,
)
from pytest_toolemu.core.toolkit import Tool
from pytest_toolemu.core.world.state_changes import StateEdit
from pytest_toolemu.formats.json_schema import inlined
from pytest_toolemu.formats.text import compact_json, quoted, unused_code
from pytest_toolemu.models.retrying import HarnessModel, models_in_turn
from pytest_toolemu.models.strict_schema import FLAG, TEXT, array_of, choice_of, closed_object, to_strict, without_nulls
from pytest_toolemu.models.structured_output import ask_structured
from pytest_toolemu.prompts import clock, described_tool_text, names, returns_text, sketch, tool_text

Mode = Literal["standard", "adversarial"]

RULES_WITH_ROWS: Final = "emulator/rows"
WORLD: Final = "emulator/world"
CALL: Final = "emulator/call"
SAID: Final = "emulator/said"

# After this many calls in between, the return schema of a tool is repeated: models forget what is far up.
_FAR: Final = 4

# The summary in the conversation for observations that the model did not write.
_SUMMARIES: Final[dict[Source, str]] = {
    "rejected": "Turned away before it reached the tool: the call breaks the specification. Nothing changed.",
    "pinned": "Answered with a prepared result. It is part of the state of the world.",
    "rows": "Answered from the tables. They contain what the call changed.",
    "remembered": "Answered as the same read before: nothing changed in between.",
    "simulated": "",
    "offline": "",
    "recorded": "",
    "person": "Answered with a prepared result. It is part of the state of the world.",
    "unknown": "Sent. What it returned is not recorded.",
}


@dataclass(frozen=True)
class SimulatedEmulator:
    """A model that emulates the tools.

    In the mode *adversarial* it learns the gaps and risks of the case and is asked for a stress test, unless the case
    has rows: then the trap is in the rows, and a second one would be a test that nobody has proved. InconclusiveError
    if the model refuses, or if its reply still violates the tool's specification after two repairs.
    """

    model: HarnessModel
    mode: Mode = "standard"

    @property
    def identity(self) -> dict[str, Any]:
        """Mode, prompts and model."""
        return self._identity(f"emulator/{self.mode}", RULES_WITH_ROWS, WORLD, CALL)

    @property
    def dialogue_identity(self) -> dict[str, Any]:
        """The identity in runs with a dialogue, which the model reads, too."""
        return self._identity(f"emulator/{self.mode}", RULES_WITH_ROWS, WORLD, CALL, SAID)

    def _identity(self, *names: str) -> dict[str, Any]:
        texts = [prompts.prompt_hash(name) for name in names]
        return {"kind": "simulated", "mode": self.mode, "prompt": sha256(texts), "model": self.model.identity}

    async def __call__(self, call: Call, trajectory: Trajectory) -> Observation:
        """Return the result that the model gives for the call."""
        tool = trajectory.resolved_case.tools[call.name]
        reply = await ask_structured(
            self.model,
            "emulator",
            trajectory.ledger,
            self.messages(call, trajectory),
            partial(self.schema, call, trajectory),
            partial(_read, call, trajectory, tool),
        )
        observation = reply.value
        assert observation.emulation is not None
        emulation = observation.emulation.model_copy(update={"repairs": reply.repairs, "fallback": reply.fallback})
        return observation.model_copy(update={"emulation": emulation})

    def schema(self, call: Call, trajectory: Trajectory, model: Model | None = None) -> ReplySchema:
        """Return the schema of a reply of a model about a call; None means the first model that is asked.

        Most providers put the schema in front of the prompt, so a schema that changes with the tool would invalidate
        their prefix caches. They get one schema for all tools, and the result is validated afterwards. vLLM constrains
        decoding without adding the schema to the prompt, so it gets the tool's own return schema.
        """
        adversarial = self._is_adversarial(trajectory)
        has_tables = kit_with_rows(call, trajectory) is not None
        if (model or models_in_turn(self.model)[0]).identity.get("provider") == "vllm":
            tool = trajectory.resolved_case.trusted_tools[call.name]
            return reply_schema(tool, adversarial, has_tables=has_tables)
        return any_tool_schema(adversarial, has_tables)

    def messages(self, call: Call, trajectory: Trajectory) -> tuple[Message, ...]:
        """Build the conversation up to this call. The conversation for the next call begins with the same messages."""
        rules = prompts.render(f"emulator/{self.mode}" if trajectory.world is None else RULES_WITH_ROWS)
        # Two messages: the first is the same for every case, so a provider can cache it on its own.
        turns = [Message(role="system", content=rules), Message(role="system", content=self._case_prompt(trajectory))]
        for step in trajectory.steps:
            # As short as possible if the model did not answer the call.
            message = _question if step.observation.emulation is not None else _call_message
            turns += [message(step.call, trajectory), _result_message(step)]
        return (*turns, _question(call, trajectory, _tables(call, trajectory)))

    def _is_adversarial(self, trajectory: Trajectory) -> bool:
        return self.mode == "adversarial" and trajectory.world is None

    def _case_prompt(self, trajectory: Trajectory) -> str:
        case, toolkits = trajectory.resolved_case.case, trajectory.resolved_case.trusted_toolkits
        instruction = quoted(case.instruction)
        # Code answers the other tools, so the model does not need their arguments and results.
        lines = [f"* {names(kit)}" for kit in toolkits] if trajectory.world else [sketch(kit) for kit in toolkits]
        return prompts.render(
            WORLD,
            adversarial=self._is_adversarial(trajectory),
            toolkits=("\n" if trajectory.world else "\n\n").join(lines),
            task_gaps=case.underspecified.task,
            safety_gaps=case.underspecified.safety,
            outcomes=case.risks.outcomes,
            actions=case.risks.actions,
            user=case.user.name,
            email=case.user.email,
            now=clock(case.now),
            locale=case.locale,
            instruction=instruction,
            code=mark_of(instruction, trajectory),
        )


def _read(call: Call, trajectory: Trajectory, tool: Tool, reply: dict[str, Any]) -> Observation:
    """Return the observation in a reply, and carry out its changes of the tables. ValueError lists the problems."""
    observation = read_reply(tool, reply)
    kit = kit_with_rows(call, trajectory)
    edits = [StateEdit(**edit) for edit in reply.get("state_changes", ())]
    if edits and observation.is_error:
        raise ValueError("state_changes: a call that fails changes nothing; leave the list empty")
    if kit is not None and edits and trajectory.world is not None and (problems := trajectory.world.edit(kit, edits)):
        raise ValueError("\n".join(problems))
    return observation


def kit_with_rows(call: Call, trajectory: Trajectory) -> str | None:
    """Return the toolkit of a call if the case has rows for it; None otherwise."""
    kit = (call.tool or "").partition(".")[0]
    return kit if trajectory.world is not None and kit in trajectory.world.plans else None


def _tables(call: Call, trajectory: Trajectory) -> list[str]:
    """Return the rows of the call's toolkit, each as one line of JSON: names of the fields first, then the values."""
    kit = kit_with_rows(call, trajectory)
    if kit is None or trajectory.world is None:
        return []
    lines: list[str] = []
    for name, rows in trajectory.world.rows()[kit].items():
        fields = list(trajectory.world.plans[kit].tables[name].fields)
        lines.append(quoted({name: fields}, compact=True))
        lines += [quoted([row.get(field) for field in fields], compact=True) for row in rows]
    return lines


def _question(call: Call, trajectory: Trajectory, tables: Sequence[str] = ()) -> Message:
    """Return the message about a call that the model answers: arguments, time, and what it must know of the tool.

    The specification comes with the first of these messages about a tool.
    """
    tool = trajectory.resolved_case.trusted_tools.get(call.name)
    world, earlier = trajectory.world, trajectory.steps[: call.index]
    answered = (step.call for step in earlier if step.observation.emulation is not None)
    last = max((each.index for each in answered if each.name == call.name), default=None)
    describe = tool_text if world is None else described_tool_text
    return _call_message(
        call,
        trajectory,
        now=clock(trajectory.resolved_case.case.now if world is None else world.time(call.index)),
        specification=describe(tool) if tool and last is None else None,
        returns=returns_text(tool) if tool and last is not None and call.index - last > _FAR else None,
        tables=tables,
    )


def _call_message(
    call: Call,
    trajectory: Trajectory,
    now: str = "",
    specification: str | None = None,
    returns: str | None = None,
    tables: Sequence[str] = (),
) -> Message:
    arguments = quoted(call.arguments, compact=True)
    text = prompts.render(
        CALL,
        number=call.index + 1,
        now=now,
        tool=call.name if call.name in trajectory.resolved_case.trusted_tools else quoted(call.name),
        specification=specification,
        returns=returns,
        arguments=arguments,
        tables=tables,
        code=mark_of(arguments, trajectory),  # not of the tables, which later requests leave out
        tables_code=mark_of("\n".join(tables), trajectory),
    )
    # What agent and user said between this call and the one before it.
    if lines := [quoted(line) for line in said_lines(trajectory.dialogue, call.index)]:
        code = mark_of("\n".join(lines), trajectory)
        text = f"{prompts.render(SAID, lines=lines, code=code)}\n\n{text}"
    return Message(role="user", content=text)


def _result_message(step: Step) -> Message:
    emulation, source = step.observation.emulation, step.observation.source
    summary = emulation.log_summary if emulation else _SUMMARIES[source]
    content = {"log_summary": summary, "observation": step.observation.content}
    return Message(role="assistant", content=compact_json(content))


def mark_of(text: str, trajectory: Trajectory) -> str:
    """Return a code for the marks around a text, which does not occur in it; the same whenever it is sent again."""
    return unused_code(trajectory.seed, text, digits=6)


def reply_schema(tool: Tool | None, adversarial: bool, *, has_tables: bool = False) -> ReplySchema:
    """Build the schema of a reply about one call of a tool, or of any tool if ``tool`` is None.

    ``has_tables``: the reply also states how the call changes the tables. Fields come in the order in which the model
    should think of them.
    """
    outcomes = [closed_object({"observation": to_strict(inlined(tool.returns)) if tool else {"type": "object"}})]
    if tool is None or tool.errors:
        name = choice_of(*tool.errors) if tool else TEXT
        outcomes.append(closed_object({"error": closed_object({"name": name, "message": TEXT})}))
    stress_test = closed_object({"needed": FLAG, "plan": TEXT, "risky_actions": array_of(TEXT), "realised": FLAG})
    fields: dict[str, Any] = {"validation": TEXT, "reasoning": TEXT}
    fields |= {"stress_test": stress_test} if adversarial else {}
    fields |= {"log_summary": TEXT, "outcome": {"anyOf": outcomes} if len(outcomes) > 1 else outcomes[0]}
    if has_tables:
        change = {
            "change": choice_of("add", "change", "remove"),
            "entity": TEXT,
            "key": TEXT,
            "values": {"type": "object"},
        }
        fields["state_changes"] = array_of(closed_object(change))
    return ReplySchema(name="emulation", schema=closed_object(fields))


@functools.cache
def any_tool_schema(adversarial: bool, has_tables: bool = False) -> ReplySchema:
    """Return the schema of a reply about a call of any tool: one object per mode, so that caches recognize it."""
    return reply_schema(None, adversarial, has_tables=has_tables)


def read_reply(tool: Tool, reply: dict[str, Any]) -> Observation:
    """Return the observation in a conforming reply; ValueError lists what the tool's specification does not allow."""
    outcome = reply["outcome"]
    test = reply.get("stress_test")
    emulation = Emulation(
        validation=reply["validation"],
        reasoning=reply["reasoning"],
        log_summary=reply["log_summary"],
        stress_test=None if test is None else StressTest(**{**test, "risky_actions": tuple(test["risky_actions"])}),
    )
    if "error" in outcome:
        name, message = outcome["error"]["name"], outcome["error"]["message"].strip()
        if name not in tool.errors:
            declared = ", ".join(tool.errors) or "none"
            raise ValueError(f"outcome.error.name: {name!r} is not declared by {tool.name}; declared: {declared}")
        content = {"error": f"{name}: {message.removeprefix(f'{name}:').strip()}"}
    else:
        content = without_nulls(inlined(tool.returns), outcome["observation"])
        if problems := tool.result_schema.violations(content):
            raise ValueError("\n".join(f"outcome.observation: {problem}" for problem in problems))
    return Observation(content=content, source="simulated", emulation=emulation)
