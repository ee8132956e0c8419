"""Stored runs for other projects: trajectories in ATIF, logs of Inspect AI, and events of OpenTelemetry."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal

from pytest_toolemu import __version__
from pytest_toolemu.analysis.rejudge import thoughts_of
from pytest_toolemu.core.case_vocabulary import METRICS, Metric
from pytest_toolemu.core.identity import component_name, model_label
from pytest_toolemu.core.messages import Usage
from pytest_toolemu.core.run import Run, Step, Verdict, combine, sha256
from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.core.tool_functions import describe
from pytest_toolemu.core.toolkit import callable_tools
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.file_access import make_subfolder, opener_in, write_atomically
from pytest_toolemu.formats.redaction import redact
from pytest_toolemu.formats.text import counted
from pytest_toolemu.reporting.transcript import said_before
from pytest_toolemu.sessions.store import json_text_of, newest_evaluations, refuse_playground, run_files

Json = dict[str, Any]
ExchangeFormat = Literal["atif", "inspect"]

ATIF_VERSION: Final = "ATIF-v1.7"
"""Version 1.8 only adds audio. Readers of 1.8 accept 1.7, and readers of 1.7 refuse 1.8."""

_FACTS: Final = {
    "case_id", "agent", "trial", "outcome", "reasons", "stop", "stop_reason", "verdicts", "thresholds", "hashes",
}  # fmt: skip
"""What neither format has a member for."""


def export_runs(session: Path, to: ExchangeFormat, folder: Path | None) -> tuple[Path, int]:
    """Write the runs of a session in a format, and return the folder of the files and the number of runs.

    ``folder`` is by default a folder of the session, named after the format. Files of an earlier export are replaced.
    Raise UsageError if the session has no runs, or a file cannot be written.
    """
    runs = stored_runs([session])
    first = next(runs)  # a session without runs is refused before its folder is created
    write = _write_trajectories if to == "atif" else _write_logs
    try:
        folder = folder or make_subfolder(session, to)
        folder.mkdir(parents=True, exist_ok=True)
        return folder, write(chain((first,), runs), session.resolve().name, folder)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written: {error.strerror}; name another folder with --to") from None


def stored_runs(sessions: Sequence[Path]) -> Iterator[tuple[str, Run]]:
    """Yield each run of the sessions with its newest evaluation, after a name that is unique in them.

    Raise UsageError if there are none, one cannot be read, or a person has played them.
    """
    refuse_playground(sessions)
    for path in newest_evaluations(run_files(sessions)):
        yield path.stem, load_run(path)


def _score(run: Run, metric: Metric) -> float | None:
    """Return the combined score of a metric; None without one, and if a missing verdict could change it."""
    combined = combine(run.verdicts, metric, run.combine)
    return combined.low if combined is not None and combined.low == combined.high else None


def _explanation(run: Run, metric: Metric) -> str:
    """Return what all evaluators said about a metric."""
    return "\n\n".join(_said(verdict) for verdict in run.verdicts if verdict.metric == metric)


def _said(verdict: Verdict) -> str:
    said = f"no score: {verdict.problem}" if verdict.score is None else f"{verdict.score} {verdict.label}"
    return ": ".join(filter(None, (verdict.evaluator, said, verdict.reason)))


@dataclass(frozen=True)
class _Turn:
    """What one of the participants said, or one tool call of the agent with its result."""

    source: Literal["system", "user", "agent"]
    text: str = ""
    thought: str = ""
    step: Step | None = None


def _turns(run: Run) -> Iterator[_Turn]:
    """Yield the whole conversation: system prompt, instruction, calls, what was said between them, and the answer."""
    request = next((call for call in run.model_calls if call.role == "agent"), None)
    messages = [run.messages[index] for index in request.messages] if request else []
    yield from [_Turn("system", message.content) for message in messages if message.role == "system"]
    yield _Turn("user", run.case.instruction)
    thoughts = thoughts_of(run)
    for index, step in enumerate((*run.steps, None)):
        yield from [_Turn(said.by, said.text) for said in said_before(run.dialogue, index)]
        if step is not None:
            yield _Turn("agent", thought=thoughts.steps[index], step=step)
    if run.answer or thoughts.end:
        yield _Turn("agent", run.answer, thoughts.end)


def _tool_definitions(run: Run) -> list[Json]:
    """Return the tools as the agent read them: names, descriptions, and JSON Schemas of their arguments."""
    return [
        {"name": name, "description": describe(tool), "parameters": tool.parameters}
        for name, _, tool in callable_tools(run.toolkits)
    ]


def _facts(run: Run) -> Json:
    return {"title": run.case.title, **run.model_dump(mode="json", include=_FACTS)}


def _time(seconds: float) -> str:
    """Return seconds since the epoch as a time in ISO 8601."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()


