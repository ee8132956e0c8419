"""Proposes the entities and operations of a toolkit with a model, and accepts only declarations that work."""

from __future__ import annotations

from typing import Any, Final

from pydantic import ValidationError

from pytest_toolemu import prompts
from pytest_toolemu.core.messages import Ledger, Message, Model, ReplySchema
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.core.world.toolkit_plan import declaration_problems_in_file
from pytest_toolemu.formats.yaml_document import dump, format_location
from pytest_toolemu.models.strict_schema import TEXT, array_of, closed_object
from pytest_toolemu.models.structured_output import ask_structured

Json = dict[str, Any]

RULES: Final = "builder/declare"
INFERRED: Final = "operation"
"""What ``inferred`` of a tool says if a model proposed its operation: a person should check it."""
_OBJECT: Final[Json] = {"type": "object"}
_MAX_PROBLEMS: Final = 40


async def declare_toolkit(value: Json, model: Model) -> Json:
    """Return the value of a toolkit's file with entities and operations that a model proposes.

    Operations are marked as inferred. Raise InconclusiveError if the model refuses, or if its declarations are still
    not valid after two corrections.
    """
    messages = (
        Message(role="system", content=prompts.render(RULES)),
        Message(role="user", content=f"{dump(value)}\n\nDeclare the entities and operations of this toolkit."),
    )

    def parse(reply: Json) -> Json:
        declared = _declared(value, reply)
        if problems := declaration_problems(declared):
            raise ValueError("\n".join(problems[:_MAX_PROBLEMS]))
        return declared

    return (await ask_structured(model, "builder", Ledger(0), messages, reply_schema(), parse)).value


def reply_schema() -> ReplySchema:
    """Return the schema of a reply: the entities first, then an operation for each tool that has one."""
    entity = closed_object({"name": TEXT, "entity": _OBJECT})
    operation = closed_object({"tool": TEXT, "operation": _OBJECT})
    return ReplySchema(
        name="declarations",
        schema=closed_object({"entities": array_of(entity), "operations": array_of(operation)}),
    )


def declaration_problems(value: Json) -> list[str]:
    """Return what is wrong with the declarations in the value of a toolkit's file."""
    try:
        toolkit = Toolkit.model_validate(value, strict=False)
    except ValidationError as error:
        return [f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors()]
    return [f"{format_location(loc)}: {message}" for loc, message in declaration_problems_in_file(toolkit)]


def _declared(value: Json, reply: Json) -> Json:
    """Return the toolkit with the declarations in a reply. ValueError if it names a tool that does not exist."""
    operations = {each["tool"].rpartition(".")[2]: each["operation"] for each in reply["operations"]}
    names = {tool["name"] for tool in value["tools"]}
    if unknown := sorted(operations.keys() - names):
        raise ValueError(f"operations: the toolkit has no tool {unknown[0]!r}")
    tools = [
        {**tool, "operation": operations[tool["name"]], "inferred": [*tool.get("inferred", ()), INFERRED]}
        if tool["name"] in operations
        else tool
        for tool in value["tools"]
    ]
    entities = {each["name"]: each["entity"] for each in reply["entities"]}
    head = {name: part for name, part in value.items() if name != "tools"}
    return {**head, "entities": entities, "tools": tools}
