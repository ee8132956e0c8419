"""The settings by which a session belongs to an earlier one that it resumes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pytest_toolemu.settings import OFFLINE, SettingValue

# Settings that change runs or select other cases. They choose the session to resume; run keys decide on each run.
SAME: Final = (
    "agent", "prompt", "protocol", "emulator", "emulator-mode", "world", "worlds", "evaluator", "checks", "helpfulness",
    "judge-later", "turns", "user", "max-steps", "max-tokens", "seed", "temperature", "max-output-tokens", "vllm-args",
    "vllm-lora", "record", "replay", "shard",
)  # fmt: skip


def run_settings(settings: Mapping[str, tuple[SettingValue, str]]) -> list[SettingValue]:
    """Return the values of the settings that change runs; a setting that a session did not have is None.

    Sessions of earlier versions had one turn, and judged at once.
    """
    former: dict[str, SettingValue] = {"turns": 1, "user": OFFLINE, "judge-later": False}
    return [settings.get(name, (former.get(name), ""))[0] for name in SAME]
