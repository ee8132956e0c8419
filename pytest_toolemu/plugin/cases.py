"""From an item to its run: at its turn, or ahead of it where nothing of the user's is in the way."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from pytest_toolemu.agents.own import own
from pytest_toolemu.case import Case, Metric, World
from pytest_toolemu.engine import Limits, run_case
from pytest_toolemu.evaluators import Evaluator
from pytest_toolemu.plugin.state import ITEM, PROPERTY, SESSION, CaseError, Finished, Session
from pytest_toolemu.plugin.variants import is_own
from pytest_toolemu.plugin.verdict import trouble
from pytest_toolemu.redaction import redact_json
from pytest_toolemu.run import Run
from pytest_toolemu.settings import Variant
from pytest_toolemu.summary import Row
from pytest_toolemu.toolbox import Agent, Emulator

Judges = Evaluator | tuple[Evaluator, ...]


@dataclass(frozen=True)
class Part:
    """Everything that one run is made of."""

    world: World
    agent: Agent
    emulator: Emulator
    safety: Judges
    helpfulness: Judges
    trial: int

    @property
    def evaluators(self) -> tuple[Evaluator, ...]:
        """All of them, in one row."""
        return (*_several(self.safety), *_several(self.helpfulness))


def agent_of(item: pytest.Item, case: Case, variant: Variant | None) -> Agent | None:
    """The agent that a hook makes, else the configured one, else None."""
    session = item.config.stash[SESSION]
    name = variant.agent if variant else None
    made = item.ihook.pytest_toolemu_make_agent(name=name, case=case, config=item.config)
    if made is not None:
        return _as_agent(made)
    return session.roles.agent(variant) if variant else None


def carry_out(item: pytest.Item, part: Part) -> Run:
    """The item's run, once it has ended; CaseError where the instrument failed."""
    session = item.config.stash[SESSION]
    session.schedule.submit(item.nodeid, _job(session, part))
    if _may_run_ahead(item):
        _start_others(item, session)
    finished = session.schedule.result(item.nodeid)
    run, path = finished.run, finished.path
    row = Row.of(run, agent=agent_label(item, run), path=str(path)).as_json()
    item.user_properties[:] = [pair for pair in item.user_properties if pair[0] != PROPERTY]
    # Redacted, as others show it: JUnit files, for one.
    item.user_properties.append((PROPERTY, json.dumps(redact_json(row))))
    item.ihook.pytest_toolemu_run_finished(run=run, item=item)
    if run.outcome in ("inconclusive", "broken"):
        raise CaseError(trouble(run, path))
    return run


def agent_label(item: pytest.Item, run: Run) -> str:
    """What to call the agent in a table: its configured name with its prompt, else what it calls itself."""
    variant = _parameters(item).get("toolemu_variant")
    if isinstance(variant, Variant) and is_own(item, "toolemu_agent"):
        several = len(item.config.stash[SESSION].settings["prompt"]) > 1
        name = variant.agent.partition("@")[0]
        return f"{name} {variant.prompt}" if several else name
    return str(run.identity.agent.get("name", run.identity.agent.get("kind", "own")))


def _job(session: Session, part: Part) -> Callable[[], Any]:
    settings, store = session.settings, session.store
    thresholds: dict[Metric, int] = {"safety": settings["min-safety"]}
    if settings["helpfulness"] != "none":
        thresholds["helpfulness"] = settings["min-helpfulness"]
    limits = Limits(settings["max-steps"], settings["max-tokens"], settings["timeout"])

    async def job() -> Finished:
        run = await run_case(
            part.world,
            _as_agent(part.agent),
            part.emulator,
            part.evaluators,
            thresholds=thresholds,
            limits=limits,
            trial=part.trial,
            seed=settings["seed"] + part.trial - 1,
        )
        # On disk before anybody hears of it: what is reported can be read again.
        return Finished(run, store.put(run))

    return job


def _may_run_ahead(item: pytest.Item) -> bool:
    """Only in a process that runs all items, and where no failure ends the run early: a case ahead may cost money."""
    option = item.config.option
    stops = option.maxfail or getattr(option, "stepwise", False) or option.usepdb or option.trace
    return not item.config.stash[SESSION].is_worker and not stops


def _start_others(item: pytest.Item, session: Session) -> None:
    """Submit every later item whose fixtures are all the plugin's own, once."""
    if session.ahead_started:
        return
    session.ahead_started = True
    for other in item.session.items:
        if other is not item and isinstance(other, pytest.Function) and ITEM in other.stash and _is_free(other):
            part = _part_of(other, session)
            if part is not None:
                session.schedule.submit(other.nodeid, _job(session, part))


def _is_free(item: pytest.Function) -> bool:
    """Whether every fixture of the item is the plugin's or pytest's ``request``."""
    return all(name == "request" or is_own(item, name) for name in item.fixturenames)


def _part_of(item: pytest.Function, session: Session) -> Part | None:
    params = _parameters(item)
    variant: Variant | None = params.get("toolemu_variant")
    world = item.stash[ITEM]
    agent = agent_of(item, world.case, variant)
    if agent is None:
        return None
    roles = session.roles
    safety, helpfulness = roles.evaluators(variant, "safety"), roles.evaluators(variant, "helpfulness")
    return Part(world, agent, roles.emulator(variant), safety, helpfulness, params.get("toolemu_trial", 1))


def _parameters(item: pytest.Item) -> dict[str, Any]:
    return dict(item.callspec.params) if hasattr(item, "callspec") else {}


def _several(judges: Judges) -> tuple[Evaluator, ...]:
    return judges if isinstance(judges, tuple) else (judges,)


def _as_agent(agent: Any) -> Agent:
    """Parts of ours are agents already; anybody's function, async or plain, becomes one."""
    return agent if hasattr(agent, "identity") else own(agent, f"{agent.__module__}:{agent.__qualname__}")
