"""``--batch``: judges are asked in batches of OpenAI and Anthropic, across interruptions and partial failures."""

from __future__ import annotations

import asyncio
import errno
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from pytest_toolemu.errors import NotRunError, UsageError
from pytest_toolemu.formats.file_access import write_atomically
from pytest_toolemu.models import batch_journal, batch_queue
from tests.calibration.conftest import Desk
from tests.calibration.judges import judging, right
from tests.loopback.batches import Fate, LoopbackBatch
from tests.loopback.fixtures import Loopback
from tests.loopback.records import Answer, Fault, Reply, Request
from tests.loopback.server import LoopbackServer

PROVIDERS = {"openai": "openai:gpt-4o@{url}/v1", "anthropic": "anthropic:claude-sonnet-5-5@{url}"}

Ask = Callable[..., Result]


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replace the pauses between two looks at a batch; return their lengths."""
    lengths: list[float] = []

    async def pause(seconds: float) -> None:
        lengths.append(seconds)
        await asyncio.sleep(0)

    for module in (batch_queue, batch_queue):
        monkeypatch.setattr(module, "sleep", pause)
    return lengths


@pytest.fixture
def two(desk: Desk, first: str) -> str:
    """Keep one safe and one risky run of the session ``first``."""
    for path in (desk.path / first).glob("*--*.json"):
        if not path.name.startswith("anna"):
            path.unlink()
    return first


@pytest.fixture
def ask(desk: Desk, two: str, pauses: list[float]) -> Ask:
    """Judge two runs by a server's model for both rubrics: four requests."""
    del pauses

    def judge(server: LoopbackServer, *options: str, provider: str = "openai") -> Result:
        evaluator = PROVIDERS[provider].format(url=server.url)
        return desk.toolemu("judge", two, f"--evaluator={evaluator}", "--batch", "TOOLEMU_CHECKS=off", *options)

    return judge


def state(desk: Desk, folder: str = "again") -> dict[str, Any]:
    return dict(json.loads((desk.path / folder / "batches.json").read_text()))


