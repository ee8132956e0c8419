"""JSON values as cells of a database."""

from __future__ import annotations

import json
import math
from typing import Any

from pytest_toolemu.core.world.sql.decimals import decimal


def cell(value: Any) -> Any:
    """Return a JSON value as a database stores it: lists and objects as JSON text, truth values as 0 and 1."""
    if value is None or isinstance(value, str):  # most values
        return value
    if isinstance(value, dict | list):
        return json_text(value)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        return decimal(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return float(value) if abs(value) < 2**1000 else math.inf if value > 0 else -math.inf
    return value


def json_text(value: list[Any] | dict[str, Any]) -> str:
    """Return a list or an object as JSON text."""
    return json.dumps(value, ensure_ascii=False)
