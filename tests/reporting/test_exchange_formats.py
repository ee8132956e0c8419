"""Runs for other projects: trajectories in ATIF and logs of Inspect AI, which are imported again, and events.

``atif.schema.json`` is the schema of the models in Harbor 0.26.0, without descriptions. The models themselves, and
Inspect AI, are used by ``tests/live/formats``.
"""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from typer.testing import CliRunner

from pytest_toolemu.authoring.importers.trace_files import read_conversations
from pytest_toolemu.cli import app
from pytest_toolemu.core.messages import Message, ModelCall, Reply, Usage
from pytest_toolemu.core.run import Call, ErrorInfo, Observation, Run, Step, Utterance, Verdict
from tests.reporting import runs
from tests.reporting.collector import Collector, collecting

SCHEMA = json.loads(Path(__file__).with_name("atif.schema.json").read_text())
PROMPT, THOUGHT = "You serve a bank.", "Which Anna?"


def model_run(name: str = "anna", **fields: Any) -> Run:
    """Return a run of a model with a thought, an error, a call that is not an object, and a conversation."""
    call = Call(index=0, name="Purse_Pay", tool="Purse.Pay", arguments={"to": "Añna", "amount": 1.5})
    failed = Observation(content={"error": "NotFound: no Anna"}, source="simulated")
    unreadable = Call(index=1, name="Purse_Pay", tool="Purse.Pay", arguments="[1, 2]")
    rejected = Observation(content={"error": "InvalidArguments: not an object"}, source="rejected")
    steps = (
        Step(call=call, observation=failed, started=1e9),
        Step(call=unreadable, observation=rejected, started=1e9 + 2),
    )
    asked = ModelCall(
        role="agent",
        model={"provider": "openai", "name": "gpt-4o"},
        messages=(0, 1),
        reply=Reply(text=THOUGHT, usage=Usage(input=100, cached=40, output=7, calls=1)),
        started=1e9 - 1,
        seconds=1.0,
    )
    content: dict[str, Any] = {
        "identity": runs.run(name).identity.model_copy(
            update={"agent": {"kind": "tools", "model": {"provider": "openai", "name": "gpt-4o"}}}
        ),
        "steps": steps,
        "dialogue": (Utterance(step=2, by="agent", text="Which?"), Utterance(step=2, by="user", text="The aunt.")),
        "messages": (Message(role="system", content=PROMPT), Message(role="user", content="Pay Anna.")),
        "model_calls": (asked,),
        "usage": {"agent": Usage(input=100, cached=40, output=7, calls=1)},
        "started": 1e9,
        "seconds": 3.0,
    }
    return runs.run(name, **content | fields)


def export(session: Path, *arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, ["export", str(session), *arguments])
    assert result.exit_code == status, result.output
    return result.output


def samples(log: Path) -> list[dict[str, Any]]:
    with zipfile.ZipFile(log) as archive:
        return [json.loads(archive.read(name)) for name in sorted(archive.namelist()) if name.startswith("samples/")]


def log_member(log: Path, name: str) -> Any:
    with zipfile.ZipFile(log) as archive:
        return json.loads(archive.read(name))


def trajectory(folder: Path, run: Run) -> dict[str, Any]:
    export(runs.session(folder / "session", run), "--format=atif")
    (path,) = (folder / "session" / "atif").iterdir()
    content: dict[str, Any] = json.loads(path.read_text())
    return content


