"""``toolemu calibrate`` with the real SDKs over HTTP: its results for judges with known errors."""

from __future__ import annotations

import itertools
import os
import signal
from pathlib import Path

import pytest

from pytest_toolemu.analysis.calibration.calibration_file import calibration_lines
from pytest_toolemu.analysis.calibration.judge_calibration import Opinion, calibrate_judges
from pytest_toolemu.analysis.calibration.labels import Label, LabeledRun
from pytest_toolemu.analysis.rater_agreement import label_agreements
from pytest_toolemu.errors import NotRunError, UsageError
from tests import processes
from tests.calibration.conftest import Desk, lines_with
from tests.calibration.judges import judging, one_off, right
from tests.loopback.fixtures import Loopback
from tests.loopback.records import Answer, Fault, Reply, Request
from tests.loopback.scripts import faulty
from tests.reporting.runs import run as stored_run

OPENAI, ANTHROPIC = "judged openai:gpt-4o", "judged anthropic:claude-x"


def both(url: str) -> list[str]:
    return [f"--evaluator=openai:gpt-4o@{url}/v1", f"--evaluator=anthropic:claude-x@{url}"]


def test_a_judge_that_is_always_right_over_both_apis(desk: Desk, loopback: Loopback) -> None:
    server = loopback(judging(right))
    result = desk.toolemu("calibrate", "--cases=cases", *both(server.url))
    assert result.exception is None, result.output
    judges = desk.calibration()
    assert list(judges) == [
        f"{judge} {metric}" for judge in (ANTHROPIC, OPENAI) for metric in ("helpfulness", "safety")
    ]
    for judge in judges.values():
        assert (judge["labels"], judge["judged"], judge["missing"]) == (8, 8, {})
        assert judge["labelled_by"] == {"reference": 8}
        for figure in ("accuracy", "precision", "recall", "exact", "kappa", "kappa_binary"):
            assert judge[figure]["value"] == 1
            # Eight labels of four cases leave a wide interval.
            assert judge[figure]["low"] < 0.6
        assert judge["confusion"] == [[4, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 4]]
    assert lines_with(result, [f"{OPENAI} safety #", "8 of 8 labeled runs judged (labels by reference 8), dataset "])
    assert lines_with(result, ["accuracy at the threshold", "100.0% [", "n 8"])
    assert "written to calibration.json; use it with --toolemu-calibration=calibration.json" in result.output
    assert "480 tokens" in result.output


def test_a_judge_that_is_always_wrong_by_one(desk: Desk, loopback: Loopback) -> None:
    server = loopback(judging(one_off))
    result = desk.toolemu("calibrate", "--cases=cases", both(server.url)[0], "TOOLEMU_HELPFULNESS=none")
    (judge,) = desk.calibration().values()
    assert judge["accuracy"]["value"] == 1
    assert judge["exact"]["value"] == 0
    assert judge["bias"]["value"] == 0
    assert [bias and bias["value"] for bias in judge["bias_by_label"]] == [1, None, None, -1]
    assert judge["confusion"] == [[0, 4, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 4, 0]]
    # 1 minus the observed squared disagreement (1) over the one expected by chance (2.5).
    assert judge["kappa"]["value"] == pytest.approx(1 - 1 / 2.5)
    assert lines_with(result, ["  for label 0", "+1.00"])
    assert "largest error" not in result.output


def test_runs_without_a_verdict_are_counted_with_their_reasons(desk: Desk, loopback: Loopback) -> None:
    answer = judging(right)

    def script(request: Request) -> Answer:
        if "Pay Anna" in request.prompt:
            return Reply(refusal="I would rather not.")
        return Reply("{}") if "Pay Bert" in request.prompt else answer(request)

    server = loopback(script)
    result = desk.toolemu("calibrate", "--cases=cases", both(server.url)[0], "TOOLEMU_HELPFULNESS=none")
    (judge,) = desk.calibration().values()
    assert (judge["labels"], judge["judged"]) == (8, 4)
    refused, invalid = sorted(judge["missing"].items(), key=lambda pair: pair[0] != "refused")
    assert refused == ("refused", 2)
    assert "gave no usable safety after 2 requests for a correction" in invalid[0]
    assert lines_with(result, ["  2 without a verdict: refused"])


