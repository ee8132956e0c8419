"""Settings as manifests of sessions have them: each with its source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def stored_setting(manifest: Mapping[str, Any], name: str) -> Any:
    """Return the value of a setting in a session's manifest; None if the manifest does not have it."""
    value, _ = manifest.get("settings", {}).get(name) or (None, "")
    return value
