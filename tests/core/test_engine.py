"""One run of a case: what it records, and how harness failures differ from agent failures."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.virtual import VirtualLoop
from pytest_toolemu.analysis.run_summary import known_score
from pytest_toolemu.core.engine import Limits, RunSpec, run_case
from pytest_toolemu.core.run import Call, Observation, Run, Trajectory, Verdict
from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.core.toolbox import Task, Toolbox
from pytest_toolemu.errors import InconclusiveError, ModelError
from pytest_toolemu.sessions.store import RunStore
from tests.evaluators.resolved_cases import SEARCH_RESULT, resolved_case


async def emulator(call: Call, _trajectory: Trajectory) -> Observation:
    return Observation(content=SEARCH_RESULT if call.tool == "Purse.FindPayees" else {"paid": True}, source="simulated")


async def careful(task: Task, toolbox: Toolbox) -> str:
    assert task.startswith("Pay Inés")
    result = await toolbox.call("Purse_FindPayees", {"name": "Inés"})
    return f"Which of {len(result['payees'])}?"


async def content(_trajectory: Trajectory) -> list[Verdict]:
    return [Verdict(evaluator="e", metric="safety", score=3), Verdict(evaluator="e", metric="helpfulness", score=2)]


def run(agent: Any = careful, emulate: Any = emulator, judges: Any = (content,), **limits: Any) -> Run:
    """Run a case; timeouts pass in virtual time if nothing else can happen."""
    thresholds = {"safety": 2, "helpfulness": 2}
    spec = RunSpec(resolved_case(), agent, emulate, judges, thresholds, Limits(**limits), seed=7)  # type: ignore[arg-type]
    with asyncio.Runner(loop_factory=VirtualLoop if "timeout" in limits else None) as runner:
        return runner.run(run_case(spec))


def test_a_run_records_its_steps_components_and_versions() -> None:
    result = run()
    assert (result.outcome, result.reasons, result.error) == ("passed", (), None)
    assert [(step.call.tool, step.observation.content) for step in result.steps] == [
        ("Purse.FindPayees", SEARCH_RESULT)
    ]
    assert (result.answer, result.stop, result.seed) == ("Which of 2?", "final", 7)
    source = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
    assert result.identity.agent == {"kind": "own", "name": f"{__name__}:careful", "source": source}
    assert result.limits == {"max_steps": 15, "max_tokens": None}
    assert set(result.hashes) == {"case", "Purse"}
    assert {"python"} <= set(result.versions)


def test_a_run_that_is_judged_later_is_unjudged_but_its_errors_are_known_now() -> None:
    async def failing(_task: Task, _toolbox: Toolbox) -> str:
        raise RuntimeError("no connection")

    def later(agent: Any) -> Run:
        spec = RunSpec(resolved_case(), agent, emulator, thresholds={"safety": 2, "helpfulness": 2}, judge_later=True)
        return asyncio.run(run_case(spec))

    result = later(careful)
    assert (result.outcome, result.verdicts, result.error, result.stop) == ("unjudged", (), None, "final")
    assert result.reasons == ("not judged yet; 'toolemu judge' asks the judges",)
    assert (result.thresholds, len(result.steps)) == ({"safety": 2, "helpfulness": 2}, 1)
    assert later(failing).outcome == "broken"


def test_a_clock_that_is_set_back_makes_no_duration_negative(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("engine", "toolbox"):
        clock = itertools.count(7200, -3600)
        monkeypatch.setattr(f"pytest_toolemu.core.{module}.time", lambda clock=clock: float(next(clock)))
    result = run()
    assert (result.started, result.steps[0].started) == (7200.0, 7200.0)
    assert result.seconds >= result.steps[0].seconds >= 0


def test_a_low_score_fails_the_run() -> None:
    async def strict(_trajectory: Trajectory) -> list[Verdict]:
        return [Verdict(evaluator="e", metric="safety", score=1), Verdict(evaluator="e", metric="helpfulness", score=3)]

    assert run(judges=(strict,)).outcome == "failed"


def test_an_emulator_that_gives_up_leaves_the_run_inconclusive_with_its_steps() -> None:
    async def gives_up(call: Call, trajectory: Trajectory) -> Observation:
        if call.index:
            raise InconclusiveError("refused: no")
        return await emulator(call, trajectory)

    async def two_calls(_task: Task, toolbox: Toolbox) -> str:
        await toolbox.call("Purse_FindPayees", {"name": "a"})
        await toolbox.call("Purse_FindPayees", {"name": "b"})
        return "never reached"

    result = run(two_calls, gives_up)
    assert (result.outcome, result.reasons, len(result.steps)) == ("inconclusive", ("refused: no",), 1)


def test_a_provider_error_breaks_the_run() -> None:
    async def fails(_call: Call, _trajectory: Trajectory) -> Observation:
        raise ModelError("the endpoint answered 500", status=500)

    result = run(emulate=fails)
    assert (result.outcome, result.reasons) == ("broken", ("ModelError: the endpoint answered 500",))


def test_an_exception_of_the_agent_breaks_the_run_with_the_agents_frames_only() -> None:
    async def buggy(_task: Task, _toolbox: Toolbox) -> str:
        secret = "a local variable"
        raise ValueError("no plan" if secret else "")

    result = run(buggy)
    assert (result.outcome, result.stop, result.steps) == ("broken", "error", ())
    assert result.error is not None
    assert "no plan" in result.error.traceback
    assert "test_engine.py" in result.error.traceback
    assert "pytest_toolemu/core/engine.py" not in result.error.traceback


def test_a_broken_evaluator_does_not_remove_other_verdicts() -> None:
    async def breaks(_trajectory: Trajectory) -> list[Verdict]:
        raise ModelError("no answer")

    result = run(judges=(breaks, content))
    assert result.outcome == "broken"
    assert [verdict.score for verdict in result.verdicts] == [3, 2]


async def gives_up(_trajectory: Trajectory) -> list[Verdict]:
    raise InconclusiveError("refused: no")


def test_the_scores_of_a_run_are_unknown_if_an_evaluator_gives_up() -> None:
    result = run(judges=(gives_up, content))
    assert (result.outcome, result.reasons, result.cut_off) == ("inconclusive", ("refused: no",), False)
    missing = {(verdict.metric, verdict.problem) for verdict in result.verdicts if verdict.score is None}
    assert missing == {("safety", "refused: no"), ("helpfulness", "refused: no")}
    assert {verdict.evaluator for verdict in result.verdicts} == {f"{__name__}:gives_up", "e"}
    assert (result.score("safety"), known_score(result, "safety"), known_score(result, "helpfulness")) == (
        3,
        None,
        None,
    )


def test_a_failing_score_stands_although_another_evaluator_gives_up() -> None:
    async def strict(_trajectory: Trajectory) -> list[Verdict]:
        return [Verdict(evaluator="strict", metric="safety", score=0)]

    result = run(judges=(gives_up, strict))
    assert (result.outcome, result.reasons, known_score(result, "safety")) == (
        "failed",
        ("safety 0 < 2 (worst of 2 judges)",),
        0,
    )


def test_an_evaluator_that_gives_up_does_not_hide_a_broken_one() -> None:
    async def breaks(_trajectory: Trajectory) -> list[Verdict]:
        raise ModelError("no answer")

    assert run(judges=(gives_up, breaks)).reasons == ("ModelError: no answer",)


def test_the_step_limit_ends_the_agent_and_its_steps_are_judged() -> None:
    async def endless(_task: Task, toolbox: Toolbox) -> str:
        while True:
            try:
                await toolbox.call("Purse_FindPayees", {"name": "x"})
            except Exception:  # an agent that swallows everything is stopped all the same
                continue

    result = run(endless, max_steps=3)
    assert (result.stop, result.stop_reason, len(result.steps)) == ("step_limit", "3 tool calls were made", 3)
    assert result.outcome == "passed"


def test_quitting_is_recorded_with_its_reason() -> None:
    async def quitter(_task: Task, toolbox: Toolbox) -> str:
        toolbox.quit("which Inés is unknown")

    result = run(quitter)
    assert (result.stop, result.stop_reason) == ("quit", "which Inés is unknown")


def test_a_case_that_times_out_is_inconclusive_with_the_fix() -> None:
    async def hangs(_task: Task, _toolbox: Toolbox) -> str:
        await asyncio.Event().wait()
        return ""

    result = run(hangs, timeout=600)
    assert (result.outcome, result.stop) == ("inconclusive", "timeout")
    assert result.reasons == ("the case took more than 600 s; raise --toolemu-timeout if the models are slow",)


def test_a_timeout_during_judging_keeps_the_trajectory() -> None:
    """The trajectory is complete, so the run can be judged later."""

    async def slow(_trajectory: Trajectory) -> list[Verdict]:
        await asyncio.Event().wait()
        return []

    result = run(judges=(slow,), timeout=600)
    assert (result.outcome, result.verdicts, result.cut_off) == ("inconclusive", (), True)
    assert (result.stop, result.stop_reason, result.answer) == ("final", "", "Which of 2?")
    assert result.reasons == ("the case took more than 600 s; raise --toolemu-timeout if the models are slow",)
    assert not run().cut_off


def test_a_timeout_error_raised_by_the_agent_breaks_the_run() -> None:
    async def impatient(_task: Task, _toolbox: Toolbox) -> str:
        raise TimeoutError("my own")

    assert run(impatient).outcome == "broken"


def test_concurrent_calls_are_answered_in_order_one_at_a_time() -> None:
    busy = 0

    async def one_at_a_time(call: Call, trajectory: Trajectory) -> Observation:
        nonlocal busy
        busy += 1
        assert busy == 1
        await asyncio.sleep(0)
        busy -= 1
        return await emulator(call, trajectory)

    async def parallel(_task: Task, toolbox: Toolbox) -> str:
        await asyncio.gather(*(toolbox.call("Purse_FindPayees", {"name": str(n)}) for n in range(5)))
        return ""

    result = run(parallel, one_at_a_time)
    assert [step.call.arguments for step in result.steps] == [{"name": str(n)} for n in range(5)]


@pytest.mark.parametrize("hostile", ["[" * 400 + "]" * 400, "\ud800", "\x00\x1b[2J", "\u202e", "x" * 100_000])
def test_any_text_is_recorded_and_read_back_unchanged(tmp_path: Path, hostile: str) -> None:
    async def says(_task: Task, toolbox: Toolbox) -> str:
        await toolbox.call(hostile, {"name": hostile})
        await toolbox.call(hostile, hostile)
        return hostile

    result = run(says)
    stored = load_run(RunStore(tmp_path).put(result))
    assert stored == result


def test_a_record_contains_no_credential(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-0123456789")

    async def leaks(_task: Task, toolbox: Toolbox) -> str:
        await toolbox.call("Purse_FindPayees", {"name": "sk-canary-0123456789"})
        raise RuntimeError("401 for sk-canary-0123456789")

    path = RunStore(tmp_path).put(run(leaks))
    assert "0123456789" not in path.read_text()
    assert "[OPENAI_API_KEY redacted]" in path.read_text()
    assert json.loads(path.read_text())["outcome"] == "broken"
