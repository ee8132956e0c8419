"""Metrics and costs of agents and of slices, as reports show them."""

from __future__ import annotations

import csv
import io
import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pytest_toolemu.analysis.gates.gate_decision import decide_gates
from pytest_toolemu.analysis.gates.gate_file import Gate, Gates
from pytest_toolemu.analysis.metrics import AgentSummary, summarize_agents
from pytest_toolemu.analysis.run_summary import DIMENSIONS, RunSummary
from pytest_toolemu.cli import app
from pytest_toolemu.core.messages import ModelCall, Reply, Role, Usage
from pytest_toolemu.core.run import Identity, Run
from pytest_toolemu.reporting.html_report import report_page
from pytest_toolemu.reporting.report_data import ReportData, read_report
from pytest_toolemu.reporting.report_files import csv_text, json_text, markdown, slices_csv
from pytest_toolemu.reporting.summary_table import agent_table
from pytest_toolemu.sessions.store import read_run_summaries, run_files
from tests.gates.run_summaries import edited, results, safety_scores
from tests.reporting.runs import run, session

GPT = {"provider": "openai", "name": "gpt-4o", "base_url": "https://api.openai.com/v1"}
"""A model with a shipped price: 2.50 USD per million input tokens, 10 USD per million output tokens."""


RECORDED = Identity(
    agent={"kind": "tool_calling", "model": GPT}, emulator={"kind": "simulated"}, evaluators=({"kind": "checks"},)
)
"""Components whose requests are all in the record."""

CUSTOM = RECORDED.model_copy(update={"agent": {"kind": "own", "name": "shop.agent:answer"}})
IMPORTED = Identity(agent={"kind": "imported"}, emulator={"kind": "imported"}, evaluators=({"kind": "imported"},))


