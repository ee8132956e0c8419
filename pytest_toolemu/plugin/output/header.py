"""The header in pytest's terminal: components and their origins, thresholds, what is resumed or replayed, records."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from pytest_toolemu.formats.redaction import REGISTRY
from pytest_toolemu.formats.text import counted
from pytest_toolemu.plugin.collection import options
from pytest_toolemu.plugin.collection.item_agents import agent_configs, definition_of, is_plugin_fixture, without_url
from pytest_toolemu.plugin.output.terminal_text import setting_text, terminal_width, wrapped
from pytest_toolemu.plugin.session import RESOLVED_CASE, ToolemuSession, relative_path
from pytest_toolemu.settings.model_names import CHECKS, judge_models
from pytest_toolemu.settings.option_table import Settings

_MODES: Final = {
    "none": "no requests are sent; replies are replayed from",
    "once": "replies are replayed, and items without a cassette are recorded, in",
    "new": "replies are replayed, and missing ones are recorded, in",
    "all": "all model calls are recorded again in",
}


if TYPE_CHECKING:
    from pytest_toolemu.components import Components

# Settings that lines of their own show.
_SHOWN_ELSEWHERE = frozenset(
    ("agent", "emulator", "builder", "evaluator", "checks", "judge-later", "resume", "record", "replay", "shard")
)


def session_header(session: ToolemuSession, components: Components) -> list[str]:
    """Return the header, wrapped to the width of the terminal. Raise UsageError for files that cannot be read."""
    return wrapped(_lines(session, components), terminal_width(session.config))


def _lines(session: ToolemuSession, components: Components) -> list[str]:
    settings, names = session.settings, components.names
    configs = agent_configs(settings)
    lines = []
    for config in configs:
        evaluators = names.evaluators(config)
        mode = f" {settings.emulator_mode}" if names.emulator(config) != "offline" else ""
        emulator = f"emulator {names.emulator(config)}{mode} ({_origin(settings, 'emulator', 'by the agent')})"
        agent = f"agent {config.agent} ({settings.source('agent')})"
        lines.append(f"toolemu: {agent}, {emulator}, {_evaluators(settings, evaluators)}")
        if note := components.agent_note(config):
            lines.append(f"toolemu: {note}")
        if names.judges_itself(config):
            lines.append(f"toolemu: warning: {config.agent} judges itself; name another model with --toolemu-evaluator")
    if any(map(judge_models, (name for config in configs for name in names.evaluators(config)))):
        calibrated = f"calibrated: {', '.join(session.calibrations)}"
        without = "uncalibrated; 'toolemu calibrate' writes a file for --toolemu-calibration"
        lines.append(f"toolemu: judges {calibrated if settings.calibration else without}")
    if settings.world == "calls":
        lines.append(
            "toolemu: world calls: checks that query rows do not apply; a case whose 'never' checks all query rows "
            "gets a safety score only from judges (--toolemu-evaluator)"
        )
    if settings.world == "built" and (builder := names.builder(configs)):
        lines.append(
            f"toolemu: builder {builder} of missing worlds ({_origin(settings, 'builder', 'by the emulator')})"
        )
    lines += [f"toolemu: dataset {edition}" for edition in session.dataset_editions]
    lines += [
        f"toolemu: warning: the value of {name} is too short or too common to be a secret, and is not redacted; "
        "set a longer value, or rename the variable if it is not a secret"
        for name in REGISTRY.not_redacted()
    ]
    lines += _scope(session)
    lines += options.variable_warnings(session.config)
    others = [
        f"{name} {setting_text(setting.value)} ({setting.source})"
        for name, setting in settings.chosen.items()
        if name not in _SHOWN_ELSEWHERE and not (name == "stop-when-decided" and session.permitted_error is None)
    ]
    records = f"records in {settings.run_dir}/{session.name}"
    passes = f"passes with safety >= {settings.min_safety}"
    if settings.helpfulness != "none":
        passes += f" and helpfulness >= {settings.min_helpfulness}"
    return [*lines, "toolemu: " + "; ".join([passes, *others, records])]


def _scope(session: ToolemuSession) -> list[str]:
    """Say which part of the cases runs, what is resumed, and what is replayed and recorded."""
    settings, lines = session.settings, []
    if settings.shard:
        from pytest_toolemu.plugin.collection.shards import shard_header
        from pytest_toolemu.sessions.shard_assignment import Shard

        lines.append(shard_header(Shard.of(settings.shard), settings.source("shard"), session.config.rootpath))
    if settings.resume:
        lines.append(f"toolemu: {_resuming(session)}")
    if session.cassettes is not None:
        lines.append(f"toolemu: {_MODES[session.cassettes.mode]} {relative_path(session.cassettes.folder)}")
    if settings.stop_when_decided is not None and session.completed_session is not None:
        option = f"{settings.source('stop-when-decided')} has no effect"
        lines.append(f"toolemu: all cases run, to complete {relative_path(session.completed_session)}; {option}")
    return lines


def _evaluators(settings: Settings, names: tuple[str, ...]) -> str:
    """Return the evaluators with their origin: the configured evaluators, and each case's checks in addition."""
    if settings.judge_later:
        return f"evaluators: later, with 'toolemu judge' ({settings.source('judge-later')})"
    origin = _origin(settings, "evaluator", "by the emulator")
    if names == (CHECKS,):
        return f"evaluator {CHECKS} ({origin})"
    if settings.checks == "off":
        checks = f"without {CHECKS} ({settings.source('checks')}=off)"
    else:
        checks = f"{CHECKS} (each case's own)"
    others = [name for name in names if name != CHECKS]
    judges = f"{', '.join(others)} ({origin})" if others else "none"
    return f"evaluators {judges}, {checks}"


def _origin(settings: Settings, name: str, default: str) -> str:
    source = settings.source(name)
    return default if source == "default" else source


def _resuming(session: ToolemuSession) -> str:
    resumable = session.resumable_sessions
    if resumable is None:
        return f"nothing to resume: no session in {session.settings.run_dir} has runs of this configuration"
    first, *others = map(relative_path, resumable.folders)
    also = f" and the sessions that it resumed ({', '.join(others)})" if others else ""
    rerun = f"; {' and '.join(sorted(resumable.again))} runs are repeated" if resumable.again else ""
    return f"resuming {first}{also}: {counted(resumable.count(), 'run')}{rerun}"


# ---- a notice on fixtures of the project, once its items are known


def agent_notice(settings: Settings, items: Iterable[pytest.Item]) -> str:
    """Return a sentence on the cases that the named agent does not apply to; empty if there are none.

    An agent in the ini file is the project's default, which its fixtures are meant to override.
    """
    source, name = settings.source("agent"), "toolemu_agent"
    if not settings.agent or source.startswith("ini "):
        return ""
    cases = [item for item in items if RESOLVED_CASE in item.stash and name in getattr(item, "fixturenames", ())]
    overridden = [item for item in cases if not is_plugin_fixture(item, name)]
    if not overridden:
        return ""
    functions = {item_fixture.func for item in overridden if (item_fixture := definition_of(item, name)) is not None}
    files = {Path(inspect.getsourcefile(inspect.unwrap(function)) or "?") for function in functions}
    count = f"{len(overridden):,} of {counted(len(cases), 'case')}"
    return (
        f"warning: {source} has no effect on {count}: the fixture {name} in "
        f"{', '.join(sorted(map(relative_path, files)))} provides the agent; remove or rename the fixture to test "
        f"{', '.join(map(without_url, settings.agent))}"
    )
