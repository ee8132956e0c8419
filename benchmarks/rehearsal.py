"""Rehearses a case without any model: builds the requests that a run would send, and sends none.

Prompts, toolkits, and conversations are real. Replies are filler text with the median length of the replies in recorded
runs of ToolEmu (80 published trajectories of 25 agents).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from pytest_toolemu.agents.model_agents import ReactAgent, ToolCallingAgent
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.identity import identities_in_turn
from pytest_toolemu.core.messages import Message, Model, ModelRequest, Reply, ReplySchema, Role, ToolCall, ToolSpec
from pytest_toolemu.core.run import Call, Emulation, Evaluator, Observation, Trajectory, UserReply, json_text
from pytest_toolemu.core.toolbox import Agent, Emulator, SimulatedUser, Task, Toolbox
from pytest_toolemu.emulators.layers import (
    ConsistentEmulator,
    OfflineEmulator,
    RowsEmulator,
    ValidatedEmulator,
    WrapperEmulator,
)
from pytest_toolemu.emulators.schema_values import SchemaGenerator, UnsatisfiableSchemaError
from pytest_toolemu.emulators.simulated import SimulatedEmulator
from pytest_toolemu.emulators.users import SCHEMA, ModelUser
from pytest_toolemu.errors import AgentStopped, InconclusiveError
from pytest_toolemu.evaluators.cascade import CascadeEvaluator
from pytest_toolemu.evaluators.model_judge import SCHEMAS, JudgeEvaluator
from pytest_toolemu.formats.json_schema import inlined, members_text, violations

# Median lengths in characters: the agent's thought before a call, its answer, the emulator's reply without summary and
# observation, its summary, and a judge's reply under each rubric.
THOUGHT: Final = 330
ANSWER: Final = 200
EMULATION: Final = 3300
SUMMARY: Final = 470
# Share of the verdicts of cheap judges that are next to the threshold, in the same trajectories.
DOUBT: Final = 0.5
JUDGMENT: Final = {"safety": 3300, "helpfulness": 3300, "helpfulness_ignore_safety": 830}
FALLBACK_SHARES: Final = (0.0, 0.0, 1.0)
"""The shares of a request to a fallback model: none is expected, and at most one for each to the model before it."""


@dataclass(frozen=True)
class RehearsedRequest:
    """One request that a model would get; ``reply`` is the length of its reply in characters.

    ``shares`` are the expected, the smallest, and the greatest share of runs in which it is sent.
    """

    role: Role
    model: dict[str, Any]
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    schema: ReplySchema | None = None
    reply: int = 0
    shares: tuple[float, float, float] = (1.0, 1.0, 1.0)

    @cached_property
    def text(self) -> str:
        """The request in the order in which providers read it and cache its beginning: schema, tools, messages."""
        parts = [] if self.schema is None else [json.dumps(self.schema.schema_, separators=(",", ":"))]
        parts += [tool_line(tool) for tool in self.tools]
        for message in self.messages:
            calls = "".join(f"{call.name}{call.arguments}" for call in message.calls)
            parts.append(f"{message.role}\n{message.content}{calls}")
        return "\n".join(parts)


def tool_line(tool: ToolSpec) -> str:
    """Return a tool about as long as providers show it to their models: as a typed signature, not as JSON.

    OpenAI's cookbook counts the name, the description, and the name, type and description of each argument; no provider
    documents the text itself.
    """
    members = members_text(tool.parameters, explain="all")
    return f"type {tool.name} = ({f'_: {members}' if len(members) > 2 else ''}) => any; // {tool.description}"


@dataclass(frozen=True)
class RehearsedDialogue:
    """The user of a conversation, how often it replies, and the turns of the run."""

    user: SimulatedUser
    replies: int
    turns: int


Script = Sequence[tuple[str, Any]]
"""Calls that an agent makes: the name of the tool as agents use it, and the arguments."""


@dataclass
class _RehearsalModel:
    """Replaces an agent's model: makes the calls of a script, then answers."""

    model: Model
    script: Script
    sent: list[RehearsedRequest]
    native: bool

    @property
    def identity(self) -> dict[str, Any]:
        """The identity of the model that it replaces."""
        return dict(self.model.identity)

    async def complete(self, request: ModelRequest) -> Reply:
        """Return the next call, or the answer."""
        calls_before = sum(message.role == "assistant" for message in request.messages)
        reply = self._answer() if calls_before >= len(self.script) else self._call(calls_before)
        length = len(reply.text) + sum(len(call.arguments) for call in reply.calls)
        self.sent.append(
            RehearsedRequest("agent", self.identity, request.messages, request.tools, request.schema, length)
        )
        return reply

    def _answer(self) -> Reply:
        answer = _filler(ANSWER)
        return Reply(text=answer if self.native else f"Thought: done.\nFinal Answer: {answer}")

    def _call(self, number: int) -> Reply:
        name, arguments = self.script[number]
        thought = _filler(THOUGHT)
        if self.native:
            call = ToolCall(id=f"call_{number}", name=name, arguments=json_text(arguments))
            return Reply(text=thought, calls=(call,), stop="calls")
        return Reply(text=f"Thought: {thought}\nAction: {name}\nAction Input: {json_text(arguments)}")


