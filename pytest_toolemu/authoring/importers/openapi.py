"""Tools of OpenAPI documents: each operation becomes one, with its parameters and its body as arguments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.authoring.importers.bounded_http import read_url, require_allowed
from pytest_toolemu.authoring.importers.published_tools import PublishedTool, PublishedToolkit, method_effect
from pytest_toolemu.authoring.importers.schema_converter import SchemaBounds, SchemaConverter
from pytest_toolemu.authoring.importers.sources import VOCABULARY, Notes, add_note, load_json, objects, read_file
from pytest_toolemu.errors import DocumentError, UsageError
from pytest_toolemu.formats.text import truncated
from pytest_toolemu.formats.yaml_document import Document, show, too_deep

Json = dict[str, Any]

BOUNDS: Final = SchemaBounds(depth=3, members=25)
"""Operations of large interfaces return whole objects, which would fill the context of an agent."""

_READS: Final = "OpenAPI 3 as JSON or YAML"
_MISSING: Final = "a reference that leads nowhere in the document is left out; bundle its files into one document first"
_METHODS: Final = ("get", "put", "post", "patch", "delete")
_MAX_NAME: Final = 200
_MAX_ABOUT: Final = 500


def read_openapi(source: str, seconds: float, *, offline: bool) -> PublishedToolkit:
    """Return the operations of a document in a file or at a URL. Raise UsageError if it cannot be read."""
    if "://" in source:
        require_allowed(source, offline=offline)
        text, name = read_url(source, seconds), source.partition("?")[0]
    else:
        text, name = read_file(Path(source), _READS), source
    document = _parsed(text, name)
    if not isinstance(document, dict) or not str(document.get("openapi", "")).startswith("3"):
        version = (
            f"Swagger {document['swagger']}" if isinstance(document, dict) and "swagger" in document else "neither"
        )
        problem = "is not OpenAPI 3" if version == "neither" else f"is {show(version)[1:-1]}; convert it first"
        raise UsageError(f"{name}: {problem}; this command reads {_READS}")
    if too_deep(document):
        raise UsageError(f"{name}: is nested too deeply; this command reads {_READS}")
    return operations(document, name)


def _parsed(text: str, name: str) -> Any:
    if text.lstrip()[:1] in ("{", "["):
        try:
            return load_json(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(
                f"{name}: is not JSON: {truncated(str(error), 200)}; this command reads {_READS}"
            ) from None
    try:
        return Document.parse_foreign(text, Path(name)).value
    except DocumentError as error:
        raise UsageError(f"{truncated(str(error), 300)}; this command reads {_READS}") from None


def operations(document: Json, name: str) -> PublishedToolkit:
    """Return the operations of a document. Raise UsageError if it has none."""
    notes: Notes = {}
    tools = tuple(_OperationReader(document, notes).tools())
    if not tools:
        problem = "has no operations under 'paths'; check that it is the intended document"
        raise UsageError(f"{name}: {problem}, and that it is one file without references to others")
    about = document.get("info")
    about = about if isinstance(about, dict) else {}
    title = truncated(str(about.get("title") or Path(name).name.partition(".")[0]), _MAX_NAME)
    origin = f"the interface {title} {truncated(str(about.get('version') or ''), 40)}".rstrip()
    description = truncated(" ".join(str(about.get("description") or "").split()), _MAX_ABOUT)
    return PublishedToolkit(title, origin, tools, description, document, BOUNDS, marks_directions=True, notes=notes)


class _OperationReader:
    """Reads the operations of one document, whose parts refer to one another."""

    def __init__(self, document: Json, notes: Notes) -> None:
        self._document, self._notes = document, notes
        self._converter = SchemaConverter(document, BOUNDS, "readOnly")

    def tools(self) -> Iterator[PublishedTool]:
        """Yield a tool for each operation."""
        paths = self._document.get("paths")
        for path, reference in paths.items() if isinstance(paths, dict) else ():
            item = self._object(reference)
            for method in _METHODS:
                operation = item.get(method)
                if isinstance(operation, dict):
                    yield self._tool(path, method, item, operation)

    def _tool(self, path: str, method: str, item: Json, operation: Json) -> PublishedTool:
        name = operation.get("operationId")
        name = truncated(name if isinstance(name, str) and name else f"{method}_{path.strip('/')}", _MAX_NAME)
        effect, effect_is_stated = method_effect(method, name)
        responses = operation.get("responses")
        responses = responses if isinstance(responses, dict) else {}
        good = next((responses[code] for code in sorted(responses) if code.startswith("2")), None)
        returns = _media_schema(self._object(good).get("content"), json_only=True)
        parameters, is_complete = self._parameters(item, operation)
        status = next((code for code in sorted(responses) if code in ("202", "204", "205")), None)
        text = operation.get("description") or operation.get("summary")
        return PublishedTool(
            name=name,
            description=" ".join(str(text or "").split()),
            parameters=parameters,
            parameters_are_stated=is_complete,
            returns=_status_only(status) if returns is None and status else returns,
            returns_are_stated=returns is not None,
            errors=self._errors(responses) or None,
            effect=effect,
            effect_is_stated=effect_is_stated,
        )

    def _parameters(self, item: Json, operation: Json) -> tuple[Json, bool]:
        """Return the parameters of path and query and the members of the body as one object, and whether all fit."""
        listed = [*objects(item.get("parameters")), *objects(operation.get("parameters"))]
        body = operation.get("requestBody")
        parameters = {(each.get("name"), each.get("in")): each for each in map(self._object, listed)}
        properties: Json = {}
        required: list[str] = []
        # What is sent in headers and cookies is the client's, and not the agent's.
        for (key, place), parameter in parameters.items():
            if isinstance(key, str) and place in ("path", "query"):
                properties[key] = self._parameter_schema(parameter)
                required += [key] * (parameter.get("required") is True)
        result = {"type": "object", "properties": properties, "required": required}
        is_complete = not any(map(self._is_missing, [*listed, body]))
        return self._with_body(result, self._object(body), is_complete=is_complete)

    def _parameter_schema(self, parameter: Json) -> Any:
        schema = parameter.get("schema")
        schema = _media_schema(parameter.get("content")) if schema is None else schema
        if not isinstance(schema, dict):
            return schema
        described = isinstance(parameter.get("description"), str)
        # The schema may be that of a member of objects, whose direction does not matter here.
        return {**schema, "readOnly": False, **({"description": parameter["description"]} if described else {})}

    def _with_body(self, parameters: Json, body: Json, *, is_complete: bool) -> tuple[Json, bool]:
        schema = _media_schema(body.get("content"))
        if self._is_missing(schema):
            schema, is_complete = self._object(schema) or None, False
        if not is_complete:  # What is missing stays possible, even if the body allows no other members.
            parameters = {**parameters, "additionalProperties": True}
        if schema is None:
            return {"additionalProperties": False, **parameters}, is_complete
        resolved = self._converter.resolved(schema)
        is_required = body.get("required") is True
        if not isinstance(resolved, dict) or not {"properties", "allOf"} & resolved.keys():
            required = [*parameters["required"], *(["body"] if is_required else [])]
            return {
                **parameters,
                "properties": {**parameters["properties"], "body": schema},
                "required": required,
            }, is_complete
        kept = resolved if is_required else {key: part for key, part in resolved.items() if key != "required"}
        return {**parameters, "allOf": [kept]}, is_complete

    def _errors(self, responses: Json) -> dict[str, str]:
        codes = [code for code in responses if len(code) == 3 and code.startswith("4")]
        texts = {code: self._object(responses[code]).get("description") for code in codes}
        return {
            VOCABULARY["statuses"].get(code, f"Status{code}"): str(text or f"HTTP status {code}.")
            for code, text in texts.items()
        }

    def _object(self, value: Any) -> Json:
        """Return the object that a value is or refers to; an empty one, and a note, if that is missing."""
        if self._is_missing(value):
            location = show(value["$ref"], 80)
            if location not in self._notes.get(_MISSING, ()):
                add_note(self._notes, _MISSING, location)
        resolved = self._converter.resolved(value)
        return resolved if isinstance(resolved, dict) else {}

    def _is_missing(self, value: Any) -> bool:
        """Return whether a value refers to a part that the document does not contain."""
        return value is not None and self._converter.resolved(value) is None


def _media_schema(content: Any, *, json_only: bool = False) -> Any:
    """Return the schema of a content: of JSON, or else of the first other type; None if there is none."""
    media: Json = content if isinstance(content, dict) else {}
    names = sorted(media, key=lambda name: ("json" not in name, "form" not in name))
    names = [name for name in names if "json" in name or not json_only]
    found = media[names[0]] if names else None
    return found.get("schema", {}) if isinstance(found, dict) else None


def _status_only(code: str) -> Json:
    return {"type": "object", "properties": {"status": {"type": "integer", "const": int(code)}}, "required": ["status"]}
