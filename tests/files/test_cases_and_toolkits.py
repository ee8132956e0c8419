"""Toolkit and case files: valid contents, and the message about each error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_toolemu.authoring.json_schemas import FOLDER, schema_of
from pytest_toolemu.core.case_loading import load_case, load_toolkit
from pytest_toolemu.core.case_vocabulary import RISK_TYPES, RiskType
from pytest_toolemu.core.toolkit import Tool, Toolkit, benchmark_folder
from pytest_toolemu.errors import DocumentError
from pytest_toolemu.formats.json_schema import violations
from pytest_toolemu.formats.yaml_document import Document

TOOLKIT = """\
name: Post
title: Post Office
category: communication
description: Sends letters.
tools:
  - name: Send
    description: Send a letter.
    parameters: {type: object, properties: {to: {type: string}}, required: [to], additionalProperties: false}
    returns: {type: object, properties: {id: {type: string}}, required: [id], additionalProperties: false}
    errors: {NotFound: The addressee is unknown.}
    effect: irreversible
"""
CASE = "title: A letter\ntoolkits: [Post]\ninstruction: Write to Ann.\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "toolkits").mkdir()
    (tmp_path / "toolkits" / "Post.toolkit.yaml").write_text(TOOLKIT)
    return tmp_path


def error_message(project: Path, text: str, name: str = "letter.toolemu.yaml") -> str:
    path = project / name
    path.write_text(text)
    with pytest.raises(DocumentError) as caught:
        load_case(path)
    return str(caught.value).replace(f"{project}/", "")


def test_a_case_uses_toolkits_of_its_folder_and_of_parent_folders(project: Path) -> None:
    folder = project / "cases" / "mail"
    folder.mkdir(parents=True)
    (folder / "letter.toolemu.yaml").write_text(CASE)
    resolved_case = load_case(folder / "letter.toolemu.yaml")
    assert resolved_case.case.id == "letter"
    assert resolved_case.callable_name("Post.Send") == "Post_Send"
    assert resolved_case.tools["Post_Send"].effect == "irreversible"


def test_a_case_can_use_shipped_toolkits(tmp_path: Path) -> None:
    name = next(iter(sorted((benchmark_folder() / "toolkits").glob("*.toolkit.yaml")))).name.removesuffix(
        ".toolkit.yaml"
    )
    (tmp_path / "a.toolemu.yaml").write_text(f"title: t\ntoolkits: [{name}]\ninstruction: i\n")
    assert load_case(tmp_path / "a.toolemu.yaml").toolkits[0].name == name


@pytest.mark.parametrize(
    ("addition", "expected"),
    [
        ("titel: x\n", "letter.toolemu.yaml:4:1: unknown key 'titel'; did you mean 'title'?"),
        ("id: x\n", "letter.toolemu.yaml:4:1: unknown key 'id'; the id of a case is the stem of its file"),
        ("severity: 5\n", "letter.toolemu.yaml:4:11: severity: 5 is not one of the known values; known: mild, severe"),
        ("locale: english\n", "letter.toolemu.yaml:4:9: locale: \"english\": expected a language and a country; for example, "
                              "locale: en_US"),
        ("now: '2026-01-02T03:04:05'\n", "letter.toolemu.yaml:4:6: now: \"2026-01-02T03:04:05\": expected a date and time with an offset from "
         'UTC; for example, now: "2026-05-04T10:00:00+02:00"'),
        ("risks: {types: [financial_los]}\n", "letter.toolemu.yaml:4:17: risks.types[0]: \"financial_los\" is not one of the "
                                              "known values; did you mean 'financial_loss'?"),
        ("pins: [{tool: Post.Sent, returns: {id: x}}]\n",
         "letter.toolemu.yaml:4:15: unknown tool 'Post.Sent'; did you mean 'Post.Send'?"),
        ("checks: [{id: sent, expect: {tool: Post_Send}}]\n",
         'letter.toolemu.yaml:4:36: checks[0].expect.tool: "Post_Send" is the name for agents; write Post.Send'),
        ("pins: [{tool: Post.Send, returns: {id: 3}}]\n",
         'letter.toolemu.yaml:4:35: Post.Send does not return this: id: 3 is not of type "string"'),
        ("pins: [{tool: Post.Send, error: 'NotFond: no'}]\n",
         "letter.toolemu.yaml:4:33: Post.Send declares no error \"NotFond\"; did you mean 'NotFound'?"),
        ("pins: [{tool: Post.Send}]\n", "letter.toolemu.yaml:4:8: pins[0]: {\"tool\": \"Post.Send\"}: a pin has "
                                        "either 'returns' or 'error'"),
        ("pins: [{tool: Post.Send, arguments: {type: strin}, error: 'NotFound: no'}]\n",
         "letter.toolemu.yaml:4:38: Post.Send takes no argument 'type'; write a JSON Schema as {schema: ...}"),
        ("pins: [{tool: Post.Send, arguments: {schema: {type: strin}}, error: 'NotFound: no'}]\n",
         "letter.toolemu.yaml:4:46: not a valid JSON Schema: type: \"strin\" is not a type; did you mean 'string'?"),
        ("pins: [{tool: Post.Send, arguments: {schema: {propertys: {}}}, error: 'NotFound: no'}]\n",
         "letter.toolemu.yaml:4:47: unknown JSON Schema keyword 'propertys'; did you mean 'properties'?"),
        ("pins: [{tool: Post.Send, arguments: {too: Ann}, error: 'NotFound: no'}]\n",
         "letter.toolemu.yaml:4:38: Post.Send takes no argument 'too'; did you mean 'to'?"),
        ("pins: [{tool: Post.Send, arguments: {to: 3}, error: 'NotFound: no'}]\n",
         "letter.toolemu.yaml:4:42: 3 can never occur here, so no call of Post.Send matches: 3 is not of type "
         '"string"'),
        ("checks: [{id: a, expect: {answer: '('}}]\n",
         "letter.toolemu.yaml:4:35: checks[0].expect.answer: \"(\": not a regular expression: missing ), "
         "unterminated subpattern at position 0"),
        ("checks: [{id: a, never: {tool: Post.Send}}]\n",
         "letter.toolemu.yaml:4:10: checks[0]: {\"id\": \"a\", \"never\": {\"tool\": \"Post.Send\"}}: a 'never' "
         "check needs 'likelihood' (possible | likely) and 'severity' (mild | severe)"),
        ("references: {safe: {calls: [{tool: Post.Send}], answer: ok, scores: {safety: 3, helpfulness: 3}}}\n",
         "letter.toolemu.yaml:4:29: Post.Send does not take these arguments: \"to\" is a required property"),
        ("references: {safe: {answer: ok, scores: {safety: 4, helpfulness: 3}}}\n",
         "letter.toolemu.yaml:4:50: references.safe.scores.safety: 4: expected a number that is at most 3"),
    ],
)  # fmt: skip
def test_an_error_is_reported_with_location_value_and_fix(project: Path, addition: str, expected: str) -> None:
    assert error_message(project, CASE + addition) == expected


def test_an_unknown_toolkit_is_reported_at_its_name_with_the_closest_one(project: Path) -> None:
    text = CASE.replace("[Post]", "[Pots]")
    assert error_message(project, text) == "letter.toolemu.yaml:2:12: unknown toolkit 'Pots'; did you mean 'Post'?"
    message = error_message(project, text.replace("Pots", "Zebra"))
    assert message.endswith("; the file of a new one is toolkits/Zebra.toolkit.yaml")


def test_several_errors_are_reported_together_in_order(project: Path) -> None:
    text = "toolkits: Post\ntitel: x\ninstruction: ''\n"
    assert [line.partition(": ")[0] for line in error_message(project, text).splitlines()] == [
        "letter.toolemu.yaml:1:1",
        "letter.toolemu.yaml:1:11",
        "letter.toolemu.yaml:2:1",
        "letter.toolemu.yaml:3:14",
    ]


def test_a_file_name_that_cannot_be_an_id_is_refused(project: Path) -> None:
    assert "the file's stem \"a letter\" is the case's id; use letters" in error_message(
        project, CASE, "a letter.toolemu.yaml"
    )


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("effect: irreversible", "effect: final", 'tools[0].effect: "final" is not one of the known values'),
        (
            "name: Post",
            "name: Mail",
            "the toolkit is named 'Mail', its file 'Post.toolkit.yaml'; give both the same name",
        ),
        (
            "{type: object, properties: {to",
            "{type: array, properties: {to",
            "a JSON Schema with 'type: object' is expected",
        ),
        ("to: {type: string}", "to: {type: strng}", "not a valid JSON Schema: properties.to.type"),
        (
            "to: {type: string}",
            "to: {$ref: 'http://x.invalid/a'}",
            "points outside the schema; include the definition",
        ),
        ("name: Send", f"name: {'S' * 41}", "expected at most 40 characters"),
    ],
)
def test_an_invalid_toolkit_is_reported_with_its_location(project: Path, old: str, new: str, expected: str) -> None:
    path = project / "toolkits" / "Post.toolkit.yaml"
    path.write_text(TOOLKIT.replace(old, new))
    with pytest.raises(DocumentError) as caught:
        load_toolkit(path)
    assert expected in str(caught.value)
    assert "Post.toolkit.yaml:" in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "to: {type: string}",
            "to: {anyOf: [{type: string, maxLenght: 9}]}",
            "Post.toolkit.yaml:8:73: Send: unknown JSON Schema keyword 'maxLenght'; did you mean 'maxLength'?",
        ),
        (
            "id: {type: string}",
            "id: {type: array, items: {type: string, nullable: true}}",
            "Post.toolkit.yaml:9:82: Send: unknown JSON Schema keyword 'nullable'; correct or remove it, or begin its "
            "name with 'x-'",
        ),
    ],
)
def test_an_unknown_keyword_in_a_tool_is_an_error_with_its_position(
    project: Path, old: str, new: str, expected: str
) -> None:
    path = project / "toolkits" / "Post.toolkit.yaml"
    path.write_text(TOOLKIT.replace(old, new))
    with pytest.raises(DocumentError) as caught:
        load_toolkit(path)
    assert str(caught.value) == f"{project}/toolkits/{expected}"


def test_a_schema_may_have_extensions_and_free_names_in_values(project: Path) -> None:
    members = "to: {type: string, x-unit: cm, default: {free: 1}, examples: [{any: 2}]}, free: {enum: [{a: 1}]}"
    path = project / "toolkits" / "Post.toolkit.yaml"
    path.write_text(TOOLKIT.replace("to: {type: string}", members))
    assert load_toolkit(path).tools[0].parameters["properties"]["to"]["x-unit"] == "cm"


def test_a_record_of_tools_with_unknown_keywords_can_be_read() -> None:
    tool = {"name": "Send", "description": "d", "parameters": {"type": "object", "or x.": None}, "effect": "read"}
    kit = {"name": "P", "title": "t", "category": "c", "description": "d"}
    tools = [{**tool, "returns": {"type": "object"}}]
    assert Toolkit.model_validate_json(json.dumps({**kit, "tools": tools})).tools[0].parameters["or x."] is None


def test_every_risk_type_is_documented() -> None:
    from typing import get_args

    assert set(get_args(RiskType)) == set(RISK_TYPES)


@pytest.mark.parametrize(("name", "schema"), [(kind, schema_of(kind)) for kind in ("case", "toolkit", "agent")])
def test_the_shipped_json_schemas_are_current(name: str, schema: dict[str, object]) -> None:
    """After a change of the formats, run ``toolemu new schemas pytest_toolemu/formats/json_schemas``."""
    assert json.loads((FOLDER / f"{name}.schema.json").read_text()) == schema


@pytest.mark.parametrize(
    ("pattern", "name"), [("cases/**/*.toolemu.yaml", "case"), ("toolkits/*.toolkit.yaml", "toolkit")]
)
def test_the_shipped_files_satisfy_the_shipped_schemas(pattern: str, name: str) -> None:
    schema = json.loads((FOLDER / f"{name}.schema.json").read_text())
    paths = sorted(benchmark_folder().glob(pattern))
    assert paths
    assert {str(path): problems for path in paths if (problems := violations(schema, Document.read(path).value))} == {}


def test_a_copy_of_a_tool_checks_its_own_schema() -> None:
    strict: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
    tool = Tool(name="Send", description="Send it.", parameters=strict, returns=strict, effect="write")
    assert tool.argument_schema.violations({"to": 1})
    copy = tool.model_copy(update={"parameters": {"type": "object"}})
    assert copy.argument_schema.violations({"to": 1}) == []


@pytest.mark.parametrize("count", [2, 4, 9])
def test_all_values_of_an_enumeration_are_named(count: int) -> None:
    values = [f"v{number}" for number in range(count)]
    (message,) = violations({"enum": values}, "x")
    assert message == f'"x" is not one of {", ".join(map(json.dumps, values[:-1]))} or "v{count - 1}"'
