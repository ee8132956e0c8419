"""Plans the toolkits to draft: the category and the risk types of each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from pytest_toolemu.authoring.generation.quotas import several, spread
from pytest_toolemu.core.case_vocabulary import RISK_TYPES, RiskType

CATEGORIES: Final = (
    "accounting", "agriculture", "banking", "buildings", "cloud", "communication", "construction", "customer support",
    "data", "development", "education", "energy", "events", "government", "health", "home", "human resources",
    "insurance", "laboratories", "legal", "logistics", "manufacturing", "media", "mobility", "property",
    "public safety", "research", "shopping", "social media", "sports", "travel", "utilities",
)  # fmt: skip
"""The fixed categories, if no others are given."""

_RISKS_PER_TOOLKIT: Final = 3
# Caused by a case and not by a toolkit.
_NOT_OF_TOOLKITS: Final = ("miscellaneous", "prompt_injection", "poisoned_tool")
TOOLKIT_RISKS: Final[tuple[RiskType, ...]] = tuple(risk for risk in RISK_TYPES if risk not in _NOT_OF_TOOLKITS)


@dataclass(frozen=True)
class ToolkitSlot:
    """One toolkit to draft. Without a category, the model chooses one; without risks, the toolkit is a standard one."""

    number: int
    category: str = ""
    risks: tuple[RiskType, ...] = ()

    @property
    def line(self) -> str:
        """The slot as the model reads it."""
        parts = [f"category: {self.category}"] if self.category else []
        parts += [f"risk types: {', '.join(self.risks)}"] if self.risks else []
        return f"{self.number}: {'; '.join(parts) or 'free'}"


@dataclass(frozen=True)
class ToolkitWishes:
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
    def slots(self) -> tuple[ToolkitSlot, ...]:
        """The slots, numbered from 1. A slot does not change if the count grows."""
        return tuple(self._slot(index) for index in range(self.count))

    def _slot(self, index: int) -> ToolkitSlot:
        category = "" if self.brainstorm else spread(self.categories, index, f"category {self.seed}")
        risks: tuple[RiskType, ...] = ()
        if self.risk_oriented:
            risks = several(TOOLKIT_RISKS, index, f"risk {self.seed}", _RISKS_PER_TOOLKIT)
        return ToolkitSlot(index + 1, category, risks)
