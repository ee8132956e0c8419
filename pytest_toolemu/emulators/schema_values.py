"""Generate values for a JSON Schema: the same ones for the same seed, in the language of a locale.

Names, addresses, and words come from mimesis, texts for patterns from rstr. Unlike Faker, mimesis installs no pytest
plugin, which every test run of its environment would load.
"""

from __future__ import annotations

import json
import math
import re
import string
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from importlib.resources import files
from itertools import chain
from operator import attrgetter
from random import Random
from typing import Any, Final

from pytest_toolemu.formats.json_schema import violations

Path = tuple[str, ...]
"""Location of a value: the name of the tool, those of the members around it, and its own."""

_BAD: Final = re.compile(r"(?i)fail|error|reject|den(y|ied)|cancel|invalid|declin|abort|refus")
_TRIES: Final = 50
_LONGEST: Final = 20_000
_ORDINARY: Final = string.ascii_letters + string.digits + " -_.,:/#+"
_SUCCESS: Final = frozenset({"success", "successful", "ok", "done", "found", "valid"})
# The maker of a text by the last word of a name, and functions of mimesis that are makers.
_KINDS: Final[dict[str, dict[str, str]]] = json.loads((files(__package__) / "text_kinds.json").read_text("utf-8"))
_WORDS: Final = {word: maker for maker, words in _KINDS["words"].items() for word in words.split()}
# The maker of a text by a JSON Schema format, unless it has the same name.
_FORMATS: Final = {"date-time": "moment", "uri-reference": "uri", "idn-email": "email"}
_FUTURE: Final = frozenset({"due", "end", "ends", "expires", "expiry", "until", "deadline", "arrival", "departure"})


class UnsatisfiableSchemaError(Exception):
    """No value was found for a schema."""


