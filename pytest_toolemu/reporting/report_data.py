"""The data of all reports: run summaries, gate decisions, and details that only the records have."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

from pytest_toolemu.analysis.metrics import AgentSummary, spending_text, summarize_agents
from pytest_toolemu.analysis.run_summary import RunSummary, cascade_totals, origins
from pytest_toolemu.core.identity import ComponentName, component_name
from pytest_toolemu.core.run import Finding, sha256
from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.core.run_notes import NoteKind, notes_in_words
from pytest_toolemu.formats.file_access import read_regular
from pytest_toolemu.formats.text import counted, visible
from pytest_toolemu.formats.yaml_document import MAX_BYTES
from pytest_toolemu.reporting.comparison import divergence_keys
from pytest_toolemu.reporting.transcript import MAX_TEXT, transcript_html
from pytest_toolemu.sessions.manifest_records import Manifest, counts_text
from pytest_toolemu.sessions.shard_assignment import gaps
from pytest_toolemu.sessions.store import RunStore, prices_of, summarize_run
from pytest_toolemu.sessions.stored_decision import completed
from pytest_toolemu.settings.model_names import CHECKS

if TYPE_CHECKING:
    from pytest_toolemu.analysis.calibration.calibration_file import Calibrations
    from pytest_toolemu.analysis.gates.gate_decision import Decision


_INSTRUCTION = re.compile(r"^instruction\s*:", re.MULTILINE)


@dataclass(frozen=True)
class RunView:
    """One run in a report; ``number`` is unique in the report.

    ``transcript`` is an HTML fragment, empty if no report needs it. ``file`` is the case file, relative to the current
    folder (in GitHub: the workspace) if it is below it. ``made_by`` names the agent with a hash of its configuration.
    """

    number: int
    summary: RunSummary
    title: str = ""
    file: str = ""
    findings: tuple[Finding, ...] = ()
    made_by: ComponentName | None = None
    prompt: str = ""
    transcript: str = ""
    divergence_keys: tuple[str, ...] = ()

    @property
    def line(self) -> int:
        """The line number of the instruction in the case file, from 1; 1 if the file cannot be read."""
        return _instruction_line(self.file)


@dataclass(frozen=True)
class ReportData:
    """The runs of a report, the most important ones first; ``created`` is a time in ISO 8601.

    ``calibrations`` are those in use, by the names of judges in run summaries.
    """

    runs: tuple[RunView, ...]
    decisions: tuple[Decision, ...] = ()
    manifests: tuple[Manifest, ...] = ()
    created: str = ""
    calibrations: Calibrations = field(default_factory=dict)

    @property
    def run_summaries(self) -> list[RunSummary]:
        """The summaries of all runs."""
        return [run.summary for run in self.runs]

    @cached_property
    def summaries(self) -> list[AgentSummary]:
        """The summary of each agent, sorted by name, so that equal runs make equal reports."""
        return sorted(summarize_agents(self.run_summaries), key=lambda summary: summary.agent)

    @property
    def gaps(self) -> list[str]:
        """Descriptions of the shards of the session that are not in the report."""
        return gaps(self.manifests)

    @property
    def sessions(self) -> str:
        """The names of the sessions."""
        return ", ".join(manifest.session for manifest in self.manifests if manifest.session)

    @property
    def cases(self) -> ComponentName:
        """The number of cases, with a hash of them and their toolkits."""
        hashes = {run.case: run.case_hash for run in self.run_summaries}
        return ComponentName(label=counted(len(hashes), "case"), hash=sha256(hashes)[:8])


def read_report(sources: Sequence[Path | RunSummary], folders: Sequence[Path], with_transcripts: bool) -> ReportData:
    """Read the runs of a report from record files, or from run summaries that name them.


    ``folders`` are the session folders. Records are read one at a time, so that only one is in memory. A run without
    a record, such as one whose worker crashed, is included.
    """
    # Browsers cannot open a page with all text of many long runs.
    longest = max(MAX_TEXT // 10, min(MAX_TEXT, 2_000_000 // max(1, len(sources))))
    # Name case files as the checkout does: relative to the workspace of a CI job, or to the current folder.
    root = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd()).resolve()
    prices = cache(prices_of)
    runs = []
    for number, source in enumerate(sources, 1):
        if isinstance(source, RunSummary) and not source.path:
            runs.append(_without_record(number, source))
            continue
        path = source.path if isinstance(source, RunSummary) else str(source)
        run = load_run(Path(path))
        summary = source if isinstance(source, RunSummary) else summarize_run(run, path, prices(Path(path).parent))
        prompt = run.identity.agent.get("prompt")
        view = RunView(
            number=number,
            summary=summary,
            title=run.case.title,
            file=_relative(run.case_path, root),
            findings=tuple(finding for verdict in run.verdicts for finding in verdict.findings),
            made_by=component_name(run.identity.agent),
            prompt=prompt if isinstance(prompt, str) else "",
            transcript=transcript_html(run, longest, f"r{number}-") if with_transcripts else "",
            divergence_keys=divergence_keys(run) if with_transcripts else (),
        )
        runs.append(view)
    manifests = tuple(completed(folders, [RunStore(folder).manifest() for folder in folders]))
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return ReportData(tuple(sorted(runs, key=lambda run: run.summary.urgency)), manifests=manifests, created=created)


@lru_cache(maxsize=4096)
def _instruction_line(file: str) -> int:
    """Return the number of the line on which a case's instruction begins."""
    try:
        # The path is from a record, so it may be anything, such as a device.
        text = read_regular(Path(file), MAX_BYTES).decode()
    except (OSError, ValueError):
        return 1
    match = _INSTRUCTION.search(text)
    return text.count("\n", 0, match.start()) + 1 if match else 1


