"""Converts a run to Allure steps (tool calls, answer, and verdicts) and transcript attachments."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import allure_commons
from allure_commons.model2 import (
    ATTACHMENT_PATTERN,
    Attachment,
    Label,
    Parameter,
    Status,
    StatusDetails,
    TestResult,
    TestStepResult,
)
from allure_commons.types import AttachmentType, LabelType, Severity

from pytest_toolemu.analysis.gates.gate_decision import Decision
from pytest_toolemu.analysis.rejudge import thoughts_of
from pytest_toolemu.analysis.run_summary import RunSummary, agent_name, known_score
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.identity import component_name
from pytest_toolemu.core.run import UNJUDGED, Finding, Run, Utterance, Verdict, json_text
from pytest_toolemu.formats.redaction import Redactor, redact, secrets
from pytest_toolemu.formats.text import counted, truncated, visible
from pytest_toolemu.reporting.transcript import (
    ENDINGS,
    ShownStep,
    case_html,
    change_lines,
    final_changes,
    harm,
    pretty_json,
    said_before,
    shown_steps,
    shown_trap,
    transcript_page,
    value_lines,
)

_MAX_LINE: Final = 90
_MAX_VALUE: Final = 1_000
_NOT_IN_TRANSCRIPT: Final = {"case", "toolkits", "messages", "model_calls", "identity", "hashes", "versions"}


def steps_of(run: Run) -> list[TestStepResult]:
    """Return one step for each call, message, and verdict, one for the changed data, and one for the end."""
    calls = []
    for shown in shown_steps(run):
        calls += _dialogue(shown.said, round(shown.step.started * 1000))
        calls.append(_call(shown, run))
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


def _step(name: str, has_failed: bool = False, **fields: Any) -> TestStepResult:
    """Return a step with a name of one line."""
    return TestStepResult(
        name=truncated(" ".join(visible(name).split()), _MAX_LINE),
        status=Status.FAILED if has_failed else Status.PASSED,
        **fields,
    )


def _is_risky(finding: Finding, run: Run) -> bool:
    return finding.score < run.thresholds.get("safety", 0)


def _valid_json(value: Any) -> str:
    """Return JSON text with hidden characters in escapes of JSON."""
    return visible(pretty_json(value), lambda char: json.dumps(char)[1:-1])


def attach_transcript(result: Any, run: Run) -> None:
    """Attach the transcript as HTML and as JSON, and the trap of a built world as text."""
    attach(result, "transcript", transcript_page(run), AttachmentType.HTML)
    content = {"instruction": run.case.instruction, **run.model_dump(mode="json", exclude=_NOT_IN_TRANSCRIPT)}
    attach(result, "transcript (JSON)", _valid_json(content), AttachmentType.JSON)
    if (trap := shown_trap(run)) is not None:
        lines = [f"{title}: {text}" for title, text in (("trap", trap.built_by), *trap.lines)]
        attach(result, "trap of the built world", visible("\n\n".join(lines)), AttachmentType.TEXT)


def attach(holder: Any, name: str, body: str, kind: AttachmentType) -> None:
    """Attach a file to a result or a step."""
    source = ATTACHMENT_PATTERN.format(prefix=uuid4(), ext=kind.extension)
    allure_commons.plugin_manager.hook.report_attached_data(body=redact(body).encode(), file_name=source)
    holder.attachments.append(Attachment(name=name, source=source, type=kind.mime_type))


def _call(shown: ShownStep, run: Run) -> TestStepResult:
    """Return the step of a call. It failed if an evaluator found a risk below the threshold, not if the tool failed."""
    call, observation = shown.step.call, shown.step.observation
    arguments = call.arguments if isinstance(call.arguments, dict) else {"arguments": call.arguments}
    values = {name: value if isinstance(value, str) else json_text(value) for name, value in arguments.items()}
    step = _step(
        f"{call.name} {call.text}",
        any(_is_risky(finding, run) for _, finding in shown.findings),
        start=round(shown.step.started * 1000),
        stop=round((shown.step.started + shown.step.seconds) * 1000),
        parameters=_limited(values.items()),
    )
    if shown.findings:
        step.statusDetails = StatusDetails(message=visible("\n".join(_finding_text(f) for _, f in shown.findings)))
    title = "the tool failed" if observation.is_error else "returned"
    if not observation.is_unknown:
        attach(step, f"{title} ({observation.source})", _valid_json(observation.content), AttachmentType.JSON)
    texts = {
        "thought of the agent": shown.thought,
        "fallback": shown.fallback,
        f"stress test{'' if shown.stressed else ', planned'}": shown.stress.plan if shown.stress else "",
        "notes of the emulator": "\n\n".join(f"{title}:\n{text}" for title, text in shown.notes),
    }
    return _with_texts(step, texts)


def _limited(values: Iterable[tuple[str, str]]) -> list[Parameter]:
    return [Parameter(visible(name), truncated(visible(value), _MAX_VALUE)) for name, value in values]


def _with_texts(step: TestStepResult, texts: Mapping[str, str]) -> TestStepResult:
    """Attach the texts that are not empty."""
    for name, text in texts.items():
        if text:
            attach(step, name, visible(text), AttachmentType.TEXT)
    return step


def _dialogue(said: Iterable[Utterance], milliseconds: int) -> list[TestStepResult]:
    """Return a step for each thing that agent and user said; their times are not recorded."""
    steps = []
    for one in said:
        head = "the agent says" if one.by == "agent" else f"the user replies ({one.kind})"
        step = _step(f"{head}: {one.text}", start=milliseconds, stop=milliseconds)
        attach(step, head, visible(one.text), AttachmentType.TEXT)
        if one.facts:
            step.parameters = [Parameter("facts", visible(", ".join(one.facts)))]
        steps.append(step)
    return steps


def _state(run: Run) -> TestStepResult:
    """Return the step with the rows that differ at the end, one inner step each; those of risky calls failed."""
    risky = {finding.step for finding in harm(run) if _is_risky(finding, run)}
    changes = final_changes(run)
    inner_steps = []
    for change, line in zip(changes, change_lines(changes), strict=True):
        values = list(value_lines(change))
        inner = _step(line, any(number - 1 in risky for number in change.steps), parameters=_limited(values))
        if any(len(value) > _MAX_LINE for _, value in values):  # Allure shows one line of a parameter
            _with_texts(inner, {"values": "\n".join(f"{name}: {value}" for name, value in values)})
        inner_steps.append(inner)
    has_failed = any(inner.status == Status.FAILED for inner in inner_steps)
    return _step(f"{counted(len(changes), 'change')} to the data", has_failed, steps=inner_steps)


def _end(run: Run) -> TestStepResult:
    """Return the step with the answer, or the reason why there is none."""
    step = _step(ENDINGS[run.stop])
    if run.stop in ("timeout", "error"):
        step.status = Status.BROKEN
    texts = {"thought of the agent": thoughts_of(run).end, "answer": run.answer, "reason": run.stop_reason}
    return _with_texts(step, texts)


def _verdict(verdict: Verdict, run: Run) -> TestStepResult:
    """Return the step of a verdict, which compares the score with its threshold; broken without a score."""
    if verdict.score is None:
        step = _step(f"{verdict.metric}: no score from {verdict.evaluator}")
        step.status, step.statusDetails = Status.BROKEN, StatusDetails(message=visible(verdict.problem))
    else:
        threshold = run.thresholds.get(verdict.metric)
        low = threshold is not None and verdict.score < threshold
        bound = "" if threshold is None else f" {'<' if low else '>='} {threshold}"
        step = _step(f"{verdict.metric} {verdict.score}{bound}: {verdict.label}, by {verdict.evaluator}", low)
    for finding in verdict.findings:
        where = "answer" if finding.step is None else f"step {finding.step + 1}"
        step.steps.append(_step(f"{where}: {_finding_text(finding)}", _is_risky(finding, run)))
    texts = {
        "stages" if verdict.cascade else "fallback": "\n".join(verdict.origin_lines),
        "reason": verdict.reason,
        "unrealistic emulation": verdict.emulation_doubts,
    }
    return _with_texts(step, texts)


def _finding_text(finding: Finding) -> str:
    return f"{finding.label}: {finding.outcome}"


GATES: Final = "Gates"
"""The epic and the suite of gates."""

_SEVERITIES: Final = {0: Severity.BLOCKER, 1: Severity.CRITICAL, 2: Severity.MINOR, 3: Severity.TRIVIAL}
# Internal parameters of the plugin, which pytest shows in an unreadable form.
_INTERNAL_PARAMETERS: Final = {"toolemu_case", "toolemu_variant", "toolemu_trial"}
# allure-pytest puts the name of the exception class before its text.
_CLASS_NAME: Final = re.compile(r"^(\w+\.)*CaseError: ")
_STATUSES: Final = {"passed": Status.PASSED, "failed": Status.FAILED, "undecided": Status.BROKEN}


@dataclass
class AllureSubject:
    """The case and the run of the result that is written next.

    ``is_file`` is true for the item of a case file, and false for a Python test of the project. ``agent`` and
    ``prompt`` are from the settings, None if the project creates the agent. ``label`` distinguishes the items of one
    case. ``gate_message`` is the message of an item whose failure is left to a gate.
    """

    resolved_case: ResolvedCase
    is_file: bool
    agent: str | None = None
    prompt: str | None = None
    label: str = ""
    trial: int = 1
    run: Run | None = None
    gate_message: str | None = None


class AllureResultListener:
    """A listener that completes the result of each item with a case before Allure writes it."""

    def __init__(self) -> None:
        self.subject: AllureSubject | None = None

    def register(self) -> None:
        """Register with Allure."""
        allure_commons.plugin_manager.register(self)

    def unregister(self) -> None:
        """Unregister, because several sessions may run in one process."""
        allure_commons.plugin_manager.unregister(self)

    @allure_commons.hookimpl(tryfirst=True)
    def report_result(self, result: TestResult) -> None:
        """Complete the result, and remove secrets, also from other tests, whose output may contain one."""
        if self.subject is not None:
            _complete(result, self.subject)
        _redact(result, secrets())

    @allure_commons.hookimpl(tryfirst=True)
    def report_container(self, container: Any) -> None:
        """Remove the plugin's fixtures, which only show how long an item waited for its run, unless they failed."""
        container.befores = [fixture for fixture in container.befores if not _is_noise(fixture)]
        container.afters = [fixture for fixture in container.afters if not _is_noise(fixture)]
        _redact(container, secrets())

    def report_gate(self, decision: Decision) -> None:
        """Report a gate as a separate result."""
        status, message = _STATUSES[decision.status], f"{decision.status}: {decision.text}"
        severity = Severity.TRIVIAL if status == Status.PASSED else Severity.BLOCKER
        labels = [Label(kind, GATES) for kind in (LabelType.EPIC, LabelType.FEATURE, LabelType.PARENT_SUITE)]
        labels += [Label(LabelType.STORY, visible(decision.gate)), Label(LabelType.SEVERITY, severity.value)]
        name = f"toolemu-gate#{decision.gate}"
        self._report(decision.gate, name, decision.agent, status, message, labels=labels, titlePath=[GATES])

    def report_lost(self, run: RunSummary) -> None:
        """Report a case whose process died before it wrote a result."""
        self._report(run.case, run.item, run.agent, Status.BROKEN, f"broken: {run.reason}", labels=[])

    def _report(
        self, name: str, full_name: str, agent: str, status: str, message: str, labels: list[Label], **fields: Any
    ) -> None:
        self.subject = None
        message, moment = visible(message), round(time.time() * 1000)
        result = TestResult(
            uuid=str(uuid4()),
            name=visible(name),
            fullName=full_name,
            testCaseId=_hash(full_name),
            historyId=_hash(full_name, agent),
            status=status,
            statusDetails=None if status == Status.PASSED else StatusDetails(message=message),
            description=message,
            start=moment,
            stop=moment,
            parameters=[Parameter("agent", visible(agent))],
            labels=[Label(LabelType.FRAMEWORK, "pytest"), Label(LabelType.TAG, "toolemu"), *labels],
            **fields,
        )
        allure_commons.plugin_manager.hook.report_result(result=result)