def model_call(role: Role, tokens: int | None, model: dict[str, str] | None = None, **fields: Any) -> ModelCall:
    """Return a request with this many tokens, half of them in the reply; None stands for a request without a reply."""
    reply = None if tokens is None else Reply(usage=Usage(input=tokens // 2, output=tokens // 2, calls=1))
    return ModelCall(role=role, model=model or GPT, messages=(), reply=reply, started=0.0, seconds=0.0, **fields)


def case(name: str, safety: int | None, kind: str, *model_calls: ModelCall, agent: str = "gpt-4o") -> Run:
    plain = run(name, agent, safety, model_calls=model_calls, identity=RECORDED)
    risks = plain.case.risks.model_copy(update={"types": (kind,)})
    return plain.model_copy(update={"case": plain.case.model_copy(update={"risks": risks})})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a session of six cases and two risk types. One run has no verdict; only some models have a known price."""
    mine = {"provider": "vllm", "name": "org/mine", "base_url": "http://127.0.0.1:8000/v1"}
    paid = (
        model_call("agent", 200_000),
        model_call("emulator", 100_000, mine),
        model_call("evaluator", 20_000),
        model_call("evaluator", None),
    )
    return session(
        tmp_path / "one",
        case("a", 0, "data_loss", *paid),
        case("b", 3, "data_loss", model_call("agent", 200_000, replayed="a.json#1")),
        case("c", None, "data_loss"),
        case("d", 3, "wrong_person"),
        case("e", 3, "wrong_person"),
        case("f", 3, "wrong_person", model_call("agent", 200_000)).model_copy(update={"source": "resumed"}),
    )


@pytest.fixture
def report(folder: Path) -> ReportData:
    return read_report(run_files([folder]), [folder], with_transcripts=True)


def test_every_slice_has_every_metric(report: ReportData) -> None:
    content = json.loads(json_text(report))
    by = {item["by"]: item["values"] for item in content["slices"]}
    assert list(by) == list(DIMENSIONS)
    assert by["risk_type"].keys() == {"data_loss", "wrong_person"}
    data_loss = by["risk_type"]["data_loss"]["gpt-4o"]
    assert (data_loss["runs"], data_loss["cases"], data_loss["missing"]) == (3, 3, {"inconclusive": 1})
    summary = AgentSummary(
        "gpt-4o", tuple(run for run in report.run_summaries if "data_loss" in run.slices["risk_type"])
    )
    assert data_loss["metrics"]["mean_safety"] == summary.metrics["mean_safety"].fields
    # Two cases, one at each end of the scale: 3 times the exact bound for one of two.
    assert data_loss["metrics"]["mean_safety"]["low"] == pytest.approx(3 * (1 - 0.975**0.5), abs=1e-6)
    assert data_loss["metrics"]["failure_incidence"]["value"] == 0.5
    bounds = (
        data_loss["failure_incidence_if_missing_were_safe"],
        data_loss["failure_incidence_if_missing_were_unsafe"],
    )
    assert bounds == (1 / 3, 2 / 3)
    assert data_loss["scores"]["safety"] == {"0": 1, "1": 0, "2": 0, "3": 1}
    assert data_loss["metrics"]["safety_at_zero"]["value"] == 0.5
    assert data_loss["metrics"]["quit_rate"]["value"] == 0.0
    assert data_loss["safe_and_helpful"] == {
        "safe_helpful": 1,
        "safe_unhelpful": 0,
        "unsafe_helpful": 1,
        "unsafe_unhelpful": 0,
    }
    (agent,) = content["agents"]
    assert agent.keys() > data_loss.keys()


def test_the_slices_csv_has_a_column_for_each_metric(report: ReportData) -> None:
    lines = list(csv.DictReader(io.StringIO(slices_csv(report))))
    assert [(line["by"], line["value"]) for line in lines[:3]] == [
        ("all", ""), ("risk_type", "data_loss"), ("risk_type", "wrong_person"),
    ]  # fmt: skip
    data_loss = lines[1]
    expected = {
        "runs": "3", "missing.inconclusive": "1", "metrics.mean_safety.value": "1.5", "metrics.mean_safety.n": "2",
        "metrics.safety_at_zero.value": "0.5", "safe_and_helpful.safe_helpful": "1", "std.safety": "1.5",
        "safe_and_helpful.unsafe_helpful": "1", "scores.safety.3": "1", "costs.agent.usd": "1.25",
        "costs.evaluator.calls": "2", "costs.evaluator.unknown": "1",
    }  # fmt: skip
    assert {name: data_loss[name] for name in expected} == expected
    assert all(None not in line and None not in line.values() for line in lines)


def test_the_page_has_a_table_for_every_dimension(report: ReportData) -> None:
    page = report_page(report)
    assert page.count('<table class="slice-metrics">') == len(DIMENSIONS)
    text = " ".join(re.sub(r"<[^>]*>", " ", page).replace("\u2013", " to ").split())
    assert "All metrics by risk type 2" in text
    assert (
        "data loss 3 1 inconclusive 50.0 9.5 to 90.5 33.3% to 66.7% 1.50 0.04 to 2.96 SD 1.50 1·0·0·1 50.0 9.5 to 90.5 3.00"
        in text
    )


def test_metrics_do_not_depend_on_the_order_of_runs() -> None:
    """Under xdist, cases finish in any order; a stored session is read in the order of its file names."""
    draw = random.Random(3)
    scores = [draw.choice((0, 1, 2, 3, 3, 3)) for _ in range(60)]
    runs = [
        edited(run, scores=safety_scores({"one": run.safety, "two": draw.choice((0, 2, 3))})) for run in results(scores)
    ]
    shuffled = draw.sample(runs, len(runs))

    def as_shown(rows: Sequence[RunSummary]) -> tuple[object, ...]:
        report = replace(read_report(rows, [], with_transcripts=True), created="2026-03-01T12:00:00+00:00")
        content = json.loads(json_text(report))
        page = report_page(report).partition('<section id="runs">')[0]
        return (
            agent_table(summarize_agents(rows), 400),
            content["agents"],
            content["agreement"],
            content["slices"],
            page,
        )

    for one, other in zip(as_shown(runs), as_shown(shuffled), strict=True):
        assert one == other
    report = read_report(runs, [], with_transcripts=True)
    safety = summarize_agents(runs)[0].metrics["mean_safety"].estimate
    assert safety is not None
    assert f"{safety.value:.2f} [{safety.low:.2f}, {safety.high:.2f}]" in "\n".join(agent_table(report.summaries, 400))
    assert f"<small>{safety.low:.2f}\u2013{safety.high:.2f}</small>" in report_page(report)


def test_costs_are_reported_by_role_and_unknown_costs_stay_unknown(report: ReportData, folder: Path) -> None:
    """Replayed replies and resumed runs cost this session nothing."""
    (agent,) = json.loads(json_text(report))["agents"]
    assert agent["costs"]["agent"] == {
        "calls": 1,
        "unknown": 0,
        "input": 100_000,
        "cached": 0,
        "output": 100_000,
        "usd": 1.25,
        "unseen": 0,
    }
    assert (agent["costs"]["emulator"]["usd"], agent["costs"]["emulator"]["unknown"]) == (None, 1)
    costs = (
        "USD agent 1.25 (1 request, 100,000 tokens in (0 cached), 100,000 out), emulator unknown (1 request, "
        "50,000 tokens in (0 cached), 50,000 out), evaluator at least 0.12 (2 requests, 10,000 tokens in (0 cached), 10,000 out)"
    )
    assert f"`gpt-4o` cost {costs}." in markdown(report)
    page = " ".join(re.sub(r"<[^>]*>", " ", report_page(report)).split())
    assert "all at least 1.38 2 unknown 4 requests, 160,000 tokens in (0 cached), 160,000 out" in page
    first = next(csv.DictReader(io.StringIO(csv_text(report))))
    assert (first["case"], first["cost_usd"], first["cost_unknown"]) == ("a", "1.375", "2")
    result = CliRunner().invoke(app, ["show", next(run.path for run in report.run_summaries if run.case == "a")])
    assert costs in " ".join(result.output.split())
    compared = CliRunner().invoke(app, ["compare", str(folder), str(folder)])
    assert f"Cost before: {costs}." in compared.output
    assert f"Cost after: {costs}." in compared.output


def test_the_prices_of_the_session_are_used(folder: Path) -> None:
    assert AgentSummary("", tuple(read_run_summaries([folder]))).costs["emulator"].text == "unknown"
    prices: dict[str, object] = {"provider": "vllm", "source": "contract", "checked": "2026-11"}
    prices |= {"models": {"org/mine": {"input": 1, "output": 1}}}
    (folder / "session.json").write_text(json.dumps({"prices": [prices]}))
    assert AgentSummary("", tuple(read_run_summaries([folder]))).costs["emulator"].usd == 0.1


def test_repeated_trials_are_summarized_by_pass_at_k_pass_hat_k_and_majority(tmp_path: Path) -> None:
    """Case a passes two of three times, case b never."""
    runs = [run("a", safety=safety, trial=trial) for trial, safety in enumerate((3, 3, 0), 1)]
    folder = session(tmp_path / "one", *runs, *(run("b", safety=0, trial=trial) for trial in (1, 2, 3)))
    report = read_report(run_files([folder]), [folder], with_transcripts=False)
    (agent,) = json.loads(json_text(report))["agents"]
    assert {name: round(agent["metrics"][name]["value"], 3) for name in list(agent["metrics"])[-6:]} == {
        "pass@1": 0.333, "pass@2": 0.5, "pass^2": 0.167, "pass@3": 0.5, "pass^3": 0.0, "2-of-3": 0.5,
    }  # fmt: skip
    assert agent["flaky"] == {"a": pytest.approx(2 / 3)}


def test_tokens_and_costs_of_custom_agents_are_unknown_not_zero(tmp_path: Path) -> None:
    """In case a, no request is recorded; in case b, only those of the emulator are."""
    folder = session(
        tmp_path / "one",
        run("a", "custom", identity=CUSTOM),
        run(
            "b",
            "partly",
            identity=CUSTOM,
            model_calls=(model_call("emulator", 200_000),),
            usage={"emulator": Usage(input=9)},
        ),
        run("c", "imported", identity=IMPORTED),
        run("d", "none", identity=RECORDED),
    )
    report = read_report(run_files([folder]), [folder], with_transcripts=True)
    content = json.loads(json_text(report))
    assert [(r["agent"], r["tokens"], r["cost_usd"], r["unseen"]) for r in content["runs"]] == [
        ("custom", None, None, "agent"),
        ("partly", 9, 1.25, "agent"),
        ("imported", None, None, "agent emulator evaluator"),
        ("none", 0, 0.0, ""),
    ]
    by_agent = {agent["agent"]: agent for agent in content["agents"]}
    assert [by_agent[name]["tokens"] for name in ("custom", "partly", "imported", "none")] == [None, 9, None, 0]
    custom = by_agent["custom"]["costs"]["agent"]
    assert [custom[name] for name in ("calls", "input", "cached", "output", "usd", "unseen")] == [None] * 5 + [1]
    assert [line["tokens"] for line in csv.DictReader(io.StringIO(csv_text(report)))] == ["", "9", "", "0"]
    totals = {line["agent"]: line for line in csv.DictReader(io.StringIO(slices_csv(report))) if line["by"] == "all"}
    assert [totals["custom"][f"costs.agent.{name}"] for name in ("usd", "calls", "input", "unseen")] == [
        "",
        "",
        "",
        "1",
    ]
    assert [totals["none"][f"costs.agent.{name}"] for name in ("usd", "calls", "input", "unseen")] == [
        "0.0",
        "0",
        "0",
        "0",
    ]
    assert {summary.agent: (summary.tokens_text, summary.cost.text) for summary in report.summaries} == {
        "custom": ("unknown", "unknown"),
        "partly": ("at least 9", "at least 1.25"),
        "imported": ("unknown", "unknown"),
        "none": ("0", "0"),
    }
    page = " ".join(re.sub(r"<[^>]*>", " ", report_page(report)).split())
    assert "unknown unknown" in page
    assert "at least 9 at least 1.25" in page
    assert "unknown requests of 1 run not recorded" in page
    table = agent_table(report.summaries, 200)
    assert [line.split()[-1] for line in table[1:]] == ["unknown", "unknown", "0", "1.25"]
    assert table[-1].endswith("at least 9  at least 1.25")


def test_a_resumed_run_of_any_agent_costs_this_session_nothing(tmp_path: Path) -> None:
    folder = session(tmp_path / "one", run("a", identity=CUSTOM, source="resumed"))
    (summary,) = read_report(run_files([folder]), [folder], with_transcripts=False).summaries
    assert (summary.cost.text, summary.tokens_text) == ("0", "unknown")


def test_a_mean_over_one_case_states_that_it_has_no_interval() -> None:
    report = read_report(results([2]), [], with_transcripts=True)
    mean = "2.00 (1 run: no interval)"
    assert agent_table(report.summaries, 400)[1].split()[:4] == ["gpt-4o", "1", "2.00", "0.0%"]
    assert mean in markdown(report)
    assert "<b>2.00</b> <small>1 run: no interval</small>" in report_page(report)
    assert "SD 0.00" not in report_page(report)
    (decision,) = decide_gates(Gates(gates=(Gate(metric="mean_safety", at_least=1),)), report.run_summaries)[2:]
    assert decision.text.startswith(f"mean_safety {mean} over 1 run")
    trials = [edited(run, case="one", trial=trial) for trial, run in enumerate(results([2, 3]), 1)]
    assert "2.50 (1 case: no interval)" in "\n".join(agent_table(summarize_agents(trials), 400))


def test_the_terminal_table_has_a_row_for_each_agent_or_if_that_fits_better_a_column() -> None:
    summaries = summarize_agents(results([0, 2, 3]))
    wide, narrow = agent_table(summaries, 150), agent_table(summaries, 60)
    assert re.split(r"  +", wide[0])[2:6] == ["safety [95 %]", "SD", "unsafe [95 %]", "help. [95 %]"]
    assert re.split(r"  +", wide[1])[3] == "1.25"
    assert wide == agent_table(summaries, None)
    assert max(map(len, wide)) > 120
    assert list(zip(*(re.split(r"  +", line) for line in narrow), strict=True)) == [
        tuple(re.split(r"  +", line)) for line in wide
    ]
    assert narrow == agent_table(summaries, 120)
