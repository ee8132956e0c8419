"""What one pytest session keeps: settings, the models it opened, the cases in flight, and what came of them."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_toolemu.core.environment import load_env
from pytest_toolemu.errors import DocumentError, UsageError
from pytest_toolemu.formats.secret_registry import REGISTRY
from pytest_toolemu.plugin.execution.signals import Signals
from pytest_toolemu.plugin.output.terminal_width import terminal_width
from pytest_toolemu.sessions.shards import Shard
from pytest_toolemu.settings import AgentConfig, Settings, is_model, provider_of

if TYPE_CHECKING:
    from pytest_toolemu.analysis.calibration.judge_calibration import JudgeCalibration
    from pytest_toolemu.analysis.gates.gate_decision import Decision
    from pytest_toolemu.analysis.run_row import RunRow
    from pytest_toolemu.components import Components
    from pytest_toolemu.core.case import ResolvedCase
    from pytest_toolemu.core.dataset import Edition
    from pytest_toolemu.models import ServedEndpoint
    from pytest_toolemu.models.cassettes.directory import CassetteDirectory
    from pytest_toolemu.models.cassettes.usage_report import CassetteReport
    from pytest_toolemu.models.pricing import Prices
    from pytest_toolemu.models.vllm.fleet import ServerFleet
    from pytest_toolemu.plugin.execution.bounded_exit import Ending
    from pytest_toolemu.plugin.execution.item_scheduler import ItemScheduler
    from pytest_toolemu.plugin.execution.lookahead import ActiveFixtures
    from pytest_toolemu.plugin.execution.permits import Permits
    from pytest_toolemu.plugin.output.progress import Progress
    from pytest_toolemu.scheduling.budget import Budget
    from pytest_toolemu.scheduling.event_loop import CaseLoop
    from pytest_toolemu.scheduling.transport import Transport
    from pytest_toolemu.sessions.resume import ResumableSessions
    from pytest_toolemu.sessions.store import RunStore

SESSION: pytest.StashKey[ToolemuSession] = pytest.StashKey()
ITEM: pytest.StashKey[ResolvedCase] = pytest.StashKey()
"""On every item that runs a case: the case with its toolkits."""

RAN: pytest.StashKey[tuple[float, float]] = pytest.StashKey()
"""On an item whose case has run: when that began, in seconds since the epoch, and how many it took."""

MARKS: pytest.StashKey[tuple[str, ...]] = pytest.StashKey()
"""The marks that the project's own ini file lists, as lines."""

# Seconds after which a session has collected its items and begun its first cases, or has much to collect.
_UNDER_WAY: Final = 2.0


class CaseError(Exception):
    """The instrument, not the agent, is why a case has no verdict; shown as its text alone."""

    __module__ = "builtins"


