"""Choose the record of a run that several sessions have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_toolemu.core.run import Run
from pytest_toolemu.core.run_file import load_run

# Fields in which two records of the same attempt may differ: who resumed it, which thresholds decided it since, and
# what a resumed session updates of the case.
_PROVENANCE = {
    "source", "resumed_from", "recording", "thresholds", "outcome", "reasons", "case", "toolkits", "dataset",
}  # fmt: skip


@dataclass(frozen=True)
class ChosenRecord:
    """The record that counts; ``conflict`` names other finished ones of the same run, and is empty if there is none."""

    path: Path
    conflict: str = ""


def choose(name: str, paths: Sequence[Path]) -> ChosenRecord:
    """Choose among all records with this file name.

    A finished run takes precedence over a broken one, then the earlier run over the later one. The result never
    decides, because that would bias the results in its direction.
    """
    if len(paths) == 1:
        return ChosenRecord(paths[0])
    runs = [(load_run(path), path) for path in paths]
    finished = [pair for pair in runs if pair[0].outcome != "broken"] or runs
    finished.sort(key=lambda pair: (pair[0].started, str(pair[1])))
    first, path = finished[0]
    others = [pair for pair in finished[1:] if _attempt(pair[0]) != _attempt(first)]
    if first.outcome == "broken" or not others:
        return ChosenRecord(path)
    listed = ", ".join(f"{run.outcome} in {at.parent}" for run, at in others)
    return ChosenRecord(
        path, f"{name}: run more than once: {first.outcome} in {path.parent}, which is kept, and {listed}"
    )


def _attempt(run: Run) -> dict[str, Any]:
    return run.model_dump(mode="json", exclude=_PROVENANCE)
