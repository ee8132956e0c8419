"""The examples for several machines satisfy the published schemas, and use the same number of shards everywhere."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from pytest_toolemu.cli import app
from pytest_toolemu.settings.option_table import OPTIONS

EXAMPLES = Path(__file__).parents[2] / "examples"
WORKFLOWS = sorted((EXAMPLES / "github-actions").glob("*.yml"))
MANIFESTS = sorted((EXAMPLES / "kubernetes").glob("*.yaml"))


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_are_valid(path: Path) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_are_valid(path: Path) -> None:
    import kubernetes_validate

    kubernetes_validate.validate(read(path), kubernetes_validate.latest_version(), strict=True)


def test_the_matrix_runs_every_shard_and_the_gate_downloads_all_results() -> None:
    workflow = read(EXAMPLES / "github-actions" / "agent-safety-shards.yml")
    shard, gate = workflow["jobs"]["shard"], workflow["jobs"]["gate"]
    assert shard["strategy"]["matrix"]["shard"] == list(range(1, workflow["env"]["SHARDS"] + 1))
    assert shard["strategy"]["fail-fast"] is False
    run = next(step for step in shard["steps"] if "env" in step)
    assert run["env"]["TOOLEMU_SHARD"] == "${{ matrix.shard }}/${{ env.SHARDS }}"
    upload, download = shard["steps"][-1], next(step for step in gate["steps"] if "pattern" in step.get("with", {}))
    assert upload["if"] == "always()"
    assert upload["with"]["path"].rstrip("/") in run["run"].partition("--toolemu-run-dir=")[2].split()
    assert upload["with"]["name"].startswith(download["with"]["pattern"].rstrip("*"))
    assert (gate["needs"], gate["if"]) == ("shard", "${{ !cancelled() }}")
    lines = [step["run"] for step in gate["steps"] if step.get("run", "").startswith("toolemu ")]
    assert lines[0] == f"toolemu merge {download['with']['path']} --into whole"
    assert lines[-1] == "toolemu gate whole"
    check_options_exist(run["run"], *lines)


def test_the_indexed_job_runs_every_shard_and_the_gate_reads_all_results() -> None:
    job, gate = read(EXAMPLES / "kubernetes" / "shards.yaml"), read(EXAMPLES / "kubernetes" / "merge.yaml")
    assert job["spec"]["completionMode"] == "Indexed"
    texts = []
    for manifest in (job, gate):
        pod = manifest["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert container["command"] == ["sh", "-c"]
        (text,) = container["args"]
        texts.append(text)
        assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == "toolemu-records"
        assert container["volumeMounts"] == [{"name": "records", "mountPath": "/records"}]
    count = job["spec"]["completions"]
    shards = [shard_of(texts[0], index) for index in range(count)]
    assert shards == [(f"{index + 1}/{count}", f"/records/shards/{index}") for index in range(count)]
    assert "toolemu merge /records/shards --into /records/whole" in texts[1]
    check_options_exist(*texts)


def shard_of(text: str, index: int) -> tuple[str, str]:
    """Return the shard and the folder in a pod's command, as its shell expands them."""
    environ = {**os.environ, "JOB_COMPLETION_INDEX": str(index)}
    script = text.replace(
        "exec pytest", f"exec {shlex.quote(sys.executable)} -c 'import json, sys; print(json.dumps(sys.argv[1:]))'"
    )
    result = subprocess.run(["sh", "-c", script], env=environ, capture_output=True, text=True, check=True)
    options = dict(option.partition("=")[::2] for option in json.loads(result.stdout))
    return options["--toolemu-shard"], options["--toolemu-run-dir"]


def check_options_exist(*commands: str) -> None:
    """Assert that every option and subcommand in these commands exists."""
    options = {option.option for option in OPTIONS}
    subcommands = set(get_command(app).commands)  # type: ignore[attr-defined]
    for command in commands:
        assert set(re.findall(r"--toolemu-[a-z-]+", command)) <= options
        assert set(re.findall(r"\btoolemu ([a-z]+)", command)) <= subcommands
    assert any(script.name == "toolemu" for script in entry_points(group="console_scripts"))
