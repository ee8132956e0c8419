"""Writes what a source publishes to a file."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.authoring.importers.tool_sources.imported_toolkit import selected, toolkit_of
from pytest_toolemu.authoring.importers.tool_sources.published_tools import PublishedToolkit
from pytest_toolemu.authoring.importers.tool_sources.tool_effects import tool_names
from pytest_toolemu.authoring.importers.tool_sources.toolkit_text import toolkit_name, write_toolkit
from pytest_toolemu.core.toolkit import SUFFIX

_PARTS: Final = ("call_as", "description", "parameters", "returns", "errors", "effect")


@dataclass(frozen=True)
class ImportedTools:
    """The tools that were written to a file."""

    tools: tuple[dict[str, Any], ...]

    @property
    def guesses(self) -> dict[str, int]:
        """The number of tools of which a part was guessed or cut, by the part."""
        counts = Counter(part for tool in self.tools for part in tool.get("inferred", ()))
        return {part: counts[part] for part in _PARTS if counts[part]}


def default_path(published: PublishedToolkit) -> Path:
    """Return the file for a source's tools: ``toolkits/NAME.toolkit.yaml``, with the name of the source."""
    (name,) = tool_names([published.name]).values()
    return Path("toolkits", f"{name}{SUFFIX}")


def import_toolkit(published: PublishedToolkit, path: Path, only: str) -> ImportedTools:
    """Write the selected tools as a toolkit. Raise UsageError if the file exists or would not be valid."""
    name = toolkit_name(path)
    toolkit = toolkit_of(published, selected(published.tools, only), name)
    write_toolkit(path, toolkit, published.origin)
    return ImportedTools(tuple(toolkit["tools"]))
