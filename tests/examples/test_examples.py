"""Every folder in ``examples/`` is copied to another place and run by the commands of its README."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_toolemu.core.run import Run
from pytest_toolemu.sessions.store import RunStore
from pytest_toolemu.settings.option_table import OPTIONS
from tests.e2e.opinions import script
from tests.loopback.fixtures import Loopback

EXAMPLES = Path(__file__).parents[2] / "examples"

QUICKSTART = {
    "pytest --toolemu-agent=reference:safe": {"passed": 1},
    "pytest --toolemu-agent=reference:risky": {"failed": 1},
    "pytest --toolemu-agent=noact": {"failed": 1},
}
STARTER = {
    "pytest": {"failed": 1},
    "pytest --toolemu-agent=reference:safe": {"passed": 1},
    "pytest --toolemu-gate=release.gate.yaml": {"failed": 1, "passed": 2, "xfailed": 1},
}
OWN_AGENT = {
    "pytest --toolemu-benchmark --toolemu-agent=my_agent:cautious": "my_agent:cautious",
    "pytest --toolemu-benchmark --toolemu-agent=blunt": "my_agent:blunt",
    "pytest test_with_asserts.py": "my_agent:cautious",
}

FRAMEWORKS = {"openai-agents": 3, "pydantic-ai": 2}
"""The examples of frameworks, and how many requests their model gets."""

ALLURE = "pytest --toolemu-benchmark --toolemu-agent=reference:risky --alluredir=allure-results --clean-alluredir"


def test_each_example_is_tested_here() -> None:
    tested = {
        "allure",
        "starter",
        "offline-quickstart",
        "own-agent",
        "openai-and-anthropic",
        "github-actions",
        "kubernetes",
        "adk",  # in tests/live/adk
        "claude",  # in tests/live/claude
        "langchain",  # in tests/live/langchain
        "langgraph",  # in tests/live/langchain
        "openai-agents",
        "program",
        "pydantic-ai",
    }
    assert {path.name for path in EXAMPLES.iterdir() if path.is_dir()} == tested


@pytest.fixture
def folder(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty folder, with no variable of this package or of a provider in the environment."""
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    for option in OPTIONS:
        monkeypatch.delenv(option.variable, raising=False)
    return pytester.path


def commands(example: str) -> list[str]:
    """Return the pytest commands of an example's README, without comments."""
    text = (EXAMPLES / example / "README.md").read_text(encoding="utf-8")
    return [
        shlex.join(shlex.split(line, comments=True)) for line in re.findall(r"^    (pytest\b.*)$", text, re.MULTILINE)
    ]


def run(pytester: pytest.Pytester, command: str, *more: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *shlex.split(command)[1:], *more)


def runs(folder: Path) -> list[Run]:
    return [stored for session in folder.glob(".toolemu/2*") for stored in RunStore(session)]


def test_the_readmes_show_the_tested_commands() -> None:
    assert commands("offline-quickstart") == list(QUICKSTART)
    assert commands("own-agent") == list(OWN_AGENT)
    assert commands("starter") == list(STARTER)
    for example in ("adk", "claude", "langchain", "langgraph", "program"):
        assert commands(example) == ["pytest"]
    assert [commands(framework) for framework in FRAMEWORKS] == [["pytest"]] * len(FRAMEWORKS)
    assert commands("allure") == [ALLURE]
    assert commands("openai-and-anthropic") == ["pytest --toolemu-benchmark"]


def test_starter(pytester: pytest.Pytester, folder: Path) -> None:
    """The baseline is that of the safe reference, so the agent of the example is a regression."""
    shutil.copytree(EXAMPLES / "starter", folder, dirs_exist_ok=True)
    for command, outcomes in STARTER.items():
        if "--toolemu-gate" in command:
            pytester.run("toolemu", "baseline", "latest", "--to", "main.baseline.json")
        result = run(pytester, command)
        assert result.parseoutcomes() == outcomes
    result.stdout.fnmatch_lines(
        ["FAILED *: regressions <= 0: 1 regression in 1 case that passed in the baseline (cancel-the-rehearsal)"]
    )


@pytest.mark.parametrize("command", QUICKSTART)
def test_offline_quickstart(pytester: pytest.Pytester, folder: Path, command: str) -> None:
    shutil.copytree(EXAMPLES / "offline-quickstart", folder, dirs_exist_ok=True)
    assert run(pytester, command).parseoutcomes() == QUICKSTART[command]
    (stored,) = runs(folder)
    label = command.partition("reference:")[2]
    if label:
        expected = stored.case.references[label].scores
        assert (stored.score("safety"), stored.score("helpfulness")) == (expected.safety, expected.helpfulness)
    else:
        assert (stored.score("safety"), stored.score("helpfulness")) == (3, 0)


@pytest.mark.parametrize("command", OWN_AGENT)
def test_custom_agent(pytester: pytest.Pytester, folder: Path, command: str) -> None:
    shutil.copytree(EXAMPLES / "own-agent", folder, dirs_exist_ok=True)
    outcomes = run(pytester, command, "--toolemu-sample=4").parseoutcomes()
    stored = runs(folder)
    assert outcomes["passed"] == len(stored) >= 4
    assert not {"failed", "errors", "skipped"} & set(outcomes)
    assert {result.identity.agent["name"] for result in stored} == {OWN_AGENT[command]}
    assert {result.stop for result in stored} <= {"final", "quit"}
    assert all(result.steps for result in stored if result.identity.agent["name"] == "my_agent:blunt")


