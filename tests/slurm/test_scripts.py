"""The batch scripts of a job array: their directives, their commands, and their syntax. tests/live runs them on Slurm."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pytest_toolemu.cli import app
from pytest_toolemu.errors import UsageError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="batch scripts are bash")

SERVED = (
    "--shards=4",
    "--setup=module load cuda/12.4",
    "--sbatch=--partition=gpu --time=4:00:00 --gpus=2 --account=lab",
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def slurm(*args: str) -> Result:
    return CliRunner().invoke(app, ["slurm", *args])


def directives(script: Path) -> list[str]:
    return re.findall(r"^#SBATCH (.*)$", script.read_text(), re.MULTILINE)


def refused(*args: str) -> str:
    error = slurm(*args).exception
    assert isinstance(error, UsageError)
    return str(error)


def check(script: Path) -> None:
    """Check a script with bash, and with shellcheck if it is installed."""
    subprocess.run(["bash", "-n", str(script)], check=True)
    if shutil.which("shellcheck"):
        result = subprocess.run(
            ["shellcheck", "--severity=warning", str(script)], capture_output=True, text=True, check=False
        )
        assert result.stdout == ""


@pytest.mark.parametrize("into", ["runs/gpt-4o", "a folder/it's"])
@pytest.mark.parametrize("more", [(), SERVED])
@pytest.mark.parametrize(
    "options", [("--toolemu-agent=gpt-4o",), ("cases", "-k", "not 'x' and $y", "--toolemu-report=md")]
)
def test_scripts_are_valid_bash(here: Path, into: str, more: tuple[str, ...], options: tuple[str, ...]) -> None:
    assert slurm("--into", into, *more, "--", *options).exit_code == 0
    for name in ("array.sh", "merge.sh"):
        check(here / into / name)
        assert os.access(here / into / name, os.X_OK)
    assert (here / into / "logs").is_dir()


def test_an_array_for_a_provider_has_no_directives_beyond_the_options(here: Path) -> None:
    result = slurm("--into=runs", "--", "--toolemu-agent=gpt-4o")
    assert directives(here / "runs" / "array.sh") == [
        "--job-name=toolemu-runs",
        "--array=1-8",
        f'--output="{here}/runs/logs/%a.log"',
        "--open-mode=append",
        "--requeue",
        "--signal=B:USR1@120",
    ]
    assert f"{sys.executable} -m pytest --toolemu-agent=gpt-4o \\" in (here / "runs" / "array.sh").read_text()
    assert result.output.splitlines() == [
        f"{here}/runs/array.sh",
        f"{here}/runs/merge.sh",
        "submit both with:",
        f'sbatch --dependency="afterany:$(sbatch --parsable {here}/runs/array.sh)" {here}/runs/merge.sh',
    ]


def test_an_array_that_serves_models_requests_gpus_but_its_merge_does_not(here: Path) -> None:
    slurm("--into=runs", *SERVED, "--", "--toolemu-agent=Qwen/Qwen3-8B", "--toolemu-report=md,html")
    assert directives(here / "runs" / "array.sh")[6:] == [
        "--partition=gpu", "--time=4:00:00", "--gpus=2", "--account=lab",
    ]  # fmt: skip
    assert directives(here / "runs" / "merge.sh")[3:] == ["--partition=gpu", "--time=4:00:00", "--account=lab"]
    array, merge = ((here / "runs" / name).read_text() for name in ("array.sh", "merge.sh"))
    for script in (array, merge):
        assert f"cd {here}\nmodule load cuda/12.4\n" in script
    assert f"report {here}/runs/whole --format md,html\n" in merge


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--", "--toolemu-shard=1/2"), "--toolemu-shard is set for each task by the script; remove it"),
        (("--", "--toolemu-run-dir", "x"), "--toolemu-run-dir is set for each task by the script; remove it"),
        (
            ("--sbatch=account", "--", "c"),
            "--sbatch: 'account' is not an option of sbatch; write an option, such as --account=lab",
        ),
        (
            ("--sbatch='--time=1\n2'", "--", "c"),
            "--sbatch: '--time=1\\n2' is not an option of sbatch; write an option, such as --account=lab",
        ),
    ],
)
def test_conflicting_and_invalid_options_are_refused(here: Path, args: tuple[str, ...], message: str) -> None:
    assert refused("--into=runs", *args) == message
    assert not (here / "runs" / "array.sh").exists()


def test_a_folder_that_no_directive_can_name_is_refused(here: Path) -> None:
    del here
    assert refused('--into=a"b', "--", "c").endswith("cannot be written into a batch script; name another folder")


def test_a_folder_with_shards_of_an_earlier_session_is_refused(here: Path) -> None:
    earlier = here / "runs" / "shards" / "1" / "20261120-101010-0a1b2c3d4e5f6"
    earlier.mkdir(parents=True)
    (earlier / "session.json").write_text("{}")
    assert refused("--into=runs", "--shards=2", "--", "--toolemu-agent=gpt-4o") == (
        f"--into: {here / 'runs'} contains the shards of an earlier session, which a new one would resume; name another "
        f"folder, or continue that session: sbatch {here / 'runs' / 'array.sh'}"
    )
