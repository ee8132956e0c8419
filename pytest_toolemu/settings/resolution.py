"""Finds the value of every option: ``--toolemu-NAME`` > ``TOOLEMU_NAME`` > ini ``toolemu_name`` > default."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from pytest_toolemu.errors import UsageError
from pytest_toolemu.settings.option import Option, ResolvedOption
from pytest_toolemu.settings.option_table import OPTIONS, Settings


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
    value: Any = [part for part in variable.split(",") if part.strip()] if variable and each.many else variable
    for raw, source in (
        (option(each.key), each.option),
        (value, origin),
        (ini(each.key), f"ini {each.key}"),
    ):
        # An empty value on the command line is a mistake, such as an undefined variable of a CI job.
        if raw not in (None, [], "") or (raw == "" and source == each.option):
            return ResolvedOption(_parse(each, raw, source), source)
    return None


PREFIX: Final = "TOOLEMU_"
"""The prefix of the variables of options, which is reserved for them."""


def unknown_variables(environ: Iterable[str], env_file: Iterable[str] = ()) -> list[str]:
    """Return the ``TOOLEMU_*`` variables that are not settings, each with where it is set.

    Raise UsageError for one that is a misspelled setting: a name close to a setting was meant to change the result, so
    the session would not do what the user intended. ``env_file`` holds the names of the variables in ``.env``.
    """
    variables = {option.variable for option in OPTIONS}
    in_file = set(env_file)
    unknown = [name for name in sorted({*environ, *in_file}) if name.startswith(PREFIX) and name not in variables]
    suffixes = [variable.removeprefix(PREFIX) for variable in variables]
    descriptions = {
        name: f"{name} in .env" if name in in_file else f"the environment variable {name}" for name in unknown
    }
    for name, description in descriptions.items():
        if near := difflib.get_close_matches(name.removeprefix(PREFIX), suffixes, n=1, cutoff=0.75):
            remedy = "Rename or remove it" if name in in_file else "Rename or unset it"
            raise UsageError(f"{description} is not a known setting; did you mean {PREFIX}{near[0]}? {remedy}")
    return list(descriptions.values())


def _parse(option: Option, raw: Any, source: str) -> Any:
    if option.many:
        texts = [raw] if isinstance(raw, str) else list(raw)
        if option.words:
            texts = [part.strip() for text in texts for part in text.split(",")]
        return tuple(dict.fromkeys(_parse_one(option, text, source) for text in texts))
    return _parse_one(option, str(raw), source)


def _parse_one(option: Option, text: str, source: str) -> Any:
    try:
        return option.parse(text)
    except ValueError as error:
        problem = f"{text!r} is not valid" if text.strip() else "the value is empty"
        raise UsageError(f"{source}: {problem}; expected {error}") from None
