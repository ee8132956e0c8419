"""Cases without an agent, and settings without effect, never look like success."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugin.conftest import CASE, Project

REMEDY = "name the agent with --toolemu-agent=NAME, TOOLEMU_AGENT, or toolemu_agent in the ini file"
FIXTURE = """
import pytest

@pytest.fixture
def toolemu_agent():
    return lambda task, toolbox: "Shall I?"
"""
HOOK = """
def pytest_toolemu_make_agent(name, case, config):
    return {agent}
"""


def text(result: pytest.RunResult) -> str:
    return result.stdout.str() + result.stderr.str()


def test_the_summary_states_that_nothing_was_tested(alone: Project) -> None:
    result = alone.run()
    result.assert_outcomes(skipped=2)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        [f"toolemu: nothing was tested: 2 cases were collected, but no agent is configured; {REMEDY}"]
    )


@pytest.mark.parametrize(
    ("argument", "environment", "ini", "source"),
    [
        ("--toolemu-evaluator=checks", {}, "", "--toolemu-evaluator is given"),
        ("--toolemu-trials=2", {}, "", "--toolemu-trials is given"),
        ("--toolemu-estimate", {}, "", "--toolemu-estimate is given"),
        ("", {"TOOLEMU_AGENT": ""}, "", "TOOLEMU_AGENT is set but empty"),
        ("", {"TOOLEMU_AGENT": " "}, "", "TOOLEMU_AGENT is set but empty"),
        ("", {"TOOLEMU_GATE": "mean_safety >= 2"}, "", "TOOLEMU_GATE is given"),
        ("", {}, "toolemu_evaluator = checks\n", "ini toolemu_evaluator is given"),
        ("", {"CI": "true"}, "", "CI is set in the environment"),
    ],
)
def test_if_a_verdict_is_expected_a_missing_agent_is_a_usage_error_that_names_the_source(
    alone: Project, monkeypatch: pytest.MonkeyPatch, argument: str, environment: dict[str, str], ini: str, source: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    alone.write("pytest.ini", f"[pytest]\n{ini}")
    result = alone.run(*filter(None, [argument]))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"no agent is configured, although {source}; {REMEDY}, or exclude the cases" in text(result)


def test_with_workers_a_missing_agent_is_a_usage_error_too(alone: Project) -> None:
    alone.runner = ("-n", "2")
    result = alone.run("--toolemu-evaluator=checks")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "2 cases were collected, but no agent is configured, although --toolemu-evaluator is given" in text(result)


def test_a_hook_that_creates_no_agent_is_reported_at_the_end(alone: Project) -> None:
    alone.write("conftest.py", HOOK.format(agent=None))
    result = alone.run("--toolemu-evaluator=checks")
    result.assert_outcomes(skipped=2)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "although --toolemu-evaluator is given" in text(result)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("conftest.py", FIXTURE),
        ("cases/conftest.py", FIXTURE),
        ("conftest.py", HOOK.format(agent="lambda *_: 'Shall I?'")),
    ],
    ids=["fixture", "fixture of a folder", "hook"],
)
def test_an_agent_that_the_project_creates_counts(
    alone: Project, monkeypatch: pytest.MonkeyPatch, name: str, content: str
) -> None:
    monkeypatch.setenv("CI", "true")
    alone.write(name, content)
    result = alone.run("-otoolemu_min_helpfulness=0")
    result.assert_outcomes(passed=2)
    assert "no agent is configured" not in text(result)


def test_cases_without_an_agent_beside_others_are_listed(alone: Project) -> None:
    alone.write("cases/mine/conftest.py", FIXTURE)
    alone.case("mine/cora")
    result = alone.run("-otoolemu_min_helpfulness=0")
    result.assert_outcomes(passed=1, skipped=2)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        ["toolemu: not tested, because no agent is configured for 2 cases: cases/anna.toolemu.yaml::anna, *bert; name*"]
    )


def test_options_in_addopts_do_not_stop_other_tests(alone: Project) -> None:
    alone.write("pytest.ini", "[pytest]\naddopts = --toolemu-report=html\n")
    alone.write("test_other.py", "def test_other(): pass\n")
    result = alone.run()
    result.assert_outcomes(passed=1, skipped=2)
    assert result.ret == pytest.ExitCode.OK


def test_collecting_needs_no_agent(alone: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    assert alone.run("--collect-only", "--toolemu-trials=2").ret == pytest.ExitCode.OK


def test_other_tests_need_no_agent(alone: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    alone.write("test_other.py", "def test_other(): pass\n")
    alone.run("test_other.py").assert_outcomes(passed=1)


def test_an_estimate_is_refused_if_fixtures_create_the_agents(alone: Project) -> None:
    alone.write("conftest.py", FIXTURE)
    result = alone.run("--toolemu-estimate")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "fixtures create the agents of all cases (2)" in text(result)


def test_a_misspelled_variable_stops_the_session(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLEMU_MIN_SAFTY", "3")
    result = project.run("--toolemu-agent=reference:safe", "-q")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "TOOLEMU_MIN_SAFTY is not a known setting; did you mean TOOLEMU_MIN_SAFETY? Rename or remove it" in text(
        result
    )
    assert project.runs() == []


def test_a_misspelled_variable_in_the_env_file_stops_the_session(alone: Project) -> None:
    alone.write(".env", "TOOLEMU_TRAILS=3\n")
    result = alone.run("--toolemu-agent=reference:safe")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "TOOLEMU_TRAILS is not a known setting; did you mean TOOLEMU_TRIALS? Rename or remove it" in text(result)


def test_variables_without_effect_cause_a_warning(alone: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLEMU_WEATHER", "offline")
    monkeypatch.setenv("TOOLEMU_AGENT", "")
    alone.write("pytest.ini", "[pytest]\ntoolemu_agent = reference:safe\n")
    alone.write(".env", "TOOLEMU_ROOM=1\n")
    result = alone.run()
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        [
            "toolemu: warning: TOOLEMU_AGENT is set but empty, and has no effect",
            "toolemu: warning: TOOLEMU_ROOM is not a known setting and has no effect",
            "toolemu: warning: TOOLEMU_WEATHER is not a known setting and has no effect",
        ]
    )


def test_settings_in_the_env_file_take_effect(project: Project) -> None:
    project.write(".env", "TOOLEMU_AGENT=reference:safe\nTOOLEMU_TRIALS=2\n")
    result = project.run()
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["toolemu: agent reference:safe (TOOLEMU_AGENT in .env), *"])


def test_sessions_without_cases_ignore_the_variables(alone: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLEMU_MIN_SAFTY", "3")
    alone.write("test_other.py", "def test_other(): pass\n")
    result = alone.run("test_other.py")
    result.assert_outcomes(passed=1)
    assert "TOOLEMU" not in text(result)


def test_a_notice_names_the_fixture_that_overrides_the_agent_of_the_command_line(project: Project) -> None:
    project.write("cases/mine/conftest.py", FIXTURE)
    project.case("mine/cleo", text=CASE.replace("with the till", "with the second till"))
    result = project.run("--toolemu-agent=noact", "-otoolemu_min_helpfulness=0")
    notice = (
        f"warning: --toolemu-agent has no effect on 1 of 3 cases: the fixture toolemu_agent in {Path('cases/mine/conftest.py')} "
        "provides the agent; remove or rename the fixture to test noact"
    )
    assert notice in " ".join(text(result).split())


def test_the_notice_comes_before_the_first_case_and_covers_shipped_cases(alone: Project) -> None:
    alone.write("conftest.py", FIXTURE)
    result = alone.run("--toolemu-agent=noact", "--toolemu-benchmark", "--toolemu-sample=2", "--collect-only")
    assert (
        "toolemu: warning: --toolemu-agent has no effect on 2 of 2 cases: the fixture toolemu_agent in conftest.py"
        in text(result)
    )


@pytest.mark.parametrize("ini", ["toolemu_agent = noact", ""], ids=["an agent in the ini file", "no named agent"])
def test_there_is_no_notice_if_a_fixture_overrides_no_agent_of_the_command_line(alone: Project, ini: str) -> None:
    alone.write("conftest.py", FIXTURE)
    alone.write("pytest.ini", f"[pytest]\n{ini}\n")
    assert "has no effect" not in text(alone.run())


def test_the_summary_names_the_sources_of_a_first_case(alone: Project) -> None:
    empty = alone.write("empty/agent.py", "").parent
    result = alone.run("--toolemu-agent=noact", str(empty))
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(
        [
            "toolemu: there is no case to run, a file named ID.toolemu.yaml; write a first one with 'toolemu init', or "
            "run the shipped cases with --toolemu-benchmark"
        ]
    )
    assert "no case to run" not in text(alone.run(str(empty)))


def test_deselected_cases_are_not_missing(alone: Project) -> None:
    assert "no case to run" not in text(alone.run("--toolemu-agent=noact", "-k", "nothing"))


@pytest.mark.parametrize("names_file", [False, True])
def test_a_case_without_the_suffix_is_named(alone: Project, names_file: bool) -> None:
    path = alone.write("more/book-mia.yaml", CASE.format(who="mia", tag="named"))
    alone.write("more/compose.yaml", "services: {}\n")
    result = alone.run("--collect-only", str(path if names_file else path.parent))
    problem = "'book-mia.yaml' has the content of a case but not its suffix; rename it to 'book-mia.toolemu.yaml'"
    assert text(result).count(f"PytestCollectionWarning: {problem}") == 1
    assert text(result).count("has the content of a case") == 1
