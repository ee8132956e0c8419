"""Builds the worlds that a folder lacks: each once, and written as soon as it is proved."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.core import case_timer
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.messages import Ledger
from pytest_toolemu.core.references import Trap
from pytest_toolemu.core.run import CassetteUse
from pytest_toolemu.core.world.built_world import BuiltWorld, prove_world, read_world, world_path, write_world
from pytest_toolemu.emulators.world_builder import build_world, builder_key
from pytest_toolemu.errors import InconclusiveError, ToolemuError, UsageError
from pytest_toolemu.models.cassettes.directory import CassetteDirectory
from pytest_toolemu.models.cassettes.recorder import CassetteRecorder

# Canceled requests may take this long to end, in seconds.
_GRACE: Final = 2.0


@dataclass(frozen=True)
class PlannedWorld:
    """World number ``variant`` of a case, counted from 1, in a folder that may have it or not."""

    resolved_case: ResolvedCase
    variant: int
    folder: Path

    @functools.cached_property
    def key(self) -> str:
        """The SHA-256 of everything that the world is built from, except the model."""
        return builder_key(self.resolved_case, self.variant)

    @property
    def path(self) -> Path:
        """The file of the world."""
        return world_path(self.folder, self.resolved_case.case.id, self.key, self.variant)

    @property
    def name(self) -> str:
        """The world in messages."""
        return f"world {self.variant} of {self.resolved_case.case.id}"

    def read(self) -> BuiltWorld:
        """Return the world. Raise UsageError if its file cannot be read, or contains another world."""
        world = read_world(self.path, self.key)
        if (world.case_id, world.variant) != (self.resolved_case.case.id, self.variant):
            other = f"world {world.variant} of {world.case_id}"
            raise UsageError(f"{self.path}: contains {other}, not {self.name}; remove it and build it again")
        return world

    def proved(self) -> tuple[ResolvedCase, Trap]:
        """Return the case in this world, with its trap. Raise UsageError for a world that does not fit the case."""
        world = self.read()
        try:
            return prove_world(self.resolved_case, world), world.trap
        except UsageError as error:
            raise UsageError(f"{self.path}: {error}") from None


@dataclass
class WorldBuild:
    """The attempt to build one world: the world, or the ``problem`` because of which there is none."""

    planned: PlannedWorld
    ledger: Ledger
    world: BuiltWorld | None = None
    problem: str = ""
    cassette_use: CassetteUse | None = None

    @property
    def is_by_fallback(self) -> bool:
        """Whether a fallback model was asked."""
        return any(call.instead_of is not None for call in self.ledger.model_calls)


@dataclass
class WorldStage:
    """Builds worlds with a model. A world that cannot be built stops no other one.

    ``timeout`` is in seconds for each world, without waiting for rate limits. With ``cassettes``, requests are recorded
    and replayed; ``item`` then returns the name of a world's cassette.
    """

    model: Any
    timeout: float
    cassettes: CassetteDirectory | None = None
    item: Callable[[PlannedWorld], str] = lambda planned: planned.name
    builds: list[WorldBuild] = field(default_factory=list)
    _write_error: str = ""
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def build_all(self, worlds: Iterable[PlannedWorld], concurrency: int) -> None:
        """Build the worlds, those of ``concurrency`` cases at a time."""
        slots = asyncio.Semaphore(concurrency)

        async def in_a_slot(of_case: Sequence[PlannedWorld]) -> None:
            async with slots:
                await self.build_case(of_case)

        try:
            async with asyncio.TaskGroup() as group:
                for of_case in by_case(worlds):
                    group.create_task(in_a_slot(of_case))
        finally:
            self._ended.set()

    async def wait_for_end(self) -> None:
        """Wait until ``build_all`` has ended, which takes a moment after it was canceled; at most two seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), _GRACE)

    async def build_case(self, worlds: Sequence[PlannedWorld]) -> list[WorldBuild]:
        """Build the worlds of one case one after the other, as each is to differ from those before it."""
        return [await self._build(planned) for planned in sorted(worlds, key=lambda planned: planned.variant)]

    async def _build(self, planned: PlannedWorld) -> WorldBuild:
        build = WorldBuild(planned, Ledger(planned.variant - 1))
        build.problem = self._write_error
        if not build.problem:
            # A task of its own has a timer of its own.
            attempt = asyncio.create_task(self._attempt(build))
            try:
                await attempt
            except asyncio.CancelledError:
                # Its requests may have been paid for, so it is stored as well.
                build.problem = "the session was interrupted"
                self.builds.append(build)
                raise
        self.builds.append(build)
        return build

    async def _attempt(self, build: WorldBuild) -> None:
        limit: asyncio.Timeout | None = None
        try:
            async with case_timer.begin().limit(self.timeout) as limit:
                await self._build_with_cassette(build)
        except ToolemuError as error:
            build.problem = str(error)
        except Exception as error:
            if limit is not None and limit.expired():
                build.problem = f"it took more than {self.timeout:g} s; raise --toolemu-timeout if the model is slow"
            elif isinstance(error, OSError):
                build.problem = self._write_error = f"no world can be written: {error.strerror or error}"
            else:
                build.problem = f"{type(error).__name__}: {error}"

    async def _build_with_cassette(self, build: WorldBuild) -> None:
        planned, case_id = build.planned, build.planned.resolved_case.case.id
        recorder: CassetteRecorder | None = None
        if self.cassettes is not None:
            recorder = CassetteRecorder(self.cassettes, self.item(planned), case_id, planned.variant)
            build.ledger.recorder = recorder
        is_complete = False
        try:
            world = await build_world(
                planned.resolved_case,
                self.model,
                variant=planned.variant,
                earlier=_earlier_scenarios(planned),
                ledger=build.ledger,
            )
            is_complete = True
        except InconclusiveError:
            is_complete = True
            raise
        finally:
            # Also after a failure: replies that arrived were paid for.
            if recorder is not None:
                build.cassette_use = recorder.finish(is_complete)
        write_world(planned.folder, world)
        build.world = world


def by_case(worlds: Iterable[PlannedWorld]) -> list[list[PlannedWorld]]:
    """Return the worlds of each case, every world once."""
    cases: dict[str, dict[Path, PlannedWorld]] = {}
    for planned in worlds:
        cases.setdefault(planned.resolved_case.case.id, {}).setdefault(planned.path, planned)
    return [list(of_case.values()) for of_case in cases.values()]


def _earlier_scenarios(planned: PlannedWorld) -> list[str]:
    """Return the scenarios of the worlds of the case with lower numbers, as far as the folder has them."""
    scenarios = []
    for variant in range(1, planned.variant):
        earlier = PlannedWorld(planned.resolved_case, variant, planned.folder)
        if earlier.path.is_file():
            with suppress(UsageError):  # reported when an agent is to meet it
                scenarios.append(earlier.read().design.scenario)
    return scenarios
