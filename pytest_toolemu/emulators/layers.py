"""The layers around an emulator, from validation of arguments to repeated reads, runs with the offline one."""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.case_rules import Pin
from pytest_toolemu.core.conclusion import checked_emulator
from pytest_toolemu.core.engine import Limits
from pytest_toolemu.core.identity import identity_of
from pytest_toolemu.core.run import Call, Observation, Step, Trajectory, failure, sha256
from pytest_toolemu.core.toolbox import Agent, Emulator, Task, Toolbox
from pytest_toolemu.core.toolkit import Tool
from pytest_toolemu.emulators.schema_values import SchemaGenerator, UnsatisfiableSchemaError
from pytest_toolemu.emulators.users import OfflineUser
from pytest_toolemu.errors import AgentStopped, InconclusiveError, OpenEntityError, WorldError
from pytest_toolemu.formats.json_schema import inlined, violations
from pytest_toolemu.formats.yaml_document import show


@dataclass(frozen=True)
class WrapperEmulator:
    """An emulator that wraps another one and has its identity: sessions do not choose what the wrapper adds.

    Subclasses answer calls. What they answer by belongs to the case, the toolkits, or the rules of every session.
    """

    next: Emulator

    @property
    def identity(self) -> dict[str, Any]:
        """Identity of the inner emulator."""
        return identity_of(self.next)

    @property
    def dialogue_identity(self) -> dict[str, Any]:
        """The identity in runs with a dialogue."""
        return identity_of(self.next, in_dialogue=True)


DEFAULT_ERROR: Final = "InvalidRequest"

_VALIDATION_ERROR = re.compile(
    r"(?i)((invalid|bad|malformed|illegal)_?(request|call|input|arguments?|parameters?|params)|validation)"
    r"_?(error|exception|failed)?"
)


@dataclass(frozen=True)
class ValidatedEmulator(WrapperEmulator):
    """Rejects calls of unknown tools and calls whose arguments violate the tool's schema; passes every other call on.

    The errors could come from any real server: nothing in them reveals that the world is emulated.
    """

    async def __call__(self, call: Call, trajectory: Trajectory) -> Observation:
        """Return an error that lists all problems of the call, or the answer of the inner emulator."""
        tools = trajectory.resolved_case.tools
        if call.tool is None or call.name not in tools:
            return failure(f"{DEFAULT_ERROR}: there is no tool {show(call.name)}; {_suggestion(call.name, tools)}")
        tool = tools[call.name]
        if isinstance(call.arguments, dict):
            problems = tool.argument_schema.violations(call.arguments)
        else:
            problems = [f"the arguments must be one JSON object, and {show(call.arguments)} is none"]
        if problems:
            error = next((name for name in tool.errors if _VALIDATION_ERROR.fullmatch(name)), DEFAULT_ERROR)
            return failure(f"{error}: {'; '.join(problems)}")
        return await self.next(call, trajectory)


@dataclass(frozen=True)
class CustomEmulator(WrapperEmulator):
    """Refuses results of a user's own emulator that the tool does not declare, as those of ours are refused."""

    async def __call__(self, call: Call, trajectory: Trajectory) -> Observation:
        """Return the observation of the inner emulator. Raise WorldError if it does not conform to the tool."""
        observation = await checked_emulator(self.next)(call, trajectory)
        problems = trajectory.resolved_case.tools[call.name].result_schema.violations(observation.content)
        if problems and not observation.is_error:
            message = f"the emulator's result of {call.tool} is not what the tool declares: {problems[0]}"
            raise WorldError(f"{message}; correct the emulator")
        return observation


def validated(emulator: Emulator) -> Emulator:
    """Return an emulator of which arguments and results are validated; a user's own one, from a fixture, is wrapped."""
    return emulator if isinstance(emulator, ValidatedEmulator) else ValidatedEmulator(CustomEmulator(emulator))


def _suggestion(name: str, tools: Iterable[str]) -> str:
    requested = name[:80].casefold().replace(".", "_")
    folded = {tool.casefold(): tool for tool in tools}
    near = difflib.get_close_matches(requested, folded, n=3, cutoff=0.6)
    # The most common mistake is a tool's name without its toolkit, or with another toolkit.
    if own_name := requested.rpartition("_")[2]:
        near += [key for key in folded if key.endswith(own_name) and key not in near]
    if near:
        return f"the closest are {', '.join(folded[key] for key in near[:5])}"
    return f"the tools are {', '.join(folded.values())}"


@dataclass(frozen=True)
class PinnedEmulator(WrapperEmulator):
    """Answers with the first pin of the case that matches the call; passes every other call on."""

    async def __call__(self, call: Call, trajectory: Trajectory) -> Observation:
        """Return the pin's result or error, or the answer of the inner emulator."""
        for pin in trajectory.resolved_case.case.pins:
            if not _matches(pin, call, trajectory):
                continue
            # Invalid calls never reached the pin.
            reached = [step.call for step in trajectory.steps if step.observation.source != "rejected"]
            if pin.nth in (None, 1 + sum(_matches(pin, earlier, trajectory) for earlier in reached)):
                return Observation(content=pin.content, source="pinned")
        return await self.next(call, trajectory)


