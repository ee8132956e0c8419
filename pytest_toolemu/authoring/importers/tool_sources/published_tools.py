"""Tools as their source publishes them, before they become tools of a toolkit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_toolemu.authoring.importers.notes import Notes
from pytest_toolemu.authoring.importers.tool_sources.schema_converter import SchemaBounds
from pytest_toolemu.core.toolkit import Effect

DETAILED = SchemaBounds(depth=8, members=100)
"""For sources that describe single tools, which models read as they are."""


@dataclass(frozen=True)
class PublishedTool:
    """One tool: what its source says about it. None stands for what the source does not say.

    ``name`` is the source's own. ``parameters`` and ``returns`` are JSON Schemas as they were published, of any form.
    A part is not ``stated`` if it is a guess, which only this source allows, or not all that the source says.
    """

    name: str
    description: str = ""
    parameters: Any = None
    parameters_are_stated: bool = True
    returns: Any = None
    returns_are_stated: bool = True
    errors: Mapping[str, str] | None = None
    effect: Effect | None = None
    effect_is_stated: bool = True


@dataclass(frozen=True)
class PublishedToolkit:
    """The tools of one source.

    ``name`` is how the source calls itself, ``origin`` describes it in a phrase, such as ``the MCP server files 1.2``.
    References in schemas lead into ``definitions``; None: into the schema itself. ``notes`` says what was left out.
    If it ``marks_directions``, members that are ``readOnly`` are no arguments, and ``writeOnly`` ones no results.
    """

    name: str
    origin: str
    tools: tuple[PublishedTool, ...]
    description: str = ""
    definitions: Any = None
    bounds: SchemaBounds = DETAILED
    marks_directions: bool = False
    notes: Notes = field(default_factory=dict)
