"""Published tools become a valid, commented toolkit that is answered offline; guesses are marked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pytest_toolemu.authoring.importers.published_tools import (
    PublishedTool,
    PublishedToolkit,
    default_path,
    differences,
    import_toolkit,
    selected,
)
from pytest_toolemu.core.case_loading import load_toolkit
from pytest_toolemu.core.toolkit import Tool
from pytest_toolemu.errors import UsageError
from tests.authoring.tool_sources.imports import PARAMETERS, answered_offline, lint_rules, published


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "toolkits" / "BoatShed.toolkit.yaml"


def tool_of(path: Path, tool: PublishedTool) -> Tool:
    import_toolkit(published(tool), path, "")
    return load_toolkit(path).tools[0]


def test_names_are_kept_for_agents(path: Path) -> None:
    tool = tool_of(path, PublishedTool("read_log", "Read.", PARAMETERS))
    assert (tool.name, tool.call_as) == ("ReadLog", "read_log")


def test_what_the_source_does_not_say_is_guessed_and_marked(path: Path) -> None:
    tool = tool_of(path, PublishedTool("delete_log", "Delete.", PARAMETERS))
    assert tool.inferred == ("returns", "errors", "effect")
    assert list(tool.errors) == ["NotFound", "Failed"]
    assert tool.effect == "destructive"
    assert tool.returns["required"] == ["text"]
    assert lint_rules(path) == {"inferred"}
    assert answered_offline(path) == []


def test_what_the_source_says_is_not_marked(path: Path) -> None:
    returns = {"type": "object", "properties": {"lines": {"type": "integer"}}, "required": ["lines"]}
    tool = tool_of(
        path,
        PublishedTool("read_log", "Read.", PARAMETERS, returns=returns, errors={"no such log": "Gone."}, effect="read"),
    )
    assert (tool.inferred, tool.errors, tool.returns) == ((), {"NoSuchLog": "Gone."}, returns)
    assert lint_rules(path) == set()


def test_secrets_of_the_environment_are_not_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "boat-Zq81kkPplw0"
    monkeypatch.setenv("BOAT_API_KEY", secret)
    parameters = {"type": "object", "properties": {"key": {"type": "string", "default": secret}}}
    source = PublishedToolkit("Shed", f"the shed of {secret}", (PublishedTool("read", f"Use {secret}.", parameters),))
    import_toolkit(source, path, "")
    tool = load_toolkit(path).tools[0]
    assert (tool.description, tool.parameters["properties"]["key"]["default"]) == (
        "Use [BOAT_API_KEY redacted].",
        "[BOAT_API_KEY redacted]",
    )
    assert secret not in path.read_text()


def test_the_file_is_commented(path: Path) -> None:
    import_toolkit(published(), path, "")
    text = path.read_text()
    assert re.match(
        r"# yaml-language-server: \$schema=\.\./\S+/toolkit.schema.json\n# 1 tool of the boat shed\.\n", text
    )
    assert (
        "    # A guess: read, write (can be undone), destructive (data is lost), or irreversible.\n    effect: read\n"
        in text
    )


@pytest.mark.parametrize(
    ("returns", "member"),
    [
        pytest.param({"type": "array", "items": {"type": "string"}}, "result", id="list"),
        pytest.param({"type": "string"}, "result", id="text"),
        pytest.param({"anyOf": [{"type": "object"}, {"type": "null"}]}, "result", id="choice"),
        pytest.param(
            {"type": "object", "properties": {"n": {"type": "integer", "minimum": 5, "maximum": 2}}}, "text", id="odd"
        ),
        pytest.param(
            {"type": "object", "properties": {"n": {"minimum": 5, "maximum": 2}}, "required": ["n"]},
            "n",
            id="untyped",
        ),
        pytest.param({"type": "object", "required": ["n"], "properties": {"n": False}}, "text", id="impossible"),
        pytest.param(
            {"type": "object", "properties": {}, "additionalProperties": False, "minProperties": 1}, "text", id="no"
        ),
    ],
)
def test_every_result_can_be_generated_offline(path: Path, returns: Any, member: str) -> None:
    tool = tool_of(path, PublishedTool("read_log", "Read.", PARAMETERS, returns=returns))
    assert member in tool.returns["properties"]
    assert answered_offline(path) == []


HOSTILE = (
    PublishedTool("rm -rf / # '\"", "A\u202eB\x07 !!python/object: &a *a", PARAMETERS),
    PublishedTool("rm_-rf", "The same name after cleaning.", None),
    PublishedTool("日本語", "x" * 5_000_000, {"type": "array"}),
    PublishedTool("n" * 3000, "", {"$ref": "#"}, returns={"$ref": "#"}),
    PublishedTool(
        "yes", "---\n# comment\n\x85...\n%TAG", {"properties": {"on": {"default": "2020-01-01"}, "a\nb": {}}}
    ),
    PublishedTool("write.log", "null", PARAMETERS, errors={"": "", "1": "?"}),
    PublishedTool("write_log", "Dots and underscores are one name for providers.", PARAMETERS),
)


def test_hostile_text_is_data(path: Path) -> None:
    source = PublishedToolkit("Shed\n!!x", "a \x1b[31mred\nserver", HOSTILE, "z" * 5_000_000)
    result = import_toolkit(source, path, "")
    tools = load_toolkit(path).tools
    assert [tool.call_as for tool in tools] == ["rm_-rf", "tool", "n" * 64, "yes", "write.log"]
    assert tools[0].description == HOSTILE[0].description
    assert len(tools[1].description) == 20_000
    assert sum("call_as" in tool.get("inferred", ()) for tool in result) == 3
    assert "\x1b" not in path.read_text()
    assert lint_rules(path) == {"inferred", "invisible"}
    assert source.notes == {
        "a tool is left out, because agents cannot tell its name from an earlier one": ["rm_-rf", "write_log"]
    }
    assert answered_offline(path) == []


class TestSelection:
    TOOLS = tuple(PublishedTool(f"tool_{number}") for number in range(41))

    def test_more_than_40_tools_must_be_selected(self) -> None:
        with pytest.raises(
            UsageError, match=r"has 41 tools; select .* --only '\^\(tool_0\|tool_1\)\$', or select all with --only \."
        ):
            selected(self.TOOLS, "")
        assert len(selected(self.TOOLS, ".")) == 41

    def test_a_selection_is_an_expression(self) -> None:
        assert [tool.name for tool in selected(self.TOOLS, "_1?0$")] == ["tool_0", "tool_10"]

    @pytest.mark.parametrize(
        ("only", "message"),
        [
            ("(", r'--only "\(": is not a regular expression; correct it'),
            ("tol_0", r'--only "tol_0": matches none of 41 tools; did you mean \'tool_0\'\?'),
        ],
    )
    def test_mistakes_are_named(self, only: str, message: str) -> None:
        with pytest.raises(UsageError, match=message):
            selected(self.TOOLS, only)


class TestFile:
    def test_the_default_is_named_by_the_source(self) -> None:
        assert default_path(published()) == Path("toolkits/BoatShed.toolkit.yaml")

    def test_a_file_that_exists_is_kept(self, path: Path) -> None:
        import_toolkit(published(), path, "")
        with pytest.raises(UsageError, match="already exists and was not changed; compare it with --diff"):
            import_toolkit(published(), path, "")

    def test_a_file_has_the_name_of_a_toolkit(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"shed\.yaml: the file's name must be NAME\.toolkit\.yaml"):
            import_toolkit(published(), tmp_path / "shed.yaml", "")

    def test_a_file_that_would_be_too_large_is_not_written(self, path: Path) -> None:
        many = [PublishedTool(f"t{number}", "x" * 19_000) for number in range(60)]
        with pytest.raises(UsageError, match="exceed the maximum of 1,000,000 bytes; select fewer tools with"):
            import_toolkit(published(*many), path, ".")
        assert not path.exists()


class TestDrift:
    OLD = PublishedTool("read_log", "Read.", PARAMETERS, effect="read")

    def drift(self, path: Path, *tools: PublishedTool, only: str = "") -> list[str]:
        import_toolkit(published(self.OLD, PublishedTool("add_line", "Add.", PARAMETERS)), path, "")
        return differences(published(*tools), path, only)

    def test_there_is_none(self, path: Path) -> None:
        assert self.drift(path, self.OLD, PublishedTool("add_line", "Add.", PARAMETERS)) == []

    def test_what_a_person_corrected_is_none(self, path: Path) -> None:
        self.drift(path, self.OLD)
        corrected = re.sub(r"effect: write\n.*?\n(?=\S|$)", "effect: irreversible\n", path.read_text(), flags=re.DOTALL)
        path.write_text(corrected)
        assert load_toolkit(path).tools[1].effect == "irreversible"
        assert differences(published(self.OLD, PublishedTool("add_line", "Add.", PARAMETERS)), path, "") == []

    def test_descriptions_and_parameters_that_only_the_file_has_are_none(self, path: Path) -> None:
        source = published(PublishedTool("sink"))
        import_toolkit(source, path, "")
        path.write_text(
            path.read_text()
            .replace("Imported without a description.", "Sink a boat.")
            .replace("properties: {}", "properties: {boat: {type: string}}")
        )
        (tool,) = load_toolkit(path).tools
        assert (tool.description, list(tool.parameters["properties"])) == ("Sink a boat.", ["boat"])
        assert differences(source, path, "") == []

    def test_tools_come_and_go(self, path: Path) -> None:
        assert self.drift(path, self.OLD, PublishedTool("sink")) == [
            "+ sink: only the source has it",
            "- add_line: only the file has it",
        ]

    def test_a_selection_applies_to_both(self, path: Path) -> None:
        assert self.drift(path, self.OLD, PublishedTool("sink"), only="^read") == []

    def test_a_selection_is_of_names_of_the_source(self, path: Path) -> None:
        source = published(PublishedTool("log/read", "Read."), PublishedTool("log/read_all", "Read."))
        import_toolkit(source, path, "")
        assert differences(source, path, "^log/") == []
        assert differences(source, path, "read$") == []
        # As a call, the other name also matches this selection.
        assert differences(source, path, "/read$|_read_all") == []
        assert differences(published(PublishedTool("log/read", "Read.")), path, "read") == [
            "- log_read_all: only the file has it"
        ]

    def test_changed_parts_are_named(self, path: Path) -> None:
        now = {"type": "object", "properties": {"path": {"type": "integer"}, "all": {}}, "required": ["path"]}
        changed = PublishedTool(
            "read_log",
            "Read, then report.",
            now,
            returns={"type": "object"},
            errors={"Gone": "It is gone."},
            effect="write",
        )
        assert self.drift(path, changed, only="^read") == [
            '~ read_log: description: "Read." became "Read, then report."',
            '~ read_log: parameters.properties.path.type: "string" became "integer"',
            "~ read_log: parameters.properties.all: nothing became {}",
            '~ read_log: returns.properties: {"text": {"type": "string", "description": "What the tool replies."}} became nothing',
            '~ read_log: returns.required: ["text"] became nothing',
            '~ read_log: errors.NotFound: "The object named by the arguments does not exist." became nothing',
            '~ read_log: errors.Failed: "The call failed; the message says why." became nothing',
            '~ read_log: errors.Gone: nothing became "It is gone."',
            '~ read_log: effect: "read" became "write"',
        ]

    def test_a_file_must_be_there(self, path: Path) -> None:
        with pytest.raises(UsageError, match="does not exist; first write it without --diff"):
            differences(published(), path, "")
