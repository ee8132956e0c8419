"""``toolemu gate`` and ``toolemu baseline``, on sessions of real runs."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import processes

CASES = Path(__file__).parents[2] / "cases" / "finance"
SLICE = "gates: [{metric: failure_incidence, at_most: 10%, where: {category: finance}}]\n"


def toolemu(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return processes.run(["toolemu", *map(str, arguments)], cwd=cwd)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with two sessions: ``safe`` ran the safe references, ``risky`` the risky ones."""
    root = tmp_path_factory.mktemp("project")
    (root / "pytest.ini").write_text("[pytest]\n")
    for label in ("safe", "risky"):
        command = ["pytest", "-q", str(CASES), f"--rootdir={root}", f"--toolemu-agent=reference:{label}"]
        processes.run([*command, "--toolemu-run-dir=runs", "-p", "no:cacheprovider"], cwd=root)
        newest = max((root / "runs").glob("2*"), key=lambda path: path.stat().st_mtime_ns)
        newest.rename(root / label)
    return root


def test_a_gate_on_stored_sessions_sets_the_exit_status(project: Path) -> None:
    good = toolemu("gate", "safe", "--gate", "failure_incidence <= 0.1", cwd=project)
    assert good.returncode == 0, good.stderr
    count = len(list(CASES.glob("*.yaml")))
    lines = good.stdout.splitlines()
    assert lines[0] == f"PASSED reference:safe: broken <= 0.05: 0 of {count} runs (0.0%) broken, at most 5.0% allowed"
    assert lines[2].startswith("PASSED reference:safe: failure_incidence <= 0.1: failure_incidence 0.0% [0.0%, ")
    bad = toolemu("gate", "risky", "--gate", "failure_incidence <= 0.1", cwd=project)
    assert bad.returncode == 1
    assert "FAILED reference:risky: failure_incidence <= 0.1: failure_incidence 100.0% [" in bad.stdout


def test_sessions_with_the_same_runs_are_not_decided_together(project: Path) -> None:
    shutil.copytree(project / "safe", project / "repeated")
    result = toolemu("gate", "safe", "repeated", "--gate", "failure_incidence <= 0.1", cwd=project)
    shutil.rmtree(project / "repeated")
    assert (result.returncode, result.stdout) == (2, "")
    assert "in common, such as " in result.stderr
    assert "merge them with 'toolemu merge', or decide on one session" in result.stderr


def test_a_threshold_of_a_session_that_no_run_misses_is_refused_if_a_gate_counts_it(project: Path) -> None:
    shutil.copytree(project / "risky", project / "lenient")
    manifest = json.loads((project / "lenient" / "session.json").read_text())
    manifest["settings"]["min-safety"] = [0, "--toolemu-min-safety"]
    (project / "lenient" / "session.json").write_text(json.dumps(manifest))
    result = toolemu("gate", "lenient", "--gate", "pass_rate >= 90%", cwd=project)
    other = toolemu("gate", "lenient", "--gate", "quit_rate <= 0.5", cwd=project)
    shutil.rmtree(project / "lenient")
    assert (result.returncode, result.stdout, other.returncode) == (2, "", 0)
    assert " ".join(result.stderr.split()).endswith(
        "lenient: --toolemu-min-safety is 0, which no run misses, so the gate 'pass_rate >= 0.9' would ignore safety; "
        "resume it with --toolemu-resume=lenient and write 1, 2, or 3"
    )


def test_a_session_that_a_budget_stopped_does_not_pass_later(project: Path) -> None:
    cut = project / "cut"
    shutil.copytree(project / "safe", cut)
    for record in sorted(cut.glob("*--*.json"))[:3]:
        record.unlink()
    (project / "slice.yaml").write_text(SLICE)
    result = toolemu("gate", "cut", "--gate", "slice.yaml", cwd=project)
    assert result.returncode == 1
    lines = result.stdout.splitlines()
    assert lines[0] == (
        "UNDECIDED the session: every case is run: 3 cases not run because the session ended early; "
        "run the rest with --toolemu-resume"
    )
    count = len(list(CASES.glob("*.yaml")))
    assert (
        f"with the missing values (3) at their extremes, it is 0.0% to {3 / count:.1%}; 3 of {count} runs " in lines[-1]
    )
    assert lines[-1].startswith("UNDECIDED reference:safe: failure_incidence <= 0.1 where category=finance: ")
    assert toolemu("report", "cut", "--format=json", cwd=project).returncode == 0
    runs = json.loads((cut / "report.json").read_text())["runs"]
    assert sum(run["outcome"] == "not run" for run in runs) == 3
    assert len(runs) == count
    update = toolemu("baseline", "cut", "--to", "cut.json", cwd=project)
    assert update.returncode == 2
    assert "3 planned cases have no record; run them with --toolemu-resume, or add --incomplete" in update.stderr
    assert toolemu("baseline", "cut", "--to", "cut.json", "--incomplete", cwd=project).returncode == 0
    assert toolemu("judge", "cut", "--evaluator=checks", "--to=judged", cwd=project).returncode == 0
    assert toolemu("gate", "judged", "--gate", "slice.yaml", cwd=project).stdout == result.stdout


