"""Validation by JSON Schema (draft 2020-12), in which tools declare their arguments and results."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Final

import jsonschema_rs

from pytest_toolemu.formats.json_schema_keywords import subschemas
from pytest_toolemu.formats.object_cache import once_per_object
from pytest_toolemu.formats.regular_expressions import SlowExpressionError, is_expression, occurs
from pytest_toolemu.formats.yaml_document import Loc, closest, format_location

_MAX_PROBLEMS: Final = 20
_TYPES: Final = ("array", "boolean", "integer", "null", "number", "object", "string")


def schema_problem(schema: Any) -> str | None:
    """Return why a schema is not valid; None if it is."""
    return _problem(json.dumps(schema))


# Cached by text: the records of a session contain the same few hundred schemas thousands of times.
@functools.lru_cache(maxsize=4096)
def _problem(text: str) -> str | None:
    try:
        jsonschema_rs.meta.validate(json.loads(text))
    except jsonschema_rs.ValidationError as error:
        return f"{_location(tuple(error.instance_path))}{_fault(error)}"
    except ValueError as error:
        return str(error)
    try:
        _compiled(text)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        # The validator prepends what it was doing to the message of ``_Pattern``.
        return str(error).splitlines()[0].rpartition(" ValueError: ")[2]
    # Few schemas have the keyword, and the walk through all parts of a schema takes long.
    for _, part in subschemas(json.loads(text), ()) if "patternProperties" in text else ():
        for name in part.get("patternProperties", ()):
            if _linear(name) is None:
                return (
                    f"patternProperties: write {name!r} without lookarounds and backreferences, which can take "
                    "unlimited time"
                )
    return None


def _fault(error: jsonschema_rs.ValidationError) -> str:
    """Return the problem with a part of a schema.

    For an unknown type, the meta-schema's message names no valid type.
    """
    if not (list(error.instance_path)[-1:] == ["type"] and "anyOf" in error.message):
        return error.message
    name = error.instance if isinstance(error.instance, str) else ""
    return f"{json.dumps(error.instance)} is not a type{closest(name, _TYPES)}"


class ValueSchema:
    """A schema that many values are checked against.

    Formats (date, email, uri, ...) are enforced. Methods raise SlowExpressionError if a regular expression exceeds its
    time limit.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        self._text = json.dumps(schema)

    def violations(self, value: Any) -> list[str]:
        """Return at most 20 violations as ``location: message``; empty if the value conforms."""
        return [f"{_location(path)}{text}" for path, text in self.located_violations(value)]

    def located_violations(self, value: Any) -> list[tuple[Loc, str]]:
        """Return at most 20 violations, each with its location in the value; empty if the value conforms."""
        # Most values conform, and listing violations takes up to a hundred times as long as finding none.
        if self.conforms(value):
            return []
        try:
            with _time_limits():
                errors = itertools.islice(_compiled(self._text).iter_errors(value), _MAX_PROBLEMS)
                return [located for error in errors for located in _messages(error)]
        except (ValueError, RecursionError):  # the validator's limit is about 255 levels
            return [((), "the value is nested too deeply")]

    def conforms(self, value: Any) -> bool:
        """Return whether a value has no violations."""
        try:
            with _time_limits():
                return _compiled(self._text).is_valid(value)
        except (ValueError, RecursionError):
            return False


@once_per_object(4096)
def lasting_schema(schema: dict[str, Any]) -> ValueSchema:
    """Return the object for a dictionary that never changes; it is created once for each dictionary."""
    return ValueSchema(schema)


def violations(schema: dict[str, Any], value: Any) -> list[str]:
    """Return the violations of a schema by one value, as ``ValueSchema.violations`` does."""
    return ValueSchema(schema).violations(value)


def conforms(schema: dict[str, Any], value: Any) -> bool:
    """Return whether one value has no violations of a schema."""
    return ValueSchema(schema).conforms(value)


def matches(schema: dict[str, Any], value: Any) -> bool:
    """Return whether a value conforms to a schema of a case file, with a time limit for each regular expression.

    Raise SlowExpressionError if a regular expression exceeds it: the value comes from an agent, and may be chosen to
    make the expression backtrack forever.
    """
    try:
        with _time_limits():
            return bool(_bounded(json.dumps(schema)).is_valid(value))
    except (ValueError, RecursionError):
        return False


@contextlib.contextmanager
def _time_limits() -> Iterator[None]:
    """Raise SlowExpressionError at the end if a regular expression exceeded its time limit inside this block."""
    exceeded: list[SlowExpressionError] = []
    token = _EXCEEDED.set(exceeded)
    try:
        yield
    finally:
        _EXCEEDED.reset(token)
        if exceeded:
            raise exceeded[0]


_EXCEEDED: ContextVar[list[SlowExpressionError]] = ContextVar("exceeded")


class _Pattern:
    """The keyword ``pattern`` with a time limit.

    The validator treats exceptions as violations, so it notes a timeout.
    """

    def __init__(self, _parent: dict[str, Any], pattern: str, _path: list[str | int]) -> None:
        self._pattern = pattern
        self._linear = _linear(pattern)
        if self._linear is None and not is_expression(pattern):
            raise ValueError(f'{json.dumps(pattern)} is not a "regex"')

    def validate(self, instance: Any) -> None:
        """Raise ValueError for text that does not match the expression."""
        if not isinstance(instance, str):
            return
        try:
            valid = self._linear.is_valid(instance) if self._linear else occurs(self._pattern, instance)
        except SlowExpressionError as error:
            _EXCEEDED.get().append(error)
            valid = False
        if not valid:
            raise ValueError(f"{json.dumps(instance)} does not match {json.dumps(self._pattern)}")


def _linear(pattern: str) -> jsonschema_rs.Validator | None:
    """Return a validator that needs linear time; None if the expression has lookarounds or backreferences."""
    try:
        return jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=jsonschema_rs.RegexOptions())
    except (jsonschema_rs.ValidationError, ValueError):
        return None


@functools.lru_cache(maxsize=4096)
def _bounded(schema: str) -> jsonschema_rs.Validator:
    return jsonschema_rs.Draft202012Validator(
        json.loads(schema), validate_formats=True, retriever=_no_reference, keywords={"pattern": _Pattern}
    )


@functools.lru_cache(maxsize=4096)
def _compiled(schema: str) -> jsonschema_rs.Validator:
    # The retriever refuses every reference, so a schema never causes access to the network or the disk.
    try:
        return jsonschema_rs.Draft202012Validator(
            json.loads(schema),
            validate_formats=True,
            retriever=_no_reference,
            pattern_options=jsonschema_rs.RegexOptions(),
        )
    except (jsonschema_rs.ValidationError, ValueError):  # a lookaround or a backreference, or an error in the schema
        return _bounded(schema)


def _no_reference(uri: str) -> Any:
    raise ValueError(f"the reference {uri!r} points outside the schema; include the definition")


def _messages(error: jsonschema_rs.ValidationError) -> list[tuple[Loc, str]]:
    """Return the error; for a choice of schemas, also the violations of the closest one, which the author can fix."""
    branches: list[list[jsonschema_rs.ValidationError]] = getattr(error.kind, "context", None) or []
    message = tuple(error.instance_path), error.message
    if not any(branches):
        return [message]
    # The schema that matches the value to the deepest level is most likely the intended one.
    nearest = max(branches, key=lambda branch: (max(len(e.instance_path) for e in branch), -len(branch)))
    return [message, *((tuple(part.instance_path), part.message) for part in nearest)]


def _location(path: Loc) -> str:
    return f"{format_location(path)}: " if path else ""
