"""A case in another world than its own: one that a model built, or none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pytest_toolemu.core.case import ResolvedCase


def in_built_world(
    resolved_case: ResolvedCase, rows: Mapping[str, Mapping[str, tuple[dict[str, Any], ...]]]
) -> ResolvedCase:
    """Return the case with other rows.

    Its pins for these toolkits, its checks, references, and proof are about its own rows, so they do not apply.
    """
    case = resolved_case.case
    pins = tuple(pin for pin in case.pins if pin.tool.partition(".")[0] not in rows)
    update: dict[str, Any] = {"world": rows, "ids": {}, "pins": pins, "checks": (), "references": {}, "proof": None}
    return replace(resolved_case, case=case.model_copy(update=update))


def per_call(resolved_case: ResolvedCase) -> ResolvedCase:
    """Return the case without rows: the emulator answers every call, and checks that query rows do not apply."""
    return replace(resolved_case, case=resolved_case.case.model_copy(update={"world": {}, "ids": {}}))
