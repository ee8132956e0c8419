"""The summary of a run in its item's reports, which also carry it from xdist workers to the controller."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from json import dumps, loads
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_toolemu.formats.text import counted, in_log, truncated, visible
from pytest_toolemu.plugin.output.terminal_text import terminal_width, wrapped
from pytest_toolemu.plugin.session import RESOLVED_CASE, CaseError, CaseFailure, headline_of, relative_path

if TYPE_CHECKING:
    from pytest_toolemu.analysis.run_summary import RunSummary
    from pytest_toolemu.core.case_vocabulary import Metric
    from pytest_toolemu.core.run import Finding, Run, Verdict
    from pytest_toolemu.errors import NotRunError
    from pytest_toolemu.models.pricing import Prices
    from pytest_toolemu.sessions.store import RunStore


# What several trials add to the label of an item.
_TRIAL: Final = re.compile(r"-trial([0-9]+)$")

PROPERTY = "toolemu"
"""The user property that holds the run summary."""


def properties(pairs: Iterable[tuple[str, object]]) -> dict[str, Any] | None:
    """Return the run summary in a report's user properties as JSON data; None if there is none."""
    texts = [value for name, value in pairs if name == PROPERTY]
    return loads(str(texts[-1])) if texts else None


def attach_summary(item: pytest.Item, run: dict[str, Any]) -> None:
    """Attach the run's summary to the item's reports, which carry it to the process that writes the reports."""
    item.user_properties[:] = [pair for pair in item.user_properties if pair[0] != PROPERTY]
    item.user_properties.append((PROPERTY, dumps(run)))


def not_run(item: pytest.Item, error: NotRunError) -> CaseError:
    """Return the error of an item without a world, and attach a run summary that says so to its reports."""
    from pytest_toolemu.analysis.run_summary import NOT_RUN
    from pytest_toolemu.plugin.collection.item_agents import params_of

    known = {
        "case": item.stash[RESOLVED_CASE].case.id,
        "agent": "custom agent",
        **(properties(item.user_properties) or {}),
    }
    trial = params_of(item).get("toolemu_trial", 1)
    attach_summary(item, {**known, "trial": trial, "outcome": NOT_RUN, "reason": str(error)})
    return CaseError(f"{NOT_RUN}: {error}")


def record_path(item: pytest.Item) -> Path | None:
    """Return the path of the item's record; None if it has none."""
    run = properties(item.user_properties)
    return Path(run["path"]) if run and run.get("path") else None


def run_summary_of(report: pytest.TestReport) -> RunSummary | None:
    """Return the summary in a report, if there is one. A case whose setup failed before it ran counts as broken."""
    content = properties(report.user_properties)
    # With gates, cases that failed or have no verdict are reported as skipped; so are those that are judged later.
    counted = any(hasattr(report, name) for name in ("wasxfail", "toolemu_undecided", "toolemu_unjudged"))
    skipped = report.skipped and not counted
    if content is None or (report.when != "call" and report.passed) or skipped:
        return None
    from pytest_toolemu.analysis.run_summary import RunSummary

    run = RunSummary.from_json({**content, "item": report.nodeid})
    failed = {"outcome": "broken", "reason": "setup failed; see the error above"}
    return run if run.outcome else run.model_copy(update=failed)


def summary_of_crash(nodeid: str, store: RunStore, prices: Prices) -> RunSummary:
    """Return a summary for a case whose worker died before it could report.

    It may have stored the run before. Then that run counts, as it does for all who read the session later.
    """
    from pytest_toolemu.core.run_file import load_run
    from pytest_toolemu.sessions.manifest_records import PlannedCase, PlannedItem
    from pytest_toolemu.sessions.store import item_mark, mark_of, summarize_run
    from pytest_toolemu.sessions.stored_decision import planned_run
    from pytest_toolemu.settings.model_names import NOACT, REFERENCE

    name, _, label = nodeid.rpartition("::")[2].partition("[")
    mark = item_mark(name, nodeid)
    for path in store.paths():
        if mark_of(path.name) == mark:
            return summarize_run(load_run(path), str(path), prices).model_copy(update={"item": nodeid})
    planned = store.manifest().planned.get(name, PlannedCase(items={}))
    label = label.removesuffix("]")
    trial = _TRIAL.search(label)
    agent = planned.items.get(nodeid, PlannedItem()).agent or _TRIAL.sub("", label) or "custom agent"
    run = planned_run(
        name, planned, nodeid, agent=agent, outcome="broken", reason="the worker process died while it ran this case"
    )
    # What its requests have cost is lost with it.
    unseen = () if agent == NOACT or agent.startswith(REFERENCE) else ("agent",)
    return run.model_copy(update={"trial": int(trial[1]) if trial else 1, "unseen": unseen})


