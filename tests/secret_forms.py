"""The forms in which a secret may be echoed, for tests that search for them."""

from __future__ import annotations

import base64
import html
import json
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Final


def _json_for_html(value: str) -> str:
    return json.dumps(value)[1:-1].replace("<", "\\u003c").replace("&", "\\u0026")


FORMS: Final[dict[str, Callable[[str], str]]] = {
    "raw": lambda value: value,
    "JSON": lambda value: json.dumps(value, ensure_ascii=False)[1:-1],
    "JSON in ASCII": lambda value: json.dumps(value)[1:-1],
    "JSON in JSON": lambda value: json.dumps(json.dumps(value))[3:-3],
    "JSON for HTML": _json_for_html,
    "PHP's JSON": lambda value: json.dumps(value)[1:-1].replace("/", "\\/"),
    "repr": lambda value: repr(value)[1:-1],
    "HTML": html.escape,
    "HTML, named": lambda value: html.escape(value).replace("&#x27;", "&apos;"),
    "HTML, decimal": lambda value: html.escape(value).replace("&#x27;", "&#39;").replace("&quot;", "&#34;"),
    "HTML twice": lambda value: html.escape(html.escape(value)),
    "URL": lambda value: urllib.parse.quote(value, safe=""),
    "URL path": urllib.parse.quote,
    "URL, lower case": lambda value: urllib.parse.quote(value, safe="").replace("%2B", "%2b").replace("%C3", "%c3"),
    "form": urllib.parse.quote_plus,
    "JSON in HTML": lambda value: html.escape(json.dumps(value)[1:-1]),
    "JSON for HTML in HTML": lambda value: html.escape(_json_for_html(value)),
    "HTML in JSON for HTML": lambda value: _json_for_html(html.escape(value)),
    "JSON in a URL": lambda value: urllib.parse.quote(json.dumps(value)[1:-1], safe=""),
    "HTML in a URL": lambda value: urllib.parse.quote(html.escape(value), safe=""),
    "URL twice": lambda value: urllib.parse.quote(urllib.parse.quote(value, safe=""), safe=""),
}


def echoes(value: str) -> list[str]:
    """Return a secret in every form, also encoded behind texts of different lengths."""
    texts = [form(value) for form in FORMS.values()]
    for before in ("", "u", "us", "user:"):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            texts.append(encode(f"{before}{value} end".encode()).decode())
    return list(dict.fromkeys(texts))


def traces(value: str) -> Iterator[str]:
    """Yield texts that must not occur where the secret was redacted."""
    yield from (form(value) for form in FORMS.values())
    for before in range(3):
        data = b"\0" * before + value.encode()
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            # The first and last characters are omitted, because they also depend on the surrounding text.
            yield encode(data).decode()[-(-before * 8 // 6) : len(data) * 8 // 6]