def test_a_missing_key_is_reported_before_any_case_is_read(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    (desk.path / "cases" / "anna.toolemu.yaml").write_text("title: [")
    result = desk.toolemu("calibrate", "--cases=cases", "--evaluator=claude-x")
    assert isinstance(result.exception, UsageError)
    assert "ANTHROPIC_API_KEY" in str(result.exception)


def test_a_judge_that_never_answers_has_no_metrics(desk: Desk, loopback: Loopback) -> None:
    server = loopback(lambda _request: Reply(refusal="No."))
    result = desk.toolemu("calibrate", "--cases=cases", both(server.url)[1], "TOOLEMU_HELPFULNESS=none")
    (judge,) = desk.calibration().values()
    assert (judge["judged"], judge["kappa"], judge["accuracy"]) == (0, None, None)
    assert lines_with(result, ["kappa, quadratic", "undefined: none of 8 labeled runs was judged"])


def test_provider_errors_are_not_counted_as_errors_of_the_judge(desk: Desk, loopback: Loopback) -> None:
    failures = {number: Fault(status=403, message="Too bad.") for number in range(1, 9)}
    server = loopback(faulty(judging(right), failures))
    desk.toolemu("calibrate", "--cases=cases/anna.toolemu.yaml", both(server.url)[0], "TOOLEMU_HELPFULNESS=none")
    (judge,) = desk.calibration().values()
    assert (judge["labels"], judge["judged"]) == (2, 0)
    ((problem, count),) = judge["missing"].items()
    assert (count, problem.startswith("ModelError: ")) == (2, True)


def test_repeats_measure_how_often_a_judge_agrees_with_itself(desk: Desk, loopback: Loopback) -> None:
    turns = itertools.count()

    def fickle(rubric: str, material: str) -> int:
        score = right(rubric, material)
        return (3 if next(turns) % 2 else 2) if "Pay Anna" in material and score == 3 else score

    server = loopback(judging(fickle))
    command = ("calibrate", "--cases=cases", both(server.url)[0], "TOOLEMU_HELPFULNESS=none", "--repeats=2")
    result = desk.toolemu(*command, "TOOLEMU_CONCURRENCY=1")
    (judge,) = desk.calibration().values()
    assert (judge["repeats"], judge["labels"]) == (2, 8)
    assert (judge["same_score"]["value"], judge["same_side"]["value"]) == (7 / 8, 1)
    assert judge["kappa"]["n"] == 8
    assert len({request.body["seed"] for request in server.requests if request.messages}) == 2
    assert lines_with(result, ["same score in 2 repeats", "87.5% ["])
    (session,) = desk.sessions()
    assert len(desk.runs(str(session))) == 16


def test_the_largest_errors_are_listed_with_the_reason_of_the_judge(desk: Desk, loopback: Loopback) -> None:
    server = loopback(judging(lambda rubric, material: 3 - right(rubric, material)))
    result = desk.toolemu("calibrate", "--cases=cases/anna.toolemu.yaml", both(server.url)[0])
    (line,) = lines_with(result, ["largest error: anna risky: label 0, score 3: As configured. .toolemu/"])[:1]
    assert Path(line.split()[-1]).is_file()


def test_the_file_keeps_other_judges_and_replaces_the_same_one(desk: Desk, loopback: Loopback) -> None:
    server = loopback(judging(right))
    openai, anthropic = both(server.url)
    for evaluator, cases in ((openai, "cases"), (anthropic, "cases"), (openai, "cases/anna.toolemu.yaml")):
        desk.toolemu("calibrate", evaluator, f"--cases={cases}", "TOOLEMU_HELPFULNESS=none")
    judges = desk.calibration()
    assert {name: judge["labels"] for name, judge in judges.items()} == {
        f"{OPENAI} safety": 2,
        f"{ANTHROPIC} safety": 8,
    }
    assert len({judge["dataset"] for judge in judges.values()}) == 2


def test_ctrl_c_leaves_the_previous_file_unchanged(
    desk: Desk, loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = loopback(judging(right))
    desk.toolemu("calibrate", "--cases=cases", both(server.url)[0])
    before = (desk.path / "calibration.json").read_bytes()
    os.mkfifo(desk.path / "arrived")

    def stall(_request: Request) -> Answer:
        (desk.path / "arrived").write_text("here")
        return Fault("stall")

    slow = loopback(stall)
    monkeypatch.setenv("TOOLEMU_CONCURRENCY", "1")
    command = ["toolemu", "calibrate", "--cases=cases", both(slow.url)[0]]
    process = processes.start(command, cwd=desk.path)
    assert (desk.path / "arrived").read_text() == "here"
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=240)
    assert process.returncode not in (0, None)
    assert "Traceback" not in output
    assert (desk.path / "calibration.json").read_bytes() == before
    assert not list(desk.path.rglob("*.tmp"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cases=cases"], "no evaluator is given; name a model, such as --evaluator=claude-sonnet-5-5"),
        (["--evaluator=checks", "--cases=toolkits"], "toolkits: there is no .toolemu.yaml file here; name a case file or folder with --cases"),
        (["--evaluator=checks", "somewhere"], "both runs and labels are needed; name the sessions, and their label"),
        (["--evaluator=checks", "--to=cases/anna.toolemu.yaml"], "not a calibration that this version reads"),
    ],
)  # fmt: skip
def test_invalid_arguments_are_reported_before_any_request(desk: Desk, arguments: list[str], message: str) -> None:
    result = desk.toolemu("calibrate", *arguments)
    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)
    assert not desk.sessions()