def _complete(result: TestResult, subject: AllureSubject) -> None:
    """Set title, description, labels, parameters, steps, and times from the case and its run."""
    _describe(result, subject)
    _label(result, subject)
    others = [parameter for parameter in result.parameters if parameter.name not in _INTERNAL_PARAMETERS]
    result.parameters = [*others, *_parameters(subject)]
    identifying = (f"{one.name}={one.value}" for one in result.parameters if not one.excluded)
    result.historyId = _hash(result.fullName, *sorted(identifying))
    if subject.run is not None:
        _add_run(result, subject.run, subject.is_file)
    details = result.statusDetails or StatusDetails()
    if subject.gate_message is not None:
        # Allure shows expected failures as skipped; the gate, which decides, has its own result.
        result.status, result.statusDetails = Status.SKIPPED, details
        details.message = f"{subject.gate_message}{_worst(subject.run) if subject.run else ''}"
    # Without the exception name, because the agent failed, not a program.
    details.message = _CLASS_NAME.sub("", visible(details.message or ""))
    details.trace = visible(details.trace or "")


def severity_of(run: Run) -> Severity:
    """Return the severity of a run: blocker for safety 0, critical for 1, minor for 2, trivial for 3.

    A run below the threshold of helpfulness is at least normal; a run without a safety score is normal.
    """
    safety, helpfulness = known_score(run, "safety"), run.score("helpfulness")
    severity = Severity.NORMAL if safety is None else _SEVERITIES[safety]
    unhelpful = helpfulness is not None and helpfulness < run.thresholds.get("helpfulness", 0)
    return Severity.NORMAL if unhelpful and severity in (Severity.MINOR, Severity.TRIVIAL) else severity


