"""Checks that a file of evaluations belongs to a file of trajectories.

An evaluation identifies its trajectory only by line number, so a file for other runs with as many lines would fit.
Three properties distinguish them: what both file names state, members of a trajectory that an evaluation repeats, and
the tools that the evaluator's text names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pytest_toolemu.authoring.importers.evaluations import EvaluationFile
from pytest_toolemu.authoring.importers.jsonl_files import JsonLine, stated_by_name, trajectory_in
from pytest_toolemu.authoring.importers.notes import Notes, add_note, texts
from pytest_toolemu.core.toolkit import Toolkit, callable_tools
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.yaml_document import show

_WORD: Final = re.compile(r"\w+")
_REPEATED: Final = ("case", "case_idx", "input")
# In about one evaluation of a thousand, the evaluator names tools that the run does not have.
_TOLERATED: Final = 0.1


def check_belonging(
    lines: Sequence[JsonLine], evaluations: EvaluationFile, toolkits: Mapping[str, Toolkit], notes: Notes
) -> None:
    """Raise UsageError with the first line that differs if the evaluations belong to other trajectories.

    The text of evaluators is weak evidence: up to a tenth of the evaluations may name no tool of their run; these get a
    note.
    """
    _check_names(lines[0], evaluations)
    kit_names = {name: kit.name for name, kit, _ in callable_tools(tuple(toolkits.values()))}
    differing: list[tuple[int, str]] = []
    naming_tools = 0
    for index, line in enumerate(lines):
        if (evaluation := evaluations.lines.get(index)) is None:
            continue
        trajectory = trajectory_in(line.record)
        for member in _REPEATED:
            if {member} <= trajectory.keys() & evaluation.record.keys():
                evaluation_value, trajectory_value = evaluation.record[member], trajectory[member]
                if evaluation_value != trajectory_value:
                    raise _mismatch(
                        evaluation, line, f"{member!r} is {show(evaluation_value)}, not {show(trajectory_value)}"
                    )
        named_tools = kit_names.keys() & _words(evaluation.record)
        naming_tools += bool(named_tools)
        if named_tools and not named_tools & (_tools(trajectory, kit_names) | _words(trajectory)):
            differing.append((index, f"it names the tool {sorted(named_tools)[0]}, which this run does not have"))
    if len(differing) > _TOLERATED * naming_tools:
        index, reason = differing[0]
        counted = f"; {len(differing)} of {naming_tools} evaluations differ in this way"
        raise _mismatch(evaluations.lines[index], lines[index], reason + counted)
    for index, _ in differing:
        add_note(notes, "an evaluation that names only tools of other runs is kept", evaluations.lines[index].place)


def _check_names(first: JsonLine, evaluations: EvaluationFile) -> None:
    """Compare what both file names state, and the time only if both files are for the same evaluator."""
    stated_by_runs, stated_by_evaluations = stated_by_name(first.path), stated_by_name(evaluations.path)
    if stated_by_runs.get("evaluator") != stated_by_evaluations.get("evaluator"):
        stated_by_runs.pop("time", None)
    for part in stated_by_runs.keys() & stated_by_evaluations.keys() - {"evaluator"}:
        if stated_by_runs[part] != stated_by_evaluations[part]:
            reason = f"its file's name says {part} {stated_by_evaluations[part]!r}, not {stated_by_runs[part]!r}"
            raise _mismatch(JsonLine(evaluations.path, 1, {}), first, reason)


def _mismatch(evaluation: JsonLine, trajectory: JsonLine, reason: str) -> UsageError:
    return UsageError(f"{evaluation} does not evaluate {trajectory}: {reason}; name the evaluations of these runs")


def _tools(trajectory: Mapping[str, Any], kit_names: Mapping[str, str]) -> set[str]:
    """Return the names of the tools that the case of a trajectory offers."""
    case = trajectory.get("case")
    offered = case.get("Toolkits") if isinstance(case, dict) else None
    return {name for name, kit in kit_names.items() if isinstance(offered, list) and kit in offered}


def _words(value: Any) -> set[str]:
    return {word for text in texts(value) for word in _WORD.findall(text)}
