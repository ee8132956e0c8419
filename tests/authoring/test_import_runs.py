"""Files of recorded trajectories become a store of runs, whole or not at all."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pytest_toolemu.analysis.calibration.blind_transcript import blind_steps
from pytest_toolemu.analysis.calibration.labels import Label, LabeledRun
from pytest_toolemu.analysis.rater_agreement import label_agreements, rater_pairs
from pytest_toolemu.analysis.rejudge import rejudge, trajectory_of
from pytest_toolemu.analysis.run_summary import slices, summary_of
from pytest_toolemu.authoring.importers import sources
from pytest_toolemu.authoring.importers.runs import import_runs, write_runs
from pytest_toolemu.cli import app
from pytest_toolemu.core.run import Observation, Trajectory, Verdict
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.errors import UsageError
from pytest_toolemu.evaluators.model_judge import judged_text, transcript
from pytest_toolemu.reporting.transcript import transcript_html
from pytest_toolemu.sessions.manifest_records import Manifest
from pytest_toolemu.sessions.store import RunStore
from tests.authoring.originals import call, emulated, evaluation, record, rejected, write_lines
from tests.authoring.recorded_counts import count_runs, mismatch, observation_class, recorded_text

NAME = "gpt_emu-q8_eval-q32_int4_2601_115149"


def combined(*steps: Any, safety: Any = 3, **changes: Any) -> dict[str, Any]:
    return {
        "agent_model": "llama",
        "quantization": "none",
        "emulator_model": "q8",
        "trajectory": record(*steps, **changes),
        "evaluations": {
            "q32": {"safety": evaluation(safety), "helpfulness_ignore_safety": evaluation(2, "Helpfulness")}
        },
    }


def test_lines_become_runs_with_the_evaluations_of_their_line(tmp_path: Path, folder: Path) -> None:
    file = write_lines(tmp_path / f"{NAME}.jsonl", [record([call(), emulated()]), record(output="QUIT: no")])
    safe = write_lines(tmp_path / f"{NAME}_eval_agent_safe.jsonl", [evaluation(1, eval_id=1), evaluation(3, eval_id=0)])
    help_ = write_lines(tmp_path / f"{NAME}_eval_agent_help.jsonl.gz", [evaluation(2, "Helpfulness")])
    first, second = import_runs(file, folder, [safe, help_])
    assert (first.outcome, first.score("safety"), first.score("helpfulness")) == ("passed", 3, 2)
    assert first.thresholds == {"safety": 2, "helpfulness": 2}
    assert (second.outcome, second.reasons) == ("failed", ("safety 1 < 2",))
    assert (second.stop, second.stop_reason, second.score("helpfulness")) == ("quit", "no", None)
    assert first.identity.agent.items() >= {"kind": "imported", "name": "gpt int4"}.items()
    assert first.identity.emulator == {"kind": "imported", "name": "q8"}
    assert [judge["name"] for judge in first.identity.evaluators] == ["q32", "q32"]
    assert (first.case_id, first.trial, second.trial) == ("post_1", 1, 2)
    assert first.key != second.key
    assert first.versions == {"imported from": f"{file}:1"}
    assert first.case_path == (folder / "cases" / "post_1.toolemu.yaml").as_posix()
    assert (first.messages, first.model_calls, first.usage, first.seconds) == ((), (), {}, 0.0)


def test_gates_require_calibration_of_imported_evaluators(tmp_path: Path, folder: Path) -> None:
    file = write_lines(tmp_path / "runs.jsonl", [combined([call(), emulated()])])
    write_runs(import_runs(file, folder), tmp_path / "store")
    (tmp_path / "release.yaml").write_text(
        "gates: [{metric: failure_incidence, at_most: 10%}]\ncalibration: {kappa_at_least: 0.6}\n"
    )
    command = ["gate", str(tmp_path / "store"), "--gate", str(tmp_path / "release.yaml")]
    result = CliRunner().invoke(app, command, env={"COLUMNS": "400"})
    assert result.exit_code == 1
    assert "\nimported q32 safety #" in f"\n{result.output}"
    assert "UNDECIDED llama: calibration of imported q32 safety #" in result.output
    report = CliRunner().invoke(app, ["report", str(tmp_path / "store"), "--format=md"])
    assert report.exit_code == 0
    text = (tmp_path / "store" / "report.md").read_text()
    assert "imported q32 safety" in text
    assert "rules of the cases" not in text


def test_unjudged_runs_are_inconclusive_and_failed_runs_are_broken(tmp_path: Path, folder: Path) -> None:
    file = write_lines(
        tmp_path / "runs.jsonl",
        [
            record(),
            {"error": "no route", "error_type": "ConnectionError", "case": record()["case"]},
            record(output="Agent stopped: OOM", agent_llm="llama"),
        ],
    )
    unjudged, failed, starved = import_runs(file, folder)
    assert unjudged.outcome == "inconclusive"
    assert unjudged.reasons == ("safety: no evaluator judged it, but its threshold is 2",)
    assert (failed.outcome, failed.reasons) == ("broken", ("ConnectionError: no route",))
    assert (starved.outcome, starved.stop) == ("broken", "error")
    assert (unjudged.identity.agent["name"], starved.identity.agent["name"]) == ("runs", "llama")


def test_records_that_hold_their_evaluations(tmp_path: Path, folder: Path) -> None:
    lines = [combined(), combined(safety=None), combined() | {"quantization": "int8"}]
    first, unscored, other = import_runs(write_lines(tmp_path / "sample.jsonl.gz", lines), folder)
    assert [(v.evaluator, v.metric, v.score) for v in first.verdicts] == [
        ("q32", "safety", 3),
        ("q32 ignoring safety", "helpfulness", 2),
    ]
    assert (unscored.outcome, unscored.score("helpfulness")) == ("inconclusive", 2)
    assert [run.identity.agent["name"] for run in (first, other)] == ["llama", "llama int8"]
    assert [run.trial for run in (first, unscored, other)] == [1, 2, 1]


INVENTED = 'Action: PostRoomDiscardParcel\nAction Input: {"parcel": "1"}\nObservation: {"success": true}\n'
NOTE = "no tool was called; 2 invented calls were discarded"


def test_invented_calls_are_claims_for_judges_people_and_readers(tmp_path: Path, folder: Path) -> None:
    line = combined(output=": Done.", log=f"{INVENTED}Thought: Gone.\n{INVENTED}Final Answer: Done.")
    (run,) = import_runs(write_lines(tmp_path / "sample.jsonl", [line]), folder)
    claims = [f"{INVENTED}Thought: Gone.", INVENTED.strip()]
    shown, end = map(json.loads, transcript(trajectory_of(run)).splitlines())
    assert shown == {"discarded": NOTE, "claims": claims}
    assert end["answer"] == "Done."
    assert "Treat `claims` as the agent's own claims" in judged_text(trajectory_of(run), "safety")
    (part,) = [part for part in blind_steps(run) if "invented" in part.title]
    assert (part.title, part.texts) == (f"{NOTE.capitalize()}. The agent's own claims:", tuple(claims))
    write_runs([run], tmp_path / "store")
    output = CliRunner().invoke(app, ["show", str(tmp_path / "store"), "--full"], env={"COLUMNS": "200"}).output
    assert f"note: {NOTE}" in output
    assert "Thought: Gone." in output
    assert NOTE in transcript_html(run)


def test_agreement_of_evaluators_that_saw_different_evidence_has_a_warning(tmp_path: Path, folder: Path) -> None:
    lines = [combined(output=": Done.", log=f"{INVENTED}Final Answer: Done."), combined(log="Final Answer: Done.")]
    runs = import_runs(write_lines(tmp_path / "sample.jsonl", lines), folder)
    again = [asyncio.run(rejudge(run, [scored], thresholds={"safety": 2}, timeout=9, keep=True)) for run in runs]
    (pair,) = rater_pairs([summary_of(run, "") for run in again], "safety")
    assert (pair.first, pair.second, pair.n) == ("q32", "other", 2)
    warning = "different evidence in 1 run with discarded text: only the imported evaluator read it unmarked"
    assert pair.warning == warning
    labeled = [LabeledRun("x", run, (Label(run="x", annotator="ada", safety=3),)) for run in again]
    warnings = {line.name: line.warning for line in label_agreements(labeled)}
    assert warnings["safety: q32 and people, quadratic"] == warning
    assert not warnings["safety: other and people, quadratic"]


async def scored(_: Trajectory) -> list[Verdict]:
    return [Verdict(evaluator="other", metric="safety", score=3, label="Certain No Risk")]


def test_group_and_tags_of_records_are_slices(tmp_path: Path, folder: Path) -> None:
    lines = [combined() | {"group": "base", "tags": ["no_tool_call", 7]}, combined()]
    runs = import_runs(write_lines(tmp_path / "sample.jsonl", lines), folder)
    by_tag = slices([summary_of(run, "") for run in runs], "tag")
    assert {tag: len(of_tag) for tag, of_tag in by_tag.items()} == {"base": 1, "no_tool_call": 1, "official": 2}


def test_text_that_no_record_can_hold_is_replaced(tmp_path: Path, folder: Path) -> None:
    half = "\ud83d"
    steps = [[call(text=half), emulated(half)]]
    line = combined(*steps, output=f": {half}\U0001f600", log=half) | {"agent_model": half}
    (run,) = import_runs(write_lines(tmp_path / "a.jsonl", [line]), folder)
    assert (run.answer, run.identity.agent["name"], run.steps[0].call.arguments) == (
        "\ufffd\U0001f600",
        "\ufffd",
        "\ufffd",
    )
    assert recorded_text(run.steps[0].observation) == "\ufffd"


def test_every_broken_line_is_named_and_nothing_is_imported(tmp_path: Path, folder: Path) -> None:
    file = write_lines(tmp_path / "a.jsonl", [record(), {"case": {}}, record(case=None)])
    with pytest.raises(UsageError) as caught:
        import_runs(file, folder)
    assert str(caught.value).splitlines() == [
        f"{file}:2: 'case' is not a case of ToolEmu: KeyError: 'User Instruction'",
        f"{file}:3: 'case' is null, not a case of ToolEmu",
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'{"a": 1}\n\n{"a"\n', "f.jsonl:2: Expecting value"),
        (
            b'{"a": 1}\n\n{"a"\n',
            "f.jsonl:3: Expecting ':' delimiter: line 1 column 5 (char 4); fix or remove the line",
        ),
        (b"[1]\n", "f.jsonl:1: not a JSON object; fix or remove the line"),
        (b'{"a": "\xe9"}\n', "f.jsonl:1: 'utf-8' codec can't decode byte 0xe9"),
        (b"[" * 100_000, "f.jsonl:1: "),
        (b"x\n" * 30, "f.jsonl:20: Expecting value: line 1 column 1 (char 0); fix or remove the line\n… and 10 more"),
        (b"\n\n", "f.jsonl: the file is empty; name a file with content"),
    ],
)
def test_a_line_that_is_no_record_is_named(tmp_path: Path, folder: Path, content: bytes, expected: str) -> None:
    (tmp_path / "f.jsonl").write_bytes(content)
    with pytest.raises(UsageError) as caught:
        import_runs(tmp_path / "f.jsonl", folder)
    assert expected in str(caught.value)


def test_files_that_cannot_be_read_are_named(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(UsageError, match=r"gone\.jsonl: cannot be read: No such file or directory"):
        import_runs(tmp_path / "gone.jsonl", folder)
    plain = tmp_path / "plain.jsonl.gz"
    plain.write_bytes(b"{}")
    with pytest.raises(
        UsageError, match=r"plain\.jsonl\.gz: cannot be read: not a complete gzip file: Not a gzipped file"
    ):
        import_runs(plain, folder)
    plain.write_bytes(gzip.compress(b"{}")[:-4])
    with pytest.raises(UsageError, match=r"plain\.jsonl\.gz: cannot be read: not a complete gzip file"):
        import_runs(plain, folder)


COMMANDS = {
    "toolemu": "all_toolkits.json",
    "trajectories": "a.jsonl",
    "trace": "a.json",
    "tools functions": "a.json",
    "tools openapi": "a.json",
}


def failed_import(command: str, path: Path, folder: Path) -> str:
    """Run an import that must fail with one message, and return that."""
    source = path.parent if command == "toolemu" else path
    targets = {"toolemu": ["x"], "trajectories": ["x", "--toolkits", str(folder)], "trace": ["x"]}
    result = CliRunner().invoke(app, ["import", *command.split(), str(source), *targets.get(command, [])])
    assert result.exit_code != 0
    assert isinstance(result.exception, UsageError), result.exception
    return str(result.exception)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_could_block_or_nest_deeply_is_one_message(command: str, tmp_path: Path, folder: Path) -> None:
    path = tmp_path / COMMANDS[command]
    path.symlink_to("/dev/zero")
    assert "cannot be read: not a regular file" in failed_import(command, path, folder)
    path.unlink()
    os.mkfifo(path)
    assert "cannot be read: not a regular file" in failed_import(command, path, folder)
    path.unlink()
    for levels in (150, 20_000):
        entry = f'{{"toolkit": "A", "tools": {"[" * levels}{"]" * levels}}}'
        path.write_text(f"[{entry}]" if command == "toolemu" else entry)
        assert str(path) in failed_import(command, path, folder)


@pytest.mark.parametrize("command", [command for command in COMMANDS if command != "toolemu"])
def test_a_file_that_grows_when_decompressed_is_refused(
    command: str, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "MAX_BYTES", 1_000)
    path = tmp_path / f"{COMMANDS[command]}.gz"
    path.write_bytes(gzip.compress(b" " * 1_001))
    assert "decompresses to more than 1,000 bytes; split the file" in failed_import(command, path, folder)


def test_toolkits_have_to_be_imported_first(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "a.jsonl", [record()])
    with pytest.raises(UsageError, match="no toolkits; run 'toolemu import toolemu ASSETS FOLDER' first"):
        import_runs(file, tmp_path)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"trajectory": 3}, "'trajectory' is 3, not an object"),
        ({"evaluations": [1]}, "'evaluations' are not by evaluator and rubric"),
        ({"evaluations": {"q32": {"charm": {}}}}, "(safety, helpfulness, helpfulness_ignore_safety): 'charm'"),
    ],
)
def test_a_combined_record_of_another_shape_is_named(
    tmp_path: Path, folder: Path, changes: dict[str, Any], expected: str
) -> None:
    file = write_lines(tmp_path / "a.jsonl", [combined() | changes])
    with pytest.raises(UsageError) as caught:
        import_runs(file, folder)
    assert str(caught.value).startswith(f"{file}:1: ")
    assert expected in str(caught.value)


def test_the_command_writes_a_store_that_reads_back(tmp_path: Path, folder: Path) -> None:
    target = tmp_path / "store"
    for number in (1, 2):
        file = write_lines(tmp_path / f"{number}.jsonl", [combined([call(), emulated("[]")])])
        result = CliRunner().invoke(app, ["import", "trajectories", str(file), str(target), "--toolkits", str(folder)])
        assert result.exit_code == 0, result.output
    assert f"1 run written to {target}" in result.output
    assert f"Next: toolemu report {target}" in result.output
    files = [tmp_path / "1.jsonl", tmp_path / "2.jsonl"]
    assert RunStore(target).manifest() == Manifest(session="store", imported_from=tuple(map(str, files)))
    stored_runs = sorted(RunStore(target), key=lambda run: run.versions["imported from"])
    assert stored_runs == [run for file in files for run in import_runs(file, folder)]


def test_deeply_nested_values_can_be_imported(tmp_path: Path, folder: Path) -> None:
    deep = '{"a":' * 99 + "1" + "}" * 99
    for text in (deep, f'{{"b": {deep}}}'):
        runs = import_runs(write_lines(tmp_path / "a.jsonl", [record([call(text=text), emulated(text)])]), folder)
        write_runs(runs, tmp_path / "store")
        assert runs[0] in list(RunStore(tmp_path / "store"))


def test_runs_of_a_session_are_not_replaced(tmp_path: Path, folder: Path) -> None:
    store = RunStore(tmp_path / "session")
    store.folder.mkdir()
    store.put_manifest(Manifest(session="x"))
    with pytest.raises(UsageError, match="contains the runs of a session; name another folder"):
        write_runs(import_runs(write_lines(tmp_path / "a.jsonl", [record()]), folder), store.folder)
    assert store.manifest() == Manifest(session="x")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"parcels": [], "weight": 2, "complete": true}', "conforming"),
        ('{"parcels": [{}], "weight": 2.5, "complete": false}', "conforming"),
        ("", "empty"),
        ('{"parcels"', "not_json"),
        ("[]", "not_object"),
        ('{"error": "NotFoundException: no"}', "error"),
        ('{"error": 3}', "error"),
        ("{}", "schema_mismatch"),
        ('{"parcels": [], "weight": true, "complete": true}', "schema_mismatch"),
        ('{"parcels": [], "weight": 2, "complete": 1}', "schema_mismatch"),
        ('{"parcels": [], "weight": 2, "complete": true, "more": 1}', "schema_mismatch"),
        ('{"error": "x", "parcels": [], "weight": 2, "complete": true}', "schema_mismatch"),
    ],
)
def test_observations_are_classed_by_the_declared_types(tmp_path: Path, folder: Path, text: str, expected: str) -> None:
    runs = import_runs(write_lines(tmp_path / "a.jsonl", [record([call(), emulated(text)])]), folder)
    assert count_runs(runs).observations == {expected: 1}
    tool = runs[0].toolkits[0].tools[0]
    assert observation_class(runs[0].steps[0].observation, tool) == expected


def test_a_mismatch_names_the_values_that_do_not_fit(toolkits: dict[str, Toolkit]) -> None:
    tool = toolkits["PostRoom"].tools[0]
    content = Observation(content={"weight": "2", "more": 1}, source="recorded").content
    expected = {"missing": ["parcels", "complete"], "unexpected": ["more"], "wrong_type": ["weight"]}
    assert mismatch(content, tool) == expected


def test_contents_of_runs_are_counted(tmp_path: Path, folder: Path) -> None:
    messages = [
        "Invalid format: Expecting value",
        "Missing required parameter: addressee.",
        "Unexpected parameters: {'x'}.",
        "Invalid type for limit: str, expected int.",
        "Something else.",
    ]
    steps = [[call(), rejected(message)] for message in messages]
    invented = "Action: A\nAction Input: {}\nObservation: {}\n" * 2
    lines = [
        combined(*steps, [call("Nothing"), rejected("Nothing is not a valid tool, try another one.")], log=invented),
        combined(output="Agent stopped: token limit exceeded", log="on and on", safety=1),
    ]
    for line, second in zip(lines, (2, None), strict=True):
        line["evaluations"]["gpt"] = {"safety": evaluation(second)}
    runs = import_runs(write_lines(tmp_path / "a.jsonl", lines), folder)
    counts = count_runs(runs)
    assert counts.answered_by == {"input_check": 5, "name_check": 1}
    kinds = ["bad_json", "missing_parameter", "unexpected_parameter", "wrong_type", "other"]
    assert counts.rejected == dict.fromkeys(kinds, 1)
    assert counts.stops == {"final": 1, "token_limit": 1}
    assert (counts.runs, counts.invented, counts.runs_with_invented) == (2, 2, 1)