def _describe(result: TestResult, subject: AllureSubject) -> None:
    """Set title and description from the case; a Python test keeps its own title and description."""
    case = subject.resolved_case.case
    if subject.is_file:
        result.name = visible(f"{case.title} [{subject.label}]" if subject.label else case.title)
        result.description, result.descriptionHtml = None, case_html(case)
    elif not (result.description or result.descriptionHtml):
        result.descriptionHtml = case_html(case)


def _label(result: TestResult, subject: AllureSubject) -> None:
    """Add epic, feature, story, and severity unless the project has set them, and keep only the case's own tags."""
    case, existing = subject.resolved_case.case, {label.name for label in result.labels}
    kinds = case.risks.types or ("unknown_risk",)
    new_labels = {
        LabelType.EPIC: [kind.replace("_", " ").capitalize() for kind in kinds],
        LabelType.FEATURE: [case.toolkits[0]],
        LabelType.STORY: [case.id],
    }
    if subject.run is not None:
        new_labels[LabelType.SEVERITY] = [severity_of(subject.run).value]
    result.labels += [
        Label(name, visible(value)) for name in new_labels if name not in existing for value in new_labels[name]
    ]
    # The plugin's marks select cases; as tags they would repeat other labels.
    marks = {*case.toolkits, *case.risks.types, case.severity, case.split} - set(case.tags)
    result.labels = [label for label in result.labels if label.name != LabelType.TAG or label.value not in marks]
    for label in result.labels:
        if label.name == LabelType.SUITE:
            label.value = label.value.removesuffix(".toolemu")


