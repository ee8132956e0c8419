"""What an item's run is made of: from fixtures at its turn, or from the settings and hooks before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from pytest_toolemu.agents.custom import custom_agent
from pytest_toolemu.core.case import Case, Metric, ResolvedCase
from pytest_toolemu.core.identity import name_of
from pytest_toolemu.core.protocols import Evaluator
from pytest_toolemu.core.run_spec import Limits, RunSpec
from pytest_toolemu.core.toolbox import Agent, Emulator
from pytest_toolemu.evaluators.checks import with_checks
from pytest_toolemu.plugin.collection.variants import label_of
from pytest_toolemu.plugin.session import ITEM, SESSION, CaseError, ToolemuSession
from pytest_toolemu.settings import AgentConfig, Settings

AGENT: pytest.StashKey[Agent] = pytest.StashKey()
"""The agent of an item that was run before its turn, for the fixture at its turn."""

Judges = Evaluator | tuple[Evaluator, ...]


def run_spec(
    settings: Settings,
    resolved_case: ResolvedCase,
    agent: Agent,
    emulator: Emulator,
    judges: Mapping[Metric, Judges],
    trial: int,
) -> RunSpec:
    """Build the one description of an item's run from its components and the settings."""
    thresholds: dict[Metric, int] = {"safety": settings.min_safety}
    if settings.helpfulness != "none":
        thresholds["helpfulness"] = settings.min_helpfulness
    return RunSpec(
        resolved_case,
        agent,
        emulator,
        tuple(judge for metric, named in judges.items() for judge in _evaluators(settings, metric, named)),
        thresholds,
        Limits(settings.max_steps, settings.max_tokens, settings.timeout),
        trial,
        settings.seed + trial - 1,
    )


def agent_of(item: pytest.Item, case: Case, variant: AgentConfig | None) -> Agent | None:
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


def spec_before_turn(
    item: pytest.Function, session: ToolemuSession, values: dict[str, Any] | None = None
) -> RunSpec | None:
    """Build the spec of an item before its turn; None if neither the settings nor a hook name an agent.

    The components come from the settings and hooks, except for those that fixtures have made: ``values``, by name.
    """
    values = values or {}
    params = _parameters(item)
    variant: AgentConfig | None = params.get("toolemu_variant") or next(iter(session.variants()), None)
    resolved_case = item.stash[ITEM]
    if "toolemu_agent" in values:
        agent: Agent | None = as_agent(values["toolemu_agent"], item)
    else:
        agent = agent_of(item, resolved_case.case, variant)
        if agent is not None:
            item.stash[AGENT] = agent
    if agent is None:
        return None
    roles = session.roles
    judges: dict[Metric, Judges] = {
        "safety": _made(values, "toolemu_safety_evaluator", lambda: roles.evaluators(variant, "safety")),
        "helpfulness": _made(values, "toolemu_helpfulness_evaluator", lambda: roles.evaluators(variant, "helpfulness")),
    }
    emulator = _made(values, "toolemu_emulator", lambda: roles.emulator(variant))
    return run_spec(session.settings, resolved_case, agent, emulator, judges, params.get("toolemu_trial", 1))


def _made(values: dict[str, Any], name: str, otherwise: Callable[[], Any]) -> Any:
    return values[name] if name in values else otherwise()


def _parameters(item: pytest.Item) -> dict[str, Any]:
    return dict(item.callspec.params) if hasattr(item, "callspec") else {}


def _evaluators(settings: Settings, metric: Metric, judges: Judges) -> tuple[Evaluator, ...]:
    several = tuple(judges) if isinstance(judges, tuple | list) else (judges,)
    for judge in several:
        if not callable(judge):
            raise CaseError(f"an evaluator is {judge!r}; a fixture returns an async function, or several in a tuple")
    return with_checks(several, metric) if metric in settings.checked else several


def as_agent(agent: Any, item: pytest.Item) -> Agent:
    """Parts of ours are agents already; anybody's function, async or plain, becomes one."""
    if hasattr(agent, "identity"):
        return cast(Agent, agent)
    if not callable(agent):
        raise CaseError(f"the agent is {agent!r}; a fixture or hook returns a function (task, toolbox) -> str")
    return custom_agent(agent, name_of(agent) + _parametrised(item))


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