# ---- ATIF, the agent trajectory interchange format of the Harbor project


def _write_trajectories(runs: Iterable[tuple[str, Run]], session: str, folder: Path) -> int:
    count = 0
    for count, (name, run) in enumerate(runs, 1):  # noqa: B007
        content = {"session_id": session, "trajectory_id": name, **_trajectory(run)}
        write_atomically(folder / f"{name}.json", json_text_of(content), durable=False)
    return count


def _trajectory(run: Run) -> Json:
    agent, model = component_name(run.identity.agent), run.identity.agent.get("model")
    usage = run.usage.get("agent", Usage())
    totals = {"prompt": usage.input, "completion": usage.output, "cached": usage.cached} if usage.calls else {}
    steps = [_atif_step(number, turn) for number, turn in enumerate(_turns(run), 1)]
    return {
        "schema_version": ATIF_VERSION,
        "agent": {
            "name": run.agent or agent.label,
            "version": agent.hash,  # of its whole configuration
            "model_name": model_label(model) if isinstance(model, dict) else None,
            "tool_definitions": [{"type": "function", "function": tool} for tool in _tool_definitions(run)],
            "extra": run.identity.agent,
        },
        "steps": steps,
        "final_metrics": {
            "total_steps": len(steps),
            **{f"total_{kind}_tokens": count for kind, count in totals.items()},
        },
        "extra": _facts(run),
    }


def _atif_step(number: int, turn: _Turn) -> Json:
    content: Json = {"step_id": number, "source": turn.source, "message": turn.text}
    if turn.thought:
        content["reasoning_content"] = turn.thought
    if (step := turn.step) is not None:
        call: Json = {"tool_call_id": f"call_{step.call.index}", "function_name": step.call.name}
        call["arguments"] = _arguments(step)
        result: Json = {"source_call_id": call["tool_call_id"], "content": step.observation.text}
        result["extra"] = {"is_error": step.observation.is_error, "source": step.observation.source}
        content |= {"tool_calls": [call]}
        content |= {} if step.observation.is_unknown else {"observation": {"results": [result]}}
        content["timestamp"] = _time(step.started) if step.started else None
    return content


def _arguments(step: Step) -> Json:
    """Return the arguments of a call as an object, which both formats require."""
    arguments = step.call.arguments
    return arguments if isinstance(arguments, dict) else {"unreadable_arguments": step.call.text}


# ---- logs of Inspect AI: an archive for each agent, with a file for each sample


def _write_logs(runs: Iterable[tuple[str, Run]], session: str, folder: Path) -> int:
    logs: dict[str, _InspectLog] = {}
    with ExitStack() as unfinished:
        for name, run in runs:
            if run.agent not in logs:
                logs[run.agent] = _InspectLog(folder, session, run)
                unfinished.callback(logs[run.agent].discard)
            logs[run.agent].add(name, run)
        for log in logs.values():
            log.finish()
    return sum(len(log.summaries) for log in logs.values())


