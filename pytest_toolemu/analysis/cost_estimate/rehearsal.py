"""A case played through with nobody there: what would be sent to models, and nothing is.

The prompts, toolkits and conversations are the real ones. What models would say is made up, as long as it was on
the median in recorded runs of ToolEmu (80 published trajectories of 25 agents).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from functools import cached_property
from typing import Any, Final, cast

from pytest_toolemu.agents.react import ReactAgent
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.messages import Message, ModelRequest, Reply, ReplySchema, Role, ToolCall, ToolSpec
from pytest_toolemu.core.toolbox import Task, Toolbox
from pytest_toolemu.core.trajectory import Call, Emulation, Observation, Trajectory, json_text
from pytest_toolemu.emulators.offline.emulator import OfflineEmulator
from pytest_toolemu.emulators.offline.schema_generator import SchemaGenerator, UnsatisfiableSchemaError
from pytest_toolemu.emulators.simulated import SimulatedEmulator
from pytest_toolemu.errors import AgentStopped, InconclusiveError
from pytest_toolemu.evaluators.model_judge import JudgeEvaluator
from pytest_toolemu.evaluators.rubrics import SCHEMAS
from pytest_toolemu.formats.json_schema import violations
from pytest_toolemu.formats.json_schema_refs import inlined
from pytest_toolemu.formats.json_schema_text import members_text

# Characters, the median of the recorded runs: of an agent's thought beside a call, its answer, the emulator's reply
# besides the summary and the observation, its summary, a judge's reply under each rubric.
THOUGHT: Final = 330
ANSWER: Final = 200
EMULATION: Final = 3300
SUMMARY: Final = 470
JUDGEMENT: Final = {"safety": 3300, "helpfulness": 3300, "helpfulness_ignore_safety": 830}


@dataclass(frozen=True)
class RehearsedRequest:
    """One request that a model would get, and how long its reply would be, in characters."""

    role: Role
    model: dict[str, Any]
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    schema: ReplySchema | None = None
    reply: int = 0

    @cached_property
    def text(self) -> str:
        """The request in the order in which providers read it, and cache its beginning: schema, tools, messages."""
        parts = [] if self.schema is None else [json.dumps(self.schema.schema_, separators=(",", ":"))]
        parts += [tool_line(tool) for tool in self.tools]
        for message in self.messages:
            calls = "".join(f"{call.name}{call.arguments}" for call in message.calls)
            parts.append(f"{message.role}\n{message.content}{calls}")
        return "\n".join(parts)


def tool_line(tool: ToolSpec) -> str:
    """A tool about as long as providers put it to their models: a typed signature, not its JSON.

    OpenAI's cookbook counts name, description, and for each argument its name, type and description; no provider
    documents the text itself.
    """
    members = members_text(tool.parameters, explain="all")
    return f"type {tool.name} = ({f'_: {members}' if len(members) > 2 else ''}) => any; // {tool.description}"


@dataclass
class _Player:
    """Stands in for an agent's model: makes ``calls`` calls, then answers."""

    model: Any
    resolved_case: ResolvedCase
    calls: int
    sent: list[RehearsedRequest]
    native: bool

    @property
    def identity(self) -> dict[str, Any]:
        """That of the model it stands in for."""
        return dict(self.model.identity)

    async def complete(self, request: ModelRequest) -> Reply:
        """Return the next call, or the answer."""
        made = sum(message.role == "assistant" for message in request.messages)
        reply = self._answer() if made >= self.calls else self._call(made)
        length = len(reply.text) + sum(len(call.arguments) for call in reply.calls)
        self.sent.append(
            RehearsedRequest("agent", self.identity, request.messages, request.tools, request.schema, length)
        )
        return reply

    def _answer(self) -> Reply:
        answer = _filler(ANSWER)
        return Reply(text=answer if self.native else f"Thought: done.\nFinal Answer: {answer}")

    def _call(self, made: int) -> Reply:
        name, arguments = _call(self.resolved_case, made)
        thought = _filler(THOUGHT)
        if self.native:
            call = ToolCall(id=f"call_{made}", name=name, arguments=json_text(arguments))
            return Reply(text=thought, calls=(call,), stop="calls")
        return Reply(text=f"Thought: {thought}\nAction: {name}\nAction Input: {json_text(arguments)}")


