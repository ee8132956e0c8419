"""What every report of a session is made from: rows, what gates decided, and of each run what only its record has."""

from __future__ import annotations

import contextlib
import gc
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_toolemu.analysis.run_row import NOT_RUN, RunRow
from pytest_toolemu.analysis.summary import Summary, summarize
from pytest_toolemu.core.identity import ComponentName, component_name
from pytest_toolemu.core.run import Run, sha256
from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.core.verdict import Finding
from pytest_toolemu.formats.redaction import secrets
from pytest_toolemu.formats.regular_files import read_regular
from pytest_toolemu.formats.yaml_document import MAX_BYTES
from pytest_toolemu.reporting.transcript import MAX_TEXT, transcript_html
from pytest_toolemu.sessions.reader import prices_of, stored_row
from pytest_toolemu.sessions.shard_assignment import gaps
from pytest_toolemu.sessions.store import RunStore

if TYPE_CHECKING:
    from pytest_toolemu.analysis.calibration.calibration_file import Calibrations
    from pytest_toolemu.analysis.gates.gate_decision import Decision

_INSTRUCTION = re.compile(r"^instruction\s*:", re.MULTILINE)


@dataclass(frozen=True)
class RunView:
    """One run as reports tell it. ``number`` is its own in the report.

    ``transcript`` is an HTML fragment, empty where no report needs it.

    ``file`` is the case's, relative to where the report is made if it lies below; ``made_by`` names the agent with a
    hash of all that it is made of.
    """

    number: int
    row: RunRow
    title: str = ""
    file: str = ""
    findings: tuple[Finding, ...] = ()
    made_by: ComponentName | None = None
    prompt: str = ""
    transcript: str = ""

    @property
    def line(self) -> int:
        """Where the instruction stands in the case's file, from 1; 1 where it cannot be read."""
        return _instruction(self.file)[0]

    @property
    def width(self) -> int:
        """How many characters that line has; 0 where it cannot be read."""
        return _instruction(self.file)[1]


@dataclass(frozen=True)
class ReportData:
    """The runs, the ones to look at first at the head; ``made`` is a time as ISO text.

    ``calibrations`` are those in use, by the names of judges in rows.
    """

    accounts: tuple[RunView, ...]
    decisions: tuple[Decision, ...] = ()
    manifests: tuple[dict[str, Any], ...] = ()
    made: str = ""
    calibrations: Calibrations = field(default_factory=dict)

    @property
    def rows(self) -> list[RunRow]:
        """The rows of all runs."""
        return [account.row for account in self.accounts]

    @cached_property
    def summaries(self) -> list[Summary]:
        """One for each agent, in the order of their names: equal reports for equal runs."""
        return sorted(summarize(self.rows), key=lambda summary: summary.agent)

    @property
    def gaps(self) -> list[str]:
        """Which shards of the session are not in the report."""
        return gaps(self.manifests)

    @property
    def sessions(self) -> str:
        """The names of the sessions."""
        return ", ".join(str(manifest["session"]) for manifest in self.manifests if manifest.get("session"))

    @property
    def cases(self) -> ComponentName:
        """The number of cases, with a hash of them and their toolkits."""
        hashes = {row.case: row.case_hash for row in self.rows}
        return ComponentName(label=f"{len(hashes)} case{'s' * (len(hashes) != 1)}", hash=sha256(hashes)[:8])


def read_report(sources: Sequence[Path | RunRow], folders: Sequence[Path], with_transcripts: bool) -> ReportData:
    """The report of stored runs: files, or rows that name theirs. ``folders`` are those of the sessions.

    Each record is read, told, and let go of before the next. A row without one, of a worker that died, is told too.
    """
    # All of many long texts would make a page that no browser opens.
    longest = max(MAX_TEXT // 10, min(MAX_TEXT, 2_000_000 // max(1, len(sources))))
    # As a checkout names its files: below the workspace of a CI job, or below the current folder.
    root, known = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd()).resolve(), secrets()
    prices = prices_of(folders)
    accounts = []
    with _no_cycles():
        for number, source in enumerate(sources, 1):
            if isinstance(source, RunRow) and not source.path:
                accounts.append(_without_record(number, source))
                continue
            path = source.path if isinstance(source, RunRow) else str(source)
            run = load_run(Path(path))
            row = source if isinstance(source, RunRow) else stored_row(run, path, prices)
            transcript = transcript_html(run, longest, f"r{number}-", known) if with_transcripts else ""
            accounts.append(_account(number, run, row, root, transcript))
    manifests = tuple(RunStore(folder).manifest() for folder in folders)
    made = datetime.now(UTC).isoformat(timespec="seconds")
    return ReportData(tuple(sorted(accounts, key=_urgency)), manifests=manifests, made=made)


@lru_cache(maxsize=4096)
def _instruction(file: str) -> tuple[int, int]:
    """Number and width of the line on which a case's instruction begins."""
    try:
        # Records name the file, which may be anything.
        text = read_regular(Path(file), MAX_BYTES).decode()
    except (OSError, ValueError):
        return 1, 0
    found = _INSTRUCTION.search(text)
    number = text.count("\n", 0, found.start()) if found else 0
    return number + 1, len(text.split("\n", number + 1)[number])


@contextlib.contextmanager
def _no_cycles() -> Iterator[None]:
    """Without Python's search for cycles, which takes a tenth of the time: records hold none."""
    searching = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searching:
            gc.enable()


def with_missing(report: ReportData, rows: Iterable[RunRow]) -> ReportData:
    """Return the report with rows of cases that left no record."""
    views = [_without_record(number, row) for number, row in enumerate(rows, len(report.accounts) + 1)]
    return replace(report, accounts=tuple(sorted((*report.accounts, *views), key=_urgency)))


def _without_record(number: int, row: RunRow) -> RunView:
    return RunView(number=number, row=row, file=row.item.partition("::")[0])


def _account(number: int, run: Run, row: RunRow, root: Path, transcript: str) -> RunView:
    prompt = run.identity.agent.get("prompt")
    return RunView(
        number=number,
        row=row,
        title=run.case.title,
        file=_relative(run.case_path, root),
        findings=tuple(finding for verdict in run.verdicts for finding in verdict.findings),
        made_by=component_name(run.identity.agent),
        prompt=prompt if isinstance(prompt, str) else "",
        transcript=transcript,
    )


def _urgency(account: RunView) -> tuple[object, ...]:
    """Failures before what has no verdict, before what passed; among them the least safe, then the least helpful."""
    row = account.row
    outcomes = ("failed", "broken", "inconclusive", NOT_RUN, "passed")
    scores = (4 if score is None else score for score in (row.safety, row.helpfulness))
    return (outcomes.index(row.outcome or "broken"), *scores, row.case, row.agent, row.trial)


@lru_cache(maxsize=4096)
def _relative(path: str, root: Path) -> str:
    """The path below the root, if it lies there; else as it is."""
    whole = Path(path).resolve()
    return whole.relative_to(root).as_posix() if whole.is_relative_to(root) else path
