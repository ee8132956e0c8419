from __future__ import annotations

import re
from datetime import datetime
from ipaddress import ip_address, ip_network
from random import Random

import pytest

from pytest_toolemu.emulators.offline.schema_generator import SchemaGenerator
from pytest_toolemu.emulators.offline.vocabulary import Vocabulary
from pytest_toolemu.emulators.offline.vocabulary.countries import COUNTRIES
from pytest_toolemu.emulators.offline.vocabulary.names import NAMES
from pytest_toolemu.emulators.offline.vocabulary.phrases import PHRASES
from tests.emulators.resolved_cases import TEXT, record

NOW = datetime.fromisoformat("2025-06-11T09:20:00+02:00")
PERSON = record(owner=TEXT, email=TEXT, phone=TEXT, city=TEXT, postcode=TEXT, company=TEXT, note=TEXT, account_id=TEXT)
# Changing these values changes every offline world: recorded runs can no longer be compared with new ones.
GOLDEN = {
    ("1", "en_US"): [
        "Leonard Lambert",
        "leonard.lambert@heronpost.example",
        "+1 200 555 0141",
        "Boston",
        "02196",
        "Fennimar Ltd",
        "Two points are still open. Everything fits into the smaller van.",
        "acc-f1vau68",
    ],
    ("2", "de_DE"): [
        "Lena Schäfer",
        "lena.schaefer@larkenfeld.example",
        "+49 30 23125 657",
        "Berlin",
        "10126",
        "Norvessa & Söhne",
        "Der Empfang ist bis achtzehn Uhr besetzt. Im Raum finden etwa zwanzig Personen Platz.",
        "acc-17mxrndm",
    ],
    ("3", "pl_PL"): [
        "Urszula Mazur",
        "urszula.mazur@larkenfeld.example",
        "+48 504 591 040",
        "Lublin",
        "20-259",
        "Halvorne Sp. z o.o.",
        "W sali mieści się około dwudziestu osób. Stara wersja zostaje na rok w archiwum.",
        "acc-f079tn8",
    ],
}


def make(kind: str, locale: str = "en_US", seed: int = 1) -> str:
    return Vocabulary(locale, Random(seed))(kind)


@pytest.mark.parametrize(("seed", "locale"), GOLDEN)
def test_a_seed_always_gives_the_same_text(seed: str, locale: str) -> None:
    assert list(SchemaGenerator(seed, locale, NOW, {}).value(PERSON, ("Tool",)).values()) == GOLDEN[seed, locale]


def test_every_language_has_the_same_lists() -> None:
    assert set(NAMES) == set(PHRASES) == {"en", "de", "fr", "es", "pt", "it", "nl", "sv", "pl"}
    for lists in (NAMES, PHRASES):
        assert all(set(words) == set(lists["en"]) for words in lists.values())
        flat = [words.split("|") for by_kind in lists.values() for words in by_kind.values()]
        assert all(
            len(words) == len(set(words)) and all(word and word == word.strip() for word in words) for words in flat
        )


@pytest.mark.parametrize("code", COUNTRIES)
def test_every_country_has_complete_data(code: str) -> None:
    vocabulary = Vocabulary(f"en_{code}", Random(1))
    assert vocabulary.country.code == code
    assert re.fullmatch(r"[A-Z]{3}", vocabulary.country.currency)
    assert re.fullmatch(r"\w+/\w+", vocabulary.country.timezone)
    for town in vocabulary.country.towns:
        assert town.count("{") == town.count("}") == 1
    for _ in range(20):
        assert re.fullmatch(r"\+[0-9 ]{6,20}", vocabulary("phone_number"))
        assert re.fullmatch(r"[A-Z0-9 -]{2,10}", vocabulary("postcode"))
        assert re.fullmatch(r"[\w. -]+", vocabulary("city"))
        assert not re.search(r"[#%?{}]", vocabulary("place"))


class TestFallbacks:
    def test_an_unknown_language_becomes_english(self) -> None:
        vocabulary = Vocabulary("ja_JP", Random(1))
        assert vocabulary("given") in NAMES["en"]["given"].split("|")
        assert vocabulary.country.name == "Japan"

    @pytest.mark.parametrize(
        ("locale", "code"), [("xx_XX", "US"), ("en_MS", "US"), ("sv_XX", "SE"), ("pt_AO", "PT"), ("de_AT", "AT")]
    )
    def test_an_unknown_country_becomes_the_country_of_the_language(self, locale: str, code: str) -> None:
        assert Vocabulary(locale, Random(1)).country.code == code


