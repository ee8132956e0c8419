"""A fallback A|B in the settings: which components, servers, and estimates follow from it."""

from __future__ import annotations

import asyncio

import pytest

from pytest_toolemu.agents.control_agents import no_op
from pytest_toolemu.analysis.cost_estimate import estimate_judging, estimate_runs
from pytest_toolemu.components import Components
from pytest_toolemu.core.engine import Limits, RunSpec, run_case
from pytest_toolemu.core.identity import identity_of
from pytest_toolemu.emulators.layers import OfflineEmulator
from pytest_toolemu.errors import UsageError
from pytest_toolemu.models.model_pool import ModelPool
from pytest_toolemu.models.retrying import FallbackModel, models_in_turn
from pytest_toolemu.settings.model_names import AgentConfig, is_model
from pytest_toolemu.settings.option_table import Settings
from pytest_toolemu.settings.resolution import ComponentNames
from tests.emulators.resolved_cases import trajectory

REPLAYED = Settings(emulator="vllm:org/llama|gpt-4o", replay="recordings")
AGENT = AgentConfig("noact")


def test_emulator_evaluators_and_builder_default_to_the_same_fallback() -> None:
    components = Components(REPLAYED)
    assert components.names.evaluators(AGENT) == ("vllm:org/llama|gpt-4o",)
    assert components.names.builder([AGENT]) == "vllm:org/llama|gpt-4o"
    builder = components.builder([AGENT])
    assert isinstance(builder, FallbackModel)
    emulator = identity_of(components.emulator(AGENT))
    assert [emulator["model"]["name"], *(each["name"] for each in emulator["model"]["fallback"])] == [
        "org/llama",
        "gpt-4o",
    ]


def test_components_that_name_a_model_share_it_with_fallbacks() -> None:
    models = ModelPool(REPLAYED)
    fallback = models.harness_model("vllm:org/llama|gpt-4o")
    assert models_in_turn(fallback)[1] is models.model("gpt-4o")


def test_servers_are_planned_for_every_model_of_a_fallback() -> None:
    settings = Settings(
        emulator="gpt-4o|org/llama", evaluator=("vllm:org/judge|claude-haiku-4-5",), user="org/user|gpt-4o"
    )
    models = Components(settings).models_in_use([AgentConfig("org/agent")])
    assert {str(spec): is_agent for spec, is_agent in models.items()} == {
        "vllm:org/agent": True, "openai:gpt-4o": False, "vllm:org/llama": False, "vllm:org/judge": False,
        "anthropic:claude-haiku-4-5": False, "vllm:org/user": False,
    }  # fmt: skip


def test_every_model_of_a_fallback_is_opened_before_the_first_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-a-real-key-000000")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
    components = Components(Settings(evaluator=("gpt-4o|claude-haiku-4-5",)))
    with pytest.raises(UsageError, match="anthropic:claude-haiku-4-5 needs a key: set ANTHROPIC_API_KEY"):
        asyncio.run(components.preflight([AGENT]))


def test_an_agent_that_is_a_fallback_of_its_judge_judges_itself() -> None:
    names = ComponentNames(Settings(evaluator=("claude-haiku-4-5|gpt-4o",)))
    assert names.judges_itself(AgentConfig("gpt-4o"))
    assert not names.judges_itself(AgentConfig("gpt-4.1"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("gpt-4o|x", True), ("offline|gpt-4o", True), ("cmd: a | gpt-4o", False), ("shop|agent.py:answer", False)],
)
def test_a_command_with_a_pipe_is_no_fallback(name: str, expected: bool) -> None:
    assert is_model(name) is expected


def test_an_estimate_expects_no_request_to_a_fallback_and_counts_all_at_most() -> None:
    components = Components(REPLAYED)
    spec = RunSpec(
        trajectory().resolved_case,
        components.agent(AGENT),
        components.emulator(AGENT),
        components.evaluators(AGENT, "safety"),
        limits=Limits(max_steps=2),
    )
    result = estimate_runs([spec])
    main, backup = (result.lines["emulator", name] for name in ("vllm:org/llama", "openai:gpt-4o"))
    assert (main.expected["calls"], main.most["calls"]) == (2, 2)
    assert (backup.expected["calls"], backup.least["calls"], backup.most["calls"]) == (0, 0, 2)
    assert result.lines["evaluator", "openai:gpt-4o"].most["calls"] == 1
    assert next(iter(result.basis)).endswith(
        "; a fallback model is expected to get no requests, and gets at most those of all models before it"
    )


def test_an_estimate_of_judging_again_has_the_fallback_at_its_upper_end_only() -> None:
    judges = Components(REPLAYED).evaluators(AGENT, "safety")
    run = asyncio.run(run_case(RunSpec(trajectory().resolved_case, no_op, OfflineEmulator())))
    result = estimate_judging([(judges[0], run)], batch=True)
    main, backup = (result.lines["evaluator", name] for name in ("vllm:org/llama", "openai:gpt-4o"))
    assert (main.expected["calls"], main.most["calls"]) == (1, 3)
    assert (backup.expected["calls"], backup.least["calls"], backup.most["calls"]) == (0, 0, 3)
    assert next(iter(result.basis)).startswith("1 judgment, ")
    assert "a fallback model is expected to get no requests" in next(iter(result.basis))


def test_every_stage_of_a_cascade_can_have_a_fallback() -> None:
    settings = Settings(evaluator=("checks then org/cheap|gpt-4o then claude-haiku-4-5|gpt-4.1",), replay="recordings")
    components = Components(settings)
    (cascade,) = components.evaluators(AGENT, "safety")
    assert identity_of(cascade)["name"] == (
        "checks then vllm:org/cheap|openai:gpt-4o then anthropic:claude-haiku-4-5|openai:gpt-4.1"
    )
    assert list(map(str, components.models_in_use([AGENT]))) == [
        "vllm:org/cheap",
        "openai:gpt-4o",
        "anthropic:claude-haiku-4-5",
        "openai:gpt-4.1",
    ]
    assert components.names.judges_itself(AgentConfig("gpt-4.1"))
