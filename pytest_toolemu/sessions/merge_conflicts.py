"""Which record stands for a run that several sessions have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_toolemu.core.run import Run
from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.sessions.merge_parts import ShardPart

# What two records of one and the same attempt may differ in: who took it over, and against what it was held since.
_PROVENANCE = {"source", "resumed_from", "recording", "thresholds", "outcome", "reasons"}


@dataclass(frozen=True)
class Chosen:
    """The record that stands; ``conflict`` tells of another finished one, empty where there is none."""

    path: Path
    conflict: str = ""


def choose(name: str, parts: Sequence[ShardPart]) -> Chosen:
    """Of all records of one run: what a session that resumed the others has; else the one that ended before one that
    broke; else the one made first, whatever came of it. The result never decides, or chance would be given a direction.
    """
    having = [part for part in parts if name in part.files]
    latest = [part for part in having if not any(other.resumes(part) for other in having)] or having
    paths = [part.files[name] for part in latest]
    if len(paths) == 1:
        return Chosen(paths[0])
    runs = [(load_run(path), path) for path in paths]
    ended = [pair for pair in runs if pair[0].outcome != "broken"] or runs
    ended.sort(key=lambda pair: (pair[0].started, str(pair[1])))
    first, path = ended[0]
    others = [pair for pair in ended[1:] if _attempt(pair[0]) != _attempt(first)]
    if first.outcome == "broken" or not others:
        return Chosen(path)
    told = ", ".join(f"{run.outcome} in {at.parent}" for run, at in others)
    return Chosen(path, f"{name}: made more than once: {first.outcome} in {path.parent}, which is kept, and {told}")


def _attempt(run: Run) -> dict[str, Any]:
    return run.model_dump(mode="json", exclude=_PROVENANCE)
