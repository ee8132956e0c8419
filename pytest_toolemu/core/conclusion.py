"""How a run ends: its verdicts and outcome, whatever was raised on the way to them."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from pytest_toolemu.core import case_timer
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.identity import identity_of, verdict_names
from pytest_toolemu.core.run import (
    Call,
    ErrorInfo,
    Evaluator,
    Observation,
    Origin,
    Outcome,
    Trajectory,
    UserReply,
    Verdict,
    decide,
)
from pytest_toolemu.core.toolbox import Agent, Emulator, SimulatedUser, printable
from pytest_toolemu.errors import (
    AgentProgramError,
    AgentStopped,
    InconclusiveError,
    MissingToolError,
    ModelError,
    NotRunError,
    ToolemuError,
)
from pytest_toolemu.formats.text import exception_text


@dataclass
class Conclusion:
    """What is known about a run's result so far; "broken" until the evaluators have judged."""

    verdicts: tuple[Verdict, ...] = ()
    outcome: Outcome = "broken"
    reasons: tuple[str, ...] = ()
    error: ErrorInfo | None = None
    timed_out: bool = False
    raised_by: Agent | None = None
    """The agent, if the exception in progress comes from its own code."""

    def decide(self, thresholds: Mapping[Metric, int], problems: Sequence[str], rule: str) -> None:
        """Decide by the verdicts; if evaluators did not answer that are needed, their problems are the reason."""
        self.outcome, self.reasons = decide(self.verdicts, thresholds, rule)
        if problems and self.outcome == "inconclusive":
            self.reasons = tuple(dict.fromkeys(problems))


async def judge(
    trajectory: Trajectory,
    evaluators: Sequence[Evaluator],
    thresholds: Mapping[Metric, int],
    timeout: float,
    kept_verdicts: tuple[Verdict, ...] = (),
    rule: str = "worst",
) -> Conclusion:
    """Judge a finished trajectory within ``timeout`` seconds, and decide its outcome; raise NotRunError only.

    ``kept_verdicts``, of earlier evaluators, count as well. ``rule`` combines several judges.
    """
    conclusion = Conclusion()
    message = f"judging took more than {timeout:g} s; raise TOOLEMU_TIMEOUT if the judge is slow"
    async with concluding(conclusion, trajectory, timeout, message):
        await judge_all(trajectory, evaluators, thresholds, conclusion, kept_verdicts, rule)
    if conclusion.timed_out:
        missing = [verdict for each in evaluators for verdict in missing_verdicts(identity_of(each), message)]
        conclusion.verdicts = (*kept_verdicts, *missing)
        conclusion.decide(thresholds, [message], rule)
    return conclusion


async def judge_all(
    trajectory: Trajectory,
    evaluators: Sequence[Evaluator],
    thresholds: Mapping[Metric, int],
    conclusion: Conclusion,
    kept_verdicts: tuple[Verdict, ...] = (),
    rule: str = "worst",
) -> None:
    """Run all evaluators at once, and decide; if one raises, the verdicts of the others are kept.

    An evaluator that cannot judge gets verdicts without a score: it could have given a worse score than the others.
    """
    results = await asyncio.gather(*(verdicts_of(each, trajectory) for each in evaluators), return_exceptions=True)
    verdicts, problems = list(kept_verdicts), []
    for evaluator, result in zip(evaluators, results, strict=True):
        if isinstance(result, list):
            verdicts += result
        elif isinstance(result, InconclusiveError):
            problems.append(str(result))
            verdicts += missing_verdicts(identity_of(evaluator), str(result))
    conclusion.verdicts = tuple(verdicts)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, InconclusiveError):
            raise result
    conclusion.decide(thresholds, problems, rule)


def missing_verdicts(evaluator: Mapping[str, Any], problem: str) -> list[Verdict]:
    """Return the verdicts, all without a score, of the evaluator with this identity, which has not answered."""
    return [Verdict(evaluator=name, metric=metric, problem=problem) for name, metric in verdict_names(evaluator)]


@contextlib.asynccontextmanager
async def concluding(
    conclusion: Conclusion, trajectory: Trajectory, timeout: float, timeout_message: str
) -> AsyncIterator[None]:
    """Turn exceptions and the timeout into the conclusion of the run; see ``run_case`` for those that pass."""
    timer: asyncio.Timeout | None = None
    try:
        async with case_timer.begin().limit(timeout) as timer:
            yield
    except (NotRunError, MissingToolError) as error:
        error.model_calls = tuple(trajectory.ledger.model_calls)  # these calls were paid for
        raise
    except InconclusiveError as error:
        conclusion.outcome, conclusion.reasons = "inconclusive", (str(error),)
    except Exception as error:
        if timer is not None and timer.expired():
            conclusion.timed_out = True
            conclusion.outcome, conclusion.reasons = "inconclusive", (timeout_message,)
        else:
            info = error_info(error, origin_of(error, agent=conclusion.raised_by))
            conclusion.outcome, conclusion.error, conclusion.reasons = "broken", info, (f"{info.type}: {info.message}",)


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
    except (AgentStopped, GeneratorExit, Exception):
        raise
    except BaseException as error:  # KeyboardInterrupt, SystemExit, pytest.skip: a component must not raise these
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise  # the scheduler cancels this case
        if isinstance(error, BaseExceptionGroup) and (stopped := error.subgroup(AgentStopped)):
            first: BaseException = stopped
            while isinstance(first, BaseExceptionGroup):
                first = first.exceptions[0]
            raise first from None
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


