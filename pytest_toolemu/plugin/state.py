"""What one pytest session keeps: settings, the models it opened, the cases in flight, and what came of them."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_toolemu.environment import load_env
from pytest_toolemu.errors import UsageError
from pytest_toolemu.settings import Settings, Variant, is_model

if TYPE_CHECKING:
    from pytest_toolemu.calibration.figures import JudgeCalibration
    from pytest_toolemu.case import World
    from pytest_toolemu.gates.decision import Decision
    from pytest_toolemu.roles import Roles
    from pytest_toolemu.rows import Row
    from pytest_toolemu.run import Run
    from pytest_toolemu.schedule import Schedule
    from pytest_toolemu.store import RunStore

SESSION: pytest.StashKey[Session] = pytest.StashKey()
ITEM: pytest.StashKey[World] = pytest.StashKey()
"""On every item that runs a case: the case with its toolkits."""

# A case's own time-out ends it; this long after, in seconds, it is taken for stuck.
_OVERTIME: Final = 30.0

MARKS: pytest.StashKey[tuple[str, ...]] = pytest.StashKey()
"""The marks that the project's own ini file lists, as lines."""

PROPERTY = "toolemu"
"""The user property in which a row of the summary travels with a report, also to the xdist controller."""


class CaseError(Exception):
    """The instrument, not the agent, is why a case has no verdict; shown as its text alone."""

    __module__ = "builtins"


@dataclass(frozen=True)
class Finished:
    """A run and the file it was stored in."""

    run: Run
    path: Path


class Session:
    """State of one process. Everything heavy is made on first use, so that runs without cases pay nothing."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self.config = config
        self.settings = settings
        workerinput = getattr(config, "workerinput", None)
        self.is_worker = workerinput is not None
        self._given_name = (workerinput or {}).get("toolemu_session")
        self.rows: dict[str, Row] = {}
        self.decisions: list[Decision] = []
        self.ahead_started = False
        self._manifest_written = False
        self._schedule: Schedule[Finished] | None = None
        self._roles: Roles | None = None

    @functools.cached_property
    def name(self) -> str:
        """The session's name, the same in all xdist workers."""
        from pytest_toolemu.store import session_id

        return self._given_name or session_id()

    @property
    def folder(self) -> Path:
        """Where this session's runs are written; it need not exist yet."""
        return self.config.rootpath / str(self.settings["run-dir"]) / self.name

    @functools.cached_property
    def store(self) -> RunStore:
        """Where runs are written; the folder is made here. UsageError where it cannot be."""
        from pytest_toolemu.store import RunStore

        try:
            return RunStore.create(self.folder.parent, self.name)
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> UsageError:
        remedy = "name another folder with --toolemu-run-dir"
        return UsageError(f"records cannot be written to {self.folder.parent}: {error.strerror}; {remedy}")

    @property
    def roles(self) -> Roles:
        """Who plays which part; credentials are read from ``.env`` beside the ini file first."""
        if self._roles is None:
            from pytest_toolemu.roles import Roles

            # Own agents are named as modules of the project.
            sys.path.append(str(self.config.rootpath))
            load_env(self.config.rootpath / ".env")
            self._roles = Roles(self.settings)
        return self._roles

    @property
    def schedule(self) -> Schedule[Finished]:
        """The loop on which cases run."""
        if self._schedule is None:
            from pytest_toolemu.schedule import Schedule

            self._schedule = Schedule(self.settings["concurrency"], patience=self.settings["timeout"] + _OVERTIME)
            self._schedule.on_close(self.roles.close)
        return self._schedule

    def variants(self) -> tuple[Variant, ...]:
        """Every agent with every prompt; controls and own agents have no prompt of ours."""
        prompts = self.settings["prompt"]
        return tuple(
            Variant(agent, prompt)
            for agent in self.settings["agent"]
            for prompt in (prompts if is_model(agent) else prompts[:1])
        )

    @functools.cached_property
    def calibrations(self) -> dict[str, JudgeCalibration]:
        """How good the judges are, by their names in rows; UsageError for a file that cannot be read."""
        paths = [self.config.rootpath / name for name in self.settings["calibration"]]
        if not paths:
            return {}
        from pytest_toolemu.calibration.record import read_calibrations

        return read_calibrations(paths)

    def preflight(self) -> None:
        """Stop before the first case, with one sentence, when a part that is configured cannot be used."""
        try:
            _ = self.calibrations
            hooked = bool(self.config.hook.pytest_toolemu_make_agent.get_hookimpls())
            self.schedule.run(self.roles.preflight(self.variants(), may_be_made=hooked))
            if self.variants():
                self.write_manifest()
        except UsageError as error:
            raise pytest.UsageError(f"toolemu: {error}") from None

    def write_manifest(self) -> None:
        """Once a session, in the process that is not a worker. UsageError where it cannot be written."""
        if not self._manifest_written:
            try:
                self.store.put_manifest(self.manifest())
            except OSError as error:
                raise self._unwritable(error) from None
            self._manifest_written = True

    def crashed(self, nodeid: str) -> None:
        """Count a case whose worker died before it could report."""
        from pytest_toolemu.rows import Row

        name, _, label = nodeid.rpartition("::")[2].partition("[")
        reason = "the worker process died while it ran this case"
        agent = label.removesuffix("]") or "own agent"
        self.rows[nodeid] = Row(case=name, agent=agent, item=nodeid, outcome="broken", reason=reason)

    def manifest(self) -> dict[str, Any]:
        """What this session is, for its folder."""
        from pytest_toolemu.engine import versions

        return {
            "session": self.name,
            "settings": self.settings.as_json(),
            "arguments": list(self.config.invocation_params.args),
            "rootdir": str(self.config.rootpath),
            "versions": versions(),
        }

    def close(self) -> None:
        """Cancel what runs, close the models, and leave a manifest where anything was run."""
        if self.rows and not self.is_worker:
            with contextlib.suppress(UsageError):  # each case has told it
                self.write_manifest()
        if self._schedule is not None:
            self._schedule.close()
            self._schedule = None


