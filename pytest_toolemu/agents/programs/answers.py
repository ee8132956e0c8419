"""Find the answer, and the tokens that the agent used, in what a program prints or a service returns."""

from __future__ import annotations

import json
from typing import Any, Final

from pydantic import Field

from pytest_toolemu.core.toolbox import Toolbox
from pytest_toolemu.errors import AgentProgramError
from pytest_toolemu.formats.truncation import truncated
from pytest_toolemu.formats.yaml_document import Record, closest

_SHOWN: Final = 300


class UsagePaths(Record):
    """Where a JSON answer states the tokens that the agent used."""

    model: str = Field(min_length=1, description="The model as in options, such as `openai:gpt-4o`, for its price")
    input: str = Field(min_length=1, description="Path of the number of input tokens, such as `usage.input_tokens`")
    output: str = Field(min_length=1, description="Path of the number of output tokens")
    cached: str | None = Field(default=None, description="Path of the number of input tokens read from a cache")

    def report(self, value: Any, toolbox: Toolbox) -> None:
        """Report the tokens in a JSON answer. If a number is missing, the tokens of the run stay unknown."""
        counts = {"input": _count(value, self.input), "output": _count(value, self.output)}
        if self.cached is not None:
            counts["cached"] = _count(value, self.cached) or 0
        known = {name: count for name, count in counts.items() if count is not None}
        if len(known) == len(counts):
            toolbox.used(self.model, **known)


def parsed(text: str, source: str) -> Any:
    """Return the JSON value of an answer. Raise AgentProgramError, with the text, if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise AgentProgramError(f"{source} is not JSON: {shown(text)}") from None


def text_at(value: Any, path: str, source: str) -> str:
    """Return the text at a path such as ``reply.parts.0.text``. Raise AgentProgramError that says what is there."""
    found = value
    for index, key in enumerate(path.split(".")):
        try:
            found = found[int(key)] if isinstance(found, list) else found[key]
        except (LookupError, TypeError, ValueError):
            before = ".".join(path.split(".")[:index])
            place = f" at {before!r}" if before else ""
            hint = closest(key, [str(name) for name in found]) if isinstance(found, dict) else ""
            raise AgentProgramError(
                f"{source} has no {key!r}{place}, which the path {path!r} needs{hint}: {shown(json.dumps(value))}"
            ) from None
    if not isinstance(found, str):
        raise AgentProgramError(f"{source} has no text at {path!r}, but {shown(json.dumps(found))}; correct the path")
    return found


def shown(text: str) -> str:
    """Return the beginning of a text from outside, in one line."""
    return repr(truncated(" ".join(text[: 20 * _SHOWN].split()), _SHOWN))


def _count(value: Any, path: str) -> int | None:
    for key in path.split("."):
        try:
            value = value[int(key)] if isinstance(value, list) else value[key]
        except (LookupError, TypeError, ValueError):
            return None
    return value if type(value) is int and value >= 0 else None
