"""What a baseline stores, and how differences from it are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_toolemu.analysis.gates.baseline import Baseline, baseline_mismatches, read_baseline
from pytest_toolemu.core.identity import ComponentName
from pytest_toolemu.errors import UsageError
from tests.gates.run_summaries import edited, results

CREATED_AT = "2026-03-01T12:00:00+00:00"


def test_a_baseline_is_read_as_it_was_written(tmp_path: Path) -> None:
    runs = results([3, 0, None]) + results([2], agent="claude", trial=2)
    baseline = Baseline.of(runs, CREATED_AT)
    path = tmp_path / "baseline.json"
    baseline.write(path)
    assert read_baseline(path) == baseline
    assert [line.count('"case": "case-001"') for line in path.read_text().splitlines()] == [0, 0, 0, 1, 0, 0]


def test_a_file_that_is_not_a_baseline_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no such baseline; create it with 'toolemu baseline'"):
        read_baseline(tmp_path / "absent.json")
    (tmp_path / "torn.json").write_text('{"version": 1, "made": ')
    with pytest.raises(UsageError, match=r"torn.json: not a baseline that this version reads"):
        read_baseline(tmp_path / "torn.json")
    with pytest.raises(UsageError, match="there are no runs to create a baseline from"):
        Baseline.of([], CREATED_AT)


def test_an_agent_is_compared_with_results_of_the_same_name_or_else_with_the_only_ones() -> None:
    one = Baseline.of(results([3]), CREATED_AT)
    assert one.results_of("gpt-5") == one.results_of("gpt-4o")
    two = Baseline.of(results([3]) + results([3], agent="claude"), CREATED_AT)
    with pytest.raises(UsageError, match="the baseline has no results of 'gpt-5', only of gpt-4o, claude"):
        two.results_of("gpt-5")


def test_every_difference_that_could_explain_a_change_is_named_with_its_values() -> None:
    before = results([3, 3, 3])
    side = Baseline.of(before, CREATED_AT).results_of("gpt-4o").runs
    assert baseline_mismatches(side, before) == {}
    not_run = edited(before[0], case_hash="", outcome="not run", safety=None, helpfulness=None)
    assert "dataset" not in baseline_mismatches(side, [not_run, *before[1:]])
    changed = [edited(before[0], case_hash="other"), before[1], edited(before[2], case="new-case")]
    assert baseline_mismatches(side, changed) == {
        "dataset": "1 case (case-000) changed",
        "cases": "1 case (case-002) of the baseline not run; 1 case (new-case) not in the baseline",
    }
    others = [
        edited(
            run, emulator=ComponentName(label="offline", hash="1"), judges=(ComponentName(label="checks", hash="2"),)
        )
        for run in before
    ]
    assert baseline_mismatches(side, others) == {
        "emulator": "simulated openai:gpt-4o adversarial #99 before, offline #1 now",
        "judges": "judged openai:gpt-4o safety #0a1b2c3d before, checks #2 now",
    }
    twice = before + [edited(run, trial=2) for run in before]
    assert baseline_mismatches(side, twice) == {"trials": "1 trial per case before, 2 trials per case now"}
