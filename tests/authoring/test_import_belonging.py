"""Evaluations are accepted for the trajectories that they are about, and for no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_toolemu.analysis.metrics import summarize_agents
from pytest_toolemu.authoring.importers.runs import import_runs, write_runs
from pytest_toolemu.authoring.importers.sources import Notes
from pytest_toolemu.authoring.importers.toolemu import convert
from pytest_toolemu.errors import UsageError
from pytest_toolemu.sessions.store import RunStore, read_run_summaries
from tests.authoring.originals import call, case, emulated, evaluation, record, toolkit, write_assets, write_lines

NAME = "gpt_emu-q8_eval-q32_int4_r0-2_2601_115149"
KITS = ("PostRoom", "Cellar")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write two toolkits with tools of the same short names."""
    kits = [toolkit(toolkit=name, name_for_model=name) for name in KITS]
    convert(write_assets(tmp_path / "assets", kits, [case()]), tmp_path / "imported")
    return tmp_path / "imported"


def run_in(kit: str, index: int = 0, **changes: Any) -> dict[str, Any]:
    return record(
        [call(f"{kit}FindParcels"), emulated()],
        case=case(name=f"{kit}_{index}", Toolkits=[kit]),
        case_idx=index,
        **changes,
    )


def about(kit: str, index: int, **changes: Any) -> dict[str, Any]:
    return evaluation(3, eval_id=index, **{"Evaluator Thought": f"It used `{kit}FindParcels` and asked."} | changes)


def test_evaluations_may_have_any_order_and_need_not_name_their_run(tmp_path: Path, folder: Path) -> None:
    file = write_lines(tmp_path / "runs.jsonl", [run_in(kit) for kit in ("PostRoom", "Cellar", "Cellar")])
    lines = [evaluation(1, eval_id=2), about("Cellar", 1), about("PostRoom", 0)]
    runs = import_runs(file, folder, [write_lines(tmp_path / "safe.jsonl", lines)])
    assert [run.score("safety") for run in runs] == [3, 3, 1]


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("claude_emu-q8_eval-q32_int4_r0-2_2601_115149", "agent 'claude', not 'gpt'"),
        ("gpt_emu-q14_eval-q32_int4_r0-2_2601_115149", "emulator 'q14', not 'q8'"),
        ("gpt_emu-q8_eval-q32_int8_r0-2_2601_115149", "quantization 'int8', not 'int4'"),
        ("gpt_emu-q8_eval-q32_int4_r2-4_2601_115149", "range '2-4', not '0-2'"),
        ("gpt_emu-q8_eval-q32_int4_r0-2_2701_115149", "time '2701_115149', not '2601_115149'"),
    ],
)
def test_file_names_of_other_runs_are_refused(tmp_path: Path, folder: Path, name: str, part: str) -> None:
    file = write_lines(tmp_path / f"{NAME}.jsonl", [run_in("PostRoom")])
    safe = write_lines(tmp_path / f"{name}_eval_agent_safe.jsonl", [evaluation(3)])
    with pytest.raises(UsageError) as caught:
        import_runs(file, folder, [safe])
    assert str(caught.value).startswith(f"{safe}:1 does not evaluate {file}:1: its file's name says {part}")


@pytest.mark.parametrize("name", ["gpt_emu-q8_eval-gpt5m_int4_r0-2_2801_090000_eval_agent_safe", "mine"])
def test_another_evaluator_may_have_judged_at_another_time(tmp_path: Path, folder: Path, name: str) -> None:
    file = write_lines(tmp_path / f"{NAME}.jsonl", [run_in("PostRoom")])
    (run,) = import_runs(file, folder, [write_lines(tmp_path / f"{name}.jsonl", [about("PostRoom", 0)])])
    assert run.outcome == "passed"


@pytest.mark.parametrize(("member", "value"), [("case_idx", 7), ("input", "Another instruction."), ("case", {})])
def test_fields_that_an_evaluation_repeats_must_equal_those_of_its_trajectory(
    tmp_path: Path, folder: Path, member: str, value: Any
) -> None:
    trajectory = run_in("PostRoom", 3)
    file = write_lines(tmp_path / "runs.jsonl", [trajectory])
    same = write_lines(tmp_path / "same.jsonl", [evaluation(3, **{member: trajectory[member]})])
    assert len(import_runs(file, folder, [same])) == 1
    other = write_lines(tmp_path / "other.jsonl", [evaluation(3, **{member: value})])
    with pytest.raises(UsageError, match=f"other.jsonl:1 does not evaluate .*runs.jsonl:1: '{member}' is "):
        import_runs(file, folder, [other])


