"""All plays of an application: starts, forks, ends, and stores them. Methods may be called from any thread."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.components import Components
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.engine import run_case
from pytest_toolemu.core.messages import Recorder
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.run_spec import Limits, RunSpec
from pytest_toolemu.core.toolbox import Agent, Emulator, SimulatedUser
from pytest_toolemu.core.world.built_world import per_call
from pytest_toolemu.emulators.layers import ConsistentEmulator, PinnedEmulator, RowsEmulator, ValidatedEmulator
from pytest_toolemu.emulators.offline import OfflineEmulator
from pytest_toolemu.errors import DocumentError, ToolemuError, UsageError
from pytest_toolemu.models.model_pool import ModelPool
from pytest_toolemu.models.pricing import Prices
from pytest_toolemu.scheduling.budget import Budget
from pytest_toolemu.scheduling.event_loop import CaseLoop
from pytest_toolemu.sessions import session_id
from pytest_toolemu.sessions.single_run import (
    evaluators_of,
    prices_of_settings,
    refuse_session_settings,
    required_scores,
    stored,
)
from pytest_toolemu.sessions.store import MANIFEST, RunStore
from pytest_toolemu.settings.model_names import REFERENCE, AgentConfig
from pytest_toolemu.settings.option_table import Settings
from pytest_toolemu.ui.play import (
    PERSON,
    ForkedEmulator,
    ForkPoint,
    FormError,
    PersonAgent,
    PersonEmulator,
    PersonUser,
    Play,
    PlaySetup,
    RepeatedReplies,
    WatchedAgent,
    WatchedEmulator,
    earlier_steps,
    result_problems,
)
from pytest_toolemu.ui.playground_cases import PlaygroundCases

MAX_RUNNING: Final = 8
"""Number of plays that may run at the same time."""

MAX_KEPT: Final = 50
"""Number of plays that are kept in memory; records of older ones stay on disk."""


class Playground:
    """The plays below a run directory. Its event loop starts with the first play."""

    def __init__(self, directory: Path, cases: Path) -> None:
        self.directory = directory
        self.cases = PlaygroundCases(cases)
        self._store: RunStore | None = None
        self._runs: list[Run] = []
        self._last = 0
        self._plays: dict[str, Play] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._lock = threading.Lock()
        self._loop = CaseLoop("toolemu-playground")

    def plays(self) -> list[Play]:
        """Return the plays, the newest first."""
        return list(self._plays.values())[::-1]

    def play(self, play_id: str) -> Play | None:
        """Return the play with this ID; None if there is none, or if it is no longer kept."""
        return self._plays.get(play_id)

    def start(self, setup: PlaySetup) -> Play:
        """Begin a play. Raise DocumentError for the case, and UsageError for everything else that is not valid."""
        return self._start(setup, self.cases.case(setup.case_id, setup.text))

    def fork(self, parent: Play, index: int, content: Any) -> Play:
        """Begin a play that repeats another one, but in which the call of this index returns ``content``.

        The parent goes on as it is. Raise UsageError for a result that the tool cannot return.
        """
        pending = parent.turn if parent.turn is not None and parent.turn.kind == "deliver" else None
        steps, trajectory = parent.steps, parent.trajectory
        call = steps[index].call if 0 <= index < len(steps) else None
        if call is None and pending is not None and pending.call is not None and pending.call.index == index:
            call = pending.call
            is_modeled = pending.observation is not None and pending.observation.source == "simulated"
            if is_modeled and trajectory is not None and trajectory.world is not None:
                raise UsageError("this result also changes rows; let it pass first, then change it")
        if call is None or trajectory is None:
            raise UsageError(f"play {parent.id} has no call {index + 1} with a result")
        tool = parent.resolved_case.tools.get(call.name)
        if tool is None or not isinstance(call.arguments, dict):
            raise UsageError("the call was refused because it is not valid; its result cannot be changed")
        if problems := result_problems(tool, content):
            raise UsageError("\n".join(problems))
        replies = RepeatedReplies(f"play {parent.id}", trajectory.ledger)
        return self._start(parent.setup, parent.resolved_case, ForkPoint(parent, index, content), replies)

    def resolve(self, play: Play, turn: int, value: Any = None) -> None:
        """Give a turn what a person has done. Raise TurnOverError if somebody else was faster."""
        self._on_loop(lambda: play.resolve(turn, value))

    def set_stepping(self, play: Play, is_stepping: bool) -> None:
        """Make a play stop at each result, or go on; a result that is held back passes then."""

        def change() -> None:
            play.is_stepping = is_stepping
            if not is_stepping and play.turn is not None and play.turn.kind == "deliver":
                play.resolve(play.turn.number)
            play.notify()

        self._on_loop(change)

    def stop(self, play: Play) -> None:
        """End a play without judging and storing it."""

        def cancel() -> None:
            if (task := self._tasks.get(play.id)) is not None and not play.is_over:
                play.finish("stopped")
                task.cancel()

        self._on_loop(cancel)

    def close(self) -> None:
        """End all plays and the event loop."""
        self._loop.close()

    def _start(
        self,
        setup: PlaySetup,
        resolved_case: ResolvedCase,
        fork: ForkPoint | None = None,
        recorder: Recorder | None = None,
    ) -> Play:
        if (self.directory / MANIFEST).is_file():
            raise UsageError(
                f"{self.directory} is one session, and plays are stored in a run directory; start toolemu ui without "
                "an argument"
            )
        settings = setup.settings()
        with self._lock:
            play = Play(self._last + 1, setup, resolved_case, fork)
            if sum(not each.is_over for each in self._plays.values()) >= MAX_RUNNING:
                raise UsageError(f"{MAX_RUNNING} plays are running; end one of them first")
            self._last += 1
            self._plays[play.id] = play
        try:
            self._loop.run(self._begin(play, settings, recorder))
        except BaseException:
            del self._plays[play.id]
            raise
        with self._lock:
            over = [each for each in self._plays.values() if each.is_over]
            for each in over[: max(0, len(self._plays) - MAX_KEPT)]:
                del self._plays[each.id]
        return play

    async def _begin(self, play: Play, settings: Settings, recorder: Recorder | None) -> None:
        budget = Budget(settings.budget_usd, settings.budget_tokens)
        play.prices = prices = _prices(settings)
        lookup = None if budget.usd is None else lambda: prices
        components = Components(settings, ModelPool(settings, budget=budget, prices=lookup))
        try:
            spec = await checked_spec(play, settings, components)
        except BaseException:
            await components.models.close()
            raise
        self._tasks[play.id] = asyncio.get_running_loop().create_task(
            self._run(play, spec, settings, components, recorder)
        )

    async def _run(
        self, play: Play, spec: RunSpec, settings: Settings, components: Components, recorder: Recorder | None
    ) -> None:
        """Run a play to its end. Whatever happens is shown on its page."""
        try:
            run = await run_case(spec, recorder)
            play.run = run
            play.run, play.record = self._stored(run, play.id, settings)
            play.finish("finished")
        except asyncio.CancelledError:
            if not play.is_over:
                play.finish("stopped")
        except (ToolemuError, OSError) as error:
            play.finish("broken", str(error))
        finally:
            del self._tasks[play.id]
            await components.models.close()

    def _stored(self, run: Run, play_id: str, settings: Settings) -> tuple[Run, Path]:
        """Store the run of a play in the session of this start, whose folder is created with the first record."""
        if self._store is None:
            is_private = settings.run_dir_mode == "private"
            self._store = RunStore.create(self.directory / FOLDER, session_id(), private=is_private)
        run, path = stored(self._store, [*self._runs, run], settings, f"play {play_id}", is_played=True)
        self._runs.append(run)
        return run, path

    def _on_loop(self, function: Callable[[], None]) -> None:
        async def call() -> None:
            function()

        self._loop.run(call())


def _prices(settings: Settings) -> Prices:
    """Return the prices. Raise UsageError for an invalid file, whose lines are not those of the case in the form."""
    try:
        return prices_of_settings(settings)
    except DocumentError as error:
        raise UsageError(str(error)) from None


_A_DAY: Final = 24 * 3600.0
"""People think as long as they like; they end a play by hand."""


async def checked_spec(play: Play, settings: Settings, components: Components) -> RunSpec:
    """Return the run of a play, after a check of its endpoints.

    Raise FormError for a field of the form that a person has to correct, and UsageError for everything else.
    """
    setup, case = play.setup, play.resolved_case
    refuse_session_settings(settings, "the playground")
    conversation = case.case.conversation
    if setup.user == PERSON and (conversation is None or setup.turns == 1):
        remedy = "give the agent at least 2 messages" if conversation else "add 'conversation' to the case first"
        raise FormError("user", f"no agent would ask you; {remedy}")
    with _about("agent"):
        agent = WatchedAgent(_agent(play, components), play)
    with _about("emulator"):
        emulator = WatchedEmulator(_emulator(play, components), play)
    with _about("evaluators"):
        evaluators = evaluators_of(settings, components)
    with _about("user"):
        user: SimulatedUser = PersonUser(play) if setup.user == PERSON else components.user()
    spec = RunSpec(
        per_call(case) if settings.world == "calls" else case,
        agent,
        emulator,
        evaluators,
        required_scores(settings),
        Limits(settings.max_steps, settings.max_tokens, _A_DAY),
        seed=settings.seed,
    ).in_conversation(user, setup.turns)
    await components.preflight(() if setup.agent == PERSON else (AgentConfig(setup.agent),))
    return spec


@contextlib.contextmanager
def _about(field: str) -> Iterator[None]:
    """Attribute errors to a field of the form."""
    try:
        yield
    except UsageError as error:
        raise FormError(field, str(error)) from None


def _agent(play: Play, components: Components) -> Agent:
    if play.setup.agent == PERSON:
        return PersonAgent(play)
    name = play.setup.agent.removeprefix(REFERENCE)
    references = {**play.resolved_case.case.references, **play.resolved_case.case.unlabeled}
    if play.setup.agent != name and name and name not in references and play.setup.turns == 1:
        raise UsageError(f"the case has no reference {name!r}; it has: {', '.join(references) or 'none'}")
    # Custom agents are modules of the project.
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.append(folder)
    return components.agent(AgentConfig(play.setup.agent))


def _emulator(play: Play, components: Components) -> Emulator:
    emulator = repeating = components.emulator(None)
    if play.setup.emulator == PERSON:
        suggesting = PinnedEmulator(RowsEmulator(ConsistentEmulator(OfflineEmulator())))
        emulator, repeating = ValidatedEmulator(PersonEmulator(suggesting, play)), ValidatedEmulator(suggesting)
    if play.fork is None:
        return emulator
    return ForkedEmulator(emulator, repeating, play, play.fork, earlier_steps(play.fork))


FOLDER: Final = "playground"
"""The folder of all playground sessions in a run directory. Commands look for ``latest`` one level above."""
