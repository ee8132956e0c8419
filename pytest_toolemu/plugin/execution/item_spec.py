"""Builds the ``RunSpec`` of an item: from fixtures at its turn, or from the settings and hooks before it.

An item may run before its turn once the fixtures of the project that it needs are set up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast, get_args

import pytest

from pytest_toolemu.agents.custom import check_signature, custom_agent
from pytest_toolemu.components import Components
from pytest_toolemu.core.case import Case, ResolvedCase
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.engine import Limits, RunSpec
from pytest_toolemu.core.identity import name_of
from pytest_toolemu.core.run import Evaluator
from pytest_toolemu.core.toolbox import Agent, Emulator, SimulatedUser
from pytest_toolemu.evaluators.checks import with_checks
from pytest_toolemu.plugin.collection.item_agents import agent_configs, definition_of, is_external, label_of, params_of
from pytest_toolemu.plugin.execution.worlds import case_in_world
from pytest_toolemu.plugin.session import RESOLVED_CASE, TRAP, CaseError, ToolemuSession
from pytest_toolemu.sessions.single_run import required_scores
from pytest_toolemu.settings.model_names import AgentConfig
from pytest_toolemu.settings.option_table import Settings

Evaluators = Evaluator | tuple[Evaluator, ...]
"""What a fixture for evaluators returns."""

_AGENT: pytest.StashKey[Agent] = pytest.StashKey()
"""The agent of an item whose case ran before its turn, for the fixture at its turn."""


def run_spec(
    item: pytest.Item,
    settings: Settings,
    resolved_case: ResolvedCase,
    agent: Agent,
    emulator: Emulator,
    user: SimulatedUser,
    evaluators: Mapping[Metric, Evaluators],
) -> RunSpec:
    """Build the spec of an item's run from what was planned at collection, the settings, and its components.

    With several turns, a case with a conversation gets the user. Raise CaseError or UsageError for a user or an
    evaluator that cannot be called, and for an evaluator of a fixture if judging is left for later.
    """
    if settings.judge_later:
        refuse_evaluator_fixtures(settings, evaluators)
    if not callable(user):
        raise CaseError(f"the user is {user!r}; a fixture must return an async function (trajectory) -> UserReply")
    check_signature(user, f"the user {name_of(user)!r}", "trajectory")
    trial = params_of(item).get("toolemu_trial", 1)
    spec = RunSpec(
        resolved_case,
        agent,
        emulator,
        tuple(
            evaluator
            for metric, configured in evaluators.items()
            if resolved_case.case.judges(metric)
            for evaluator in (() if settings.judge_later else _with_checks(settings, metric, configured))
        ),
        required_scores(settings),
        Limits(settings.max_steps, settings.max_tokens, settings.timeout),
        trial,
        settings.seed + trial - 1,
        item.stash.get(TRAP, None),
        judge_later=settings.judge_later,
        combine=settings.combine,
    )
    return spec.in_conversation(user, settings.turns)


def spec_before_turn(
    item: pytest.Item, session: ToolemuSession, components: Components, fixture_values: Mapping[str, Any] | None = None
) -> RunSpec | None:
    """Build the spec of an item before its turn; None if neither the settings nor a hook name an agent.

    The components come from the settings and hooks, except for ``fixture_values``, by the names of their fixtures.
    """
    values, settings = fixture_values or {}, session.settings
    config: AgentConfig | None = params_of(item).get("toolemu_variant") or next(iter(agent_configs(settings)), None)
    resolved_case = case_in_world(item, session)
    if "toolemu_agent" in values:
        agent = as_agent(values["toolemu_agent"], item)
    else:
        configured = agent_of(item, components, resolved_case.case, config)
        if configured is None:
            return None
        agent = item.stash[_AGENT] = configured

    def value(name: str, build: Callable[..., Any], *arguments: Any) -> Any:
        return values[f"toolemu_{name}"] if f"toolemu_{name}" in values else build(*arguments)

    evaluators: dict[Metric, Evaluators] = {
        metric: value(f"{metric}_evaluator", components.evaluators, config, metric) for metric in get_args(Metric)
    }
    emulator, user = value("emulator", components.emulator, config), value("user", components.user)
    return run_spec(item, settings, resolved_case, agent, emulator, user, evaluators)


def agent_of(item: pytest.Item, components: Components, case: Case, config: AgentConfig | None) -> Agent | None:
    """Return the agent that a hook creates, else the configured one, else None.

    The hook is called once for each item of a process, and again for each rerun.
    """
    if _AGENT in item.stash:
        agent = item.stash[_AGENT]
        del item.stash[_AGENT]
        return agent
    name = config.agent if config else None
    created = visible_hooks(item).pytest_toolemu_make_agent(name=name, case=case, config=item.config)
    if created is not None:
        return as_agent(created, item)
    return components.agent(config) if config else None


def visible_hooks(item: pytest.Item) -> Any:
    """Return the hooks that apply to an item.

    pytest hides a conftest from files outside its folder, but cases of an installed package see all of the project's.
    """
    return item.ihook if item.path.is_relative_to(item.config.rootpath) else item.config.hook


def as_agent(agent: Any, item: pytest.Item) -> Agent:
    """Return an agent of this package as it is, and wrap any other function, async or plain, as a custom agent."""
    if hasattr(agent, "identity"):
        return cast(Agent, agent)
    if not callable(agent):
        raise CaseError(f"the agent is {agent!r}; a fixture or hook must return a function (task, toolbox) -> str")
    return custom_agent(agent, name_of(agent) + _project_params(item))


def refuse_evaluator_fixtures(settings: Settings, evaluators: Mapping[Metric, Evaluators]) -> None:
    """Raise CaseError if a fixture of the project provides evaluators: no other process can ask them."""
    for metric, configured in evaluators.items():
        if configured != ():
            raise CaseError(
                f"the fixture toolemu_{metric}_evaluator provides an evaluator, which 'toolemu judge' cannot use "
                f"later; remove {settings.source('judge-later')}, or the fixture"
            )


def _with_checks(settings: Settings, metric: Metric, evaluators: Evaluators) -> tuple[Evaluator, ...]:
    several = tuple(evaluators) if isinstance(evaluators, tuple | list) else (evaluators,)
    for evaluator in several:
        if not callable(evaluator):
            raise CaseError(
                f"an evaluator is {evaluator!r}; a fixture must return an async function, or a tuple of them"
            )
        check_signature(evaluator, f"the evaluator {name_of(evaluator)!r}", "trajectory")
    return with_checks(several, metric) if metric in settings.checked else several


def _project_params(item: pytest.Item) -> str:
    """Return ``[ID]`` of the project's own parameters, as a parametrized fixture creates agents of the same name.

    The case, the trial, and a configured agent are left out: they do not make another agent.
    """
    params = params_of(item)
    plugin_ids = {
        "toolemu_case": item.stash[RESOLVED_CASE].case.id,
        "toolemu_trial": f"trial{params.get('toolemu_trial')}",
        "toolemu_variant": label_of(item) or "",
    }
    if params.keys() <= plugin_ids.keys():
        return ""
    item_id = f"-{item.name.partition('[')[2].removesuffix(']')}-"
    for name in plugin_ids.keys() & params:
        item_id = item_id.replace(f"-{plugin_ids[name]}-", "-", 1)
    return f"[{item_id.strip('-')}]"


# ---- lookahead

# The components of a run that one fixture of the project may make for many items.
COMPONENTS = (
    "toolemu_agent",
    "toolemu_emulator",
    "toolemu_user",
    "toolemu_safety_evaluator",
    "toolemu_helpfulness_evaluator",
)


FixtureKey = tuple[str, str, int, str]
"""Identifies one value of one fixture.