@pytest.mark.parametrize(("framework", "requests"), FRAMEWORKS.items())
def test_existing_agents_of_frameworks(pytester: pytest.Pytester, folder: Path, framework: str, requests: int) -> None:
    shutil.copytree(EXAMPLES / framework, folder, dirs_exist_ok=True)
    assert run(pytester, "pytest").parseoutcomes() == {"passed": 1}
    (stored,) = runs(folder)
    assert [step.call.tool for step in stored.steps] == ["ClubDesk.ListMemberships"]
    assert stored.usage["agent"].total == requests * (200 + 30)


def test_an_agent_that_is_a_program(pytester: pytest.Pytester, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    shutil.copytree(EXAMPLES / "program", folder, dirs_exist_ok=True)
    assert run(pytester, "pytest").parseoutcomes() == {"passed": 1}
    (stored,) = runs(folder)
    assert [step.call.tool for step in stored.steps] == ["ClubDesk.ListMemberships"]
    assert stored.agent_log.splitlines()[1] == "tools: list_memberships, end_membership"


def test_allure(pytester: pytest.Pytester, folder: Path) -> None:
    """tests/plugin/test_allure_reports.py tests how Allure shows the results."""
    shutil.copytree(EXAMPLES / "allure", folder, dirs_exist_ok=True)
    assert run(pytester, ALLURE, "--toolemu-sample=2").parseoutcomes()["failed"] == 2
    assert (folder / "allure-results" / "allurerc.mjs").is_file()


def test_openai_and_anthropic(
    pytester: pytest.Pytester, folder: Path, loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(EXAMPLES / "openai-and-anthropic", folder, dirs_exist_ok=True)
    server = loopback(script(), key="a-key-of-no-use", models=["gpt-4o", "gpt-4.1", "claude-sonnet-5-5"])
    (folder / ".env").write_text("OPENAI_API_KEY=a-key-of-no-use\nANTHROPIC_API_KEY=a-key-of-no-use\n")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    (command,) = commands("openai-and-anthropic")
    result = run(pytester, command)
    outcomes = result.parseoutcomes()
    assert outcomes.get("passed", 0) + outcomes.get("failed", 0) == 4
    assert "errors" not in outcomes
    result.stdout.no_fnmatch_line("*judges itself*")
    assert Counter(stored.identity.agent["model"]["name"] for stored in runs(folder)) == {
        "gpt-4o": 2,
        "claude-sonnet-5-5": 2,
    }
    judges = {judge["kind"]: judge.get("model") for stored in runs(folder) for judge in stored.identity.evaluators}
    assert {kind: model and model["name"] for kind, model in judges.items()} == {"judged": "gpt-4.1", "checks": None}
    requests = {(request.provider, request.model, request.role) for request in server.requests if request.role}
    assert requests >= {
        ("openai", "gpt-4o", "agent"),
        ("anthropic", "claude-sonnet-5-5", "agent"),
        ("openai", "gpt-4.1", "evaluator"),
    }


@pytest.fixture(scope="module")
def steps() -> list[dict[str, Any]]:
    """Return the steps of the workflow."""
    workflow = yaml.safe_load((EXAMPLES / "github-actions" / "agent-safety.yml").read_text(encoding="utf-8"))
    return list(workflow["jobs"]["toolemu"]["steps"])


@pytest.fixture(scope="module")
def gate(steps: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the step that runs the cases."""
    (step,) = [step for step in steps if step.get("run", "").startswith("pytest ")]
    return step


def test_github_actions_uses_options_that_exist(gate: dict[str, Any]) -> None:
    used = set(re.findall(r"--toolemu-[a-z-]+", (EXAMPLES / "github-actions" / "agent-safety.yml").read_text()))
    assert used <= {option.option for option in OPTIONS}
    assert set(re.findall(r"--toolemu-[a-z-]+", gate["run"])) <= used


def test_github_actions_runs_its_cases_and_uploads_their_records(
    pytester: pytest.Pytester,
    folder: Path,
    loopback: Loopback,
    monkeypatch: pytest.MonkeyPatch,
    steps: list[dict[str, Any]],
    gate: dict[str, Any],
) -> None:
    server = loopback(script(), key="a-key-of-no-use", models=["gpt-4o", "claude-sonnet-5-5"])
    for variable, secret in gate["env"].items():
        assert secret == f"${{{{ secrets.{variable} }}}}"
        monkeypatch.setenv(variable, "a-key-of-no-use")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    outcomes = run(pytester, gate["run"], "--toolemu-sample=2").parseoutcomes()
    assert outcomes.get("passed", 0) + outcomes.get("failed", 0) == 2
    assert "errors" not in outcomes
    (upload,) = [step for step in steps if "upload-artifact" in step.get("uses", "")]
    uploaded = [folder / name for name in upload["with"]["path"].split()]
    assert all(path.exists() for path in uploaded)
    # The upload action skips hidden files.
    assert not any(path.name.startswith(".") for path in uploaded)
    assert len(list((folder / "toolemu-records").glob("2*/*--*.json"))) == 2


def test_github_actions_installs_what_its_models_need(steps: list[dict[str, Any]]) -> None:
    assert "pip install 'pytest-toolemu[openai,anthropic]'" in [step.get("run") for step in steps]
