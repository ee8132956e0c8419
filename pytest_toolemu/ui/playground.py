"""All plays of an application: starts, forks, ends, and stores them. Methods may be called from any thread."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, get_args

from pytest_toolemu.authoring.case_text import lines_of, section, with_world
from pytest_toolemu.authoring.pin import pins_of, with_pins
from pytest_toolemu.authoring.starter import case_template, create_text
from pytest_toolemu.components import Components
from pytest_toolemu.core.case import SUFFIX, SUFFIXES, ResolvedCase
from pytest_toolemu.core.case_loading import build_case, case_id, known_toolkits
from pytest_toolemu.core.engine import Limits, RunSpec, run_case
from pytest_toolemu.core.messages import Recorder
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.toolbox import Agent, Emulator, SimulatedUser
from pytest_toolemu.core.toolkit import benchmark_folder
from pytest_toolemu.core.world.built_world import per_call
from pytest_toolemu.core.world.state_changes import Rows, apply_changes
from pytest_toolemu.core.world.world import World
from pytest_toolemu.emulators.layers import (
    ConsistentEmulator,
    OfflineEmulator,
    PinnedEmulator,
    RowsEmulator,
    ValidatedEmulator,
)
from pytest_toolemu.errors import DocumentError, ToolemuError, UsageError
from pytest_toolemu.formats.identifiers import case_id_problem
from pytest_toolemu.formats.yaml_document import MAX_BYTES, Document, closest, read_text, show
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
        combine=settings.combine,
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


NEW_CASE: Final = "my-case"
"""The ID of a case that a person begins to write."""


class PlaygroundCases:
    """Finds cases of the project, which are in ``folder``, and those of the benchmark."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def of_project(self) -> dict[str, Path]:
        """Return the project's case files by ID, sorted; empty if the folder does not exist."""
        return _cases_below(self.folder)

    @cached_property
    def of_benchmark(self) -> dict[str, Path]:
        """The case files of the benchmark by ID, sorted."""
        return _cases_below(benchmark_folder() / "cases")

    def toolkits(self) -> list[str]:
        """Return the names of the toolkits that a case of the project can use."""
        return sorted(known_toolkits(self.folder.resolve()))

    def text(self, name: str) -> str:
        """Return the text of the case with this ID. Raise UsageError if there is none, DocumentError if unreadable."""
        path = self._path(name)
        if path is None:
            hint = closest(name, {**self.of_benchmark, **self.of_project()})
            raise UsageError(f"there is no case {show(name)}{hint or '; choose one from the list'}")
        return read_text(path)

    def template(self, toolkit: str) -> str:
        """Return the text of a new case for a toolkit. Raise UsageError if it is unknown."""
        return case_template((toolkit,), self.target(NEW_CASE))

    def target(self, name: str) -> Path:
        """Return the file of a case of the project. Raise UsageError for an ID that is not valid."""
        if problem := case_id_problem(name):
            raise UsageError(f"{show(name)} cannot be the ID of a case: {problem}")
        return self.of_project().get(name) or self.folder / f"{name}{SUFFIX}"

    def document(self, name: str, text: str) -> Document:
        """Return the parsed text, as the file of the chosen case if it is unchanged, else as a file of the project.

        Only then, the run may claim to be of the dataset of that file.
        """
        path = self._path(name)
        if path is None or read_text(path).replace("\r\n", "\n") != text:
            path = self.target(name)
        if len(text.encode("utf-8", "replace")) > MAX_BYTES:
            raise DocumentError(path, [(1, 1, f"the text is longer than {MAX_BYTES:,} bytes; shorten it")])
        return Document.parse(text, path)

    def case(self, name: str, text: str) -> ResolvedCase:
        """Return the case in a text. Raise DocumentError with all problems, and UsageError for an ID not valid."""
        return build_case(self.document(name, text))

    def _path(self, name: str) -> Path | None:
        return self.of_project().get(name) or self.of_benchmark.get(name)


def _cases_below(folder: Path) -> dict[str, Path]:
    files = sorted(path for path in folder.rglob("*.toolemu.y*ml") if path.name.endswith(SUFFIXES) and path.is_file())
    return {case_id(path): path for path in sorted(files, key=lambda path: path.name)}


SavedKind = Literal["case", "pins", "world"]
KINDS: Final[tuple[SavedKind, ...]] = get_args(SavedKind)


@dataclass(frozen=True)
class SavedCase:
    """The file that was written, and notes for its author."""

    path: Path
    notes: tuple[str, ...] = ()


def save_play(cases: PlaygroundCases, play: Play, kind: SavedKind, name: str) -> SavedCase:
    """Write a play as a case with this ID to the project's folder of cases. An existing file is never changed.

    ``pins`` fixes every result of the play, ``world`` begins with the rows at the end of the play. Raise UsageError if
    that is not possible, and DocumentError if the case would not be valid.
    """
    target = cases.target(name)
    if target.exists():
        raise UsageError(f"{target} exists; choose another ID")
    document = Document.parse(play.setup.text, target)
    if kind == "case":
        return _written(target, document.text, ())
    run = play.run
    if run is None:
        raise UsageError("the play has no results yet that could be saved; end it first")
    if kind == "world":
        if not run.case.world:
            raise UsageError("the case has no rows that could be saved; save its results as pins")
        return _written(target, _with_final_rows(document, run, play), ())
    pins, notes = pins_of(run)
    text = with_pins(document, [pin for pin in pins if pin not in (document.value.get("pins") or [])])
    return _written(target, text, tuple(notes))


def _written(target: Path, text: str, notes: tuple[str, ...]) -> SavedCase:
    build_case(Document.parse(text, target))
    if not create_text(target, text, "correct its permissions"):
        raise UsageError(f"{target} exists; choose another ID")
    return SavedCase(target, notes)


def _with_final_rows(document: Document, run: Run, play: Play) -> str:
    world = World.of(play.resolved_case)
    changes = (change for step in run.steps for change in step.changes)
    rows = apply_changes(world.beginning.initial, changes, world.beginning.keys)
    keys = {
        f"{kit}.{name}": {str(row[world.beginning.keys[kit][name]]) for row in entries}
        for kit, entities in rows.items()
        for name, entries in entities.items()
    }
    unused = {
        entity: [key for key in of_entity if str(key) not in keys.get(entity, ())]
        for entity, of_entity in run.case.ids.items()
    }
    for name in ("world", "ids"):
        document = _without(document, name)
    return with_world(document, _plain(rows), {name: left for name, left in unused.items() if left})


def _without(document: Document, name: str) -> Document:
    if name not in document.value:
        return document
    lines = lines_of(document)
    start, end = section(document, name)
    return Document.parse("".join([*lines[:start], *lines[end:]]), document.path)


def _plain(rows: Rows) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return the rows without empty fields, which a case file leaves out."""
    return {
        kit: {
            name: [{key: value for key, value in row.items() if value is not None} for row in entries]
            for name, entries in entities.items()
        }
        for kit, entities in rows.items()
    }