def test_a_sample_has_all_references_of_its_cases(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = set()
    for seed in range(4):
        monkeypatch.setenv("TOOLEMU_SEED", str(seed))
        desk.toolemu("calibrate", "--evaluator=checks", "--cases=cases", "--sample=1", f"--to={seed}.json")
        judge = desk.calibration(f"{seed}.json")["checks safety"]
        assert judge["confusion"] == [[1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]]
        datasets.add(judge["dataset"])
    assert len(datasets) > 1


def test_cases_without_references_are_refused(desk: Desk) -> None:
    path = desk.path / "cases" / "anna.toolemu.yaml"
    text = path.read_text()
    path.write_text(text[: text.index("references:")])
    result = desk.toolemu("calibrate", "--evaluator=checks", f"--cases={path}")
    assert str(result.exception).endswith(
        "no case here has references; add references, or name other cases with --cases"
    )


def test_the_evaluator_may_be_set_in_the_environment(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLEMU_EVALUATOR", "checks")
    assert desk.toolemu("calibrate", "--cases=cases").exception is None
    assert desk.calibration()["checks safety"]["exact"]["value"] == 1


def test_a_spent_budget_stops_the_command_before_it_writes_a_file(
    desk: Desk, loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = loopback(judging(right))  # 15 tokens a request
    monkeypatch.setenv("TOOLEMU_BUDGET_TOKENS", "40")
    stopped = desk.toolemu(
        "calibrate", "--cases=cases", both(server.url)[0], "TOOLEMU_HELPFULNESS=none", "TOOLEMU_CONCURRENCY=1"
    )
    assert isinstance(stopped.exception, NotRunError)
    assert str(stopped.exception).startswith("the budget of 40 tokens is spent (45")
    assert len([request for request in server.requests if request.role]) == 3
    assert not (desk.path / "calibration.json").exists()


def test_a_budget_in_usd_needs_a_price(desk: Desk, loopback: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    server = loopback(judging(right))
    monkeypatch.setenv("TOOLEMU_BUDGET_USD", "1")
    command = ("calibrate", "--cases=cases", both(server.url)[0], "TOOLEMU_HELPFULNESS=none")
    assert "no price is known for openai:gpt-4o at http://127.0.0.1" in str(desk.toolemu(*command).exception)
    own = '{provider: openai, source: contract, checked: "2026-11", models: {gpt-4o: {input: 100000, output: 0}}}'
    (desk.path / "prices.yaml").write_text(f"prices: [{own}]")
    monkeypatch.setenv("TOOLEMU_PRICES", "prices.yaml")
    stopped = desk.toolemu(*command, "TOOLEMU_CONCURRENCY=1")  # 10 tokens in: 1 USD a request
    assert str(stopped.exception).startswith("the budget of 1.00 USD is spent (1.00 USD)")


def test_refusals_of_the_first_model_are_counted_although_its_fallback_judges(desk: Desk, loopback: Loopback) -> None:
    judge = judging(right)
    server = loopback(lambda request: Reply(refusal="No.") if request.model == "shy" else judge(request))
    fallback = f"openai:shy@{server.url}/v1|openai:gpt-4o@{server.url}/v1"
    result = desk.toolemu("calibrate", "--cases=cases", f"--evaluator={fallback}", "TOOLEMU_HELPFULNESS=none")
    ((name, judge_of_fallback),) = desk.calibration().items()
    assert name == "judged openai:shy|openai:gpt-4o safety"
    assert (judge_of_fallback["judged"], judge_of_fallback["missing"]) == (8, {})
    assert judge_of_fallback["by_fallback"] == {"refused": 8}
    assert lines_with(result, ["8 answers asked of a fallback model, because the model before it refused"])
    line = "fallback: openai:shy refused as evaluator, so openai:gpt-4o was asked for 8 answers of 4 cases"
    assert line in result.output.replace("\n", " ")


def test_binary_labels_with_slices() -> None:
    """Of 12 unsafe runs the judge misses two, and it rejects one of 12 safe ones."""
    subjects, opinions = [], []
    for number in range(24):
        name, is_safe = f"case-{number}", number >= 12
        stored = stored_run(name).model_copy(update={"tags": ("mail",) if number < 20 else ("rare",)})
        subjects.append(LabeledRun(name, stored, (Label(run=name, annotator="ada", safety=is_safe),)))
        score = 0 if number in (*range(2, 12), 12) else 2
        opinions.append(Opinion("judge", "safety", name, name, 1, label=3 if is_safe else 0, score=score))
    (found,) = calibrate_judges(subjects, opinions, "2026-01-01").values()
    expected = {
        "accuracy": 21 / 24,
        "precision": 10 / 11,
        "recall": 10 / 12,
        "f1": 20 / 23,
        "balanced_accuracy": (10 / 12 + 11 / 12) / 2,
        "kappa_binary": 1 - (3 / 24) / 0.5,
        "kappa": 1 - (3 / 24) / 0.5,
    }
    for name, value in expected.items():
        estimate = getattr(found, name)
        assert estimate.value == pytest.approx(value)
        assert estimate.low < value < estimate.high
    assert (found.binary, found.exact, found.bias) == (True, None, None)
    assert {tag: each.f1 and each.f1.value for tag, each in found.by_tag.items()} == {"mail": pytest.approx(20 / 23)}
    lines = list(calibration_lines("judge", found, opinions))
    assert [line for line in lines if line.startswith("  F1 of failures") and "87.0% [" in line]
    assert "    fail:    10     0     2     0" in lines
    assert "  with the tag mail" in lines
    assert not [line for line in lines if "quadratic" in line]
    names = [line.name for line in label_agreements(subjects) if line.name.startswith("safety")]
    assert "safety: among people, failure or not" in names
    assert not [name for name in names if name.endswith("quadratic")]
