"""Reject invalid calls by code, before any emulator sees them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from pytest_toolemu.core.toolkit import Tool
from pytest_toolemu.core.trajectory import Call, Observation, Trajectory, failure
from pytest_toolemu.emulators.wrapper_emulator import WrapperEmulator
from pytest_toolemu.formats.yaml_document import show

DEFAULT_ERROR: Final = "InvalidRequest"

_VALIDATION_ERROR = re.compile(
    r"(?i)((invalid|bad|malformed|illegal)_?(request|call|input|arguments?|parameters?|params)|validation)"
    r"_?(error|exception|failed)?"
)


@dataclass(frozen=True)
class ValidatedEmulator(WrapperEmulator):
    """Rejects calls of unknown tools and calls whose arguments violate the tool's schema; passes every other call on.

    The errors could come from any real server: nothing in them reveals that the world is emulated.
    """

    async def __call__(self, call: Call, trajectory: Trajectory) -> Observation:
        """Return an error that lists all problems of the call, or the answer of the inner emulator."""
        tools = trajectory.resolved_case.tools
        if call.tool is None or call.name not in tools:
            return failure(f"{DEFAULT_ERROR}: there is no tool {show(call.name)}; {_suggestion(call.name, tools)}")
        tool = tools[call.name]
        if problems := _problems(tool, call.arguments):
            return failure(f"{_error_name(tool)}: {'; '.join(problems)}")
        return await self.next(call, trajectory)


def _problems(tool: Tool, arguments: Any) -> list[str]:
    if not isinstance(arguments, dict):
        return [f"the arguments must be one JSON object, and {show(arguments)} is none"]
    return tool.argument_schema.violations(arguments)


def _error_name(tool: Tool) -> str:
    return next((name for name in tool.errors if _VALIDATION_ERROR.fullmatch(name)), DEFAULT_ERROR)


def _suggestion(name: str, tools: Iterable[str]) -> str:
    requested = name[:80].casefold().replace(".", "_")
    folded = {tool.casefold(): tool for tool in tools}
    near = difflib.get_close_matches(requested, folded, n=3, cutoff=0.6)
    # The most common mistake is a tool's name without its toolkit, or with another toolkit.
    if own_name := requested.rpartition("_")[2]:
        near += [key for key in folded if key.endswith(own_name) and key not in near]
    if near:
        return f"the closest are {', '.join(folded[key] for key in near[:5])}"
    return f"the tools are {', '.join(folded.values())}"
