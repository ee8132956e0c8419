"""The fixtures. Override any of them in a conftest, as usual.

PYTEST_DONT_REWRITE: see ``bytecode``; without this word, pytest warns that it did not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_toolemu.errors import UsageError
from pytest_toolemu.plugin.session import ITEM, SESSION, ToolemuSession

if TYPE_CHECKING:
    from pytest_toolemu.core.case import Case, Metric, ResolvedCase
    from pytest_toolemu.core.protocols import Evaluator
    from pytest_toolemu.core.run import Run
    from pytest_toolemu.core.toolbox import Agent, Emulator
    from pytest_toolemu.settings import AgentConfig


def _session(request: pytest.FixtureRequest) -> ToolemuSession:
    return request.config.stash[SESSION]


@pytest.fixture
def toolemu_case(request: pytest.FixtureRequest) -> Case:
    """The case of this item."""
    if hasattr(request, "param"):
        request.node.stash[ITEM] = request.param
    resolved_case: ResolvedCase | None = request.node.stash.get(ITEM, None)
    if resolved_case is None:
        remedy = "mark it with @pytest.mark.toolemu(cases='cases/...')"
        raise UsageError(f"toolemu_case: the test {request.node.name} names no case; {remedy}")
    return resolved_case.case


@pytest.fixture
def toolemu_variant(request: pytest.FixtureRequest) -> AgentConfig | None:
    """The configured agent of this item, by name; None where none is configured."""
    return getattr(request, "param", None) or next(iter(_session(request).variants()), None)


@pytest.fixture
def toolemu_trial(request: pytest.FixtureRequest) -> int:
    """Which repetition this item is, from 1."""
    return int(getattr(request, "param", 1))


@pytest.fixture
def toolemu_agent(request: pytest.FixtureRequest, toolemu_case: Case, toolemu_variant: AgentConfig | None) -> Agent:
    """The agent under test: an async or plain function ``(task, toolbox) -> str``."""
    from pytest_toolemu.plugin.collection import missing_agent
    from pytest_toolemu.plugin.execution.item_components import agent_of

    agent = agent_of(request.node, toolemu_case, toolemu_variant)
    if agent is None:
        missing_agent.skip()
    return agent


@pytest.fixture
def toolemu_emulator(request: pytest.FixtureRequest, toolemu_variant: AgentConfig | None) -> Emulator:
    """What answers tool calls: an async function ``(call, trajectory) -> Observation``."""
    return _session(request).roles.emulator(toolemu_variant)


@pytest.fixture
def toolemu_safety_evaluator(
    request: pytest.FixtureRequest, toolemu_variant: AgentConfig | None
) -> Evaluator | tuple[Evaluator, ...]:
    """Who judges safety, one or several: async functions ``(trajectory) -> list[Verdict]``.

    The case's own checks count beside these unless ``--toolemu-checks=off`` is set.
    """
    return _session(request).roles.evaluators(toolemu_variant, "safety")


@pytest.fixture
def toolemu_helpfulness_evaluator(
    request: pytest.FixtureRequest, toolemu_variant: AgentConfig | None
) -> Evaluator | tuple[Evaluator, ...]:
    """Who judges helpfulness; an empty tuple where it is not judged."""
    return _session(request).roles.evaluators(toolemu_variant, "helpfulness")


@pytest.fixture
def toolemu_run(
    request: pytest.FixtureRequest,
    toolemu_case: Case,
    toolemu_agent: Agent,
    toolemu_trial: int,
    toolemu_emulator: Emulator,
    toolemu_safety_evaluator: Any,
    toolemu_helpfulness_evaluator: Any,
) -> Run:
    """The case carried out, judged and stored. Raises where the instrument failed, so a test sees verdicts only."""
    from pytest_toolemu.plugin.execution.item_components import as_agent, run_spec
    from pytest_toolemu.plugin.execution.run_item import carry_out

    resolved_case = replace(request.node.stash[ITEM], case=toolemu_case)
    agent = as_agent(toolemu_agent, request.node)
    judges: dict[Metric, Any] = {"safety": toolemu_safety_evaluator, "helpfulness": toolemu_helpfulness_evaluator}
    settings = _session(request).settings
    return carry_out(request.node, run_spec(settings, resolved_case, agent, toolemu_emulator, judges, toolemu_trial))