Its name, the node that defines it, the index of its parameter, and the node for whose lifetime the value exists.
"""


def needed_fixtures(item: pytest.Function) -> dict[str, FixtureKey] | None:
    """Return the project's own fixtures that must be set up before the item can run, by name.

    Return None if the item must wait for its turn: a fixture is made for this item alone, or a mark may skip the item
    or change its outcome.
    """
    if any(item.get_closest_marker(name) for name in ("skip", "skipif", "xfail")):
        return None
    needed = {}
    for name in item.fixturenames:
        if is_external(item, name):
            continue
        definition = definition_of(item, name)
        is_shared = definition is not None and definition.scope != "function"
        if not is_shared or (name.startswith("toolemu_") and name not in COMPONENTS):
            return None
        index = item.callspec.indices.get(name, 0) if hasattr(item, "callspec") else 0
        needed[name] = _key(definition, index, _lifetime(item, definition))
    return needed


class ActiveFixtures:
    """The project's fixtures that are set up now, and the items that may run because of them.

    ``before_teardown`` is called with the indices of the items that need a fixture which is about to be torn down.
    """

    def __init__(self) -> None:
        self.before_teardown: Callable[[Iterable[int]], None] = lambda _: None
        self._values: dict[FixtureKey, Any] = {}
        self._needs: dict[int, dict[str, FixtureKey]] = {}
        self._dependents: defaultdict[FixtureKey, set[int]] = defaultdict(set)
        self._candidates: set[int] = set()

    def add_item(self, index: int, needed: dict[str, FixtureKey]) -> None:
        """Add an item that may run as soon as the fixtures that it needs are set up."""
        self._needs[index] = needed
        for key in needed.values():
            self._dependents[key].add(index)
        self._candidates.add(index)

    def add_fixture(self, request: Any, definition: Any, value: Any) -> None:
        """Add a fixture that has just been set up. It is removed when pytest tears it down."""
        key = _key(definition, getattr(request, "param_index", 0), request.node)
        self._values[key] = value
        self._candidates |= self._dependents[key]
        # Finalizers run last in, first out: this one before the fixture's own.
        request.addfinalizer(lambda: self._remove_fixture(key))

    def take_ready(self) -> list[int]:
        """Return the items that have become ready since the last call."""
        candidates, self._candidates = self._candidates, set()
        return sorted(index for index in candidates if all(key in self._values for key in self._needs[index].values()))

    def values(self, index: int) -> dict[str, Any]:
        """Return the values of the fixtures that a ready item needs, by name."""
        return {name: self._values[key] for name, key in self._needs[index].items()}

    def _remove_fixture(self, key: FixtureKey) -> None:
        self._values.pop(key, None)
        self.before_teardown(self._dependents[key])


def _key(definition: Any, param_index: int, node: pytest.Item | pytest.Collector) -> FixtureKey:
    return definition.argname, definition.baseid, param_index, node.nodeid


def _lifetime(item: pytest.Function, definition: Any) -> pytest.Item | pytest.Collector:
    """Return the node that ``request.node`` is in a fixture of this scope."""
    if definition.scope == "package":
        packages = (node for node in item.listchain() if isinstance(node, pytest.Package))
        return next((node for node in packages if node.nodeid == definition.baseid), item.session)
    if definition.scope == "session":
        return item.session
    node = item.getparent(pytest.Class) if definition.scope == "class" else None
    return node or item.getparent(pytest.Module) or item.session