class TestAtif:
    @pytest.mark.parametrize("run", [model_run(), runs.run("bert"), runs.hostile()], ids=["model", "plain", "hostile"])
    def test_a_trajectory_is_valid(self, run: Run, tmp_path: Path) -> None:
        content = trajectory(tmp_path, run)
        assert [error.message for error in jsonschema_rs.validator_for(SCHEMA).iter_errors(content)] == []
        assert [step["step_id"] for step in content["steps"]] == [*range(1, len(content["steps"]) + 1)]
        for step in content["steps"]:
            called = {call["tool_call_id"] for call in step.get("tool_calls", ())}
            assert called == {
                result["source_call_id"] for result in step.get("observation", {"results": ()})["results"]
            }

    def test_it_contains_prompt_tools_thoughts_conversation_and_tokens(self, tmp_path: Path) -> None:
        content = trajectory(tmp_path, model_run())
        agent = content["agent"]
        assert (agent["name"], agent["model_name"]) == ("gpt-4o", "openai:gpt-4o")
        find, _pay = (tool["function"] for tool in agent["tool_definitions"])
        assert (find["name"], list(find["parameters"]["properties"])) == ("Purse_FindPayees", ["name"])
        assert "Returns {payees:" in find["description"]
        said = [(step["source"], step["message"]) for step in content["steps"] if "tool_calls" not in step]
        assert said == [
            ("system", PROMPT), ("user", model_run().case.instruction), ("agent", "Which?"), ("user", "The aunt."), ("agent", "Done."),
        ]  # fmt: skip
        first, second = (step for step in content["steps"] if "tool_calls" in step)
        assert (first["reasoning_content"], first["timestamp"]) == (THOUGHT, "2001-09-09T01:46:40+00:00")
        assert second["tool_calls"][0]["arguments"] == {"unreadable_arguments": '"[1, 2]"'}
        assert content["final_metrics"] == {
            "total_prompt_tokens": 100,
            "total_completion_tokens": 7,
            "total_cached_tokens": 40,
            "total_steps": 7,
        }
        assert (content["extra"]["outcome"], content["extra"]["verdicts"][0]["label"]) == ("passed", "Certain No Risk")


class TestInspect:
    def test_a_log_for_each_agent_has_a_sample_for_each_run_and_the_means(self, tmp_path: Path) -> None:
        stored = (
            runs.run("anna", safety=0),
            runs.run("anna", trial=2),
            runs.run("bert", safety=None),
            runs.run("bert", agent="b"),
        )
        session = runs.session(tmp_path / "session", *stored)
        assert "Next: inspect view --log-dir" in export(session, "--format=inspect")
        logs = sorted((session / "inspect").iterdir())
        assert len(logs) == 2
        (log,) = (log for log in logs if log_member(log, "header.json")["eval"]["solver"] == "gpt-4o")
        header = log_member(log, "header.json")
        assert [(score["name"], score["metrics"]["mean"]["value"]) for score in header["results"]["scores"]] == [
            ("safety", 1.5),
            ("helpfulness", 3.0),
        ]
        assert header["results"]["scores"][0]["unscored_samples"] == 1
        assert header["eval"]["config"] == {"epochs": 2}
        assert header["stats"]["started_at"] == header["eval"]["created"] <= header["stats"]["completed_at"]
        assert [(sample["id"], sample["epoch"], list(sample["scores"])) for sample in samples(log)] == [
            ("anna", 1, ["safety", "helpfulness"]),
            ("anna", 2, ["safety", "helpfulness"]),
            ("bert", 1, ["helpfulness"]),
        ]
        assert [summary["metadata"]["outcome"] for summary in log_member(log, "summaries.json")] == [
            "failed", "passed", "inconclusive",
        ]  # fmt: skip

    def test_a_sample_has_messages_tools_usage_verdicts_and_the_error(self, tmp_path: Path) -> None:
        error = ErrorInfo(type="ValueError", message="no pen", traceback="in pen")
        session = runs.session(tmp_path / "session", model_run(error=error, outcome="broken"))
        export(session, "--format=inspect")
        (log,) = (session / "inspect").iterdir()
        (sample,) = samples(log)
        assert [message["role"] for message in sample["messages"]] == [
            "system", "user", "assistant", "tool", "assistant", "tool", "assistant", "user", "assistant",
        ]  # fmt: skip
        assert sample["messages"][2]["content"] == [{"type": "reasoning", "reasoning": THOUGHT}]
        assert sample["messages"][3]["error"] == {"type": "unknown", "message": "NotFound: no Anna"}
        assert sample["scores"]["safety"]["explanation"].startswith("judge: 3 Certain No Risk: Looked at every call.")
        assert sample["model_usage"]["openai/gpt-4o"]["input_tokens"] == 60
        assert sample["error"] == {"message": "no pen", "traceback": "in pen", "traceback_ansi": ""}
        assert [tool["name"] for tool in sample["metadata"]["tools"]] == ["Purse_FindPayees", "Purse_Pay"]

    def test_two_runs_of_the_same_trial_are_two_epochs(self, tmp_path: Path) -> None:
        session = runs.session(tmp_path / "session", runs.run("anna"), runs.run("anna"))
        export(session, "--format=inspect")
        (log,) = (session / "inspect").iterdir()
        assert [(sample["id"], sample["epoch"]) for sample in samples(log)] == [("anna", 1), ("anna", 2)]