def status(report: pytest.TestReport) -> tuple[str, str, Any] | None:
    """Return category, letter, and word for a case that is undecided, not run, not run now, or unjudged; else None."""
    if getattr(report, "toolemu_undecided", False):
        return "undecided", "?", ("UNDECIDED", {"yellow": True})
    if getattr(report, "toolemu_unjudged", False):
        from pytest_toolemu.core.run import UNJUDGED

        return UNJUDGED, "u", (UNJUDGED.upper(), {"yellow": True})
    words = {("call", "passed"): "PASSED", ("call", "failed"): "FAILED", ("setup", "failed"): "ERROR"}
    word = words.get((report.when, report.outcome))
    if word is None or hasattr(report, "wasxfail") or PROPERTY not in dict(report.user_properties):
        return None
    run = properties(report.user_properties) or {}
    from pytest_toolemu.analysis.run_summary import NOT_RUN

    if run.get("outcome") == NOT_RUN:
        return NOT_RUN, "N", (NOT_RUN.upper(), {"yellow": True})
    source = run.get("source", "live")
    if source == "live":
        return None
    category, letter = ("error", "E") if word == "ERROR" else (report.outcome, "." if report.passed else "F")
    return category, letter, f"{word} ({source})"


_LONG = 600
_LONGEST = 20_000
_LINE = 200
_REJECTED = 5
_STOPS = {
    "quit": "the agent quit",
    "step_limit": "stopped at the step limit",
    "token_limit": "stopped at the token limit",
}
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
    lines += _warning(run)
    for metric, threshold in run.thresholds.items():
        lines += _metric(run, metric, threshold, brief)
    if not brief:
        lines += _rejected(run)
        said = (f"{'agent says' if one.by == 'agent' else 'user replies'}: {_cut(one.text)}" for one in run.dialogue)
        ending = f"{_STOPS[run.stop]}: {_cut(run.stop_reason)}" if run.stop in _STOPS else None
        lines += ["", *said, ending or f"answer: {_cut(run.answer) or '(empty)'}"]
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
        return in_log(visible("\n".join([*lines, *scores, f"{meaning} {ending}"])))
    lines += [meaning, *scores]
    if run.error is not None and run.error.traceback:
        text = run.error.traceback.rstrip()
        lines += ["", _start(text[max(0, text.rfind('  File "')) :] if brief else text, _LONGEST)]
    return in_log(visible("\n".join([*lines, ending])))


def _warning(run: Run) -> list[str]:
    return [f"warning: {run.agent_warning}"] if run.agent_warning else []


def _metric(run: Run, metric: Metric, threshold: int, brief: bool) -> list[str]:
    lines = []
    for verdict in run.verdicts:
        is_low = verdict.score is not None and verdict.score < threshold
        repeats_checks = verdict.cascade is not None and verdict.cascade.decided_by == "checks"
        if verdict.metric == metric and (is_low or not brief) and not repeats_checks:
            lines.append(_verdict_line(verdict, threshold))
            if is_low:
                seen: set[int | None] = set()
                for finding in sorted(verdict.findings, key=lambda finding: finding.score):
                    lines += _finding(finding, run)[: 1 if brief or finding.step in seen else None]
                    seen.add(finding.step)
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
    risk = f"{finding.likelihood}, {finding.severity}: {_cut(finding.outcome)}"
    if finding.step is None or finding.step >= len(run.steps):
        return [f"  {risk}"]
    step = run.steps[finding.step]
    call = f"{step.call.name} {_cut(step.call.text)}"
    called = [] if call in risk else [f"    called: {call}"]  # checks name the call
    return [f"  step {finding.step + 1}, {risk}", *called, f"    returned: {_cut(step.observation.text)}"]


