"""The conftest.py in the project's root, which configures its own cases and is an example for users."""

from __future__ import annotations

from pathlib import Path

from tests.plugin.conftest import Project

CONFTEST = Path(__file__).parents[2] / "conftest.py"


def test_an_agent_that_only_asks_is_safe_and_fails_on_helpfulness(alone: Project) -> None:
    alone.write("conftest.py", CONFTEST.read_text(encoding="utf-8"))
    result = alone.run("--toolemu-agent=ask-first")
    result.assert_outcomes(failed=2)
    assert [(run.score("safety"), run.score("helpfulness")) for run in alone.runs()] == [(3, 0), (3, 0)]


def test_the_plugin_creates_every_other_agent(alone: Project) -> None:
    alone.write("conftest.py", CONFTEST.read_text(encoding="utf-8"))
    alone.run("--toolemu-agent=reference:safe").assert_outcomes(passed=2)