class TestTheSameTrajectoriesUnderTwoJudges:
    def imported(self, tmp_path: Path, folder: Path, judge: str, score: int, target: str = "store") -> int:
        """Import a copy of the same two runs, as forks publish one beside the evaluations of each judge."""
        name = NAME.replace("q32", judge)
        beside = tmp_path / judge
        beside.mkdir(exist_ok=True)
        file = write_lines(beside / f"{name}.jsonl", [run_in("PostRoom"), run_in("PostRoom")])
        lines = [evaluation(score, eval_id=index) for index in range(2)]
        safe = write_lines(beside / f"{name}_eval_agent_safe.jsonl", lines)
        return write_runs(import_runs(file, folder, [safe]), tmp_path / target)

    def test_are_one_run_each_with_the_verdicts_of_both(self, tmp_path: Path, folder: Path) -> None:
        assert self.imported(tmp_path, folder, "q32", 3) == 0
        assert self.imported(tmp_path, folder, "gpt5m", 1) == 2
        runs = list(RunStore(tmp_path / "store"))
        assert sorted(run.trial for run in runs) == [1, 2]  # Two runs with equal content stay two runs.
        for run in runs:
            assert [(v.evaluator, v.score) for v in run.verdicts] == [("q32", 3), ("gpt5m", 1)]
            assert [judge["name"] for judge in run.identity.evaluators] == ["q32", "gpt5m"]
            assert (run.outcome, run.reasons) == ("failed", ("safety 1 < 2 (worst of 2 judges)",))

    def test_count_once(self, tmp_path: Path, folder: Path) -> None:
        self.imported(tmp_path, folder, "q32", 3)
        self.imported(tmp_path, folder, "gpt5m", 1)
        (summary,) = summarize_agents(read_run_summaries([tmp_path / "store"]))
        assert (summary.n, summary.failures, summary.judged) == (2, 2, 2)

    def test_imported_again_the_verdicts_of_a_judge_are_replaced(self, tmp_path: Path, folder: Path) -> None:
        self.imported(tmp_path, folder, "q32", 3)
        assert self.imported(tmp_path, folder, "q32", 0) == 2
        for run in RunStore(tmp_path / "store"):
            assert [(v.evaluator, v.score) for v in run.verdicts] == [("q32", 0)]

    def test_count_once_from_two_folders(self, tmp_path: Path, folder: Path) -> None:
        self.imported(tmp_path, folder, "q32", 3, "one")
        self.imported(tmp_path, folder, "gpt5m", 1, "two")
        (summary,) = summarize_agents(read_run_summaries([tmp_path / "one", tmp_path / "two"]))
        assert summary.n == 2


def test_equal_trajectories_of_two_recordings_stay_distinct(tmp_path: Path, folder: Path) -> None:
    for time in ("2601_115149", "2701_115149"):
        file = write_lines(tmp_path / f"gpt_naive_{time}.jsonl", [run_in("PostRoom")])
        assert write_runs(import_runs(file, folder), tmp_path / "store") == 0
    assert len(list(RunStore(tmp_path / "store"))) == 2


def test_other_trajectories_under_the_same_file_name_stay_distinct(tmp_path: Path, folder: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"{number}").mkdir()
        file = write_lines(tmp_path / f"{number}" / "runs.jsonl", [run_in("PostRoom", output=f": Done {number}.")])
        assert write_runs(import_runs(file, folder), tmp_path / "store") == 0
    assert {run.answer for run in RunStore(tmp_path / "store")} == {"Done 1.", "Done 2."}


def test_the_import_notes_what_it_leaves_out_and_fills_in(tmp_path: Path, folder: Path) -> None:
    odd = run_in("PostRoom", sim_type="Adversarial", input="Another instruction.")
    file = write_lines(tmp_path / "runs.jsonl", [odd, run_in("PostRoom", output="Done.")])
    safe = write_lines(tmp_path / "safe.jsonl", [evaluation(3), evaluation(3, eval_id=1)])
    notes: Notes = {}
    import_runs(file, folder, [safe], notes)
    first, second = "runs.jsonl:1", "runs.jsonl:2"
    assert notes == {
        "'efficiency' of an evaluation is left out": ["safe.jsonl:1", "safe.jsonl:2"],
        "user, time, and locale are those of ToolEmu's prompts, severity is the default": ["PostRoom_0", "PostRoom_0"],
        "'sim_type' of a trajectory is left out": [first],
        "the file has no requests, tokens, costs, times, seeds, or limits, so these are unknown": [first, second],
        "an 'input' that differs from the instruction of its case is left out": [first],
        "the colon that forks leave before an answer is removed": [first],
    }
