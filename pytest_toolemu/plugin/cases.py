"""From an item to its run: at its turn, or ahead of it where nothing of the user's is in the way."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from pytest_toolemu.agents.own import own
from pytest_toolemu.case import Case, Metric, World
from pytest_toolemu.engine import Limits
from pytest_toolemu.errors import NotRunError
from pytest_toolemu.evaluators import Evaluator
from pytest_toolemu.identity import name_of
from pytest_toolemu.plugin.attempts import Plan, found_before, made_now
from pytest_toolemu.plugin.collect import CaseFile
from pytest_toolemu.plugin.flight import Flight
from pytest_toolemu.plugin.state import ITEM, PROPERTY, RAN, SESSION, CaseError, Session, properties
from pytest_toolemu.plugin.variants import label_of
from pytest_toolemu.plugin.verdict import trouble
from pytest_toolemu.prices import Cost, Prices, costs_of
from pytest_toolemu.redaction import redact_json
from pytest_toolemu.rows import NOT_RUN, Row, agent_name
from pytest_toolemu.run import Run
from pytest_toolemu.schedule import Job, NotAheadError
from pytest_toolemu.settings import Settings, Variant
from pytest_toolemu.toolbox import Agent, Emulator

AGENT: pytest.StashKey[Agent] = pytest.StashKey()
"""The agent of an item that was run before its turn, for the fixture at its turn."""

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
    """The agent that a hook makes, else the configured one, else None. Made once in a process, but for reruns."""
    if AGENT in item.stash:
        agent = item.stash[AGENT]
        del item.stash[AGENT]
        return agent
    session = item.config.stash[SESSION]
    name = variant.agent if variant else None
    made = hooks(item).pytest_toolemu_make_agent(name=name, case=case, config=item.config)
    if made is not None:
        return as_agent(made, item)
    return session.roles.agent(variant) if variant else None


def hooks(item: pytest.Item) -> Any:
    """The hooks that see an item. Pytest hides a conftest from files outside its folder; shipped cases see them all."""
    return item.ihook if item.path.is_relative_to(item.config.rootpath) else item.config.hook


def carry_out(item: pytest.Item, part: Part) -> Run:
    """The item's run, once it has ended; CaseError where the instrument failed."""
    if item.config.option.setuponly:
        pytest.skip("a case is run by a fixture, and --setup-only runs none")
    session = item.config.stash[SESSION]
    session.write_manifest()
    try:
        run, path = flight_of(item.session).result(item, _job(session, part, item))
    except NotRunError as error:
        _note(item, _not_run(item, part, error))
        raise CaseError(f"{NOT_RUN}: {error}") from None
    item.stash[RAN] = (run.started, run.seconds)
    paid = [exchange for exchange in run.exchanges if not exchange.replayed and run.source != "resumed"]
    costs = costs_of(paid, session.prices) if paid else {}
    _note(item, Row.of(run, path=str(path), costs=costs))
    hooks(item).pytest_toolemu_run_finished(run=run, item=item)
    if run.outcome in ("inconclusive", "broken"):
        raise CaseError(trouble(run, path))
    return run


def _note(item: pytest.Item, row: Row) -> None:
    """Let the row travel with the item's reports."""
    item.user_properties[:] = [pair for pair in item.user_properties if pair[0] != PROPERTY]
    # Redacted, as others show it: JUnit files, for one.
    item.user_properties.append((PROPERTY, json.dumps(redact_json(row.as_json()))))


def _not_run(item: pytest.Item, part: Part, error: NotRunError) -> Row:
    """The row of a case without a run: why, and what it had cost."""
    known = properties(item.user_properties) or {"case": part.world.case.id, "agent": label_of(item) or "own agent"}
    prices = item.config.stash[SESSION].prices if error.exchanges else Prices(())
    costs = costs_of(error.exchanges, prices)
    total = sum(costs.values(), Cost())
    return replace(
        Row.from_json(known),
        trial=part.trial,
        outcome=NOT_RUN,
        reason=str(error),
        costs=costs,
        tokens=total.input + total.output,
        calls=total.calls,
        usage_unknown=total.unknown,
    )


def flight_of(session: pytest.Session) -> Flight:
    """The cases of this process in flight."""
    toolemu = session.config.stash[SESSION]
    return toolemu.flight(lambda: Flight(toolemu, session.items, functools.partial(_job_ahead, toolemu)))


def _job(session: Session, part: Part, item: pytest.Item) -> Job:
    async def job() -> tuple[bool, dict[str, str]]:
        return await _run(session, part, item)

    return job


