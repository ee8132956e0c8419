"""The fixtures of the plugin. Override any of them in a conftest.

PYTEST_DONT_REWRITE: pytest would warn that it cannot rewrite this module's assertions; ``PackageFinder`` explains why.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_toolemu.errors import NotRunError, UsageError
from pytest_toolemu.plugin.process import PROCESS
from pytest_toolemu.plugin.session import RESOLVED_CASE, SESSION, CaseError

if TYPE_CHECKING:
    from pytest_toolemu.components import Components
    from pytest_toolemu.core.case import Case, ResolvedCase
    from pytest_toolemu.core.case_vocabulary import Metric
    from pytest_toolemu.core.run import Evaluator, Run
    from pytest_toolemu.core.toolbox import Agent, Emulator, SimulatedUser
    from pytest_toolemu.settings.model_names import AgentConfig


def _components(request: pytest.FixtureRequest) -> Components:
    return request.config.stash[PROCESS].runner.components


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
    from pytest_toolemu.plugin.execution import worlds
    from pytest_toolemu.plugin.output.reports import not_run

    try:
        return worlds.case_in_world(request.node, request.config.stash[SESSION])
    except NotRunError as error:
        raise not_run(request.node, error) from None


@pytest.fixture
def toolemu_variant(request: pytest.FixtureRequest) -> AgentConfig | None:
    """Return the configured agent and prompt of this item; None if no agent is configured."""
    from pytest_toolemu.plugin.collection.item_agents import agent_configs

    return getattr(request, "param", None) or next(iter(agent_configs(request.config.stash[SESSION].settings)), None)


@pytest.fixture
def toolemu_trial(request: pytest.FixtureRequest) -> int:
    """Return the number of this item's trial, from 1."""
    return int(getattr(request, "param", 1))


@pytest.fixture
def toolemu_agent(request: pytest.FixtureRequest, toolemu_case: Case, toolemu_variant: AgentConfig | None) -> Agent:
    """Return the agent under test: an async or plain function ``(task, toolbox) -> str``."""
    from pytest_toolemu.plugin.collection.item_agents import may_have_agent, skip_without_agent
    from pytest_toolemu.plugin.execution.item_spec import agent_of

    if not may_have_agent(request.config.stash[SESSION], request.node):
        skip_without_agent()
    agent = agent_of(request.node, _components(request), toolemu_case, toolemu_variant)
    if agent is None:
        skip_without_agent()
    return agent


@pytest.fixture
def toolemu_emulator(request: pytest.FixtureRequest, toolemu_variant: AgentConfig | None) -> Emulator:
    """Return the emulator of tools: an async function ``(call, trajectory) -> Observation``."""
    return _components(request).emulator(toolemu_variant)


@pytest.fixture
def toolemu_user(request: pytest.FixtureRequest) -> SimulatedUser:
    """Return the user of conversations: an async function ``(trajectory) -> UserReply``.

    It replies to the last utterance of ``trajectory.dialogue``. Without ``--toolemu-turns`` above 1, it is never asked.
    """
    return _components(request).user()


@pytest.fixture
def toolemu_safety_evaluator(
    request: pytest.FixtureRequest, toolemu_variant: AgentConfig | None
) -> Evaluator | tuple[Evaluator, ...]:
    """Return one or several evaluators of safety: async functions ``(trajectory) -> list[Verdict]``.

    The case's own checks count in addition unless ``--toolemu-checks=off`` is set.
    """
    return _components(request).evaluators(toolemu_variant, "safety")


@pytest.fixture
def toolemu_helpfulness_evaluator(
    request: pytest.FixtureRequest, toolemu_variant: AgentConfig | None
) -> Evaluator | tuple[Evaluator, ...]:
    """Return one or several evaluators of helpfulness; an empty tuple if it is not judged."""
    return _components(request).evaluators(toolemu_variant, "helpfulness")


@pytest.fixture
def toolemu_run(
    request: pytest.FixtureRequest,
    toolemu_case: Case,
    toolemu_agent: Agent,
    toolemu_trial: int,  # noqa: ARG001 - an item for each trial
    toolemu_emulator: Emulator,
    toolemu_user: SimulatedUser,
    *,
    toolemu_safety_evaluator: Any,
    toolemu_helpfulness_evaluator: Any,
) -> Run:
    """Run, judge, and store the case. Raise CaseError if it has no verdict, so that a test sees only runs with one.

    A mistake of a fixture ends the session: it would be an error in every case.
    """
    from pytest_toolemu.emulators.layers import validated
    from pytest_toolemu.plugin.execution.item_spec import as_agent, run_spec

    if request.config.getoption("setuponly", False):
        pytest.skip("--setup-only does not run cases")
    process = request.config.stash[PROCESS]
    resolved_case = replace(_case_in_world(request), case=toolemu_case)
    evaluators: dict[Metric, Any] = {
        "safety": toolemu_safety_evaluator,
        "helpfulness": toolemu_helpfulness_evaluator,
        "honesty": (),
    }
    try:
        agent = as_agent(toolemu_agent, request.node)
        emulator = validated(toolemu_emulator)
        settings = process.session.settings
        spec = run_spec(request.node, settings, resolved_case, agent, emulator, toolemu_user, evaluators)
    except (CaseError, UsageError) as error:
        process.start_items(request.session.items).end_session(request.node, str(error))
        raise
    return process.start_items(request.session.items).run_item(request.node, spec)
