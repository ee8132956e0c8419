"""Says where runs come from: made now, of recorded replies, or by an earlier session."""

from __future__ import annotations

from collections import Counter
from typing import Final

from pytest_toolemu.analysis.run_row import RunRow
from pytest_toolemu.formats.redaction import plain
from pytest_toolemu.models.cassettes.usage_report import CassetteReport
from pytest_toolemu.plugin.session import ToolemuSession, relative

_LISTED: Final = 5
_MODES: Final = {
    "none": "no model is asked; replies are played from",
    "once": "replies are played, and items without a recording are recorded, in",
    "new": "replies are played, and what is missing is recorded, in",
    "all": "everything is recorded again in",
}


def header(session: ToolemuSession) -> list[str]:
    """What is taken over, and what is played and recorded."""
    lines = []
    if session.settings.resume:
        lines.append(f"toolemu: {_resuming(session)}")
    if session.library is not None:
        lines.append(f"toolemu: {_MODES[session.library.mode]} {relative(session.library.folder)}")
    return lines


def _resuming(session: ToolemuSession) -> str:
    earlier = session.earlier
    if earlier is None:
        return f"nothing to resume: no session in {session.settings.run_dir} has runs of this configuration"
    first, *others = map(relative, earlier.folders)
    also = f" and what it resumed, {', '.join(others)}" if others else ""
    again = f"; {' and '.join(sorted(earlier.again))} ones are run again" if earlier.again else ""
    return f"resuming {first}{also}: {earlier.count()} runs{again}"


def summary(session: ToolemuSession, rows: list[RunRow]) -> list[str]:
    """How many runs were not made now, what was spent, and what of the recordings is not used."""
    lines = []
    counts = Counter(row.source for row in rows if row.outcome)
    if set(counts) - {"live"}:
        told = ", ".join(f"{counts[source]} {source}" for source in sorted(counts))
        spent, used = sum(row.spent for row in rows), sum(row.tokens for row in rows)
        unseen = " (and what was not recorded)" if any(row.incomplete for row in rows) else ""
        lines.append(f"runs: {told}; {spent:,} of {used:,} tokens{unseen} were used now")
    if session.recordings is not None:
        lines += _recordings(session.recordings)
    return [plain(line) for line in lines]


def _recordings(report: CassetteReport) -> list[str]:
    unused, stale = (sum(map(len, found.values())) for found in (report.unused, report.stale))
    lines = [f"recordings: exchanges: {report.played} played, {report.added} added, {unused} unused, {stale} stale"]
    lines += [f"unused: {file}: {_numbers(found)}" for file, found in report.unused.items()][:_LISTED]
    lines += [
        f"stale: {file}: {_numbers(found)}: the model, its parameters, the prompt or the tools have changed"
        for file, found in report.stale.items()
    ][:_LISTED]
    lines += [f"stale: {file}: its case is gone" for file in report.gone][:_LISTED]
    if report.not_run:
        lines.append(f"{len(report.not_run)} recordings are of items that were not run")
    return lines


def _numbers(found: list[int]) -> str:
    shown = ", ".join(map(str, found[:_LISTED])) + (", …" if len(found) > _LISTED else "")
    return f"{len(found)} exchanges ({shown})" if len(found) > 1 else f"exchange {shown}"
