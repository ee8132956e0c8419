"""``toolemu import tools functions``: lists of functions as model providers take them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_toolemu.core.case_loading import load_toolkit
from tests.authoring.tool_sources.imports import PARAMETERS, toolemu
from tests.usage_errors import message_of

NAMED = {"name": "read_log", "description": "Read."}
FORMATS: dict[str, Any] = {
    "OpenAI": [{"type": "function", "function": {**NAMED, "parameters": PARAMETERS}}],
    "OpenAI, a request": {
        "model": "m",
        "tools": [{"type": "function", "function": {**NAMED, "parameters": PARAMETERS}}],
    },
    "OpenAI, formerly": {"functions": [{**NAMED, "parameters": PARAMETERS}]},
    "Responses": [{"type": "function", **NAMED, "parameters": PARAMETERS}, {"type": "web_search"}],
    "Anthropic": [{**NAMED, "input_schema": PARAMETERS}, {"type": "bash_20250124", "name": "bash"}],
    "LangChain, arguments": [{**NAMED, "args": PARAMETERS["properties"]}],
    "LangChain, schema": [{"title": "read_log", "description": "Read.", **PARAMETERS}],
    "Gemini": [
        {
            "functionDeclarations": [
                {**NAMED, "parameters": {"type": "OBJECT", "properties": {"path": {"type": "STRING"}}}}
            ]
        }
    ],
    "Gemini, snake case": {"tools": [{"function_declarations": [{**NAMED, "parameters_json_schema": PARAMETERS}]}]},
    "MCP": {"jsonrpc": "2.0", "id": 1, "result": {"tools": [{**NAMED, "inputSchema": PARAMETERS}]}},
    "one": {**NAMED, "parameters": PARAMETERS},
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("form", FORMATS)
def test_a_format_is_read(folder: Path, form: str) -> None:
    Path("boat-log.json").write_text(json.dumps(FORMATS[form]))
    output = toolemu("import", "tools", "functions", "boat-log.json")
    assert output.startswith("toolkits/BoatLog.toolkit.yaml: 1 tool\n")
    (tool,) = load_toolkit(folder / "toolkits/BoatLog.toolkit.yaml").tools
    assert (tool.call_as, tool.description) == ("read_log", "Read.")
    assert tool.parameters["properties"] == PARAMETERS["properties"]


def test_the_command_says_what_is_guessed_and_what_to_do() -> None:
    Path("boat-log.json").write_text(json.dumps([*FORMATS["Anthropic"], {**NAMED, "parameters": PARAMETERS}, {}]))
    output = toolemu("import", "tools", "functions", "boat-log.json")
    assert output.splitlines()[1:] == [
        "note: a tool that the provider executes itself is left out: 1 (bash)",
        "note: an entry without a name is left out: 1 ({})",
        "note: a tool is left out, because agents cannot tell its name from an earlier one: 1 (read_log)",
        "guessed, because the source does not state them: returns of 1 tool, errors of 1 tool, effect of 1 tool",
        "Next: check what 'inferred' lists, remove it, and run: toolemu lint toolkits/BoatLog.toolkit.yaml",
    ]


def test_drift_is_shown_and_exits_with_1() -> None:
    file = Path("boat-log.json")
    file.write_text(json.dumps(FORMATS["OpenAI"]))
    command = ("import", "tools", "functions", "boat-log.json")
    toolemu(*command)
    assert toolemu(*command, "--diff") == "toolkits/BoatLog.toolkit.yaml: 0 differences from the file boat-log.json\n"
    file.write_text(json.dumps([{**NAMED, "parameters": PARAMETERS, "description": "Read \u001b[2J."}]))
    assert toolemu(*command, "--diff", status=1).splitlines() == [
        '~ read_log: description: "Read." became "Read \\u001b[2J."',
        "toolkits/BoatLog.toolkit.yaml: 1 difference from the file boat-log.json",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "boat-log.json: cannot be read: No such file or directory; this command reads a JSON list of functions"),
        ("{", "boat-log.json:1: is not JSON: Expecting property name enclosed in double quotes; this command reads"),
        ("[" * 100_000, "boat-log.json: is nested too deeply; this command reads"),
        ("!!python/object:os.system", "boat-log.json:1: is not JSON: Expecting value; this command reads"),
        ("[]", "boat-log.json: contains no tools; this command reads"),
        ('"\xff"', "boat-log.json: is not UTF-8 text; this command reads"),
    ],
)
def test_a_file_that_is_not_valid_gets_one_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], content: str | None, message: str
) -> None:
    if content is not None:
        Path("boat-log.json").write_bytes(content.encode("latin-1"))
    assert message_of(monkeypatch, capsys, "import", "tools", "functions", "boat-log.json").startswith(message)
