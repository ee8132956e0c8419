"""The names of the components that a session uses: configured names, and the defaults that follow from them."""

from __future__ import annotations

import difflib
import io
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_toolemu.errors import UsageError
from pytest_toolemu.settings.model_names import (
    CHECKS,
    COMMAND,
    OFFLINE,
    AgentConfig,
    applies_checks,
    fallback_parts,
    is_model,
    judge_models,
)
from pytest_toolemu.settings.option import Option, ResolvedOption
from pytest_toolemu.settings.option_table import OPTIONS, Settings

if TYPE_CHECKING:
    from dotenv.parser import Binding

NO_BUILDER: Final = "none"
"""The value of ``--toolemu-builder`` with which a missing world is an error."""


@dataclass(frozen=True)
class ComponentNames:
    """Names the components of an agent; None stands for an agent that is not configured by name."""

    settings: Settings

    def emulator(self, variant: AgentConfig | None) -> str:
        """Return the configured emulator; else the agent's model, or ``offline`` if the agent is not a model."""
        if self.settings.emulator:
            return self.settings.emulator
        return variant.agent if variant and is_model(variant.agent) else OFFLINE

    def builder(self, variants: Sequence[AgentConfig | None]) -> str:
        """Return the model that builds missing worlds: the configured one, else the emulator's; empty for none.

        Agents with different models as emulators share their worlds, so none of these models is the default.
        """
        if self.settings.builder:
            return "" if self.settings.builder == NO_BUILDER else self.settings.builder
        models = {name for variant in variants or (None,) if is_model(name := self.emulator(variant))}
        return models.pop() if len(models) == 1 else ""

    def evaluators(self, variant: AgentConfig | None) -> tuple[str, ...]:
        """Return the configured evaluators; else the emulator's model, or ``checks`` if the emulator is offline.

        Each case's checks count in addition, unless ``--toolemu-checks=off`` is set. Raise UsageError if that option
        contradicts a configured ``checks``; return nothing if it leaves no evaluator, or if judging is left for later.
        """
        if self.settings.judge_later:
            return ()
        has_checks = self.settings.checks == "on"
        if names := self.settings.evaluator:
            if any(map(applies_checks, names)) and not has_checks:
                raise UsageError(
                    f"{self.settings.source('evaluator')} names {CHECKS!r} as an evaluator, but "
                    f"{self.settings.source('checks')} turns checks off; remove one of the two"
                )
            return names
        emulator = self.emulator(variant)
        if is_model(emulator):
            return (emulator,)
        return (CHECKS,) if has_checks else ()

    def evaluators_in_force(self, variants: Sequence[AgentConfig | None]) -> list[str]:
        """Return all evaluators of these variants, with ``checks`` if each case's checks count."""
        names = [name for variant in variants or (None,) for name in self.evaluators(variant)]
        has_checks = self.settings.checks == "on" and not self.settings.judge_later
        return list(dict.fromkeys([*names, *([CHECKS] if has_checks else [])]))

    def judging_models(self, variant: AgentConfig | None) -> list[str]:
        """Return the models that judge, each stage of a cascade by itself; a stage may have a fallback."""
        return [model for name in self.evaluators(variant) for model in judge_models(name)]

    def judges_itself(self, variant: AgentConfig) -> bool:
        """Return whether the agent's own model is among its evaluators, or is a fallback of one."""
        judges = [part for name in self.judging_models(variant) for part in fallback_parts(name)]
        return is_model(variant.agent) and variant.agent in judges


def resolve(
    option: Callable[[str], Any],
    ini: Callable[[str], Any],
    environ: Mapping[str, str],
    env_file: Mapping[str, str] | None = None,
) -> Settings:
    """Look up every option; raise UsageError for a value that does not parse.

    ``option`` and ``ini`` return None for what is not set. ``env_file`` holds the variables of the ``.env`` file, which
    apply if ``environ`` does not contain them.
    """
    resolved = {each.name: _resolve(each, option, ini, environ, env_file or {}) for each in OPTIONS}
    chosen = {name: value for name, value in resolved.items() if value is not None}
    values = {name.replace("-", "_"): value.value for name, value in chosen.items()}
    return Settings(**values, sources={name: value.source for name, value in chosen.items()})