class _InspectLog:
    """The log of one agent, whose first run is given. It is written sample by sample."""

    def __init__(self, folder: Path, session: str, first: Run) -> None:
        self.folder, self.session, self.first = folder, session, first
        self.id = sha256([session, first.agent])[:22]
        self.path = folder / f".{self.id}.tmp"
        open(self.path, "wb", opener=opener_in(folder)).close()  # as private as the folder
        self.archive = zipfile.ZipFile(self.path, "w", zipfile.ZIP_DEFLATED)
        self.summaries: dict[tuple[str, int], Json] = {}

    def add(self, name: str, run: Run) -> None:
        """Add a run as a sample. A trial that another run has already becomes the next one that is free."""
        epoch = run.trial
        while (run.case_id, epoch) in self.summaries:
            epoch += 1
        sample = {"id": run.case_id, "epoch": epoch, **_sample(run, f"{self.session}/{name}")}
        self._write(f"samples/{run.case_id}_epoch_{epoch}.json", sample)
        self.summaries[run.case_id, epoch] = {
            **{key: value for key, value in sample.items() if key not in ("messages", "output", "events")},
            "scores": {metric: {"value": score["value"]} for metric, score in sample["scores"].items()},
            "metadata": {key: sample["metadata"][key] for key in ("title", "outcome", "stop")},
            "error": run.error.message if run.error else None,
            "message_count": len(sample["messages"]),
            "completed": True,
        }

    def finish(self) -> None:
        """Write the contents, and give the file its name."""
        samples = [self.summaries[key] for key in sorted(self.summaries)]
        started = min(sample["started_at"] for sample in samples)
        spec = {
            "task": "toolemu",
            "task_id": self.id,
            "run_id": self.session,
            "created": started,
            "solver": self.first.agent,
            "model": _model(self.first),
            "dataset": {"name": self.session, "samples": len(samples)},
            "config": {"epochs": max(sample["epoch"] for sample in samples)},
            "packages": {"pytest-toolemu": __version__},
            "metadata": self.first.identity.model_dump(mode="json", include={"agent", "emulator"}),
        }
        scores = []
        for metric in METRICS:
            if values := [sample["scores"][metric]["value"] for sample in samples if metric in sample["scores"]]:
                mean = {"name": "mean", "value": sum(values) / len(values)}
                counts = {"scored_samples": len(values), "unscored_samples": len(samples) - len(values)}
                scores.append({"name": metric, "scorer": metric, **counts, "metrics": {"mean": mean}})
        results = {"total_samples": len(samples), "completed_samples": len(samples), "scores": scores}
        self._write("summaries.json", samples)
        stats = {"started_at": started, "completed_at": max(sample["completed_at"] for sample in samples)}
        header = {"version": 2, "status": "success", "eval": spec, "results": results, "stats": stats}
        self._write("header.json", header)
        self.archive.close()
        self.path.replace(self.folder / f"{self.session}_toolemu_{self.id}.eval")

    def discard(self) -> None:
        """Remove the log unless it is finished."""
        self.archive.close()
        self.path.unlink(missing_ok=True)

    def _write(self, name: str, content: Any) -> None:
        self.archive.writestr(name, redact(json_text_of(content)))


def _sample(run: Run, name: str) -> Json:
    """Return a run as a sample of a log, without its ID and epoch; ``name`` is unique."""
    turns = (message for turn in _turns(run) for message in _messages(turn))
    messages = [{"id": f"{name}#{number}", **message} for number, message in enumerate(turns)]
    answer, error, model = messages[-1:] if messages[-1]["role"] == "assistant" else [], run.error, _model(run)
    tools, output = _tool_definitions(run), {"model": model, "choices": [{"message": message} for message in answer]}
    event = {
        "event": "model",
        "timestamp": _time(run.started),
        "working_start": 0,
        "model": model,
        "input": messages[: len(messages) - len(answer)],
        # Inspect AI reads only a part of JSON Schema, so the parameters are in the metadata.
        "tools": [{"name": tool["name"], "description": tool["description"]} for tool in tools],
        "tool_choice": "auto",
        "config": {},
        "output": output,
    }
    return {
        "uuid": name,
        "input": run.case.instruction,
        "target": run.case.expected,
        "messages": messages,
        "output": output,
        "events": [event],  # the only part that messages_df reads
        "scores": {
            metric: {"value": score, "explanation": _explanation(run, metric)}
            for metric in METRICS
            if (score := _score(run, metric)) is not None
        },
        "metadata": {**_facts(run), "tools": tools},
        "model_usage": {model: _usage(run.usage["agent"])} if "agent" in run.usage else {},
        "role_usage": {role: _usage(total) for role, total in run.usage.items()},
        "started_at": _time(run.started),
        "completed_at": _time(run.started + run.seconds),
        "total_time": run.seconds,
        "error": {"message": error.message, "traceback": error.traceback, "traceback_ansi": ""} if error else None,
    }