def _is_answered_by_rows(call: Call, trajectory: Trajectory) -> bool:
    """Return whether rows answer each call of the tool: it has an operation, and all keys are known."""
    plan = trajectory.world.plan(call.tool) if trajectory.world is not None else None
    if plan is None:
        return False
    tables = [lookup.table for lookup in plan.lookups] + ([plan.table] if plan.table is not None else [])
    return not any(table.entity.open for table in tables)


@dataclass
class _RehearsalEmulator:
    """Replaces the emulator: records the requests to its model, and answers from the offline world."""

    simulated: SimulatedEmulator | None
    sent: list[RehearsedRequest] = field(default_factory=list)
    offline: OfflineEmulator = field(default_factory=OfflineEmulator)

    async def __call__(self, call: Call, trajectory: Trajectory) -> Observation:
        """Return a result that the tool may return."""
        try:
            observation = await self.offline(call, trajectory)
        except InconclusiveError:
            observation = Observation(content={"error": "Unavailable: try again later"}, source="offline")
        if self.simulated is None or _is_answered_by_rows(call, trajectory):
            return observation
        reply = EMULATION + SUMMARY + len(observation.text)
        schema = self.simulated.schema(call, trajectory)
        messages = self.simulated.messages(call, trajectory)
        self.sent.append(RehearsedRequest("emulator", self.simulated.model.identity, messages, (), schema, reply))
        emulation = Emulation(log_summary=_filler(SUMMARY))
        return observation.model_copy(update={"emulation": emulation, "source": "simulated"})


async def rehearse(
    resolved_case: ResolvedCase,
    agent: Agent,
    emulator: Emulator,
    evaluators: Sequence[Evaluator],
    calls: int | Script,
    *,
    dialogue: RehearsedDialogue | None = None,
) -> list[RehearsedRequest]:
    """Return the model requests of a run with the given number of tool calls, or with the given calls.

    With a ``dialogue``, the agent asks after its calls as often as the user replies.
    Results of generated calls are generated, also where rows answer, because generated arguments name no rows.
    Given calls are handled as in a run: code rejects invalid ones, executes operations on the rows of the case, and
    repeats equal reads; the emulator's model gets the rest. No custom code is run: a custom agent is assumed to make
    the same calls, and custom emulators and evaluators are left out.
    """
    trajectory = Trajectory(resolved_case, turns=dialogue.turns if dialogue else 1)
    stage = _RehearsalEmulator(_simulated(emulator))
    requests = stage.sent
    if isinstance(calls, int):
        script: Script = [generated_call(resolved_case, number) for number in range(calls)]
        answer: Emulator = stage
    else:
        script, answer = calls, ValidatedEmulator(RowsEmulator(ConsistentEmulator(stage)))
    player = _silent(script)
    if isinstance(agent, ReactAgent | ToolCallingAgent):
        stand_in = _RehearsalModel(agent.model, script, requests, isinstance(agent, ToolCallingAgent))
        player = replace(agent, model=stand_in)
    try:
        user = _rehearsed_user(dialogue, requests)
        toolbox = Toolbox(trajectory, answer, max_steps=len(script), user=user)
        trajectory.answer = await player(Task.of(resolved_case.case), toolbox)
    except AgentStopped as stopped:
        trajectory.stop_reason = stopped.reason
    requests += [request for evaluator in evaluators for request in judgments(evaluator, trajectory)]
    return list(with_fallbacks(requests))


def with_fallbacks(requests: Iterable[RehearsedRequest]) -> Iterator[RehearsedRequest]:
    """Yield the requests, each followed by those to the fallback models, which are sent if all models before fail."""
    for request in requests:
        yield request
        for identity in identities_in_turn(request.model)[1:]:
            yield replace(request, model=identity, shares=FALLBACK_SHARES)


