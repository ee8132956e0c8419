"""``toolemu import tools openapi``: documents in JSON and YAML, from files and URLs, whatever they contain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_toolemu.core.case_loading import load_toolkit
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.formats.json_schema import conforms
from tests.authoring.tool_sources.imports import answered_offline, lint_rules, toolemu
from tests.usage_errors import message_of

DOCUMENT = """\
openapi: 3.0.3
info: {title: Berth Book, version: 1.2.0, description: Berths of a marina.}
paths:
  /berths/{berth}:
    parameters: [{$ref: '#/components/parameters/berth'}]
    get:
      operationId: berths/get
      summary: Get a berth
      parameters:
        - {name: since, in: query, schema: {type: string, format: date, example: 2020-01-01}}
        - {name: X-Trace, in: header, required: true, schema: {type: string}}
      responses:
        200: {content: {application/json: {schema: {$ref: '#/components/schemas/Berth'}}}}
        '404': {$ref: '#/components/responses/Missing'}
        default: {description: Anything.}
    patch:
      operationId: berths/rename
      requestBody:
        required: true
        content:
          application/x-www-form-urlencoded: {schema: {type: string}}
          application/json:
            schema:
              allOf:
                - {$ref: '#/components/schemas/Name'}
                - {properties: {depth: {type: number, minimum: 0, exclusiveMinimum: true, nullable: true}}, required: [depth]}
      responses:
        '200': {content: {application/json: {schema: {type: array, items: {$ref: '#/components/schemas/Berth'}}}}}
        '4XX': {description: On any mistake}
        '422': {description: ''}
    delete:
      responses: {'204': {description: No content.}}
  /pay:
    post:
      operationId: pay
      requestBody: {content: {application/json: {schema: {type: array, items: {type: number}}}}}
      responses: {}
    x-internal: [on, off]
components:
  parameters:
    berth: {name: berth, in: path, required: true, description: Its number., schema: {type: integer, format: int64}}
  responses:
    Missing: {description: No berth has this number}
  schemas:
    Name: {type: object, properties: {name: {type: string}, berth: {type: string}}, required: [name]}
    Berth:
      type: object
      properties:
        id: {type: integer}
        country: {type: string, enum: [NO, SE]}
        neighbor: {$ref: '#/components/schemas/Berth'}
      required: [id]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def imported(text: str, *options: str) -> Toolkit:
    Path("berths.yaml").write_text(text)
    output = toolemu("import", "tools", "openapi", "berths.yaml", *options)
    return load_toolkit(Path(output.partition(":")[0]).absolute())


def test_operations_become_tools(folder: Path) -> None:
    toolkit = imported(DOCUMENT)
    assert (toolkit.name, toolkit.title, toolkit.description) == ("BerthBook", "Berth Book", "Berths of a marina.")
    assert [(tool.name, tool.call_as, tool.effect, tool.inferred) for tool in toolkit.tools] == [
        ("BerthsGet", "berths_get", "read", ("call_as", "returns")),
        ("BerthsRename", "berths_rename", "write", ("call_as", "description", "returns", "effect")),
        ("DeleteBerthsBerth", "delete_berths_berth", "destructive", ("call_as", "description", "returns", "errors")),
        ("Pay", "pay", "irreversible", ("description", "returns", "errors", "effect")),
    ]
    path = folder / "toolkits/BerthBook.toolkit.yaml"
    assert answered_offline(path) == []
    assert lint_rules(path) == {"inferred"}


def test_parameters_and_body_become_arguments() -> None:
    get, rename, _, pay = imported(DOCUMENT).tools
    berth = {"type": "integer", "description": "Its number."}
    assert get.parameters == {
        "type": "object",
        "properties": {"berth": berth, "since": {"type": "string", "format": "date"}},
        "required": ["berth"],
        "additionalProperties": False,
    }
    depth = {"type": ["number", "null"], "exclusiveMinimum": 0}
    assert rename.parameters["properties"] == {"berth": berth, "name": {"type": "string"}, "depth": depth}
    assert rename.parameters["required"] == ["berth", "name", "depth"]
    assert pay.parameters["properties"] == {"body": {"type": "array", "items": {"type": "number"}}}


