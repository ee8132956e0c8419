"""Shards of a session, and the session into which they are merged."""

from __future__ import annotations

import json
import sys

import pytest

from pytest_toolemu.sessions.shard_assignment import DURATIONS, ShardAssignment
from pytest_toolemu.sessions.store import RunStore
from tests.plugin.conftest import ALWAYS_UNUSED, Project
from tests.plugin.test_gates import AGENT

NAMES = ("anna", "bert", "cora", "dora", "emil")
GATE = "--toolemu-gate=failure_incidence <= 0.3"


@pytest.fixture
def cases(alone: Project) -> Project:
    """Return a project with five cases, and a test that is not a case."""
    for name in NAMES:
        alone.case(name)
    alone.write("test_other.py", "def test_other():\n    pass\n")
    alone.write("actors.py", AGENT)
    return alone


def toolemu(project: Project, *args: str) -> pytest.RunResult:
    return project.pytester.run(sys.executable, "-c", "from pytest_toolemu.cli import main; main()", *args)


def test_all_shards_together_run_the_whole_session(cases: Project) -> None:
    """With one process and with workers, every item runs in exactly one shard, with all agents and trials."""
    cases.unused = ALWAYS_UNUSED
    agents = ("--toolemu-agent=actors:act", "--toolemu-agent=reference:safe", "--toolemu-trials=2", GATE)
    passed = 0
    for index, runner in ((1, ("-p", "no:xdist")), (2, ("-n", "2"))):
        cases.runner = runner
        result = cases.run(*agents, f"--toolemu-shard={index}/2", "--alluredir=allure")
        assert result.ret == 0
        result.stdout.fnmatch_lines(
            [
                f"toolemu: shard {index} of 2 (--toolemu-shard), divided by the hashes of names",
                f"shard {index} of 2: ran * of 21 items; metrics cover only this shard; merge all shards with: toolemu merge .toolemu/* ... --into DIR",
                "gates are decided on the merged session, not here: failure_incidence <= 0.3; run: toolemu gate DIR",
            ]
        )
        result.stdout.no_fnmatch_line("*toolemu-gate::*")
        outcomes = result.parseoutcomes()
        items = outcomes["passed"] + outcomes.get("xfailed", 0)
        assert index == 2 or outcomes["deselected"] == 21 - items
        passed += items
    assert passed == 21
    assert len({(run.agent, run.case_id, run.trial) for run in cases.runs()}) == len(cases.runs()) == 20
    by_shard = [{run.case_id for run in RunStore(folder)} for folder in sorted(cases.path.glob(".toolemu/2*"))]
    assert not by_shard[0] & by_shard[1]

    merged = toolemu(cases, "merge", ".toolemu", "--into", "whole")
    assert merged.ret == 0
    merged.stdout.fnmatch_lines(["whole: 20 runs of 2 sessions of 2 shards"])
    decided = toolemu(cases, "gate", "whole")
    assert decided.ret == 0
    decided.stdout.fnmatch_lines(["PASSED actors:act: failure_incidence <= 0.3: failure_incidence 20.0% *over 10 runs"])
    results = [json.loads(path.read_text()) for path in cases.path.glob("allure/*-result.json")]
    assert len(results) == 21
    assert len({result["historyId"] for result in results}) == 21


def test_durations_of_a_merged_session_divide_the_next_session_evenly(cases: Project) -> None:
    (cases.path / DURATIONS).write_text(json.dumps({"anna": 90, "bert": 40, "cora": 20, "dora": 20, "emil": 10}))
    for index, names in ((1, {"anna"}), (2, {"bert", "cora", "dora", "emil"})):
        result = cases.run(
            "--toolemu-agent=reference:safe", f"--toolemu-shard={index}/2", "--toolemu-run-dir", f"r{index}"
        )
        line = f"toolemu: shard {index} of 2 (--toolemu-shard), divided by the durations of 5 cases in {DURATIONS} [#]*"
        result.stdout.fnmatch_lines([line])
        (folder,) = cases.path.glob(f"r{index}/2*")
        assert {run.case_id for run in RunStore(folder)} == names


def test_invalid_durations_stop_the_session_before_the_first_case(alone: Project) -> None:
    (alone.path / DURATIONS).write_text("[]")
    result = alone.run("--toolemu-agent=reference:safe", "--toolemu-shard=1/2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [f"ERROR: toolemu: *{DURATIONS}: not a file of durations by case that this version reads: *"]
    )


def test_a_shard_without_cases_passes_and_writes_its_manifest(project: Project) -> None:
    used_shards = {ShardAssignment(9).place(name) for name in ("anna", "bert")}
    shard = next(index for index in range(1, 10) if index not in used_shards)
    result = project.run("--toolemu-agent=reference:safe", f"--toolemu-shard={shard}/9")
    assert result.ret == 0
    result.stdout.fnmatch_lines([f"shard {shard} of 9: ran 0 of 2 items; metrics cover only this shard; *"])
    (account,) = project.path.glob(".toolemu/2*/shard.json")
    assert json.loads(account.read_text())["runs"] == []


def test_a_shard_resumes_only_its_own_runs(cases: Project) -> None:
    base = ("--toolemu-agent=reference:safe", "-k", "not other")
    cases.run(*base, "--toolemu-shard=1/2")
    cases.run(*base, "--toolemu-shard=2/2")
    result = cases.run(*base, "--toolemu-shard=1/2", "--toolemu-resume")
    first, *_ = sorted(cases.path.glob(".toolemu/2*"))
    count = len(list(RunStore(first).paths()))
    result.stdout.fnmatch_lines(
        [f"toolemu: resuming {first.relative_to(cases.path)}: {count} runs*", f"runs: {count} resumed; *"]
    )
    merged = toolemu(cases, "merge", ".toolemu", "--into", "whole")
    merged.stdout.fnmatch_lines(["whole: 5 runs of 3 sessions of 2 shards"])


def test_a_shard_gets_its_share_of_the_budget(alone: Project) -> None:
    alone.write("conftest.py", "from pytest_toolemu.plugin.process import PROCESS\n"
                "def pytest_unconfigure(config):\n"
                "    transport = config.stash[PROCESS].lead()\n"
                "    print('may spend', transport.read(lambda coordinator: coordinator.requests.budget.usd))\n")  # fmt: skip
    result = alone.run("--toolemu-agent=reference:safe", "--toolemu-shard=1/4", "--toolemu-budget-usd=5", "--co")
    result.stdout.fnmatch_lines(["may spend 1.25"])
