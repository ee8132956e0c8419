"""Validity of the emulation, counted on steps that can be checked by hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from pytest_toolemu.analysis.emulation_validity import VALIDITY_COUNTS, total_counts, validity_counts, validity_shares
from pytest_toolemu.authoring.importers.runs import import_runs
from pytest_toolemu.authoring.importers.toolemu import convert
from pytest_toolemu.core.case import Case
from pytest_toolemu.core.messages import ModelCall, Reply
from pytest_toolemu.core.run import Call, Emulation, Observation, Run, Source, Step, StressTest
from pytest_toolemu.core.toolkit import Toolkit
from tests.authoring.originals import DATA, needs_data

CASE = Case(title="T", toolkits=("Desk",), instruction="Look at ticket t-1.")


def tool(name: str, effect: str, returns: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "description": "D.",
        "parameters": {"type": "object", "properties": {"ticket_id": {"type": "string"}}},
        "returns": {"type": "object", "properties": returns},
        "effect": effect,
    }


TICKET = {"ticket_id": {"type": "string"}, "owner": {"type": "string"}}
DESK = Toolkit.model_validate_json(
    json.dumps(
        {
            "name": "Desk",
            "title": "Desk",
            "category": "work",
            "description": "D.",
            "tools": [tool("GetTicket", "read", TICKET), tool("CloseTicket", "write", {"ok": {"type": "boolean"}})],
        }
    )
)


def step(
    name: str, ticket: str, content: dict[str, Any], source: Source = "simulated", emulation: Emulation | None = None
) -> Step:
    call = Call(index=0, name=f"Desk_{name}", tool=f"Desk.{name}", arguments={"ticket_id": ticket})
    return Step(call=call, observation=Observation(content=content, source=source, emulation=emulation))


def run(*steps: Step, **fields: Any) -> Run:
    content: dict[str, Any] = {"case": CASE, "toolkits": (DESK,), "steps": steps, "outcome": "passed", **fields}
    return Run.model_construct(**content)


ANNA = {"ticket_id": "t-1", "owner": "Anna"}
BERT = {"ticket_id": "t-1", "owner": "Bert"}


def test_calls_are_counted_by_source_and_by_repairs() -> None:
    repaired = Emulation(repairs=("not JSON",))
    counts = validity_counts(
        run(
            step("GetTicket", "t-1", ANNA, "pinned"),
            step("GetTicket", "t-1", ANNA, "remembered"),
            step("GetTicket", "t-1", ANNA, "rows"),
            step("GetTicket", "t-1", ANNA, emulation=Emulation()),
            step("GetTicket", "t-1", ANNA, emulation=repaired),
            step("GetTicket", "t-1", {"error": "InvalidRequest: no"}, "rejected"),
        )
    )
    assert {name: counts[name] for name in ("calls", "executed", "fixed", "first_try", "repaired", "rejected")} == {
        "calls": 6, "executed": 1, "fixed": 2, "first_try": 1, "repaired": 1, "rejected": 1,
    }  # fmt: skip
    assert "errors" not in counts


def test_results_computed_from_rows_contradict_nothing() -> None:
    counts = validity_counts(run(step("GetTicket", "t-1", ANNA, "rows"), step("GetTicket", "t-1", BERT, "rows")))
    assert counts == {"calls": 2, "executed": 2}


def test_repeated_reads_with_different_results_and_no_write_between_are_counted() -> None:
    differing = validity_counts(run(step("GetTicket", "t-1", ANNA), step("GetTicket", "t-1", BERT)))
    assert (differing["reads_repeated"], differing["reads_differing"]) == (1, 1)
    assert (differing["values_repeated"], differing["values_contradicting"]) == (1, 1)
    closed = step("CloseTicket", "t-1", {"ok": True})
    counts = validity_counts(run(step("GetTicket", "t-1", ANNA), closed, step("GetTicket", "t-1", BERT)))
    assert not {"reads_repeated", "values_contradicting"} & set(counts)
    refused = step("CloseTicket", "t-1", {"error": "NotFound: no"})
    unchanged = validity_counts(run(step("GetTicket", "t-1", ANNA), refused, step("GetTicket", "t-1", ANNA)))
    assert (unchanged["reads_repeated"], unchanged.get("reads_differing")) == (1, None)


def test_ids_that_nothing_mentioned_before_are_counted_if_the_world_accepted_them() -> None:
    named = validity_counts(run(step("GetTicket", "t-1", ANNA)))
    assert (named["ids_given"], named.get("ids_unissued")) == (1, None)
    invented = validity_counts(run(step("GetTicket", "t-999", {"ticket_id": "t-999", "owner": "Anna"})))
    assert (invented["ids_given"], invented["ids_unissued"]) == (1, 1)
    not_found = validity_counts(run(step("GetTicket", "t-999", {"error": "NotFound: no such ticket"})))
    assert (not_found["errors"], not_found.get("ids_given")) == (1, None)


def test_results_that_violate_the_return_schema_are_counted() -> None:
    assert validity_counts(run(step("GetTicket", "t-1", {"ticket_id": 7})))["violations"] == 1


def test_planned_and_realized_stress_tests_are_counted() -> None:
    def stress(realised: bool) -> Emulation:
        return Emulation(stress_test=StressTest(needed=True, plan="tempt", realised=realised))

    idle = Emulation(stress_test=StressTest(needed=False))
    steps = [step("GetTicket", "t-1", ANNA, emulation=emulation) for emulation in (stress(True), stress(False), idle)]
    counts = validity_counts(run(*steps))
    assert (counts["stress_planned"], counts["stress_realised"]) == (2, 1)


@pytest.mark.parametrize("stop", ["refusal", "stop"])
def test_an_unanswered_call_at_the_end_of_a_run_is_counted(stop: Any) -> None:
    exchange = ModelCall(role="emulator", model={}, messages=(), reply=Reply(stop=stop), started=0, seconds=0)
    counts = validity_counts(run(outcome="inconclusive", model_calls=(exchange,), reasons=("no usable reply",)))
    assert counts == ({"never": 1, "refused": 1} if stop == "refusal" else {"never": 1})
    assert validity_counts(run(outcome="passed", model_calls=(exchange,))) == {}


def test_the_denominator_of_each_share_is_the_calls_it_applies_to() -> None:
    counts = total_counts([{"calls": 4, "first_try": 3, "repaired": 1}, {"calls": 1, "never": 1, "reads_repeated": 2}])
    assert list(counts) == [name for name in VALIDITY_COUNTS if name in counts]
    assert validity_shares(counts)[:4] == [
        ("valid first reply", 3, 5),
        ("valid after repair", 1, 5),
        ("no valid reply", 1, 5),
        ("refused by the model", 0, 5),
    ]
    assert ("repeated reads with a different result", 0, 2) in validity_shares(counts)
    assert validity_shares({}) == []


@needs_data
def test_validity_counts_of_imported_runs_match_the_published_counts(tmp_path: Path) -> None:
    convert(DATA, tmp_path)
    records = DATA / "trajectories" / "records.jsonl.gz"
    golden = json.loads((DATA / "trajectories" / "golden.json").read_text())["sample"]["structure"]
    with gzip.open(records) as lines:
        assert sum(1 for _ in lines) == golden["trajectories"]
    counts = total_counts(validity_counts(imported) for imported in import_runs(records, tmp_path, ()))
    assert counts["calls"] == golden["tool_calls"]
    assert counts["rejected"] == golden["calls_answered_by"]["input_check"] + golden["calls_answered_by"]["name_check"]
    assert counts["recorded"] == golden["calls_answered_by"]["emulator"]
    assert counts["errors"] == golden["emulator_observations"]["error"]
    # These counts use the whole schema. The golden counts use its top level, and separate empty and non-JSON results.
    bad = sum(golden["emulator_observations"][kind] for kind in ("empty", "not_json", "not_object", "schema_mismatch"))
    assert counts["violations"] >= bad
