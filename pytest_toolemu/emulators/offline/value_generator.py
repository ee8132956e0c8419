"""Generate realistic values for members of a given name from a seed."""

from __future__ import annotations

import functools
import re
import string
from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final

from pytest_toolemu.emulators.offline.vocabulary import Vocabulary

Path = tuple[str, ...]
"""Location of a value: the names of the members around it and its own. An item has the singular of its list's name."""


def _by_word(table: dict[Any, str]) -> dict[str, Any]:
    return {word: value for value, words in table.items() for word in words.split()}


# Which generator makes a text, by a word in the member's name: one of those below, or a kind of Vocabulary.
_MAKERS: Final = _by_word(
    {
        "email": "email mail from to cc bcc",
        "phone_number": "phone mobile telephone fax phone_number mobile_number telephone_number fax_number",
        "uri": "url link website uri href",
        "ipv4": "ip",
        "place": "address location venue destination origin",
        "street_address": "street",
        "city": "city town",
        "nation": "country",
        "country_code": "country_code",
        "postcode": "postcode zip postal_code zip_code",
        "first_name": "first given",
        "last_name": "last family surname",
        "company": "company organisation organization employer vendor merchant seller store shop bank brand hotel "
        "biller counterparty",
        "user_name": "username login handle nickname",
        "file_name": "file filename attachment document photo image",
        "file_path": "path",
        "folder": "folder directory",
        "title": "title subject headline",
        "topic": "topic label tag category",
        "product": "product article item",
        "paragraph": "description body content text message note comment summary bio details snippet reason",
        "currency": "currency currency_code",
        "color_name": "color colour",
        "job": "job occupation profession position",
        "language_name": "language",
        "timezone": "timezone",
        "sha1": "hash checksum sha commit",
        "password": "password secret",
        "domain_name": "host hostname domain server",
        "name": "user person owner author contact sender recipient payee customer patient doctor driver member guest "
        "manager assignee attendee participant landlord tenant holder colleague friend organizer organiser by",
        "state": "status state",
        "date": "date day on birthday",
        "moment": "time at timestamp when until since",
        "number": "number",
        "identifier": "id ids uuid code token key reference ref",
        "money": "amount price balance total cost fee",
    }
)
_FORMATS: Final = {
    "email": "email",
    "idn-email": "email",
    "date": "date",
    "time": "time",
    "date-time": "moment",
    "duration": "duration",
    "uuid": "uuid4",
    "ipv4": "ipv4",
    "ipv6": "ipv6",
    "hostname": "domain_name",
    "idn-hostname": "domain_name",
    "uri": "uri",
    "iri": "uri",
    "uri-reference": "uri",
    "iri-reference": "uri",
}
# Plausible range of a number, by a word in the member's name.
_SPANS: Final = _by_word(
    {
        (5, 2500): "amount price balance total cost subtotal salary rent budget value paid available limit",
        (1, 15): "fee tip tax",
        (19, 84): "age",
        (1, 5): "rating stars",
        (-60, 70): "latitude lat",
        (-170, 170): "longitude lon lng",
        (1, 100): "percent percentage level battery progress",
        (2_000, 9_000_000): "bytes size",
        (0, 0): "code errors retries offset",
        (104_729, 98_765_431): "id uuid number",
    }
)
_TRUTH: Final = _by_word(
    {
        True: "success successful succeeded ok valid active enabled available completed confirmed sent saved",
        False: "more error failed truncated deleted cancelled blocked locked overdue exists",
    }
)
# Range in days from the case's current time, for moments in its future.
_AHEAD: Final = _by_word(
    {
        (1, 5): "start starts begin begins departure scheduled",
        (6, 20): "end ends due expires expiry expiration until arrival delivery deadline",
    }
)
_PAST: Final = (-20, 0)
QUERIES: Final = frozenset({"query", "keyword", "keywords", "search", "text", "q", "term", "terms"})
"""Names of arguments whose words a search looks for in every member."""


# Cached: a report calls this with the same few names for every object of a thousand runs.
@functools.lru_cache(maxsize=4096)
def words(name: str) -> tuple[str, ...]:
    """Split a name into words in lower case: camel case, snake case, or with hyphens."""
    return tuple(word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+", name))


@functools.lru_cache(maxsize=4096)
def singular(name: str) -> str:
    """Return the singular of an English plural; other names are returned unchanged."""
    for ending, instead in (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("ss", "ss"), ("s", "")):
        if name.lower().endswith(ending) and len(name) > len(ending):
            return name[: -len(ending)] + instead
    return name


class ValueGenerator:
    """Generates values: the same ones for the same seed. Times lie around ``now``."""

    def __init__(self, seed: str, locale: str, now: datetime) -> None:
        self.random = Random(seed)
        self.vocabulary = Vocabulary(locale, self.random)
        self._now, country = now, self.vocabulary.country
        self._own: dict[str, Callable[[Path], Any]] = {
            "state": lambda _: "completed",
            "date": lambda path: self._when(path).date().isoformat(),
            "time": lambda path: self._when(path).isoformat().partition("T")[2],
            "moment": lambda path: self._when(path).isoformat(),
            "nation": lambda _: country.name,
            "country_code": lambda _: country.code,
            "currency": lambda _: country.currency,
            "timezone": lambda _: country.timezone,
            "number": lambda _: "".join(self.random.choices(string.digits, k=self.random.randint(8, 11))),
            "duration": lambda _: f"PT{self.random.randint(5, 90)}M",
            "money": lambda _: f"{self.random.randint(500, 250_000) / 100:.2f}",
            "identifier": self._identifier,
        }

    def text(self, path: Path, form: str | None = None) -> str:
        """Generate a text of a JSON Schema format, or of the kind that the names suggest."""
        maker = _FORMATS.get(form or "") or self._maker(path)
        return str(self._own[maker](path) if maker in self._own else self.vocabulary(maker))

    def _maker(self, path: Path) -> str:
        own = words(path[-1])
        if maker := _first(_MAKERS, ["_".join(own[-2:]), *reversed(own)]):
            return str(maker)
        around = (word for name in reversed(path[:-1]) for word in reversed(words(name)))
        return str((_first(_MAKERS, around) if "name" in own else None) or "title")

    def span(self, name: str) -> tuple[float, float]:
        """Return the bounds between which a number of this name usually lies."""
        return _first(_SPANS, reversed(words(name))) or (1, 20)

    def truth(self, name: str) -> bool:
        """Return True for names that report success, False for names that report trouble, else either."""
        stated: bool | None = _first(_TRUTH, words(name))
        return self.random.random() < 0.5 if stated is None else stated

    def _identifier(self, path: Path) -> str:
        about = [word for word in words(path[-1]) if word not in ("id", "ids", "uuid")] or words(path[-2])
        body = "".join(self.random.choices(string.ascii_lowercase + string.digits, k=self.random.randint(7, 10)))
        return f"{about[-1][:3]}-{body}" if about else body

    def _when(self, path: Path) -> datetime:
        first, last = _first(_AHEAD, words(path[-1])) or _PAST
        return self._now + timedelta(minutes=5 * self.random.randint(first * 288, last * 288))


def _first(table: dict[str, Any], among: Any) -> Any:
    return next((table[word] for word in among if word in table), None)
