"""Which values of a filter do not exist, so that an empty table is not taken for a result."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, get_args

from pytest_toolemu.analysis.run_summary import OUTCOMES
from pytest_toolemu.analysis.slices import DIMENSIONS, slice_values
from pytest_toolemu.core.trajectory import TurnEnding
from pytest_toolemu.formats.redaction import plain
from pytest_toolemu.formats.validation_messages import closest
from pytest_toolemu.ui.run_filter import METRICS, SCORES, TEXTS, is_selected
from pytest_toolemu.ui.session_runs import SessionRuns

PARAMETERS: Final = (*TEXTS, *METRICS, *DIMENSIONS)
"""The parameters that filter runs."""

_FIXED: Final[dict[str, Collection[str]]] = {
    "outcome": OUTCOMES,
    "stop": get_args(TurnEnding),
    "differing": METRICS,
    **dict.fromkeys(METRICS, SCORES),
}


def filter_notices(query: Mapping[str, str], runs: SessionRuns) -> list[str]:
    """Return a sentence for each parameter of a query that is no filter, and for each value that no run can have."""
    notices = [unknown_parameter(name, PARAMETERS) for name in query if name not in (*PARAMETERS, "page")]
    for name in PARAMETERS:
        if value := query.get(name, "").strip():
            notices += unknown_value(name, value, _FIXED[name] if name in _FIXED else _values(name, runs))
    return notices


def unknown_parameter(name: str, valid: Iterable[str]) -> str:
    """Return the sentence about a parameter that filters nothing."""
    return f"{name!r} is no filter and is ignored; the filters are {', '.join(valid)}"


def unknown_value(name: str, value: str, valid: Collection[str]) -> Iterator[str]:
    """Yield the sentence about a value that is not valid; nothing if it is, or if every value is."""
    if valid and not any(is_selected(value, each) for each in valid):
        names = map(plain, valid)
        yield f"{name.replace('_', ' ')}: no run can have the value {value!r}{closest(plain(value), names)}"


def _values(name: str, runs: SessionRuns) -> set[str]:
    """Return the values that runs of a session have; none for a parameter that takes any text."""
    if name == "agent":
        return {run.summary.agent for run in runs.runs}
    if name == "case":
        return {run.summary.case for run in runs.runs}
    dimension = next((each for each in DIMENSIONS if each == name), None)
    if dimension is None:
        return set()
    return {value for run in runs.runs for value in slice_values(run.summary, dimension)}
