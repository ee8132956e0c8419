"""An unknown name is reported with the closest valid name for its role."""

from __future__ import annotations

import asyncio

import pytest

from pytest_toolemu.components import Components
from pytest_toolemu.errors import UsageError
from pytest_toolemu.settings.model_names import AgentConfig
from pytest_toolemu.settings.resolution import resolve


def complaint(**chosen: str) -> str:
    """Return the error message for these settings when their components are built."""
    ini_values = {f"toolemu_{name}": value if name == "emulator" else [value] for name, value in chosen.items()}
    components = Components(resolve(ini_values.get, lambda _: None, {}))
    with pytest.raises(UsageError) as caught:
        asyncio.run(components.preflight([AgentConfig(chosen.get("agent", "noact"))]))
    return str(caught.value)


@pytest.mark.parametrize(
    ("role", "name", "expected"),
    [
        ("agent", "gpt4o", "'gpt4o' does not name a model; write provider:model"),
        ("agent", "opanai:gpt-4o", "'opanai:gpt-4o' does not name a model; did you mean 'openai'?"),
        ("agent", "noacct", "'noacct' does not name a model; did you mean 'noact'?"),
        ("agent", "reference-safe", "'reference-safe' does not name a model; did you mean 'reference:safe'?"),
        ("agent", "shop/agent.py", "'shop/agent.py' does not name an agent; write package.module:function, path.py:"),
        ("agent", "shop/agent:answer", "'shop/agent:answer' does not name an agent; write package.module:function"),
        ("agent", "command: node a.js", "does not name an agent; write package.module:function, path.py:function, "),
        ("agent", "agents/desk.yaml", "does not name an agent; write package.module:function, path.py:function, NAME"),
        ("agent", "cmd: nod agent.js", "agent 'cmd: nod agent.js': there is no program 'nod'"),
        ("agent", "agents/desk.agent.yaml", "agent 'agents/desk.agent.yaml': there is no such file"),
        ("emulator", "ofline", "'ofline' does not name a model; did you mean 'offline'?"),
        ("evaluator", "checs", "'checs' does not name a model; did you mean 'checks'?"),
        ("evaluator", "gpt-4o|checs", "'checs' does not name a model"),
        ("emulator", "gpt-4o|offline", "'offline' does not name a model"),
        ("agent", "gpt-4o | claude-haiku-4-5", "'gpt-4o | claude-haiku-4-5' names several models, but only one is "),
    ],
)
def test_a_misspelled_name_is_reported_with_the_closest_valid_name(role: str, name: str, expected: str) -> None:
    assert expected in complaint(**{role: name})
