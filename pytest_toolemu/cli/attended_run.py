"""Runs one case with an agent that a person connects, shows its calls, and stores the run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_toolemu.analysis.run_summary import agent_name
from pytest_toolemu.core.engine import run_case
from pytest_toolemu.core.environment import versions
from pytest_toolemu.core.identity import identity_of
from pytest_toolemu.core.run_spec import Limits, RunSpec
from pytest_toolemu.core.world.built_world import per_call
from pytest_toolemu.errors import UsageError
from pytest_toolemu.evaluators.checks import with_checks
from pytest_toolemu.formats.redaction import plain
from pytest_toolemu.formats.truncation import truncated
from pytest_toolemu.models.pricing import Prices, costs_of
from pytest_toolemu.sessions.session_id import session_id
from pytest_toolemu.sessions.store import RunStore

if TYPE_CHECKING:
    from pytest_toolemu.components import Components
    from pytest_toolemu.core.case import ResolvedCase
    from pytest_toolemu.core.case_vocabulary import Metric
    from pytest_toolemu.core.run import Run
    from pytest_toolemu.core.toolbox import Agent, Emulator
    from pytest_toolemu.core.trajectory import Call, Observation, Trajectory
    from pytest_toolemu.settings import Settings

_SHOWN: Final = 400
_LONG: Final = 2000
_A_WEEK: Final = 7 * 24 * 3600.0

Show = Callable[[str], object]
"""Prints a line."""


class ShownEmulator:
    """Shows each call and its result while the case runs."""

    def __init__(self, emulator: Emulator, show: Show) -> None:
        self._emulator = emulator
        self._show = show

    @property
    def identity(self) -> dict[str, Any]:
        """The identity of the emulator that answers."""
        return identity_of(self._emulator)

    async def __call__(self, call: Call, trajectory: Trajectory) -> Observation:
        """Return the observation of the emulator that answers."""
        arguments = json.dumps(call.arguments, ensure_ascii=False)
        self._show(_line(f"{call.index + 1}. {call.tool or call.name} {arguments}"))
        observation = await self._emulator(call, trajectory)
        self._show(_line(observation.text, indent=3))
        return observation


def attended_spec(
    resolved_case: ResolvedCase, agent: Agent, components: Components, settings: Settings, show: Show
) -> RunSpec:
    """Return what is run: the case with the emulator, the evaluators, and the limits of the settings.

    The agent may take a week. Raise UsageError for a setting that only sessions of pytest have.
    """
    if settings.world == "built":
        raise UsageError(
            f"{settings.source('world')} is 'built', which 'toolemu serve' does not support; use case or calls"
        )
    if settings.recording:
        option = "record" if settings.record else "replay"
        raise UsageError(
            f"{settings.source(option)} names cassettes, which 'toolemu serve' does not support; run it without them"
        )
    thresholds: dict[Metric, int] = {"safety": settings.min_safety}
    if settings.helpfulness != "none":
        thresholds["helpfulness"] = settings.min_helpfulness
    evaluators = [
        evaluator
        for metric in thresholds
        for evaluator in (
            with_checks(components.evaluators(None, metric), metric)
            if metric in settings.checked
            else components.evaluators(None, metric)
        )
    ]
    return RunSpec(
        per_call(resolved_case) if settings.world == "calls" else resolved_case,
        agent,
        ShownEmulator(components.emulator(None), show),
        tuple(evaluators),
        thresholds,
        Limits(settings.max_steps, settings.max_tokens, _A_WEEK),
        seed=settings.seed,
    )


async def run_attended(spec: RunSpec, settings: Settings, evaluators: list[str]) -> tuple[Run, Path]:
    """Run the case, and store it as a session of one run with these evaluators; return the run and its file."""
    store = RunStore.create(Path(settings.run_dir), session_id(), private=settings.run_dir_mode == "private")
    run = await run_case(spec)
    run = run.model_copy(update={"agent": agent_name(run.identity)})
    prices = Prices.read(Path(settings.prices) if settings.prices else None)
    store.put_manifest(
        {
            "session": store.folder.name,
            "settings": settings.as_json(),
            "rootdir": str(Path.cwd()),
            "versions": versions(),
            "datasets": [run.dataset.model_dump()] if run.dataset is not None else [],
            "evaluators": evaluators,
            "judged_by": sorted({verdict.evaluator for verdict in run.verdicts}),
            "models": "live",
            "cost": {role: asdict(cost) for role, cost in costs_of(run.exchanges, prices).items()},
        }
    )
    return run, store.put(run)


def verdict_lines(run: Run, path: Path) -> Iterator[str]:
    """Yield the outcome with its reasons, the scores with their findings, and where the run is stored."""
    yield _line(f"{run.outcome}: {', '.join(run.reasons)}" if run.reasons else run.outcome, limit=_LONG)
    for verdict in run.verdicts:
        result = verdict.problem or ", ".join(filter(None, (f"{verdict.score} {verdict.label}", verdict.reason)))
        yield _line(f"{verdict.metric}, by {verdict.evaluator}: {result}", indent=2)
        for finding in verdict.findings:
            place = "answer" if finding.step is None else f"call {finding.step + 1}"
            yield _line(f"{place}: {finding.outcome}", indent=4)
    if run.stop != "final":
        yield _line(f"the agent's turn ended with {run.stop}: {run.stop_reason}")
    yield f"record: {path}"
    yield f"transcript: toolemu show {path}"


def _line(text: str, *, indent: int = 0, limit: int = _SHOWN) -> str:
    """Return text of agents and models as one line that is safe to print."""
    return " " * indent + truncated(" ".join(plain(text).split()), limit)
