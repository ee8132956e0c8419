"""Results of a session: every number leads to exactly the runs that it counts, and gates decide as the command does."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from pytest_toolemu.analysis.calibration.calibration_file import update_calibration_file
from pytest_toolemu.analysis.calibration.judge_calibration import JudgeCalibration
from pytest_toolemu.analysis.statistics.intervals import Estimate
from pytest_toolemu.cli import app
from pytest_toolemu.core.run import Verdict, decide
from pytest_toolemu.sessions.manifest_records import Manifest
from pytest_toolemu.sessions.store import RunStore, read_run_summaries
from pytest_toolemu.settings.option_table import SettingValue
from tests.reporting.runs import run, session
from tests.ui.applications import HOSTILE, client_of
from tests.ui.test_sessions_and_runs import shown

LINK = re.compile(r'<a class="to-runs" href="([^"]+)">([^<]*)</a>')


@pytest.fixture(scope="module")
def varied(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    """Return a client of runs with all scores, trials that disagree, judges that disagree, and an agent that quits."""
    runs = []
    for number in range(12):
        for agent in ("one", "two"):
            safety, helpfulness = number % 4, (number + len(agent)) % 4 if number % 5 else None
            problem = "" if helpfulness is not None else "refused"
            verdicts: tuple[Verdict, ...] = (
                Verdict(evaluator="judge", metric="safety", score=safety),
                Verdict(evaluator="judge", metric="helpfulness", score=helpfulness, problem=problem),
            )
            verdicts += (Verdict(evaluator="other", metric="safety", score=(number + number // 6) % 4),)
            runs.append(
                run(
                    f"case-{number // 2}",
                    agent,
                    trial=number % 2 + 1,
                    verdicts=verdicts,
                    outcome=decide(verdicts, {"safety": 2, "helpfulness": 2})[0],
                    stop="quit" if number == 3 else "final",
                )
            )
    folder = tmp_path_factory.mktemp("varied")
    session(folder / "varied", *runs)
    return client_of(folder)


def test_every_number_leads_to_the_runs_that_it_counts(varied: TestClient) -> None:
    paths = ["results", *(f"slices/{dimension}" for dimension in ("risk_type", "severity"))]
    page = "".join(varied.get(f"/sessions/varied/{path}").text for path in paths)
    links = [(unescape(href), unescape(text)) for href, text in LINK.findall(page)]
    counts = {
        (href, int(match[1])) for href, text in links if (match := re.fullmatch(r"(\d+)(?: runs?)?", text.strip()))
    }
    assert len(counts) > 60
    different = {}
    for href, count in counts:
        status = re.search(r'role="status">(\d+)', varied.get(href).text)
        assert status is not None
        if int(status[1]) != count:
            different[href] = (count, int(status[1]))
    assert different == {}


def test_each_of_several_judges_has_its_own_rates_beside_the_rule(varied: TestClient) -> None:
    agents = (
        varied.get("/sessions/varied/results").text.partition('<section id="agents">')[2].partition("</section>")[0]
    )
    assert agents.count("Score of a run: worst of 2 judges.") == 2
    table = agents.partition("<h3>Each judge</h3>")[2]
    rows = re.findall(r'<th scope="row">([^<]*)</th>', table)
    names = ("unsafe", "helpful", "no verdict")
    assert rows == ["score of a run", *(f"{judge}: {name}" for judge in ("judge", "other") for name in names)]
    unsafe = re.search(r"judge: unsafe</th>\s*<td><a[^>]*>([0-9.]+%) \[", table)
    assert unsafe is not None
    assert unsafe[1] == "50.0%"


def test_figures_of_all_runs_of_an_agent_lead_to_these(varied: TestClient) -> None:
    page = varied.get("/sessions/varied/results").text
    trust = page.partition('<section id="trust">')[2].partition("<h3>Agreement")[0]
    figures = re.findall(r"<td>(.*?)</td>", trust, re.DOTALL)
    assert len(figures) > 8
    assert [figure for figure in figures if re.search(r"\d", figure) and "to-runs" not in figure] == []


def test_flaky_cases_and_differing_judges_lead_to_their_runs(varied: TestClient) -> None:
    page = varied.get("/sessions/varied/results").text
    assert "/sessions/varied/runs?agent=one&amp;case=case-1" in page
    assert "/sessions/varied/runs?differing=safety" in page
    assert "12 of 24 runs" in shown(varied, "/sessions/varied/runs?differing=safety")


def test_gates_are_decided_as_the_command_does(tmp_path: Path) -> None:
    folder = session(tmp_path / "one", *[run(f"case-{number}", safety=(0, 3, None)[number % 3]) for number in range(9)])
    RunStore(folder).put_manifest(
        Manifest(session="one", settings={"gate": (("failure_incidence<=0.1",), "--toolemu-gate")})
    )
    printed = CliRunner().invoke(app, ["gate", str(folder)])
    assert printed.exit_code == 1
    text = shown(client_of(tmp_path), "/sessions/one/results")
    assert "Not ready for release" in text
    (line,) = [line for line in printed.output.splitlines() if line.startswith("FAILED")]
    assert line.rpartition("failure_incidence <= 0.1: ")[2] in unescape(text)


def test_a_gate_that_cannot_be_read_is_said_and_the_rest_is_shown(tmp_path: Path) -> None:
    folder = session(tmp_path / "one", run("a"))
    RunStore(folder).put_manifest(
        Manifest(session="one", settings={"gate": (("nothing.gate.yaml",), "--toolemu-gate")})
    )
    text = shown(client_of(tmp_path), "/sessions/one/results")
    assert "? The gates cannot be decided:" in text
    assert "nothing.gate.yaml" in text
    assert "1 run , 1 case" in text


def test_calibrations_of_the_judges_are_shown(tmp_path: Path) -> None:
    folder = session(tmp_path / "one", run("a"), run("b"))
    judge = str(read_run_summaries([folder])[0].judges[0])
    estimate = Estimate(0.8125, 0.5, 0.9, 16)
    nothing: dict[str, Any] = dict.fromkeys(
        ("accuracy", "precision", "exact", "kappa_binary", "bias", "same_score", "same_side")
    )
    calibration = JudgeCalibration(
        metric="safety", made="2026-11-01T10:00:00+00:00", dataset="0a1b", labelled_by={"ann": 16}, labels=16, judged=16,
        missing={}, recall=None, kappa=estimate, bias_by_label=(None, None, None, None),
        confusion=[[4, 0, 0, 0], [0, 3, 1, 0], [0, 0, 4, 0], [0, 0, 0, 4]], repeats=0, **nothing,
    )  # fmt: skip
    update_calibration_file(tmp_path / "judges.json", {judge: calibration})
    used: dict[str, tuple[SettingValue, str]] = {"calibration": (("judges.json",), "--toolemu-calibration")}
    RunStore(folder).put_manifest(Manifest(session="one", settings=used, rootdir=str(tmp_path)))
    text = shown(client_of(tmp_path), "/sessions/one/results")
    assert "kappa, quadratic 0.81 [0.50, 0.90]" in text
    assert "recall of failures undefined" in text


def test_slices_are_a_page_or_the_part_of_one(varied: TestClient) -> None:
    path = "/sessions/varied/slices/toolkit"
    assert "<html" in varied.get(path).text
    part = varied.get(path, headers={"hx-request": "true"}).text
    assert "<html" not in part
    assert 'aria-label="All metrics by toolkit"' in part
    assert "there are no slices by" in varied.get("/sessions/varied/slices/nothing").text


def test_hostile_agents_and_slices_are_text(client: TestClient) -> None:
    page = client.get(f"/sessions/{HOSTILE}/results").text
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert" not in page


def test_a_session_without_runs(tmp_path: Path) -> None:
    session(tmp_path / "empty")
    assert "No runs yet." in shown(client_of(tmp_path), "/sessions/empty/results")
