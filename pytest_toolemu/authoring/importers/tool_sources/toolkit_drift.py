"""Compares a toolkit's file with what its source publishes now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.authoring.importers.tool_sources.imported_toolkit import distinct_tools, selected, toolkit_of
from pytest_toolemu.authoring.importers.tool_sources.published_tools import PublishedTool, PublishedToolkit
from pytest_toolemu.authoring.importers.tool_sources.toolkit_text import toolkit_name
from pytest_toolemu.core.toolkit import Tool, callable_tools
from pytest_toolemu.core.toolkit_files import load_toolkit
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.regular_expressions import occurs
from pytest_toolemu.formats.yaml_document import show

_ABSENT: Final = object()
_SHOWN: Final = 120


def differences(published: PublishedToolkit, path: Path, only: str) -> list[str]:
    """Return one line for each difference between a file and its source; empty if there is none.

    Parts that the source does not state are not compared: a person has corrected them. Raise UsageError if the file
    does not exist.
    """
    name = toolkit_name(path)
    if not path.is_file():
        raise UsageError(f"{path}: does not exist; first write it without --diff, or name another file with --into")
    chosen = selected(published.tools, only)
    now = {tool["call_as"]: tool for tool in toolkit_of(published, chosen, name)["tools"]}
    # A selection is of names of the source, which can differ from those that agents call.
    others = distinct_tools(published.tools, {}).keys() - now.keys()
    kept = {
        called: tool
        for called, _, tool in callable_tools((load_toolkit(path),))
        if not only or called in now or (occurs(only, called) and called not in others)
    }
    sources = distinct_tools(chosen, {})
    lines = [f"+ {called}: only the source has it" for called in now if called not in kept]
    lines += [f"- {called}: only the file has it" for called in kept if called not in now]
    for called, tool in now.items():
        if called in kept:
            parts = _stated(sources[called], tool)
            lines += [f"~ {called}: {line}" for line in _changes(kept[called], parts)]
    return lines


def _stated(source: PublishedTool, tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a tool that its source states, at least in part."""
    stated: dict[str, Any] = {}
    if source.description.strip():
        stated["description"] = tool["description"]
    if source.parameters is not None:
        stated["parameters"] = tool["parameters"]
    if source.returns is not None:
        stated["returns"] = tool["returns"]
    if source.errors:
        stated["errors"] = tool["errors"]
    if "effect" not in tool.get("inferred", ()):
        stated["effect"] = tool["effect"]
    return stated


def _changes(tool: Tool, stated: Mapping[str, Any]) -> Iterator[str]:
    before = tool.model_dump(mode="json", include=set(stated))
    for part, value in stated.items():
        yield from _compared(before[part], value, part)


def _compared(before: Any, after: Any, place: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            yield from _compared(before.get(key, _ABSENT), after.get(key, _ABSENT), f"{place}.{key}")
    elif before != after:
        yield f"{place}: {_shown(before)} became {_shown(after)}"


def _shown(value: Any) -> str:
    return "nothing" if value is _ABSENT else show(value, _SHOWN)
