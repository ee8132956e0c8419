"""The text of a case that failed, or that could not be judged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.truncation import truncated
from pytest_toolemu.formats.visible_text import in_log, visible
from pytest_toolemu.plugin.exceptions import CaseFailure
from pytest_toolemu.plugin.output.relative_path import relative_path
from pytest_toolemu.plugin.output.run_property import record_path

if TYPE_CHECKING:
    from pytest_toolemu.core.case_vocabulary import Metric
    from pytest_toolemu.core.run import Run
    from pytest_toolemu.core.trajectory import Step
    from pytest_toolemu.core.verdict import Finding, Verdict

_LONG = 600
_LONGEST = 20_000
_LINE = 200
_FRAME = '  File "'
_MEANING = {
    "inconclusive": "The case could not be judged; this says nothing about the agent.",
    "provider": "A model provider failed; this says nothing about the agent.",
    "agent": "The agent's own code failed. The case has no verdict until the agent is fixed.",
    "harness": "The evaluation harness failed; this says nothing about the agent.",
}


def check(run: Run, item: pytest.Item) -> None:
    """Raise CaseFailure if the agent failed the case."""
    if run.outcome == "failed":
        text = failure_text(run, record_path(item), brief=is_brief(item.config))
        raise CaseFailure(text, ", ".join(run.reasons), headline(run))


def is_brief(config: pytest.Config) -> bool:
    """Return whether ``--tb=short`` asks for the reasons alone, without steps and tracebacks."""
    return bool(config.getoption("tbstyle", "auto") == "short")


def failure_text(run: Run, path: Path | None, *, brief: bool = False) -> str:
    """Describe a failed case: what was asked, scores against thresholds, risky steps, the end, the record.

    ``brief`` leaves out passing scores, the steps, and the end.
    """
    lines = [f"case: {_cut(run.case.title)}", f"instruction: {_cut(run.case.instruction)}", ""]
    if not brief:
        lines += [", ".join(run.reasons), ""]
    lines += _warning(run)
    for metric, threshold in run.thresholds.items():
        lines += _metric(run, metric, threshold, brief)
    if not brief:
        lines += ["", *_dialogue(run), *_ending(run)]
    if path is not None:
        lines.append(f"record: {relative_path(path)}")
    return in_log(visible("\n".join(lines)))


def headline(run: Run) -> str:
    """Describe a failed case in one line: scores against thresholds, and the worst finding where there is one."""
    findings = [finding for verdict in run.verdicts for finding in verdict.findings]
    worst = min(findings, key=lambda finding: finding.score, default=None)
    risk = f": {worst.likelihood}, {worst.severity}: {worst.outcome}" if worst else ""
    line = " ".join(f"{', '.join(run.reasons)}{risk}".split())
    return in_log(visible(truncated(line, _LINE)))


def no_verdict_text(run: Run, path: Path, *, brief: bool = False) -> str:
    """Say why there is no verdict, and whether the agent's own code, a provider, or the harness is the reason.

    ``brief`` shortens the traceback of an exception to its last frame.
    """
    origin = run.error.origin if run.error is not None else None
    meaning = _MEANING.get(origin or run.outcome, _MEANING["harness"])
    scores = [f"{v.evaluator}: {v.metric} {v.score} {v.label}" for v in run.verdicts if v.score is not None]
    scores += _warning(run)
    ending = f"{counted(len(run.steps), 'tool call')} made. record: {relative_path(path)}"
    lines = [f"{run.outcome}: {_start('; '.join(run.reasons), _LONGEST)}"]
    if origin == "provider":  # two lines are enough
        lines += [*scores, f"{meaning} {ending}"]
    else:
        lines += [meaning, *scores, *_traceback(run, brief), ending]
    return in_log(visible("\n".join(lines)))


def _warning(run: Run) -> list[str]:
    return [f"warning: {run.agent_warning}"] if run.agent_warning else []


def _traceback(run: Run, brief: bool) -> list[str]:
    if run.error is None or not run.error.traceback:
        return []
    text = run.error.traceback.rstrip()
    return ["", _start(text[max(0, text.rfind(_FRAME)) :] if brief else text, _LONGEST)]


def _metric(run: Run, metric: Metric, threshold: int, brief: bool) -> list[str]:
    lines = []
    for verdict in run.verdicts:
        is_low = verdict.score is not None and verdict.score < threshold
        repeats_checks = verdict.cascade is not None and verdict.cascade.decided_by == "checks"
        if verdict.metric == metric and (is_low or not brief) and not repeats_checks:
            lines.append(_verdict_line(verdict, threshold))
            if is_low:
                for finding in sorted(verdict.findings, key=lambda finding: finding.score):
                    lines += _finding(finding, run)[: 1 if brief else None]
    return lines


def _verdict_line(verdict: Verdict, threshold: int) -> str:
    if verdict.score is None:
        return f"{verdict.metric}: no score from {verdict.evaluator}: {verdict.problem}"
    sign = "<" if verdict.score < threshold else ">="
    head = f"{verdict.metric} {verdict.score} {sign} {threshold} ({verdict.label}), by {verdict.evaluator}"
    if verdict.cascade is not None:
        head += f" ({verdict.cascade.decision} decided)"
    return f"{head}: {_cut(verdict.reason)}" if verdict.reason else head


def _finding(finding: Finding, run: Run) -> list[str]:
    lines = [f"  {finding.likelihood}, {finding.severity}: {_cut(finding.outcome)}"]
    if finding.step is not None and finding.step < len(run.steps):
        lines += _step(run.steps[finding.step])
    return lines


def _step(step: Step) -> list[str]:
    return [
        f"    step {step.call.index + 1}: {step.call.name} {_cut(step.call.text)}",
        f"    returned: {_cut(step.observation.text)}",
    ]


def _dialogue(run: Run) -> list[str]:
    return [f"{'agent says' if one.by == 'agent' else 'user replies'}: {_cut(one.text)}" for one in run.dialogue]


def _ending(run: Run) -> list[str]:
    names = {
        "quit": "the agent quit",
        "step_limit": "stopped at the step limit",
        "token_limit": "stopped at the token limit",
    }
    if run.stop in names:
        return [f"{names[run.stop]}: {_cut(run.stop_reason)}"]
    return [f"answer: {_cut(run.answer) or '(empty)'}"]


def _cut(text: str) -> str:
    return _start(" ".join(text.split()), _LONG)


def _start(text: str, longest: int) -> str:
    """Return the beginning of a long text."""
    if len(text) <= longest:
        return text
    return f"{text[:longest]}… ({len(text):,} characters; the record contains the full text)"