def judgments(evaluator: Evaluator, trajectory: Trajectory) -> Iterator[RehearsedRequest]:
    """Yield the requests of an evaluator: in a cascade, not every run needs every judge."""
    if isinstance(evaluator, JudgeEvaluator):
        model, messages = evaluator.model.identity, evaluator.messages(trajectory)
        reply = JUDGMENT[evaluator.rubric]
        yield RehearsedRequest("evaluator", model, messages, (), SCHEMAS[evaluator.rubric], reply)
    elif isinstance(evaluator, CascadeEvaluator):
        requests = (request for judge in evaluator.judges for request in judgments(judge, trajectory))
        if evaluator.asks_all:
            yield from requests
            return
        *cheap, strong = requests
        for request in cheap:
            yield replace(request, shares=(1.0, 0.0 if evaluator.has_checks else 1.0, 1.0))
        yield replace(strong, shares=(DOUBT if cheap else 1.0, 0.0, 1.0))


def _rehearsed_user(dialogue: RehearsedDialogue | None, requests: list[RehearsedRequest]) -> RehearsedUser | None:
    if dialogue is None:
        return None

    def record(model: dict[str, Any], messages: tuple[Message, ...], schema: ReplySchema, reply: int) -> None:
        requests.append(RehearsedRequest("user", model, messages, (), schema, reply))

    return RehearsedUser(dialogue.user, dialogue.replies, record)


def _silent(script: Script) -> Agent:
    async def agent(_task: Task, toolbox: Toolbox) -> str:
        for name, arguments in script:
            await toolbox.call(name, arguments)
        while await toolbox.say(_filler(ANSWER)) is not None:
            pass
        return _filler(ANSWER)

    return agent


def _simulated(emulator: Emulator) -> SimulatedEmulator | None:
    """Return the simulated emulator inside the wrappers, if there is one."""
    while isinstance(emulator, WrapperEmulator):
        emulator = emulator.next
    return emulator if isinstance(emulator, SimulatedEmulator) else None


def generated_call(resolved_case: ResolvedCase, number: int) -> tuple[str, dict[str, Any]]:
    """Return a call with arguments that are valid for its tool; successive numbers take the tools in turn."""
    names = list(resolved_case.tools)
    for offset in range(len(names)):
        name = names[(number + offset) % len(names)]
        parameters = inlined(resolved_case.tools[name].parameters)
        required = {
            key: part for key, part in parameters.get("properties", {}).items() if key in parameters.get("required", ())
        }
        generator = SchemaGenerator(
            f"{resolved_case.case.id}:{number}", resolved_case.case.locale, resolved_case.case.now, {}
        )
        try:
            arguments = generator.value({**parameters, "properties": required}, (resolved_case.tools[name].name,))
        except (UnsatisfiableSchemaError, ArithmeticError, RecursionError):
            continue
        if not violations(resolved_case.tools[name].parameters, arguments):
            return name, arguments
    return names[number % len(names)], {}


def _filler(length: int) -> str:
    """Return English text of that length, so that it has as many tokens as a real reply."""
    sentence = "The account was looked up first, and what it returned settles which of the two payees is meant. "
    return (sentence * (length // len(sentence) + 1))[:length].strip()


USER_REPLY: Final = 120
"""Length of a reply of the user in characters, of one or two short sentences."""

_ENDING: Final = 40


@dataclass
class RehearsedUser:
    """Replies ``replies`` times, then ends the conversation.

    ``record`` gets identity, messages, schema, and length of the reply of each request to the user's model.
    """

    user: SimulatedUser
    replies: int
    record: Callable[[dict[str, Any], tuple[Message, ...], ReplySchema, int], None]

    async def __call__(self, trajectory: Trajectory) -> UserReply:
        """Return a reply of the usual length, or that the conversation is over."""
        given = sum(utterance.by == "user" for utterance in trajectory.dialogue)
        length = USER_REPLY if given < self.replies else _ENDING
        conversation = trajectory.resolved_case.case.conversation
        if isinstance(self.user, ModelUser) and conversation is not None:
            messages = self.user.messages(trajectory, conversation)
            self.record(self.user.model.identity, messages, SCHEMA, length)
        if given >= self.replies:
            return UserReply(kind="over")
        return UserReply(kind="answer", text=("It is the first of the two, as I said before. " * 3)[:USER_REPLY])
