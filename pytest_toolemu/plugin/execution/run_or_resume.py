"""One attempt at an item's run: taken over from an earlier session, or made now, on tape where that is wanted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_toolemu.core.case import Metric, ResolvedCase
from pytest_toolemu.core.engine import Limits, identify, run_case
from pytest_toolemu.core.protocols import Evaluator
from pytest_toolemu.core.run import Run, hashes_of, in_force, run_key
from pytest_toolemu.core.toolbox import Agent, Emulator
from pytest_toolemu.models.cassettes.session import CassetteRecorder
from pytest_toolemu.plugin.output import outages
from pytest_toolemu.plugin.session import ToolemuSession


@dataclass(frozen=True)
class RunPlan:
    """All that one run is made of and held against."""

    world: ResolvedCase
    agent: Agent
    emulator: Emulator
    evaluators: tuple[Evaluator, ...]
    thresholds: Mapping[Metric, int]
    limits: Limits
    trial: int
    seed: int


def found_before(session: ToolemuSession, plan: RunPlan, item: str) -> Run | None:
    """The item's run where an earlier session finished it. A rerun of the item is a new attempt, and finds nothing."""
    if session.earlier is None or item in session.attempted:
        return None
    session.attempted.add(item)
    world = plan.world
    identity = identify(plan.agent, plan.emulator, plan.evaluators)
    hashes = hashes_of(world.case, world.toolkits)
    key = run_key(world.case.id, hashes, identity, plan.trial, plan.seed, plan.limits.in_key)
    return session.earlier.find(world.case.id, key, item, in_force(world.case, plan.thresholds))


async def made_now(session: ToolemuSession, plan: RunPlan, item: str) -> Run:
    """The run, made now; its exchanges are played and recorded as the settings say."""
    tape = CassetteRecorder(session.library, item, plan.world.case.id, plan.trial) if session.library else None
    ended, use = False, None
    run: Run | None = None
    unwritten: OSError | None = None
    try:
        run = await run_case(
            plan.world,
            plan.agent,
            plan.emulator,
            plan.evaluators,
            thresholds=plan.thresholds,
            limits=plan.limits,
            trial=plan.trial,
            seed=plan.seed,
            tape=tape,
        )
        ended = not run.cut_off
    finally:
        # Also when cancelled: what was answered was paid for.
        try:
            use = tape.finish(ended) if tape else None
        except OSError as error:
            unwritten = error
    if unwritten is not None:
        raise outages.unwritable(session, unwritten, run)
    if use is None:
        return run
    # Where the very first request had no recording nobody answered, so nothing of it is live.
    source = "replayed" if session.settings.plays_only and run.exchanges else run.source
    return run.model_copy(update={"recording": use, "source": source})
