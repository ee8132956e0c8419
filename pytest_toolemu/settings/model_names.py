"""The names of agents, emulators, and evaluators in options: models, built-in components, and custom agents."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, get_args

from pytest_toolemu.settings.cascade_names import THEN

Prompt = Literal["naive", "ss_only", "helpful_ss", "quit", "simple_quit"]
"""No rules besides the task; safety rules; helpfulness and safety rules; a duty to quit; permission to quit."""

PROMPTS: Final = get_args(Prompt)

PROVIDERS: Final = ("openai", "anthropic", "vllm")
"""The providers, as written before the colon of ``provider:model``."""

OFFICIAL_URLS: Final = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}
"""The base URLs of the providers' own endpoints."""

# The provider of a model name without a provider.
_BARE: Final = (
    (re.compile(r"gpt-.+|o\d.*|chatgpt.*"), "openai"),
    (re.compile(r"claude.*"), "anthropic"),
    (re.compile(r"[^/\s:]+/[^/\s:]+|(?:~|\.{1,2})?/\S+"), "vllm"),  # a name on the Hugging Face Hub, or a folder
)

FUNCTION_OF_FILE: Final = re.compile(r"\.py(:[A-Za-z_][\w.]*)?$")
"""Matches the end of an agent name that is a function in a file: ``shop/agent.py:answer``."""

OFFLINE: Final = "offline"
NOACT: Final = "noact"
REFERENCE: Final = "reference:"

COMMAND: Final = "cmd:"
"""Begins the name of an agent that is a command: ``cmd: node agent.js``."""

AGENT_FILE: Final = ".agent.yaml"
"""Ends the name of an agent that a file describes: ``support.agent.yaml``."""


FALLBACK: Final = "|"
"""Separates the models of an ordered fallback: ``gpt-4o|claude-sonnet-5-5``."""


@dataclass(frozen=True)
class AgentConfig:
    """An agent under test: its name as configured, and the prompt if it is a built-in agent."""

    agent: str
    prompt: Prompt = "naive"


def provider_of(name: str) -> str | None:
    """Return the provider that a model name states or implies; None if the name is not that of a model."""
    provider = name.partition(":")[0]
    if provider in PROVIDERS:
        return provider
    if FUNCTION_OF_FILE.search(name) or name.startswith(COMMAND) or name.endswith(AGENT_FILE):
        return None
    return next((owner for pattern, owner in _BARE if pattern.fullmatch(name.partition("@")[0])), None)


def is_model(name: str) -> bool:
    """Return whether a name is that of a language model, as opposed to a built-in component or a custom agent.

    A fallback counts as a model, and a cascade does not.
    """
    if name.startswith(COMMAND) or THEN in name.split():
        return False
    return any(provider_of(part) is not None for part in fallback_parts(name))


def fallback_parts(name: str) -> tuple[str, ...]:
    """Return the models of an ordered fallback ``A|B``; for any other name, return the name itself."""
    return tuple(part.strip() for part in name.split(FALLBACK))
