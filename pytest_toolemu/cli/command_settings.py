"""The settings of commands: from their options, from ``TOOLEMU_*`` variables, and from ``.env``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_toolemu.cli.consoles import err

if TYPE_CHECKING:
    from pytest_toolemu.settings import Settings


def command_settings(options: dict[str, Any], implied: Mapping[str, Any] | None = None) -> Settings:
    """Return the settings from these options, the environment, and ``.env``; warn of unknown variables.

    ``implied`` are options that apply unless an option or a variable sets another value.
    """
    from pytest_toolemu.core.environment import load_env, toolemu_variables
    from pytest_toolemu.settings import resolve, unknown_variables

    env_file = Path(".env")
    load_env(env_file)
    for variable in unknown_variables(os.environ, toolemu_variables(env_file)):
        err.print(f"warning: {variable} is not a known setting and has no effect", markup=False)
    for key, value in (implied or {}).items():
        if options.get(key) is None and not os.environ.get(key.upper()):
            options = {**options, key: value}
    # A variable for pytest says nothing about a command that judges.
    return replace(resolve(options.get, lambda _: None, os.environ), judge_later=False)


def model_settings(concurrency: int | None) -> Settings:
    """Return the settings of a command that asks one model, from ``TOOLEMU_*`` variables and the defaults."""
    return command_settings({"toolemu_concurrency": concurrency})


def draft_settings(judge: str | None) -> Settings:
    """Return the settings of checks on drafts: the judge, if any, is the only evaluator besides each case's checks."""
    return command_settings({"toolemu_evaluator": [judge] if judge else ["checks"]})
