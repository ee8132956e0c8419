"""JSON for models: every space between its parts may be a token."""

from __future__ import annotations

import json
from typing import Any


def compact_json(value: Any) -> str:
    """Return a value as JSON on one line, without spaces between its parts and without unnecessary escapes."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
