"""The data of all reports: run summaries, gate decisions, and details that only the records have."""

from __future__ import annotations

import contextlib
import gc
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_toolemu.analysis.agent_summary import AgentSummary, summarize_agents
from pytest_toolemu.analysis.run_summary import RunSummary
from pytest_toolemu.core.identity import ComponentName, component_name
from pytest_toolemu.core.run import Run, sha256
from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.core.verdict import Finding
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.files.regular_files import read_regular
from pytest_toolemu.formats.yaml_document import MAX_BYTES
from pytest_toolemu.reporting.comparison.first_divergence import divergence_keys
from pytest_toolemu.reporting.transcript import MAX_TEXT, transcript_html
from pytest_toolemu.sessions.manifest_records import Manifest
from pytest_toolemu.sessions.planned_cases import completed
from pytest_toolemu.sessions.reader import prices_of, summarize_run
from pytest_toolemu.sessions.shard_assignment import gaps
from pytest_toolemu.sessions.store import RunStore

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
    with garbage_collection_paused():
        for number, source in enumerate(sources, 1):
            if isinstance(source, RunSummary) and not source.path:
                runs.append(_without_record(number, source))
                continue
            path = source.path if isinstance(source, RunSummary) else str(source)
            run = load_run(Path(path))
            summary = source if isinstance(source, RunSummary) else summarize_run(run, path, prices(Path(path).parent))
            view = _run_view(number, run, summary, root)
            if with_transcripts:
                transcript = transcript_html(run, longest, f"r{number}-")
                view = replace(view, transcript=transcript, divergence_keys=divergence_keys(run))
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


@contextlib.contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Pause the cyclic garbage collector, which takes a tenth of the time although records have no cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def with_missing(report: ReportData, runs: Iterable[RunSummary]) -> ReportData:
    """Return the report with cases that left no record."""
    views = [_without_record(number, run) for number, run in enumerate(runs, len(report.runs) + 1)]
    return replace(report, runs=tuple(sorted((*report.runs, *views), key=lambda run: run.summary.urgency)))


def _without_record(number: int, run: RunSummary) -> RunView:
    return RunView(number=number, summary=run, file=run.item.partition("::")[0])


def _run_view(number: int, run: Run, summary: RunSummary, root: Path) -> RunView:
    prompt = run.identity.agent.get("prompt")
    return RunView(
        number=number,
        summary=summary,
        title=run.case.title,
        file=_relative(run.case_path, root),
        findings=tuple(finding for verdict in run.verdicts for finding in verdict.findings),
        made_by=component_name(run.identity.agent),
        prompt=prompt if isinstance(prompt, str) else "",
    )


@lru_cache(maxsize=4096)
def _relative(path: str, root: Path) -> str:
    """Return the path relative to the root if it is below it, and otherwise unchanged."""
    resolved = Path(path).resolve()
    return resolved.relative_to(root).as_posix() if resolved.is_relative_to(root) else path
