"""JSON Schema, as tools declare their arguments and returns with it (draft 2020-12)."""

from __future__ import annotations

import functools
import itertools
import json
from contextvars import ContextVar
from typing import Any, Final

import jsonschema_rs

from pytest_toolemu.formats.regular_expressions import SlowExpressionError, occurs
from pytest_toolemu.formats.yaml_document import closest

_MAX_PROBLEMS: Final = 20
_TYPES: Final = ("array", "boolean", "integer", "null", "number", "object", "string")


def schema_problem(schema: Any) -> str | None:
    """What is wrong with a schema itself, or None."""
    return _problem(json.dumps(schema))


# By its text: the records of a session hold the same few hundred schemas a thousand times.
@functools.lru_cache(maxsize=4096)
def _problem(text: str) -> str | None:
    try:
        jsonschema_rs.meta.validate(json.loads(text))
    except jsonschema_rs.ValidationError as error:
        return f"{_place(error)}{_fault(error)}"
    except ValueError as error:
        return str(error)
    try:
        _compiled(text)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        return str(error).splitlines()[0]
    return None


def _fault(error: jsonschema_rs.ValidationError) -> str:
    """What is wrong with a part of a schema; the meta-schema's own words for a wrong type name no type."""
    if not (list(error.instance_path)[-1:] == ["type"] and "anyOf" in error.message):
        return error.message
    name = error.instance if isinstance(error.instance, str) else ""
    return f"{json.dumps(error.instance)} is no type{closest(name, _TYPES)}"


def violations(schema: dict[str, Any], value: Any) -> list[str]:
    """Every way in which a value breaks the schema, as ``place: message``; empty when it conforms.

    Formats (date, email, uri, ...) are enforced. At most 20 problems are returned.
    """
    try:
        errors = itertools.islice(_compiled(json.dumps(schema)).iter_errors(value), _MAX_PROBLEMS)
        return [text for error in errors for text in _messages(error)]
    except (ValueError, RecursionError):  # what the validator makes of some 255 levels and more
        return ["the value is nested too deeply"]


def conforms(schema: dict[str, Any], value: Any) -> bool:
    """Whether there are no ``violations``, told a hundred times as fast where there are many."""
    try:
        return _compiled(json.dumps(schema)).is_valid(value)
    except (ValueError, RecursionError):
        return False


def matches(schema: dict[str, Any], value: Any) -> bool:
    """Return the same for a schema of a case file, with a time limit on each of its regular expressions.

    Raise SlowExpressionError where that is not enough.
    """
    late: list[SlowExpressionError] = []
    token = _LATE.set(late)
    try:
        valid = bool(_bounded(json.dumps(schema)).is_valid(value))
    except (ValueError, RecursionError):
        return False
    finally:
        _LATE.reset(token)
    if late:
        raise late[0]
    return valid


_LATE: ContextVar[list[SlowExpressionError]] = ContextVar("late")


class _Pattern:
    """The keyword ``pattern`` as the validator asks it. What it raises is a violation there, so it leaves a note."""

    def __init__(self, _parent: dict[str, Any], pattern: str, _path: list[str | int]) -> None:
        self._pattern = pattern
        self._linear = _linear(pattern)

    def validate(self, instance: Any) -> None:
        """Raise ValueError for a text in which the expression is not found."""
        if not isinstance(instance, str):
            return
        try:
            valid = self._linear.is_valid(instance) if self._linear else occurs(self._pattern, instance)
        except SlowExpressionError as error:
            _LATE.get().append(error)
            valid = False
        if not valid:
            raise ValueError(self._pattern)


def _linear(pattern: str) -> jsonschema_rs.Validator | None:
    """Return a validator that needs linear time; None where the expression has lookarounds or backreferences."""
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
    # No retriever is given, and none by default for http: a schema never reaches the network or the disk.
    return jsonschema_rs.Draft202012Validator(json.loads(schema), validate_formats=True, retriever=_no_reference)


def _no_reference(uri: str) -> Any:
    raise ValueError(f"the reference {uri!r} leads outside the schema; write the definition out")


def _messages(error: jsonschema_rs.ValidationError) -> list[str]:
    """The error; for a choice of schemas, what the nearest of them objects to, which is what can be mended."""
    branches: list[list[jsonschema_rs.ValidationError]] = getattr(error.kind, "context", None) or []
    told = f"{_place(error)}{error.message}"
    if not any(branches):
        return [told]
    # The branch that got deepest into the value is the one that was meant.
    nearest = max(branches, key=lambda branch: (max(len(e.instance_path) for e in branch), -len(branch)))
    return [told, *(f"{_place(part)}{part.message}" for part in nearest)]


def _place(error: jsonschema_rs.ValidationError) -> str:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path)
    return f"{path.lstrip('.')}: " if path else ""