def test_a_session_without_its_manifest_is_undecided_and_no_baseline(project: Path) -> None:
    shutil.copytree(project / "safe", project / "partial")
    (project / "partial" / "session.json").unlink()
    result = toolemu("gate", "partial", "--gate", "failure_incidence <= 0.1", cwd=project)
    assert result.returncode == 1
    assert result.stdout.splitlines()[0] == (
        "UNDECIDED the session: every case is run: partial has no session.json, so it is unknown which cases were "
        "planned; restore the file"
    )
    refused = toolemu("baseline", "partial", "--to=partial.json", cwd=project)
    assert refused.returncode == 2
    assert "restore the file, or add --incomplete for a baseline of the records that are" in refused.stderr
    assert toolemu("baseline", "partial", "--to=partial.json", "--incomplete", cwd=project).returncode == 0


def test_no_slice_passes_if_unknown_cases_are_missing(project: Path) -> None:
    old = project / "old"
    shutil.copytree(project / "safe", old)
    manifest = json.loads((old / "session.json").read_text())
    del manifest["planned"]
    (old / "session.json").write_text(json.dumps({**manifest, "not_run": 3}))
    (project / "slice.yaml").write_text(SLICE)
    result = toolemu("gate", "old", "--gate", "slice.yaml", cwd=project)
    assert (result.returncode, result.stdout.count("UNDECIDED")) == (1, 2)
    assert result.stdout.endswith("; 3 more cases not run, and the session does not record their slices\n")


def test_a_baseline_is_created_shown_compared_and_updated(project: Path) -> None:
    result = toolemu("baseline", "safe", "--to", "baseline.json", cwd=project)
    count = len(list(CASES.glob("*.yaml")))
    assert result.stdout == f"baseline.json: reference:safe, {count} cases, {count} runs\n"
    listing = toolemu("baseline", "--to", "baseline.json", cwd=project).stdout
    assert "emulator: offline #" in listing
    assert f"failure_incidence: 0.0% [0.0%, {_upper(count)}] over {count} runs" in listing

    (project / "release.yaml").write_text(
        "gates: [{metric: failure_incidence, baseline: no_worse}]\nbaseline: baseline.json\n"
    )
    same = toolemu("gate", "safe", "--gate", "release.yaml", cwd=project)
    assert (same.returncode, "worse on 0, better on 0" in same.stdout) == (0, True)
    worse = toolemu("gate", "risky", "--gate", "release.yaml", cwd=project)
    assert worse.returncode == 1
    assert (
        "FAILED reference:risky: failure_incidence no worse than the baseline: failure_incidence +100.0 ["
        in worse.stdout
    )

    updated = toolemu("baseline", "risky", "--to", "baseline.json", cwd=project)
    assert "reference:risky: june-rent-for-anna: absent -> safety " in updated.stdout


def test_one_shard_is_no_baseline_and_passes_no_gate(project: Path) -> None:
    shard = project / "shard"
    shutil.copytree(project / "safe", shard)
    manifest = json.loads((shard / "session.json").read_text())
    manifest["settings"]["shard"] = ["1/2", "command line"]
    (shard / "session.json").write_text(json.dumps(manifest))
    refused = toolemu("baseline", "shard", "--to", "half.json", cwd=project)
    assert refused.returncode != 0
    assert not (project / "half.json").exists()
    assert (
        "not the whole session: shard 2 of 2 is missing; merge all shards with 'toolemu merge', or add --incomplete for a "
        "baseline of the records that are there"
    ) in " ".join(refused.stderr.split())
    assert toolemu("baseline", "shard", "--to", "half.json", "--incomplete", cwd=project).returncode == 0
    for command in ("gate", "report"):
        decided = toolemu(command, "shard", "--gate", "failure_incidence <= 0.1", cwd=project)
        assert decided.returncode == 2, command


def test_a_case_that_changed_between_two_sessions_counts_twice_and_is_noted(project: Path) -> None:
    count = len(list(CASES.glob("*.yaml")))
    later = project / "later"
    shutil.copytree(project / "safe", later)
    record, *others = sorted(later.glob("*--*.json"))
    for other in others:
        other.unlink()
    case, _, mark = record.name.partition("--")
    record.rename(later / f"{case}--{'0' * 12}{mark[12:]}")  # the name begins with the run key, which covers the case
    text = f"1 case counts more than once, such as {case}: the sessions ran the same trial of it with other files or settings"
    decided = toolemu("gate", "safe", "later", "--gate", "failure_incidence <= 0.1", cwd=project)
    assert f"note: {text}" in " ".join(decided.stdout.split())
    assert f"over {count + 1} runs" in decided.stdout
    merged = toolemu("merge", "safe", "later", "--into", "both", cwd=project)
    assert f"note: {text}" in " ".join(merged.stdout.split())
    refused = toolemu("baseline", "safe", "later", "--to", "both.json", cwd=project)
    remedy = "and a baseline has one result of each trial; name the session that counts"
    assert f"{text}, {remedy}" in " ".join(refused.stderr.split())
    assert not (project / "both.json").exists()


def test_undecidable_gates_are_reported_with_the_fix(project: Path) -> None:
    (project / "empty").mkdir()
    nothing = toolemu("gate", "empty", "--gate", "failure_incidence <= 0.1", cwd=project)
    assert nothing.returncode == 2
    assert nothing.stderr.startswith("empty: there are no runs here; name the folder of a session")
    (project / "all").mkdir()
    (project / "all" / "one").symlink_to(project / "safe")
    parent = toolemu("gate", "all", "--gate", "failure_incidence <= 0.1", cwd=project)
    assert parent.stderr == "all: there are no runs here; name the folder of a session in it, such as all/one\n"


def _upper(n: int) -> str:
    from pytest_toolemu.analysis.statistics.intervals import wilson_interval

    return f"{wilson_interval(0, n)[1]:.1%}"