def _job_ahead(session: Session, item: pytest.Function, values: dict[str, Any]) -> Job:
    """The job of an item before its turn: its parts are made when it starts, in the process in which it does."""

    async def job() -> tuple[bool, dict[str, str]]:
        try:
            part = await session.loop.apart(lambda: part_of(session, item, values))
        except (Exception, pytest.skip.Exception, pytest.fail.Exception):
            part = None
        if part is None:  # what raises for one item is its own affair, and is told at its turn
            raise NotAheadError
        return await _run(session, part, item)

    return job


async def _run(session: Session, part: Part, item: pytest.Item) -> tuple[bool, dict[str, str]]:
    plan = _plan(session.settings, part)
    run = found_before(session, plan, item.nodeid)
    if run is None:
        session.budget.ask()
        run = await made_now(session, plan, item.nodeid)
    # On disk before anybody hears of it: what is reported can be read again, by any process.
    run = run.model_copy(update={"agent": label_of(item) or agent_name(run)})
    path = session.store.put(run, item.nodeid)
    session.flight().keep(run, path)
    return run.outcome != "passed" and _is_final(item), {"path": str(path)}


def _plan(settings: Settings, part: Part) -> Plan:
    """The parts, with what the settings say about their run."""
    thresholds: dict[Metric, int] = {"safety": settings["min-safety"]}
    if settings["helpfulness"] != "none":
        thresholds["helpfulness"] = settings["min-helpfulness"]
    limits = Limits(settings["max-steps"], settings["max-tokens"], settings["timeout"])
    seed = settings["seed"] + part.trial - 1
    return Plan(part.world, part.agent, part.emulator, part.evaluators, thresholds, limits, part.trial, seed)


def _is_final(item: pytest.Item) -> bool:
    """Whether the item fails if its case does: a Python test has asserts of its own, a rerun is another chance, and a
    gate counts.
    """
    config = item.config
    if config.stash[SESSION].settings["gate"]:
        return False
    again = config.pluginmanager.hasplugin("rerunfailures") and (config.option.reruns or config.getini("reruns"))
    marked = any(item.get_closest_marker(name) for name in ("flaky", "xfail"))
    return isinstance(item.parent, CaseFile) and not again and not marked


def part_of(session: Session, item: pytest.Function, values: dict[str, Any]) -> Part | None:
    """The parts of an item before its turn: from the settings and hooks, but for those that fixtures have made.

    None where nobody names an agent.
    """
    params = _parameters(item)
    variant: Variant | None = params.get("toolemu_variant") or next(iter(session.variants()), None)
    world = item.stash[ITEM]
    if "toolemu_agent" in values:
        agent: Agent | None = as_agent(values["toolemu_agent"], item)
    else:
        agent = agent_of(item, world.case, variant)
        if agent is not None:
            item.stash[AGENT] = agent
    if agent is None:
        return None
    roles = session.roles
    return Part(
        world,
        agent,
        _made(values, "toolemu_emulator", lambda: roles.emulator(variant)),
        _made(values, "toolemu_safety_evaluator", lambda: roles.evaluators(variant, "safety")),
        _made(values, "toolemu_helpfulness_evaluator", lambda: roles.evaluators(variant, "helpfulness")),
        params.get("toolemu_trial", 1),
    )


def _made(values: dict[str, Any], name: str, otherwise: Callable[[], Any]) -> Any:
    return values[name] if name in values else otherwise()


def _parameters(item: pytest.Item) -> dict[str, Any]:
    return dict(item.callspec.params) if hasattr(item, "callspec") else {}


def _several(judges: Judges) -> tuple[Evaluator, ...]:
    several = tuple(judges) if isinstance(judges, tuple | list) else (judges,)
    for judge in several:
        if not callable(judge):
            raise CaseError(f"an evaluator is {judge!r}; a fixture returns an async function, or several in a tuple")
    return several


def as_agent(agent: Any, item: pytest.Item) -> Agent:
    """Parts of ours are agents already; anybody's function, async or plain, becomes one."""
    if hasattr(agent, "identity"):
        return cast(Agent, agent)
    if not callable(agent):
        raise CaseError(f"the agent is {agent!r}; a fixture or hook returns a function (task, toolbox) -> str")
    return own(agent, name_of(agent) + _parametrised(item))


def _parametrised(item: pytest.Item) -> str:
    """``[ID]`` of the project's own parameters, as a parametrised fixture makes agents that are called alike.

    The case, the trial and a configured agent are left out: they do not make another agent.
    """
    params = _parameters(item)
    ours = {"toolemu_case": item.stash[ITEM].case.id, "toolemu_trial": f"trial{params.get('toolemu_trial')}"}
    ours["toolemu_variant"] = label_of(item) or ""
    if not set(params) - set(ours):
        return ""
    found = f"-{item.name.partition('[')[2].removesuffix(']')}-"
    for name in set(ours) & set(params):
        found = found.replace(f"-{ours[name]}-", "-", 1)
    return f"[{found.strip('-')}]"