class Reports:
    """Hears of every report. A plugin of its own, as pytest reads all attributes of what is registered, and a Session
    makes its parts when they are read.
    """

    def __init__(self, rows: dict[str, Row]) -> None:
        self._rows = rows

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the row that a report carries. A rerun's replaces the former."""
        if any(name == PROPERTY for name, _ in report.user_properties):
            row = row_of(report)
            if row is not None:
                self._rows[report.nodeid] = row


def properties(pairs: Iterable[tuple[str, object]]) -> dict[str, Any] | None:
    """The row in a report's user properties."""
    texts = [value for name, value in pairs if name == PROPERTY]
    return json.loads(str(texts[-1])) if texts else None


def record_path(item: pytest.Item) -> Path | None:
    """Where the item's run was stored."""
    row = properties(pair for pair in item.user_properties if pair[0] == PROPERTY)
    return Path(row["path"]) if row and row.get("path") else None


def row_of(report: pytest.TestReport) -> Row | None:
    """The row a report carries. A case whose set-up failed before it ran counts as broken."""
    content = properties(report.user_properties)
    # A gate has what failed, and what has no verdict, reported as skipped.
    skipped = report.skipped and not (hasattr(report, "wasxfail") or hasattr(report, "toolemu_undecided"))
    if content is None or (report.when != "call" and report.passed) or skipped:
        return None
    from pytest_toolemu.rows import Row

    row = replace(Row.from_json(content), item=report.nodeid)
    return row if row.outcome else replace(row, outcome="broken", reason="set-up failed; see the error above")


def relative(path: Path) -> str:
    """A path as a person would type it from here."""
    try:
        return os.path.relpath(path)
    except ValueError:  # another drive
        return str(path)
