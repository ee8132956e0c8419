"""Draw names, addresses, texts and numbers that look like those of a language area but belong to nobody.

Domains and IP addresses are those reserved for documentation (RFC 2606, 5737, 3849), and telephone numbers are those
reserved for fiction where such ranges are known. The tables are part of the package instead of coming from a library of
fake data such as Faker: emulated results must stay the same for a seed whatever is installed, because records, replays
and resumed sessions depend on them; and the random telephone numbers and addresses of such libraries may be real.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Final
from uuid import UUID

from pytest_toolemu.emulators.offline.vocabulary.countries import COUNTRIES, country
from pytest_toolemu.emulators.offline.vocabulary.names import NAMES
from pytest_toolemu.emulators.offline.vocabulary.phrases import PHRASES

# The same in every language; no company bears a name with these stems.
_EVERYWHERE: Final = {
    "stem": "Aurelune|Birkanda|Brindlecot|Castellume|Fennimar|Halvorne|Kestrane|Larkenfeld|Lumavik|Marlindo|Merrowick|"
    "Norvessa|Orvanne|Ostavane|Pelorin|Quillonde|Solvantis|Tessandra|Tindalis|Valdoria",
    "post": "heronpost|larkmail|mailhaven|postlark|quillbox",
    "page": "about|archive|contact|downloads|help|news|offers|orders|products|service|team|terms",
    "shelf": "archive|contracts|drafts|finance|invoices|photos|plans|projects|reports|shared|team|travel",
    "ending": "csv|docx|jpg|md|pdf|png|txt|xlsx",
    "color_name": "amber|beige|black|blue|brown|crimson|green|grey|indigo|navy|olive|orange|red|teal|white",
    "language_name": "Dutch|English|French|German|Italian|Polish|Portuguese|Spanish|Swedish",
    "network": "192.0.2|198.51.100|203.0.113",
}
_HOMES: Final = {"en": "US", "sv": "SE"}
_NUMBER_FIRST: Final = ("en", "fr")
# How letters are spelled with a to z only; accents are dropped.
_SPELLINGS: Final = {
    "de": str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue"}),
    "pl": str.maketrans({"ł": "l"}),
}
_SIGNS: Final = {"#": string.digits, "%": "23456789", "?": "ABCDEFGHJKLNPRSTUWXYZ"}


@cache
def _lists(language: str) -> dict[str, list[str]]:
    return {kind: words.split("|") for kind, words in (_EVERYWHERE | NAMES[language] | PHRASES[language]).items()}


class Vocabulary:
    """Draws a text of a kind: a word of the list with that name, or the result of the method with that name.

    An unknown language becomes English; an unknown country becomes the one where most people speak the language. An
    email address or user name drawn after a name belongs to that person, a postcode drawn after a town to that town.
    """

    def __init__(self, locale: str, random: Random) -> None:
        language, _, code = locale.partition("_")
        self._language = language if language in NAMES else "en"
        self.country = country(code if code in COUNTRIES else _HOMES.get(self._language, self._language.upper()))
        self._lists, self._random = _lists(self._language), random
        self._given = self._family = self._town = ""

    def __call__(self, kind: str) -> str:
        """Draw one text."""
        if kind in self._lists:
            return self._random.choice(self._lists[kind])
        maker: Callable[[], str] = getattr(self, f"_{kind}")
        return maker()

    def _first_name(self) -> str:
        self._given = self("given")
        return self._given

    def _last_name(self) -> str:
        self._family = self("family")
        return self._family

    def _name(self) -> str:
        return f"{self._first_name()} {self._last_name()}"

    def _person(self) -> tuple[str, str]:
        given, family = self._given or self("given"), self._family or self("family")
        self._given = self._family = ""
        return self._plain(given, ""), self._plain(family, "")

    def _email(self) -> str:
        host = f"{self('post')}.example" if self._random.random() < 0.5 else self._domain_name()
        return f"{'.'.join(self._person())}@{host}"

    def _user_name(self) -> str:
        given, family = self._person()
        return f"{given[0]}{family}{self._random.randint(2, 98)}"

    def _company(self) -> str:
        return f"{self('stem')} {self('form')}"

    def _phone_number(self) -> str:
        return self._filled(self.country.phone)

    def _street_address(self) -> str:
        street, number = self("street"), self._random.randint(1, 148)
        return f"{number} {street}" if self._language in _NUMBER_FIRST else f"{street} {number}"

    def _place(self) -> str:
        town = self._random.choice(self.country.towns)
        return f"{self._street_address()}, {self._filled(re.sub('[{}]', '', town))}"

    def _city(self) -> str:
        self._town = self._random.choice(self.country.towns)
        return re.sub(r"\{.*\}|,.*", "", self._town).strip()

    def _postcode(self) -> str:
        town, self._town = self._town or self._random.choice(self.country.towns), ""
        return self._filled(town.partition("{")[2].partition("}")[0])

    def _title(self) -> str:
        return f"{self('topic')} {self('addition')}" if self._random.random() < 0.7 else self("topic")

    def _paragraph(self) -> str:
        return " ".join(self._random.sample(self._lists["sentence"], 2))

    def _word(self) -> str:
        return self._random.choice(self("addition").split())

    def _domain_name(self) -> str:
        return f"{self('stem').lower()}.example"

    def _uri(self) -> str:
        return f"https://www.{self._domain_name()}/{self('page')}/{self._random.randint(1_000, 99_999)}"

    def _file_name(self) -> str:
        return f"{self._plain(self._title())}.{self('ending')}"

    def _folder(self) -> str:
        return f"/{self('shelf')}/{self._plain(self('topic'))}"

    def _file_path(self) -> str:
        return f"{self._folder()}/{self._file_name()}"

    def _sha1(self) -> str:
        return f"{self._random.getrandbits(160):040x}"

    def _password(self) -> str:
        body = "".join(self._random.choices(string.ascii_letters + string.digits, k=9))
        return self._random.choice(string.ascii_uppercase) + body + self._filled("#") + self._random.choice("!#%+?@_")

    def _ipv4(self) -> str:
        return f"{self('network')}.{self._random.randint(1, 254)}"

    def _ipv6(self) -> str:
        return "2001:db8:" + ":".join(f"{self._random.randint(4_096, 65_535):x}" for _ in range(6))

    def _uuid4(self) -> str:
        return str(UUID(int=self._random.getrandbits(128), version=4))

    def _filled(self, pattern: str) -> str:
        return "".join(self._random.choice(_SIGNS.get(char, char)) for char in pattern)

    def _plain(self, text: str, between: str = "-") -> str:
        """Spell a text with the lowercase letters a to z and digits, with a separator between words."""
        spelled = text.casefold().translate(_SPELLINGS.get(self._language, {}))
        ascii_only = unicodedata.normalize("NFKD", spelled).encode("ascii", "ignore").decode()
        return re.sub(r"[^a-z0-9]+", between, ascii_only).strip("-")