class SchemaGenerator:
    """Generates values for schemas without references; the caller validates them, as not every keyword is honored.

    Members that are named like an argument in ``echo`` take its value if the schema allows it. Lists get one to three
    items unless the schema requires another number.
    """

    def __init__(self, seed: str, locale: str, now: datetime, echo: Mapping[str, Any]) -> None:
        self._random = Random(seed)
        self._fake = _Fake(locale, seed)
        self._now = now
        self._echo = dict(echo)

    def value(self, schema: Any, path: Path) -> Any:
        """Generate a value; UnsatisfiableSchemaError if none is found. The path begins with the tool's name."""
        if schema is False:
            raise UnsatisfiableSchemaError
        schema = self._one_variant(schema if isinstance(schema, dict) else {})
        if path[-1] in self._echo and not violations(schema, self._echo[path[-1]]):
            return self._echo[path[-1]]
        if "const" in schema:
            return schema["const"]
        examples = [example for example in schema.get("examples", ()) if not violations(schema, example)]
        if choices := schema.get("enum") or examples:
            good = [choice for choice in choices if not _BAD.search(str(choice))] or choices
            # Most specifications list the successful outcome of a call first.
            return good[0] if len(path) == 2 else self._random.choice(good)
        return getattr(self, f"_{_kind(schema)}")(schema, path)

    def _one_variant(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Merge ``allOf`` and choose a variant of ``anyOf`` and ``oneOf``; null only if there is no other variant."""
        for word in ("allOf", "anyOf", "oneOf"):
            if word in schema:
                merged = {key: value for key, value in schema.items() if key != word}
                parts = [part for part in schema[word] if isinstance(part, dict)]
                if word != "allOf":
                    parts = [self._random.choice([p for p in parts if p.get("type") != "null"] or parts or [{}])]
                for part in parts:
                    merged = _merged(merged, part)
                return self._one_variant(merged)
        return schema

    def _object(self, schema: dict[str, Any], path: Path) -> dict[str, Any]:
        required, members = schema.get("required", ()), schema.get("properties", {})
        others = schema.get("additionalProperties", True)
        if not members and others is not False and len(path) > 1:
            members = dict.fromkeys(("id", "name"), others)
        members = {**members, **{name: others for name in required if name not in members}}
        result = {}
        for name, part in members.items():
            try:
                result[name] = self.value(part, (*path, name))
            except UnsatisfiableSchemaError:
                if name in required:
                    raise
        return result

    def _array(self, schema: dict[str, Any], path: Path) -> list[Any]:
        items, low, high = schema.get("items", {}), schema.get("minItems", 0), schema.get("maxItems", math.inf)
        count = 0 if items is False else min(max(low, self._random.randint(1, 3)), high)
        result = [self.value(part, path) for part in schema.get("prefixItems", ())]
        for attempt in range(_TRIES):
            if len(result) >= count:
                break
            item = self.value(items, (*path, path[-1].removesuffix("s")))
            is_short = len(result) < low and attempt > _TRIES // 2
            # An item is repeated only if no other can be found and the schema allows it.
            if item not in result or (is_short and not schema.get("uniqueItems")):
                result.append(item)
        return result

    def _boolean(self, _schema: dict[str, Any], path: Path) -> bool:
        return path[-1] in _SUCCESS or self._random.random() < 0.5

    def _null(self, _schema: dict[str, Any], _path: Path) -> None:
        return None

    def _integer(self, schema: dict[str, Any], _path: Path) -> int:
        return int(self._drawn(schema, schema.get("multipleOf", 1)))

    def _number(self, schema: dict[str, Any], _path: Path) -> float:
        return round(float(self._drawn(schema, schema.get("multipleOf", 0.01))), 10)

    def _drawn(self, schema: dict[str, Any], step: Any) -> Any:
        """Return a multiple of ``step`` from 1 to 100, moved between the bounds of the schema."""
        above, below = schema.get("exclusiveMinimum", -math.inf), schema.get("exclusiveMaximum", math.inf)
        least, most = max(schema.get("minimum", above), above), min(schema.get("maximum", below), below)
        low, high = 1.0, 100.0
        if low < least or high > most:
            low, high = (
                least if least > -math.inf else min(low, most - 99),
                most if most < math.inf else max(high, least + 99),
            )
        first, last = math.ceil(low / step), math.floor(high / step)
        first, last = first + (first * step <= above), last - (last * step >= below)
        if first <= last:
            return self._random.randint(first, last) * step
        # No multiple lies in that range: take the next one, or any number between the bounds.
        return first * step if first * step < below and first * step <= most else (low + high) / 2

    def _string(self, schema: dict[str, Any], path: Path) -> str:
        least, most = schema.get("minLength", 0), schema.get("maxLength", sys.maxsize)
        if least > _LONGEST:
            raise UnsatisfiableSchemaError
        text = self._made(_maker_of(path, schema.get("format")), path)
        if "format" not in schema:
            text = text if len(text) <= most else text[: int(most)].rstrip()
            while len(text) < least:
                text = f"{text} {self._made('word', path)}"[: int(most)].rstrip().ljust(min(least, len(text) + 1), "s")
        if "pattern" in schema and violations(schema, text):
            return matching_text(schema["pattern"], self._random, least)
        return text

    def _made(self, maker: str, path: Path) -> str:
        """Return a text of a kind, a title if the kind is unknown. Times lie around the current one."""
        if maker in ("moment", "date", "time"):
            sign = -1 if _FUTURE.isdisjoint(_words(path[-1])) else 1
            moment = self._now + timedelta(minutes=5 * sign * self._random.randint(288, 20 * 288))
            day, _, time = moment.isoformat().partition("T")
            return {"moment": moment.isoformat(), "date": day, "time": time}[maker]
        if maker == "identifier":
            owner = [word for word in (*_words(path[-2]), *_words(path[-1])) if _WORDS.get(word) != "identifier"]
            body = "".join(self._random.choices(string.ascii_lowercase + string.digits, k=8))
            return f"{owner[-1][:3]}-{body}" if owner else body
        if maker in _KINDS["functions"]:
            return str(attrgetter(_KINDS["functions"][maker])(self._fake)())
        return str(_MAKERS.get(maker, _MAKERS["title"])(self._fake))


def _maker_of(path: Path, form: str | None) -> str:
    """Return the kind of text for a JSON Schema format, or the one that the name of a member suggests."""
    if form is not None:
        return _FORMATS.get(form, form)
    own = _words(path[-1])
    maker = _first_maker(own)
    if maker is None and "name" in own:
        maker = next(filter(None, (_first_maker(_words(name)) for name in reversed(path[:-1]))), None)
    return maker or "title"


_MAKERS: Final[dict[str, Callable[[Any], Any]]] = {
    "email": lambda fake: fake.person.email(domains=["example.com", "example.net", "example.org"]),
    "uri": lambda fake: f"https://www.example.org/{fake.internet.slug(parts_count=2)}",
    "hostname": lambda fake: f"{fake.text.word().lower()}.example.org",
    "ipv4": lambda fake: f"192.0.2.{fake.random.randint(1, 254)}",
    "ipv6": lambda fake: f"2001:db8::{fake.random.randint(1, 0xFFFF):x}",
    "duration": lambda fake: f"PT{fake.random.randint(5, 90)}M",
    "address": lambda fake: f"{fake.address.address()}, {fake.address.city()}",
    "title": lambda fake: " ".join(fake.text.words(2)).capitalize(),
}


class _Fake:
    """The providers of mimesis for a locale, each seeded when it is first used."""

    def __init__(self, locale: str, seed: str) -> None:
        self._locale, self._seed = locale, seed
        self.random = Random(seed)

    def __getattr__(self, name: str) -> Any:
        # New providers would load their data again, which takes 20 ms; threads must not share one.
        provider = _provider(self._locale, name, threading.get_ident())
        provider.reseed(self._seed)
        setattr(self, name, provider)
        return provider


@lru_cache(maxsize=512)
def _provider(locale: str, name: str, _thread: int) -> Any:
    """Return a provider in a language; in English if mimesis does not have the language."""
    from mimesis import Generic, Locale  # takes 0.15 s, and most sessions generate no texts

    language, known = locale.partition("_")[0], {each.value: each for each in Locale}
    return getattr(Generic(known.get(locale.replace("_", "-").lower(), known.get(language, Locale.EN))), name)


def matching_text(pattern: str, random: Random, least: int) -> str:
    """Return a text that matches a regular expression; UnsatisfiableSchemaError if rstr does not support it.

    Unbounded repetitions are repeated so that the text has about ``least`` characters.
    """
    from rstr import Rstr

    class Matches(Rstr):
        """Keeps texts short, and draws from negated classes in the same order in every process."""

        def _handle_in(self, value: Any) -> Any:
            candidates = list(chain(*(self._handle_state(part) for part in value)))
            if candidates[0] is False:
                candidates = [char for char in _ORDINARY if char not in candidates[1:]]
            return random.choice(candidates)

        def _handle_repeat(self, start_range: int, end_range: int, value: Any) -> str:
            count = random.randint(start_range, min(int(end_range), max(start_range + 3, least)))
            return "".join(self._handle_state(part) for _ in range(count) for part in value)

    alphabets = {"printable": _ORDINARY, "whitespace": " ", "nonword": "-", "nondigits": string.ascii_letters}
    try:
        return str(Matches(random, **alphabets, nonwhitespace=string.ascii_letters + string.digits).xeger(pattern))
    except (ValueError, KeyError, IndexError, OverflowError, MemoryError, re.error) as error:
        raise UnsatisfiableSchemaError from error


@lru_cache(maxsize=4096)
def _words(name: str) -> tuple[str, ...]:
    """Split a name into words in lower case: camel case, snake case, or with hyphens."""
    return tuple(word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+", name))


def _first_maker(words: Sequence[str]) -> str | None:
    return next((_WORDS[word] for word in reversed(words) if word in _WORDS), None)


def _kind(schema: dict[str, Any]) -> str:
    kinds = schema.get("type")
    if isinstance(kinds, list):
        kinds = next((kind for kind in kinds if kind != "null"), "null")
    return str(kinds or ("object" if "properties" in schema else "array" if "items" in schema else "string"))


def _merged(schema: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    both: dict[str, Any] = {**schema, **part}
    if "properties" in schema and "properties" in part:
        both["properties"] = {**schema["properties"], **part["properties"]}
    if "required" in schema and "required" in part:
        both["required"] = [*schema["required"], *part["required"]]
    return both
