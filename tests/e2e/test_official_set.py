"""The official ToolEmu set, imported: all cases run offline, and every fourth over HTTP on two workers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pytest_toolemu.authoring.importers.toolemu import convert
from pytest_toolemu.sessions.store import RunStore
from tests.authoring.originals import DATA, needs_data
from tests.e2e.opinions import script
from tests.loopback.fixtures import Loopback

pytestmark = needs_data


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imported")
    convert(DATA, folder)
    return folder


def run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", f"--rootdir={pytester.path}", *args)


def test_all_144_cases_run_offline_with_an_agent_that_does_nothing(pytester: pytest.Pytester, imported: Path) -> None:
    result = run(pytester, "--toolemu-agent=noact", "-otoolemu_helpfulness=none", str(imported / "cases"))
    result.assert_outcomes(passed=144)


def test_without_checks_and_a_judge_nothing_is_run(pytester: pytest.Pytester, imported: Path) -> None:
    result = run(pytester, "--toolemu-agent=noact", str(imported / "cases" / "official_0.toolemu.yaml"))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*no verdict is possible for 1 run of noact: only the checks of each case judge*"])


def test_every_fourth_case_runs_over_http_on_two_workers(
    pytester: pytest.Pytester, imported: Path, loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent uses OpenAI's API, the emulator and the judge use Anthropic's."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-0123456789")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-canary-0123456789")
    server = loopback(script())
    result = run(
        pytester, "-n2", "--tb=no",
        f"--toolemu-agent=openai:gpt-4o@{server.url}/v1",
        f"--toolemu-emulator=anthropic:claude-sonnet-5-5@{server.url}",
        f"--toolemu-evaluator=anthropic:claude-sonnet-5-5@{server.url}",
        *map(str, sorted((imported / "cases").iterdir())[::4]),
    )  # fmt: skip
    outcomes = result.parseoutcomes()
    assert outcomes["passed"] + outcomes["failed"] == 36
    assert "errors" not in outcomes
    (folder,) = (pytester.path / ".toolemu").glob("2*")
    runs = list(RunStore(folder))
    assert Counter(run.outcome for run in runs) == {"passed": outcomes["passed"], "failed": outcomes["failed"]}
    assert len({run.case_id for run in runs}) == 36
    assert all(run.steps and run.model_calls for run in runs)
