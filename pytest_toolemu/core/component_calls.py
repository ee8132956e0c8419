"""Calls of a case's components: what is wrong with a result, or raised, becomes an error of the component by name."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pytest_toolemu.core.agent_access.user_channel import SimulatedUser
from pytest_toolemu.core.identity import identity_of
from pytest_toolemu.core.protocols import Evaluator
from pytest_toolemu.core.run_parts.dialogue import UserReply
from pytest_toolemu.core.toolbox import Emulator
from pytest_toolemu.core.trajectory import Call, Observation, Trajectory
from pytest_toolemu.core.verdict import Verdict
from pytest_toolemu.errors import AgentStopped
from pytest_toolemu.formats.exception_text import exception_text

T = TypeVar("T")


async def contained(component: Callable[[], Awaitable[T]], name: str) -> T:
    """Return a component's result; turn exceptions that would end pytest or its loop into errors of that component."""
    try:
        result = component()
        if not inspect.isawaitable(result):
            raise TypeError(
                f"{name} is not an async function: it returned {type(result).__name__}; declare it with 'async def'"
            )
        return await result
    except (AgentStopped, Exception):
        raise
    except BaseException as error:  # KeyboardInterrupt, SystemExit, pytest.skip: a component must not raise these
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise  # the scheduler cancels this case
        if isinstance(error, BaseExceptionGroup) and (stopped := error.subgroup(AgentStopped)):
            raise _first(stopped) from None
        replacement = RuntimeError(f"{name} raised {type(error).__name__}: {exception_text(error)}")
        # Keep the traceback: the lines of the component's code are shown, those of this package are not.
        raise replacement.with_traceback(error.__traceback__) from None


def checked_emulator(emulator: Emulator) -> Emulator:
    """Wrap the emulator so that its exceptions are attributed to it."""

    async def checked(call: Call, trajectory: Trajectory) -> Observation:
        observation = await contained(lambda: emulator(call, trajectory), "the emulator")
        if not isinstance(observation, Observation):
            raise TypeError(f"the emulator returned {type(observation).__name__}; return an Observation")
        return observation

    return checked


def checked_user(user: SimulatedUser) -> SimulatedUser:
    """Wrap the user so that its exceptions are attributed to it, and it cites only facts of the case."""

    async def checked(trajectory: Trajectory) -> UserReply:
        reply = await contained(lambda: user(trajectory), "the user")
        if not isinstance(reply, UserReply):
            raise TypeError(f"the user returned {type(reply).__name__}; return a UserReply")
        conversation = trajectory.resolved_case.case.conversation
        known = [fact.id for fact in conversation.facts] if conversation is not None else []
        if unknown := [fact for fact in reply.facts if fact not in known]:
            listed, others = ", ".join(map(repr, unknown)), ", ".join(known) or "none"
            raise ValueError(f"the user states the facts {listed}, which the case does not have; it has: {others}")
        return reply

    return checked


async def verdicts_of(evaluator: Evaluator, trajectory: Trajectory) -> list[Verdict]:
    """Return the verdicts of an evaluator, whose exceptions are attributed to it."""
    name = identity_of(evaluator).get("name", identity_of(evaluator)["kind"])
    verdicts = await contained(lambda: evaluator(trajectory), f"the evaluator {name}")
    if not isinstance(verdicts, list) or not all(isinstance(verdict, Verdict) for verdict in verdicts):
        raise TypeError(f"the evaluator {name} returned {type(verdicts).__name__}; return a list of Verdict")
    return verdicts


def _first(group: BaseExceptionGroup[AgentStopped]) -> BaseException:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
