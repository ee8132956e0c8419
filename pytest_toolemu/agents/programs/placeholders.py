"""Placeholders such as ``{task}`` in commands and requests, and the values of one case for them."""

from __future__ import annotations

import difflib
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pytest_toolemu.core.toolbox import Task
from pytest_toolemu.errors import UsageError

# Braces occur in shell code and JSON as well: only these names are replaced.
_PLACEHOLDER: Final = re.compile(r"(?<!\$)\{([a-z_]+)\}")

NAMES: Final = (
    "task", "mcp_url", "mcp_config", "session", "case_id", "now", "locale", "user_name", "user_email",
)  # fmt: skip
"""The names of all placeholders."""


def new_session() -> str:
    """Return a random ID of a run, in the form of the trace ID of a ``traceparent`` header."""
    return secrets.token_hex(16)


@dataclass(frozen=True)
class CaseValues:
    """What the agent's program or service learns about one run of a case.

    ``session`` is random: it identifies the run, but tells nothing about the case. ``mcp_config`` is the path of a
    file, which only commands have.
    """

    task: Task
    case_id: str
    mcp_url: str
    mcp_config: str = ""
    session: str = field(default_factory=new_session)

    @property
    def by_name(self) -> dict[str, str]:
        """The value of each placeholder."""
        task = self.task
        return {
            "task": str(task),
            "mcp_url": self.mcp_url,
            "mcp_config": self.mcp_config,
            "session": self.session,
            "case_id": self.case_id,
            "now": task.now.isoformat(),
            "locale": task.locale,
            "user_name": task.user.name,
            "user_email": task.user.email,
        }


def filled(value: Any, values: Mapping[str, str]) -> Any:
    """Return a JSON value with all placeholders replaced, once: a value that looks like a placeholder stays text."""
    if isinstance(value, str):
        return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), value)
    if isinstance(value, dict):
        return {key: filled(part, values) for key, part in value.items()}
    return [filled(part, values) for part in value] if isinstance(value, list | tuple) else value


def names_in(value: Any) -> set[str]:
    """Return the names of the placeholders in a JSON value."""
    return {name for name in _all_names(value) if name in NAMES}


def misspelled(value: Any) -> Iterator[str]:
    """Yield a message for each name in braces that is close to a placeholder."""
    for name in dict.fromkeys(_all_names(value)):
        near = difflib.get_close_matches(name, NAMES, n=1, cutoff=0.75)
        if name not in NAMES and near:
            yield f"{{{name}}} is not a placeholder; did you mean {{{near[0]}}}?"


def refuse_misspelled(value: Any, source: str) -> None:
    """Raise UsageError if a name in braces is close to a placeholder."""
    for message in misspelled(value):
        raise UsageError(f"{source}: {message}")


def _all_names(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from _PLACEHOLDER.findall(value)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _all_names(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _all_names(part)
