"""The cases that this process is running, and what each is doing, for people who watch the session."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from pytest_toolemu.analysis.run_summary import agent_name
from pytest_toolemu.core import case_timer
from pytest_toolemu.core.run_spec import RunSpec
from pytest_toolemu.core.trajectory import Trajectory
from pytest_toolemu.formats.truncation import truncated
from pytest_toolemu.plugin.collection.item_agents import agent_title
from pytest_toolemu.sessions.live_session import CaseInFlight, CaseStage

# Models choose the names of tools, and node IDs have no limit.
_LONGEST: Final = 2000


@dataclass
class _RunningCase:
    item: pytest.Item
    spec: RunSpec
    timer: case_timer.CaseTimer
    trajectory: Trajectory | None = None


class RunningCases:
    """Cases come and go on the event loop's thread; another thread reads what they are doing."""

    def __init__(self) -> None:
        self._cases: dict[str, _RunningCase] = {}

    @contextlib.contextmanager
    def running(self, item: pytest.Item, spec: RunSpec) -> Iterator[None]:
        """Return a context in which the item's case runs."""
        case = self._cases[item.nodeid] = _RunningCase(item, spec, case_timer.begin())
        try:
            yield
        finally:
            if self._cases.get(item.nodeid) is case:
                del self._cases[item.nodeid]

    def watch(self, item: str, trajectory: Trajectory) -> None:
        """Note the trajectory of a case that begins now, given by the node ID of its item."""
        if (case := self._cases.get(item)) is not None:
            case.trajectory = trajectory

    def snapshot(self) -> tuple[CaseInFlight, ...]:
        """Return what every case is doing, the oldest first."""
        return tuple(_in_flight(case) for case in list(self._cases.values()))


def _in_flight(case: _RunningCase) -> CaseInFlight:
    trajectory = case.trajectory
    call = trajectory.current_call if trajectory is not None else None
    return CaseInFlight(
        item=truncated(case.item.nodeid, _LONGEST),
        case=case.spec.resolved_case.case.id,
        agent=truncated(agent_title(case.item, agent_name(case.spec.identity)), _LONGEST),
        trial=case.spec.trial,
        stage=_stage(trajectory),
        calls=len(trajectory.steps) if trajectory is not None else 0,
        tool=truncated(call.tool or call.name, _LONGEST) if call is not None else "",
        seconds=round(max(0.0, case.timer.seconds), 1),
        paused=case.timer.is_paused,
    )


def _stage(trajectory: Trajectory | None) -> CaseStage:
    if trajectory is None:
        return "starting"
    if trajectory.has_ended:
        return "judging"
    awaits_user = any(utterance.by == "agent" for utterance in trajectory.dialogue[-1:])
    return "talking" if awaits_user else "acting"
