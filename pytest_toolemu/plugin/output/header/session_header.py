"""The header in pytest's terminal: components and their origins, thresholds, provenance, and where records go."""

from __future__ import annotations

from pytest_toolemu.formats.credentials import REGISTRY
from pytest_toolemu.plugin.collection import options, shard_selection
from pytest_toolemu.plugin.collection.item_agents import agent_configs
from pytest_toolemu.plugin.output.header import provenance
from pytest_toolemu.plugin.output.header.setting_text import setting_text
from pytest_toolemu.plugin.output.terminal_text import terminal_width, wrapped
from pytest_toolemu.plugin.services import Services
from pytest_toolemu.plugin.session import relative_path
from pytest_toolemu.settings import CHECKS, Settings, judge_models

# Settings that lines of their own show.
_SHOWN_ELSEWHERE = (
    "agent",
    "emulator",
    "builder",
    "evaluator",
    "checks",
    "judge-later",
    "resume",
    "record",
    "replay",
    "shard",
)


def session_header(services: Services) -> list[str]:
    """Return the header, wrapped to the width of the terminal. Raise UsageError for files that cannot be read."""
    return wrapped(_lines(services), terminal_width(services.session.config))


def _lines(services: Services) -> list[str]:
    session, files = services.session, services.files
    settings, components = session.settings, services.models.open_components()
    configs, names = agent_configs(settings), components.names
    lines = []
    for config in configs:
        evaluators = names.evaluators(config)
        emulator = _emulator(settings, names.emulator(config))
        agent = f"agent {config.agent} ({settings.source('agent')})"
        lines.append(f"toolemu: {agent}, {emulator}, {_evaluators(settings, evaluators)}")
        if note := components.agent_note(config):
            lines.append(f"toolemu: {note}")
        if names.judges_itself(config):
            lines.append(f"toolemu: warning: {config.agent} judges itself; name another model with --toolemu-evaluator")
    if any(map(judge_models, (name for config in configs for name in names.evaluators(config)))):
        lines.append(f"toolemu: judges {_calibrated(services)}")
    if settings.world == "calls":
        lines.append(
            "toolemu: world calls: checks that query rows do not apply; a case whose 'never' checks all query rows "
            "gets a safety score only from judges (--toolemu-evaluator)"
        )
    if settings.world == "built" and (builder := names.builder(configs)):
        lines.append(
            f"toolemu: builder {builder} of missing worlds ({_origin(settings, 'builder', 'by the emulator')})"
        )
    lines += [f"toolemu: dataset {edition}" for edition in files.dataset_editions]
    lines += [_not_redacted(name) for name in REGISTRY.not_redacted()]
    lines += shard_selection.header(settings, session.config.rootpath)
    lines += provenance.header(settings, files)
    lines += options.header(session.config)
    lines += _completing(services)
    others = [
        f"{name} {setting_text(setting.value)} ({setting.source})"
        for name, setting in settings.chosen.items()
        if name not in _SHOWN_ELSEWHERE and not (name == "stop-when-decided" and files.permitted_error is None)
    ]
    records = f"records in {settings.run_dir}/{session.name}"
    return [*lines, "toolemu: " + "; ".join([_thresholds(settings), *others, records])]


def _completing(services: Services) -> list[str]:
    """Say that the session runs all cases although an option says otherwise, because it completes another session."""
    settings, files = services.session.settings, services.files
    if settings.stop_when_decided is None or files.completed_session is None:
        return []
    name, source = relative_path(files.completed_session), settings.source("stop-when-decided")
    return [
        f"toolemu: all cases run, because this session completes {name}, which stopped early; {source} has no effect"
    ]


def _emulator(settings: Settings, name: str) -> str:
    mode = f" {settings.emulator_mode}" if name != "offline" else ""
    return f"emulator {name}{mode} ({_origin(settings, 'emulator', 'by the agent')})"


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


def _calibrated(services: Services) -> str:
    """Say which judges have a calibration. Whether they are this session's judges is known once they have judged."""
    if not services.session.settings.calibration:
        return "uncalibrated; 'toolemu calibrate' writes a file for --toolemu-calibration"
    return "calibrated: " + ", ".join(services.files.calibrations)


def _thresholds(settings: Settings) -> str:
    safety = f"passes with safety >= {settings.min_safety}"
    return safety if settings.helpfulness == "none" else f"{safety} and helpfulness >= {settings.min_helpfulness}"


def _not_redacted(name: str) -> str:
    return (
        f"toolemu: warning: the value of {name} is too short or too common to be a secret, and is not redacted; "
        "set a longer value, or rename the variable if it is not a secret"
    )


def _origin(settings: Settings, name: str, default: str) -> str:
    source = settings.source(name)
    return default if source == "default" else source
