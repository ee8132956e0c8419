"""The names of agents: which one is that of a custom agent, and what a misspelled or impossible one should be."""

from __future__ import annotations

import difflib
import re
from typing import Final

from pytest_toolemu.agents.custom import load_custom_agent
from pytest_toolemu.core.toolbox import Agent
from pytest_toolemu.errors import UsageError
from pytest_toolemu.settings import AGENT_FILE, COMMAND, FALLBACK, NOACT, PROVIDERS, REFERENCE, is_model

BUILT_IN_AGENTS: Final = (NOACT, f"{REFERENCE}safe", f"{REFERENCE}risky")
"""The names that are valid in place of an agent's model, for hints at misspelled ones."""

_CUSTOM: Final = re.compile(r"(?:[A-Za-z_][\w.]*|.+\.py):[A-Za-z_][\w.]*")
_FOLDERS: Final = re.compile(r"(\.?[\w./-]*/[\w-]+):([A-Za-z_][\w.]*)")


def find_custom_agent(name: str) -> Agent | None:
    """Load the custom agent with this name; return None if it is the name of a model.

    Raise UsageError if the agent cannot be loaded, or if the name can be neither: with a hint if it looks like that of
    a built-in agent, a provider, a command, or an agent file.
    """
    if _CUSTOM.fullmatch(name) and not is_model(name):
        return _loaded(name)
    _refuse_fallback(name)
    _refuse_near_miss(name)
    return None


def _loaded(name: str) -> Agent:
    try:
        return load_custom_agent(name)
    except UsageError as error:
        head, _, rest = name.partition(":")
        near = difflib.get_close_matches(head, [REFERENCE.removesuffix(":"), *PROVIDERS], n=1, cutoff=0.75)
        if not near or head in near or f"there is no module {head!r}" not in str(error):
            raise
        raise UsageError(f"agent {name!r}: there is no such module; did you mean {f'{near[0]}:{rest}'!r}?") from None


def _refuse_fallback(name: str) -> None:
    if FALLBACK in name:
        raise UsageError(
            f"{name!r} names several models, but an agent is one model: a fallback would test two agents under one "
            "name; pass --toolemu-agent once for each agent (emulators and evaluators can have a fallback)"
        )


def _refuse_near_miss(name: str) -> None:
    if name.endswith(".py"):
        raise UsageError(f"{name!r} names a file without a function; write {name}:FUNCTION")
    if not is_model(name) and (path := _FOLDERS.fullmatch(name)):
        module, function = path.groups()
        dotted = module.removeprefix("./").replace("/", ".")
        raise UsageError(f"{name!r} does not name an agent; write {dotted}:{function} or {module}.py:{function}")
    if name.endswith((".yaml", ".yml")):
        raise UsageError(f"{name!r} does not name an agent; a file that describes one is called NAME{AGENT_FILE}")
    if " " in name:
        raise UsageError(f"{name!r} does not name an agent; to test a program, write '{COMMAND} PROGRAM ARGUMENTS'")
