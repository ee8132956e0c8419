"""Where runs come from: models, cassettes, or an earlier session."""

from __future__ import annotations

from collections import Counter
from typing import Final

from pytest_toolemu.analysis.run_summary import RunSummary
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.visible_text import visible
from pytest_toolemu.models.cassette_recorder import CassetteReport
from pytest_toolemu.plugin.session import relative_path
from pytest_toolemu.plugin.session_files import SessionFiles
from pytest_toolemu.settings import Settings

_LISTED: Final = 5
_MODES: Final = {
    "none": "no requests are sent; replies are replayed from",
    "once": "replies are replayed, and items without a cassette are recorded, in",
    "new": "replies are replayed, and missing ones are recorded, in",
    "all": "all model calls are recorded again in",
}


def header(settings: Settings, files: SessionFiles) -> list[str]:
    """Say what is resumed, and what is replayed and recorded."""
    lines = []
    if settings.resume:
        lines.append(f"toolemu: {_resuming(settings, files)}")
    if files.cassettes is not None:
        lines.append(f"toolemu: {_MODES[files.cassettes.mode]} {relative_path(files.cassettes.folder)}")
    return lines


def _resuming(settings: Settings, files: SessionFiles) -> str:
    resumable = files.resumable_sessions
    if resumable is None:
        return f"nothing to resume: no session in {settings.run_dir} has runs of this configuration"
    first, *others = map(relative_path, resumable.folders)
    also = f" and the sessions that it resumed ({', '.join(others)})" if others else ""
    rerun = f"; {' and '.join(sorted(resumable.again))} runs are repeated" if resumable.again else ""
    return f"resuming {first}{also}: {counted(resumable.count(), 'run')}{rerun}"


def summary(runs: list[RunSummary], cassettes: CassetteReport | None) -> list[str]:
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