class ToolemuSession:
    """State of one process. Everything heavy is made on first use, so that runs without cases pay nothing."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self.config = config
        self.settings = settings
        self.given: dict[str, Any] = getattr(config, "workerinput", {}).get("toolemu", {})
        self.is_worker = hasattr(config, "workerinput")
        self.has_cases = False
        self.started: float = self.given.get("started", time())
        self.rows: dict[str, RunRow] = {}
        self.attempted: set[str] = set()
        """Items for which an earlier session's run was looked for."""
        self.untested: set[str] = set()
        """Node ids of cases that were skipped because they have no agent."""
        self.skipped: set[str] = set()
        """Node ids of all skipped cases."""
        self.planned: dict[str, dict[str, Any]] = {}
        """The cases that this session is to run, as its manifest stores them; empty in an xdist controller."""
        self.decisions: list[Decision] = []
        self.notes: list[tuple[str, dict[str, bool]]] = []
        """Of reports: lines for the terminal, each with its colour."""
        self.nodeids: list[str] = []
        self.account: dict[str, Any] = {}
        """What this shard is to run, of how much; empty where the session is no shard."""
        self.carrier: Transport | None = None
        self.progress: Progress | None = None
        self.ending: Ending | None = None
        self.exit_status = int(pytest.ExitCode.INTERNAL_ERROR)
        self.serves = False
        """Whether servers of the session's own were started."""
        self._hurry = threading.Event()
        self.signals = Signals(self._hurry, is_worker=self.is_worker)
        self.manifest_written = self._is_prepared = False
        self._loop: CaseLoop | None = None
        self._flight: ItemScheduler | None = None
        self._roles: Components | None = None

    @functools.cached_property
    def name(self) -> str:
        """The session's name, the same in all xdist workers."""
        from pytest_toolemu.sessions.session_id import session_id

        return self.given.get("session") or session_id()

    @property
    def for_worker(self) -> dict[str, Any]:
        """What xdist workers are told, so that they belong to this session, end with it, and resume the same one."""
        folders = [str(folder) for folder in self.earlier.folders] if self.earlier else []
        places = {name: [place.url, place.recorded_as] for name, place in self.places.items()}
        told = {"session": self.name, "started": self.started, "resume": folders, "places": places}
        return {**told, "width": terminal_width(self.config)}

    @property
    def is_used(self) -> bool:
        """Whether the session has a setting of this plugin, or a case."""
        return bool(self.settings.chosen) or self.has_cases or bool(self.rows)

    @property
    def has_news(self) -> bool:
        """Whether there is anything to sum up: a result, or what workers had to say."""
        if self.rows or self.account or self.late_reports.exists():
            return True
        return self.carrier is not None and self.carrier.read(
            lambda coordinator: bool(coordinator.completed or coordinator.notices)
        )

    @property
    def folder(self) -> Path:
        """Where this session's runs are written; it need not exist yet."""
        return self.config.rootpath / str(self.settings.run_dir) / self.name

    @property
    def late_reports(self) -> Path:
        """The file in which workers leave what they cannot report in any other way."""
        return self.folder / "late-reports.txt"

    @functools.cached_property
    def store(self) -> RunStore:
        """Where runs are written; the folder is made here. UsageError where it cannot be."""
        from pytest_toolemu.sessions.store import RunStore

        try:
            return RunStore.create(self.folder.parent, self.name, private=self.settings.run_dir_mode == "private")
        except OSError as error:
            raise self.unwritable(error) from None

    def unwritable(self, error: OSError) -> UsageError:
        """What to say when the folder of records cannot be made or written."""
        remedy = "name another folder with --toolemu-run-dir"
        return UsageError(f"records cannot be written to {self.folder.parent}: {error.strerror}; {remedy}")

    @functools.cached_property
    def earlier(self) -> ResumableSessions | None:
        """Whose runs are taken over; None for nobody's. UsageError for a folder that is no session's."""
        if self.settings.resume is None:
            return None
        from pytest_toolemu.sessions.resume import ResumableSessions, resumable_sessions

        if self.is_worker:
            return ResumableSessions.of(map(Path, self.given["resume"]), self.settings)
        bases = (self.config.invocation_params.dir, self.config.rootpath)
        return resumable_sessions(self.folder.parent, bases, self.settings)

    @functools.cached_property
    def library(self) -> CassetteDirectory | None:
        """The recordings that are played or written; None where neither is."""
        chosen = self.settings.recording
        if chosen is None:
            return None
        from pytest_toolemu.models.cassettes.directory import CassetteDirectory

        mode, folder = chosen
        return CassetteDirectory(self.config.rootpath / folder, mode)

    @property
    def recordings(self) -> CassetteReport | None:
        """What of the recordings was used so far, by all processes; None where there are none."""
        if self.library is None:
            return None
        from pytest_toolemu.models.cassettes.usage_report import report_on

        uses = [row.recording for row in self.rows.values() if row.recording]
        return report_on(self.library, uses, self.config.rootpath)

    @property
    def roles(self) -> Components:
        """Who plays which part; credentials are read from ``.env`` beside the ini file first."""
        if self._roles is None:
            from pytest_toolemu.components import Components

            # Own agents are named as modules of the project.
            sys.path.append(str(self.config.rootpath))
            load_env(self.config.rootpath / ".env")
            REGISTRY.remember()
            self._roles = Components(self.settings, self.leave, self.leave, lambda: self.prices, lambda: self.places)
        return self._roles

    @functools.cached_property
    def fleet(self) -> ServerFleet | None:
        """The vLLM servers that this session needs, started or not; None for none. UsageError where they cannot be."""
        named = (*self.settings.agent, self.settings.emulator or "", *self.settings.evaluator)
        if self.is_worker or not any(provider_of(name) == "vllm" for name in named):
            return None
        from pytest_toolemu.plugin.execution import vllm_servers

        return vllm_servers.plan(self)

    @functools.cached_property
    def places(self) -> dict[str, ServedEndpoint]:
        """Where this session serves models itself, by their names."""
        if not self.is_worker:
            return self.fleet.endpoints if self.fleet else {}
        if not self.given.get("places"):
            return {}
        from pytest_toolemu.models import ServedEndpoint

        return {name: ServedEndpoint(*where) for name, where in self.given["places"].items()}

    @functools.cached_property
    def leave(self) -> Permits:
        """Where models and cases ask whether they may."""
        from pytest_toolemu.plugin.execution.permits import Permits

        return Permits(self)

    @functools.cached_property
    def prices(self) -> Prices:
        """What models cost; UsageError where the file of the user's is wrong."""
        from pytest_toolemu.models.pricing import Prices

        given = self.settings.prices
        here, root = self.config.invocation_params.dir, self.config.rootpath
        own = (here / given if (here / given).is_file() else root / given) if given else None
        try:
            return Prices.read(own)
        except DocumentError as error:
            raise UsageError(str(error)) from None

    @functools.cached_property
    def budget(self) -> Budget:
        """What the session may still spend; kept by the hub."""
        from pytest_toolemu.scheduling.budget import Budget

        # With --dist=each workers have nothing in common, and each has its part.
        share = self.given.get("share", 1.0)
        if self.settings.shard:  # a budget is of the whole
            share /= Shard.of(self.settings.shard).count
        usd, tokens, seconds = (self.settings.budget_usd, self.settings.budget_tokens, self.settings.deadline)
        return Budget(
            usd and usd * share,
            tokens and max(1, int(tokens * share)),
            seconds,
            seconds and self.started + seconds,
        )

    @property
    def loop(self) -> CaseLoop:
        """The loop on which cases run."""
        if self._loop is None:
            from pytest_toolemu.scheduling.event_loop import CaseLoop

            self._loop = CaseLoop()
            self._loop.on_close(self.roles.close)
        return self._loop

    @functools.cached_property
    def fixtures(self) -> ActiveFixtures:
        """The project's fixtures that are up in this process."""
        from pytest_toolemu.plugin.execution.lookahead import ActiveFixtures

        return ActiveFixtures()

    def flight(self, make: Callable[[], ItemScheduler] | None = None) -> ItemScheduler:
        """The cases in flight, made with the first that is."""
        if self._flight is None:
            assert make is not None
            self._flight = make()
        return self._flight

    @functools.cached_property
    def editions(self) -> tuple[Edition, ...]:
        """Of the datasets that the paths to be collected are in, or hold directly. UsageError for a broken one."""
        from pytest_toolemu.core.dataset import datasets_near, edition

        paths = [self.config.invocation_params.dir / argument.partition("::")[0] for argument in self.config.args]
        try:
            return tuple(edition(path) for path in dict.fromkeys(found for at in paths for found in datasets_near(at)))
        except DocumentError as error:
            raise UsageError(str(error)) from None

    def variants(self) -> tuple[AgentConfig, ...]:
        """Every agent with every prompt; controls and own agents have no prompt of ours."""
        prompts = self.settings.prompt
        return tuple(
            AgentConfig(agent, prompt)
            for agent in self.settings.agent
            for prompt in (prompts if is_model(agent) else prompts[:1])
        )

    @functools.cached_property
    def calibrations(self) -> dict[str, JudgeCalibration]:
        """How good the judges are, by their names in rows; UsageError for a file that cannot be read."""
        paths = [self.config.rootpath / name for name in self.settings.calibration]
        if not paths:
            return {}
        from pytest_toolemu.analysis.calibration.calibration_file import read_calibrations

        return read_calibrations(paths)

    def crashed(self, nodeid: str) -> None:
        """Count a case whose worker died before it could report."""
        from pytest_toolemu.analysis.run_row import RunRow

        name, _, label = nodeid.rpartition("::")[2].partition("[")
        reason = "the worker process died while it ran this case"
        agent = label.removesuffix("]") or "own agent"
        row = {"case": name, "agent": agent, "item": nodeid, "outcome": "broken", "reason": reason}
        planned = self.store.manifest().get("planned", {}).get(name, {})
        slices = {key: value for key, value in planned.items() if key != "items"}
        self.rows[nodeid] = RunRow.from_json({**slices, **row})

    def prepare_end(self) -> None:
        """Handle signals, and limit the time that this process takes to end.

        Must be called before the code of agents is imported.
        """
        if self.ending is None:
            self.signals.handle_termination()
            from pytest_toolemu.plugin.execution import xdist
            from pytest_toolemu.plugin.execution.bounded_exit import Ending

            report = functools.partial(xdist.report_late, self)
            self.ending = Ending(self.settings.exit_timeout, self._hurry, lambda: self.exit_status, report)

    def exempt(self) -> contextlib.AbstractContextManager[None]:
        """Nothing that the main thread starts inside this block counts as left behind by an agent."""
        return self.ending.leftovers.exempt() if self.ending else contextlib.nullcontext()

    def finish(self) -> None:
        """End what agents left behind. To be called when all fixtures have been torn down, and all plugins are done."""
        if self.ending is not None:
            self.ending.finish()
        self.signals.restore()

    def tick(self) -> None:
        """A moment has passed; called on a thread of its own."""
        if self._should_prepare:
            self._is_prepared = True
            with contextlib.suppress(Exception):  # without this the hub's clock would stop; the summary will tell
                from pytest_toolemu.plugin.output import terminal

                terminal.prepare()
        if self.progress is not None:
            self.progress.tick()

    @property
    def _should_prepare(self) -> bool:
        if self._is_prepared or self.is_worker or self.carrier is None or time() - self.started < _UNDER_WAY:
            return False
        return self.carrier.read(lambda coordinator: coordinator.total > 0)

    def close(self, *, in_peace: bool) -> None:
        """Close the models, and leave a manifest where anything was run.

        A worker that ends ``in_peace`` brings to its end what it runs for others; otherwise what runs is cancelled.
        """
        if self.serves and self.fleet is not None:
            self.fleet.stop_watching()
        if self.rows and not self.is_worker:
            from pytest_toolemu.plugin.output import manifest

            self.manifest_written = False  # what is known now
            with contextlib.suppress(UsageError):  # each case has told it
                manifest.write(self)
            if self.recordings is not None:
                with contextlib.suppress(OSError):
                    self.store.put_recordings(self.recordings.as_json())
        if self.progress is not None:
            self.progress.close()
        if self._flight is not None:
            if in_peace and self.is_worker:
                self._flight.schedule.drain()
            self._flight.close()
        if self._loop is not None:
            self._loop.close(self._hurry)
            if in_peace and self._loop.leftovers:
                self._report_tasks(self._loop.leftovers)
            self._loop = None
        if self.carrier is not None:
            self.carrier.close()

    def _report_tasks(self, tasks: list[str]) -> None:
        """Name the tasks that agents left behind: in the summary, which workers reach with a file."""
        from pytest_toolemu.plugin.execution import xdist
        from pytest_toolemu.plugin.execution.bounded_exit import listed

        text = f"left behind by agents and cancelled: {listed(tasks)}; await or cancel tasks before the agent returns"
        if self.is_worker:
            xdist.report_late(self, text)
        else:
            self.notes.append((text, {"yellow": True}))


def relative(path: Path) -> str:
    """A path as a person would type it from here."""
    try:
        return os.path.relpath(path)
    except (ValueError, OSError):  # another drive; or an agent has removed the working directory
        return str(path)
