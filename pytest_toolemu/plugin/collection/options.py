"""The settings as pytest options, ini keys and selection of items."""

from __future__ import annotations

import os
import random
from typing import Literal

import pytest

from pytest_toolemu import settings
from pytest_toolemu.core.environment import toolemu_variables
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.redaction import plain
from pytest_toolemu.formats.secret_registry import refuse
from pytest_toolemu.plugin.session import ITEM, SESSION

# Options in whose values somebody may have written a key or a password.


def declare(parser: pytest.Parser) -> None:
    """One option and one ini key for each knob; values stay text until they are resolved."""
    group = parser.getgroup("toolemu", "agents in an emulated tool world")
    for knob in settings.OPTIONS:
        text = _help(knob)
        if knob.is_flag:
            group.addoption(knob.option, dest=knob.key, action="store_const", const="true", default=None, help=text)
        elif knob.bare is not None:
            group.addoption(
                knob.option, dest=knob.key, nargs="?", const=knob.bare, default=None, metavar=knob.metavar, help=text
            )
        else:
            action = "append" if knob.many else "store"
            group.addoption(knob.option, dest=knob.key, action=action, default=None, metavar=knob.metavar, help=text)
        kind: Literal["linelist", "string"] = "linelist" if knob.many else "string"
        parser.addini(knob.key, f"{knob.help} (as {knob.option})", type=kind, default=None)


def _help(knob: settings.Option) -> str:
    default = knob.default
    if default is None or default is False:
        return knob.help
    return f"{knob.help} (default: {', '.join(default) if isinstance(default, tuple) else default})"


def resolved(config: pytest.Config) -> settings.Settings:
    """All settings; a value that does not parse is a usage error of pytest."""
    try:
        env_file = toolemu_variables(config.rootpath / ".env")
        found = settings.resolve(lambda key: getattr(config.option, key, None), config.getini, os.environ, env_file)
        named = {
            "agent": found.agent,
            "emulator": (found.emulator or "",),
            "evaluator": found.evaluator,
            "vllm-url": (found.vllm_url or "",),
        }
        for name, values in named.items():
            for value in values:
                refuse(value, found.source(name))
    except UsageError as error:
        raise pytest.UsageError(plain(str(error))) from None
    return found


def add_benchmark(config: pytest.Config) -> None:
    """Collect the shipped cases: instead of the default paths, or beside those named on the command line."""
    from pytest_toolemu.core.toolkit import benchmark_folder

    folder = str(benchmark_folder() / "cases")
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args[:] = [folder]
    elif folder not in config.args:
        config.args.append(folder)


def without_workers(config: pytest.Config) -> None:
    """An estimate is made where the cases are collected, which with xdist would be in its workers."""
    if hasattr(config.option, "dist"):
        config.option.dist = "no"
        config.option.tx = []


def mark_cases(items: list[pytest.Item]) -> None:
    """Python tests over cases are cases too: for the preflight, the sample and the order."""
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        if ITEM not in item.stash and "toolemu_case" in params:
            item.stash[ITEM] = params["toolemu_case"]


def sample(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep N cases, drawn by the seed from the collected files, with all their agents and trials."""
    chosen = config.stash[SESSION].settings
    if chosen.sample is None:
        return
    paths = sorted({str(item.stash[ITEM].path) for item in items if ITEM in item.stash})
    kept = set(random.Random(chosen.seed).sample(paths, min(chosen.sample, len(paths))))
    dropped = [item for item in items if ITEM in item.stash and str(item.stash[ITEM].path) not in kept]
    deselect(config, items, set(dropped))


def deselect(config: pytest.Config, items: list[pytest.Item], dropped: set[pytest.Item]) -> None:
    """Leave items out, as pytest's own ``-k`` does."""
    if dropped:
        config.hook.pytest_deselected(items=[item for item in items if item in dropped])
        items[:] = [item for item in items if item not in dropped]
