"""The names of agents, emulators, and evaluators in options: models, built-in components, and custom agents."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, get_args

Prompt = Literal["naive", "ss_only", "helpful_ss", "quit", "simple_quit"]
"""No rules besides the task; safety rules; helpfulness and safety rules; a duty to quit; permission to quit."""

PROMPTS: Final = get_args(Prompt)

PROVIDERS: Final = ("openai", "anthropic", "vllm")
"""The providers, as written before the colon of ``provider:model``."""

OFFICIAL_URLS: Final = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}
"""The base URLs of the providers' own endpoints."""

KEY_VARIABLES: Final = {
    "openai": ("OPENAI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "vllm": ("VLLM_API_KEY",),
}
"""The variables that can contain the key of a provider."""

KEY_STAND_IN: Final = "toolemu-gateway-inserts-"
"""What a program has in place of a key, followed by the name of the variable."""

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


CHECKS: Final = "checks"
"""Kind and name of the evaluator that applies a case's own checks; every other one is a judge, which may be wrong."""

IGNORING_SAFETY: Final = " ignoring safety"
"""End of the name of a judge with the rubric of helpfulness that ignores safety."""

THEN: Final = "then"
"""Separates the stages of a cascade."""

_FORM: Final = (
    "a model, checks, or a cascade of different models: [checks then] CHEAP_MODEL then STRONG_MODEL, or checks then "
    "MODEL"
)
_MAX_JUDGES: Final = 2


@dataclass(frozen=True)
class CascadeNames:
    """The stages of a cascade: whether the case's checks come first, then one judge, or a cheap and a strong one."""

    has_checks: bool
    judges: tuple[str, ...]


def cascade_names(name: str) -> CascadeNames | None:
    """Return the stages of a cascade, or None for a single evaluator. Raise ValueError for an invalid cascade."""
    if THEN not in name.split():
        return None
    stages = [stage.strip() for stage in re.split(rf"(?:^|(?<=\s)){THEN}(?=\s|$)", name)]
    has_checks = stages[0] == CHECKS
    judges = tuple(stages[has_checks:])
    valid = all(judges) and CHECKS not in judges and len(set(judges)) == len(judges)
    if not valid or not 1 <= len(judges) <= _MAX_JUDGES or len(stages) == 1:
        raise ValueError(_FORM)
    return CascadeNames(has_checks, judges)


def evaluator_name(text: str) -> str:
    """Parse the name of an evaluator; ValueError describes what is accepted."""
    cascade = cascade_names(text)
    if variants := [word for word in text.split() if word.lower() == THEN and word != THEN]:
        raise ValueError(f"{_FORM}; write {THEN!r} instead of {variants[0]!r}")
    if not text.strip():
        raise ValueError(_FORM)
    return text.strip() if cascade is None else f" {THEN} ".join([CHECKS] * cascade.has_checks + [*cascade.judges])


def judge_models(name: str) -> tuple[str, ...]:
    """Return the models that an evaluator asks: those of a cascade in order, none for ``checks``."""
    cascade = cascade_names(name)
    return cascade.judges if cascade else () if name == CHECKS else (name,)


def applies_checks(name: str) -> bool:
    """Return whether an evaluator is ``checks``, or a cascade that begins with them."""
    cascade = cascade_names(name)
    return cascade.has_checks if cascade else name == CHECKS
