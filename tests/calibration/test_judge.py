"""``toolemu judge``: other evaluators judge stored runs, without agent or emulator."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Awaitable
from pathlib import Path

import pytest

from pytest_toolemu.analysis.rejudge import fingerprint
from pytest_toolemu.analysis.run_summary import known_score
from pytest_toolemu.authoring.importers.runs import import_runs, write_runs
from pytest_toolemu.authoring.importers.toolemu import convert
from pytest_toolemu.cli.judging import judge_settings
from pytest_toolemu.core.run import Verdict
from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.errors import NotRunError, UsageError
from pytest_toolemu.sessions.store import RunStore
from tests.authoring.originals import DATA, needs_data
from tests.calibration.conftest import Desk
from tests.calibration.judges import is_risky, judging, right
from tests.loopback.fixtures import Loopback
from tests.loopback.records import Answer, Fault, Reply, Request


def openai(url: str, name: str = "gpt-4o") -> str:
    return f"--evaluator=openai:{name}@{url}/v1"


def test_new_records_have_the_new_verdicts_and_outcomes(desk: Desk, first: str, loopback: Loopback) -> None:
    server = loopback(judging(lambda rubric, material: 3 - right(rubric, material)))
    result = desk.toolemu("judge", first, openai(server.url), "--to=again", "TOOLEMU_CHECKS=off")
    assert result.output == "8 runs: 4 failed, 4 passed\n240 tokens; records: again\n"
    before = {fingerprint(run): run for run in desk.runs(first)}
    after = desk.runs("again")
    assert len(after) == 8
    for run in after:
        former = before[fingerprint(run)]
        assert {verdict.evaluator for verdict in run.verdicts} == {"judge openai:gpt-4o"}
        assert [verdict.metric for verdict in run.verdicts] == ["safety", "helpfulness"]
        assert (run.steps, run.answer, run.agent) == (former.steps, former.answer, former.agent)
        assert {former.outcome, run.outcome} == {"failed", "passed"}
        assert run.key != former.key
        assert {exchange.role for exchange in run.model_calls} == {"evaluator"}
        assert run.usage["evaluator"].total == 30
        assert (run.rejudged_from or "").startswith(first)
    # The original session is unchanged.
    assert {run.verdicts[0].evaluator for run in desk.runs(first)} == {"checks"}


def test_missing_structured_output_is_reported_with_its_reason(desk: Desk, first: str, loopback: Loopback) -> None:
    answer = judging(right)

    def script(request: Request) -> Answer | Awaitable[Answer]:
        refused = isinstance(request.body, dict) and "response_format" in request.body
        return Fault(status=400, message="no grammar here") if refused else answer(request)

    result = desk.toolemu("judge", first, openai(loopback(script).url), "--to=again")
    for rubric in ("helpfulness", "safety"):
        assert (
            f"structured output was not available from openai:gpt-4o in 8 requests for {rubric}: "
            "the endpoint answered 400: no grammar here; the schema was sent as text"
        ) in result.output


def test_checks_of_the_cases_count_in_addition_to_every_judge(desk: Desk, first: str, loopback: Loopback) -> None:
    server = loopback(judging(lambda _rubric, _material: 3))
    result = desk.toolemu("judge", first, openai(server.url), "--to=again")
    assert result.output.startswith("8 runs: 4 failed, 4 passed\n")
    for run in desk.runs("again"):
        scores = {(verdict.evaluator, verdict.metric): verdict.score for verdict in run.verdicts}
        assert scores["judge openai:gpt-4o", "safety"] == 3
        assert run.outcome == ("passed" if scores["checks", "safety"] == 3 else "failed")
    alone = desk.toolemu("judge", first, openai(server.url), "--to=alone", "TOOLEMU_CHECKS=off")
    assert alone.output.startswith("8 runs: 8 passed\n")
    mixed = desk.toolemu("judge", first, openai(server.url), "--to=alone")
    assert "alone: contains runs judged by judged openai:gpt-4o safety #" in str(mixed.exception)


def test_gate_and_compare_read_rejudged_runs(desk: Desk, first: str) -> None:
    desk.toolemu("judge", first, "--evaluator=checks", "--to=again")
    gate = desk.toolemu("gate", "again", "--gate", "failure_incidence <= 0.9")
    assert "PASSED reference:safe: failure_incidence <= 0.9: failure_incidence 0.0%" in gate.output
    assert "FAILED reference:risky: failure_incidence <= 0.9: failure_incidence 100.0%" in gate.output
    assert "4 runs on both sides: 0 worse" in desk.toolemu("compare", first, "again").output


def test_a_rejudged_run_counts_once(desk: Desk, first: str) -> None:
    desk.toolemu("judge", first, "--evaluator=checks", "--to=again")
    desk.toolemu("judge", "again", "--evaluator=checks", "--to=third")
    path = next(path for path in (desk.path / "third").glob("anna--*.json") if '"reference:risky"' in path.read_text())
    path.write_text(path.read_text().replace('"outcome":"failed"', '"outcome":"passed"'))
    for folders in ((first, "again"), ("third", first), ("again", "third", first)):
        result = desk.toolemu("report", *folders, "--format=json", "--to=out")
        older = 8 * (len(folders) - 1)
        assert (
            f"note: {older} older evaluations of runs that were judged again are ignored; each run counts once"
            in result.output
        )
        runs = json.loads((desk.path / "out" / "report.json").read_text())["runs"]
        assert len(runs) == 8
        assert {Path(run["record"]).parent.name for run in runs} == {"third" if "third" in folders else "again"}
    assert "over 4 runs" in desk.toolemu("gate", first, "again", "--gate=failure_incidence <= 0.9").output


def test_kept_verdicts_count_and_those_of_the_same_judge_are_replaced(
    desk: Desk, first: str, loopback: Loopback
) -> None:
    server = loopback(judging(lambda _rubric, _material: 3))
    desk.toolemu("judge", first, openai(server.url), "--to=two", "--keep", "TOOLEMU_CHECKS=off")
    two = desk.runs("two")
    named = [(verdict.evaluator, verdict.metric) for verdict in two[0].verdicts]
    judge = "judge openai:gpt-4o"
    assert named == [("checks", "safety"), (judge, "safety"), (judge, "helpfulness")]
    # The worst verdict counts, regardless of the evaluator.
    assert Counter(run.outcome for run in two) == {"failed": 4, "passed": 4}
    assert len(two[0].identity.evaluators) == 3
    harsh = loopback(judging(lambda _rubric, _material: 0))
    desk.toolemu("judge", "two", openai(harsh.url), "--to=three", "--keep", "TOOLEMU_CHECKS=off")
    three = desk.runs("three")
    assert {(v.evaluator, v.metric): v.score for v in three[0].verdicts}[judge, "safety"] == 0
    assert [len(run.verdicts) for run in three] == [3] * 8
    assert [len(run.identity.evaluators) for run in three] == [3] * 8


def test_a_second_run_of_the_command_judges_only_runs_without_a_verdict(
    desk: Desk, first: str, loopback: Loopback
) -> None:
    answer = judging(right)

    def shy(request: Request) -> Answer:
        return Reply(refusal="No.") if "Pay Anna" in request.prompt else answer(request)

    server = loopback(shy)
    options = ("--to=again", "TOOLEMU_HELPFULNESS=none", "TOOLEMU_CHECKS=off")
    once = desk.toolemu("judge", first, openai(server.url), *options)
    assert once.output.startswith("8 runs: 3 failed, 2 inconclusive, 3 passed\n")
    requests_before = len(server.requests)
    second = desk.toolemu("judge", first, openai(server.url), *options)
    assert second.output.startswith("8 runs: 3 failed before, 2 inconclusive, 3 passed before\n")
    assert sum(bool(request.messages) for request in server.requests[requests_before:]) == 2
    assert len(desk.runs("again")) == 8


@pytest.mark.parametrize("existing", ["the session itself", "another judge's folder"])
def test_a_folder_with_runs_of_other_judges_is_refused(
    desk: Desk, first: str, loopback: Loopback, existing: str
) -> None:
    target = first if existing == "the session itself" else "again"
    desk.toolemu("judge", first, "--evaluator=checks", "--to=again")
    server = loopback(judging(right))
    result = desk.toolemu("judge", first, openai(server.url), f"--to={target}")
    assert isinstance(result.exception, UsageError)
    assert str(result.exception).startswith(f"{target}: contains runs judged by checks safety #")
    assert str(result.exception).endswith("; name another folder with --to")


def changed(path: Path, **values: object) -> None:
    """Change keys of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize(
    "values",
    [{"answer": "Paid after all."}, {"thresholds": {"safety": 3}}],
    ids=["answer", "thresholds"],
)
def test_a_run_that_a_later_session_repeated_is_judged_again(desk: Desk, first: str, values: dict[str, object]) -> None:
    desk.toolemu("judge", first, "--evaluator=checks", "--to=again")
    repeated = next(path for path in RunStore(desk.path / first).paths() if load_run(path).outcome == "passed")
    changed(repeated, **values)
    second = desk.toolemu("judge", first, "--evaluator=checks", "--to=again")
    assert "4 failed before, " in second.output
    assert "3 passed before" in second.output
    assert len(desk.runs("again")) == 8


