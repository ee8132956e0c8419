"""``toolemu slurm`` on a real Slurm: an array of four shards, the merge, and the gate; interrupted tasks resume."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pytest_toolemu.sessions.shard_assignment import ShardAssignment
from pytest_toolemu.sessions.store import RunStore
from tests.live.slurm.conftest import Cluster
from tests.plugin.conftest import CASE, TOOLKIT

NAMES = tuple(f"person{number:02d}" for number in range(24))
SHARDS = 4
WAITING_CASE = NAMES[0]
SHARD = ShardAssignment(SHARDS).place(WAITING_CASE)
BESIDE = sum(ShardAssignment(SHARDS).place(name) == SHARD for name in NAMES) - 1
# This agent is always careful; one case waits until a file is deleted.
AGENT = f"""
import asyncio, pathlib

async def act(task, toolbox):
    await toolbox.call("Till_Look", {{"who": "x"}})
    while "{WAITING_CASE.title()}" in task and pathlib.Path("held").exists():
        await asyncio.sleep(0.1)
    return "You owe 12. Shall I pay?"
"""
OPTIONS = ("--toolemu-agent=actors:act", "--toolemu-gate=failure_incidence <= 0.2", "--toolemu-report=json", "-q")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toolkits").mkdir()
    (tmp_path / "toolkits" / "Till.toolkit.yaml").write_text(TOOLKIT)
    (tmp_path / "cases").mkdir()
    for name in NAMES:
        text = CASE.format(who=name.title(), tag="plain")
        (tmp_path / "cases" / f"{name}.toolemu.yaml").write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:randomly -p no:cacheprovider\n")
    (tmp_path / "actors.py").write_text(AGENT)
    return tmp_path


def submit(*options: str) -> tuple[str, str]:
    """Submit both jobs; return the ids of the array and of the merge."""
    command = [sys.executable, "-m", "pytest_toolemu.cli", "slurm", "--into=job", f"--shards={SHARDS}"]
    subprocess.run([*command, "--", *options], capture_output=True, text=True, check=True)
    array = sbatch("job/array.sh")
    return array, sbatch(f"--dependency=afterany:{array}", "job/merge.sh")


def sbatch(*arguments: str) -> str:
    """Submit a job; return its number."""
    result = subprocess.run(["sbatch", "--parsable", *arguments], capture_output=True, text=True, check=True)
    return result.stdout.strip().partition(";")[0]


def wait_for_end(cluster: Cluster, job: str) -> None:
    cluster.until(lambda: cluster.job(job)["JobState"] in ("COMPLETED", "FAILED", "CANCELLED"), f"the end of job {job}")


def stored(shard: int) -> int:
    return len(list(Path("job/shards", str(shard)).glob("2*/*--*.json")))


def wait_for_others(cluster: Cluster) -> None:
    """Wait until the task has finished all its cases except the one that waits."""
    cluster.until(lambda: stored(SHARD) == BESIDE, "the end of all cases but one")


def merged_sources(cluster: Cluster, merge: str) -> Counter[str]:
    """Wait for the merge, check the merged session, and count its runs by source."""
    wait_for_end(cluster, merge)
    log = Path("job/logs/merge.log").read_text()
    assert cluster.job(merge)["JobState"] == "COMPLETED", log
    assert "PASSED actors:act: failure_incidence <= 0.2: failure_incidence 0.0%" in log
    assert Path("job/merged_sources/report.json").is_file()
    runs = list(RunStore(Path("job/merged_sources")))
    assert sorted(run.case_id for run in runs) == sorted(NAMES)
    assert {run.outcome for run in runs} == {"passed"}
    return Counter(run.source for run in runs)


def test_an_array_of_four_shards_is_merged_and_gated(cluster: Cluster, project: Path) -> None:
    del project
    _, merge = submit(*OPTIONS)
    assert merged_sources(cluster, merge) == {"live": len(NAMES)}
    for shard in range(1, SHARDS + 1):
        log = Path(f"job/logs/{shard}.log").read_text()
        assert f"shard {shard} of {SHARDS}: " in log
        assert Path(f"job/logs/{shard}.gpu.csv").exists() == (shutil.which("nvidia-smi") is not None)


def test_a_task_near_its_time_limit_is_requeued_and_resumes(cluster: Cluster, project: Path) -> None:
    (project / "held").touch()
    array, merge = submit(*OPTIONS)
    wait_for_others(cluster)
    task = f"{array}_{SHARD}"
    cluster("scancel", "--signal=USR1", "--batch", task)
    cluster.until(lambda: cluster.job(task)["Restarts"] == "1", "the requeue")
    (project / "held").unlink()
    # Slurm delays a requeued job by two minutes, so that its node has certainly cleaned up after the first start.
    cluster.until(lambda: cluster.job(task)["JobState"] == "PENDING", "the end of the first start")
    cluster("scontrol", "update", f"jobid={task}", "StartTime=now+5")
    assert merged_sources(cluster, merge) == {"live": len(NAMES) - BESIDE, "resumed": BESIDE}
    assert f"runs: 1 live, {BESIDE} resumed; " in Path(f"job/logs/{SHARD}.log").read_text()


def test_a_killed_task_is_reported_as_missing_and_resumes_when_submitted_again(cluster: Cluster, project: Path) -> None:
    (project / "held").touch()
    array, merge = submit(*OPTIONS)
    wait_for_others(cluster)
    cluster("scancel", "--signal=KILL", "--full", f"{array}_{SHARD}")
    wait_for_end(cluster, merge)
    assert cluster.job(merge)["JobState"] == "FAILED"
    log = Path("job/logs/merge.log")
    assert f"shard {SHARD} of {SHARDS} has {BESIDE} of {BESIDE + 1} runs, without {WAITING_CASE}\n" in log.read_text()
    assert "run these again with --toolemu-resume" in log.read_text()
    (project / "held").unlink()
    again = cluster("sbatch", "--parsable", f"--array={SHARD}", "job/array.sh").strip()
    merge = cluster("sbatch", "--parsable", f"--dependency=afterany:{again}", "job/merge.sh").strip()
    assert merged_sources(cluster, merge) == {"live": len(NAMES) - BESIDE, "resumed": BESIDE}
