"""The files that a session reads and writes, each opened on first use."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_toolemu.errors import DocumentError, UsageError
from pytest_toolemu.plugin.session import ToolemuSession

if TYPE_CHECKING:
    from pytest_toolemu.analysis.calibration.judge_calibration import JudgeCalibration
    from pytest_toolemu.core.dataset import Edition
    from pytest_toolemu.models.cassette_files import CassetteDirectory
    from pytest_toolemu.models.cassette_recorder import CassetteReport
    from pytest_toolemu.models.pricing import Prices
    from pytest_toolemu.sessions.manifest_records import WorldBuilds
    from pytest_toolemu.sessions.resume import ResumableSessions
    from pytest_toolemu.sessions.store import RunStore


class SessionFiles:
    """Opens the records, cassettes, prices, calibrations, and datasets of one session."""

    def __init__(self, session: ToolemuSession) -> None:
        self._session = session

    @functools.cached_property
    def store(self) -> RunStore:
        """The store of this session's records; creates the folder. Raise UsageError if that fails."""
        from pytest_toolemu.sessions.store import RunStore

        folder, is_private = self._session.folder, self._session.settings.run_dir_mode == "private"
        try:
            return RunStore.create(folder.parent, folder.name, private=is_private)
        except OSError as error:
            raise unwritable_records(folder, error) from None

    @functools.cached_property
    def resumable_sessions(self) -> ResumableSessions | None:
        """The sessions whose runs are resumed; None for none. Raise UsageError for a folder that is not a session's."""
        session = self._session
        if session.settings.resume is None:
            return None
        from pytest_toolemu.sessions.resume import ResumableSessions, resumable_sessions

        if session.worker_input is not None:
            return ResumableSessions.of(map(Path, session.worker_input.resumed_folders), session.settings)
        bases = (session.config.invocation_params.dir, session.config.rootpath)
        return resumable_sessions(session.folder.parent, bases, session.settings)

    @functools.cached_property
    def completed_session(self) -> Path | None:
        """The session that had stopped early and is resumed, so that this one runs all cases; None for none."""
        return self.resumable_sessions.stopped_early if self.resumable_sessions else None

    @property
    def permitted_error(self) -> float | None:
        """The error with which this session may stop when its gates are decided; None if it runs all cases."""
        error = self._session.settings.stop_when_decided
        return error if error is None or self.completed_session is None else None

    @functools.cached_property
    def cassettes(self) -> CassetteDirectory | None:
        """The cassettes that are replayed or recorded; None if neither is."""
        chosen = self._session.settings.recording
        if chosen is None:
            return None
        from pytest_toolemu.models.cassette_files import CassetteDirectory

        mode, folder = chosen
        return CassetteDirectory(self._session.config.rootpath / folder, mode)

    def world_builds(self) -> WorldBuilds | None:
        """Return what the session did to build worlds, in any of its processes; None if it built none."""
        return self.store.world_builds()

    def cassette_report(self) -> CassetteReport | None:
        """Return what all processes have used of the cassettes so far; None if there are no cassettes."""
        if self.cassettes is None:
            return None
        from pytest_toolemu.models.cassette_recorder import report_on

        uses = [run.recording for run in self._session.run_summaries.values() if run.recording]
        uses += self._session.cassette_uses
        return report_on(self.cassettes, uses, self._session.config.rootpath)

    @functools.cached_property
    def prices(self) -> Prices:
        """The prices of models. Raise UsageError for a price file that is wrong."""
        from pytest_toolemu.models.pricing import Prices

        named_file, config = self._session.settings.prices, self._session.config
        invocation_folder, root = config.invocation_params.dir, config.rootpath
        path = None
        if named_file:
            path = invocation_folder / named_file
            if not os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises an error if a name is too long
                path = root / named_file
        try:
            return Prices.read(path)
        except DocumentError as error:
            raise UsageError(str(error)) from None

    @functools.cached_property
    def calibrations(self) -> dict[str, JudgeCalibration]:
        """The calibrations of judges, by the judges' names. Raise UsageError for a file that is wrong."""
        paths = [self._session.config.rootpath / name for name in self._session.settings.calibration]
        if not paths:
            return {}
        from pytest_toolemu.analysis.calibration.calibration_file import read_calibrations

        return read_calibrations(paths)

    @functools.cached_property
    def dataset_editions(self) -> tuple[Edition, ...]:
        """The datasets that hold the collected paths, or lie directly below them. Raise UsageError for a broken one."""
        from pytest_toolemu.core.dataset import datasets_near, edition

        config = self._session.config
        paths = [config.invocation_params.dir / argument.partition("::")[0] for argument in config.args]
        try:
            datasets = dict.fromkeys(dataset for path in paths for dataset in datasets_near(path))
            return tuple(edition(path) for path in datasets)
        except DocumentError as error:
            raise UsageError(str(error)) from None


def unwritable_records(folder: Path, error: OSError) -> UsageError:
    """Return the error for a folder of records that cannot be created or written."""
    remedy = "name another folder with --toolemu-run-dir"
    return UsageError(f"records cannot be written to {folder.parent}: {error.strerror}; {remedy}")