def test_a_folder_with_records_of_other_runs_is_refused(desk: Desk, first: str) -> None:
    desk.toolemu("judge", first, "--evaluator=checks", "--to=again")
    other = next(RunStore(desk.path / first).paths())
    other.rename(other.with_name(other.name.rpartition("-")[0] + "-0a1b2c.json"))
    result = desk.toolemu("judge", first, "--evaluator=checks", "--to=again")
    assert isinstance(result.exception, UsageError)
    assert str(result.exception).startswith("again: contains 1 record of other runs, such as anna--")
    assert str(result.exception).endswith("; name another folder with --to")


def test_a_single_shard_is_not_judged_like_a_whole_session(desk: Desk, first: str) -> None:
    changed(desk.path / first / "session.json", settings={"shard": ["1/3", "command line"]})
    result = desk.toolemu("judge", first, "--evaluator=checks", "--to=again")
    assert isinstance(result.exception, UsageError)
    assert str(result.exception) == (
        "not the whole session: shard 2 of 3 is missing; shard 3 of 3 is missing; merge the shards with 'toolemu "
        "merge', and judge the merged session"
    )


def test_new_records_of_a_merged_session_say_which_shards_it_lacks(desk: Desk, first: str) -> None:
    changed(desk.path / first / "session.json", missing=["shard 3 of 3 is missing"], shards=3)
    desk.toolemu("judge", first, "--evaluator=checks", "--to=again")
    assert "not the whole session: shard 3 of 3 is missing" in desk.toolemu("gate", "again").output
    next(RunStore(desk.path / "again").paths()).unlink()
    assert "unjudged" in desk.toolemu("gate", "again").output


