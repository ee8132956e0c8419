"""``toolemu generate toolkits`` drafts toolkits in stages, and keeps every stage and every draft."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pytest_toolemu.authoring.drafts.check_draft import UsedNames
from pytest_toolemu.authoring.drafts.draft_store import DraftStore, ReviewDecision
from pytest_toolemu.authoring.drafts.plans import CATEGORIES, ToolkitRequest
from pytest_toolemu.authoring.drafts.toolkits import ProposedToolkit, toolkit_text
from pytest_toolemu.authoring.lint.file_rules import outcome_kind
from pytest_toolemu.core.case_loading import load_toolkit
from pytest_toolemu.errors import NotRunError, UsageError
from pytest_toolemu.formats.yaml_document import Document
from tests.authoring.generation.scripts import (
    author,
    conversation,
    names,
    names_stage,
    notes,
    project,
    prompts,
    run,
    specification,
)
from tests.loopback.fixtures import Loopback
from tests.loopback.records import Reply

COMMAND = "generate toolkits"
STACKS = (1, "StackDesk", "Lend the books of a library and keep its shelves.")
FERRY = (2, "FerryDeck", "Book and change crossings of a ferry line for cars and people.")

WAVES = "Carry cars and walkers over the strait between two harbors at high tide"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return project(tmp_path, monkeypatch)


def test_a_toolkit_is_drafted_in_three_stages(folder: Path, loopback: Loopback) -> None:
    server = author(loopback, names(STACKS), notes(), specification())
    result = run(server, COMMAND, "--count=1", "--category=culture")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "drafts/toolkits/StackDesk.toolkit.yaml: ready for review",
        "1 draft written, 0 already existed; 3,000 input and 600 output tokens",
    ]
    kit = load_toolkit(folder / "drafts/toolkits/StackDesk.toolkit.yaml")
    assert (kit.name, kit.category, kit.description) == ("StackDesk", "culture", "Lend the books of a library.")
    assert kit.entities.keys() == {"booking"}
    # A risk begins with its kind, so nobody has to sort raw text.
    assert [outcome_kind(risk) for risk in kit.risks] == ["financial_loss"]
    (draft,) = DraftStore(folder / "drafts").drafts()
    assert draft.record.status == "ready"
    assert draft.record.model == "openai:gpt-4o"
    assert [(folder / "drafts" / stage).is_file() for stage in draft.record.stages] == [True] * 3


def test_a_repeated_command_sends_nothing_and_a_larger_count_adds_drafts(folder: Path, loopback: Loopback) -> None:
    server = author(loopback, names(STACKS), notes(), specification(), names(FERRY), notes(), specification(WAVES))
    run(server, COMMAND, "--count=1")
    text = (folder / "drafts/toolkits/StackDesk.toolkit.yaml").read_bytes()
    again = run(server, COMMAND, "--count=1")
    assert again.stdout == "0 drafts written, 1 already existed; 0 input and 0 output tokens\n"
    assert len(prompts(server)) == 3
    more = run(server, COMMAND, "--count=2")
    assert more.stdout.splitlines()[-1].startswith("1 draft written, 1 already existed; ")
    assert '"StackDesk"' in conversation(prompts(server)[3])
    assert (folder / "drafts/toolkits/StackDesk.toolkit.yaml").read_bytes() == text


def test_an_interrupted_command_continues_after_its_last_stage(
    folder: Path, loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages, finished = [names(STACKS), notes(), specification()], 2
    monkeypatch.setenv("TOOLEMU_BUDGET_TOKENS", str(1200 * finished))
    first = run(author(loopback, *stages), COMMAND, "--count=1")
    assert isinstance(first.exception, NotRunError)
    assert "finished stages are stored in drafts; run the same command again to continue" in str(first.exception)
    monkeypatch.delenv("TOOLEMU_BUDGET_TOKENS")
    server = author(loopback, *stages[finished:])
    assert run(server, COMMAND, "--count=1").exit_code == 0
    assert len(prompts(server)) == 3 - finished
    assert load_toolkit(folder / "drafts/toolkits/StackDesk.toolkit.yaml").risks


def test_a_person_may_edit_a_stage(folder: Path, loopback: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLEMU_BUDGET_TOKENS", "1200")
    run(author(loopback, names(STACKS)), COMMAND, "--count=1")
    monkeypatch.delenv("TOOLEMU_BUDGET_TOKENS")
    (file,) = (folder / "drafts/stages").iterdir()
    file.write_text(file.read_text().replace("StackDesk", "../../evil"), encoding="utf-8")
    refused = run(author(loopback), COMMAND, "--count=1")
    assert isinstance(refused.exception, UsageError)
    assert str(refused.exception).startswith(f"drafts/stages/{file.name}: name: ")
    file.write_text(file.read_text().replace("../../evil", "ShelfDesk"), encoding="utf-8")
    assert run(author(loopback, notes(), specification()), COMMAND, "--count=1").exit_code == 0
    assert (folder / "drafts/toolkits/ShelfDesk.toolkit.yaml").is_file()


@pytest.mark.parametrize(
    ("asked", "present", "absent"),
    [
        (ToolkitRequest(1), "Consequential:", "Covered Categories"),
        (ToolkitRequest(1, risk_oriented=False), "Useful:", "Consequential:"),
        (ToolkitRequest(1, brainstorm=True), "Covered Categories", "category: "),
        (ToolkitRequest(1, risk_oriented=False, brainstorm=True), "Covered Categories", "risk types: "),
        (ToolkitRequest(1, topic="tide tables"), '"tide tables"', "Covered Categories"),
        (ToolkitRequest(1, categories=("whaling",)), "category: whaling", "category: banking"),
    ],
)
def test_every_option_changes_the_request(asked: ToolkitRequest, present: str, absent: str) -> None:
    stage = names_stage(asked, UsedNames({}, ("banking",)))
    text = "\n".join(message.content for message in stage.messages)
    assert present in text
    assert absent not in text


@pytest.mark.parametrize(
    ("proposal", "problem"),
    [
        ((1, "../../etc/Passwd", "Read."), '"../../etc/Passwd" cannot be the name of a toolkit'),
        ((1, "StackToolkit", "Lend books."), "without Toolkit, Tool, or API"),
        ((1, "BankManagerPro", "Lend books."), 'or is part of, the used name "BankManager"'),
        ((1, "TillDesk", "Manage the accounts of a small bank."), "is nearly that of another toolkit"),
        (FERRY, "write exactly one proposal for each of 1"),
    ],
)
def test_a_name_that_cannot_be_used_is_refused(proposal: tuple[int, str, str], problem: str) -> None:
    used = UsedNames({"BankManager": "Manage the accounts of a small bank!"})
    with pytest.raises(ValueError, match=re.escape(problem)):
        names_stage(ToolkitRequest(1), used).parse(names(proposal))


def test_a_domain_is_brainstormed_once() -> None:
    asked = ToolkitRequest(2, brainstorm=True)
    parse = names_stage(asked, UsedNames({}, ("field 1",))).parse
    with pytest.raises(ValueError, match='the category "field 1" is covered; choose another domain'):
        parse(names(STACKS, FERRY))


def test_the_plan_is_even_and_does_not_depend_on_the_count() -> None:
    plans = ToolkitRequest(2 * len(CATEGORIES), seed=3).planned
    assert plans[:5] == ToolkitRequest(5, seed=3).planned
    assert set(Counter(plan.category for plan in plans).values()) == {2}
    firsts = Counter(plan.risks[0] for plan in plans)
    assert max(firsts.values()) - min(firsts.values()) <= 1
    assert all(len(set(plan.risks)) == 3 for plan in plans)


def test_a_draft_that_fails_its_checks_is_corrected(folder: Path, loopback: Loopback) -> None:
    wrong = specification(entity="bookin")
    server = author(loopback, names(STACKS), notes(), wrong, specification())
    result = run(server, COMMAND, "--count=1")
    assert (
        result.stdout.splitlines()[0] == "drafts/toolkits/StackDesk.toolkit.yaml: ready for review after 1 correction"
    )
    assert "the toolkit has no entity 'bookin'; did you mean 'booking'?" in prompts(server)[3].messages[-1].text
    assert load_toolkit(folder / "drafts/toolkits/StackDesk.toolkit.yaml").entities


def test_after_two_corrections_a_draft_needs_work(folder: Path, loopback: Loopback) -> None:
    wrong = specification(entity="bookin")
    server = author(loopback, names(STACKS), notes(), wrong, wrong, wrong)
    result = run(server, COMMAND, "--count=1")
    assert result.exit_code == 0, result.output
    assert "StackDesk.toolkit.yaml: needs work (" in result.stdout
    assert "the toolkit has no entity 'bookin'" in result.stdout
    (draft,) = DraftStore(folder / "drafts").drafts()
    assert (draft.record.status, draft.record.revisions) == ("needs_work", 2)
    assert len(prompts(server)) == 5


def test_a_toolkit_that_cannot_be_drafted_stops_no_other_one(folder: Path, loopback: Loopback) -> None:
    kites, plain = (3, "KiteLine", "Rent out kites on a beach."), notes(risks=False)
    refusal = Reply(refusal="I cannot help with that.")
    server = author(loopback, names(STACKS, FERRY, kites), refusal, plain, specification(), plain, specification(WAVES))
    result = run(server, COMMAND, "--count=3", "--concurrency=1", "--focus=standard")
    assert result.exit_code == 1
    assert "toolkit 1 (StackDesk) was not drafted: refused: I cannot help with that." in result.stderr
    drafted = sorted((folder / "drafts/toolkits").glob("*.yaml"))
    assert [path.name for path in drafted] == ["FerryDeck.toolkit.yaml", "KiteLine.toolkit.yaml"]
    assert [load_toolkit(path).risks for path in drafted] == [(), ()]


def test_a_rejected_toolkit_is_not_drafted_again(folder: Path, loopback: Loopback) -> None:
    run(author(loopback, names(STACKS), notes(), specification()), COMMAND, "--count=1")
    store = DraftStore(folder / "drafts")
    (draft,) = store.drafts()
    store.reject(draft, ReviewDecision(reviewer="A", date=datetime(2026, 5, 5, tzinfo=UTC), reason="not realistic"))
    again = run(author(loopback), COMMAND, "--count=1")
    assert again.stdout.startswith("0 drafts written, 1 already existed")
    server = author(
        loopback,
        names((1, "StackDesk", "Keep a list of rare stamps.")),
        names((1, *FERRY[1:])),
        notes(),
        specification(),
        specification(),
        specification(),
    )
    result = run(server, COMMAND, "--count=1", "--seed=7")
    assert 'contains, or is part of, the used name "StackDesk"' in prompts(server)[1].messages[-1].text
    # Neither under another name.
    assert ', which a reviewer rejected: "not realistic"; write about a different situation' in result.stdout


def test_an_estimate_sends_and_writes_nothing(folder: Path, loopback: Loopback) -> None:
    server = author(loopback)
    result = run(server, COMMAND, "--count=9", "--estimate")
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[1].startswith("author openai:gpt-4o 20 (20 to 60) ")  # 2 of names, 9 of each other stage
    assert lines[2].startswith("9 toolkits: about ")
    assert lines[-1] == "Nothing was sent."
    assert server.requests == ()
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("folder")
def test_cassettes_replace_the_model(loopback: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLEMU_RECORD", "new")
    monkeypatch.setenv("TOOLEMU_REPLAY", "tapes")
    server = author(loopback, names(STACKS), notes(), specification())
    assert run(server, COMMAND, "--count=1").exit_code == 0
    monkeypatch.delenv("TOOLEMU_RECORD")
    monkeypatch.setenv("TOOLEMU_OFFLINE", "1")
    result = run(server, COMMAND, "--count=1", "--into=replayed")
    assert result.exit_code == 0, result.output
    one, other = (tmp_path / each / "toolkits/StackDesk.toolkit.yaml" for each in ("drafts", "replayed"))
    assert one.read_bytes() == other.read_bytes()
    assert len(prompts(server)) == 3


def test_what_cannot_work_is_refused_in_one_sentence(
    folder: Path, loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "file").touch()
    server = author(loopback)
    both = run(server, COMMAND, "--brainstorm", "--category=banking")
    assert str(both.exception) == (
        "--brainstorm lets the model choose, but --category=banking is given; remove one of the two"
    )
    file = run(server, COMMAND, "--into=file")
    assert str(file.exception) == "file: is not a folder, so it cannot hold drafts; name a folder with --into"
    monkeypatch.setenv("TOOLEMU_OFFLINE", "1")
    offline = run(server, COMMAND)
    assert isinstance(offline.exception, UsageError)
    assert "a model needs the network, but --toolemu-offline is set; remove one of the two" in str(offline.exception)
    assert server.requests == ()


def test_tags_and_aliases_in_a_reply_are_text() -> None:
    hostile = "!!python/object/apply:os.system [touch pwned] &a *a"
    kit = specification()
    kit["tools"][0]["description"] = hostile
    proposal = ProposedToolkit(name="StackDesk", title=hostile, category="&a", description="x", users="*a")
    content = Document.parse(toolkit_text(proposal, notes(description=hostile), kit), Path("x")).value
    texts = [content["title"], content["description"], content["tools"][0]["description"], content["category"]]
    assert texts == [hostile, hostile, hostile, "&a"]


def test_reasoning_with_a_fence_does_not_replace_the_answer(folder: Path, loopback: Loopback) -> None:
    early = json.dumps(names((1, "WrongName", "An early idea that was given up.")))
    thought = Reply(f"First idea:\n```json\n{early}\n```\nBetter:\n```json\n{json.dumps(names(STACKS))}\n```")
    server = author(loopback, thought, names(STACKS), notes(), specification())
    assert run(server, COMMAND, "--count=1").exit_code == 0
    assert [path.name for path in (folder / "drafts/toolkits").glob("*.yaml")] == ["StackDesk.toolkit.yaml"]
