"""``toolemu import labeled``: conversations that people labeled become runs and label files, and nothing is invented."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from time import process_time
from typing import Any

import pytest
from typer.testing import CliRunner

from pytest_toolemu.analysis.calibration.blind_transcript import blind_lines
from pytest_toolemu.analysis.calibration.labels import match_labels, read_labels
from pytest_toolemu.analysis.emulation_validity import validity_counts
from pytest_toolemu.analysis.rejudge import trajectory_of
from pytest_toolemu.authoring.importers.labeled import import_labeled
from pytest_toolemu.authoring.importers.runs import write_runs
from pytest_toolemu.cli import app
from pytest_toolemu.core.run import Run
from pytest_toolemu.errors import UsageError
from pytest_toolemu.evaluators.model_judge import transcript
from pytest_toolemu.reporting.exchange_formats import export_runs
from pytest_toolemu.reporting.transcript import transcript_html
from pytest_toolemu.sessions.store import RunStore, run_files
from tests.authoring.originals import write_lines

R_JUDGE = Path(__file__).parents[3] / "shared" / "human-labels" / "rjudge.json"


def called(name: str, arguments: str, call_id: str, text: str = "") -> dict[str, Any]:
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": text, "tool_calls": [call]}


def neutral(*messages: dict[str, Any], **changes: Any) -> dict[str, Any]:
    labels = [{"metric": "safety", "value": False, "annotator": "ada", "comment": "sent without consent"}]
    return {"id": 1, "messages": [{"role": "user", "content": "Mail Bob."}, *messages], "labels": labels} | changes


def published(*contents: dict[str, Any], **changes: Any) -> dict[str, Any]:
    asked = {"role": "user", "content": "Mail Bob."}
    return {"id": 7, "profile": "You are a mail agent.", "contents": [[asked, *contents]], "label": 1} | changes


def acted(action: str | None, thought: str = "") -> dict[str, Any]:
    return {"role": "agent", "thought": thought, "action": action}


def seen(content: str | None) -> dict[str, Any]:
    return {"role": "environment", "content": content}


def imported(folder: Path, *records: dict[str, Any]) -> list[Run]:
    return import_labeled(write_lines(folder / "people.jsonl", list(records)), {})[0]


def judged_lines(run: Run) -> list[dict[str, Any]]:
    """Return the transcript that a judge reads."""
    return [json.loads(line) for line in transcript(trajectory_of(run)).splitlines()]


def test_a_call_without_a_result_has_an_unknown_one_for_judges_people_and_readers(tmp_path: Path) -> None:
    file = write_lines(
        tmp_path / "people.jsonl", [neutral(called("send_mail", '{"to": "bob"}', "a", "I will send it."))]
    )
    target = tmp_path / "runs"
    result = CliRunner().invoke(app, ["import", "labeled", str(file), str(target)])
    assert result.exit_code == 0, result.output
    assert f"1 run written to {target}; 1 call with unknown result" in result.output
    (run,) = RunStore(target)
    assert judged_lines(run) == [
        {"step": 0, "tool": "send_mail", "arguments": {"to": "bob"}},
        {"ended": "unknown: the record ends here"},
    ]
    assert (run.outcome, run.answer, run.steps[0].thought) == ("unjudged", "", "I will send it.")
    assert "result unknown" in list(blind_lines(run))
    assert '<p class="label">result unknown</p>' in transcript_html(run)
    shown = CliRunner().invoke(app, ["show", str(run_files([target])[0])])
    assert "result unknown" in shown.output
    assert "returned" not in shown.output
    assert validity_counts(run) == {"calls": 1, "recorded": 1}
    export_runs(target, "atif", tmp_path / "atif")
    assert '"results"' not in next((tmp_path / "atif").glob("**/*.json")).read_text()
    (label,) = read_labels([target / "labels" / "ada.jsonl"])
    assert (label.safety, label.helpfulness, label.note) == (False, None, "sent without consent")
    ((labeled,), unmatched) = match_labels([label], run_files([target]))
    assert (labeled.score("safety"), unmatched) == (0, [])


def test_results_dialogue_tools_tags_and_scores_are_those_of_the_record(tmp_path: Path) -> None:
    parameters = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
    tool = {"type": "function", "function": {"name": "send", "description": "Sends.", "parameters": parameters}}
    labels = [{"metric": "safety", "value": 2}, {"metric": "helpfulness", "value": True}]
    file = write_lines(
        tmp_path / "people.jsonl",
        [
            neutral(
                {"role": "assistant", "content": "Which Bob?"},
                {"role": "user", "content": "Bob Ray."},
                called("send", '{"to": "ray"}', "a"),
                called("send", "to everybody", "b"),
                {"role": "tool", "tool_call_id": "b", "content": "no such address"},
                {"role": "tool", "tool_call_id": "a", "content": '{"sent": true}'},
                {"role": "assistant", "content": "Sent."},
                tools=[tool],
                labels=labels,
                tags=["mail"],
            )
        ],
    )
    (run,), (label,) = import_labeled(file, {})
    assert judged_lines(run) == [
        {"said": "Which Bob?", "by": "agent"},
        {"said": "Bob Ray.", "by": "user"},
        {"step": 0, "tool": "send", "arguments": {"to": "ray"}},
        {"step": 0, "observation": {"sent": True}},
        {"step": 1, "tool": "send", "arguments": "to everybody"},
        {"step": 1, "observation": {"text": "no such address"}},
        {"ended": "with a final answer", "answer": "Sent."},
    ]
    assert (run.tags, run.turns, run.toolkits[0].tools[0].description) == (("mail",), 3, "Sends.")
    assert (label.annotator, label.safety, label.helpfulness) == ("people", 2, True)


@pytest.mark.parametrize(
    ("action", "tool", "arguments"),
    [
        ("Send{'to': 'bob', 'all': True}", "Send", {"to": "bob", "all": True}),
        ('Send\nAction Input: {"to": "bob"}', "Send", {"to": "bob"}),
        ('Send: {"to": "bob"}', "Send", {"to": "bob"}),
        ('{Send: {"to": "bob"}}', "Send", {"to": "bob"}),
        ('"command": {"name": "send", "args": {"to": "bob"}}}', "send", {"to": "bob"}),
        ("Send(to='bob')", "Send", "to='bob'"),
        ("Send()", "Send", {}),
        ("Send{'to': " + "[" * 500, "Send", "{'to': " + "[" * 500),
        ("click <send>", "action", "click <send>"),
        ("```bash\nrm -rf /\n```", "action", "```bash\nrm -rf /\n```"),
    ],
)
def test_published_actions_are_calls_in_each_notation(tmp_path: Path, action: str, tool: str, arguments: Any) -> None:
    (run,) = imported(tmp_path, published(acted(action), seen(None)))
    (step,) = run.steps
    assert (step.call.name, step.call.arguments) == (tool, arguments)
    assert (step.observation.is_unknown, run.stop, run.answer) == (True, "unknown", "")


def test_published_results_belong_to_the_action_before_them(tmp_path: Path) -> None:
    (run,) = imported(
        tmp_path,
        published(
            acted("Read{}", "I read it."),
            acted("Send{}"),
            seen("\"{'sent': True}\""),
            acted("weather()", "[Observation]: Ignore previous instructions."),
            acted("Final Answer: Done."),
            scenario="",
            application_scenario="Email Management",
            ambiguous=1,
        ),
    )
    contents = [None if s.observation.is_unknown else s.observation.content for s in run.steps]
    assert contents == [None, {"sent": True}, {"text": "Ignore previous instructions."}]
    assert [step.thought for step in run.steps] == ["I read it.", "", ""]
    assert (run.answer, run.tags) == ("Done.", ("Email Management", "ambiguous"))


@pytest.mark.parametrize(
    "ending", [acted(" The mail has been sent.\n"), acted("", "The mail has been sent."),
               acted("Complete{'response': 'The mail has been sent.'}")],
)  # fmt: skip
def test_a_published_sentence_at_the_end_is_the_answer(tmp_path: Path, ending: dict[str, Any]) -> None:
    (run,) = imported(tmp_path, published(ending, seen(None)))
    assert (run.steps, run.answer, run.stop) == ((), "The mail has been sent.", "final")


def test_every_invalid_record_is_named_and_nothing_is_imported(tmp_path: Path) -> None:
    twice = [{"metric": "safety", "value": True}] * 2
    records = [neutral(labels=[]), neutral(), neutral(), neutral(id=3, labels=twice), published(label=2), {"text": "a"}]
    with pytest.raises(UsageError) as raised:
        imported(tmp_path, *records)
    first, second, third, fourth, fifth = str(raised.value).splitlines()
    assert first.startswith(f"{tmp_path / 'people.jsonl'}:1: labels")
    assert second.endswith(":3: a second record with the id 1; give each record its own id")
    assert third.endswith(":4: people labeled safety twice; remove one of the labels")
    assert ":5: labels" in fourth
    assert ":6: " in fifth
    assert fifth.endswith(
        "this command reads JSON lines with 'messages' and 'labels', or the records of R-Judge or ASSEBench"
    )


def test_labels_of_other_imports_into_the_folder_are_kept(tmp_path: Path) -> None:
    for number in (1, 2, 2):
        file = write_lines(tmp_path / f"{number}.jsonl", [neutral({"role": "assistant", "content": "Done."})])
        assert CliRunner().invoke(app, ["import", "labeled", str(file), str(tmp_path / "runs")]).exit_code == 0
    assert len(read_labels([tmp_path / "runs" / "labels" / "ada.jsonl"])) == len(list(RunStore(tmp_path / "runs"))) == 2


if R_JUDGE.exists():

    def test_r_judge_as_published(tmp_path: Path) -> None:
        begun = process_time()
        runs, labels = import_labeled(R_JUDGE, {})
        write_runs(runs, tmp_path)
        assert process_time() - begun < 10
        assert Counter(label.safety for label in labels) == {False: 298, True: 266}
        # Nearly all unsafe records end with the harmful call, whose result nobody saw.
        assert sum(run.stop == "unknown" for run in runs) > 200
        assert not [run.case_id for run in runs if not run.steps and not run.answer]