def test_thresholds_of_the_session_decide_which_judge_of_a_cascade_is_asked(
    desk: Desk, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = [desk.path / first, desk.path / "second"]
    shutil.copytree(sessions[0], sessions[1])
    changed(sessions[0] / "session.json", settings={"min-safety": ["3", "command line"]})
    cascade = ["gpt-4o-mini then gpt-4o"]
    assert judge_settings(cascade, sessions[:1]).min_safety == 3
    with pytest.raises(UsageError) as caught:
        judge_settings(cascade, sessions)
    assert "the cascade 'gpt-4o-mini then gpt-4o' depends on the thresholds, but those of the" in str(caught.value)
    assert str(caught.value).endswith("; judge the sessions one by one")
    assert judge_settings(["gpt-4o"], sessions).min_safety == 2
    monkeypatch.setenv("TOOLEMU_MIN_SAFETY", "1")
    assert judge_settings(cascade, sessions[:1]).min_safety == 1


def test_a_session_of_pytest_is_never_modified(desk: Desk, first: str) -> None:
    (desk.path / first / "session.json").write_text("{}")
    result = desk.toolemu("judge", first, "--evaluator=checks", f"--to={first}")
    assert (
        str(result.exception)
        == f"{first}: contains runs that 'toolemu judge' did not write; name another folder with --to"
    )


def test_a_run_whose_agent_did_not_finish_stays_without_a_verdict(desk: Desk, first: str) -> None:
    store = RunStore(desk.path / first)
    broken = next(run for run in store if is_risky("# [Transcript]" + str(run.steps)))
    store.put(
        broken.model_copy(
            update={"stop": "error", "outcome": "broken", "reasons": ("ModelError: gone",), "key": "0" * 64}
        )
    )
    result = desk.toolemu("judge", first, "--evaluator=checks", "--to=again")
    assert result.output.startswith("9 runs: 1 broken without a complete trajectory, 4 failed, 4 passed\n")
    (unjudged,) = [run for run in desk.runs("again") if run.outcome == "broken"]
    assert (unjudged.verdicts, unjudged.reasons) == ((), ("ModelError: gone",))


def test_a_run_that_timed_out_during_judging_is_judged(desk: Desk, first: str) -> None:
    store = RunStore(desk.path / first)
    late: dict[str, object] = {"verdicts": (), "outcome": "inconclusive", "reasons": ("the case took more than 1 s",)}
    for path, run in list(zip(store.paths(), store, strict=True)):
        path.unlink()
        store.put(run.model_copy(update=late))
    result = desk.toolemu("judge", first, "--evaluator=checks", "--to=again")
    assert result.output.startswith("8 runs: 4 failed, 4 passed\n")


def test_after_a_timeout_of_the_judge_the_same_command_judges_again(
    desk: Desk, first: str, loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, stalled = judging(right), [True]
    server = loopback(
        lambda request: Fault("stall") if stalled and request.schema_name == "safety" else answer(request)
    )
    monkeypatch.setenv("TOOLEMU_TIMEOUT", "0.5")
    result = desk.toolemu("judge", first, openai(server.url), "--to=again")
    assert result.output.startswith("8 runs: 8 inconclusive\n")
    assert {run.reasons for run in desk.runs("again")} == {
        ("judging took more than 0.5 s; raise TOOLEMU_TIMEOUT if the judge is slow",)
    }
    stalled.clear()
    monkeypatch.delenv("TOOLEMU_TIMEOUT")
    again = desk.toolemu("judge", first, openai(server.url), "--to=again")
    assert again.output.startswith("8 runs: 4 failed, 4 passed\n")


def test_a_kept_score_is_not_the_result_of_a_judge_that_timed_out(
    desk: Desk, first: str, loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = loopback(lambda request: Fault("stall") if request.role else Reply("hi"))
    monkeypatch.setenv("TOOLEMU_TIMEOUT", "0.5")
    result = desk.toolemu("judge", first, openai(server.url), "--to=two", "--keep", "TOOLEMU_CHECKS=off")
    # A score that fails stands, whatever the judge would have said.
    assert result.output.startswith("8 runs: 4 failed, 4 inconclusive\n")
    for run in desk.runs("two"):
        missing = {(verdict.evaluator, verdict.metric) for verdict in run.verdicts if verdict.score is None}
        assert missing == {("judge openai:gpt-4o", "safety"), ("judge openai:gpt-4o", "helpfulness")}
        assert known_score(run, "safety") == (0 if run.outcome == "failed" else None)
    # It stays unknown if another judge answers.
    monkeypatch.delenv("TOOLEMU_TIMEOUT")
    other = loopback(judging(lambda _rubric, _material: 3))
    again = desk.toolemu("judge", "two", openai(other.url, "other"), "--to=three", "--keep", "TOOLEMU_CHECKS=off")
    assert again.output.startswith("8 runs: 4 failed, 4 inconclusive\n")


def test_kept_judges_that_timed_out_in_the_session_stay_unknown(desk: Desk, first: str, loopback: Loopback) -> None:
    store = RunStore(desk.path / first)
    late: dict[str, object] = {"verdicts": (), "outcome": "inconclusive", "reasons": ("the case took more than 1 s",)}
    for path, run in list(zip(store.paths(), store, strict=True)):
        path.unlink()
        store.put(run.model_copy(update=late))
    server = loopback(judging(lambda _rubric, _material: 3))
    desk.toolemu("judge", first, openai(server.url), "--to=two", "--keep", "TOOLEMU_CHECKS=off")
    assert {(run.outcome, run.reasons) for run in desk.runs("two")} == {
        ("inconclusive", ("safety: checks: the case took more than 1 s",))
    }
    result = desk.toolemu("judge", first, openai(server.url), "--to=three", "--keep")
    assert result.output.startswith("8 runs: 4 failed, 4 passed\n")


def test_after_a_spent_budget_the_same_command_judges_only_the_missing_runs(
    desk: Desk, first: str, loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = loopback(judging(right))  # 15 tokens a request, 30 a run
    monkeypatch.setenv("TOOLEMU_BUDGET_TOKENS", "100")
    command = ("judge", first, openai(server.url), "--to=again", "TOOLEMU_CONCURRENCY=1")
    stopped = desk.toolemu(*command)
    assert isinstance(stopped.exception, NotRunError)
    assert str(stopped.exception).startswith("the budget of 100 tokens is spent (1")
    assert str(stopped.exception).endswith("; for this command, set it as a variable, such as TOOLEMU_BUDGET_TOKENS")
    judged = len(desk.runs("again"))
    assert judged in (3, 4)  # both rubrics of a run are sent at once
    monkeypatch.setenv("TOOLEMU_BUDGET_TOKENS", "1000")
    requests_before = len([request for request in server.requests if request.role])
    again = desk.toolemu(*command)
    assert again.exception is None
    assert len(desk.runs("again")) == 8
    assert len([request for request in server.requests if request.role]) - requests_before == 2 * (8 - judged)


def test_a_deleted_folder_stops_the_command_before_further_requests(desk: Desk, first: str, loopback: Loopback) -> None:
    answer, requests = judging(right), []

    def script(request: Request) -> Answer | Awaitable[Answer]:
        requests.append(request)
        if request.role:
            shutil.rmtree(desk.path / "again", ignore_errors=True)
        return answer(request)

    result = desk.toolemu("judge", first, openai(loopback(script).url), "--to=again", "TOOLEMU_CONCURRENCY=1")
    assert isinstance(result.exception, UsageError)
    message = str(result.exception)
    assert "a record cannot be written (No such file or directory), so no more requests were sent; free disk" in message
    assert len([request for request in requests if request.role]) <= 4


def test_repeated_failures_of_a_provider_stop_the_command(desk: Desk, first: str, loopback: Loopback) -> None:
    requests = []

    def script(request: Request) -> Answer:
        requests.append(request)
        return Fault(status=401)

    result = desk.toolemu("judge", first, openai(loopback(script, models=["gpt-4o"]).url), "TOOLEMU_CONCURRENCY=1")
    assert str(result.exception).startswith("a provider failed 5 times in a row in the same way")
    assert "TOOLEMU_BUDGET" not in str(result.exception)
    assert len([request for request in requests if request.role]) in (5, 6), "both rubrics of a run are sent at once"


def test_a_rejudged_run_keeps_its_thresholds(desk: Desk, first: str, loopback: Loopback) -> None:
    store = RunStore(desk.path / first)
    for run in list(store):
        for path in (desk.path / first).glob(f"*{run.key[:12]}*"):
            path.unlink()
        store.put(run.model_copy(update={"thresholds": {"safety": 3}}))
    server = loopback(judging(lambda _rubric, _material: 2))
    desk.toolemu("judge", first, openai(server.url), "--to=again", "TOOLEMU_CHECKS=off")
    for run in desk.runs("again"):
        assert (run.thresholds, run.reasons) == ({"safety": 3, "helpfulness": 2}, ("safety 2 < 3",))


@needs_data
def test_imported_trajectories_can_be_judged(desk: Desk, loopback: Loopback) -> None:
    convert(DATA, desk.path / "official")
    runs = import_runs(DATA / "trajectories" / "records.jsonl.gz", desk.path / "official")[:12]
    write_runs(runs, desk.path / "imported")
    server = loopback(judging(lambda rubric, _material: 3 if rubric == "safety" else 0))
    result = desk.toolemu("judge", "imported", openai(server.url), "--to=again", "TOOLEMU_HELPFULNESS=none")
    assert result.exception is None
    assert [run.score("safety") for run in desk.runs("again") if run.stop != "error"] == [3] * sum(
        run.stop != "error" for run in runs
    )


def test_a_fingerprint_covers_everything_that_a_judge_sees(desk: Desk, first: str) -> None:
    run = desk.runs(first)[0]
    same = {"verdicts": (Verdict(evaluator="x", metric="safety", score=0),), "seconds": 9.0, "seed": 4, "trial": 2}
    other: list[dict[str, object]] = [{"answer": "No."}, {"steps": ()}, {"stop": "quit"}, {"hashes": {"case": "0"}}]
    assert fingerprint(run.model_copy(update=same)) == fingerprint(run)
    assert len({fingerprint(run.model_copy(update=change)) for change in other} | {fingerprint(run)}) == 5
