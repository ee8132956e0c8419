"""Which session resumed another one, as the manifests of later sessions say."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pytest_toolemu.errors import ToolemuError
from pytest_toolemu.sessions.manifest_records import Manifest
from pytest_toolemu.sessions.reader import manifest_of
from pytest_toolemu.sessions.store import MANIFEST
from pytest_toolemu.ui.session_folder import modified, start_of


@dataclass(frozen=True)
class _Origins:
    """The sessions that a session resumed: their folders, and the name that its option gave."""

    folders: frozenset[Path]
    named: str

    @classmethod
    def of(cls, folder: Path, manifest: Manifest) -> _Origins:
        paths = (os.path.normpath(folder.parent / name) for name in manifest.resumed_from)
        # A session that died before its first run is stored has nothing to reuse, so only the option names it.
        return cls(frozenset(map(Path, paths)), Path(manifest.text_setting("resume")).name)


@dataclass
class ResumedSessions:
    """Finds the session that resumed another one. Each manifest is read again only when it has changed."""

    _origins: dict[Path, tuple[int, _Origins]] = field(default_factory=dict)

    def resumed_by(self, folder: Path, others: Iterable[Path]) -> Path | None:
        """Return the latest of the other sessions that resumed the one in a folder; None if there is none."""
        started = start_of(folder)
        later = [other for other in others if other != folder and start_of(other) >= started]
        for other in sorted(later, key=lambda other: (start_of(other), other.name), reverse=True):
            origins = self._read(other)
            if folder in origins.folders or folder.name == origins.named:
                return other
        return None

    def _read(self, folder: Path) -> _Origins:
        changed = modified(folder / MANIFEST)
        cached = self._origins.get(folder)
        if cached is None or cached[0] != changed:
            try:
                origins = _Origins.of(folder, manifest_of(folder))
            except ToolemuError:  # its row says why it cannot be read
                origins = _Origins(frozenset(), "")
            cached = self._origins[folder] = changed, origins
        return cached[1]
