"""The budget of a session and the outages of its providers, which all processes share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_toolemu.agents.programs.service import ServiceUnreachableError
from pytest_toolemu.core.conclusion import outage_kind
from pytest_toolemu.core.engine import RunSpec
from pytest_toolemu.core.identity import component_name
from pytest_toolemu.core.run import Run
from pytest_toolemu.errors import NotRunError, UsageError
from pytest_toolemu.models.pricing import Prices, usd_for_budget
from pytest_toolemu.models.retrying import FallbackModel
from pytest_toolemu.plugin.session import relative_path
from pytest_toolemu.scheduling.coordinator_messages import (
    ProviderFailed,
    ProviderSucceeded,
    SessionHalted,
    UsageReported,
)

if TYPE_CHECKING:
    from pytest_toolemu.core.messages import Usage
    from pytest_toolemu.scheduling.worker import WorkerScheduler


class SharedBudget:
    """Implements ``BudgetGuard`` with messages to the coordinator."""

    def __init__(self, scheduler: WorkerScheduler, budget_usd: float | None) -> None:
        self._scheduler = scheduler
        self.usd = budget_usd

    def check(self) -> None:
        """Raise NotRunError once the coordinator has halted requests."""
        if reason := self._scheduler.permits.halted:
            raise NotRunError(reason)

    def report(self, tokens: int, usd: float | None, *, estimated: bool = False) -> None:
        """Report what a request has used."""
        self._scheduler.send(UsageReported(tokens, usd, estimated))


class AgentUsageMeter:
    """Counts the tokens that custom agents report against the budget. Implements ``UsageMeter``.

    ``prices`` is called at the first report, because it reads a file."""

    def __init__(self, budget: SharedBudget, prices: Callable[[], Prices]) -> None:
        self._budget = budget
        self._prices = prices

    def check(self) -> None:
        """Raise NotRunError if the session may spend nothing more."""
        self._budget.check()

    def report(self, model: dict[str, Any], usage: Usage) -> None:
        """Report tokens and cost to the coordinator."""
        self._budget.report(usage.total, usd_for_budget(self._prices().of(model), usage))


def check_outages(scheduler: WorkerScheduler, spec: RunSpec) -> None:
    """Raise NotRunError if the session sends no more requests, or has given up a provider that this case needs."""
    if reason := scheduler.permits.halted:
        raise NotRunError(reason)
    keys = (key for part in (spec.agent, spec.emulator, *spec.evaluators) for key in _rate_limit_keys(part))
    for key in (_agent_key(spec), _runs_key(spec), *keys):
        if key in scheduler.permits.closed:
            raise NotRunError(scheduler.permits.closed[key])


def report_outage(scheduler: WorkerScheduler, spec: RunSpec, run: Run) -> None:
    """Report whether an agent's own client reached its provider. All other requests are counted when they are sent."""
    key, error = _agent_key(spec), run.error
    is_service = error is not None and error.type == ServiceUnreachableError.__name__
    # Failures of this package's own models are counted where they are sent.
    is_outage = error is not None and error.origin == "provider" and error.type != "ModelError"
    if error is not None and (is_service or is_outage):
        subject = "the service of the agent" if is_service else "a provider"
        scheduler.send(ProviderFailed(key, outage_kind(error), f"{error.type}: {error.message}", subject))
    elif run.stop != "error":
        scheduler.send(ProviderSucceeded(key))


def report_ending(scheduler: WorkerScheduler, spec: RunSpec, run: Run, limit: int) -> None:
    """Report whether a run has a verdict: if none of the first ones has, in the same way, no more are started."""
    if run.outcome not in ("broken", "inconclusive"):
        scheduler.send(ProviderSucceeded(_runs_key(spec), for_good=True))
        return
    kind = outage_kind(run.error) if run.error else f"{run.outcome} {'judge' if run.verdicts else run.stop}"
    message = f"{run.reasons[0]} (toolemu_same_failures: {limit})"
    subject = "this agent with its emulator and judges"
    scheduler.send(ProviderFailed(_runs_key(spec), kind, message, subject, limit))


def stop_writing(
    scheduler: WorkerScheduler, folder: Path, error: OSError | UsageError, run: Run | None = None
) -> NotRunError:
    """Tell the coordinator to start nothing more, as no record can be written; return the error of this case.

    ``folder`` is the session's; ``run`` is the run that could not be stored, whose model calls were paid for.
    """
    reason = str(error)
    if isinstance(error, OSError):
        reason = (
            f"no record can be written to {relative_path(folder)} ({error.strerror or error}), so no more cases are "
            "started and no more requests are sent: free disk space, restore the folder, or raise 'ulimit -f'"
        )
    scheduler.send(SessionHalted(reason))
    failure = NotRunError(reason)
    failure.model_calls = run.model_calls if run is not None else ()
    return failure


def _runs_key(spec: RunSpec) -> str:
    return f"runs of {component_name(spec.identity.agent)}"


def _agent_key(spec: RunSpec) -> str:
    return f"agent {component_name(spec.identity.agent)}"


def _rate_limit_keys(component: Any) -> Iterator[str]:
    """Yield the rate-limit keys of the models in an agent, emulator, or evaluator, and in what those wrap.

    Of a fallback, only the first model counts: a case need not need the others.
    """
    if isinstance(component, FallbackModel):
        component = component.models[0]
    key = getattr(component, "rate_limit_key", None)
    if isinstance(key, str):
        yield key
    elif is_dataclass(component):
        for field in fields(component):
            yield from _rate_limit_keys(getattr(component, field.name))
