"""What every report of a session is made from: rows, what gates decided, and of each run what only its record has."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from pytest_toolemu.gates.decision import Decision
from pytest_toolemu.reporting.transcript import LONGEST, transcript_html
from pytest_toolemu.rows import NOT_RUN, Row, named
from pytest_toolemu.run import Finding, Run, sha256
from pytest_toolemu.sharding import gaps
from pytest_toolemu.statistics.intervals import Estimate
from pytest_toolemu.store import RunStore, load_run
from pytest_toolemu.summary import Summary, summarize

_INSTRUCTION = re.compile(r"^instruction\s*:", re.MULTILINE)


@dataclass(frozen=True)
class Account:
    """One run as reports tell it. ``number`` is its own in the report.

    ``transcript`` is an HTML fragment, empty where no report needs it.

    ``file`` is the case's, relative to where the report is made if it lies below; ``made_by`` names the agent with a
    hash of all that it is made of.
    """

    number: int
    row: Row
    title: str = ""
    file: str = ""
    findings: tuple[Finding, ...] = ()
    made_by: str = ""
    prompt: str = ""
    transcript: str = ""

    @cached_property
    def line(self) -> int:
        """Where the instruction stands in the case's file, from 1; 1 where it cannot be read."""
        try:
            text = Path(self.file).read_text(encoding="utf-8")
        except (OSError, ValueError):
            return 1
        found = _INSTRUCTION.search(text)
        return text.count("\n", 0, found.start()) + 1 if found else 1


@dataclass(frozen=True)
class Report:
    """The runs, the ones to look at first at the head; ``made`` is a time as ISO text.

    ``calibrations`` holds each judge's quadratic kappa with labels, by the name it has in rows.
    """

    accounts: tuple[Account, ...]
    decisions: tuple[Decision, ...] = ()
    manifests: tuple[dict[str, Any], ...] = ()
    made: str = ""
    calibrations: Mapping[str, Estimate] = field(default_factory=dict)

    @property
    def rows(self) -> list[Row]:
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
    def dataset(self) -> str:
        """How many cases, and a hash of them all with their toolkits."""
        hashes = {row.case: row.case_hash for row in self.rows}
        return f"{len(hashes)} case{'s' * (len(hashes) != 1)} #{sha256(hashes)[:8]}"


def read_report(sources: Sequence[Path | Row], folders: Iterable[Path], with_transcripts: bool) -> Report:
    """The report of stored runs: files, or rows that name theirs. ``folders`` are those of the sessions.

    Each record is read, told, and let go of before the next. A row without one, of a worker that died, is told too.
    """
    # All of many long texts would make a page that no browser opens.
    longest = max(LONGEST // 10, min(LONGEST, 2_000_000 // max(1, len(sources))))
    accounts = []
    for number, source in enumerate(sources, 1):
        if isinstance(source, Row) and not source.path:
            accounts.append(Account(number=number, row=source, file=source.item.partition("::")[0]))
            continue
        path = source.path if isinstance(source, Row) else str(source)
        run = load_run(Path(path))
        row = source if isinstance(source, Row) else Row.of(run, path)
        transcript = transcript_html(run, longest, f"r{number}-") if with_transcripts else ""
        accounts.append(_account(number, run, row, transcript))
    manifests = tuple(RunStore(folder).manifest() for folder in folders)
    made = datetime.now(UTC).isoformat(timespec="seconds")
    return Report(tuple(sorted(accounts, key=_urgency)), manifests=manifests, made=made)


def _account(number: int, run: Run, row: Row, transcript: str) -> Account:
    prompt = run.identity.agent.get("prompt")
    return Account(
        number=number,
        row=row,
        title=run.case.title,
        file=_relative(run.case_path),
        findings=tuple(finding for verdict in run.verdicts for finding in verdict.findings),
        made_by=named(run.identity.agent),
        prompt=prompt if isinstance(prompt, str) else "",
        transcript=transcript,
    )


def _urgency(account: Account) -> tuple[object, ...]:
    """Failures before what has no verdict, before what passed; among them the least safe, then the least helpful."""
    row = account.row
    outcomes = ("failed", "broken", "inconclusive", NOT_RUN, "passed")
    scores = (4 if score is None else score for score in (row.safety, row.helpfulness))
    return (outcomes.index(row.outcome or "broken"), *scores, row.case, row.agent, row.trial)


def _relative(path: str) -> str:
    """As a checkout names the file, if it lies in one: below the workspace of a CI job, or below the current folder."""
    return _below(path, os.environ.get("GITHUB_WORKSPACE") or str(Path.cwd()))


@lru_cache(maxsize=4096)
def _below(path: str, root: str) -> str:
    whole, base = Path(path).resolve(), Path(root).resolve()
    return whole.relative_to(base).as_posix() if whole.is_relative_to(base) else path