def test_responses_become_results_and_errors() -> None:
    get, rename, delete, pay = imported(DOCUMENT).tools
    assert get.returns["properties"]["country"] == {"type": "string", "enum": ["NO", "SE"]}
    assert get.returns["properties"]["neighbor"] == {"type": "object"}
    assert get.errors == {"NotFound": "No berth has this number"}
    assert rename.errors == {"Status4XX": "On any mistake", "ValidationFailed": "HTTP status 422."}
    assert rename.returns["properties"]["result"]["type"] == "array"
    assert delete.returns["properties"] == {"status": {"type": "integer", "const": 204}}
    assert list(pay.returns["properties"]) == ["text"]


SPLIT = """\
openapi: 3.0.3
info: {title: Split}
paths:
  /berths:
    get:
      operationId: list_berths
      parameters: [{$ref: 'shared.yaml#/Limit'}, {name: country, in: query, schema: {type: string}}]
      responses: {200: {$ref: 'shared.yaml#/Berths'}}
    put: {operationId: put_berth, requestBody: {$ref: 'shared.yaml#/Berth'}, responses: {}}
    post:
      operationId: add_berth
      parameters: [{$ref: 'shared.yaml#/Limit'}]
      requestBody: {content: {application/json: {schema: {properties: {name: {}}, additionalProperties: false}}}}
      responses: {}
    patch:
      operationId: change_berth
      requestBody: {required: true, content: {application/json: {schema: {$ref: 'berth.yaml'}}}}
      responses: {}
  /boats: {$ref: 'boats.yaml'}
"""


def test_references_to_other_files_stay_open_and_are_noted() -> None:
    Path("split.yaml").write_text(SPLIT)
    output = toolemu("import", "tools", "openapi", "split.yaml")
    assert (
        "note: a reference that leads nowhere in the document is left out; bundle its files into one document first: "
        '5 ("shared.yaml#/Berths", "shared.yaml#/Limit", "shared.yaml#/Berth" and 2 more)'
    ) in output
    toolkit = load_toolkit(Path("toolkits/Split.toolkit.yaml").absolute())
    assert [conforms(tool.parameters, {"limit": 5}) for tool in toolkit.tools] == [True] * 4
    assert all({"parameters", "returns"} <= set(tool.inferred) for tool in toolkit.tools)


DIRECTIONS = """\
openapi: 3.0.3
info: {title: Directions}
paths:
  /berths/{id}:
    put:
      operationId: put_berth
      parameters: [{name: id, in: path, required: true, schema: {$ref: '#/components/schemas/Id'}}]
      requestBody: {required: true, content: {application/json: {schema: {$ref: '#/components/schemas/Berth'}}}}
      responses: {200: {content: {application/json: {schema: {$ref: '#/components/schemas/Berth'}}}}}
components:
  schemas:
    Id: {type: integer, readOnly: true}
    Berth:
      type: object
      allOf:
        - {properties: {id: {$ref: '#/components/schemas/Id'}, made: {type: string, readOnly: true}}}
        - properties:
            name: {type: string}
            pin: {type: string, writeOnly: true}
            owner: {type: object, properties: {since: {type: string, readOnly: true}}, required: [since]}
      required: [id, made, name, pin]
      additionalProperties: false
"""


def test_members_of_the_other_direction_are_left_out() -> None:
    (tool,) = imported(DIRECTIONS).tools
    assert list(tool.parameters["properties"]) == ["id", "name", "pin", "owner"]
    assert tool.parameters["required"] == ["id", "name", "pin"]
    assert tool.parameters["properties"]["owner"] == {"type": "object", "properties": {}}
    assert list(tool.returns["properties"]) == ["id", "made", "name", "owner"]
    assert tool.returns["required"] == ["id", "made", "name"]
    assert "parameters" not in tool.inferred


def test_json_and_a_selection(folder: Path) -> None:
    document = {
        "openapi": "3.1.0",
        "paths": {f"/{name}": {"get": {"operationId": name, "responses": {}}} for name in ("ab", "cd")},
    }
    toolkit = imported(json.dumps(document), "--only", "^a", "--into", "toolkits/One.toolkit.yaml")
    assert [tool.call_as for tool in toolkit.tools] == ["ab"]
    assert (folder / "toolkits/One.toolkit.yaml").is_file()


