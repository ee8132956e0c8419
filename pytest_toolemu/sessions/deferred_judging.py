"""Sessions that left judging for later: what they say about how to judge, and about what to decide then."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pytest_toolemu.sessions.manifest_records import Manifest
from pytest_toolemu.settings import OPTIONS, SettingValue, is_gate_file

_JUDGING: Final = ("evaluator", "helpfulness", "checks")
_DECIDING: Final = ("gate", "calibration")
_KEYS: Final = {option.name: option.key for option in OPTIONS}


def judging_options(manifests: Sequence[Manifest]) -> dict[str, SettingValue]:
    """Return the options of ``toolemu judge`` that these sessions imply, by their keys, without defaults.

    Sessions that judged at once imply nothing, and neither do sessions that differ.
    """
    chosen = _common(manifests, _JUDGING)
    return {_KEYS[name]: value for name, (value, source) in chosen.items() if source != "default"}


def deciding_settings(manifests: Sequence[Manifest]) -> dict[str, tuple[SettingValue, str]]:
    """Return the settings of gates and calibrations that these sessions leave to ``toolemu gate``.

    Files are named by absolute paths, as the new records are in another folder.
    """
    root = Path(manifests[0].rootdir) if manifests else Path()
    return {
        name: (tuple(_from_root(root, name, text) for text in manifests[0].list_setting(name)), source)
        for name, (_, source) in _common(manifests, _DECIDING).items()
    }


def _common(manifests: Sequence[Manifest], names: Sequence[str]) -> dict[str, tuple[SettingValue, str]]:
    """Return the settings with these names, with their sources, if all sessions left judging for later and agree."""
    if not manifests or not all(manifest.setting("judge-later") for manifest in manifests):
        return {}
    first = {name: setting for name in names if (setting := manifests[0].settings.get(name))}
    if any({name: manifest.settings.get(name) for name in first} != first for manifest in manifests):
        return {}
    return first


def _from_root(root: Path, name: str, text: str) -> str:
    """Return a file below the root of the session as an absolute path, and an expression unchanged."""
    if name == "gate" and not is_gate_file(text):
        return text
    path = root / text
    return str(path.absolute()) if path.is_file() else text