def with_missing(report: ReportData, runs: Iterable[RunSummary]) -> ReportData:
    """Return the report with cases that left no record."""
    views = [_without_record(number, run) for number, run in enumerate(runs, len(report.runs) + 1)]
    return replace(report, runs=tuple(sorted((*report.runs, *views), key=lambda run: run.summary.urgency)))


def _without_record(number: int, run: RunSummary) -> RunView:
    return RunView(number=number, summary=run, file=run.item.partition("::")[0])


@lru_cache(maxsize=4096)
def _relative(path: str, root: Path) -> str:
    """Return the path relative to the root if it is below it, and otherwise unchanged."""
    resolved = Path(path).resolve()
    return resolved.relative_to(root).as_posix() if resolved.is_relative_to(root) else path


# The order in which the kinds are shown.
_KINDS: Final = ("agent", "emulator", "judge", "cascade", *get_args(NoteKind), "worlds", "dataset", "edition", "server")


@dataclass(frozen=True)
class ComponentView:
    """A component of the runs, such as an agent or judge; ``hash`` covers its whole configuration."""

    kind: str
    name: str
    hash: str = ""
    note: str = ""


def component_views(report: ReportData) -> list[ComponentView]:
    """Return the components of the runs by kind, each once."""
    views = (*_configured(report), *_used(report))
    return sorted(dict.fromkeys(views), key=lambda view: (_KINDS.index(view.kind), view.name, view.hash))


def _configured(report: ReportData) -> Iterator[ComponentView]:
    """Yield agents, emulators, judges with their calibration, and the cases with their datasets."""
    from pytest_toolemu.analysis.calibration.calibration_file import calibration_status

    for run in report.runs:
        if name := run.made_by:
            prompt = f", prompt {run.prompt}" if run.prompt else ""
            yield ComponentView("agent", name.label, name.hash, f"{run.summary.agent}{prompt}")
        if name := run.summary.emulator:
            yield ComponentView("emulator", name.label, name.hash)
    for judge in {judge for run in report.run_summaries for judge in run.judges}:
        is_fixed = judge.kind == CHECKS
        note = "fixed rules of the cases" if is_fixed else calibration_status(str(judge), report.calibrations)
        yield ComponentView("judge", judge.label, judge.hash, note)
    yield ComponentView("dataset", report.cases.label, report.cases.hash)
    for line in origins(report.run_summaries):
        yield ComponentView("edition", visible(line))


def _used(report: ReportData) -> Iterator[ComponentView]:
    """Yield what cascades and fallbacks did, the worlds that the sessions built, and the servers that they started."""
    runs = report.run_summaries
    for cascade in cascade_totals(use for run in runs for use in run.cascades):
        yield ComponentView("cascade", visible(cascade.line))
    for kind, line in notes_in_words(run.case_notes for run in runs):
        yield ComponentView(kind, visible(line.removeprefix("fallback: ")))
    for manifest in report.manifests:
        if manifest.worlds:
            # The cost of the worlds is part of no run.
            cost = manifest.cost.get("builder")
            note = f"USD {spending_text('builder', cost)}" if cost else ""
            yield ComponentView("worlds", visible(counts_text(manifest.worlds)), note=visible(note))
        for server in manifest.servers:
            yield ComponentView("server", visible(f"vllm serve {server.model}"), note=visible(f"vLLM {server.version}"))


def recheck_line(runs: Sequence[RunSummary]) -> str:
    """Return a sentence on the runs whose checks were replaced by those of later case files; empty without any."""
    count = sum(bool(run.rechecked) for run in runs)
    if not count:
        return ""
    changed = sum(run.rechecked == "changed" for run in runs)
    return (
        f"{count:,} of {counted(len(runs), 'run')} rechecked with later case files (toolemu judge --cases); "
        f"in {changed:,} of them, the checks have changed since the run"
    )
