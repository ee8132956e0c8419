"""What earlier sessions have finished, so that it need not be done again."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.core.case import Metric
from pytest_toolemu.core.run import Run, decide
from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.errors import UsageError
from pytest_toolemu.sessions.reader import manifest_of
from pytest_toolemu.sessions.store import MANIFEST, RunStore, item_hash, item_hash_of, run_file
from pytest_toolemu.settings import LATEST, Settings

RESUMED: Final = "resumed_from"
"""In a manifest: the folders whose runs the session may have taken over, nearest first."""

# Settings that make other runs, or runs of other cases. The key of each run decides; these choose the session.
SAME: Final = (
    "agent", "prompt", "protocol", "emulator", "emulator-mode", "evaluator", "checks", "helpfulness", "max-steps",
    "max-tokens", "seed", "temperature", "max-output-tokens", "vllm-args", "vllm-lora", "record", "replay", "shard",
)  # fmt: skip


@dataclass(frozen=True)
class ResumableSessions:
    """Folders of earlier sessions, nearest first: the one that is resumed, then those that it resumed itself.

    ``again`` are the outcomes that are not taken over, ``plays_only`` tells that this session asks no model.
    """

    folders: tuple[Path, ...]
    again: frozenset[str]
    plays_only: bool = False
    unreadable: dict[Path, str] = field(default_factory=dict)
    """Files that should hold a run and do not, with the reason: their cases are run again."""

    @classmethod
    def of(cls, folders: Iterable[Path], settings: Settings) -> ResumableSessions | None:
        """What these folders hold, for a session with these settings; None without any."""
        found = tuple(folders)
        again = frozenset(settings.resume_again) - {"none"}
        return cls(found, again, settings.plays_only) if found else None

    def find(self, case_id: str, key: str, item: str, thresholds: Mapping[Metric, int]) -> Run | None:
        """The finished run of this item with this very key, judged by today's thresholds; None when it has to be made.

        Cheap: one file is looked for by its name in each folder. Replayed runs are no news about a model, so a session
        that asks models does not take them over.
        """
        for folder in self.folders:
            path = folder / run_file(case_id, key, item)
            if not path.is_file():
                continue
            try:
                run = load_run(path)
            except UsageError as error:
                self.unreadable[path] = str(error)
                continue
            played = any(exchange.replayed for exchange in run.exchanges)
            if run.key != key or run.outcome in self.again or (played and not self.plays_only):
                continue
            run = rejudged(run, thresholds)
            return run.model_copy(update={"source": "resumed", RESUMED: run.resumed_from or folder.name})
        return None

    def probable(self, items: Sequence[str]) -> list[int]:
        """Return the indices of the items that have a run in the folders, of whatever key and outcome."""
        known = {item_hash_of(path.name) for folder in self.folders for path in RunStore(folder).paths()}
        return [index for index, item in enumerate(items) if item_hash(item) in known]

    def names(self, parent: Path) -> list[str]:
        """The folders as seen from the folder of all sessions, for a manifest."""
        return [os.path.relpath(folder, parent) for folder in self.folders]

    def count(self) -> int:
        """How many runs are in the folders, of whatever outcome."""
        return len({path.name for folder in self.folders for path in RunStore(folder).paths()})


def resumable_sessions(parent: Path, bases: Iterable[Path], settings: Settings) -> ResumableSessions | None:
    """Return what ``--toolemu-resume`` asks for; None if there is nothing to take over. UsageError for no session.

    A relative folder is looked for in each of ``bases``. A session that was stopped before any run had ended is resumed
    by running everything.
    """
    given = settings.resume
    if given is None:
        return None
    if given == LATEST:
        folder = newest(parent, settings)
        return ResumableSessions.of(_chain(folder) if folder else (), settings)
    named = next((folder for base in bases if (folder := base / given).is_dir()), Path(given))
    folders = _chain(named)
    if not folders and not (named / MANIFEST).is_file():
        raise UsageError(
            f"--toolemu-resume: {given} holds no runs; name the folder of a session, or write "
            f"--toolemu-resume={LATEST} if {given} is what to test"
        )
    return ResumableSessions.of(folders, settings)


def newest(parent: Path, settings: Settings) -> Path | None:
    """The newest session of the folder that was made with the same settings and has runs, its own or resumed."""
    wanted = _chosen(settings.as_json())
    for manifest in sorted(parent.glob(f"*/{MANIFEST}"), reverse=True):
        with contextlib.suppress(UsageError):  # of which configuration it was is not known
            if _chosen(manifest_of(manifest.parent).get("settings", {})) == wanted and _chain(manifest.parent):
                return manifest.parent
    return None


def rejudged(run: Run, thresholds: Mapping[Metric, int]) -> Run:
    """The run with its scores held against other thresholds. What has no verdict never passes by that."""
    if run.thresholds == thresholds or run.outcome == "broken":
        return run
    outcome, reasons = decide(run.verdicts, thresholds)
    if run.outcome == "inconclusive" and outcome != "failed":
        outcome, reasons = run.outcome, run.reasons
    return run.model_copy(update={"thresholds": dict(thresholds), "outcome": outcome, "reasons": reasons})


def _chain(folder: Path) -> tuple[Path, ...]:
    """The folder and those that it was resumed from, as far as they hold runs."""
    others = [folder.parent / name for name in manifest_of(folder).get(RESUMED, ())]
    return tuple(found for found in (folder, *others) if next(RunStore(found).paths(), None))


def _chosen(settings: Mapping[str, Any]) -> list[Any]:
    """The values that make other runs, as JSON has them; what a session did not know was not chosen."""
    values = [(settings.get(name) or [None])[0] for name in SAME]
    return list(json.loads(json.dumps(values)))
