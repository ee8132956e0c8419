"""Samples of runs to label. Drawing one reads every record of its session, so the latest ones are kept."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.analysis.calibration.label_sheet import LabelSheet, label_file
from pytest_toolemu.analysis.calibration.labeled_runs import sample_runs
from pytest_toolemu.sessions.reader import read_runs

_KEPT: Final = 8

Sample = list[tuple[Path, str]]


class LabelSamples:
    """Draws samples; for use by several threads. ``folder`` has the label files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._saving = threading.Lock()
        self._samples: OrderedDict[tuple[Path, int, int, int], Sample] = OrderedDict()

    def sheet(self, session: Path, annotator: str, size: int, seed: int) -> LabelSheet:
        """Return what an annotator is asked to label. UsageError for a name that cannot be a file name."""
        file = label_file(self.folder, annotator)
        key = (session, size, seed, session.stat().st_mtime_ns)
        with self._lock:
            if key not in self._samples:
                self._samples[key] = sample_runs(read_runs([session]), size, seed)
                while len(self._samples) > _KEPT:
                    self._samples.popitem(last=False)
            self._samples.move_to_end(key)
            return LabelSheet(self._samples[key], file)

    def save(self, sheet: LabelSheet, index: int, answers: Mapping[str, Any]) -> None:
        """Write the label of a run. One thread at a time, because the other labels of the file are written again."""
        with self._saving:
            sheet.save(index, answers)

    def files(self) -> list[Path]:
        """Return the label files, sorted."""
        return sorted(path for path in self.folder.glob("*") if path.suffix in (".jsonl", ".csv") and path.is_file())