def _rejected(run: Run) -> list[str]:
    """Return the calls that reached no tool, each once with the error that the agent received."""
    rejected = {
        f"rejected: {step.call.name} {_cut(step.call.text)}: {_cut(step.observation.text)}": step.call.index + 1
        for step in reversed(run.steps)
        if step.observation.source == "rejected"
    }
    lines = [f"step {number}, {text}" for text, number in reversed(rejected.items())]
    omitted = [f"and {len(lines) - _REJECTED} more rejected calls"] if len(lines) > _REJECTED else []
    return lines[:_REJECTED] + omitted


def _cut(text: str) -> str:
    return _start(" ".join(text.split()), _LONG)


def _start(text: str, longest: int) -> str:
    """Return the beginning of a long text."""
    note = f"… ({len(text):,} characters; the record contains the full text)"
    return text if len(text) <= longest else text[:longest] + note


def representation(excinfo: pytest.ExceptionInfo[BaseException], item: pytest.Item) -> Any:
    """Represent an error of this plugin by its text, without a traceback through the plugin's own code.

    Its location is the case, and its message is its headline, so ``--tb=line`` and the short test summary show one line
    for each error.
    """
    formatted = excinfo.getrepr(style="value", chain=False)
    if formatted.reprcrash is not None:
        path, line, _ = item.reportinfo()
        formatted.reprcrash.path = relative_path(Path(path))
        formatted.reprcrash.lineno = (line or 0) + 1
        formatted.reprcrash.message = headline_of(excinfo.value)
    entries = formatted.reprtraceback.reprentries
    if item.config.getoption("tbstyle", "auto") == "line":
        formatted.reprtraceback.reprentries = []
    elif entries:
        entries[-1].lines = wrapped(entries[-1].lines, terminal_width(item.config))
    return formatted


_KINDS: Final = {"agent": "broken (agent code)", "provider": "broken (provider)", "harness": "broken (harness)"}
# The parts in which equal messages differ: how long it was tried, and ids of single requests.
_RETRIES: Final = re.compile(r" ?\(given up after [^)]{0,80}\)")
_IDS: Final = re.compile(r"[\w-]{12,}")


def outcome_of(run: RunSummary) -> str:
    """Return a run's outcome; for a broken run, also whose exception it was."""
    return _KINDS.get(run.origin or "", str(run.outcome)) if run.outcome == "broken" else str(run.outcome)


def alike(runs: Iterable[RunSummary]) -> dict[tuple[str, ...], list[RunSummary]]:
    """Group runs by outcome, agent, and reason, in their order."""
    groups: dict[tuple[str, ...], list[RunSummary]] = {}
    for run in runs:
        groups.setdefault((outcome_of(run), run.agent, _pattern(run.reason, run.case)), []).append(run)
    return groups


@contextlib.contextmanager
def collapsed_errors(reporter: pytest.TerminalReporter, runs: Iterable[RunSummary]) -> Iterator[None]:
    """Hide all but the first of equal errors of broken runs while pytest lists errors; the summary counts them."""
    broken = [run for run in runs if run.outcome == "broken" and run.path]
    hidden = {run.item for group in alike(broken).values() for run in group[1:]}
    if not hidden:
        yield
        return
    reports = reporter.stats.get("error", [])
    reporter.stats["error"] = [report for report in reports if report.nodeid not in hidden]
    try:
        yield
    finally:
        reporter.stats["error"] = reports


def _pattern(reason: str, case: str) -> str:
    """Return what equal reasons have in common; the quoted ID of the case itself does not matter."""
    text = _RETRIES.sub("", " ".join(reason.replace(f"'{case}'", "#").split()))
    return _IDS.sub(lambda name: "#" if any(map(str.isdecimal, name[0])) else name[0], text)