# SDKs that an agent may use directly, and the libraries they send their requests with.
_SDKS: Final = frozenset({"openai", "anthropic"})
_TRANSPORTS: Final = frozenset({"httpx", "httpx2", "httpcore", "httpcore2", "anyio"})
# HTTP statuses that mean an endpoint cannot be used at all, as opposed to a request that is not valid.
_UNUSABLE: Final = frozenset({401, 402, 403, 404, 408, 429})
# Exceptions in a chain of causes; frameworks wrap an SDK's error once or twice.
_MAX_CAUSES: Final = 20
_PACKAGE_FOLDER: Final = str(Path(__file__).parents[1])


def origin_of(error: BaseException, *, agent: Any = None) -> Origin:
    """Return the origin of an exception. ``agent`` is the agent that raised it; None if it came from elsewhere."""
    if isinstance(error, ModelError) or _is_outage(error):
        return "provider"
    if isinstance(error, AgentProgramError):
        return "agent"
    is_built_in = identity_of(agent).get("kind") != "own" and type(agent).__module__.startswith("pytest_toolemu.")
    return "harness" if agent is None or is_built_in else "agent"


def outage_kind(error: ErrorInfo) -> str:
    """Return the kind of a provider's failure: exception type and HTTP status, so equal failures have equal kinds."""
    return f"{error.type} {error.status or ''}".strip()


def error_info(error: BaseException, origin: Origin) -> ErrorInfo:
    """Return the record of an exception. Its traceback has no frames of this package, asyncio, or SDKs, and no locals.

    A provider's failure has no traceback: its message states what failed, and at which server.
    """
    text = ""
    if origin != "provider":
        details = traceback.TracebackException.from_exception(error)
        _remove_foreign_frames(details)
        text = "".join(details.format()) if details.stack else ""
    status = _status(error)
    message = exception_text(error)
    if origin == "provider":
        client_error = _client_error(error) or error
        status = _status(client_error)
        cause = exception_text(client_error)
        cause = "" if cause in message else f": {type(client_error).__name__}: {cause}"
        message = " ".join(f"{message}{cause}{_server(client_error)}".split())
    return ErrorInfo(
        type=type(error).__name__, message=printable(message), traceback=printable(text), origin=origin, status=status
    )


def _server(error: BaseException) -> str:
    """Return the server that an SDK could not reach, and why, as the SDK's message omits both; empty for others."""
    if not _class_of(error, _SDKS) or _status(error) is not None:
        return ""
    url = getattr(getattr(error, "request", None), "url", None)
    host = f"{url.scheme}://{url.netloc.decode()}" if url is not None else ""
    return f" ({': '.join(filter(None, (host, str(error.__cause__ or ''))))})" if host or error.__cause__ else ""


def _is_outage(error: BaseException) -> bool:
    """Return whether an agent's own SDK could not use its endpoint.

    A request that the endpoint rejects as not valid is the agent's failure, not an outage.
    """
    client_error = _client_error(error)
    if client_error is None:
        return False
    status = _status(client_error)
    if status is None:
        name = _class_of(client_error, _SDKS | _TRANSPORTS)
        return any(word in name for word in ("Connect", "Timeout", "Network", "Protocol", "Proxy"))
    return status in _UNUSABLE or status >= 500


def _client_error(error: BaseException) -> BaseException | None:
    """Return the first error of an SDK or its transport in a chain of causes: frameworks raise their own from it.

    An exception during the handling of such an error is no part of the chain, because it may be the agent's mistake.
    """
    cause: BaseException | None = error
    for _ in range(_MAX_CAUSES):  # causes can be a cycle
        if isinstance(cause, ToolemuError):  # which states its origin itself
            return None
        if cause is None or _class_of(cause, _SDKS | _TRANSPORTS):
            return cause
        cause = cause.__cause__
    return None


def _class_of(error: BaseException, packages: frozenset[str]) -> str:
    """Return the name of the first class of an exception that is of these packages; empty if there is none.

    Some frameworks, such as LiteLLM, derive their errors from those of an SDK.
    """
    return next((kind.__name__ for kind in type(error).__mro__ if kind.__module__.partition(".")[0] in packages), "")


def _status(error: BaseException) -> int | None:
    try:
        status = getattr(error, "status" if isinstance(error, ModelError) else "status_code", None)
    except Exception:  # a property of an agent's own class
        return None
    return status if isinstance(status, int) else None


def _remove_foreign_frames(details: traceback.TracebackException) -> None:
    """Remove the frames that do not help the author of an agent, also from the exceptions that led to this one."""
    own = [frame for frame in details.stack if not _is_foreign(frame.filename)]
    details.stack = traceback.StackSummary.from_list(own)
    for inner in (*(details.exceptions or ()), details.__cause__, details.__context__):
        if inner is not None:
            _remove_foreign_frames(inner)


def _is_foreign(file: str) -> bool:
    if file.startswith((_PACKAGE_FOLDER, str(Path(asyncio.__file__).parent))):
        return True
    parts = Path(file).parts
    return any(
        folder == "site-packages" and package in _SDKS | _TRANSPORTS for folder, package in itertools.pairwise(parts)
    )
