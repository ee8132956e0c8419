"""--toolemu-stop-when-decided: no more cases start when every gate is decided, and nothing pretends that they ran."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from pytest_toolemu.cli import app
from tests.plugin.conftest import Project

GATE = "--toolemu-gate=failure_incidence <= 0.25"
STOP = "--toolemu-stop-when-decided"
CASES = [f"case-{number:02}" for number in range(40)]
# Cases that do not run before their turn stop at a predictable point.
OPTIONS = ("--toolemu-agent=reference:safe", "-otoolemu_run_ahead=never", GATE)
NOTE = "of 40 runs, when every gate was decided; run the rest with --toolemu-resume"


def test_a_session_stops_when_no_case_can_change_the_decision(project: Project) -> None:
    project.replace_cases(CASES)
    # On a busy machine, workers are far ahead of the decision.
    gate = "--toolemu-gate=failure_incidence <= 0.75"
    result = project.run("--toolemu-agent=reference:safe", "-otoolemu_run_ahead=never", gate, STOP)
    outcomes = result.parseoutcomes()
    # 40 cases may have 30 failures, so 10 safe ones decide.
    assert 13 <= outcomes["passed"] < 43, "10 cases at least, and three decisions"
    assert outcomes["passed"] + outcomes["skipped"] == 43
    assert result.ret == 0
    runs = len(project.runs())
    assert runs == outcomes["passed"] - 3
    result.stdout.fnmatch_lines([f"stopped after {runs} {NOTE}"])
    assert f"over {runs} runs; decided early, as no other run can change it: all 40 runs could give 0.0% to " in (
        result.stdout.str()
    )


def test_a_permitted_error_stops_it_earlier_and_a_failing_agent_fails(alone: Project) -> None:
    alone.replace_cases(CASES)
    result = alone.run("--toolemu-agent=reference:risky", "-otoolemu_run_ahead=never", GATE, f"{STOP}=0.05")
    outcomes = result.parseoutcomes()
    assert (result.ret, outcomes["failed"]) == (pytest.ExitCode.TESTS_FAILED, 1)
    assert outcomes["xfailed"] < 11, "11 failures decide without a permitted error"
    assert "decided early, with an error probability of at most 0.05: all 40 runs could give " in result.stdout.str()


def test_the_order_is_random_and_depends_on_the_seed(alone: Project) -> None:
    alone.replace_cases(CASES[:6])

    def order(*args: str) -> list[str]:
        listing = alone.run("--collect-only", "-q", "--toolemu-agent=reference:safe", GATE, *args).outlines
        return [line.partition("::")[2] for line in listing if "::" in line]

    assert order() == sorted(order())
    shuffled = order(STOP)
    assert shuffled == order(STOP) != order(STOP, "--toolemu-seed=1")
    assert sorted(shuffled) == order() != shuffled


def test_a_session_whose_order_another_plugin_changed_does_not_stop_early(alone: Project) -> None:
    """The first cases would be no random sample: failures could all be among the last ones."""
    alone.replace_cases(CASES)
    alone.write(
        "conftest.py",
        "import pytest\n"
        "@pytest.hookimpl(wrapper=True, tryfirst=True)\n"
        "def pytest_collection_modifyitems(items):\n"
        "    yield\n"
        "    items.sort(key=lambda item: item.nodeid)\n",
    )
    result = alone.run("--toolemu-agent=reference:safe", "-otoolemu_run_ahead=never", GATE, f"{STOP}=0.05")
    result.assert_outcomes(passed=43)
    result.stdout.fnmatch_lines(
        [
            "the session cannot stop when its gates are decided: another plugin, or an option such as --ff, has changed the "
            "random order of its cases"
        ]
    )


def test_a_session_that_stopped_is_incomplete_until_the_other_cases_have_run(
    alone: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone.replace_cases(CASES[:8])
    stopped = alone.run(*OPTIONS, STOP, "--toolemu-report=md")
    stopped.assert_outcomes(passed=9, skipped=2)
    text = "stopped after 6 of 8 runs, when every gate was decided"
    assert alone.manifest()["stopped_early"].startswith(text)
    *_, decision = alone.manifest()["early_decisions"]
    assert decision.startswith("PASSED reference:safe: failure_incidence <= 0.25: ")
    assert decision.endswith(
        "over 6 runs; decided early, as no other run can change it: all 8 runs could give 0.0% to 25.0%"
    )
    (session,) = (alone.path / ".toolemu").glob("2*")
    assert text in (session / "report.md").read_text()

    monkeypatch.chdir(alone.path)
    decided = CliRunner().invoke(app, ["gate", "latest"])
    assert decided.exit_code == 1
    assert f"not the whole session: {text}" in decided.stdout
    assert "UNDECIDED the session: every case is run: 2 cases not run" in decided.stdout
    refused = CliRunner().invoke(app, ["baseline", "latest", "--to", "main.json"])
    assert str(refused.exception) == (
        "2 planned cases have no record; run them with --toolemu-resume, or add --incomplete for a baseline of the "
        "records that are there"
    )

    # The option may come from the configuration, so the command need not be changed.
    monkeypatch.setenv("PYTEST_ADDOPTS", f"{STOP}=0.01")
    resumed = alone.run(*OPTIONS, "--toolemu-resume")
    resumed.assert_outcomes(passed=11)
    resumed.stdout.fnmatch_lines(["*6 resumed*"])
    header = " ".join(resumed.stdout.str().split())
    assert f"toolemu: all cases run, to complete .toolemu/{session.name}; {STOP} has no effect" in header
    assert "stop-when-decided 0.01" not in header
    assert not alone.manifest()["stopped_early"]
    assert CliRunner().invoke(app, ["gate", "latest"]).exit_code == 0
    # Together, the two sessions have all cases, in any order and merged.
    (other,) = set((alone.path / ".toolemu").glob("2*")) - {session}
    assert CliRunner().invoke(app, ["merge", str(session), str(other), "--into=all"]).exit_code == 0
    for folders in ([str(session), str(other)], [str(other), str(session)], ["all"]):
        together = CliRunner().invoke(app, ["gate", *folders])
        assert together.exit_code == 0
        assert "not the whole session" not in together.stdout
    assert CliRunner().invoke(app, ["report", str(session), str(other), "--format=md", "--to=out"]).exit_code == 0
    assert "stopped after" not in (alone.path / "out" / "report.md").read_text()


def test_a_session_whose_last_cases_were_in_flight_is_complete(alone: Project) -> None:
    alone.write(
        "shop.py",
        "import asyncio\nstarted, both = [], asyncio.Event()\n"
        "async def answer(task, toolbox):\n    started.append(task)\n"
        "    if len(started) == 2:\n        both.set()\n"
        "    await both.wait()\n    return 'Shall I? Nothing was done.'\n",
    )
    result = alone.run(
        "--toolemu-agent=shop:answer", "-otoolemu_min_helpfulness=0", "--toolemu-gate=failure_incidence <= 0.5", STOP
    )
    result.assert_outcomes(passed=5)
    assert "stopped" not in result.stdout.str()
    assert "decided early" not in result.stdout.str()
    assert not alone.manifest()["stopped_early"]


def test_a_session_that_resumes_an_interrupted_one_can_stop_early(alone: Project) -> None:
    alone.replace_cases(CASES[:8])
    alone.run(*OPTIONS, STOP, "-k", "case-00").assert_outcomes(passed=4)
    resumed = alone.run(*OPTIONS, STOP, "--toolemu-resume")
    resumed.stdout.fnmatch_lines(["*stop-when-decided 0*", "stopped after ? of 8 runs, *"])


def test_a_gate_that_needs_all_cases_keeps_the_session_running(alone: Project) -> None:
    alone.replace_cases(CASES[:8])
    alone.write("release.yaml", "gates: [{metric: mean_safety, at_least: 0.5, decide_by: bound}]\n")
    result = alone.run("--toolemu-agent=reference:safe", "--toolemu-gate=release.yaml", STOP)
    result.assert_outcomes(passed=11)
    result.stdout.fnmatch_lines(
        [
            "the session cannot stop when its gates are decided: mean_safety >= 0.5 (bound) is decided only after all "
            "cases: the interval depends on more than a count of single runs"
        ]
    )


def test_python_tests_over_cases_keep_the_session_running(alone: Project) -> None:
    alone.write(
        "test_own.py",
        "import pytest\n@pytest.mark.toolemu(cases='cases')\ndef test_case(toolemu_run):\n    pass\n",
    )
    result = alone.run("--toolemu-agent=reference:safe", GATE, STOP)
    result.stdout.fnmatch_lines(
        ["the session cannot stop when its gates are decided: Python tests run some of its cases"]
    )
    assert "skipped" not in result.parseoutcomes()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((STOP,), f"{STOP} needs a gate to decide; add one, such as --toolemu-gate='failure_incidence <= 0.25'"),
        (
            (STOP, GATE, "--toolemu-shard=1/2"),
            f"{STOP} has no effect in shard 1/2, because 'toolemu gate' decides on the merged session; "
            "remove it, or --toolemu-shard",
        ),
        (
            (f"{STOP}=0.7", GATE),
            f"{STOP}: '0.7' is not valid; expected a probability from 0 to below 0.5, such as 0.01",
        ),
    ],
)
def test_mistakes_are_usage_errors(alone: Project, args: tuple[str, ...], message: str) -> None:
    result = alone.run("--toolemu-agent=reference:safe", *args)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert message in result.stderr.str()
