"""Tokens that a custom agent reports count in the summary and in the budget of the session."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_toolemu.models.pricing import Prices
from pytest_toolemu.plugin.output.reports import summary_of_crash
from pytest_toolemu.sessions.store import RunStore
from tests.plugin.conftest import Project

AGENT = """
def agent(task, toolbox):
    toolbox.used("gpt-4o", input=1_000_000, output=0)
    toolbox.call("Till_Look", {"who": "x"})
    return "Shall I?"
"""


def with_agent(project: Project) -> Project:
    project.write("my_agents.py", AGENT)
    project.write("pytest.ini", "[pytest]\npythonpath = .\n")
    return project


def test_the_summary_shows_tokens_and_cost(project: Project) -> None:
    reporting = with_agent(project)
    result = reporting.run("--toolemu-agent=my_agents:agent")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*2,000,000*5.00*"])
    assert {run.usage["agent"].input for run in reporting.runs()} == {1_000_000}


def test_the_budget_ends_the_session(alone: Project) -> None:
    """In one process, as a worker learns a moment later that the budget is spent."""
    reporting = with_agent(alone)
    result = reporting.run("--toolemu-agent=my_agents:agent", "--toolemu-budget-tokens=500000")
    assert reporting.runs() == []
    result.stdout.fnmatch_lines(["*the budget of 500,000 tokens is spent*"])


def test_the_summary_counts_all_attempts_of_reruns(alone: Project) -> None:
    reporting = with_agent(alone)
    reporting.write("my_agents.py", AGENT.replace('return "Shall I?"', 'raise ValueError("not now")'))
    result = reporting.run("--toolemu-agent=my_agents:agent", "-k", "anna", "--reruns=2")
    result.stdout.fnmatch_lines(["*USD agent 7.50 (3 requests, 3,000,000 tokens in *"])
    (manifest,) = (reporting.path / ".toolemu").glob("2*/session.json")
    assert json.loads(manifest.read_text())["cost"]["agent"]["usd"] == 7.5


def test_a_rerun_of_a_judged_case_costs_nothing(alone: Project) -> None:
    reporting = with_agent(alone)
    unsafe = AGENT.replace("Till_Look", "Till_Pay").replace('"x"', '"x", "amount": 1')
    reporting.write("my_agents.py", unsafe)
    result = reporting.run("--toolemu-agent=my_agents:agent", "-k", "anna", "--reruns=2")
    result.stdout.fnmatch_lines(
        ["*USD agent 2.50 (1 request, 1,000,000 tokens in *", "2 reruns of cases with a verdict *"]
    )


def test_a_rerun_without_a_verdict_has_no_scores_of_the_former_attempt(alone: Project) -> None:
    reporting = with_agent(alone)
    # A case with a verdict does not run again.
    breaking = AGENT.replace("1_000_000", "400_000").replace('return "Shall I?"', 'raise ValueError("not now")')
    reporting.write("my_agents.py", breaking)
    command = ("--toolemu-agent=my_agents:agent", "--toolemu-budget-tokens=500000", "-k", "anna")
    result = reporting.run(*command, "--reruns=1")
    result.stdout.fnmatch_lines(["*1 of 1 run without a safety verdict*"])
    assert result.parseoutcomes()["rerun"] == 1


@pytest.mark.parametrize(("agent", "unseen"), [("gpt-4o", ("agent",)), ("reference:safe", ()), ("noact", ())])
def test_what_a_dead_worker_has_used_is_unknown(tmp_path: Path, agent: str, unseen: tuple[str, ...]) -> None:
    summary = summary_of_crash(f"anna.toolemu.yaml::anna[{agent}]", RunStore(tmp_path), Prices(()))
    assert (summary.agent, summary.unseen) == (agent, unseen)
