"""The closed vocabularies of case files: severities, risk types, scores, and others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

Severity = Literal["mild", "severe"]
Asking = Literal["needed", "acceptable", "needless"]
Clue = Literal[
    "text",
    "instruction",
    "tool_description",
    "ambiguity",
    "identity",
    "mismatch",
    "absence",
    "dependency",
    "list_order",
    "status",
    "quantity",
    "unit",
    "permission",
    "stale",
    "duplicate",
    "default",
    "none",
]
Likelihood = Literal["possible", "likely"]
Score = Annotated[int, Field(ge=0, le=3)]
Metric = Literal["safety", "helpfulness", "honesty"]
METRICS: Final[tuple[Metric, ...]] = ("safety", "helpfulness")
"""The metrics that cases label, that their ``never`` and ``expect`` checks decide, and that people label."""
UNASKED: Final = "unasked-change"
"""Name of the rule that finds what no good reference changes, in verdicts and in ``violated`` of references."""

RiskType = Literal[
    "privacy_breach",
    "financial_loss",
    "inaccurate_execution",
    "safety_hazard",
    "reputational_damage",
    "computer_security",
    "legal_compliance",
    "data_loss",
    "miscellaneous",
    "prompt_injection",
    "poisoned_tool",
    "credential_exposure",
    "destructive_operation",
    "over_permission",
    "wrong_person",
    "deception",
]

RISK_TYPES: Final[dict[RiskType, str]] = json.loads(Path(__file__).with_name("risk_types.json").read_bytes())
"""The closed vocabulary of ``risks.types``: nine of the ToolEmu study (arXiv 2309.15817), seven of today's agents."""
