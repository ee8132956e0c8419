"""SARIF 2.1.0 as the standard and GitHub's code scanning demand it of what we write.

The official schema is in no package that tests could install, so its part for these objects is written out here, with
nothing allowed that we do not mean to write. What GitHub requires beyond it is required too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from pytest_toolemu.reporting.report_data import read_report
from pytest_toolemu.reporting.sarif import sarif_text
from pytest_toolemu.sessions.reader import run_files
from tests.reporting.runs import hostile, run, session


def only(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    """An object of these members, and of no other."""
    members = required | optional
    return {"type": "object", "properties": members, "required": list(required), "additionalProperties": False}


def many(items: dict[str, Any], least: int = 0, most: int = 25_000) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


WHOLE = {"type": "integer", "minimum": 1}
TEXT = {"type": "string", "minLength": 1}
MESSAGE = only({"text": TEXT})
LEVEL = {"enum": ["none", "note", "warning", "error"]}
BAG = {"type": "object"}
RULE = only(
    {"id": TEXT, "shortDescription": MESSAGE, "fullDescription": MESSAGE, "help": MESSAGE},
    defaultConfiguration=only({"level": LEVEL}),
    properties=BAG,
)
REGION = only({"startLine": WHOLE, "startColumn": WHOLE, "endLine": WHOLE, "endColumn": WHOLE})
ARTIFACT = only({"uri": {"type": "string", "format": "uri-reference"}}, uriBaseId={"const": "SRCROOT"})
RESULT = only(
    {
        "ruleId": TEXT,
        "message": MESSAGE,
        "locations": many(only({"physicalLocation": only({"artifactLocation": ARTIFACT, "region": REGION})}), 1, 1),
        "partialFingerprints": only({"primaryLocationLineHash": TEXT}),
    },
    ruleIndex={"type": "integer", "minimum": -1},
    level=LEVEL,
    properties=BAG,
)
INVOCATION = only(
    {"executionSuccessful": {"type": "boolean"}},
    toolExecutionNotifications=many(only({"message": MESSAGE}, level=LEVEL)),
)
RUN = only(
    {"tool": only({"driver": only({"name": TEXT, "version": TEXT, "rules": many(RULE)})}), "results": many(RESULT)},
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    originalUriBaseIds={"type": "object", "additionalProperties": only({"description": MESSAGE})},
    invocations=many(INVOCATION),
)
LOG = only({"version": {"const": "2.1.0"}, "runs": many(RUN, 1, 1)}, **{"$schema": TEXT})


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Two agents that fail one case, one that is of no help, a run without a verdict, one that broke, a hostile one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "mine.toolemu.yaml").write_text("title: Mine\ntoolkits: [A]\ninstruction: Pay Anna.\n")
    folder = session(
        tmp_path / "one",
        run("mine", "gpt-4o", 0, case_path=str(tmp_path / "cases" / "mine.toolemu.yaml")),
        run("mine", "claude", 0, case_path=str(tmp_path / "cases" / "mine.toolemu.yaml")),
        run("dull", outcome="failed", reasons=("helpfulness 0 < 2",)),
        run("shy", safety=None),
        run("gone", outcome="broken", verdicts=(), reasons=()),
        hostile(),
    )
    found = read_report(run_files([folder]), [folder], with_transcripts=False)
    return dict(json.loads(sarif_text(found, "1.0")))


def test_it_has_the_shape_that_the_standard_and_github_require(log: dict[str, Any]) -> None:
    validator = jsonschema_rs.Draft202012Validator(LOG, validate_formats=True)
    assert [str(error) for error in validator.iter_errors(log)] == []
    log["runs"][0]["results"][0]["locations"] = []
    assert not validator.is_valid(log)


def test_rules_are_found_by_their_index_and_say_how_bad_it_is(log: dict[str, Any]) -> None:
    rules = log["runs"][0]["tool"]["driver"]["rules"]
    for result in log["runs"][0]["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert rules[result["ruleIndex"]]["defaultConfiguration"]["level"] == result["level"]
    assert [rule["defaultConfiguration"]["level"] for rule in rules] == ["error", "warning"]


def test_a_failure_stands_at_its_instruction_and_is_an_alert_of_its_own(log: dict[str, Any]) -> None:
    mine = [result for result in log["runs"][0]["results"] if result["properties"]["case"] == "mine"]
    assert [one["locations"][0]["physicalLocation"]["region"] for one in mine] == [
        {"startLine": 3, "startColumn": 1, "endLine": 3, "endColumn": len("instruction: Pay Anna.") + 1}
    ] * 2
    assert len({one["partialFingerprints"]["primaryLocationLineHash"] for one in mine}) == 2


def test_what_has_no_verdict_is_the_tools_trouble(log: dict[str, Any]) -> None:
    (invocation,) = log["runs"][0]["invocations"]
    assert not invocation["executionSuccessful"]
    assert [notice["message"]["text"] for notice in invocation["toolExecutionNotifications"]] == [
        "broken: gone with gpt-4o: no reason was told",
        "inconclusive: shy with gpt-4o: safety: judge: refused: no",
    ]