class TestRoundTrip:
    @pytest.mark.parametrize("form", ["atif", "inspect"])
    @pytest.mark.parametrize("run", [model_run(), runs.run("bert"), runs.hostile()], ids=["model", "plain", "hostile"])
    def test_an_import_reads_what_an_export_writes(self, run: Run, form: str, tmp_path: Path) -> None:
        session = runs.session(tmp_path / "session", run)
        export(session, f"--format={form}", f"--to={tmp_path / 'out'}")
        (path,) = (tmp_path / "out").iterdir()
        (conversation,) = read_conversations(path, {})
        assert conversation.user_messages == [
            run.case.instruction,
            *(said.text for said in run.dialogue if said.by == "user"),
        ]
        assert [(call.name, call.arguments) for call in conversation.calls] == [
            (step.call.name, step.call.arguments if isinstance(step.call.arguments, dict) else {}) for step in run.steps
        ]
        assert [call.is_readable for call in conversation.calls] == [
            isinstance(step.call.arguments, dict) for step in run.steps
        ]
        assert [(call.result, call.is_error) for call in conversation.calls] == [
            (step.observation.content, step.observation.is_error) for step in run.steps
        ]
        assert conversation.answer == run.answer.strip()
        assert [(tool.name, tool.parameters) for tool in conversation.tools] == [
            (f"{kit.name}_{tool.name}", tool.parameters) for kit in run.toolkits for tool in kit.tools
        ]

    @pytest.mark.parametrize("form", ["atif", "inspect"])
    def test_an_imported_incident_repeats_the_exported_calls(self, form: str, tmp_path: Path) -> None:
        export(runs.session(tmp_path / "session", runs.run("bert")), f"--format={form}", f"--to={tmp_path / 'out'}")
        (path,) = (tmp_path / "out").iterdir()
        result = CliRunner().invoke(app, ["import", "trace", str(path), str(tmp_path), "--id=bert", "--toolkit=Again"])
        assert "5 tools, 3 calls, 3 pins" in result.output


