"""What a session must not go on without: the providers that a case asks, and a disk that takes its record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from pytest_toolemu.core.failure_origin import outage_kind
from pytest_toolemu.core.identity import component_name
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.run_spec import RunSpec
from pytest_toolemu.errors import NotRunError, UsageError
from pytest_toolemu.plugin.session import ToolemuSession, relative
from pytest_toolemu.scheduling.coordinator_messages import ProviderFailed, ProviderSucceeded, RecordsUnwritable


def check(session: ToolemuSession, spec: RunSpec) -> None:
    """Raise NotRunError if the session asks no more, or has given up a provider that this case needs."""
    schedule = session.flight().schedule
    session.leave.check()
    for key in _keys(spec):
        if reason := schedule.permits.closed.get(key):
            raise NotRunError(reason)


def learn(session: ToolemuSession, spec: RunSpec, run: Run) -> None:
    """Report whether an agent's own client reached its provider. All other requests are counted when they are sent."""
    send, key = session.flight().schedule.send, _agent_key(spec)
    if run.error is not None and run.error.origin == "provider" and run.error.type != "ModelError":
        send(ProviderFailed(key, outage_kind(run.error), f"{run.error.type}: {run.error.message}"))
    elif run.stop != "error":
        send(ProviderSucceeded(key))


def unwritable(session: ToolemuSession, error: OSError | UsageError, run: Run | None = None) -> NotRunError:
    """Have the session start nothing more, as no record can be written; return what becomes of this case."""
    reason = str(error)
    if isinstance(error, OSError):
        reason = (
            f"no record can be written to {relative(session.folder)} ({error.strerror or error}), so no more cases are "
            "started and no more requests are sent: free the disk or bring the folder back"
        )
    session.flight().schedule.send(RecordsUnwritable(reason))
    failure = NotRunError(reason)
    failure.exchanges = run.exchanges if run is not None else ()
    return failure


def _keys(spec: RunSpec) -> Iterator[str]:
    yield _agent_key(spec)
    for one in (spec.agent, spec.emulator, *spec.evaluators):
        yield from _accounts(one)


def _agent_key(spec: RunSpec) -> str:
    return f"agent {component_name(spec.identity.agent)}"


def _accounts(part: Any) -> Iterator[str]:
    """Find the accounts of the models in an agent, emulator, or evaluator, and in what those wrap."""
    account = getattr(part, "account", None)
    if isinstance(account, str):
        yield account
    elif is_dataclass(part):
        for field in fields(part):
            yield from _accounts(getattr(part, field.name))