def _matches(pin: Pin, call: Call, trajectory: Trajectory) -> bool:
    return call.tool is not None and trajectory.resolved_case.matches(pin, call.tool, call.arguments)


@dataclass(frozen=True)
class RowsEmulator(WrapperEmulator):
    """Executes calls of tools with an operation, if the case has rows for their toolkit; passes every other call on."""

    async def __call__(self, call: Call, trajectory: Trajectory) -> Observation:
        """Return the result of the operation, or the answer of the inner emulator."""
        world = trajectory.world
        plan = world.plan(call.tool) if world is not None else None
        if world is None or plan is None or call.tool is None:
            return await self.next(call, trajectory)
        try:
            if trajectory.is_light:
                content = world.call(call.tool, call.arguments, call.index)
            else:  # a statement on long texts may take seconds, in which other cases go on
                content = await asyncio.to_thread(world.call, call.tool, call.arguments, call.index)
        except OpenEntityError:
            return await self.next(call, trajectory)
        if "error" not in content and (problems := plan.tool.result_schema.violations(content)):
            raise WorldError(f"{call.tool} does not return what it declares: {problems[0]}; correct its operation")
        return Observation(content=content, source="rows")


@dataclass(frozen=True)
class ConsistentEmulator(WrapperEmulator):
    """Repeats an earlier answer to the same read, unless another call may have changed the world in between.

    Errors are not repeated, because they may be temporary, nor are results that the case fixes for one call: the answer
    to the next one is up to the inner emulator.
    """

    async def __call__(self, call: Call, trajectory: Trajectory) -> Observation:
        """Return the earlier content, or the answer of the inner emulator."""
        tools = trajectory.resolved_case.tools
        if tools[call.name].effect == "read":
            for step in reversed(trajectory.steps):
                if step.call.tool == call.tool and step.call.text == call.text and not step.observation.is_error:
                    if step.observation.source == "pinned":  # for this call only: otherwise the pin would answer again
                        break
                    return Observation(content=step.observation.content, source="remembered")
                if _changed(step, tools):
                    break
        return await self.next(call, trajectory)


def _changed(step: Step, tools: dict[str, Tool]) -> bool:
    """Tell whether the step may have changed the world: a success of anything but a read, in any toolkit.

    Toolkits are not independent: one may show data of another.
    """
    tool = tools.get(step.call.name)
    return tool is not None and tool.effect != "read" and not step.observation.is_error


_TRIES: Final = 5


@dataclass(frozen=True)
class OfflineEmulator:
    """Generates results that conform to the tool's return schema. The same read gets the same result.

    It knows nothing of the world: pins, rows, and repeated reads are the layers around it. It expects calls that
    ValidatedEmulator has accepted. InconclusiveError if no result is found that conforms.
    """

    @property
    def identity(self) -> dict[str, Any]:
        """Kind; nothing of the offline emulator can be configured."""
        return {"kind": "offline"}

    async def __call__(self, call: Call, trajectory: Trajectory) -> Observation:
        """Return a generated result."""
        tool, case = trajectory.resolved_case.tools[call.name], trajectory.resolved_case.case
        # A repeated write has a new effect each time, so the number of repetitions is part of the seed.
        repetitions = sum(step.call.tool == call.tool and step.call.text == call.text for step in trajectory.steps)
        repetitions = 0 if tool.effect == "read" else repetitions
        seed = sha256([sha256([trajectory.seed, case.id]), call.tool, call.text, repetitions])
        returns = inlined(tool.returns)
        for attempt in range(_TRIES):
            generator = SchemaGenerator(f"{seed}{attempt}", case.locale, case.now, call.arguments)
            try:
                content = generator.value(returns, (tool.name,))
            except (UnsatisfiableSchemaError, ArithmeticError, RecursionError):  # bounds may be absurd
                continue
            if not violations(tool.returns, content):
                return Observation(content=content, source="offline")
        raise InconclusiveError(
            f"the offline emulator found no result that {call.tool} may return; pin one, simplify its 'returns', or "
            "use a model as emulator"
        )


PLAYED_TURNS: Final = 10
"""Number of messages that an agent may write to the user when the references of a conversation are played."""


async def play(resolved_case: ResolvedCase, agent: Agent, seed: int = 0, turns: int = 1) -> Trajectory:
    """Return the trajectory of an agent under a session's limit of tool calls.

    With several ``turns``, the offline user replies; the case must be the one ``in_conversation``.
    Raise InconclusiveError if the offline emulator cannot answer a call.
    """
    trajectory = Trajectory(resolved_case, seed, turns=turns)
    user = OfflineUser() if turns > 1 else None
    # No model is needed: pins and rows answer, and values are generated for other calls.
    emulator = ValidatedEmulator(PinnedEmulator(RowsEmulator(ConsistentEmulator(OfflineEmulator()))))
    toolbox = Toolbox(trajectory, emulator, Limits().max_steps, user=user)
    try:
        trajectory.answer = await agent(Task.of(resolved_case.case), toolbox)
    except AgentStopped:
        trajectory.stop = "step_limit"
    trajectory.release_world()
    return trajectory
