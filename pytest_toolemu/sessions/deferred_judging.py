"""Sessions that left judging for later: what they say about how to judge, and about what to decide then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.sessions.stored_settings import stored_setting
from pytest_toolemu.settings import OPTIONS

_JUDGING: Final = ("evaluator", "helpfulness", "checks")
_DECIDING: Final = ("gate", "calibration")
_KEYS: Final = {option.name: option.key for option in OPTIONS}


def judging_options(manifests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the options of ``toolemu judge`` that these sessions imply, by their keys, without defaults.

    Sessions that judged at once imply nothing, and neither do sessions that differ.
    """
    chosen = _common(manifests, _JUDGING)
    return {_KEYS[name]: value for name, (value, source) in chosen.items() if source != "default"}


def deciding_settings(manifests: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the settings of gates and calibrations that these sessions leave to ``toolemu gate``.

    Files are named by absolute paths, as the new records are in another folder.
    """
    root = Path(str(manifests[0].get("rootdir", "."))) if manifests else Path()
    return {
        name: [[_from_root(root, text) for text in values], source]
        for name, (values, source) in _common(manifests, _DECIDING).items()
    }


def _common(manifests: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, tuple[Any, str]]:
    """Return the settings with these names, with their sources, if all sessions left judging for later and agree."""
    settings = [manifest.get("settings", {}) for manifest in manifests]
    if not settings or not all(stored_setting(manifest, "judge-later") for manifest in manifests):
        return {}
    first = {name: settings[0].get(name) for name in names if settings[0].get(name)}
    if any({name: each.get(name) for name in first} != first for each in settings):
        return {}
    return {name: (value, source) for name, (value, source) in first.items()}


def _from_root(root: Path, text: str) -> str:
    """Return a file below the root of the session as an absolute path, and an expression unchanged."""
    path = root / text
    return str(path.absolute()) if path.is_file() else text
