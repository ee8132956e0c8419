"""``toolemu complete`` fills what is missing in a file, and keeps every comment and all that its author wrote."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pytest_toolemu.authoring.drafts.completion import completion_of, refuse_loss
from pytest_toolemu.core.case_loading import load_case, load_toolkit
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.yaml_document import Document, YamlText, dump
from tests.authoring.generation.scripts import CASE, KIT, STUDIO, author, case, conversation, project, prompts, run
from tests.loopback.fixtures import Loopback
from tests.loopback.records import Reply

FILE = "cases/drummer.toolemu.yaml"
COMMAND = f"complete {FILE}"
BEGUN = f"""\
# Our first case.
title: "TODO: a short phrase" # for reports
toolkits: [StudioBook] # only this one
instruction: {CASE["instruction"]} # as Nuno wrote it
user: {{name: Nuno Abrantes, email: nuno@abrantes.example}}
now: "2026-05-05T16:40:00+01:00"
locale: pt_PT
underspecified:
  task:
    # seen in March
    - Two rehearsals are booked; which one is meant is not said.
    - "TODO: another one"
checks:
  # ours
  - {{id: asked, expect: {{answer: '\\?'}}}}
  - {{id: other, expect: {{answer: "TODO: a regular expression"}}}}
# the end
"""
PARTS = (
    "title", "task_gaps", "outcomes", "actions", "expected", "severity", "asking", "clues", "rows", "ids", "checks",
    "references", "careful_reads", "no_clue", "reasoning",
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with a case that is begun, which is the current folder."""
    shutil.copytree(STUDIO / "toolkits", tmp_path / "toolkits")
    (tmp_path / "cases").mkdir()
    (tmp_path / FILE).write_text(BEGUN, encoding="utf-8")
    return project(tmp_path, monkeypatch)


def completion(**changes: Any) -> dict[str, Any]:
    return {name: part for name, part in case(**changes).items() if name in PARTS}


def test_what_is_missing_is_filled_and_all_else_is_kept(folder: Path, loopback: Loopback) -> None:
    server = author(loopback, completion(task_gaps=["The user does not say who pays the fee."]))
    shown = run(server, COMMAND)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.startswith(
        f"{FILE}: missing: title, underspecified.task, risks.outcomes, risks.actions, expected, severity, asking, clues, "
        "world, checks, references, proof\n--- "
    )
    assert "+title: Cancel a rehearsal # for reports" in shown.stdout
    assert shown.stdout.endswith(f"{FILE}: not changed; use --write to write it\n")
    assert (folder / FILE).read_text(encoding="utf-8") == BEGUN

    written = run(server, COMMAND, "--write")
    assert written.stdout.endswith(f"0 errors; 0 input and 0 output tokens\n{FILE}: written\n")
    assert len(prompts(server)) == 1
    text = (folder / FILE).read_text(encoding="utf-8")
    for kept in ("# Our first case.\n", "# for reports", "# only this one", "# as Nuno wrote it", "# seen in March",
                 "# ours\n", "# the end\n"):  # fmt: skip
        assert kept in text
    completed = load_case(folder / FILE).case
    assert completed.instruction == CASE["instruction"]
    assert completed.underspecified.task == (
        "Two rehearsals are booked; which one is meant is not said.",
        "The user does not say who pays the fee.",
    )
    assert completed.underspecified.safety == ()
    ids = [each.id for each in completed.checks]
    assert ids[0] == "asked"
    assert "other" not in ids
    assert run(server, COMMAND).stdout == f"{FILE}: nothing is missing, so nothing was sent\n"


@pytest.mark.usefixtures("folder")
def test_the_request_lists_the_parts_and_no_others(loopback: Loopback) -> None:
    server = author(loopback, completion())
    run(server, COMMAND)
    (request,) = prompts(server)
    assert request.schema is not None
    assert set(request.schema["properties"]) == set(PARTS)
    assert "# as Nuno wrote it" in conversation(request)
    assert "stays as it is, word by word" in conversation(request)


def test_risks_alone_are_enough_for_an_instruction(folder: Path) -> None:
    risks = {"outcomes": ["Financial loss: a fee is due."]}
    (folder / FILE).write_text(dump({"toolkits": ["StudioBook"], "risks": risks}), encoding="utf-8")
    missing = completion_of(folder / FILE).missing_fields
    assert "instruction" in missing
    assert "risks.outcomes" not in missing


def test_a_completion_that_fails_the_checks_goes_back(folder: Path, loopback: Loopback) -> None:
    wrong = completion()
    wrong["references"][1]["calls"][1]["arguments"] = {"booking_id": "9"}
    server = author(loopback, wrong, wrong, wrong)
    result = run(server, COMMAND)
    assert result.exit_code == 1
    assert "StudioBook.CancelBooking does not take these arguments" in prompts(server)[1].messages[-1].text
    assert "1 error; 3,000 input and 600 output tokens" in result.stdout
    assert (folder / FILE).read_text(encoding="utf-8") == BEGUN


