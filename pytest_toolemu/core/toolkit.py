"""The tools that an agent may call. They are specified by JSON Schemas and never implemented."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AwareDatetime, Field, field_validator, model_validator

from pytest_toolemu.core.world.declarations import Entity, EntityName, Operation
from pytest_toolemu.formats.identifiers import ContentHash
from pytest_toolemu.formats.json_schema import ValueSchema, lasting_schema, schema_problem
from pytest_toolemu.formats.yaml_document import Record

Effect = Literal["read", "write", "destructive", "irreversible"]
"""What a call does: nothing; a change that can be undone; a loss; something that cannot be taken back."""

NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{0,39}")
Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9]*$", max_length=40)]
# Model Context Protocol also allows dots. Providers do not, see ``provider_name``.
CALLABLE_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
CallableName = Annotated[str, Field(pattern=f"^{CALLABLE_NAME.pattern}$")]
Text = Annotated[str, Field(min_length=1)]
Slug = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
ToolName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9]*\.[A-Za-z][A-Za-z0-9]*$")]
"""A tool in case files: ``Toolkit.Tool``."""

SUFFIX: Final = ".toolkit.yaml"
# The longest function name that both OpenAI and Anthropic accept.
MAX_TOOL_NAME: Final = 64


class Tool(Record):
    """One function: JSON Schemas of its arguments and of its result, and the errors that it can return."""

    name: Name = Field(description="Name of the tool; agents call it as Toolkit_Tool")
    description: Text = Field(description="What the tool does, as the agent reads it")
    parameters: dict[str, Any] = Field(description="JSON Schema of the arguments; its type is object")
    returns: dict[str, Any] = Field(description="JSON Schema of the result; its type is object")
    errors: dict[Name, Text] = Field(default={}, description="Each error by name, with its condition")
    effect: Effect = Field(description="What a call does: nothing, an undoable change, a loss, or an irreversible one")
    operation: Operation | None = Field(default=None, description="What a call does to rows; else the emulator answers")
    call_as: CallableName | None = Field(default=None, description="Name that agents call; if absent, `Toolkit_Tool`")
    list_member: str | None = Field(
        default=None, description="Agents receive only this member of the result, a list; default: the whole result"
    )
    inferred: tuple[str, ...] = Field(default=(), description="What an importer guessed; a person should check it")

    @model_validator(mode="after")
    def _has_list_member(self) -> Tool:
        member = self.returns.get("properties", {}).get(self.list_member, {})
        if self.list_member is not None and (
            member.get("type") != "array" or self.list_member not in self.returns.get("required", ())
        ):
            raise ValueError(f"'list_member' is {self.list_member!r}, which is not a required array in 'returns'")
        return self

    @field_validator("parameters", "returns")
    @classmethod
    def _schema(cls, schema: dict[str, Any]) -> dict[str, Any]:
        if schema.get("type") != "object":
            raise ValueError("a JSON Schema with 'type: object' is expected")
        if problem := schema_problem(schema):
            raise ValueError(f"not a valid JSON Schema: {problem}")
        return schema

    # Not cached here: a copy with another schema would keep the cached one.
    @property
    def argument_schema(self) -> ValueSchema:
        """The schema of the arguments, for checking many calls."""
        return lasting_schema(self.parameters)

    @property
    def result_schema(self) -> ValueSchema:
        """The schema of the result, for checking many results."""
        return lasting_schema(self.returns)


class Provenance(Record):
    """The model that drafted a file, and the person who accepted it; 'toolemu review' writes it."""

    model: Text = Field(description="The model that wrote the draft, as PROVIDER:NAME")
    prompt_hash: ContentHash = Field(description="SHA-256 of the prompts")
    reviewer: Text = Field(description="The person who accepted the draft")
    date: AwareDatetime = Field(description="When the draft was accepted, in quotes and with a UTC offset")
    override: Text | None = Field(default=None, description="Why it was accepted in spite of errors")


class Toolkit(Record):
    """Tools that serve one purpose, read from ``NAME.toolkit.yaml``."""

    name: Name = Field(description="Name of the toolkit; it must equal the file name without the suffix")
    title: Text = Field(description="Readable name")
    category: Text = Field(description="Field of use; a slice of reports and gates")
    description: Text = Field(description="What the tools are for, as the agent reads it")
    risks: tuple[Text, ...] = Field(default=(), description="What can go wrong; the emulator reads it")
    separator: Literal["_", ""] = Field(default="_", description="Text between toolkit and tool in callable names")
    canary: str | None = Field(default=None, description="The dataset's canary; 'toolemu lint --stamp' writes it")
    entities: dict[EntityName, Entity] = Field(default={}, description="What the tools read and change; each a table")
    tools: tuple[Tool, ...] = Field(min_length=1, description="The tools; their names are unique within the toolkit")
    provenance: Provenance | None = Field(default=None, description="The model that drafted it, and the reviewer")

    @model_validator(mode="after")
    def _tools_are_distinct(self) -> Toolkit:
        seen: set[str] = set()
        callable_names: dict[str, Tool] = {}
        for tool in self.tools:
            if tool.name in seen:
                raise ValueError(f"the tool {tool.name!r} occurs twice")
            seen.add(tool.name)
            other = callable_names.setdefault(provider_name(self.callable_name(tool)), tool)
            if other is not tool:
                raise ValueError(
                    f"agents would call both {other.name!r} and {tool.name!r} by the name "
                    f"{self.callable_name(tool)!r}; change 'call_as' of one of them"
                )
            if len(self.callable_name(tool)) > MAX_TOOL_NAME:
                raise ValueError(f"{self.callable_name(tool)!r} is longer than {MAX_TOOL_NAME} characters")
        return self

    def callable_name(self, tool: Tool) -> str:
        """Return the name that agents use for the tool."""
        return tool.call_as or f"{self.name}{self.separator}{tool.name}"

    @property
    def is_declared(self) -> bool:
        """Whether the toolkit declares anything about its data."""
        return bool(self.entities) or any(tool.operation for tool in self.tools)

    def tool(self, name: str) -> Tool | None:
        """Return the tool with this name, given without the toolkit; None if there is none."""
        return next((tool for tool in self.tools if tool.name == name), None)


def provider_name(name: str) -> str:
    """Return the name of a tool as OpenAI and Anthropic accept it: with underscores instead of dots."""
    return name.replace(".", "_")


def callable_tools(toolkits: tuple[Toolkit, ...]) -> Iterator[tuple[str, Toolkit, Tool]]:
    """Yield every tool with the name that agents call it by, and its toolkit."""
    for toolkit in toolkits:
        for tool in toolkit.tools:
            yield toolkit.callable_name(tool), toolkit, tool


@functools.cache
def benchmark_folder() -> Path:
    """Return the folder of the shipped ``cases/`` and ``toolkits/``: in the installed package or the checkout."""
    package = Path(__file__).parents[1]
    installed = package / "benchmark"
    return installed if installed.is_dir() else package.parent
