"""Converts a run to Allure steps (tool calls, answer, and verdicts) and transcript attachments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from uuid import uuid4

import allure_commons
from allure_commons.model2 import ATTACHMENT_PATTERN, Attachment, Parameter, Status, StatusDetails, TestStepResult
from allure_commons.types import AttachmentType

from pytest_toolemu.analysis.thoughts import thoughts_of
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.run_parts.dialogue import Utterance
from pytest_toolemu.core.trajectory import json_text
from pytest_toolemu.core.verdict import Finding, Verdict
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.redaction import redact
from pytest_toolemu.formats.truncation import truncated
from pytest_toolemu.formats.visible_text import visible
from pytest_toolemu.reporting.transcript import (
    ENDINGS,
    ShownStep,
    pretty_json,
    said_before,
    shown_steps,
    transcript_page,
)
from pytest_toolemu.reporting.trap_view import shown_trap
from pytest_toolemu.reporting.world_view import change_lines, final_changes, harm, value_lines

_MAX_LINE: Final = 90
_MAX_VALUE: Final = 1_000
_TRANSCRIPT_FIELDS: Final = {
    "case_id", "agent", "trial", "steps", "dialogue", "answer", "stop", "stop_reason", "discarded", "agent_log",
    "agent_warning", "verdicts", "thresholds", "outcome", "reasons", "error", "started", "seconds",
}  # fmt: skip
"""The fields of a record in the JSON transcript; it omits the model messages and the toolkits."""


def steps_of(run: Run) -> list[TestStepResult]:
    """Return one step for each call, message, and verdict, one for the changed data, and one for the end."""
    threshold = run.thresholds.get("safety", 0)
    calls = []
    for shown in shown_steps(run):
        calls += _dialogue(shown.said, round(shown.step.started * 1000))
        calls.append(_call(shown, threshold))
    rest = [
        *_dialogue(said_before(run.dialogue, len(run.steps)), 0),
        *([_state(run)] if run.case.world else []),
        _end(run),
        *(_verdict(verdict, run) for verdict in run.verdicts),
    ]
    # Without duration, because the time of each evaluator is not recorded.
    for step in [inner for outer in rest for inner in (outer, *outer.steps)]:
        step.start = step.stop = round((run.started + run.seconds) * 1000)
    return [*calls, *rest]


def attach_transcript(result: Any, run: Run) -> None:
    """Attach the transcript as HTML and as JSON, and the trap of a built world as text."""
    attach(result, "transcript", transcript_page(run), AttachmentType.HTML)
    content = {"instruction": run.case.instruction, **run.model_dump(mode="json", include=_TRANSCRIPT_FIELDS)}
    attach(result, "transcript (JSON)", _json(content), AttachmentType.JSON)
    if (trap := shown_trap(run)) is not None:
        lines = [f"{title}: {text}" for title, text in (("trap", trap.built_by), *trap.lines)]
        attach(result, "trap of the built world", visible("\n\n".join(lines)), AttachmentType.TEXT)


def attach(holder: Any, name: str, body: str, kind: AttachmentType) -> None:
    """Attach a file to a result or a step."""
    source = ATTACHMENT_PATTERN.format(prefix=uuid4(), ext=kind.extension)
    allure_commons.plugin_manager.hook.report_attached_data(body=redact(body).encode(), file_name=source)
    holder.attachments.append(Attachment(name=name, source=source, type=kind.mime_type))


def _call(shown: ShownStep, threshold: int) -> TestStepResult:
    """Return the step of a call. It failed if an evaluator found a risk below the threshold, not if the tool failed."""
    call, observation = shown.step.call, shown.step.observation
    risky = any(finding.score < threshold for _, finding in shown.findings)
    started = shown.step.started
    step = TestStepResult(
        name=_line(f"{call.name} {call.text}"),
        status=Status.FAILED if risky else Status.PASSED,
        start=round(started * 1000),
        stop=round((started + shown.step.seconds) * 1000),
        parameters=_arguments(call.arguments),
    )
    if shown.findings:
        step.statusDetails = StatusDetails(message=visible("\n".join(_finding_text(f) for _, f in shown.findings)))
    if shown.thought:
        attach(step, "thought of the agent", visible(shown.thought), AttachmentType.TEXT)
    title = "the tool failed" if observation.is_error else "returned"
    attach(step, f"{title} ({observation.source})", _json(observation.content), AttachmentType.JSON)
    if shown.fallback:
        attach(step, "fallback", visible(shown.fallback), AttachmentType.TEXT)
    if shown.stress and shown.stress.plan:
        name = "stress test" if shown.stress.realised else "stress test, planned"
        attach(step, name, visible(shown.stress.plan), AttachmentType.TEXT)
    if shown.notes:
        notes = "\n\n".join(f"{title}:\n{text}" for title, text in shown.notes)
        attach(step, "notes of the emulator", visible(notes), AttachmentType.TEXT)
    return step


def _dialogue(said: Iterable[Utterance], milliseconds: int) -> list[TestStepResult]:
    """Return a step for each thing that agent and user said; their times are not recorded."""
    steps = []
    for one in said:
        head = "the agent says" if one.by == "agent" else f"the user replies ({one.kind})"
        step = TestStepResult(
            name=_line(f"{head}: {one.text}"), status=Status.PASSED, start=milliseconds, stop=milliseconds
        )
        attach(step, head, visible(one.text), AttachmentType.TEXT)
        if one.facts:
            step.parameters = [Parameter("facts", visible(", ".join(one.facts)))]
        steps.append(step)
    return steps


def _arguments(arguments: Any) -> list[Parameter]:
    """Return each argument as a parameter, or all as one if they are not a JSON object."""
    by_name = arguments if isinstance(arguments, dict) else {"arguments": arguments}
    values = {name: value if isinstance(value, str) else json_text(value) for name, value in by_name.items()}
    return [Parameter(visible(name), truncated(visible(value), _MAX_VALUE)) for name, value in values.items()]


def _state(run: Run) -> TestStepResult:
    """Return the step with the rows that differ at the end, one inner step each; those of risky calls failed."""
    threshold = run.thresholds.get("safety", 0)
    risky = {finding.step for finding in harm(run) if finding.score < threshold}
    changes = final_changes(run)
    step = TestStepResult(name=f"{counted(len(changes), 'change')} to the data", status=Status.PASSED)
    for change, line in zip(changes, change_lines(changes), strict=True):
        status = Status.FAILED if any(number - 1 in risky for number in change.steps) else Status.PASSED
        values = [(visible(name), visible(value)) for name, value in value_lines(change)]
        parameters = [Parameter(name, truncated(value, _MAX_VALUE)) for name, value in values]
        inner = TestStepResult(name=_line(line), status=status, parameters=parameters)
        if any(len(value) > _MAX_LINE for _, value in values):  # Allure shows one line of a parameter
            body = "\n".join(f"{name}: {value}" for name, value in values)
            attach(inner, "values", body, AttachmentType.TEXT)
        step.steps.append(inner)
        if status == Status.FAILED:
            step.status = status
    return step


def _end(run: Run) -> TestStepResult:
    """Return the step with the answer, or the reason why there is none."""
    step = TestStepResult(name=ENDINGS[run.stop], status=Status.PASSED)
    if run.stop in ("timeout", "error"):
        step.status = Status.BROKEN
    if thought := thoughts_of(run).end:
        attach(step, "thought of the agent", visible(thought), AttachmentType.TEXT)
    if run.answer:
        attach(step, "answer", visible(run.answer), AttachmentType.TEXT)
    if run.stop_reason:
        attach(step, "reason", visible(run.stop_reason), AttachmentType.TEXT)
    return step


def _verdict(verdict: Verdict, run: Run) -> TestStepResult:
    """Return the step of a verdict, which compares the score with its threshold; broken without a score."""
    if verdict.score is None:
        step = TestStepResult(name=f"{verdict.metric}: no score from {verdict.evaluator}", status=Status.BROKEN)
        step.statusDetails = StatusDetails(message=visible(verdict.problem))
    else:
        threshold = run.thresholds.get(verdict.metric, 0)
        low = verdict.score < threshold
        bound = f" {'<' if low else '>='} {threshold}" if verdict.metric in run.thresholds else ""
        head = f"{verdict.metric} {verdict.score}{bound}: {verdict.label}, by {verdict.evaluator}"
        step = TestStepResult(name=visible(head), status=Status.FAILED if low else Status.PASSED)
    for finding in verdict.findings:
        where = "answer" if finding.step is None else f"step {finding.step + 1}"
        low = finding.score < run.thresholds.get("safety", 0)
        name = _line(f"{where}: {_finding_text(finding)}")
        step.steps.append(TestStepResult(name=name, status=Status.FAILED if low else Status.PASSED))
    for name, text in (
        ("stages" if verdict.cascade else "fallback", "\n".join(verdict.origin_lines)),
        ("reason", verdict.reason),
        ("unrealistic emulation", verdict.emulation_doubts),
    ):
        if text:
            attach(step, name, visible(text), AttachmentType.TEXT)
    return step


def _finding_text(finding: Finding) -> str:
    return f"{finding.label}: {finding.outcome}"


def _json(value: Any) -> str:
    return visible(pretty_json(value))


def _line(text: str) -> str:
    return truncated(" ".join(visible(text).split()), _MAX_LINE)
