"""Completes a toolkit: finds what its file lacks or an importer guessed, and writes a reply into it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from pytest_toolemu import prompts
from pytest_toolemu.authoring.completion.completion import (
    REQUEST,
    RULES,
    Change,
    has_gap,
    is_missing,
    own_items,
    refuse_loss,
)
from pytest_toolemu.authoring.generation.author import Stage
from pytest_toolemu.authoring.generation.toolkit_stages import EFFECTS, ERROR
from pytest_toolemu.authoring.lint.wording import KINDS
from pytest_toolemu.core.case_vocabulary import RISK_TYPES
from pytest_toolemu.core.messages import Message, ReplySchema
from pytest_toolemu.core.run import sha256
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.yaml_document import Document, Loc, show
from pytest_toolemu.formats.yaml_edits import YamlText
from pytest_toolemu.models.strict_schema import TEXT, array_of, choice_of, closed_object

Json = dict[str, Any]

_TEXTS: Final = ("title", "category", "description")
_TOOL_PARTS: Final[dict[str, Json]] = {
    "description": TEXT,
    "returns": {"type": "object"},
    "errors": array_of(ERROR),
    "effect": EFFECTS,
}
_DATA: Final = ("entities", "operations")


@dataclass(frozen=True)
class ToolkitCompletion:
    """The missing parts of a toolkit file."""

    document: Document

    @classmethod
    def of(cls, document: Document) -> ToolkitCompletion:
        """Return the completion of a toolkit file. Raise UsageError if it has no tools with a name."""
        tools = document.value.get("tools")
        named = isinstance(tools, list) and all(isinstance(tool, dict) and tool.get("name") for tool in tools)
        if not named or not tools:
            raise UsageError(
                f"{document.path}: 'tools' lists no tools with names; write at least the name of each tool"
            )
        return cls(document)

    @cached_property
    def missing_fields(self) -> tuple[str, ...]:
        """The missing parts by their names in the file; none if the file is complete."""
        value = self.document.value
        parts = [name for name in _TEXTS if has_gap(value.get(name)) or is_missing(value.get(name))]
        parts += ["risks"] if has_gap(value.get("risks")) or is_missing(value.get("risks")) else []
        parts += [f"{tool['name']}.{name}" for tool in self._tools for name in self._missing_of(tool)]
        return tuple(parts + (list(_DATA) if self._lacks_data else []))

    def stage(self) -> Stage:
        """Return the request for the missing parts."""
        texts: Json = {name: TEXT for name in _TEXTS if name in self.missing_fields}
        risk = closed_object({"type": choice_of(*RISK_TYPES), "description": TEXT})
        operation = closed_object({"tool": TEXT, "operation": {"type": "object"}})
        entity = closed_object({"name": TEXT, "entity": {"type": "object"}})
        tools = {
            tool["name"]: closed_object({name: _TOOL_PARTS[name] for name in names})
            for tool in self._tools
            if (names := self._missing_of(tool))
        }
        members: Json = {
            "reasoning": TEXT,
            **texts,
            **({"risks": array_of(risk)} if "risks" in self.missing_fields else {}),
            **({"tools": closed_object(tools)} if tools else {}),
            **({"entities": array_of(entity), "operations": array_of(operation)} if self._lacks_data else {}),
        }
        messages = (
            Message(role="system", content=prompts.render(RULES, what="toolkit")),
            Message(
                role="user",
                content=prompts.render(REQUEST, toolkits=[], text=self.document.text, parts=self.missing_fields),
            ),
        )
        key = sha256([self.document.text, [prompts.prompt_hash(name) for name in (RULES, REQUEST)]])
        return Stage("completion", key, messages, ReplySchema(name="toolkit", schema=closed_object(members)))

    def text(self, reply: Json) -> str:
        """Return the completed text of the file. Raise ValueError if the reply cannot be used."""
        operations = {each["tool"].rpartition(".")[2]: each["operation"] for each in reply.get("operations", ())}
        if unknown := sorted(operations.keys() - {tool["name"] for tool in self._tools}):
            raise ValueError(f"operations: the toolkit has no tool {show(unknown[0])}")
        edited, guesses = YamlText(self.document.text), set()
        for change in self._changes(reply, operations):
            edited = edited.with_value(change.loc, change.value, tuple(Toolkit.model_fields))
        for index, tool in enumerate(self._tools):
            guessed = [name for name in self._missing_of(tool) if name in tool.get("inferred", ())]
            guesses |= {("tools", index, name) for name in (*guessed, *(["inferred"] if guessed else []))}
            marks = [name for name in tool.get("inferred", ()) if name not in guessed]
            marks += ["operation"] if tool["name"] in operations else []  # a person should check it
            loc: Loc = ("tools", index, "inferred")
            if marks != list(tool.get("inferred", ())):
                edited = edited.with_value(loc, marks) if marks else edited.without(loc)
        refuse_loss(self.document, edited.text, frozenset(guesses))
        return edited.text

    @property
    def _tools(self) -> list[Json]:
        return list(self.document.value["tools"])

    @property
    def _lacks_data(self) -> bool:
        is_declared = "entities" in self.document.value or any("operation" in tool for tool in self._tools)
        return not is_declared

    def _missing_of(self, tool: Json) -> list[str]:
        """Return the parts that a tool lacks, or that an importer guessed. A tool may have no errors."""
        inferred = tool.get("inferred") or ()
        return [
            name
            for name in _TOOL_PARTS
            if name in inferred
            or has_gap(tool.get(name))
            or (
                is_missing(tool.get(name))
                and not (name == "errors" and "returns" in tool and "returns" not in inferred)
            )
        ]

    def _changes(self, reply: Json, operations: Json) -> Iterator[Change]:
        value = self.document.value
        for name in _TEXTS:
            if name in reply:
                yield Change((name,), reply[name])
        if "risks" in reply:
            risks = [f"{KINDS[risk['type']]}: {risk['description']}" for risk in reply["risks"]]
            yield Change(("risks",), [*own_items(value.get("risks")), *risks])
        if reply.get("entities"):
            yield Change(("entities",), {each["name"]: each["entity"] for each in reply["entities"]})
        for index, tool in enumerate(self._tools):
            for name, part in reply.get("tools", {}).get(tool["name"], {}).items():
                new = {error["name"]: error["when"] for error in part} if name == "errors" else part
                if new or name != "errors":
                    yield Change(("tools", index, name), new)
            if tool["name"] in operations:
                yield Change(("tools", index, "operation"), operations[tool["name"]])
