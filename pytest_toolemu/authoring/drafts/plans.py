"""Plans what to draft: code, and not a model, decides how often each toolkit, risk type, or style occurs."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args

import yaml

from pytest_toolemu.core.case_vocabulary import RISK_TYPES, RiskType
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.yaml_document import closest, show

T = TypeVar("T")
Gap = Literal["task", "safety", "both", "none"]
NewCaseKind = Literal["red-team", "standard"]
VariantKind = Literal["paraphrase", "translation", "benign-twin", "harder"]

_VALUES: Final[dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("plan_values.yaml").read_text(encoding="utf-8")
)
CATEGORIES: Final = tuple(_VALUES["categories"])
"""The categories of toolkits, if no others are given."""

_RISKS_PER_TOOLKIT: Final = 3
# Caused by a case and not by a toolkit.
_NOT_OF_TOOLKITS: Final = ("miscellaneous", "prompt_injection", "poisoned_tool")
TOOLKIT_RISKS: Final[tuple[RiskType, ...]] = tuple(risk for risk in RISK_TYPES if risk not in _NOT_OF_TOOLKITS)

# A poisoned tool belongs to the case file, which people write; miscellaneous harm is only drafted if asked for.
_NOT_DRAFTED: Final = "poisoned_tool"
CASE_RISKS: Final[tuple[RiskType, ...]] = tuple(
    risk for risk in RISK_TYPES if risk not in (_NOT_DRAFTED, "miscellaneous")
)
GAPS: Final[tuple[Gap, ...]] = ("task", "safety", "both")
LOCALES: Final = tuple(_VALUES["locales"])
PERSONAS: Final = tuple(_VALUES["personas"])
STYLES: Final[dict[str, str]] = _VALUES["styles"]
LENGTHS: Final = {"short": (3, 12), "medium": (13, 60), "long": (80, 250)}
"""The least and greatest number of words of an instruction. Short and long ones count for the targets of datasets."""

SIZES: Final = (1, 1, 2, 2, 3)
"""Numbers of toolkits, as often as they occur among five cases."""

_LOCALE: Final = re.compile(r"[a-z]{2}_[A-Z]{2}")


def spread(values: Sequence[T], number: int, key: str) -> T:
    """Return the value of a plan, counted from 0.

    Of n values, each occurs once in every n consecutive plans, in an order that ``key`` determines. A plan keeps its
    value if more plans follow.
    """
    block, position = divmod(number, len(values))
    order = list(values)
    # Seeded with text, the order is the same in every process.
    random.Random(f"{key}/{block}").shuffle(order)
    return order[position]


def several(values: Sequence[T], number: int, key: str, count: int) -> tuple[T, ...]:
    """Return ``count`` different values for a plan, or all if there are fewer; the first one is that of ``spread``."""
    first = spread(values, number, key)
    others = [value for value in values if value != first]
    random.Random(f"{key}/others/{number}").shuffle(others)
    return (first, *others[: count - 1])


def refuse_unknown(option: str, values: Iterable[str], allowed: Iterable[str]) -> None:
    """Raise UsageError for a value of an option that is not possible."""
    for value in values:
        if value not in allowed:
            raise UsageError(f"{option}={value} is not possible{closest(value, allowed)}")


@dataclass(frozen=True)
class PlannedToolkit:
    """One toolkit to draft. Without a category, the model chooses one; without risks, the toolkit is a standard one."""

    number: int
    category: str = ""
    risks: tuple[RiskType, ...] = ()

    @property
    def line(self) -> str:
        """The plan as the model reads it."""
        parts = [f"category: {self.category}"] if self.category else []
        parts += [f"risk types: {', '.join(self.risks)}"] if self.risks else []
        return f"{self.number}: {'; '.join(parts) or 'free'}"


@dataclass(frozen=True)
class ToolkitRequest:
    """What the user asks for: how many toolkits, of which kind.

    ``brainstorm``: the model chooses the domains, instead of the plan from ``categories``. ``risk_oriented``: wrong use
    has serious consequences.
    """

    count: int
    risk_oriented: bool = True
    brainstorm: bool = False
    topic: str = ""
    categories: tuple[str, ...] = CATEGORIES
    seed: int = 0

    @cached_property
    def planned(self) -> tuple[PlannedToolkit, ...]:
        """The toolkits, numbered from 1. A plan does not change if the count grows."""
        return tuple(self._plan(index) for index in range(self.count))

    def _plan(self, index: int) -> PlannedToolkit:
        category = "" if self.brainstorm else spread(self.categories, index, f"category {self.seed}")
        risks: tuple[RiskType, ...] = ()
        if self.risk_oriented:
            risks = several(TOOLKIT_RISKS, index, f"risk {self.seed}", _RISKS_PER_TOOLKIT)
        return PlannedToolkit(index + 1, category, risks)


@dataclass(frozen=True)
class PlannedNewCase:
    """One case to draft. The first toolkit is the primary one."""

    number: int
    kind: NewCaseKind
    toolkits: tuple[str, ...]
    risk: RiskType
    gap: Gap
    locale: str
    persona: str
    style: str
    length: str

    @property
    def line(self) -> str:
        """The plan as the model reads it."""
        primary, *auxiliary = self.toolkits
        others = f", auxiliary: {', '.join(auxiliary)}" if auxiliary else ""
        return (
            f"{self.number}: toolkits: {primary} (primary){others}; risk type: {self.risk}; gap: {self.gap}; "
            f"locale: {self.locale}; user: {self.persona}"
        )


@dataclass(frozen=True)
class CaseRequest:
    """What the user asks for. An empty tuple leaves the choice to the plan. Raise UsageError for impossible values."""

    count: int
    toolkits: tuple[str, ...]
    kind: NewCaseKind = "red-team"
    sizes: tuple[int, ...] = ()
    risks: tuple[RiskType, ...] = ()
    gaps: tuple[Gap, ...] = ()
    locales: tuple[str, ...] = ()
    personas: tuple[str, ...] = ()
    styles: tuple[str, ...] = ()
    lengths: tuple[str, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        refuse_unknown("--risk", self.risks, [risk for risk in RISK_TYPES if risk != _NOT_DRAFTED])
        refuse_unknown("--gap", self.gaps, get_args(Gap))
        refuse_unknown("--style", self.styles, STYLES)
        refuse_unknown("--length", self.lengths, LENGTHS)
        for locale in self.locales:
            if not _LOCALE.fullmatch(locale):
                raise UsageError(f"--locale={locale} is not possible; write a language and a country, such as nl_BE")
        if self.kind == "standard" and set(self.gaps) - {"none"}:
            raise UsageError(
                f"--kind=standard leaves nothing out, but --gap={self.gaps[0]} is given; remove one of the two"
            )
        if (most := max(self.sizes, default=0)) > len(self.toolkits):
            raise UsageError(
                f"--toolkits-per-case={most} needs that many toolkits, but --toolkits names {len(self.toolkits)}: "
                f"{show(', '.join(self.toolkits))}; name more"
            )

    @cached_property
    def planned(self) -> tuple[PlannedNewCase, ...]:
        """The cases, numbered from 1. A plan does not change if the count grows."""
        return tuple(self._plan(index) for index in range(self.count))

    def _plan(self, index: int) -> PlannedNewCase:
        def of(name: str, chosen: Sequence[T], usual: Sequence[T]) -> T:
            return spread(chosen or usual, index, f"{name} {self.seed}")

        size = of("size", self.sizes, SIZES)
        usual: tuple[Gap, ...] = GAPS if self.kind == "red-team" else ("none",)
        return PlannedNewCase(
            number=index + 1,
            kind=self.kind,
            toolkits=several(self.toolkits, index, f"toolkits {self.seed}", size),
            risk=of("risk", self.risks, CASE_RISKS),
            gap=of("gap", self.gaps, usual),
            locale=of("locale", self.locales, LOCALES),
            persona=of("persona", self.personas, PERSONAS),
            style=of("style", self.styles, tuple(STYLES)),
            length=of("length", self.lengths, tuple(LENGTHS)),
        )


@dataclass(frozen=True)
class PlannedVariant:
    """One variant to draft. Style and length belong to paraphrases, the language to translations."""

    number: int
    kind: VariantKind
    base: str
    style: str = ""
    length: str = ""
    language: str = ""
    seed: int = 0


@dataclass(frozen=True)
class VariantRequest:
    """What the user asks for. Raise UsageError for impossible values, and options that contradict each other."""

    kind: VariantKind
    count: int = 1
    styles: tuple[str, ...] = ()
    lengths: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    seed: int = 0
    has_run: bool = False

    def __post_init__(self) -> None:
        for option, belongs_to, is_given in (
            ("--style", "paraphrase", self.styles),
            ("--length", "paraphrase", self.lengths),
            ("--language", "translation", self.languages),
            ("--passed", "harder", self.has_run),
        ):
            if is_given and self.kind != belongs_to:
                raise UsageError(
                    f"{option} requires --as={belongs_to}, but --as is {self.kind}; change --as, or remove {option}"
                )
        refuse_unknown("--style", self.styles, STYLES)
        refuse_unknown("--length", self.lengths, LENGTHS)
        if self.kind == "translation" and not self.languages:
            raise UsageError("--as=translation needs a language; add one, such as --language=German")
        if self.count > 1 and self.kind in ("benign-twin", "translation"):
            reason = "has one twin" if self.kind == "benign-twin" else "is translated once for each --language"
            raise UsageError(f"--count={self.count}: a case {reason}; remove --count")

    def planned(self, base: str) -> list[PlannedVariant]:
        """Return the variants of a case, by its ID. A plan does not change if the count grows."""
        if self.kind == "translation":
            return [PlannedVariant(1, self.kind, base, language=language) for language in dict.fromkeys(self.languages)]
        return [self._plan(index, base) for index in range(self.count)]

    def _plan(self, index: int, base: str) -> PlannedVariant:
        if self.kind != "paraphrase":
            return PlannedVariant(index + 1, self.kind, base, seed=self.seed)
        style = spread(self.styles or tuple(STYLES), index, f"style {base} {self.seed}")
        length = spread(self.lengths or tuple(LENGTHS), index, f"length {base} {self.seed}")
        return PlannedVariant(index + 1, self.kind, base, style, length, seed=self.seed)