def _resolve(
    each: Option,
    option: Callable[[str], Any],
    ini: Callable[[str], Any],
    environ: Mapping[str, str],
    env_file: Mapping[str, str],
) -> ResolvedOption | None:
    variable = environ.get(each.variable, env_file.get(each.variable))
    origin = each.variable if each.variable in environ else f"{each.variable} in .env"
    for raw, source in ((option(each.key), each.option), (variable, origin), (ini(each.key), f"ini {each.key}")):
        # An empty value on the command line is a mistake, such as an undefined variable of a CI job.
        is_empty_list = each.many and isinstance(raw, str) and not raw.strip(" ,")
        if not (raw in (None, [], "") or is_empty_list) or (raw == "" and source == each.option):
            return ResolvedOption(_parse(each, raw, source), source)
    return None


PREFIX: Final = "TOOLEMU_"
"""The prefix of the variables of options, which is reserved for them."""


def unknown_variables(names: Iterable[str]) -> list[str]:
    """Return the ``TOOLEMU_*`` variables among these that are not settings.

    Raise UsageError for one that is a misspelled setting: a name close to a setting was meant to change the result, so
    the session would not do what the user intended.
    """
    variables = {option.variable for option in OPTIONS}
    unknown = sorted(name for name in names if name.startswith(PREFIX) and name not in variables)
    suffixes = [variable.removeprefix(PREFIX) for variable in variables]
    for name in unknown:
        if near := difflib.get_close_matches(name.removeprefix(PREFIX), suffixes, n=1, cutoff=0.75):
            raise UsageError(f"{name} is not a known setting; did you mean {PREFIX}{near[0]}? Rename or remove it")
    return unknown


def _parse(option: Option, raw: Any, source: str) -> Any:
    if option.many:
        texts = [part for text in ([raw] if isinstance(raw, str) else raw) for part in _values(text)]
        return tuple(dict.fromkeys(_parse_one(option, text, source) for text in texts))
    return _parse_one(option, str(raw), source)


def _values(text: str) -> list[str]:
    """Return the values in a list; a command takes the rest, as it may contain commas."""
    values, command, rest = text.partition(COMMAND)
    parts = [part.strip() for part in values.split(",")]
    return [part for part in (*parts, command + rest) if part] or [text]


def _parse_one(option: Option, text: str, source: str) -> Any:
    try:
        return option.parse(text)
    except ValueError as error:
        problem = f"{text!r} is not valid" if text.strip() else "the value is empty"
        raise UsageError(f"{source}: {problem}; expected {error}") from None


def load_env(path: Path) -> None:
    """Set the variables of a ``.env`` file that the environment does not set. Raise UsageError if it cannot be read."""
    if not path.is_file():
        return
    try:
        bindings = _bindings(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    for binding in bindings:
        if binding.error:
            raise UsageError(f"{path}:{binding.original.line}: is not NAME=value; fix or remove the line")
        if binding.key is not None and binding.value is not None:
            os.environ.setdefault(binding.key, binding.value)


def toolemu_variables(path: Path) -> dict[str, str]:
    """Return the ``TOOLEMU_*`` variables of a ``.env`` file without setting them.

    Problems of the file are ignored here; ``load_env`` reports them in sessions that need the file. A file without such
    variables costs no import.
    """
    try:
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
    except (OSError, UnicodeDecodeError):
        return {}
    bindings = _bindings(text) if PREFIX in text else ()
    return {one.key: one.value for one in bindings if one.key and one.value is not None and one.key.startswith(PREFIX)}


def _bindings(text: str) -> list[Binding]:
    from dotenv.parser import parse_stream

    return list(parse_stream(io.StringIO(text)))
