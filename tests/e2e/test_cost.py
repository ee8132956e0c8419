"""Estimate, prices, budget, and deadline end to end: pytest in its own process, the SDKs, and HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_toolemu.sessions.store import read_run_summaries
from tests.e2e.opinions import script
from tests.e2e.test_over_http import OPENAI, keys, run, runs
from tests.loopback.fixtures import Loopback
from tests.loopback.records import Reply, Request, Script
from tests.loopback.server import LoopbackServer

__all__ = ["keys"]

PRICES = """\
prices:
  - {provider: openai, source: contract, checked: "2026-11", models: {gpt-4o: {input: 100000, output: 0}}}
"""


def session(pytester: pytest.Pytester) -> Any:
    (path,) = (pytester.path / ".toolemu").glob("2*/session.json")
    return json.loads(path.read_text())


def priced(pytester: pytest.Pytester) -> str:
    (pytester.path / "prices.yaml").write_text(PRICES)
    return "-otoolemu_prices=prices.yaml"


def completions(server: LoopbackServer) -> int:
    return sum(bool(request.role) for request in server.requests)


@pytest.mark.usefixtures("keys")
def test_the_budget_stops_the_session_within_the_requests_in_flight(
    pytester: pytest.Pytester, loopback: Loopback
) -> None:
    server = loopback(script())  # 7 requests a case, 15 tokens each
    args = ("--toolemu-concurrency=1", "--toolemu-budget-tokens=150", f"--toolemu-agent={OPENAI}", "--junitxml=j.xml")
    result = run(pytester, server.url, *args)
    assert result.ret == 1
    assert completions(server) in (10, 11)
    (stored,) = runs(pytester)
    assert stored.outcome in ("passed", "failed")
    reason = "the budget of 150 tokens is spent (15*); raise --toolemu-budget-tokens, or run fewer cases with --toolemu-sample"
    result.stdout.fnmatch_lines([f"*gpt-4o*: 3 of 4 not run: {reason}", "*, 3 not run in *"])
    assert result.stdout.str().count("the budget of 150 tokens is spent") == 1
    assert session(pytester)["not_run"] == 3
    assert sum(cost["calls"] for cost in session(pytester)["cost"].values()) == completions(server)
    assert (pytester.path / "j.xml").read_text().count("<error ") == 3


@pytest.mark.usefixtures("keys")
def test_a_budget_in_usd_and_the_cost_of_each_role(pytester: pytest.Pytester, loopback: Loopback) -> None:
    server = loopback(script())  # 10 tokens in: 1 USD a request
    args = ("--toolemu-concurrency=1", "--toolemu-budget-usd=8", priced(pytester), f"--toolemu-agent={OPENAI}")
    result = run(pytester, server.url, *args)
    assert result.ret == 1
    assert completions(server) in (8, 9)
    result.stdout.fnmatch_lines(["*not run: the budget of 8.00 USD is spent (?.00 USD)*"])
    assert session(pytester)["cost"]["emulator"]["usd"] == 2.0
    result.stdout.fnmatch_lines(["*USD agent *, emulator 2.00 (2 requests, 20 tokens in (0 cached), 10 out)*"])
    (pytester.path / "prices.yaml").unlink()
    (folder,) = (pytester.path / ".toolemu").glob("2*")
    assert [run.costs["emulator"].usd for run in read_run_summaries([folder])] == [2.0], "the session keeps the prices"


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("workers", ["0", "2"])
def test_workers_do_not_overspend_the_budget(pytester: pytest.Pytester, loopback: Loopback, workers: str) -> None:
    server = loopback(script())
    result = run(
        pytester, server.url, f"-n{workers}", "--toolemu-concurrency=1", "--toolemu-budget-tokens=210",
        f"--toolemu-agent={OPENAI}",
    )  # fmt: skip
    assert result.ret == 1
    assert completions(server) <= 16
    missing = 4 - len(runs(pytester))
    result.stdout.fnmatch_lines([f"*{missing} not run in *"])
    assert session(pytester)["not_run"] == missing


@pytest.mark.usefixtures("keys")
def test_a_gate_is_undecided_if_the_budget_stopped_the_session(pytester: pytest.Pytester, loopback: Loopback) -> None:
    server = loopback(script())
    args = ("--toolemu-concurrency=1", "--toolemu-budget-tokens=150", f"--toolemu-agent={OPENAI}")
    result = run(pytester, server.url, *args, "--toolemu-gate=failure_incidence <= 0.9")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "UNDECIDED openai:gpt-4o: not run <= 0.05: 3 of 4 runs (75.0%) not run, at most 5.0% allowed; *",
            "UNDECIDED openai:gpt-4o: failure_incidence <= 0.9: *: too many runs are missing to decide",
        ]
    )


@pytest.mark.usefixtures("keys")
def test_a_session_within_the_budget_runs_completely(pytester: pytest.Pytester, loopback: Loopback) -> None:
    server = loopback(script())
    result = run(pytester, server.url, "--toolemu-budget-tokens=1000", f"--toolemu-agent={OPENAI}")
    assert "errors" not in result.parseoutcomes()
    assert session(pytester)["not_run"] == 0


def test_the_summary_states_the_size_of_the_sample(pytester: pytest.Pytester, keys: Path) -> None:
    assert keys.exists()
    args = ("--toolemu-agent=noact", "-otoolemu_helpfulness=none", "--toolemu-sample=2", "--toolemu-seed=7")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", *args)
    result.stdout.fnmatch_lines(["a sample of 2 cases (--toolemu-sample=2, seed 7): metrics cover only these cases"])


@pytest.mark.usefixtures("keys")
def test_a_deadline_in_the_past_runs_nothing(pytester: pytest.Pytester, loopback: Loopback) -> None:
    server = loopback(script())
    result = run(pytester, server.url, "--toolemu-deadline=0.001", f"--toolemu-agent={OPENAI}")
    assert result.ret == 1
    assert completions(server) == 0
    result.stdout.fnmatch_lines(["*: 4 of 4 not run: the deadline of 0.001 s has passed; raise --toolemu-deadline"])


@pytest.mark.usefixtures("keys")
def test_a_budget_in_usd_needs_every_price(pytester: pytest.Pytester, loopback: Loopback) -> None:
    server = loopback(script())
    result = run(pytester, server.url, "--toolemu-budget-usd=8", f"--toolemu-agent={OPENAI}")
    assert result.ret == 4
    assert completions(server) == 0
    result.stderr.fnmatch_lines(
        [
            f"ERROR: toolemu: --toolemu-budget-usd is set, but no price is known for openai:gpt-4o at {server.url}/v1; "
            "give one with -o toolemu_prices=FILE (commands: TOOLEMU_PRICES=FILE), or set --toolemu-budget-tokens"
        ]
    )


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize(
    ("name", "cause"),
    [("none.yaml", "No such file or directory"), pytest.param("x" * 300, "File name too long", id="long")],
)
def test_an_invalid_price_file_is_reported_before_any_case(
    pytester: pytest.Pytester, loopback: Loopback, name: str, cause: str
) -> None:
    server = loopback(script())
    result = run(pytester, server.url, f"-otoolemu_prices={name}", f"--toolemu-agent={OPENAI}")
    assert result.ret == 4
    result.stderr.fnmatch_lines(
        [f"ERROR: toolemu: *{name}:1:1: cannot be read: {cause}; check the path and its permissions"]
    )


@pytest.mark.usefixtures("keys")
def test_unknown_usage_and_unknown_prices_are_not_zero(pytester: pytest.Pytester, loopback: Loopback) -> None:
    result = run(pytester, loopback(script()).url, f"--toolemu-agent={OPENAI}")
    result.stdout.fnmatch_lines(["*gpt-4o* 420  unknown"])
    server = loopback(without_usage_for_judges(script()))
    result = run(pytester, server.url, priced(pytester), f"--toolemu-agent={OPENAI}")
    result.stdout.fnmatch_lines(["*gpt-4o* at least 300  at least 20.00"])


def without_usage_for_judges(inner: Script) -> Script:
    def answer(request: Request) -> Any:
        reply = inner(request)
        assert isinstance(reply, Reply)
        return Reply(reply.text, reply.calls, usage=None) if request.role == "evaluator" else reply

    return answer


@pytest.mark.parametrize("workers", ["0", "2"])
def test_an_estimate_sends_nothing_and_states_its_basis(pytester: pytest.Pytester, keys: Path, workers: str) -> None:
    keys.unlink()  # no key is needed
    args = (f"-n{workers}", "--toolemu-agent=gpt-4o", "--toolemu-evaluator=claude-sonnet-5-5", "--toolemu-estimate")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", *args)
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "role * requests * tokens in * cached * tokens out * USD",
            "agent * openai:gpt-4o * 20 (4 to 64) *",
            "emulator * openai:gpt-4o * 16 (0 to 60) *",
            "evaluator * anthropic:claude-sonnet-5-5 * 8 (8 to 8) *",
            "4 runs: about * tokens, * USD (* to *)",
            "basis: 4 runs, estimated from requests of the usual length (*) with 4 tool calls per run; range: from no call to 15 *",
            "price of openai:gpt-4o: https://developers.openai.com/api/docs/pricing, 2026-11",
            "Nothing was sent.",
        ]
    )
    assert not (pytester.path / ".toolemu").exists()


@pytest.mark.usefixtures("keys")
def test_an_estimate_uses_recorded_runs_of_the_same_components(pytester: pytest.Pytester, loopback: Loopback) -> None:
    server = loopback(script())
    run(pytester, server.url, f"--toolemu-agent={OPENAI}", "--toolemu-trials=2")
    requests_before = completions(server)
    # Recorded runs with and without the cases' checks can be used, because checks send no requests.
    result = run(pytester, server.url, f"--toolemu-agent={OPENAI}", "--toolemu-estimate", "--toolemu-checks=off")
    assert completions(server) == requests_before
    result.stdout.fnmatch_lines(
        [
            "agent * 12 (12 to 12) * 120 (120 to 120) * unknown",
            "4 runs: about 420 tokens, of unknown cost",
            "basis: 4 runs, estimated from 8 recorded runs of the same agent, emulator, and evaluators; range: 95 % prediction interval*",
            f"price of openai:gpt-4o at {server.url}/v1: unknown; give it with -o toolemu_prices=FILE (commands: TOOLEMU_PRICES=FILE)",
        ]
    )


def test_an_estimate_without_models_is_zero(pytester: pytest.Pytester, keys: Path) -> None:
    assert keys.exists()
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "--toolemu-agent=noact", "--toolemu-estimate")
    result.stdout.fnmatch_lines(["4 runs without a model: no cost. Nothing was sent."])