@dataclass
class _World:
    """Stands in for the emulator: notes what a model would have been asked, and answers from the offline world."""

    simulated: SimulatedEmulator | None
    sent: list[RehearsedRequest] = field(default_factory=list)
    offline: OfflineEmulator = field(default_factory=OfflineEmulator)

    async def __call__(self, call: Call, trajectory: Trajectory) -> Observation:
        """An observation that the tool may return."""
        try:
            observation = await self.offline(call, trajectory)
        except InconclusiveError:
            observation = Observation(content={"error": "Unavailable: try again later"}, source="offline")
        if self.simulated is None:
            return observation
        reply = EMULATION + SUMMARY + len(observation.text)
        schema = self.simulated.schema(trajectory.resolved_case.tools[call.name])
        messages = self.simulated.messages(call, trajectory)
        self.sent.append(RehearsedRequest("emulator", self.simulated.model.identity, messages, (), schema, reply))
        emulation = Emulation(log_summary=_filler(SUMMARY))
        return observation.model_copy(update={"emulation": emulation, "source": "simulated"})


async def rehearse(
    resolved_case: ResolvedCase, agent: Any, emulator: Any, evaluators: Sequence[Any], calls: int, seed: int = 0
) -> list[RehearsedRequest]:
    """What a run with so many tool calls would send. Parts that use no model of ours send nothing.

    Nobody's own code is run: an own agent is taken to make as many calls, own emulators and evaluators are left out.
    """
    trajectory = Trajectory(resolved_case, seed)
    stage = _World(_model_of(emulator, SimulatedEmulator))
    sent = stage.sent
    player: Callable[[Task, Toolbox], Any] = _silent(resolved_case, calls)
    if is_dataclass(agent) and hasattr(agent, "model"):
        stand_in = _Player(agent.model, resolved_case, calls, sent, not isinstance(agent, ReactAgent))
        player = cast(Any, replace)(agent, model=stand_in)
    try:
        trajectory.answer = await player(Task.of(resolved_case.case), Toolbox(trajectory, stage, max_steps=calls))
    except AgentStopped as stopped:
        trajectory.stop_reason = stopped.reason
    for judge in evaluators:
        if isinstance(judge, JudgeEvaluator):
            messages = judge.messages(trajectory)
            reply = JUDGEMENT[judge.rubric]
            sent.append(RehearsedRequest("evaluator", judge.model.identity, messages, (), SCHEMAS[judge.rubric], reply))
    return sent


def _silent(resolved_case: ResolvedCase, calls: int) -> Callable[[Task, Toolbox], Any]:
    async def agent(_task: Task, toolbox: Toolbox) -> str:
        for number in range(calls):
            await toolbox.call(*_call(resolved_case, number))
        return _filler(ANSWER)

    return agent


def _model_of(part: Any, kind: type[SimulatedEmulator]) -> SimulatedEmulator | None:
    """The model's part inside of an emulator's wrappers."""
    while part is not None and not isinstance(part, kind):
        part = getattr(part, "next", None)
    return part


def _call(resolved_case: ResolvedCase, number: int) -> tuple[str, dict[str, Any]]:
    """A call that its tool's schema takes, of each tool in turn."""
    names = list(resolved_case.tools)
    for offset in range(len(names)):
        name = names[(number + offset) % len(names)]
        parameters = inlined(resolved_case.tools[name].parameters)
        needed = {
            key: part for key, part in parameters.get("properties", {}).items() if key in parameters.get("required", ())
        }
        generator = SchemaGenerator(
            f"{resolved_case.case.id}:{number}", resolved_case.case.locale, resolved_case.case.now, {}
        )
        try:
            arguments = generator.value({**parameters, "properties": needed}, (resolved_case.tools[name].name,))
        except (UnsatisfiableSchemaError, ArithmeticError, RecursionError):
            continue
        if not violations(resolved_case.tools[name].parameters, arguments):
            return name, arguments
    return names[number % len(names)], {}


def _filler(length: int) -> str:
    """English of that length, as a tokenizer would find it in replies."""
    sentence = "The account was looked up first, and what it returned settles which of the two payees is meant. "
    return (sentence * (length // len(sentence) + 1))[:length].strip()
