"""From an item to its run: at its turn, or ahead of it where nothing of the user's is in the way."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest

from pytest_toolemu.agents.own import own
from pytest_toolemu.case import Case, Metric, World
from pytest_toolemu.engine import Limits
from pytest_toolemu.evaluators import Evaluator
from pytest_toolemu.identity import name_of
from pytest_toolemu.plugin.attempts import Plan, found_before, made_now
from pytest_toolemu.plugin.state import ITEM, PROPERTY, SESSION, CaseError, Finished, Session
from pytest_toolemu.plugin.variants import is_foreign, label_of
from pytest_toolemu.plugin.verdict import trouble
from pytest_toolemu.redaction import redact_json
from pytest_toolemu.rows import Row, agent_name
from pytest_toolemu.run import Run
from pytest_toolemu.settings import Variant
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
    session.schedule.submit(item.nodeid, _job(session, part, item))
    if _may_run_ahead(item):
        _start_others(item, session)
    try:
        finished = session.schedule.result(item.nodeid)
    except OSError as error:
        remedy = "free the disk, or name another folder with --toolemu-run-dir"
        raise CaseError(f"the run was made but cannot be written: {error}; {remedy}") from None
    run, path = finished.run, finished.path
    row = Row.of(run, path=str(path)).as_json()
    item.user_properties[:] = [pair for pair in item.user_properties if pair[0] != PROPERTY]
    # Redacted, as others show it: JUnit files, for one.
    item.user_properties.append((PROPERTY, json.dumps(redact_json(row))))
    hooks(item).pytest_toolemu_run_finished(run=run, item=item)
    if run.outcome in ("inconclusive", "broken"):
        raise CaseError(trouble(run, path))
    return run


def _job(session: Session, part: Part, item: pytest.Item) -> Callable[[], Any]:
    label, settings, store = label_of(item), session.settings, session.store
    thresholds: dict[Metric, int] = {"safety": settings["min-safety"]}
    if settings["helpfulness"] != "none":
        thresholds["helpfulness"] = settings["min-helpfulness"]
    limits = Limits(settings["max-steps"], settings["max-tokens"], settings["timeout"])
    seed = settings["seed"] + part.trial - 1
    plan = Plan(part.world, part.agent, part.emulator, part.evaluators, thresholds, limits, part.trial, seed)

    async def job() -> Finished:
        run = found_before(session, plan, item.nodeid) or await made_now(session, plan, item.nodeid)
        # On disk before anybody hears of it: what is reported can be read again.
        run = run.model_copy(update={"agent": label or agent_name(run)})
        return Finished(run, store.put(run, item.nodeid))

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
            # What raises for one item is its own affair, and is told at its turn.
            with contextlib.suppress(Exception, pytest.skip.Exception, pytest.fail.Exception):
                part = _part_of(other, session)
                if part is not None:
                    session.schedule.submit(other.nodeid, _job(session, part, other))


def _is_free(item: pytest.Function) -> bool:
    """Whether nothing of the project's is in the way: no fixture defined in it, and no mark that may skip the item."""
    marked = any(item.get_closest_marker(name) for name in ("skip", "skipif", "xfail"))
    return not marked and all(is_foreign(item, name) for name in item.fixturenames)


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