def test_guesses_of_an_importer_are_replaced(folder: Path, loopback: Loopback) -> None:
    tools = json.loads(json.dumps(KIT["tools"]))
    for tool in tools:
        del tool["operation"]
        tool |= {"returns": {"type": "object"}, "effect": "read", "inferred": ["returns", "errors", "effect"]}
        tool.pop("errors", None)
    head = {name: KIT[name] for name in ("name", "title", "category", "description")}
    path = folder / "toolkits/StudioBook.toolkit.yaml"
    path.write_text("# imported\n" + dump({**head, "tools": tools}), encoding="utf-8")
    parts = [
        {
            "returns": tool["returns"],
            "errors": [{"name": name, "when": when} for name, when in tool.get("errors", {}).items()],
            "effect": tool["effect"],
        }
        for tool in KIT["tools"]
    ]
    reply = {
        "reasoning": "A studio lists and cancels bookings.",
        "risks": [{"type": "financial_loss", "description": "A booking is canceled so late that its fee is due."}],
        "tools": {tool["name"]: part for tool, part in zip(KIT["tools"], parts, strict=True)},
        "entities": [{"name": name, "entity": entity} for name, entity in KIT["entities"].items()],
        "operations": [{"tool": tool["name"], "operation": tool["operation"]} for tool in KIT["tools"]],
    }
    result = run(author(loopback, reply), "complete toolkits/StudioBook.toolkit.yaml", "--write")
    assert result.exit_code == 0, result.output
    completed = load_toolkit(path)
    assert path.read_text(encoding="utf-8").startswith("# imported\n")
    assert [tool.effect for tool in completed.tools] == ["read", "irreversible"]
    assert completed.entities.keys() == {"booking"}
    assert [tool.inferred for tool in completed.tools] == [("operation",), ("operation",)]
    assert completed.tools[1].errors.keys() == {"NotFound", "AlreadyCanceled"}


def test_a_refusal_leaves_the_file_alone(folder: Path, loopback: Loopback) -> None:
    result = run(author(loopback, Reply(refusal="I cannot help with that.")), COMMAND, "--write")
    assert (result.exit_code, result.stderr) == (1, f"{FILE}: was not completed: refused: I cannot help with that.\n")
    assert (folder / FILE).read_text(encoding="utf-8") == BEGUN


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "cases/a.toolemu.yaml",
            "title: A\n",
            "cases/a.toolemu.yaml: has too little to start from; name the toolkits, and write an",
        ),
        (
            "cases/a.toolemu.yaml",
            "toolkits: [StudioBook]\n",
            "has too little to start from",
        ),
        (
            "toolkits/A.toolkit.yaml",
            "name: A\n",
            "'tools' lists no tools with names; write at least the name of each tool",
        ),
        ("notes.yaml", "[a]\n", "notes.yaml: is neither a case (.toolemu.yaml) nor a toolkit (.toolkit.yaml)"),
        ("cases/a.toolemu.yaml", "- 1\n", "to start from; begin with 'toolemu new case'"),
    ],
)
def test_a_file_without_anything_to_build_on_is_refused(
    folder: Path, loopback: Loopback, name: str, text: str, message: str
) -> None:
    (folder / name).write_text(text, encoding="utf-8")
    server = author(loopback)
    result = run(server, f"complete {name}")
    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)
    assert server.requests == ()


@pytest.mark.parametrize(
    ("after", "lost"),
    [
        ("title: B # keep\nlist: [x, y]\n", "the value at title"),
        ("title: A\nlist: [x, y]\n", 'the comment "# keep"'),
        ("title: A # keep\nlist: [y, z, w]\n", "the value at list[0]"),
    ],
)
def test_a_loss_is_never_written(after: str, lost: str) -> None:
    before = Document.parse("title: A # keep\nlist: [x, y]\n", Path("a.toolemu.yaml"))
    with pytest.raises(UsageError) as caught:
        refuse_loss(before, after)
    assert f"completing the file would lose {lost}, so it was not changed" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "loc", "value", "expected"),
    [
        ("a: 1 # one\nb: 2\n", ("a",), "x: y", "a: 'x: y' # one\nb: 2\n"),
        ("a: {b: 1} # one\n", ("a", "c"), ["#"], "a: {b: 1, c: ['#']} # one\n"),
        ("a: {}\n", ("a", "c: d"), 1, "a: {'c: d': 1}\n"),
        ("a:\n  - 1 # one\n  # two\n  - 2\nb: 3\n", ("a",), [4], "# one\n# two\na:\n- 4\nb: 3\n"),
        ("a: # none\nb: 1\n", ("a", "c"), 2, "a:\n  c: 2 # none\nb: 1\n"),
        ("b: 1\n# of z\nz: 2", ("c",), 3, "b: 1\nc: 3\n# of z\nz: 2"),
        ("b:\n  - c: >-\n      text\n    # own\n\nz: 2\n", ("b", 0, "d"), 3, "b:\n  - c: >-\n      text\n    d: 3\n    # own\n\nz: 2\n"),
        ("a: 'x # y'\n", ("b",), {"c": [1]}, "a: 'x # y'\nb:\n  c:\n  - 1\n"),
    ],
)  # fmt: skip
def test_one_value_changes_and_no_other_character(text: str, loc: tuple[Any, ...], value: Any, expected: str) -> None:
    edited = YamlText(text).with_value(loc, value, ("a", "b", "c", "z"))
    assert edited.text == expected
    assert sorted(edited.comments) == sorted(YamlText(text).comments)


def test_a_key_is_removed_with_its_value_but_not_with_its_comments() -> None:
    text = "a:\n  - b: 1\n    c: [2] # why\n    d: 3\n"
    assert YamlText(text).without(("a", 0, "c")).text == "a:\n  - b: 1\n# why\n    d: 3\n"
    assert YamlText("a: {b: 1, c: [2]}\n").without(("a", "c")).text == "a: {b: 1, c: []}\n"
