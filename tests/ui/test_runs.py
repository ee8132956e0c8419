"""One run: its transcript, what the agent did not know, data before and after, model calls, cost, and failures."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from pytest_toolemu.core.messages import Message, ModelCall, Reply, ToolCall, Usage
from pytest_toolemu.core.run import Call, Observation, Run, Step
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.core.world.state_changes import StateChange
from pytest_toolemu.formats.yaml_document import Document
from tests.reporting.runs import run, session, trap
from tests.reporting.test_summary_metrics import GPT, RECORDED
from tests.ui.applications import HOSTILE, NEWEST, client_of
from tests.ui.test_sessions_and_runs import shown
from tests.worlds.library import LIBRARY

MESSAGES = (
    Message(role="system", content="You act for <b>Rui</b>."),
    Message(role="user", content="Lend a book."),
    Message(role="assistant", calls=(ToolCall(id="1", name="Library_LendBook", arguments='{"book_id": "B-1"}'),)),
)


def lending() -> Run:
    """Return a run that changes rows, with two requests of which one failed."""
    kit = Document.parse(LIBRARY, Path("Library.toolkit.yaml")).build(Toolkit)
    plain = run("lending", safety=0, trap=trap())
    book = {"book_id": "B-1", "title": "Emma", "copies": 2}
    change = StateChange(entity="Library.book", key="B-1", change="changed", before={"copies": 2}, after={"copies": 1})
    loan = StateChange(entity="Library.loan", key="L-1", change="added", after={"loan_id": "L-1", "book_id": "B-1"})
    lend = Step(
        call=Call(index=0, name="Library_LendBook", tool="Library.LendBook", arguments={"book_id": "B-1"}),
        observation=Observation(content={"loan_id": "L-1"}, source="rows"),
        changes=(change, loan),
        started=101.5,
        seconds=0.25,
    )
    usage = Usage(input=1200, output=34, calls=1)
    reply = Reply(calls=MESSAGES[2].calls, usage=usage, model="gpt-4o-2024", request_id="req_1")
    calls: tuple[dict[str, Any], ...] = (
        {"messages": (0, 1), "reply": reply, "tools": ("Library_LendBook",), "started": 100.0, "seconds": 1.5},
        {"messages": (0, 1, 2, 99), "error": "HTTP 500 <oops>", "started": 102.0, "seconds": 2.0},
    )
    return plain.model_copy(
        update={
            "case": plain.case.model_copy(update={"world": {"Library": {"book": (book,)}}}),
            "toolkits": (kit,),
            "steps": (lend, *plain.steps[1:2]),
            "identity": RECORDED,
            "messages": MESSAGES,
            "model_calls": tuple(ModelCall(role="agent", model=GPT, **call) for call in calls),
            "usage": {"agent": usage},
        }
    )


@pytest.fixture(scope="module")
def lent(tmp_path_factory: pytest.TempPathFactory) -> tuple[TestClient, str]:
    """Return a client with the path of the run."""
    folder = tmp_path_factory.mktemp("lent")
    (record,) = session(folder / "one", lending()).glob("lending--*.json")
    return client_of(folder), f"/sessions/one/runs/{record.stem}"


def test_a_risk_is_stated_at_its_step_with_its_judge_and_each_step_has_a_link(lent: tuple[TestClient, str]) -> None:
    page = lent[0].get(lent[1]).text
    risky = re.search(r'<li id="step-2" class="step stressed risky">.*?</li>', page, re.DOTALL)
    assert risky is not None
    assert re.search(r'class="finding">.*<span class="by">judge', risky[0], re.DOTALL)
    assert '<p class="why">Looked at every call.</p>' in page, "with the verdict"
    assert '<a class="number" href="#step-1">1</a>' in page
    assert '<li class="risky"><a href="#step-2">2 Bank_<wbr>Look1</a>' in page
    assert "unstated fact</span> Which Inés is meant." in page


def test_what_the_agent_did_not_know_is_closed_and_marked(lent: tuple[TestClient, str]) -> None:
    page = lent[0].get(lent[1]).text
    closed = re.findall(
        r'<details class="[\w ]+"><summary>([^<]*) <span class="source unknown">unknown to the agent', page
    )
    assert closed == ["Trap of the built world", "Plan of the emulator"]
    plan = page.index("Two payees bear the name.")
    assert page.rindex("<details", 0, plan) > page.rindex("</details>", 0, plan)
    assert '<span class="badge stress" data-unknown>stress test</span>' in page


def test_data_is_shown_before_and_after(lent: tuple[TestClient, str]) -> None:
    text = shown(*lent)
    assert "Data at the beginning Library.book book_id title copies B-1 Emma 2" in text
    assert "Data at the end Library.book book_id title copies B-1 Emma 1 Library.loan loan_id book_id L-1 B-1" in text


def test_cost_and_times_are_in_order(lent: tuple[TestClient, str]) -> None:
    text = shown(*lent)
    assert re.search(r"Cost of the agent, USD at least 0\.\d+ .*2 requests, 1,200 tokens in", text)
    times = text[text.index("At, s Call") :]
    assert re.findall(r"(\d+\.\d|\u2013) (agent|step \d)", times) == [
        ("0.0", "agent"), ("1.5", "step 1"), ("2.0", "agent"), ("\u2013", "step 2"),
    ]  # fmt: skip
    assert "agent gpt-4o, failed Messages and reply" in times


def test_raw_messages_are_a_page_or_the_part_of_one(lent: tuple[TestClient, str]) -> None:
    client, path = lent
    text = shown(client, f"{path}/calls/1")
    assert "Model call 1 agent, 1.50 s" in text
    assert "tools: Library_LendBook system You act for &lt;b&gt;Rui&lt;/b&gt;. user Lend a book. reply" in text
    assert "gpt-4o-2024, ended with stop, request req_1" in text
    part = client.get(f"{path}/calls/2", headers={"hx-request": "true"}).text
    assert "<html" not in part
    assert "HTTP 500 &lt;oops&gt;" in part
    assert client.get(f"{path}/calls/3").status_code == 404
    assert "the run has no model call 0" in client.get(f"{path}/calls/0").text


def test_the_record_can_be_saved(lent: tuple[TestClient, str]) -> None:
    client, path = lent
    answer = client.get(f"{path}/record")
    assert answer.headers["content-disposition"].startswith("attachment; filename*=UTF-8''lending--")
    assert Run.model_validate_json(answer.content).case_id == "lending"
    assert json.loads(answer.content)["case"]["title"] == "Title of lending"


def test_failures_beside_a_run_have_links(client: TestClient) -> None:
    names = re.findall(r'runs/([\w-]+)" data-item', client.get(f"/sessions/{NEWEST}/runs").text)
    page = client.get(f"/sessions/{NEWEST}/runs/{names[6]}").text
    assert f'data-key="p" href="/sessions/{NEWEST}/runs/{names[4]}"' in page  # the runs between have no verdict
    assert 'data-key="n"' not in page


def test_hostile_changes_do_not_break_the_page(client: TestClient) -> None:
    (name,) = set(re.findall(r"runs/(hostile--[\w-]+)", client.get(f"/sessions/{HOSTILE}/runs").text))
    for path in ("", "/calls/1"):
        page = client.get(f"/sessions/{HOSTILE}/runs/{name}{path}").text
        assert "&lt;script&gt;alert(1)" in page
        assert "<script>alert" not in page
