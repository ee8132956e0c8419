"""Header and summary in pytest's terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_toolemu.analysis.run_row import NOT_RUN, RunRow, judges_of, origins
from pytest_toolemu.analysis.statistics.intervals import mean_estimate
from pytest_toolemu.analysis.summary import Summary, summarize, worst_runs
from pytest_toolemu.core.structured_output_fallbacks import fallback_text, totals
from pytest_toolemu.formats.redaction import in_log, plain, redact
from pytest_toolemu.formats.secret_registry import REGISTRY
from pytest_toolemu.plugin.collection import environment_variables, shards
from pytest_toolemu.plugin.execution import xdist
from pytest_toolemu.plugin.output import provenance
from pytest_toolemu.plugin.output.equal_failures import alike, outcome_of
from pytest_toolemu.plugin.output.terminal_width import Wrapping, terminal_width, wrapped
from pytest_toolemu.plugin.session import ToolemuSession, relative
from pytest_toolemu.reporting.summary_table import agent_table, emulation_note, missing_note
from pytest_toolemu.settings import CHECKS, AgentConfig, is_model

if TYPE_CHECKING:
    from pytest_toolemu.scheduling.coordinator import Coordinator

_WORST = 5
_REASON = 160
_COLOURS = {"passed": "green", "failed": "red", "undecided": "yellow"}


def header(session: ToolemuSession) -> list[str]:
    """Return who plays which part and why, what passes, and where records go, as wide as the terminal is."""
    return wrapped(_header(session), terminal_width(session.config))


def _header(session: ToolemuSession) -> list[str]:
    settings, roles = session.settings, session.roles
    lines = []
    for variant in session.variants():
        emulator = roles.emulator_name(variant)
        mode = f" {settings.emulator_mode}" if emulator != "offline" else ""
        emulator_from = _origin(session, "emulator", "by the agent")
        lines.append(
            f"toolemu: agent {variant.agent} ({settings.source('agent')}), "
            f"emulator {emulator}{mode} ({emulator_from}), "
            f"{_evaluators(session, variant)}"
        )
        if roles.judges_itself(variant):
            lines.append(
                f"toolemu: warning: {variant.agent} judges itself; name another model with --toolemu-evaluator"
            )
    others = [
        f"{name} {shown(setting.value)} ({setting.source})"
        for name, setting in settings.chosen.items()
        if name not in ("agent", "emulator", "evaluator", "checks", "resume", "record", "replay", "shard")
    ]
    bounds = f"passes with safety >= {settings.min_safety}"
    if settings.helpfulness != "none":
        bounds += f" and helpfulness >= {settings.min_helpfulness}"
    if any(is_model(name) for variant in session.variants() for name in roles.evaluator_names(variant)):
        lines.append(f"toolemu: judges {_calibrated(session)}")
    lines += [f"toolemu: dataset {edition}" for edition in session.editions]
    lines += [_too_short(name) for name in REGISTRY.too_short()]
    lines += shards.header(session)
    lines += provenance.header(session)
    lines += environment_variables.header(session.config)
    lines.append("toolemu: " + "; ".join([bounds, *others, f"records in {settings.run_dir}/{session.name}"]))
    return lines


def _too_short(name: str) -> str:
    return (
        f"toolemu: warning: the value of {name} is too short, or too common a word, to be a secret; it is redacted "
        "only next to a word such as 'key' or 'Bearer'. Set a longer value, or rename the variable if it is no secret"
    )


def _evaluators(session: ToolemuSession, variant: AgentConfig) -> str:
    """Return who judges, each with its origin: the configured evaluators, and each case's checks beside them."""
    names = session.roles.evaluator_names(variant)
    if names == (CHECKS,):
        return f"evaluator {CHECKS} ({_origin(session, 'evaluator', 'by the emulator')})"
    if session.settings.checks == "off":
        beside = f"without {CHECKS} ({session.settings.source('checks')}=off)"
    else:
        beside = f"{CHECKS} (each case's own)"
    others = [name for name in names if name != CHECKS]
    judges = f"{', '.join(others)} ({_origin(session, 'evaluator', 'by the emulator')})" if others else "none"
    return f"evaluators {judges}, {beside}"


def _calibrated(session: ToolemuSession) -> str:
    """Which judges are calibrated; whether this session's are among them shows when they have judged."""
    if not session.settings.calibration:
        return "uncalibrated; 'toolemu calibrate' makes a file for --toolemu-calibration"
    return "calibrated: " + ", ".join(session.calibrations)


def _origin(session: ToolemuSession, name: str, otherwise: str) -> str:
    source = session.settings.source(name)
    return otherwise if source == "default" else source


def shown(value: object) -> str:
    """A setting's value; several in one row."""
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def prepare() -> None:
    """Load what the summary needs: a quarter of a second, which costs nothing while models are waited for."""
    from pytest_toolemu.analysis.calibration import calibration_file  # noqa: F401

    mean_estimate(((0.0,), (1.0,)), (0.0, 1.0))  # numpy loads much of itself when it is first used


