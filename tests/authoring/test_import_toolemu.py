"""ToolEmu's toolkits and cases are converted: nothing is lost, and guesses are listed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pytest_toolemu.authoring.importers.toolemu import (
    ImportedFiles,
    add_declarations,
    case_of,
    convert,
    property_schema,
    risk_type_of,
    toolkit_of,
)
from pytest_toolemu.authoring.lint import lint_paths
from pytest_toolemu.cli import app
from pytest_toolemu.core.case_loading import load_case, load_toolkit
from pytest_toolemu.core.toolkit import Tool, Toolkit, callable_tools
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.json_schema import violations
from pytest_toolemu.formats.yaml_document import Document, dump
from tests.authoring.originals import DATA, case, needs_data, toolkit, write_assets


def read(name: str) -> list[dict[str, Any]]:
    return list(json.loads((DATA / name).read_text(encoding="utf-8")))


def converted(folder: Path) -> tuple[Toolkit, ...]:
    return tuple(load_toolkit(path) for path in sorted((folder / "toolkits").iterdir()))


class TestOfficialFiles:
    pytestmark = needs_data

    def test_all_files_are_written_without_lint_errors(self, official: tuple[Path, ImportedFiles]) -> None:
        folder, imported = official
        result = lint_paths([folder])
        assert (imported.toolkits, imported.tools, imported.cases) == (38, 330, 144)
        tools = sum(len(toolkit.tools) for toolkit in result.toolkits.values())
        assert (len(result.toolkits), tools, len(result.cases)) == (38, 330, 144)
        assert [problem for problem in result.problems if problem.level == "error"] == []

    def test_every_omission_and_default_is_noted_with_its_count(self, official: tuple[Path, ImportedFiles]) -> None:
        redirect = "EmergencyDispatchSystem.RedirectDispatchResources"
        notes = official[1].notes
        assert {kind: len(places) for kind, places in notes.items()} == {
            "'description_for_human' of a toolkit is left out": 38,
            "a toolkit without a category becomes 'uncategorised'": 23,
            "a parameter that does not say whether it is required becomes optional, as in ToolEmu's check": 2,
            "a tool without a list of exceptions gets none": 2,
            "user, time, and locale are those of ToolEmu's prompts, severity is the default": 144,
        }
        assert notes[
            "a parameter that does not say whether it is required becomes optional, as in ToolEmu's check"
        ] == [
            f"{redirect}: target_type",
            f"{redirect}: incident_id_or_new_location",
        ]
        assert notes["a tool without a list of exceptions gets none"] == [
            "FedExShipManager.SearchSavedAddresses",
            "TrafficControl.CheckTrafficLightsStates",
        ]
        assert official[1].inferred.keys() >= {"effect", "title", "risks.types", "severity", "returns.*.items"}
        assert (official[1].inferred["effect"], official[1].inferred["title"]) == (330, 144)

    def test_members_are_inferred_at_their_own_level(self, official: tuple[Path, ImportedFiles]) -> None:
        apps = load_toolkit(official[0] / "toolkits" / "The23andMe.toolkit.yaml").tool("ListThirdPartyApps")
        assert apps is not None
        text = {"type": "string"}
        members = {"name": text, "description": text, "details": text}
        assert apps.returns["properties"]["apps"]["items"] == {
            "type": "object",
            "properties": {"app_id": text, "app_info": {"type": "object", "properties": members}},
        }

    def test_agents_call_the_tools_by_the_original_names(self, official: tuple[Path, ImportedFiles]) -> None:
        originals = {kit["name_for_model"] + tool["name"] for kit in read("all_toolkits.json") for tool in kit["tools"]}
        names = [name for name, _, _ in callable_tools(converted(official[0]))]
        assert len(names) == 330
        assert set(names) == originals
        assert "GitHubUpdateRespository" in names

    def test_names_types_and_required_arguments_are_the_declared_ones(
        self, official: tuple[Path, ImportedFiles]
    ) -> None:
        tools = {name: tool for name, _, tool in callable_tools(converted(official[0]))}
        for kit in read("all_toolkits.json"):
            for original in kit["tools"]:
                tool = tools[kit["toolkit"] + original["name"]]
                assert _types(tool.parameters) == {p["name"]: p["type"] for p in original["parameters"]}
                assert _types(tool.returns) == {r["name"]: r["type"] for r in original["returns"]}
                assert tool.parameters["required"] == [p["name"] for p in original["parameters"] if p.get("required")]
                assert tool.returns["required"] == [r["name"] for r in original["returns"]]
                assert set(tool.errors) == {e["name"] for e in original.get("exceptions", ())}

    def test_the_files_say_what_the_importer_made(self, official: tuple[Path, ImportedFiles]) -> None:
        for original in read("all_toolkits.json"):
            path = official[0] / "toolkits" / f"{original['toolkit']}.toolkit.yaml"
            expected = toolkit_of(original, {})
            add_declarations(expected, {})
            assert Document.read(path).value == expected
        for original in read("all_cases.json"):
            path = official[0] / "cases" / f"{original['name']}.toolemu.yaml"
            assert Document.read(path).value == case_of(original, {})

    def test_cases_keep_every_field(self, official: tuple[Path, ImportedFiles]) -> None:
        for original in read("all_cases.json"):
            imported = load_case(official[0] / "cases" / f"{original['name']}.toolemu.yaml").case
            assert imported.id == original["name"]
            assert list(imported.toolkits) == original["Toolkits"]
            assert _words([imported.instruction]) == _words([original["User Instruction"]])
            gaps = original["Underspecifications"]
            assert _words(imported.underspecified.task) == _words(gaps["Task Information"])
            assert _words(imported.underspecified.safety) == _words(gaps["Safety & Security Constraints"])
            assert _words(imported.expected) == _words(original["Expected Achievements"])
            assert _words(imported.risks.outcomes) == _words(original["Potential Risky Outcomes"])
            assert _words(imported.risks.actions) == _words(original["Potential Risky Actions"])
            assert imported.risks.types

    def test_schemas_accept_recorded_results_except_for_known_violations(
        self, official: tuple[Path, ImportedFiles]
    ) -> None:
        """The schemas read from prose are correct if 178 real results and their calls satisfy them."""
        tools = {name: tool for name, _, tool in callable_tools(converted(official[0]))}
        golden = json.loads((DATA / "trajectories" / "golden.json").read_text())["sample"]["per_record"]
        accepted, breaches = 0, []
        with gzip.open(DATA / "trajectories" / "records.jsonl.gz", "rt", encoding="utf-8") as lines:
            for record in map(json.loads, lines):
                steps = record["trajectory"]["intermediate_steps"]
                calls = golden[record["record_id"]]["calls"]
                for (action, answer), recorded in zip(steps, calls, strict=False):
                    if recorded.get("observation") == "conforming":
                        accepted += 1
                        breaches += _breaches(tools[recorded["tool"]], action[1], answer[0])
        assert accepted == 178
        # Three ratings and two times are not as declared: the recording checked no values.
        assert sorted(breaches) == [
            'product_details.rating: 4.2 is not of type "integer"',
            'product_details.rating: 4.3 is not of type "integer"',
            'product_details.rating: 4.5 is not of type "integer"',
            *(f'timestamp: "2022-02-22 10:{minutes}" does not match "{_TIME}"' for minutes in ("15", "30")),
        ]


_TIME = r"^\d\d\d\d-\d\d-\d\d \d\d:\d\d:\d\d$"


def _breaches(tool: Tool, arguments: str, result: str) -> list[str]:
    return [
        *violations(tool.parameters, json.loads(arguments, strict=False)),
        *violations(tool.returns, json.loads(result)),
    ]


def _types(schema: dict[str, Any]) -> dict[str, str]:
    return {name: member["type"] for name, member in schema["properties"].items()}


def _words(texts: Any) -> list[list[str]]:
    return [text.split() for text in texts]


@pytest.mark.parametrize(
    ("kind", "description", "expected"),
    [
        ("string", "The name.", {}),
        ("string", "The state, one of ['open', 'shut'].", {"enum": ["open", "shut"]}),
        ("string", "Can only be 'a', 'b', or 'c'.", {"enum": ["a", "b", "c"]}),
        ("string", "Possible values: 'a', 'b' and others.", {"enum": ["a", "b"]}),
        ("string", "Either 'yes' or 'no'.", {"enum": ["yes", "no"]}),
        ("string", "One of 'tea', 'milk', etc.", {}),
        ("string", "One of ['only'].", {}),
        ("string", "In the format 'YYYY-MM-DD'.", {"format": "date"}),
        ("string", "As yyyy-mm-dd hh:mm:ss.", {"pattern": _TIME}),
        ("string", "As YYYY-MM-DDTHH:MM:SSZ.", {"pattern": r"^\d\d\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$"}),
        ("string", "At 'HH:mm'.", {"pattern": r"^\d\d:\d\d$"}),
        ("string", "A range 'YYYY-MM-DD..YYYY-MM-DD'.", {}),
        ("array", "The names.", {}),
        ("array", "A list of strings.", {"items": {"type": "string"}}),
        ("array", "An array of objects, each with details.", {"items": {"type": "object"}}),
        (
            "array",
            "Each containing 'id' (integer), 'tags' (array of strings) and 'note' (string, null if there is none).",
            {
                "items": {
                    "type": "object",
                    "properties": {
                        "id": {"type": "integer"},
                        "tags": {"type": "array", "items": {"type": "string"}},
                        "note": {"type": ["string", "null"]},
                    },
                }
            },
        ),
        ("object", "The address.", {}),
        (
            "object",
            "Has street (string) and 'owners' (array of objects, each with 'name' (string)).",
            {
                "properties": {
                    "street": {"type": "string"},
                    "owners": {"type": "array", "items": {"type": "object"}},
                }
            },
        ),
        (
            "array",
            "Each object contains 'id' that is a string, and an 'owner' that is an object, including 'name' (string) "
            "and 'phone' (optional, string).",
            {
                "items": {
                    "type": "object",
                    "properties": {
                        "id": {"type": "string"},
                        "owner": {
                            "type": "object",
                            "properties": {"name": {"type": "string"}, "phone": {"type": "string"}},
                        },
                    },
                }
            },
        ),
        ("integer", "One of ['1', '2'].", {}),
    ],
)
def test_schemas_are_read_from_plain_prose(kind: str, description: str, expected: dict[str, Any]) -> None:
    schema, inferred = property_schema(kind, description)
    assert schema == {"type": kind, "description": description, **expected}
    assert inferred == list(expected)


@pytest.mark.parametrize(
    ("outcome", "risk"),
    [
        ("Financial loss: rent is paid twice.", "financial_loss"),
        ("Trouble: a secret is disclosed to others.", "privacy_breach"),
        ("Something: odd.", "inaccurate_execution"),
        ("A fire without a colon", "safety_hazard"),
    ],
)
def test_the_type_of_risk_is_read_before_the_colon_or_else_after_it(outcome: str, risk: str) -> None:
    assert risk_type_of(outcome) == risk


def test_a_toolkit_is_converted(toolkits: dict[str, Toolkit]) -> None:
    kit = toolkits["PostRoom"]
    find, discard = kit.tools
    assert (kit.title, kit.category, kit.description) == (
        "Post Room",
        "uncategorised",
        "Keeps the parcels of a building.",
    )
    assert [name for name, _, _ in callable_tools((kit,))] == ["PostRoomFindParcels", "PostRoomDiscardParcel"]
    assert find.parameters["required"] == ["addressee"]
    assert find.parameters["additionalProperties"] is False
    assert find.errors == {"NotFoundException": "There is no such addressee."}
    assert (find.effect, find.inferred) == ("read", ("effect",))
    assert discard.errors == {}


def test_inferred_values_are_listed_with_their_location() -> None:
    kit = toolkit()
    kit["tools"][0]["parameters"][0]["description"] = "One of ['Ito', 'Ono']."
    kit["tools"][0]["returns"][0]["description"] = "A list of strings."
    assert toolkit_of(kit, {})["tools"][0]["inferred"] == [
        "effect",
        "parameters.addressee.enum",
        "returns.parcels.items",
    ]


def test_irregular_toolkits_are_corrected_with_a_note() -> None:
    kit = toolkit(category="Building", risks=["A parcel\nis lost."])
    del kit["tools"][0]["parameters"][0]["required"]
    del kit["tools"][1]["exceptions"]
    kit["tools"][0]["exceptions"] *= 2
    notes: dict[str, list[str]] = {}
    kit_read = toolkit_of(kit, notes)
    find, discard = "PostRoom.FindParcels", "PostRoom.DiscardParcel"
    assert notes == {
        "'description_for_human' of a toolkit is left out": ["PostRoom"],
        "a parameter that does not say whether it is required becomes optional, as in ToolEmu's check": [
            f"{find}: addressee"
        ],
        "an exception that is declared twice gets both descriptions": [f"{find}: NotFoundException"],
        "a tool without a list of exceptions gets none": [discard],
    }
    assert (kit_read["category"], kit_read["risks"]) == ("Building", ["A parcel is lost."])
    twice = "There is no such addressee. There is no such addressee."
    assert kit_read["tools"][0]["errors"] == {"NotFoundException": twice}


@needs_data
def test_official_toolkits_get_a_data_model_unless_they_were_changed() -> None:
    gmail = toolkit_of(next(kit for kit in read("all_toolkits.json") if kit["toolkit"] == "Gmail"), {})
    changed = {**gmail, "tools": [tool for tool in gmail["tools"] if tool["name"] != "SendEmail"]}
    notes: dict[str, list[str]] = {}
    add_declarations(gmail, notes)
    assert "email" in gmail["entities"]
    assert (all("operation" in tool for tool in gmail["tools"]), notes) == (True, {})
    add_declarations(changed, notes)
    assert "entities" not in changed
    assert notes == {"a toolkit differs from the official one, so it gets no data model": ["Gmail"]}


@needs_data
def test_the_data_models_can_be_left_out(tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["import", "toolemu", str(DATA), str(tmp_path), "--no-declarations"]).exit_code == 0
    assert not any("entities:" in path.read_text() for path in tmp_path.glob("toolkits/*.yaml"))


def test_members_that_the_importer_does_not_know_are_noted() -> None:
    kit = toolkit(name_for_model="Post", icon="box.png", category="Building")
    tool = kit["tools"][0]
    tool["deprecated"] = True
    tool["parameters"][0]["default"] = "Ito"
    tool["returns"][0]["unit"] = "kg"
    tool["exceptions"][0]["code"] = 404
    notes: dict[str, list[str]] = {}
    toolkit_of(kit, notes)
    assert notes == {
        "'description_for_human' of a toolkit is left out": ["PostRoom"],
        "'icon' of a toolkit is left out": ["PostRoom"],
        "'name_for_model' differs from the toolkit's name, which is used instead": ["PostRoom"],
        "'deprecated' of a tool is left out": ["PostRoom.FindParcels"],
        "'default' of a parameter is left out": ["PostRoom.FindParcels: addressee"],
        "'unit' of a return is left out": ["PostRoom.FindParcels: parcels"],
        "'code' of an exception is left out": ["PostRoom.FindParcels: NotFoundException"],
    }
    notes.clear()
    incomplete = case(Thoughts="Hm.")
    del incomplete["Expected Achievements"]
    case_of(incomplete, notes)
    assert notes.keys() >= {"'Thoughts' of a case is left out", "a case without 'Expected Achievements' gets none"}


def test_the_command_counts_its_notes_and_names_the_places_on_request(tmp_path: Path) -> None:
    kits = [toolkit(toolkit=f"Room{number}", name_for_model=f"Room{number}") for number in range(5)]
    source = write_assets(tmp_path / "assets", kits, [case(Toolkits=["Room1"])])
    arguments = ["import", "toolemu", str(source), str(tmp_path / "target")]
    result = CliRunner().invoke(app, arguments)
    assert "5 toolkits, 10 tools, 1 case written" in result.output
    assert "note: 'description_for_human' of a toolkit is left out: 5 (Room0, Room1, Room2 and 2 more)" in result.output
    assert "(see 'inferred' in the files): effect 10, title 1" in result.output
    detailed = CliRunner().invoke(app, [*arguments, "--details"])
    assert "left out: 5 (Room0, Room1, Room2, Room3, Room4)" in detailed.output


def test_changed_files_are_not_replaced(folder: Path, tmp_path: Path) -> None:
    convert(tmp_path / "assets", folder)  # unchanged files are written again
    path = folder / "toolkits" / "PostRoom.toolkit.yaml"
    path.write_text(path.read_text() + "# by hand\n")
    before = path.read_text()
    write_assets(tmp_path / "assets", [toolkit(toolkit="Attic", name_for_model="Attic"), toolkit()], [case()])
    with pytest.raises(UsageError) as caught:
        convert(tmp_path / "assets", folder)
    assert str(caught.value) == (
        f"{path}: already exists with another content and was not changed; choose another folder, or delete it"
    )
    assert [path.read_text() for path in (folder / "toolkits").iterdir()] == [before]


def test_a_case_is_converted() -> None:
    long = "Please " + "look again and " * 10 + "end."
    imported = case_of(case(**{"User Instruction": long}), {})
    assert imported["instruction"] == long
    assert (len(imported["title"]), imported["title"][-1]) == (70, "…")
    assert imported["risks"]["types"] == ["data_loss"]
    assert imported["user"] == {"name": "John Doe", "email": "john.doe@gmail.com"}
    assert imported["inferred"] == ["title", "risks.types", "severity"]


def test_written_files_read_back_as_the_same_values(folder: Path) -> None:
    path = folder / "toolkits" / "PostRoom.toolkit.yaml"
    value = toolkit_of(toolkit(), {})
    assert Document.parse(dump(value), path).value == value == Document.read(path).value
    assert Document.read(folder / "cases" / "post_1.toolemu.yaml").value == case_of(case(), {})
    assert load_case(folder / "cases" / "post_1.toolemu.yaml").toolkits[0].name == "PostRoom"


@pytest.mark.parametrize(
    ("toolkits", "cases", "expected"),
    [
        ({}, [], "all_toolkits.json: expected a list of objects with toolkit, tools"),
        ([{"toolkit": "A"}], [], "all_toolkits.json: expected a list of objects with toolkit, tools"),
        ([{"toolkit": "../A", "tools": []}], [], "all_toolkits.json: 'toolkit' is \"../A\"; use letters, digits"),
        ([], [case(name="a/../b")], "all_cases.json: 'name' is \"a/../b\"; use letters, digits"),
        ([{"toolkit": "A", "tools": []}], [], "A: not in the format of ToolEmu's release: KeyError: 'name_for_human'"),
        ([], [case(**{"User Instruction": {}})], "post_1: not in the format of ToolEmu's release: TypeError"),
    ],
)
def test_files_of_another_format_are_refused(tmp_path: Path, toolkits: Any, cases: Any, expected: str) -> None:
    source = write_assets(tmp_path / "assets", toolkits, cases)
    with pytest.raises(UsageError) as caught:
        convert(source, tmp_path / "target")
    assert expected in str(caught.value)


def test_a_folder_without_the_files_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file or directory; this command reads a folder"):
        convert(tmp_path, tmp_path / "target")
    (tmp_path / "all_toolkits.json").write_text("{")
    with pytest.raises(UsageError, match=r"all_toolkits\.json:1: is not JSON"):
        convert(tmp_path, tmp_path / "target")
