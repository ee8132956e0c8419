"""Makes runs of ours out of recorded trajectories and their evaluations, so that everything that reads runs reads them.

Recorded runs have no messages, no usage and no times: the files hold none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.authoring.import_evaluations import read_evaluation, read_evaluations
from pytest_toolemu.authoring.import_files import Line, Name, complain, quantized, read_lines
from pytest_toolemu.authoring.import_trajectories import Recorded, read_trajectory
from pytest_toolemu.case import SUFFIX as CASE_SUFFIX
from pytest_toolemu.case import Metric
from pytest_toolemu.documents import show
from pytest_toolemu.errors import UsageError
from pytest_toolemu.rows import PASSING
from pytest_toolemu.run import Identity, Run, Verdict, decide, hashes_of, run_key
from pytest_toolemu.store import RunStore
from pytest_toolemu.toolkit import SUFFIX as TOOLKIT_SUFFIX
from pytest_toolemu.toolkit import Toolkit, load_toolkit

ORIGIN: Final = "imported from"
"""Key in ``versions`` of an imported run, and in the manifest of a store of them: the file, and of a run the line."""

# The rubrics of the sample that has trajectories and evaluations in one record.
_RUBRICS: Final[dict[str, tuple[str, Metric]]] = {
    "safety": ("", "safety"),
    "helpfulness": ("", "helpfulness"),
    "helpfulness_ignore_safety": (" ignoring safety", "helpfulness"),
}


def load_toolkits(folder: Path) -> dict[str, Toolkit]:
    """The toolkits that ``toolemu import toolemu`` wrote below the folder; UsageError when there are none."""
    paths = sorted((folder / "toolkits").glob(f"*{TOOLKIT_SUFFIX}"))
    if not paths:
        raise UsageError(
            f"{folder / 'toolkits'}: no toolkits; run 'toolemu import toolemu ASSETS FOLDER' first and name that FOLDER"
        )
    return {path.name.removesuffix(TOOLKIT_SUFFIX): load_toolkit(path) for path in paths}


def import_runs(file: Path, folder: Path, evaluations: Iterable[Path] = ()) -> list[Run]:
    """One run for each line of the file, in its order; ``folder`` is what ``toolemu import toolemu`` wrote.

    UsageError names every line that is broken: a file is imported whole or not at all.
    """
    lines = read_lines(file)
    toolkits = load_toolkits(folder)
    judged = [read_evaluations(path, len(lines)) for path in evaluations]
    runs: list[Run] = []
    problems: list[str] = []
    trials: Counter[tuple[str, str]] = Counter()
    for index, line in enumerate(lines):
        try:
            part = _part(line, toolkits, [file.of(index) for file in judged])
        except ValueError as error:
            problems.append(f"{line}: {error}")
            continue
        trials[part.agent, part.recorded.case.id] += 1
        runs.append(_run(part, trials[part.agent, part.recorded.case.id], folder))
    complain(problems)
    return runs


def write_runs(runs: Sequence[Run], target: Path) -> None:
    """Add runs to a store of imported ones; UsageError when the folder holds the runs of a session."""
    store = RunStore(target)
    manifest = store.manifest()
    if manifest and ORIGIN not in manifest:
        raise UsageError(f"{target}: holds the runs of a session; name another folder")
    target.mkdir(parents=True, exist_ok=True)
    for run in runs:
        store.put(run)
    files = {run.versions[ORIGIN].rpartition(":")[0] for run in runs}
    store.put_manifest({"session": target.name, ORIGIN: sorted(files | set(manifest.get(ORIGIN, ())))})


@dataclass(frozen=True)
class _Part:
    """One line, read."""

    line: Line
    recorded: Recorded
    agent: str
    emulator: str
    verdicts: tuple[Verdict, ...]


def _part(line: Line, toolkits: Mapping[str, Toolkit], judged: list[tuple[Verdict, ...]]) -> _Part:
    record = line.record
    verdicts = tuple(verdict for found in judged for verdict in found)
    if "trajectory" not in record:
        name = Name.of(line.path)
        agent = str(record.get("agent_llm") or name.agent)
        return _Part(line, read_trajectory(record, toolkits), agent, name.emulator, verdicts)
    if not isinstance(record["trajectory"], dict):
        raise ValueError(f"'trajectory' is {show(record['trajectory'])}, not an object")
    return _Part(
        line,
        read_trajectory(record["trajectory"], toolkits),
        quantized(str(record.get("agent_model", "unknown")), record.get("quantization")),
        str(record.get("emulator_model", "unknown")),
        (*verdicts, *_own_verdicts(record.get("evaluations", {}))),
    )


def _own_verdicts(evaluations: Any) -> Iterable[Verdict]:
    """The evaluations in the record itself: by evaluator, then by rubric."""
    try:
        return [
            read_evaluation(record, f"{evaluator}{_RUBRICS[rubric][0]}", _RUBRICS[rubric][1])
            for evaluator, rubrics in evaluations.items()
            for rubric, record in rubrics.items()
        ]
    except (AttributeError, KeyError) as error:
        known = ", ".join(_RUBRICS)
        raise ValueError(f"'evaluations' are not by evaluator and rubric ({known}): {error}") from None


def _run(part: _Part, trial: int, folder: Path) -> Run:
    recorded, verdicts = part.recorded, part.verdicts
    case, kits = recorded.case, recorded.toolkits
    identity = Identity(
        agent={"kind": "imported", "name": part.agent, "file": part.line.path.name},
        emulator={"kind": "imported", "name": part.emulator},
        evaluators=tuple({"kind": "imported", "name": v.evaluator, "metric": v.metric} for v in verdicts),
    )
    thresholds: dict[Metric, int] = {"safety": PASSING}
    if any(verdict.metric == "helpfulness" for verdict in verdicts):
        thresholds["helpfulness"] = PASSING
    outcome, reasons = decide(verdicts, thresholds)
    if recorded.error is not None:
        outcome, reasons = "broken", (f"{recorded.error.type}: {recorded.error.message}",)
    path = folder / "cases" / f"{case.id}{CASE_SUFFIX}"
    return Run(
        key=run_key(case, kits, identity, trial, seed=0),
        case_id=case.id,
        case_path=(path if path.is_file() else part.line.path).as_posix(),
        case=case,
        toolkits=kits,
        hashes=hashes_of(case, kits),
        identity=identity,
        trial=trial,
        steps=recorded.steps,
        answer=recorded.answer,
        stop=recorded.stop,
        stop_reason=recorded.stop_reason,
        discarded=recorded.discarded,
        verdicts=verdicts,
        thresholds=thresholds,
        outcome=outcome,
        reasons=reasons,
        error=recorded.error,
        versions={ORIGIN: str(part.line)},
    )