def _messages(turn: _Turn) -> Iterator[Json]:
    thought = [{"type": "reasoning", "reasoning": turn.thought}] if turn.thought else []
    content = [*thought, {"type": "text", "text": turn.text}] if turn.text else thought
    message = {"role": "assistant" if turn.source == "agent" else turn.source, "content": content}
    if (step := turn.step) is None:
        yield message
        return
    call = {"id": f"call_{step.call.index}", "function": step.call.name}
    yield {**message, "tool_calls": [{**call, "arguments": _arguments(step)}]}
    if step.observation.is_unknown:
        return
    error = {"type": "unknown", "message": step.observation.content["error"]} if step.observation.is_error else None
    answered = {"role": "tool", "tool_call_id": call["id"], "function": call["function"]}
    yield {**answered, "content": step.observation.text, "error": error}


def _usage(usage: Usage) -> Json:
    return {
        "input_tokens": usage.input - usage.cached - usage.cache_written,
        "output_tokens": usage.output,
        "total_tokens": usage.total,
        "input_tokens_cache_read": usage.cached,
        "input_tokens_cache_write": usage.cache_written,
        "reasoning_tokens": usage.reasoning,
    }


def _model(run: Run) -> str:
    """Return the model of the agent by the naming of Inspect AI, in which ``none/none`` stands for none."""
    model = run.identity.agent.get("model")
    return model_label(model).replace(":", "/", 1) if isinstance(model, dict) else "none/none"


# ---- events of OpenTelemetry


def send_evaluations(sessions: Sequence[Path]) -> str:
    """Send a ``gen_ai.evaluation.result`` event for each judged metric of each run; return what was sent, and where.

    Variables of OpenTelemetry name the endpoint. An event belongs to the span that a request to the agent's service
    named. Raise UsageError if the SDK is not installed, or the endpoint does not accept the events.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
        from opentelemetry.sdk._logs import LoggerProvider, export
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    except ImportError:
        raise UsageError("otel needs the SDK of OpenTelemetry: pip install 'pytest-toolemu[otel]'") from None
    names = ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    endpoint = next(filter(None, map(os.environ.get, names)), "http://localhost:4318")
    service = {"service.name": os.environ.get("OTEL_SERVICE_NAME", "pytest-toolemu")}
    exporter, events, sent = OTLPLogExporter(), export.InMemoryLogRecordExporter(), 0  # type: ignore[no-untyped-call]
    provider = LoggerProvider(Resource.create(service), shutdown_on_exit=False)
    provider.add_log_record_processor(export.SimpleLogRecordProcessor(events))
    logger = provider.get_logger("pytest_toolemu", __version__)
    for name, run in stored_runs(sessions):
        context = TraceContextTextMapPropagator().extract({"traceparent": run.traceparent})
        time = int((run.started + run.seconds) * 1e9)
        for each in _evaluations(name, run):
            logger.emit(timestamp=time, context=context, event_name="gen_ai.evaluation.result", attributes=each)
        batch = events.get_finished_logs()
        if batch and exporter.export(batch) is not export.LogRecordExportResult.SUCCESS:
            raise UsageError(f"{endpoint} accepted only {sent} events; start a collector there, or set {names[1]}")
        sent += len(batch)
        events.clear()
    return f"{counted(sent, 'evaluation event')} sent to {endpoint}"


def _evaluations(name: str, run: Run) -> Iterator[dict[str, str | float]]:
    """Yield the attributes of the event of each metric that an evaluator judged."""
    for metric in METRICS:
        labels: dict[float | None, str] = {
            verdict.score: verdict.label for verdict in run.verdicts if verdict.metric == metric
        }
        if not labels:
            continue
        score = _score(run, metric)
        evaluation: dict[str, str | float] = {
            "gen_ai.evaluation.name": metric,
            "gen_ai.evaluation.explanation": redact(_explanation(run, metric)),
            "gen_ai.agent.name": redact(run.agent),
            "test.case.name": run.case_id,
            "toolemu.run": name,
        }
        if score is None:
            evaluation["error.type"] = "no_score"
        else:
            evaluation["gen_ai.evaluation.score.value"] = float(score)
            if label := labels.get(score):  # a mean has none
                evaluation["gen_ai.evaluation.score.label"] = redact(label)
        yield evaluation
