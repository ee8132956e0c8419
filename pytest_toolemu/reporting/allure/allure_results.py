"""Allure's results of cases: what allure-pytest knows of an item, completed by what its run was.

Imported where allure-pytest is writing results. Everything from a model is escaped, freed of control characters and of
credentials before Allure gets it.
"""

from __future__ import annotations

import hashlib
import re
import time
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import allure_commons
from allure_commons.model2 import Label, Parameter, Status, StatusDetails, TestResult
from allure_commons.types import LabelType, Severity

from pytest_toolemu.analysis.gates.gate_decision import Decision
from pytest_toolemu.analysis.run_row import RunRow, agent_name, known_score
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.identity import component_name
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.trajectory import json_text
from pytest_toolemu.formats.redaction import Redactor, plain, secrets
from pytest_toolemu.reporting.allure.allure_steps import attach_transcript, steps_of
from pytest_toolemu.reporting.transcript import case_html

GATES: Final = "Gates"
"""The epic, and the suite, of gates."""

_SEVERITIES: Final = {0: Severity.BLOCKER, 1: Severity.CRITICAL, 2: Severity.MINOR, 3: Severity.TRIVIAL}
# Parameters of the plugin's own, which say nothing as pytest holds them.
_OWN: Final = {"toolemu_case", "toolemu_variant", "toolemu_trial"}
# allure-pytest puts the name of the exception's class before its text.
_CLASS_NAME: Final = re.compile(r"^(\w+\.)*CaseError: ")
_STATUSES: Final = {"passed": Status.PASSED, "failed": Status.FAILED, "undecided": Status.BROKEN}


@dataclass
class AllureSubject:
    """What the result that is written next is about.

    ``is_file``: the item is a case file's own, not a test's of the project. ``agent`` and ``prompt`` are the settings',
    None where the project makes the agent. ``label`` tells apart the items of one case, in sessions with several.
    ``left`` is what a gated session says of the item instead of failing it.
    """

    resolved_case: ResolvedCase
    is_file: bool
    agent: str | None = None
    prompt: str | None = None
    label: str = ""
    trial: int = 1
    run: Run | None = None
    left: str | None = None


class AllureResultListener:
    """Registered with allure, before its writer: completes the result of each item that has a case."""

    def __init__(self) -> None:
        self.subject: AllureSubject | None = None

    def register(self) -> None:
        """Have allure call this."""
        allure_commons.plugin_manager.register(self)

    def unregister(self) -> None:
        """No longer: several sessions may run in one process."""
        allure_commons.plugin_manager.unregister(self)

    @allure_commons.hookimpl(tryfirst=True)
    def report_result(self, result: TestResult) -> None:
        """Title, description, labels, parameters, steps and times, as of the case and its run."""
        _redact(result, secrets())  # also of a test that is no case: a helper's output may have a secret in it
        subject = self.subject
        if subject is None:
            return
        _describe(result, subject)
        _label(result, subject)
        result.parameters = [*_others(result), *_parameters(subject)]
        result.historyId = _hash(result.fullName, *_told_apart(result.parameters))
        if subject.run is not None:
            _add_run(result, subject.run, subject.is_file)
        if subject.left is not None:
            # As Allure shows what is expected to fail; the gate has a result of its own.
            result.status = Status.SKIPPED
            trace = result.statusDetails.trace if result.statusDetails else None
            worst = _worst(subject.run) if subject.run else ""
            result.statusDetails = StatusDetails(message=f"{subject.left}{worst}", trace=trace)
        if result.statusDetails:
            result.statusDetails.message = _CLASS_NAME.sub("", plain(result.statusDetails.message or ""))
            result.statusDetails.trace = plain(result.statusDetails.trace or "")

    @allure_commons.hookimpl(tryfirst=True)
    def report_container(self, container: Any) -> None:
        """Leave out the plugin's own fixtures that went well, and the waiting for a run, which is not its time."""
        container.befores = [fixture for fixture in container.befores if not _is_noise(fixture)]
        container.afters = [fixture for fixture in container.afters if not _is_noise(fixture)]
        _redact(container, secrets())

    def gate(self, decision: Decision) -> None:
        """A gate as a result of its own."""
        self._report(
            name=f"{decision.gate}",
            full_name=f"toolemu-gate#{decision.gate}",
            agent=decision.agent,
            status=_STATUSES[decision.status],
            message=f"{decision.status}: {decision.text}",
        )

    def lost(self, row: RunRow) -> None:
        """A case whose process died before it could write a result."""
        self._report(row.case, row.item, row.agent, Status.BROKEN, f"broken: {row.reason}", epic=None)

    def _report(
        self, name: str, full_name: str, agent: str, status: str, message: str, epic: str | None = GATES
    ) -> None:
        self.subject = None
        message, moment = plain(message), round(time.time() * 1000)
        result = TestResult(
            uuid=str(uuid4()),
            name=plain(name),
            fullName=full_name,
            testCaseId=_hash(full_name),
            historyId=_hash(full_name, agent),
            status=status,
            description=message,
            start=moment,
            stop=moment,
            parameters=[Parameter("agent", plain(agent))],
        )
        if status != Status.PASSED:
            result.statusDetails = StatusDetails(message=message)
        result.labels = [Label(LabelType.FRAMEWORK, "pytest"), Label(LabelType.TAG, "toolemu")]
        if epic is not None:
            severity = Severity.TRIVIAL if status == Status.PASSED else Severity.BLOCKER
            kinds = (LabelType.EPIC, LabelType.FEATURE, LabelType.PARENT_SUITE)
            result.labels += [Label(kind, epic) for kind in kinds]
            result.labels += [Label(LabelType.STORY, plain(name)), Label(LabelType.SEVERITY, severity.value)]
            result.titlePath = [epic]
        allure_commons.plugin_manager.hook.report_result(result=result)


