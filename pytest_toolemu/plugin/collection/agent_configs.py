"""The configured agents of a session, each with a prompt, and what they are called in node IDs and tables."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from pytest_toolemu.analysis.run_summary import protocol_name
from pytest_toolemu.plugin.collection.fixture_definitions import is_plugin_fixture
from pytest_toolemu.plugin.keys import RESOLVED_CASE, SESSION
from pytest_toolemu.settings import AgentConfig, Settings, is_model


def agent_configs(settings: Settings) -> tuple[AgentConfig, ...]:
    """Return every configured agent with every prompt. Agents that are not models have no prompt, and occur once."""
    prompts = settings.prompt
    return tuple(
        AgentConfig(agent, prompt)
        for agent in settings.agent
        for prompt in (prompts if is_model(agent) else prompts[:1])
    )


def labels(configs: tuple[AgentConfig, ...]) -> dict[AgentConfig, str]:
    """Return what each agent is called in node IDs: ``gpt-4o``, or ``gpt-4o-quit`` if it has several prompts.

    A base URL is left out unless two agents differ in nothing else.
    """
    prompts = Counter(config.agent for config in configs)
    return {
        config: f"{name}-{config.prompt}" if prompts[config.agent] > 1 else name
        for config, name in names(configs).items()
    }


def names(configs: tuple[AgentConfig, ...]) -> dict[AgentConfig, str]:
    """Return what each agent is called regardless of its prompt."""
    shortened = {config: without_url(config.agent) for config in configs}
    agents_by_name = Counter(without_url(agent) for agent in {config.agent for config in configs})
    return {config: name if agents_by_name[name] == 1 else config.agent for config, name in shortened.items()}


def without_url(agent: str) -> str:
    """Return the name of an agent without the base URL of a model; other names may contain an @."""
    return agent.partition("@")[0] if is_model(agent) else agent


def label_of(item: Any) -> str | None:
    """Return what the item's configured agent is called; None if the project's own fixture provides the agent."""
    config = params_of(item).get("toolemu_variant")
    if config is None or not is_plugin_fixture(item, "toolemu_agent"):
        return None
    return labels(agent_configs(item.config.stash[SESSION].settings))[config]


def agent_title(item: pytest.Item, otherwise: str) -> str:
    """Return what reports call the item's agent; ``otherwise`` is the name of an agent that no setting names.

    It says if the case runs with several turns, so that no table mixes these runs with others.
    """
    turns = item.config.stash[SESSION].settings.turns
    has_conversation = item.stash[RESOLVED_CASE].case.conversation is not None
    return protocol_name(label_of(item) or otherwise, turns if has_conversation else 1)


def params_of(item: Any) -> dict[str, Any]:
    """Return the parameters of an item, by name; empty if it is not parametrized."""
    return dict(item.callspec.params) if hasattr(item, "callspec") else {}
