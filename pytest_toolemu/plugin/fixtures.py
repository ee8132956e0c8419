"""The fixtures of the plugin. Override any of them in a conftest.

PYTEST_DONT_REWRITE: pytest would warn that it cannot rewrite the assertions of this module; ``bytecode`` explains why.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_toolemu.errors import NotRunError, UsageError
from pytest_toolemu.plugin.services import SERVICES, Services
from pytest_toolemu.plugin.session import RESOLVED_CASE, TRAP

if TYPE_CHECKING:
    from pytest_toolemu.core.case import Case, ResolvedCase
    from pytest_toolemu.core.case_vocabulary import Metric
    from pytest_toolemu.core.run import Run
    from pytest_toolemu.core.toolbox import Agent, Emulator, SimulatedUser
    from pytest_toolemu.core.verdict import Evaluator
    from pytest_toolemu.settings import AgentConfig


def _services(request: pytest.FixtureRequest) -> Services:
    return request.config.stash[SERVICES]


@pytest.fixture
def toolemu_case(request: pytest.FixtureRequest) -> Case:
    """Return the case of this item."""
    if hasattr(request, "param") and RESOLVED_CASE not in request.node.stash:
        request.node.stash[RESOLVED_CASE] = request.param
    if RESOLVED_CASE not in request.node.stash:
        remedy = "mark it with @pytest.mark.toolemu(cases='cases/...')"
        raise UsageError(f"toolemu_case: the test {request.node.name} has no case; {remedy}")
    return _case_in_world(request).case


def _case_in_world(request: pytest.FixtureRequest) -> ResolvedCase:
    """Return the case of this item in its world. Raise CaseError if the world could not be built."""
    from pytest_toolemu.plugin.collection.item_agents import params_of
    from pytest_toolemu.plugin.execution import item_world

    try:
        return item_world.case_in_world(request.node, _services(request))
    except NotRunError as error:
        raise item_world.not_run(request.node, error, params_of(request.node).get("toolemu_trial", 1)) from None


@pytest.fixture
def toolemu_variant(request: pytest.FixtureRequest) -> AgentConfig | None:
    """Return the configured agent and prompt of this item; None if no agent is configured."""
    from pytest_toolemu.plugin.collection.item_agents import agent_configs

    return getattr(request, "param", None) or next(iter(agent_configs(_services(request).session.settings)), None)


@pytest.fixture
def toolemu_trial(request: pytest.FixtureRequest) -> int:
    """Return the number of this item's trial, from 1."""
    return int(getattr(request, "param", 1))


@pytest.fixture
def toolemu_agent(request: pytest.FixtureRequest, toolemu_case: Case, toolemu_variant: AgentConfig | None) -> Agent:
    """Return the agent under test: an async or plain function ``(task, toolbox) -> str``."""
    from pytest_toolemu.plugin.collection import missing_agent
    from pytest_toolemu.plugin.execution.item_spec import agent_of

    agent = agent_of(request.node, _services(request), toolemu_case, toolemu_variant)
    if agent is None:
        missing_agent.skip()
    return agent


@pytest.fixture
def toolemu_emulator(request: pytest.FixtureRequest, toolemu_variant: AgentConfig | None) -> Emulator:
    """Return the emulator of tools: an async function ``(call, trajectory) -> Observation``."""
    return _services(request).models.open_components().emulator(toolemu_variant)


@pytest.fixture
def toolemu_user(request: pytest.FixtureRequest) -> SimulatedUser:
    """Return the user of conversations: an async function ``(trajectory) -> UserReply``.

    It replies to the last utterance of ``trajectory.dialogue``. Without ``--toolemu-turns`` above 1, it is never asked.
    """
    return _services(request).models.open_components().user()


@pytest.fixture
def toolemu_safety_evaluator(
    request: pytest.FixtureRequest, toolemu_variant: AgentConfig | None
) -> Evaluator | tuple[Evaluator, ...]:
    """Return one or several evaluators of safety: async functions ``(trajectory) -> list[Verdict]``.

    The case's own checks count in addition unless ``--toolemu-checks=off`` is set.
    """
    return _services(request).models.open_components().evaluators(toolemu_variant, "safety")


@pytest.fixture
def toolemu_helpfulness_evaluator(
    request: pytest.FixtureRequest, toolemu_variant: AgentConfig | None
) -> Evaluator | tuple[Evaluator, ...]:
    """Return one or several evaluators of helpfulness; an empty tuple if it is not judged."""
    return _services(request).models.open_components().evaluators(toolemu_variant, "helpfulness")


@pytest.fixture
def toolemu_run(
    request: pytest.FixtureRequest,
    toolemu_case: Case,
    toolemu_agent: Agent,
    toolemu_trial: int,
    toolemu_emulator: Emulator,
    toolemu_user: SimulatedUser,
    *,
    toolemu_safety_evaluator: Any,
    toolemu_helpfulness_evaluator: Any,
) -> Run:
    """Run, judge, and store the case. Raise CaseError if it has no verdict, so that a test sees only runs with one."""
    from pytest_toolemu.plugin.execution.item_spec import as_agent, run_spec
    from pytest_toolemu.plugin.execution.run_item import run_item

    services = _services(request)
    resolved_case = replace(_case_in_world(request), case=toolemu_case)
    agent = as_agent(toolemu_agent, request.node)
    evaluators: dict[Metric, Any] = {
        "safety": toolemu_safety_evaluator,
        "helpfulness": toolemu_helpfulness_evaluator,
    }
    trap = request.node.stash.get(TRAP, None)
    components = (agent, toolemu_emulator, toolemu_user, evaluators)
    spec = run_spec(services, resolved_case, *components, trial=toolemu_trial, trap=trap)
    return run_item(request.node, services, spec)
