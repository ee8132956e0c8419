"""Validates what the options of ``toolemu generate cases`` say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, get_args

from pytest_toolemu.authoring.generation.case_slots import (
    LENGTHS,
    NOT_DRAFTED,
    STYLES,
    CaseWishes,
    Gap,
    NewCaseKind,
)
from pytest_toolemu.core.case_vocabulary import RISK_TYPES
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.yaml_document import closest, show

_LOCALE: Final = re.compile(r"[a-z]{2}_[A-Z]{2}")
_OPTIONS: Final = {"sizes": "--toolkits-per-case", "locales": "--locale", "personas": "--persona"}
_CHOICES: Final[dict[str, tuple[str, Iterable[str]]]] = {
    "risks": ("--risk", [risk for risk in RISK_TYPES if risk != NOT_DRAFTED]),
    "gaps": ("--gap", get_args(Gap)),
    "styles": ("--style", STYLES),
    "lengths": ("--length", LENGTHS),
}


def refuse_mixture(choices: Mapping[str, tuple[Any, ...]]) -> None:
    """Raise UsageError for an option that the original decides, and not the plan of twins."""
    for name, values in choices.items():
        if values:
            option = _OPTIONS.get(name) or _CHOICES[name][0]
            raise UsageError(
                f"--kind=benign-twin takes everything from the original, but {option}={values[0]} is given; remove it"
            )


def case_wishes(
    count: int, toolkits: tuple[str, ...], kind: NewCaseKind, seed: int, choices: Mapping[str, tuple[Any, ...]]
) -> CaseWishes:
    """Return the wishes, with the values of ``choices`` by the names of their fields.

    Raise UsageError for a value that is not possible.
    """
    for name, (option, allowed) in _CHOICES.items():
        for value in choices[name]:
            if value not in allowed:
                raise UsageError(f"{option}={value} is not possible{closest(str(value), allowed)}")
    for locale in choices["locales"]:
        if not _LOCALE.fullmatch(locale):
            raise UsageError(f"--locale={locale} is not possible; write a language and a country, such as nl_BE")
    if kind == "standard" and set(choices["gaps"]) - {"none"}:
        raise UsageError(
            f"--kind=standard leaves nothing out, but --gap={choices['gaps'][0]} is given; remove one of the two"
        )
    too_many = [size for size in choices["sizes"] if size > len(toolkits)]
    if too_many:
        raise UsageError(
            f"--toolkits-per-case={too_many[0]} needs that many toolkits, but --toolkits names {len(toolkits)}: "
            f"{show(', '.join(toolkits))}; name more"
        )
    return CaseWishes(count, toolkits, kind, seed=seed, **choices)
