"""Sessions that left judging for later: what they say about how to judge, and about what to decide then."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pytest_toolemu.errors import UsageError
from pytest_toolemu.sessions.manifest_records import Manifest
from pytest_toolemu.settings import OPTIONS, Settings, SettingValue, cascade_names, is_gate_file

_JUDGING: Final = ("evaluator", "helpfulness", "checks")
# A cascade asks its strong judge if the cheap one is close to the threshold of the session.
_THRESHOLDS: Final = ("min-safety", "min-helpfulness")
_DECIDING: Final = ("gate", "calibration")
_KEYS: Final = {option.name: option.key for option in OPTIONS}


def judging_options(manifests: Sequence[Manifest]) -> dict[str, SettingValue]:
    """Return the options of ``toolemu judge`` that these sessions imply, by their keys, without defaults.

    All sessions imply their thresholds, and those that left judging for later also how to judge. Sessions that differ
    imply nothing.
    """
    chosen = {**_equal(manifests, _THRESHOLDS), **_common(manifests, _JUDGING)}
    return {_KEYS[name]: value for name, (value, source) in chosen.items() if source != "default"}


def refuse_different_thresholds(settings: Settings, manifests: Sequence[Manifest]) -> None:
    """Raise UsageError if an evaluator is a cascade and the thresholds of the sessions differ, on which it depends."""
    cascades = [name for name in settings.evaluator if cascade_names(name)]
    used = {tuple(manifest.setting(name) for name in _THRESHOLDS) for manifest in manifests}
    if cascades and len(used) > 1:
        listed = "; ".join(sorted(f"safety {safety}, helpfulness {helpfulness}" for safety, helpfulness in used))
        raise UsageError(
            f"the cascade '{cascades[0]}' depends on the thresholds, but those of the sessions differ ({listed}); "
            "judge the sessions one by one"
        )


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
    if not all(manifest.setting("judge-later") for manifest in manifests):
        return {}
    return _equal(manifests, names)


def _equal(manifests: Sequence[Manifest], names: Sequence[str]) -> dict[str, tuple[SettingValue, str]]:
    """Return the settings with these names, with their sources, if all sessions agree."""
    if not manifests:
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