def _parameters(subject: AllureSubject) -> list[Parameter]:
    """Return what distinguishes the run from others of the case; seed and source do not start a new history."""
    run, values = subject.run, {} if subject.is_file else {"case": subject.resolved_case.case.id}
    agent = subject.agent or (run and agent_name(run.identity))
    values |= {"agent": agent} if agent else {}
    values |= {"prompt": subject.prompt} if subject.prompt else {}
    if run is not None:
        judges = dict.fromkeys(_bare(judge) for judge in run.identity.evaluators)
        values |= {"emulator": _bare(run.identity.emulator), "evaluators": ", ".join(judges)}
    values["trial"] = str(subject.trial)
    parameters = [Parameter(name, visible(value)) for name, value in values.items()]
    if run is not None:
        parameters.append(Parameter("seed", str(run.seed), excluded=True))
        parameters += [Parameter("source", run.source, excluded=True)] if run.source != "live" else []
    return parameters


def _bare(identity: dict[str, Any]) -> str:
    """Return a component's name without its hash, because a new hash would start a new history."""
    return component_name(identity).label


def _hash(*texts: str) -> str:
    """Return an ID in Allure's format."""
    return hashlib.sha256(json_text(texts).encode()).hexdigest()[:32]


def _add_run(result: TestResult, run: Run, is_file: bool) -> None:
    """Add steps, transcript, and times of the run. A Python test that failed by itself keeps its message."""
    result.start, result.stop = round(run.started * 1000), round((run.started + run.seconds) * 1000)
    result.steps = [*steps_of(run), *result.steps]
    attach_transcript(result, run)
    trace = result.statusDetails.trace if result.statusDetails else None
    message = f"{run.outcome}: {', '.join(run.reasons)}"
    if run.outcome == "failed":
        message = f"{', '.join(run.reasons)}{_worst(run)}"
    expected = {"inconclusive": Status.BROKEN, "broken": Status.BROKEN, UNJUDGED: Status.SKIPPED}
    if is_file:
        expected["failed"] = Status.FAILED
    if run.outcome in expected and result.status == expected[run.outcome]:
        result.statusDetails = StatusDetails(message=message, trace=trace)


def _worst(run: Run) -> str:
    """Return the worst finding of all evaluators, on a new line; empty without findings."""
    findings = sorted((f for verdict in run.verdicts for f in verdict.findings), key=lambda finding: finding.score)
    return f"\n{findings[0].label}: {findings[0].outcome}" if findings else ""


def _redact(value: Any, redactor: Redactor) -> None:
    """Remove secrets from every text of an Allure object, in place."""
    for name, part in vars(value).items():
        if isinstance(part, str):
            setattr(value, name, redactor(part))
        for inner in part if isinstance(part, list) else [part]:
            if type(inner).__module__ == TestResult.__module__:
                _redact(inner, redactor)


def _is_noise(fixture: Any) -> bool:
    name = str(fixture.name).partition("::")[0]
    # A finalizer that is still running has no status yet.
    succeeded = fixture.status not in (Status.FAILED, Status.BROKEN)
    return name == "toolemu_run" or (name.startswith("toolemu_") and succeeded)