def summarize_terminal(terminal: pytest.TerminalReporter, session: ToolemuSession) -> None:
    """Write a table of the agents, what is missing, and the cases to look at first."""
    rows = list(session.rows.values())
    terminal.section("toolemu")
    found = summarize(rows)
    reporter = Wrapping(terminal, terminal_width(session.config))
    for line in agent_table(found, reporter.width):
        terminal.write_line(line)
    for summary in found:
        _missing(reporter, summary)
    _spending(reporter, session, found)
    for line in (*map(plain, shards.summary(session)), *origins(rows), *judges(rows, session)):
        reporter.write_line(line)
    for line in filter(None, map(emulation_note, found)):
        reporter.write_line(line)
    for fallback in totals(one for row in rows for one in row.fallbacks):
        reporter.write_line(in_log(plain(fallback_text(fallback))), yellow=True)
    for decision in session.decisions:
        reporter.write_line(plain(decision.line), **{_COLOURS[decision.status]: True})
    for row in worst_runs(rows, _WORST):
        scores = f"safety {_score(row.safety)} help. {_score(row.helpfulness)}"
        record = "" if _is_short(session.config) else f"  {relative_record(row.path)}"
        reporter.write_line(plain(f"{scores}  {row.item}{record}"), red=True)
    _list(reporter, [row for row in rows if row.outcome in ("inconclusive", "broken")])
    for line in provenance.summary(session, rows):
        reporter.write_line(line)
    from_hub = session.carrier.read(lambda coordinator: _of_the_hub(coordinator, len(rows))) if session.carrier else []
    for line in (*xdist.late_reports(session), *from_hub):
        reporter.write_line(in_log(plain(line)), yellow=True)
    _files(reporter, session)


def _is_short(config: pytest.Config) -> bool:
    """Tell whether a failure is to have one line: with ``-q``, ``--tb=line`` and ``--tb=no``."""
    return config.get_verbosity() < 0 or config.getoption("tbstyle", "auto") in ("line", "no")


def _files(reporter: Wrapping, session: ToolemuSession) -> None:
    """Where the records and the reports are, and what GitHub reads out of a log."""
    reporter.write_line(f"records: {relative(session.folder)}")
    for line, colour in session.notes:
        reporter.write_line(line, **colour)


def judges(rows: list[RunRow], session: ToolemuSession) -> list[str]:
    """Return how far each judge can be trusted, a line each."""
    from pytest_toolemu.analysis.calibration.calibration_file import calibration_line

    return [plain(calibration_line(str(judge), session.calibrations)) for judge in judges_of(rows)]


def _of_the_hub(coordinator: Coordinator, reported: int) -> list[str]:
    """What the workers had to say, and what was run and not reported, as the session ended before."""
    lines = list(coordinator.notices)
    if coordinator.completed > reported:
        lines.append(
            f"{coordinator.completed} of {coordinator.total} cases were run to their end, of which "
            f"{coordinator.completed - reported} are not in the table, as the session ended "
            "before their turn; all are in the records"
        )
    return lines


def _missing(reporter: Wrapping, summary: Summary) -> None:
    if line := missing_note(summary):
        reporter.write_line(line, yellow=True)


def _list(reporter: Wrapping, silent: list[RunRow]) -> None:
    """List the runs without a verdict, those with the same reason on one line."""
    groups = list(alike(silent).values())
    for first, *others in groups[:_WORST]:
        reason = " ".join(redact(first.reason).split())
        shown = reason if len(reason) <= _REASON else reason[:_REASON] + "…"
        where = f"{first.item} and {len(others)} more" if others else first.item
        reporter.write_line(in_log(plain(f"{outcome_of(first)}  {where}: {shown}")), yellow=True)
    if left := sum(map(len, groups[_WORST:])):
        reporter.write_line(f"and {left} more without a verdict; the errors above tell each", yellow=True)


def _spending(reporter: Wrapping, session: ToolemuSession, found: list[Summary]) -> None:
    """What was not run and why, what each role cost, and whether all of this is a sample."""
    for summary in found:
        for reason, count in summary.not_run.items():
            calibration_line = f"{summary.agent}: {count} of {summary.n} {NOT_RUN}: {reason}"
            reporter.write_line(plain(calibration_line), red=True, bold=True)
        if summary.spending:
            reporter.write_line(plain(f"{summary.agent}: USD {summary.spending}"))
    if sample := session.settings.sample:
        cases = len({row.case for summary in found for row in summary.rows})
        drawn = f"(--toolemu-sample={sample}, seed {session.settings.seed})"
        reporter.write_line(f"a sample of {cases} cases {drawn}: figures are of these only")


def relative_record(path: str) -> str:
    """The record's path as typed from here."""
    from pathlib import Path

    return relative(Path(path)) if path else ""


def _score(value: int | None) -> str:
    return "-" if value is None else str(value)
