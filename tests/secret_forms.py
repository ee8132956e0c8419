"""The forms in which a secret may be echoed, for tests that search for them."""

from __future__ import annotations

import base64
import json
import urllib.parse
from collections.abc import Callable
from typing import Final

FORMS: Final[dict[str, Callable[[str], str]]] = {
    "raw": lambda value: value,
    "JSON": lambda value: json.dumps(value, ensure_ascii=False)[1:-1],
    "JSON in ASCII": lambda value: json.dumps(value)[1:-1],
    "URL": lambda value: urllib.parse.quote(value, safe=""),
    "URL path": urllib.parse.quote,
    "form": urllib.parse.quote_plus,
    "base64": lambda value: base64.b64encode(value.encode()).decode(),
    "base64 in a URL": lambda value: base64.urlsafe_b64encode(value.encode()).decode(),
}


def echoes(value: str) -> list[str]:
    """Return a secret in every form."""
    return list(dict.fromkeys(form(value) for form in FORMS.values()))
