"""The settings as pytest options and ini keys, and the selection of items."""

from __future__ import annotations

import os
import random
from typing import Any, Literal

import pytest

from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.redaction import refuse, refuse_in_command
from pytest_toolemu.formats.text import visible
from pytest_toolemu.plugin.session import RESOLVED_CASE, SESSION
from pytest_toolemu.settings.model_names import COMMAND, REFERENCE
from pytest_toolemu.settings.option import Option
from pytest_toolemu.settings.option_table import OPTIONS, Settings
from pytest_toolemu.settings.resolution import PREFIX, resolve, toolemu_variables, unknown_variables


def declare(parser: pytest.Parser) -> None:
    """Declare an ini key for each setting, and for most an option; values stay text until they are resolved."""
    groups = {
        "everyday": parser.getgroup("toolemu", "testing LM agents with emulated tools"),
        "advanced": parser.getgroup("toolemu-advanced", "testing LM agents with emulated tools: advanced options"),
    }
    for option in OPTIONS:
        kind: Literal["linelist", "string"] = "linelist" if option.many else "string"
        parser.addini(option.key, option.help, type=kind, default=None)
        if option.group == "ini":
            continue
        form: dict[str, Any] = {"action": "append" if option.many else "store", "metavar": option.metavar}
        if option.is_flag:
            form = {"action": "store_const", "const": "true"}
        elif option.bare is not None:
            form = {"nargs": "?", "const": option.bare, "metavar": option.metavar}
        groups[option.group].addoption(option.option, dest=option.key, default=None, help=_help(option), **form)


def _help(option: Option) -> str:
    default = option.default
    if default is None or default is False or default in ((), ""):
        return option.help
    return f"{option.help} (default: {', '.join(default) if isinstance(default, tuple) else default})"


def resolve_settings(config: pytest.Config) -> Settings:
    """Return all settings.

    Raise pytest.UsageError for a value that cannot be parsed, contains a secret, or contradicts another setting.
    """
    try:
        env_file = toolemu_variables(config.rootpath / ".env")
        resolved = resolve(lambda key: getattr(config.option, key, None), config.getini, os.environ, env_file)
        # Users sometimes put a key or a password into these.
        names = {
            "agent": resolved.agent,
            "emulator": (resolved.emulator or "",),
            "builder": (resolved.builder or "",),
            "evaluator": resolved.evaluator,
            "vllm-url": (resolved.vllm_url or "",),
        }
        for name, values in names.items():
            for value in values:
                refuse(value, resolved.source(name))
                if value.startswith(COMMAND):
                    refuse_in_command(value, resolved.source(name))
        refuse_contradictions(resolved)
    except UsageError as error:
        raise pytest.UsageError(visible(str(error))) from None
    return resolved


def refuse_contradictions(settings: Settings) -> None:
    """Raise UsageError if one setting makes another one meaningless."""
    references = [agent for agent in settings.agent if agent.startswith(REFERENCE)]
    if settings.world == "built" and references:
        raise UsageError(
            f"{references[0]} ({settings.source('agent')}) works only with the rows of its case, but "
            f"{settings.source('world')}=built replaces them; name an agent, or use {settings.source('world')}=case"
        )
    if settings.stop_when_decided is None:
        return
    source = settings.source("stop-when-decided")
    if not settings.gate:
        raise UsageError(
            f"{source} needs a gate to decide; add one, such as --toolemu-gate='failure_incidence <= 0.25'"
        )
    if settings.judge_later:
        raise UsageError(
            f"{source} needs verdicts, which {settings.source('judge-later')} postpones; remove one of the two"
        )
    if settings.shard:
        raise UsageError(
            f"{source} has no effect in shard {settings.shard}, because 'toolemu gate' decides on the merged session; "
            f"remove it, or {settings.source('shard')}"
        )


def add_benchmark(config: pytest.Config) -> None:
    """Collect the shipped cases: instead of the default paths, or in addition to those on the command line."""
    from pytest_toolemu.core.toolkit import benchmark_folder

    folder = str(benchmark_folder() / "cases")
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args[:] = [folder]
    elif folder not in config.args:
        config.args.append(folder)


def sample(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep ``--toolemu-sample`` cases with all their agents and trials; which ones depends on the seed alone."""
    settings = config.stash[SESSION].settings
    if settings.sample is None:
        return
    paths = sorted({str(item.stash[RESOLVED_CASE].path) for item in items if RESOLVED_CASE in item.stash})
    sampled = set(random.Random(settings.seed).sample(paths, min(settings.sample, len(paths))))
    dropped = [
        item for item in items if RESOLVED_CASE in item.stash and str(item.stash[RESOLVED_CASE].path) not in sampled
    ]
    deselect(config, items, set(dropped))


def deselect(config: pytest.Config, items: list[pytest.Item], dropped: set[pytest.Item]) -> None:
    """Deselect items as pytest's own ``-k`` does."""
    if dropped:
        config.hook.pytest_deselected(items=[item for item in items if item in dropped])
        items[:] = [item for item in items if item not in dropped]


def empty_variables(config: pytest.Config) -> list[str]:
    """Return the variables that are set but empty, such as an undefined secret of a CI job. They have no effect."""
    variables = _in_file(config) | os.environ
    return [name for name, value in sorted(variables.items()) if name.startswith(PREFIX) and not value.strip()]


def variable_warnings(config: pytest.Config) -> list[str]:
    """Return a warning for each variable without effect; raise UsageError for a misspelled one."""
    return [
        *(f"toolemu: warning: {name} is set but empty, and has no effect" for name in empty_variables(config)),
        *(f"toolemu: warning: {name} is not a known setting and has no effect" for name in check_variables(config)),
    ]


def check_variables(config: pytest.Config) -> list[str]:
    """Return the variables that are not settings; raise UsageError for a misspelled one."""
    return unknown_variables({*os.environ, *_in_file(config)})


def _in_file(config: pytest.Config) -> dict[str, str]:
    return toolemu_variables(config.rootpath / ".env")
