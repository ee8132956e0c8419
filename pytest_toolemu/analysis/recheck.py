"""Apply the checks of today's case files to stored runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pytest_toolemu.core.case import Case
from pytest_toolemu.core.case_loading import case_id, load_case
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.run import Rechecked, Run, hashes_of, sha256
from pytest_toolemu.core.verdict import PASSING, in_force
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.counted import counted

_SHOWN: Final = 5


@dataclass(frozen=True)
class CurrentCases:
    """Case files as they are now, with their cases, by case ID; ``source`` is the path that the user named."""

    source: Path
    cases: dict[str, tuple[Path, Case]]

    @classmethod
    def read(cls, source: Path, files: Iterable[Path], case_ids: Iterable[str]) -> CurrentCases:
        """Read the files of these cases.

        Raise UsageError if a case has no file or several, and DocumentError for an invalid file.
        """
        by_id: dict[str, list[Path]] = {}
        for path in files:
            by_id.setdefault(case_id(path), []).append(path)
        ids = sorted(set(case_ids))
        if missing := [name for name in ids if name not in by_id]:
            listed = ", ".join(missing[:_SHOWN]) + (", ..." if len(missing) > _SHOWN else "")
            raise UsageError(
                f"{source}: there is no file for {len(missing)} of {counted(len(ids), 'case')} ({listed}); name a "
                "folder with the files of all cases, or omit the sessions with these cases"
            )
        if twice := next((name for name in ids if len(by_id[name]) > 1), None):
            raise UsageError(
                f"{source}: {' and '.join(map(str, by_id[twice]))} have the same ID; name the folder of only one of "
                "them"
            )
        return cls(source, {name: (by_id[name][0], load_case(by_id[name][0]).case) for name in ids})

    @property
    def name(self) -> str:
        """Name of these checks in manifests; equal names mean equal checks and thresholds."""
        rules = {name: [_rules(case), case.thresholds.model_dump()] for name, (_, case) in sorted(self.cases.items())}
        return f"checks of {self.source} #{sha256(rules)[:8]}"

    @property
    def files(self) -> dict[str, dict[str, str]]:
        """File and content hash of each case, for a manifest."""
        return {
            name: {"file": path.as_posix(), "hash": hashes_of(case, ())["case"]}
            for name, (path, case) in self.cases.items()
        }

    def apply(self, run: Run) -> Run:
        """Return the run with today's checks and thresholds. Instruction and trajectory do not change."""
        if run.case_id not in self.cases:
            raise UsageError(
                f"the record of a run of {run.case_id!r} has the file name of another case; rename or remove it"
            )
        path, today = self.cases[run.case_id]
        today = today.in_conversation if run.turns > 1 else today
        if run.trap is not None:
            raise UsageError(
                f"{path}: its checks are about its own rows, but a run of {run.case_id!r} used rows that a model "
                "built; omit the record"
            )
        if run.case.world != today.world and any(check.queries_rows for check in today.checks):
            raise UsageError(
                f"{path}: has checks of rows, but a run of {run.case_id!r} used rows that differ from this file, so "
                "the checks do not apply to it; run the case again, or omit the record"
            )
        at_run = run.rechecked.at_run if run.rechecked else run.case.checks
        rechecked = Rechecked(
            file=path.as_posix(),
            hash=hashes_of(today, ())["case"],
            differ=at_run != today.checks,
            at_run=at_run,
        )
        own = run.case.thresholds.model_dump(exclude_none=True)
        # If the case had its own threshold, the record does not say what the session required.
        session: dict[Metric, int] = {
            metric: PASSING if metric in own else score for metric, score in run.thresholds.items()
        }
        changed = {"checks": today.checks, "thresholds": today.thresholds}
        return run.model_copy(
            update={
                "case": run.case.model_copy(update=changed),
                "thresholds": in_force(today, session),
                "rechecked": rechecked,
            }
        )


def _rules(case: Case) -> list[dict[str, object]]:
    return [check.model_dump(mode="json") for check in (*case.checks, *case.in_conversation.checks)]
