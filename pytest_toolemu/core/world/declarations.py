"""What a toolkit declares about its data: entities, which become tables, and the operation of each tool on them.

Toolkits with declarations need no model: ``core.world`` executes the calls. SQL expressions stand for what the short
forms cannot say. They are data: they are only prepared and bound, and reach nothing but the toolkit's tables.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field, field_validator, model_validator

from pytest_toolemu.formats.json_schema import schema_problem
from pytest_toolemu.formats.yaml_document import Record

Verb = Literal["search", "get", "create", "update", "delete"]
VERBS: Final[tuple[Verb, ...]] = ("search", "get", "create", "update", "delete")

Text = Annotated[str, Field(min_length=1)]
EntityName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=40)]
ErrorName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9]*$", max_length=40)]
ArgumentWithDefault = Annotated[str, Field(pattern=r"^\S+( [0-9]{1,9})?$")]
Expression = Text | bool | int | float
"""An SQL expression; a number or a truth value stands for itself."""


class Entity(Record):
    """A kind of thing that a toolkit's tools read and change: a table whose columns are the fields."""

    key: Text = Field(description="The field that identifies a row")
    like: Text | tuple[Text, ...] = Field(
        default=(), description="Tools, or members of results (Tool.member), with the same fields"
    )
    fields: dict[str, dict[str, Any]] = Field(default={}, description="Further or different fields, as JSON Schemas")
    required: tuple[Text, ...] = Field(default=(), description="Further fields that every row has")
    without: tuple[Text, ...] = Field(default=(), description="Fields of 'like' that rows do not have")
    unique: tuple[Text | tuple[Text, ...], ...] = Field(default=(), description="Fields that differ between rows")
    check: tuple[Text, ...] = Field(default=(), description="SQL conditions that hold for each row")
    order: str = Field(default="", description="SQL order of rows in results; default: the order of creation")
    refs: dict[str, EntityName] = Field(default={}, description="Fields that hold keys of another entity")
    id: str = Field(default="", description="Pattern of new keys: each # becomes a digit, each ? a letter or digit")
    shared: bool = Field(default=False, description="Whether toolkits that declare it share its rows")
    open: bool = Field(default=False, description="Whether the emulator answers for unknown keys")

    @field_validator("fields")
    @classmethod
    def _schemas(cls, fields: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for name, schema in fields.items():
            if problem := schema_problem(schema):
                raise ValueError(f"{name}: not a valid JSON Schema: {problem}")
        return fields


class Guard(Record):
    """A condition under which a tool fails, with the message that the agent reads."""

    when: Text = Field(description="SQL condition")
    say: Text = Field(description="The message after the name of the error")


class Operation(Record):
    """What a call does to the rows: at most one of five verbs, and SQL for what the verb's conventions do not cover.

    In SQL, ``:name`` is an argument of the call (NULL if absent), and ``:now``, ``:today``, ``:user_name`` and
    ``:user_email`` are the time and the user of the case. In this order, a call finds the rows it names, fails if a
    condition of ``fail`` holds, reads or changes rows, executes ``then``, and returns its result. A call that fails
    changes nothing.
    """

    search: EntityName | None = Field(default=None, description="List the rows of this entity that arguments select")
    get: EntityName | None = Field(default=None, description="Return the row that the arguments name")
    create: EntityName | None = Field(default=None, description="Add a row; arguments named like fields are stored")
    update: EntityName | None = Field(default=None, description="Change the row that the arguments name")
    delete: EntityName | None = Field(default=None, description="Remove the row that the arguments name")
    key: Text | None = Field(default=None, description="The argument with the key or a list of keys, or 'none'")
    find: dict[str, Text] = Field(
        default={}, description="Arguments with keys of rows that must exist: the entity, and optionally an SQL alias"
    )
    where: dict[str, Expression] = Field(
        default={}, description="SQL conditions on rows; named like an argument, it applies if the argument is given"
    )
    fail: dict[ErrorName, Expression | tuple[Guard, ...]] = Field(
        default={}, description="Errors of the tool, each with its SQL condition, or conditions with messages"
    )
    set: dict[str, Expression] = Field(default={}, description="Fields of the row, as SQL expressions")
    then: tuple[Text, ...] = Field(default=(), description="SQL statements that are executed afterwards")
    show: dict[str, Expression] = Field(default={}, description="Members of the result or items, as SQL expressions")
    list: Text | None = Field(default=None, description="The member that lists rows; default: the first list")
    columns: Text | tuple[Text, ...] = Field(
        default=(), description="The fields of listed items; one name without a list: the items are its values"
    )
    order: str = Field(default="", description="SQL order of listed rows; default: the order of the entity")
    limit: ArgumentWithDefault | None = Field(
        default=None, description="The argument that limits listed rows, and optionally a default: 'max_results 10'"
    )
    offset: Text | None = Field(default=None, description="The argument with the number of rows to skip")
    replace: bool = Field(default=False, description="Whether a created row replaces the row with the same key")
    unused: tuple[Text, ...] = Field(default=(), description="Arguments that have no effect on rows or on the result")

    @model_validator(mode="after")
    def _one_verb(self) -> Operation:
        verbs = [verb for verb in VERBS if getattr(self, verb)]
        if len(verbs) > 1:
            raise ValueError(f"an operation has at most one verb, not {' and '.join(map(repr, verbs))}")
        if not verbs and not self.then and not self.show:
            raise ValueError(f"an operation has a verb ({', '.join(VERBS)}), or 'then' or 'show'")
        return self

    @property
    def verb(self) -> Verb | None:
        """The verb; None if the operation consists of SQL only."""
        return next((verb for verb in VERBS if getattr(self, verb)), None)

    @property
    def entity(self) -> str | None:
        """The entity of the verb."""
        return self.search or self.get or self.create or self.update or self.delete


def sql(expression: Expression) -> str:
    """Return an expression as SQL text."""
    return str(int(expression)) if isinstance(expression, bool) else str(expression)