def only_once(fate: Fate, count: int) -> Callable[[Request], Fate]:
    """Return this fate for the first requests."""
    fates = [fate] * count
    return lambda _request: fates.pop() if fates else "answered"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_all_requests_are_one_batch(
    desk: Desk, ask: Ask, loopback: Loopback, pauses: list[float], provider: str
) -> None:
    server = loopback(judging(right))
    server.batches.polls = 4
    result = ask(server, "--to=again", provider=provider)
    assert result.exception is None, result.output
    (batch,) = server.batches.all
    assert result.output.splitlines()[0].endswith(f": batch {batch.id} with 4 requests was sent")
    assert f": batch {batch.id}: 0 of 4 requests done\n" in result.output
    assert result.output.endswith(
        "2 runs: 1 failed, 1 passed\n60 tokens in 1 batch, unknown USD at batch prices; records: again\n"
    )
    assert pauses == [5, 10, 20]
    for run in desk.runs("again"):
        assert [verdict.metric for verdict in run.verdicts] == ["safety", "helpfulness"]
        assert {call.reply.batch for call in run.model_calls if call.reply} == {batch.id}
        assert run.outcome == ("failed" if "risky" in run.agent else "passed")
    assert not [request for request in server.requests if request.role], "no request was sent outside of the batch"
    assert state(desk)["finished"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_corrections_of_invalid_replies_are_the_next_batch(
    desk: Desk, ask: Ask, loopback: Loopback, provider: str
) -> None:
    answer = judging(right)

    def script(request: Request) -> Reply:
        asks_again = len(request.messages) > 2
        return Reply("{}") if request.schema_name == "safety" and not asks_again else answer(request)

    server = loopback(script)
    assert ask(server, "--to=again", provider=provider).output.endswith(
        "90 tokens in 2 batches, unknown USD at batch prices; records: again\n"
    )
    assert server.batches.sizes == [4, 2]
    assert {run.outcome for run in desk.runs("again")} == {"failed", "passed"}
    assert all(run.verdicts[0].repairs for run in desk.runs("again"))


@pytest.mark.parametrize(
    ("provider", "fate"),
    [("openai", "expired"), ("openai", "missing"), ("anthropic", "expired"), ("anthropic", "canceled")],
)
def test_requests_without_an_answer_are_sent_again(ask: Ask, loopback: Loopback, provider: str, fate: Fate) -> None:
    server = loopback(judging(right))
    server.batches.fate = only_once(fate, 3)
    result = ask(server, "--to=again", provider=provider)
    assert "2 runs: 1 failed, 1 passed\n" in result.output
    assert server.batches.sizes == [4, 3]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_only_failures_that_may_pass_are_repeated(desk: Desk, ask: Ask, loopback: Loopback, provider: str) -> None:
    faults = [Fault(status=500), Fault(status=403, message="not for you")]
    answer = judging(right)

    def script(request: Request) -> Answer:
        return faults.pop() if faults and request.schema_name == "safety" else answer(request)

    server = loopback(script)
    result = ask(server, "--to=again", provider=provider)
    assert "2 runs: 1 broken, 1 " in result.output
    assert server.batches.sizes == [4, 1]
    (reason,) = [reason for run in desk.runs("again") if run.outcome == "broken" for reason in run.reasons]
    assert "answered 403: not for you" in reason


def test_requests_that_are_never_answered_are_given_up_as_elsewhere(desk: Desk, ask: Ask, loopback: Loopback) -> None:
    server = loopback(judging(right))
    server.batches.fate = lambda request: "expired" if request.schema_name == "safety" else "answered"
    ask(server, "--to=again")
    assert server.batches.sizes == [4, *[2] * 7]
    for run in desk.runs("again"):
        assert (run.outcome, run.error and run.error.origin) == ("broken", "provider")
        assert "the batch did not answer the request" in run.reasons[0]
        assert "given up after 8 attempts" in run.reasons[0]


def test_a_parameter_that_the_model_refuses_is_left_out_of_the_next_batch(
    ask: Ask, loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLEMU_TEMPERATURE", "0.5")
    answer = judging(right)

    def script(request: Request) -> Answer:
        is_refused = "temperature" in request.body
        return Fault(status=400, message="'temperature' is not supported") if is_refused else answer(request)

    server = loopback(script)
    assert "2 runs: 1 failed, 1 passed\n" in ask(server, "--to=again").output
    assert server.batches.sizes == [4, 4]


def interrupted_at(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Press Ctrl-C in this pause between two looks."""
    pauses = iter(range(1, 100))

    async def pause(_seconds: float) -> None:
        if next(pauses) == number:
            signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(0)

    for module in (batch_queue, batch_queue):
        monkeypatch.setattr(module, "sleep", pause)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_after_ctrl_c_the_same_command_goes_on(
    desk: Desk, ask: Ask, loopback: Loopback, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = loopback(judging(right))
    server.batches.polls = 3
    interrupted_at(2, monkeypatch)
    stopped = ask(server, "--to=again", provider=provider)
    assert stopped.exit_code == 130
    (batch,) = server.batches.all
    assert stopped.output.endswith(
        "interrupted; run the same command again to continue with the batches of again; nothing is sent twice; the "
        f"provider charges for {batch.id}\n"
    )
    assert not desk.runs("again")
    result = ask(server, "--to=again", provider=provider)
    assert "2 runs: 1 failed, 1 passed\n60 tokens in 1 batch" in result.output
    assert server.batches.sizes == [4]


def test_without_to_the_same_command_finds_its_folder(
    desk: Desk, ask: Ask, two: str, loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = loopback(judging(right))
    server.batches.polls = 3
    interrupted_at(1, monkeypatch)
    assert ask(server).exit_code == 130
    (folder,) = desk.sessions()
    other = ask(server, "--keep", "--estimate")
    assert "Nothing was sent." in other.output
    server.batches.faults["POST /v1/files"] = Fault(status=400)
    ask(server, "--keep")  # without --to, another command sends its own batches
    (second,) = set(desk.sessions()) - {folder}
    shutil.rmtree(second)
    evaluator = PROVIDERS["openai"].format(url=server.url)
    # By now, 'latest' is the folder of the unfinished batch.
    result = desk.toolemu("judge", "latest", f"--evaluator={evaluator}", "--batch", "TOOLEMU_CHECKS=off")
    assert "2 runs: 1 failed, 1 passed\n" in result.output
    assert desk.sessions() == [folder]
    assert server.batches.sizes == [4]
    assert two in str(desk.manifest(str(folder))["judged_from"])


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_process_that_ended_while_it_sent_a_batch_does_not_send_it_twice(
    desk: Desk, ask: Ask, loopback: Loopback, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = loopback(judging(right))
    update = batch_journal.BatchJournal.update

    def kill(journal: Any, sent: Any, **changes: Any) -> Any:
        if changes.get("status") == "sent":
            signal.raise_signal(signal.SIGINT)
            return sent
        return update(journal, sent, **changes)

    with monkeypatch.context() as patched:
        patched.setattr(batch_journal.BatchJournal, "update", kill)
        assert ask(server, "--to=again", provider=provider).exit_code == 130
    assert state(desk)["batches"][0]["status"] == "sending"
    assert "2 runs: 1 failed, 1 passed\n" in ask(server, "--to=again", provider=provider).output
    assert server.batches.sizes == [4]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_batch_whose_confirmation_is_lost_is_created_once(
    ask: Ask, loopback: Loopback, provider: str, pauses: list[float]
) -> None:
    server = loopback(judging(right))
    path = "POST /v1/batches" if provider == "openai" else "POST /v1/messages/batches"
    server.batches.faults[path] = Fault(status=502)
    server.batches.lost = True
    assert "2 runs: 1 failed, 1 passed\n" in ask(server, "--to=again", provider=provider).output
    assert server.batches.sizes == [4]
    assert pauses == [5]


def test_a_refused_batch_is_sent_again_by_the_next_call(ask: Ask, loopback: Loopback) -> None:
    server = loopback(judging(right))
    server.batches.refusal = "Enqueued token limit reached"
    stopped = ask(server, "--to=again")
    assert isinstance(stopped.exception, NotRunError)
    assert str(stopped.exception) == (
        "openai:gpt-4o: the provider refused the batch batch_1: Enqueued token limit reached"
    )
    assert "2 runs: 1 failed, 1 passed\n" in ask(server, "--to=again").output
    assert server.batches.sizes == [4, 4]


def test_an_endpoint_without_batches_is_named(ask: Ask, loopback: Loopback) -> None:
    server = loopback(judging(right))
    server.batches.faults["POST /v1/files"] = Fault(status=404, message="Not Found")
    message = str(ask(server, "--to=again").exception)
    assert message.startswith(f"openai:gpt-4o: {server.url}/v1 answered 404: Not Found")
    assert message.endswith("; if it does not support batches, judge without --batch")


def test_a_batch_that_the_provider_has_deleted_is_named(ask: Ask, loopback: Loopback) -> None:
    server = loopback(judging(right))
    server.batches.faults["GET /v1/batches/batch_1"] = Fault(status=404, message="No such batch")
    message = str(ask(server, "--to=again").exception)
    assert "the batch batch_1 cannot be read" in message
    assert message.endswith("; if the provider no longer has it, delete again/batches.json to send all requests again")


def test_a_key_that_is_refused_while_a_batch_is_followed_keeps_the_batch(ask: Ask, loopback: Loopback) -> None:
    server = loopback(judging(right))
    server.batches.faults["GET /v1/batches/batch_1"] = Fault(status=403, message="not for you")
    message = str(ask(server, "--to=again").exception)
    assert message.endswith("not for you; it continues at the provider; run the same command again to resume")
    assert "2 runs: 1 failed, 1 passed\n" in ask(server, "--to=again").output
    assert server.batches.sizes == [4]


def test_a_batch_whose_confirmation_is_lost_is_not_given_up_when_the_key_is_refused(
    desk: Desk, ask: Ask, loopback: Loopback
) -> None:
    server = loopback(judging(right))
    server.batches.faults["POST /v1/batches"] = Fault(status=502)
    server.batches.faults["GET /v1/batches"] = Fault(status=401)
    server.batches.lost = True
    message = str(ask(server, "--to=again").exception)
    assert message.endswith("; the provider may have the batch; run the same command again to continue")
    assert state(desk)["batches"][0]["status"] == "sending"
    assert "2 runs: 1 failed, 1 passed\n" in ask(server, "--to=again").output
    assert server.batches.sizes == [4]


def test_a_full_disk_at_the_end_of_judging_is_named(
    ask: Ask, loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_at_end(path: Path, text: str) -> None:
        if '"finished": true' in text:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_atomically(path, text)

    server = loopback(judging(right))
    with monkeypatch.context() as patched:
        patched.setattr(batch_journal, "write_atomically", fail_at_end)
        assert str(ask(server, "--to=again").exception) == (
            "a record cannot be written (No space left on device), so no more requests were sent; free disk space or "
            "restore the folder, and run the same command again"
        )
    assert "2 runs: " in ask(server, "--to=again").output
    assert server.batches.sizes == [4]


def test_a_server_of_ones_own_has_no_batches(desk: Desk, two: str) -> None:
    result = desk.toolemu("judge", two, "--evaluator=vllm:tiny@http://127.0.0.1:9/v1", "--batch")
    assert isinstance(result.exception, UsageError)
    assert str(result.exception) == (
        "--batch: vllm:tiny is your own server, which has no batches; judge without --batch, or name a model of "
        "OpenAI or Anthropic with --evaluator"
    )


def test_another_command_does_not_go_on_with_unfinished_batches(
    ask: Ask, loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = loopback(judging(right))
    server.batches.polls = 2
    interrupted_at(1, monkeypatch)
    assert ask(server, "--to=again").exit_code == 130
    other = ask(server, "--to=again", "--keep")
    assert str(other.exception) == (
        "again/batches.json: has unfinished batches of a command with other sessions, judges, or options; finish that "
        "command first, or name another folder with --to"
    )


def test_a_command_without_batches_does_not_pay_for_unfinished_ones_again(
    desk: Desk, two: str, ask: Ask, loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = loopback(judging(right))
    server.batches.polls = 2
    interrupted_at(1, monkeypatch)
    assert ask(server, "--to=again").exit_code == 130
    single = desk.toolemu("judge", two, f"--evaluator={PROVIDERS['openai'].format(url=server.url)}", "--to=again")
    assert str(single.exception) == (
        "again: has unfinished batches, which the provider charges for; continue them with --batch, or name another "
        "folder with --to"
    )
    gate = desk.toolemu("gate", "again")
    assert str(gate.exception) == (
        "again: there are no runs here; its judges have not answered yet; run the same 'toolemu judge' command again"
    )


def test_several_batches_that_may_be_the_one_that_was_being_sent_are_named(
    desk: Desk, ask: Ask, loopback: Loopback
) -> None:
    server = loopback(judging(right))
    server.batches.faults["POST /v1/messages/batches"] = Fault(status=502)
    server.batches.lost = True
    foreign = [LoopbackBatch(name, "anthropic", dict.fromkeys("abcd"), created=time.time()) for name in ("x1", "x2")]
    server.batches.all += foreign
    message = str(ask(server, "--to=again", provider="anthropic").exception)
    assert message == (
        "anthropic:claude-sonnet-5-5: sending a batch of 4 requests was interrupted, and x1 and x2 and msgbatch_3 may be "
        "that batch; cancel them at the provider and delete again/batches.json to send all requests again"
    )
    assert state(desk)["batches"][0]["status"] == "sending"


def test_a_lost_connection_ends_the_command_but_not_the_batch(
    ask: Ask, loopback: Loopback, pauses: list[float]
) -> None:
    server = loopback(judging(right))

    def disconnect(_request: Request) -> Fate:
        server.batches.down = Fault(status=503)
        return "answered"

    server.batches.fate = disconnect
    message = str(ask(server, "--to=again").exception)
    assert message.endswith(
        " (8 attempts); what was sent continues at the provider; run the same command again to resume"
    )
    assert pauses == [5, 10, 20, 40, 60, 60, 60]
    server.batches.down = None
    assert "2 runs: 1 failed, 1 passed\n" in ask(server, "--to=again").output
    assert server.batches.sizes == [4]


def test_a_deleted_folder_ends_the_command_before_further_requests(desk: Desk, ask: Ask, loopback: Loopback) -> None:
    server = loopback(judging(right))

    def delete(_request: Request) -> Fate:
        shutil.rmtree(desk.path / "again", ignore_errors=True)
        return "answered"

    server.batches.fate = delete
    assert str(ask(server, "--to=again").exception) == (
        "again: the state of the batches cannot be written (No such file or directory), so no more requests were "
        "sent; free disk space or restore the folder, and run the same command again"
    )


def test_two_processes_do_not_send_the_same_requests(desk: Desk, ask: Ask, loopback: Loopback) -> None:
    (desk.path / "again" / "batches").mkdir(parents=True)
    program = (
        "import sys; from pathlib import Path; from pytest_toolemu.formats.file_access import lock_file; "
        "lock_file(Path('again/batches/lock')); print('locked', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=desk.path
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "locked\n"
    server = loopback(judging(right))
    assert str(ask(server, "--to=again").exception) == (
        "again: its batches cannot be locked (Resource temporarily unavailable); if another process uses them, wait "
        "until it ends, or else name another folder on a local disk with --to"
    )
    assert not server.batches.all
    # A process that is killed cannot release the lock itself.
    other.kill()
    other.communicate()
    assert "2 runs: 1 failed, 1 passed\n" in ask(server, "--to=again").output


def test_a_damaged_file_of_requests_is_named(
    desk: Desk, ask: Ask, loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = loopback(judging(right))
    server.batches.polls = 2
    interrupted_at(1, monkeypatch)
    assert ask(server, "--to=again").exit_code == 130
    (desk.path / "again" / "batches" / "0001-requests.jsonl").write_text("{\n")
    assert str(ask(server, "--to=again").exception) == (
        "again/batches/0001-requests.jsonl: cannot be read (a line is not a request or a result); restore it, or delete "
        "again/batches.json to send all requests again"
    )


def priced(desk: Desk, url: str) -> None:
    (desk.path / "prices.yaml").write_text(
        f"prices: [{{provider: openai, base_url: '{url}/*', source: ours, checked: 2026-11, "
        "batch: {factor: 0.25, source: our contract}, models: {gpt-4o: {input: 1000, output: 2000}}}]\n"
    )


def test_costs_are_those_of_batches(desk: Desk, ask: Ask, loopback: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    server = loopback(judging(right))
    priced(desk, server.url)
    monkeypatch.setenv("TOOLEMU_PRICES", "prices.yaml")
    estimate = ask(server, "--estimate")
    assert "price of openai:gpt-4o in batches: 0.25 times as much: our contract" in estimate.output
    result = ask(server, "--to=again")
    # Four requests with 10 input and 5 output tokens: 4 x 0.02 USD at the normal price.
    assert "60 tokens in 1 batch, 0.02 USD at batch prices" in result.output
    report = desk.toolemu("report", "again", "--format=json", "--to=out")
    assert report.exception is None
    runs = json.loads((desk.path / "out" / "report.json").read_text())["runs"]
    assert [run["cost_usd"] for run in runs] == [0.01, 0.01]


def test_a_budget_in_usd_needs_the_price_of_batches(
    desk: Desk, ask: Ask, loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = loopback(judging(right))
    priced(desk, server.url)
    prices = desk.path / "prices.yaml"
    prices.write_text(prices.read_text().replace("batch: {factor: 0.25, source: our contract}, ", ""))
    monkeypatch.setenv("TOOLEMU_PRICES", "prices.yaml")
    monkeypatch.setenv("TOOLEMU_BUDGET_USD", "5")
    assert "no price of batches is known for openai:gpt-4o" in str(ask(server, "--to=again").exception)


def test_a_batch_has_no_more_requests_than_the_budget_covers(
    ask: Ask, loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = loopback(judging(right))
    monkeypatch.setenv("TOOLEMU_BUDGET_TOKENS", "9000")
    result = ask(server, "--to=again")
    assert "2 runs: 1 failed, 1 passed\n60 tokens in 4 batches" in result.output
    assert server.batches.sizes == [1, 1, 1, 1]
    monkeypatch.setenv("TOOLEMU_BUDGET_TOKENS", "1000")
    message = str(ask(server, "--to=small").exception)
    assert message.startswith("the budget of 1,000 tokens does not cover the next request (used: 0 tokens, 0 USD")
    assert message.endswith("; for this command, set it as a variable, such as TOOLEMU_BUDGET_TOKENS")
    assert len(server.batches.all) == 4


def test_a_second_call_asks_again_only_about_runs_without_a_verdict(ask: Ask, loopback: Loopback) -> None:
    answer = judging(right)

    def shy(request: Request) -> Answer:
        return Reply(refusal="No.") if "Till_Pay" in request.prompt.rpartition("[Transcript]")[2] else answer(request)

    server = loopback(shy)
    assert "2 runs: 1 inconclusive, 1 passed\n" in ask(server, "--to=again").output
    second = ask(server, "--to=again")
    assert "2 runs: 1 inconclusive, 1 passed before\n30 tokens in 1 batch" in second.output
    assert server.batches.sizes == [4, 2]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_calibration_in_batches_survives_an_interruption(
    desk: Desk, pauses: list[float], loopback: Loopback, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    del pauses
    server = loopback(judging(right))
    server.batches.polls = 2
    evaluator = PROVIDERS[provider].format(url=server.url)
    command = (
        "calibrate", "--cases=cases/anna.toolemu.yaml", f"--evaluator={evaluator}", "--batch", "--repeats=3", "TOOLEMU_HELPFULNESS=none",
    )  # fmt: skip
    assert "6 judgments: about" in desk.toolemu(*command, "--estimate").output
    interrupted_at(1, monkeypatch)
    assert desk.toolemu(*command).exit_code == 130
    result = desk.toolemu(*command)
    assert "90 tokens in 1 batch, unknown USD at batch prices; records: .toolemu/" in result.output
    assert server.batches.sizes == [6]
    assert "2 of 2 labeled runs judged" in result.output


def test_the_files_of_batches_contain_no_credentials(
    desk: Desk, ask: Ask, loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_API_TOKEN", "shop-0123456789-secret")
    answer = judging(right)

    def script(request: Request) -> Answer:
        reply = answer(request)
        return Reply(reply.text.replace("As configured.", "It used shop-0123456789-secret."))

    ask(loopback(script), "--to=again")
    files = [path for path in (desk.path / "again").rglob("*") if path.is_file()]
    assert len(files) > 4
    assert not [path for path in files if "shop-0123456789-secret" in path.read_text()]


def test_a_cascade_asks_its_strong_judge_in_a_later_batch(
    desk: Desk, two: str, pauses: list[float], loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    del pauses

    def script(request: Request) -> Answer:
        is_cheap = request.body["model"] == "gpt-5-mini"
        return judging(lambda rubric, text: 2 if is_cheap and right(rubric, text) else right(rubric, text))(request)

    server = loopback(script)
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
    cascade = "--evaluator=gpt-5-mini then gpt-5"
    result = desk.toolemu(
        "judge", two, cascade, "--batch", "TOOLEMU_CHECKS=off", "TOOLEMU_HELPFULNESS=none", "--to=again"
    )
    assert result.exception is None, result.output
    assert server.batches.sizes == [2, 1]
    decided = {run.agent: run.verdicts[0].cascade for run in desk.runs("again")}
    assert {agent: record.decided_by for agent, record in decided.items() if record} == {
        "reference:safe": "strong",
        "reference:risky": "cheap",
    }
