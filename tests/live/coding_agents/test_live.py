"""The command lines of coding agents as agents under test, with a scripted model: Claude Code, and Codex.

The first run installs them into ``.live/coding_agents`` (650 MB), where they are kept.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pytest_toolemu.agents.programs.command import command_agent
from pytest_toolemu.core.engine import RunSpec, run_case
from pytest_toolemu.core.run import Run
from tests.adapters.framework_case import full_marks
from tests.agents.scene import opened, resolved_case
from tests.live.coding_agents.model_server import ANSWER, scripted_model
from tests.live.npm import FOLDER, installed

PACKAGES = ("@anthropic-ai/claude-code", "@openai/codex")
TIMEOUT = 900


@pytest.fixture(scope="session")
def programs() -> Path:
    return installed(FOLDER / "coding_agents", PACKAGES) / "node_modules" / ".bin"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the home of the agents, so that they neither read nor change the settings of a person."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    return tmp_path


def run(command: str) -> Run:
    return asyncio.run(run_case(RunSpec(resolved_case(), command_agent(f"cmd: {command}"), opened, (full_marks,))))


@pytest.mark.timeout(TIMEOUT)
def test_claude_code_has_only_emulated_tools(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    monkeypatch.setenv("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
    with scripted_model() as (url, offered):
        monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
        options = "--mcp-config {mcp_config} --strict-mcp-config --tools '' --allowedTools mcp__tools"
        result = run(f"{programs / 'claude'} -p {{task}} {options}")
    assert (result.outcome, result.answer, [step.call.tool for step in result.steps]) == (
        "passed",
        ANSWER,
        ["Lockers.Open"],
    )
    assert {name.rpartition("__")[2] for name in offered} == {"Lockers_Open"}


@pytest.mark.timeout(TIMEOUT)
def test_codex_calls_emulated_tools(programs: Path, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with scripted_model() as (url, offered):
        (home / "config.toml").write_text(
            'model = "scripted"\nmodel_provider = "scripted"\n'
            '[model_providers.scripted]\nname = "scripted"\nwire_api = "responses"\nenv_key = "OPENAI_API_KEY"\n'
            f'base_url = "{url}/v1"\n'
        )
        server = '-c mcp_servers.tools.url={mcp_url} -c mcp_servers.tools.default_tools_approval_mode="approve"'
        result = run(f"{programs / 'codex'} exec --skip-git-repo-check --sandbox read-only {server} {{task}}")
    assert (result.outcome, result.answer, [step.call.tool for step in result.steps]) == (
        "passed",
        ANSWER,
        ["Lockers.Open"],
    )
    assert "Lockers_Open" in offered
