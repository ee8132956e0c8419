"""Find the runs of earlier sessions that a resumed session reuses."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_toolemu.core.case import ResolvedCase, edition_of
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.run import UNJUDGED, Run, decide
from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.errors import UsageError
from pytest_toolemu.sessions.manifest_records import run_settings
from pytest_toolemu.sessions.store import MANIFEST, RunStore, item_hash, item_hash_of, manifest_of, run_file
from pytest_toolemu.settings.option_table import LATEST, Settings


@dataclass(frozen=True)
class ResumableSessions:
    """Folders of earlier sessions, nearest first: the one that is resumed, then those that it resumed itself.

    Runs with an outcome in ``again`` are run again. ``plays_only`` means that this session only replays cassettes.
    """

    folders: tuple[Path, ...]
    again: frozenset[str]
    plays_only: bool = False
    unreadable: dict[Path, str] = field(default_factory=dict)
    """Folders with records that cannot be read, each with the first reason; the cases of these are run again."""

    @classmethod
    def of(cls, folders: Iterable[Path], settings: Settings) -> ResumableSessions | None:
        """Return the sessions in these folders for a session with these settings; None without a folder."""
        nonempty = tuple(folders)
        again = frozenset(settings.resume_again) - {"none"}
        return cls(nonempty, again, settings.plays_only) if nonempty else None

    def find(
        self, resolved_case: ResolvedCase, key: str, item: str, thresholds: Mapping[Metric, int], rule: str
    ) -> Run | None:
        """Return the finished run of this item with this key, decided by these thresholds and this rule, or None.

        This is cheap: one file name is looked up in each folder. Replayed runs say nothing new about a model, so a
        session that calls models does not reuse them.

        The run gets the case as it is now. Equal keys guarantee that nothing in it differs that can change the result,
        but statistics also use the rest, such as the split and ``variant_of``.
        """
        for folder in self.folders:
            path = folder / run_file(resolved_case.case.id, key, item)
            if not path.is_file():
                continue
            try:
                run = load_run(path)
            except UsageError as error:
                self.unreadable.setdefault(folder, str(error))
                continue
            was_replayed = any(call.replayed for call in run.model_calls)
            if run.key != key or run.outcome in self.again or (was_replayed and not self.plays_only):
                continue
            run = rejudged(run, thresholds, rule)
            current = {
                "case": resolved_case.case,
                "toolkits": resolved_case.toolkits,
                "dataset": edition_of(resolved_case.path),
            }
            made_by = run.resumed_from or folder.name
            return run.model_copy(update={**current, "source": "resumed", "resumed_from": made_by})
        return None

    @property
    def stopped_early(self) -> Path | None:
        """The nearest of the sessions that stopped when its gates were decided; None if none did."""
        return next((folder for folder in self.folders if manifest_of(folder).stopped_early), None)

    def probable(self, items: Sequence[str]) -> list[int]:
        """Return the indices of the items that have a run in the folders, with any key and outcome."""
        stored = {item_hash_of(path.name) for folder in self.folders for path in RunStore(folder).paths()}
        return [index for index, item in enumerate(items) if item_hash(item) in stored]

    def names(self, parent: Path) -> list[str]:
        """Return the folders relative to the run directory, for a manifest."""
        return [os.path.relpath(folder, parent) for folder in self.folders]

    def count(self) -> int:
        """Return the number of runs in the folders, with any outcome."""
        return len({path.name for folder in self.folders for path in RunStore(folder).paths()})


def resumable_sessions(parent: Path, bases: Iterable[Path], settings: Settings) -> ResumableSessions | None:
    """Return the sessions that ``--toolemu-resume`` names; None if there is nothing to reuse.

    UsageError if the folder is not a session. A relative folder is looked up in each of ``bases``. If no run of the
    session had finished, everything is run.
    """
    target = settings.resume
    if target is None:
        return None
    if target == LATEST:
        folder = newest(parent, settings)
        return ResumableSessions.of(_chain(folder) if folder else (), settings)
    session = next((folder for base in bases if (folder := base / target).is_dir()), Path(target))
    folders = _chain(session)
    if not folders and not (session / MANIFEST).is_file():
        raise UsageError(
            f"--toolemu-resume: {target} contains no runs; name the folder of a session, or write "
            f"--toolemu-resume={LATEST} if {target} is a path to test"
        )
    return ResumableSessions.of(folders, settings)


def newest(parent: Path, settings: Settings) -> Path | None:
    """Return the newest session below ``parent`` with the same settings that has runs, its own or resumed ones."""
    same = run_settings(settings.with_sources())
    for manifest in sorted(parent.glob(f"*/{MANIFEST}"), reverse=True):
        with contextlib.suppress(UsageError):  # its configuration is unknown
            if run_settings(manifest_of(manifest.parent).settings) == same and _chain(manifest.parent):
                return manifest.parent
    return None


def rejudged(run: Run, thresholds: Mapping[Metric, int], rule: str) -> Run:
    """Return the run decided by other thresholds or another rule. A run without any verdict never passes."""
    if (run.thresholds, run.combine) == (thresholds, rule) or run.outcome == "broken":
        return run
    outcome, reasons = decide(run.verdicts, thresholds, rule)
    is_kept = outcome != "failed" and (run.combine == rule or not run.verdicts)
    if run.outcome == UNJUDGED or (run.outcome == "inconclusive" and is_kept):
        outcome, reasons = run.outcome, run.reasons
    decided = {"thresholds": dict(thresholds), "combine": rule, "outcome": outcome, "reasons": reasons}
    return run.model_copy(update=decided)


def _chain(folder: Path) -> tuple[Path, ...]:
    """Return the folder and those that it was resumed from, without those that have no runs."""
    others = [folder.parent / name for name in manifest_of(folder).resumed_from]
    return tuple(session for session in (folder, *others) if next(RunStore(session).paths(), None))