def test_drift_of_a_renamed_operation_is_shown() -> None:
    imported(DOCUMENT)
    assert toolemu("import", "tools", "openapi", "berths.yaml", "--diff").startswith(
        "toolkits/BerthBook.toolkit.yaml: 0 "
    )
    Path("berths.yaml").write_text(DOCUMENT.replace("format: int64", "minimum: 7").replace("Get a berth", "Get one"))
    assert toolemu("import", "tools", "openapi", "berths.yaml", "--diff", status=1).splitlines() == [
        '~ berths_get: description: "Get a berth" became "Get one"',
        "~ berths_get: parameters.properties.berth.minimum: nothing became 7",
        "~ berths_rename: parameters.properties.berth.minimum: nothing became 7",
        "~ delete_berths_berth: parameters.properties.berth.minimum: nothing became 7",
        "toolkits/BerthBook.toolkit.yaml: 4 differences from the interface Berth Book 1.2.0",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1", "berths.yaml: is not OpenAPI 3; this command reads OpenAPI 3 as JSON or YAML"),
        ("swagger: '2.0'", "berths.yaml: is Swagger 2.0; convert it first; this command reads"),
        ("openapi: 3.0.0", "berths.yaml: has no operations under 'paths'; check that it is the intended document"),
        ("openapi: 3.0.0\npaths: {/a: 3, /b: {get: []}}", "berths.yaml: has no operations under 'paths'"),
        ("openapi: 3.0.0\npaths: {/a: {$ref: a.yaml}}", "berths.yaml: has no operations under 'paths'; check that it is the intended document, and that it is one file without references"),
        ('{"openapi": "3', "berths.yaml: is not JSON: Unterminated string"),
        ("[" * 50_000, "berths.yaml: is not JSON: maximum recursion depth exceeded"),
        ("- " * 2_000, "berths.yaml:1:121: nested deeper than 60 levels; this command reads"),
        ("a: !!python/object/apply:os.system [id]", "berths.yaml:1:4: the tag 'tag:yaml.org,2002:python/object/apply:os.sys"),
        ("a: &x [1]\nb: [*x, *x]", "berths.yaml:1:4: anchors and aliases (&name, *name) are not supported; repeat the"),
        ("a: [", "berths.yaml:2:1: YAML syntax"),
    ],
)  # fmt: skip
def test_other_documents_get_one_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    Path("berths.yaml").write_text(text)
    error = message_of(monkeypatch, capsys, "import", "tools", "openapi", "berths.yaml")
    assert error.startswith(message)
    assert error.count("\n") == 0


def test_a_remote_document_is_refused_offline(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOOLEMU_OFFLINE", "1")
    error = message_of(monkeypatch, capsys, "import", "tools", "openapi", "https://api.example/openapi.json")
    assert error.startswith("api.example: needs the network, but TOOLEMU_OFFLINE is set")


@pytest.mark.parametrize(
    "operation",
    [
        {"parameters": [3, {"$ref": "#/a"}, {"name": 1, "in": "path"}, {"name": "q", "in": "query", "content": {"a": 1}}]},
        {"requestBody": {"content": {"application/json": None}}, "responses": {"200": {"content": {"text/html": {}}}}},
        {"requestBody": {"$ref": "#/paths/~1a/get"}, "responses": {"200": {"$ref": "#/paths/~1a/get/responses/200"}}},
        {"requestBody": {"content": {"application/json": {"schema": {"properties": [1], "allOf": 3}}}}, "responses": [1]},
        {"operationId": "x" * 300, "description": ["a"], "responses": {"404": "a", "2": {}}},
    ],
)  # fmt: skip
def test_operations_of_any_form_are_answered_offline(folder: Path, operation: Any) -> None:
    imported(json.dumps({"openapi": "3.0.0", "info": [], "paths": {"/a": {"get": operation}}}))
    assert answered_offline(folder / "toolkits/Berths.toolkit.yaml") == []
