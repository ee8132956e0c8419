"""The summary in pytest's terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_toolemu.analysis.calibration.calibration_file import Calibrations, calibration_line
from pytest_toolemu.analysis.metrics import AgentSummary, spending_text, summarize_agents, worst_runs
from pytest_toolemu.analysis.run_summary import NOT_RUN, RunSummary, cascade_totals, judges_of, origins
from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.core.run_notes import note_lines
from pytest_toolemu.formats.text import counted, in_log, truncated, visible
from pytest_toolemu.models.cassette_recorder import CassetteReport
from pytest_toolemu.plugin.collection.item_agents import agent_configs
from pytest_toolemu.plugin.collection.shards import shard_summary
from pytest_toolemu.plugin.output.reports import alike, headline, outcome_of
from pytest_toolemu.plugin.output.session_manifest import builder_cost
from pytest_toolemu.plugin.output.terminal_text import (
    Wrapping,
    take_late_messages,
    terminal_width,
    unreported_output_lines,
)
from pytest_toolemu.plugin.session import ToolemuSession, relative_path
from pytest_toolemu.reporting.summary_table import (
    agent_notes,
    agent_table,
    conversation_notes,
    missing_note,
    unjudged_lines,
)
from pytest_toolemu.sessions.manifest_records import counts_text
from pytest_toolemu.settings.model_names import fallback_parts, judge_models
from pytest_toolemu.settings.option_table import LATEST, Settings
from pytest_toolemu.settings.resolution import ComponentNames

if TYPE_CHECKING:
    from pytest_toolemu.scheduling.coordinator import Coordinator
    from pytest_toolemu.scheduling.transport import Transport

_WORST = 5
_LISTED = 5
_REASON = 160
_COLORS = {"passed": "green", "failed": "red", "undecided": "yellow"}


def write_summary(terminal: pytest.TerminalReporter, session: ToolemuSession, transport: Transport | None) -> None:
    """Write the table of agents, what is missing, and the cases to look at first."""
    runs = list(session.run_summaries.values())
    terminal.write_sep("=", "toolemu")
    summaries = summarize_agents(runs)
    reporter = Wrapping(terminal, terminal_width(session.config))
    for line in agent_table(summaries, reporter.width):
        terminal.write_line(line)
    has_gates, has_evaluator = bool(session.settings.gate), bool(session.settings.evaluator)
    folder = relative_path(session.folder)
    unjudged = unjudged_lines(runs, folder, has_gates=has_gates, has_evaluator=has_evaluator)
    for line in filter(None, (*map(missing_note, summaries), *unjudged)):
        reporter.write_line(line, yellow=True)
    _write_spending(reporter, session.settings, summaries)
    _write_worlds(reporter, session)
    configured = ComponentNames(session.settings).evaluators_in_force(agent_configs(session.settings))
    judges = [*unconfigured_evaluators(runs, configured), *judge_lines(runs, session.calibrations)]
    protocols = conversation_notes(runs, session.settings.turns)
    for line in (*protocols, *map(visible, shard_summary(session)), *origins(runs), *judges):
        reporter.write_line(line)
    for line in (note for summary in summaries for note in agent_notes(summary)):
        reporter.write_line(line)
    for line in note_lines(run.case_notes for run in runs):
        reporter.write_line(in_log(visible(line)), yellow=True)
    for decision in session.decisions:
        reporter.write_line(visible(decision.line), **{_COLORS[decision.status]: True})
    _write_worst(reporter, runs, folder, has_gates=has_gates)
    _write_without_verdict(reporter, [run for run in runs if run.outcome in ("inconclusive", "broken")])
    for line in provenance_lines(runs, session.cassette_report()):
        reporter.write_line(line)
    _write_worker_messages(reporter, session, transport, len(runs))
    omitted = (
        f"{counted(session.omitted_reruns, 'rerun')} of cases with a verdict did not run the case again: choosing the "
        "last attempt would distort the metrics; use --toolemu-trials to repeat cases"
    )
    for line in (*([omitted] if session.omitted_reruns else []), *unreported_output_lines(session)):
        reporter.write_line(line, yellow=True)
    reporter.write_line(f"records: {relative_path(session.folder)}")
    for note in session.notes:
        reporter.write_line(note.text, **({note.color: True} if note.color else {}))


def unconfigured_evaluators(runs: Sequence[RunSummary], configured: Sequence[str]) -> list[str]:
    """Return a line that names the judges that no option configures: those made by fixtures, known after the runs."""
    models = (part for name in configured for model in judge_models(name) for part in fallback_parts(model))
    names = [model.partition("@")[0] for model in models]
    others = [str(judge) for judge in judges_of(runs) if not any(name in str(judge) for name in names)]
    return [visible(f"evaluators from fixtures: {', '.join(others)}")] if others else []


def judge_lines(runs: list[RunSummary], calibrations: Calibrations) -> list[str]:
    """Return how far each judge can be trusted, and how often each stage of a cascade decided, in a line each."""
    cascades = cascade_totals(use for run in runs for use in run.cascades)
    lines = [calibration_line(str(judge), calibrations) for judge in judges_of(runs)]
    return [visible(line) for line in (*lines, *(cascade.line for cascade in cascades))]


def _write_worst(reporter: Wrapping, runs: list[RunSummary], folder: str, *, has_gates: bool) -> None:
    """Write the worst runs, unless pytest has listed these and no others, and the command that shows one."""
    failed = worst_runs(runs)
    worst = failed[:_WORST]
    for run in worst if has_gates or len(failed) > _WORST else ():
        safety, helpfulness = ("-" if score is None else score for score in (run.safety, run.helpfulness))
        scores = f"safety {safety} help. {helpfulness}"
        reporter.write_line(visible(f"{scores}  {run.item}"), red=True)
        if has_gates and run.path:  # without gates, pytest's failures show it
            reporter.write_line(f"  {headline(load_run(Path(run.path)))}")
    if worst:
        session = LATEST if Path(folder).parent == Path(".toolemu") else folder
        reporter.write_line(visible(f"show every step: toolemu show {session} {worst[0].case}"))


def _write_without_verdict(reporter: Wrapping, runs: list[RunSummary]) -> None:
    """Write the runs without a verdict, those with the same reason in one line."""
    groups = list(alike(runs).values())
    for first, *others in groups[:_WORST]:
        text = truncated(" ".join(first.reason.split()), _REASON)
        where = f"{first.item} and {len(others)} more" if others else first.item
        reporter.write_line(in_log(visible(f"{outcome_of(first)}  {where}: {text}")), yellow=True)
    if omitted := sum(map(len, groups[_WORST:])):
        reporter.write_line(f"and {omitted} more without a verdict; the errors above describe each", yellow=True)


def _write_spending(reporter: Wrapping, settings: Settings, summaries: list[AgentSummary]) -> None:
    """Write what was not run and why, what each role cost, and whether this is a sample."""
    for summary in summaries:
        for reason, count in summary.not_run.items():
            line = f"{summary.agent}: {count} of {summary.n} {NOT_RUN}: {reason}"
            reporter.write_line(visible(line), red=True, bold=True)
        if len(summary.costs) > 1 or summary.cost.calls:  # else the table says it
            reporter.write_line(visible(f"{summary.agent}: USD {summary.spending}"))
    cases = len({run.case for summary in summaries for run in summary.runs})
    if cases and (sample := settings.sample):
        options = f"(--toolemu-sample={sample}, seed {settings.seed})"
        reporter.write_line(f"a sample of {counted(cases, 'case')} {options}: metrics cover only these cases")


def _write_worlds(reporter: Wrapping, session: ToolemuSession) -> None:
    """Write how many worlds the session built, and what that cost, once for all agents."""
    builds = session.store.world_builds() if session.settings.world == "built" else None
    if builds is not None:
        reporter.write_line(
            visible(f"worlds: {counts_text(builds.counts)}"), **({"red": True} if builds.problems else {})
        )
        for role, cost in builder_cost(session).items():
            reporter.write_line(visible(f"worlds: USD {spending_text(role, cost)}"))
        for line in note_lines(builds.case_notes):
            reporter.write_line(in_log(visible(line)), yellow=True)


def _write_worker_messages(
    reporter: Wrapping, session: ToolemuSession, transport: Transport | None, reported: int
) -> None:
    """Write what workers could not report in any other way, and how many runs were not reported."""
    notice = session.overridden_agent
    lines = [*([notice] if notice else []), *take_late_messages(session)]
    if transport is not None:
        lines += transport.read(lambda coordinator: _coordinator_lines(coordinator, reported))
    for line in lines:
        reporter.write_line(in_log(visible(line)), yellow=True)


def _coordinator_lines(coordinator: Coordinator, reported: int) -> list[str]:
    """Return the notices of workers, and how many cases were run but not reported, as the session ended before."""
    lines, completed = list(coordinator.notices), coordinator.counts.completed
    if completed > reported:
        lines.append(
            f"{completed} of {counted(coordinator.total, 'case')} completed; {completed - reported} of them are "
            "missing from the table, because the session ended before their turn or they were skipped; the records "
            "contain all of them"
        )
    return lines


def provenance_lines(runs: list[RunSummary], cassettes: CassetteReport | None) -> list[str]:
    """Say how many runs are not live, what was spent, and which recordings are not used."""
    lines = []
    counts = Counter(run.source for run in runs if run.outcome)
    if set(counts) - {"live"}:
        sources = ", ".join(f"{counts[source]} {source}" for source in sorted(counts))
        spent, used = sum(run.spent for run in runs), sum(run.tokens for run in runs)
        unknown = " (others unknown)" if any(run.incomplete for run in runs) else ""
        lines.append(f"runs: {sources}; {spent:,} of {counted(used, 'token')}{unknown} used now")
    if cassettes is not None:
        lines += _recordings(cassettes)
    return [visible(line) for line in lines]


def _recordings(report: CassetteReport) -> list[str]:
    unused, stale = (sum(map(len, calls.values())) for calls in (report.unused, report.stale))
    lines = [
        f"cassettes: {counted(report.played, 'model call')} replayed, {report.added} added, "
        f"{unused} unused, {stale} stale"
    ]
    lines += [f"unused: {file}: {_numbers(calls)}" for file, calls in report.unused.items()][:_LISTED]
    lines += [
        f"stale: {file}: {_numbers(calls)}: the model, its parameters, the prompt, or the tools have changed"
        for file, calls in report.stale.items()
    ][:_LISTED]
    lines += [f"stale: {file}: its case no longer exists" for file in report.gone][:_LISTED]
    if report.not_run:
        lines.append(f"{counted(len(report.not_run), 'cassette')} of items that were not run")
    return lines


def _numbers(calls: list[int]) -> str:
    listed = ", ".join(map(str, calls[:_LISTED])) + (", …" if len(calls) > _LISTED else "")
    return f"{counted(len(calls), 'model call')} ({listed})" if len(calls) > 1 else f"model call {listed}"