class TestRelatedValues:
    @pytest.mark.parametrize(
        ("locale", "address"),
        [("de_DE", r"[a-z]+\.[a-z]+"), ("pl_PL", r"[a-z]+\.[a-z]+"), ("nl_NL", r"[a-z]+\.[a-z]+"), ("it_IT", r"[a-z]+\.[a-z]+")],
    )  # fmt: skip
    def test_an_email_address_has_plain_letters_only(self, locale: str, address: str) -> None:
        vocabulary = Vocabulary(locale, Random(3))
        for _ in range(100):
            assert re.fullmatch(address + r"@[a-z]+\.example", vocabulary("email"))
            assert re.fullmatch(r"[a-z]+\d+", vocabulary("user_name"))

    def test_an_email_address_belongs_to_the_preceding_name(self) -> None:
        vocabulary = Vocabulary("en_GB", Random(2))
        first_name, family = vocabulary("name").lower().split()
        assert vocabulary("email").startswith(f"{first_name}.{family}@")
        assert {vocabulary("email").partition("@")[0] for _ in range(20)} != {f"{first_name}.{family}"}

    def test_letters_are_spelled_as_in_the_language(self) -> None:
        for locale, name, spelled in (("de_DE", "Jäger", "jaeger"), ("pl_PL", "Kołodziej", "kolodziej")):
            vocabularies = (Vocabulary(locale, Random(seed)) for seed in range(500))
            assert any(each("last_name") == name and f".{spelled}@" in each("email") for each in vocabularies)

    def test_a_postcode_belongs_to_the_preceding_town(self) -> None:
        for seed in range(20):
            vocabulary = Vocabulary("de_DE", Random(seed))
            town, postcode = vocabulary("city"), vocabulary("postcode")
            assert any(town in each and postcode[:2] in each for each in vocabulary.country.towns)


class TestContactDataReachesNobody:
    @pytest.mark.parametrize(
        ("locale", "fictional"),
        [("en_US", r"\+1 \d{3} 555 01\d\d"), ("en_GB", r"\+44 7700 900\d{3}"), ("de_DE", r"\+49 30 23125 \d{3}"),
         ("fr_FR", r"\+33 6 39 98 \d\d \d\d"), ("en_AU", r"\+61 2 5550 \d{4}"), ("sv_SE", r"\+46 70 174 06 \d\d")],
    )  # fmt: skip
    def test_telephone_numbers_are_fictional(self, locale: str, fictional: str) -> None:
        assert all(re.fullmatch(fictional, make("phone_number", locale, seed)) for seed in range(30))

    def test_internet_addresses_are_reserved_for_documentation(self) -> None:
        documentation = [
            ip_network(net) for net in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32")
        ]
        for seed in range(30):
            for kind in ("ipv4", "ipv6"):
                assert any(ip_address(make(kind, seed=seed)) in net for net in documentation)
            assert make("domain_name", seed=seed).endswith(".example")
            assert re.match(r"https://www\.[a-z]+\.example/", make("uri", seed=seed))


@pytest.mark.parametrize(
    ("kind", "form"),
    [("sha1", r"[0-9a-f]{40}"), ("uuid4", r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"),
     ("password", r"[A-Z][A-Za-z0-9]{9}\d[!#%+?@_]"), ("folder", r"/[a-z]+/[a-z0-9-]+"),
     ("file_name", r"[a-z0-9-]+\.[a-z]{2,4}"), ("file_path", r"/[a-z]+/[a-z0-9-]+/[a-z0-9-]+\.[a-z]{2,4}"),
     ("paragraph", r"[A-Z][^.]+\. [A-Z][^.]+\."), ("street_address", r"\d+ [\w ]+"), ("word", r"\w+")],
)  # fmt: skip
def test_values_have_their_usual_form(kind: str, form: str) -> None:
    assert all(re.fullmatch(form, make(kind, seed=seed)) for seed in range(30))
