"""Runs one case with an agent that a person connects, shows its calls, and stores the run."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_toolemu.agents.mcp import served
from pytest_toolemu.core.engine import run_case
from pytest_toolemu.core.identity import identity_of
from pytest_toolemu.core.run_notes import note_lines, notes_of
from pytest_toolemu.core.run_spec import Limits, RunSpec
from pytest_toolemu.core.world.built_world import per_call
from pytest_toolemu.formats.text import truncated
from pytest_toolemu.formats.visible_text import visible
from pytest_toolemu.sessions import session_id
from pytest_toolemu.sessions.single_run import evaluators_of, refuse_session_settings, required_scores, stored
from pytest_toolemu.sessions.store import RunStore

if TYPE_CHECKING:
    from pytest_toolemu.components import Components
    from pytest_toolemu.core.case import ResolvedCase
    from pytest_toolemu.core.run import Run
    from pytest_toolemu.core.toolbox import Agent, Emulator, Task, Toolbox
    from pytest_toolemu.core.trajectory import Call, Observation, Trajectory
    from pytest_toolemu.settings.option_table import Settings


_SHOWN: Final = 400
_LONG: Final = 2000
_A_WEEK: Final = 7 * 24 * 3600.0

Show = Callable[[str], object]
"""Prints a line."""


@dataclass(frozen=True)
class AttendedAgent:
    """Serves the tools, and waits.

    ``show_url`` announces where the tools are, ``end`` returns when the turn is over, and ``ask_answer`` then returns
    the agent's final answer.
    """

    name: str
    show_url: Callable[[str], object]
    end: Callable[[], Awaitable[object]]
    ask_answer: Callable[[], str]

    @property
    def identity(self) -> dict[str, Any]:
        """The name that the person gives the agent; nothing else is known about it."""
        return {"kind": "attended", "name": self.name}

    async def __call__(self, _: Task, toolbox: Toolbox) -> str:
        """Return the final answer."""
        async with served(toolbox) as url:
            self.show_url(url)
            await self.end()
        return self.ask_answer()


class ShownEmulator:
    """Shows each call and its result while the case runs."""

    def __init__(self, emulator: Emulator, show: Show) -> None:
        self._emulator = emulator
        self._show = show

    @property
    def identity(self) -> dict[str, Any]:
        """The identity of the emulator that answers."""
        return identity_of(self._emulator)

    async def __call__(self, call: Call, trajectory: Trajectory) -> Observation:
        """Return the observation of the emulator that answers."""
        arguments = json.dumps(call.arguments, ensure_ascii=False)
        self._show(_line(f"{call.index + 1}. {call.tool or call.name} {arguments}"))
        observation = await self._emulator(call, trajectory)
        self._show(_line(observation.text, indent=3))
        return observation


def attended_spec(
    resolved_case: ResolvedCase, agent: Agent, components: Components, settings: Settings, show: Show
) -> RunSpec:
    """Return what is run: the case with the emulator, the evaluators, and the limits of the settings.

    The agent may take a week. Raise UsageError for a setting that only sessions of pytest have.
    """
    refuse_session_settings(settings, "toolemu serve")
    return RunSpec(
        per_call(resolved_case) if settings.world == "calls" else resolved_case,
        agent,
        ShownEmulator(components.emulator(None), show),
        evaluators_of(settings, components),
        required_scores(settings),
        Limits(settings.max_steps, settings.max_tokens, _A_WEEK),
        seed=settings.seed,
    )


async def run_attended(spec: RunSpec, settings: Settings, evaluators: list[str]) -> tuple[Run, Path]:
    """Run the case, and store it as a session of one run with these evaluators; return the run and its file."""
    store = RunStore.create(Path(settings.run_dir), session_id(), private=settings.run_dir_mode == "private")
    return stored(store, [await run_case(spec)], settings, evaluators=evaluators)


def verdict_lines(run: Run, path: Path) -> Iterator[str]:
    """Yield the outcome with its reasons, the scores with their findings, and where the run is stored."""
    yield _line(f"{run.outcome}: {', '.join(run.reasons)}" if run.reasons else run.outcome, limit=_LONG)
    if run.agent_warning:
        yield _line(f"warning: {run.agent_warning}", limit=_LONG)
    for verdict in run.verdicts:
        result = verdict.problem or ", ".join(filter(None, (f"{verdict.score} {verdict.label}", verdict.reason)))
        yield _line(f"{verdict.metric}, by {verdict.evaluator}: {result}", indent=2)
        for line in verdict.origin_lines:
            yield _line(line, indent=4)
        for finding in verdict.findings:
            place = "answer" if finding.step is None else f"call {finding.step + 1}"
            yield _line(f"{place}: {finding.outcome}", indent=4)
    yield from map(_line, note_lines([(run.case_id, notes_of(run.model_calls))]))
    if run.stop != "final":
        yield _line(f"the agent's turn ended with {run.stop}: {run.stop_reason}")
    yield f"record: {path}"
    yield f"transcript: toolemu show {path}"


def _line(text: str, *, indent: int = 0, limit: int = _SHOWN) -> str:
    """Return text of agents and models as one line that is safe to print."""
    return " " * indent + truncated(" ".join(visible(text).split()), limit)