def severity_of(run: Run) -> Severity:
    """How bad the verdict is: safety 0 blocker, 1 critical, 2 minor, 3 trivial.

    An agent that is safe but below the threshold of helpfulness is at least normal, and so is a run without a score.
    """
    safety, helpfulness = known_score(run, "safety"), run.score("helpfulness")
    severity = Severity.NORMAL if safety is None else _SEVERITIES[safety]
    useless = helpfulness is not None and helpfulness < run.thresholds.get("helpfulness", 0)
    return Severity.NORMAL if useless and severity in (Severity.MINOR, Severity.TRIVIAL) else severity


def _describe(result: TestResult, subject: AllureSubject) -> None:
    """A case file's item is called by its title; a test of the project keeps what it says of itself."""
    case = subject.resolved_case.case
    if subject.is_file:
        result.name = plain(f"{case.title} [{subject.label}]" if subject.label else case.title)
        result.description, result.descriptionHtml = None, case_html(case)
    elif not (result.description or result.descriptionHtml):
        result.descriptionHtml = case_html(case)


def _label(result: TestResult, subject: AllureSubject) -> None:
    """Epic, feature, story and severity, where the project has given none; shorter suites; only the case's own tags."""
    case, given = subject.resolved_case.case, {label.name for label in result.labels}
    kinds = case.risks.types or ("unknown_risk",)
    ours = {
        LabelType.EPIC: [kind.replace("_", " ").capitalize() for kind in kinds],
        LabelType.FEATURE: [case.toolkits[0]],
        LabelType.STORY: [case.id],
    }
    if subject.run is not None:
        ours[LabelType.SEVERITY] = [severity_of(subject.run).value]
    result.labels += [Label(name, plain(value)) for name in ours if name not in given for value in ours[name]]
    # As marks they select; as tags they would repeat what other labels say.
    marks = {*case.toolkits, *case.risks.types, case.severity, case.split} - set(case.tags)
    result.labels = [label for label in result.labels if label.name != LabelType.TAG or label.value not in marks]
    for label in result.labels:
        if label.name == LabelType.SUITE:
            label.value = label.value.removesuffix(".toolemu")


def _others(result: TestResult) -> list[Parameter]:
    return [parameter for parameter in result.parameters if parameter.name not in _OWN]


def _parameters(subject: AllureSubject) -> list[Parameter]:
    """What tells this run from others of the case; seed and source are shown, and make no other history."""
    run, values = subject.run, {} if subject.is_file else {"case": subject.resolved_case.case.id}
    agent = subject.agent or (run and agent_name(run.identity))
    values |= {"agent": agent} if agent else {}
    values |= {"prompt": subject.prompt} if subject.prompt else {}
    if run is not None:
        judges = dict.fromkeys(_bare(judge) for judge in run.identity.evaluators)
        values |= {"emulator": _bare(run.identity.emulator), "evaluators": ", ".join(judges)}
    values["trial"] = str(subject.trial)
    made = [Parameter(name, plain(value)) for name, value in values.items()]
    if run is not None:
        made.append(Parameter("seed", str(run.seed), excluded=True))
        made += [Parameter("source", run.source, excluded=True)] if run.source != "live" else []
    return made


def _bare(identity: dict[str, Any]) -> str:
    """A part's name without the hash of its prompts, which would end a history with each new wording."""
    return component_name(identity).label


def _told_apart(parameters: list[Parameter]) -> list[str]:
    return sorted(f"{one.name}={one.value}" for one in parameters if not one.excluded)


def _hash(*texts: str) -> str:
    """An id as Allure likes it."""
    return hashlib.sha256(json_text(texts).encode()).hexdigest()[:32]


def _add_run(result: TestResult, run: Run, is_file: bool) -> None:
    """Steps, transcript and the run's own times. A Python test's own failure keeps its message."""
    result.start, result.stop = round(run.started * 1000), round((run.started + run.seconds) * 1000)
    result.steps = [*steps_of(run), *result.steps]
    attach_transcript(result, run)
    trace = result.statusDetails.trace if result.statusDetails else None
    reasons = ", ".join(run.reasons)
    if run.outcome in ("inconclusive", "broken") and result.status == Status.BROKEN:
        result.statusDetails = StatusDetails(message=f"{run.outcome}: {reasons}", trace=trace)
    elif run.outcome == "failed" and result.status == Status.FAILED and is_file:
        result.statusDetails = StatusDetails(message=f"{reasons}{_worst(run)}", trace=trace)


def _worst(run: Run) -> str:
    """The worst thing an evaluator found, on a line of its own."""
    found = sorted((f for verdict in run.verdicts for f in verdict.findings), key=lambda finding: finding.score)
    return f"\n{found[0].label}: {found[0].outcome}" if found else ""


def _redact(value: Any, known: Redactor) -> None:
    """Take the secrets out of every text of one of allure's objects."""
    for name, part in vars(value).items():
        if isinstance(part, str):
            setattr(value, name, known(part))
        for inner in part if isinstance(part, list) else [part]:
            if type(inner).__module__ == TestResult.__module__:
                _redact(inner, known)


def _is_noise(fixture: Any) -> bool:
    name = str(fixture.name).partition("::")[0]
    # A finalizer that still runs has no status yet.
    went_well = fixture.status not in (Status.FAILED, Status.BROKEN)
    return name == "toolemu_run" or (name.startswith("toolemu_") and went_well)
