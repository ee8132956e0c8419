"""The public API. A change here affects users: it goes into CHANGELOG.md, then into these lists."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import pytest_toolemu
from pytest_toolemu.cli import app

NAMES = [
    "AgentStopped", "BlockingToolbox", "Call", "Case", "DocumentError", "Finding", "InconclusiveError", "Limits", "ModelError",
    "Observation", "ResolvedCase", "Run", "RunSpec", "RunStore", "Task", "Toolbox", "ToolemuError", "Toolkit", "Trajectory", "UsageError",
    "UserReply", "Verdict", "benchmark_folder", "load_case", "load_run", "run_case",
]  # fmt: skip

OPTIONS = [
    "agent", "prompt", "emulator", "evaluator", "gate", "trials", "turns", "concurrency", "sample", "budget-usd",
    "estimate", "report", "resume", "record", "replay", "benchmark", "agent-env", "world", "worlds", "builder", "checks",
    "judge-later", "min-safety", "stop-when-decided", "calibration", "user", "max-steps", "timeout", "shard", "seed",
    "vllm-url", "budget-tokens", "deadline", "run-dir", "offline",
]  # fmt: skip

INI_ONLY = [
    "protocol", "emulator_mode", "combine", "helpfulness", "min_helpfulness", "min_honesty", "max_tokens", "run_ahead", "temperature",
    "max_output_tokens", "request_timeout", "vllm_args", "vllm_lora", "vllm_timeout", "prices", "run_dir_mode",
    "resume_again", "same_failures", "exit_timeout",
]  # fmt: skip

COMMANDS: dict[str, Any] = {
    "init": {},
    "new": {},
    "generate": {"toolkits": {}, "cases": {}},
    "vary": {},
    "complete": {},
    "lint": {},
    "worlds": {},
    "stats": {},
    "pin": {},
    "gate": {},
    "merge": {},
    "slurm": {},
    "compare": {},
    "report": {},
    "show": {},
    "ui": {},
    "judge": {},
    "calibrate": {},
    "serve": {},
    "label": {},
    "check": {},
    "review": {},
    "import": {"tools": {}, "toolemu": {}, "trajectories": {}, "labeled": {}, "trace": {}},
    "baseline": {},
    "export": {},
}


def test_the_public_names() -> None:
    assert pytest_toolemu.__all__ == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_resolves_to_an_object_with_that_name(name: str) -> None:
    assert getattr(pytest_toolemu, name).__name__ == name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Tolbox'"):
        getattr(pytest_toolemu, "Tolbox")  # noqa: B009 - a plain access is a type error


def test_the_options_and_ini_keys_of_pytest(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "--help"]
    help_text = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"^  --toolemu-([a-z-]+)", help_text, re.MULTILINE) == OPTIONS
    keys = {name.replace("-", "_") for name in OPTIONS} | set(INI_ONLY)
    assert set(re.findall(r"^  toolemu_(\w+) \(", help_text, re.MULTILINE)) == keys
    assert "(default: )" not in " ".join(help_text.split())


def test_the_commands_of_toolemu() -> None:
    assert _commands(typer.main.get_command(app)) == COMMANDS


def test_the_help_of_commands_has_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = CliRunner().invoke(app, ["generate", "cases", "--help"]).output.split("\n")
    start = next(index for index, line in enumerate(lines) if "Each stage is stored" in line)
    assert [len(line.strip()) > 60 for line in lines[start : start + 3]] == [True, True, False]


def test_the_version_is_that_of_the_package_metadata() -> None:
    assert pytest_toolemu.__version__ == metadata.version("pytest-toolemu")


def test_shells_complete_the_commands() -> None:
    environment = {"_TOOLEMU_COMPLETE": "complete_bash", "COMP_WORDS": "toolemu li", "COMP_CWORD": "1"}
    assert CliRunner().invoke(app, env=environment, prog_name="toolemu").output.split() == ["lint"]
    assert "--install-completion" in CliRunner().invoke(app, ["--help"]).output


def test_the_command_prints_its_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"toolemu {pytest_toolemu.__version__}\n")


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)])
def test_every_command_has_help_with_the_short_option(command: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*command, "-h"], prog_name="toolemu")
    assert result.exit_code == 0, result.output
    assert f"Usage: {' '.join(('toolemu', *command))}" in result.output


def _commands(command: Any) -> dict[str, Any]:
    return {name: _commands(inner) for name, inner in getattr(command, "commands", {}).items()}


def test_the_package_is_marked_as_typed() -> None:
    assert resources.files(pytest_toolemu).joinpath("py.typed").is_file()