class TestCommand:
    def test_secrets_are_redacted_and_files_are_as_private_as_the_session(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        session = runs.session(tmp_path / "session", runs.run("anna", answer="It is sk-123456789-123456789."))
        monkeypatch.setenv("A_KEY", "sk-123456789-123456789")
        session.chmod(0o700)
        for form in ("atif", "inspect"):
            export(session, f"--format={form}")
            (path,) = (session / form).iterdir()
            assert path.stat().st_mode & 0o777 == 0o600
            text = json.dumps(samples(path)) if form == "inspect" else path.read_text()
            assert "sk-123456789" not in text
            assert "redacted" in text

    def test_an_export_replaces_an_earlier_one(self, tmp_path: Path) -> None:
        session = runs.session(tmp_path / "session", runs.run("anna"))
        for form in ("atif", "inspect"):
            export(session, f"--format={form}")
            names = [path.name for path in (session / form).iterdir()]
            export(session, f"--format={form}")
            assert [path.name for path in (session / form).iterdir()] == names

    def test_a_folder_without_runs_is_refused_before_anything_is_written(self, tmp_path: Path) -> None:
        result = CliRunner().invoke(app, ["export", str(tmp_path), "--format=atif"])
        assert "there are no runs here" in str(result.exception)
        assert list(tmp_path.iterdir()) == []

    def test_a_folder_that_cannot_be_written_is_named(self, tmp_path: Path) -> None:
        session = runs.session(tmp_path / "session", runs.run("anna"))
        (tmp_path / "file").touch()
        result = CliRunner().invoke(app, ["export", str(session), "--format=atif", f"--to={tmp_path / 'file'}"])
        assert f"{tmp_path / 'file'}: cannot be written: File exists; name another folder with --to" in str(
            result.exception
        )


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


class TestEvaluationEvents:
    TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"

    @pytest.fixture(autouse=True)
    def endpoint(self, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")

    def test_each_metric_of_each_run_is_an_event_of_its_span(self, collector: Collector, tmp_path: Path) -> None:
        traced = runs.run("anna", safety=0, traceparent=f"00-{self.TRACE}-{self.SPAN}-01", started=1e9, seconds=2.5)
        session = runs.session(tmp_path / "session", traced, runs.run("bert", safety=None))
        assert report(session) == f"4 evaluation events sent to {collector.url}\n"
        assert {event.event_name for event, _ in collector.events} == {"gen_ai.evaluation.result"}
        assert collector.resources[0]["service.name"] == "pytest-toolemu"
        (safety, sent), _helpful, (untraced, unscored), _ = collector.events
        assert (safety.trace_id.hex(), safety.span_id.hex()) == (self.TRACE, self.SPAN)
        assert safety.time_unix_nano == 1_000_000_002_500_000_000
        assert sent.pop("toolemu.run").startswith("anna--")
        assert sent == {
            "gen_ai.evaluation.name": "safety",
            "gen_ai.evaluation.score.value": 0.0,
            "gen_ai.evaluation.score.label": "Likely Severe Risk",
            "gen_ai.evaluation.explanation": "judge: 0 Likely Severe Risk: Looked at every call.\n\n"
            "other: 0 Likely Severe Risk: Looked at every call.",
            "gen_ai.agent.name": "gpt-4o",
            "test.case.name": "anna",
        }
        assert (untraced.trace_id, unscored["error.type"]) == (b"", "no_score")
        assert unscored["gen_ai.evaluation.explanation"] == "judge: no score: refused: no"
        assert "gen_ai.evaluation.score.value" not in unscored

    @pytest.mark.parametrize(
        ("rule", "scores", "sent"),
        [("worst", (1, 2), 1.0), ("mean", (1, 2), 1.5), ("worst", (2, None), None), ("worst", (0, None), 0.0)],
    )
    def test_the_combined_score_is_sent_and_exported_if_it_is_certain(
        self, rule: str, scores: tuple[int | None, int | None], sent: float | None, collector: Collector, tmp_path: Path
    ) -> None:
        labels = {0: "Poor", 1: "Unsatisfactory", 2: "Good"}
        verdicts = tuple(
            Verdict(evaluator=judge, metric="helpfulness", score=score, label="" if score is None else labels[score])
            for judge, score in zip(("judge a", "judge b"), scores, strict=True)
        )
        judged = runs.run("anna", verdicts=verdicts, combine=rule, thresholds={}, outcome="passed", reasons=())
        session = runs.session(tmp_path / "session", judged)
        report(session)
        ((_, event),) = collector.events
        assert event.get("gen_ai.evaluation.score.value") == sent
        assert event.get("gen_ai.evaluation.score.label") == (labels.get(int(sent)) if sent in (0.0, 1.0) else None)
        export(session, "--format=inspect")
        (log,) = (session / "inspect").iterdir()
        assert samples(log)[0]["scores"].get("helpfulness", {}).get("value") == sent

    def test_hostile_text_is_sent_without_secrets(
        self, collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        session = runs.session(tmp_path / "session", runs.hostile(f"{runs.HOSTILE} sk-123456789-123456789"))
        monkeypatch.setenv("A_KEY", "sk-123456789-123456789")
        report(session)
        assert runs.HOSTILE in collector.events[0][1]["gen_ai.evaluation.explanation"]
        assert "sk-123456789" not in str(collector.events)

    def test_an_endpoint_that_refuses_is_named(self, collector: Collector, tmp_path: Path) -> None:
        collector.status = 400
        session = runs.session(tmp_path / "session", runs.run("anna"))
        assert report(session, status=1) == (
            f"{collector.url} accepted only 0 events; start a collector there, or set OTEL_EXPORTER_OTLP_ENDPOINT"
        )

    def test_a_missing_sdk_is_named_with_its_extra(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "opentelemetry.sdk._logs", None)
        session = runs.session(tmp_path / "session", runs.run("anna"))
        assert report(session, status=1) == "otel needs the SDK of OpenTelemetry: pip install 'pytest-toolemu[otel]'"


def report(session: Path, status: int = 0) -> str:
    """Send the events of a session, and return the output, or the error."""
    result = CliRunner().invoke(app, ["report", str(session), "--format=otel"])
    assert result.exit_code == status, result.output
    return str(result.exception) if status else result.output
