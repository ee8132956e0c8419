from __future__ import annotations

import json
import re
from datetime import datetime
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_toolemu.emulators.offline.regex_generator import RegexGenerator
from pytest_toolemu.emulators.offline.schema_generator import SchemaGenerator
from pytest_toolemu.emulators.offline.value_generator import ValueGenerator, singular, words
from pytest_toolemu.formats.json_schema import violations
from pytest_toolemu.formats.json_schema_refs import inlined
from tests.emulators.resolved_cases import TEXT, listed, record

NOW = datetime.fromisoformat("2025-06-11T09:20:00+02:00")


def generate(schema: dict[str, Any], seed: str = "s", locale: str = "en_US", limit: int = 3, **echo: Any) -> Any:
    return SchemaGenerator(seed, locale, NOW, echo, limit).value(inlined(schema), ("Tool",))


def members(**properties: Any) -> Any:
    return generate(record(**properties))


names = st.sampled_from(
    [
        "id",
        "name",
        "email",
        "created_at",
        "due_date",
        "amount",
        "count",
        "status",
        "url",
        "notes",
        "is_active",
        "file",
        "tags",
    ]
)
texts = st.one_of(
    st.builds(
        lambda low, more: {"type": "string", "minLength": low, "maxLength": low + more},
        st.integers(0, 60), st.integers(0, 60),
    ),
    st.sampled_from(
        [{"type": "string", "format": form} for form in
         ["email", "date", "time", "date-time", "duration", "uuid", "ipv4", "ipv6", "hostname", "uri", "uri-reference"]]
        + [{"type": "string", "pattern": pattern} for pattern in
           (r"^[A-Z]{2}$", r"^\+[0-9 ]{6,20}$", r"^(a|bc)-\d+$", r"^[^\s@]+@[a-z]+\.(com|org)$", r"^\w{3,}$", r"^v\d+(\.\d+){2}$")]
        + [{"enum": ["a", 1, None]}, {"const": {"a": [1]}}, {"type": ["string", "null"]}, {"type": "null"}, {}],
    ),
)  # fmt: skip
numbers = st.one_of(
    st.builds(
        lambda kind, low, more: {"type": kind, "minimum": low, "maximum": low + more},
        st.sampled_from(["integer", "number"]), st.integers(-10_000, 10_000), st.integers(0, 500),
    ),
    st.builds(
        lambda kind, low: {"type": kind, "exclusiveMinimum": low, "exclusiveMaximum": low + 2},
        st.sampled_from(["integer", "number"]), st.integers(-1000, 1000),
    ),
    st.sampled_from([{"type": "integer"}, {"type": "number", "multipleOf": 0.5}, {"type": "integer", "multipleOf": 25},
                     {"type": "number", "maximum": 0}, {"type": "number", "minimum": 5000}, {"type": "boolean"}]),
)  # fmt: skip


def composed(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    objects = st.dictionaries(names, inner, max_size=5).flatmap(
        lambda parts: st.builds(
            lambda required, closed: (
                {"type": "object", "properties": parts, "required": required}
                | ({"additionalProperties": False} if closed else {})
            ),
            st.lists(st.sampled_from(sorted(parts)), unique=True) if parts else st.just([]),
            st.booleans(),
        )
    )
    arrays = st.builds(
        lambda items, low, more: {"type": "array", "items": items, "minItems": low, "maxItems": low + more},
        inner, st.integers(0, 4), st.integers(0, 4),
    )  # fmt: skip
    return st.one_of(objects, arrays, st.builds(lambda a: {"anyOf": [a, {"type": "null"}]}, inner))


schemas = st.recursive(st.one_of(texts, numbers), composed, max_leaves=12)


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(schema=schemas, seed=st.integers(0, 5), locale=st.sampled_from(["en_US", "de_DE", "ja_JP"]))
def test_generated_values_conform_to_their_schema(schema: dict[str, Any], seed: int, locale: str) -> None:
    whole = {"type": "object", "properties": {"result": schema}, "required": ["result"]}
    generated = generate(whole, str(seed), locale)
    assert violations(whole, generated) == []
    assert generate(whole, str(seed), locale) == generated
    json.dumps(generated)


@settings(max_examples=80, deadline=None, derandomize=True, database=None)
@given(st.from_regex(r"\A(?:[a-c]|\[[d-f0-3]{1,3}\]|\\d|\(x\|yz\)|\.)(?:\?|\*|\+|\{2\}|\{1,3\})?\Z"), st.integers(0, 9))
def test_generated_text_matches_its_pattern(pattern: str, seed: int) -> None:
    assert re.fullmatch(pattern, RegexGenerator(pattern, Random(seed))())


@pytest.mark.parametrize(
    "pattern", [r"^(?=a)b", r"(?P<n>a)", r"\p{L}", "(a", "a)", "[a", r"(a)\1", "(?i)a", "a{90000000}"]
)
def test_an_unsupported_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        RegexGenerator(pattern, Random(1))


class TestRealism:
    def test_values_fit_their_names(self) -> None:
        generated = members(
            sender_email=TEXT, phone_number=TEXT, website=TEXT, order_id=TEXT, created_at=TEXT, due_date=TEXT,
            currency=TEXT, success={"type": "boolean"}, has_more={"type": "boolean"}, exit_code={"type": "integer"},
            latitude={"type": "number"}, country={"type": "string", "pattern": "^[A-Z]{2}$"},
        )  # fmt: skip
        assert "@" in generated["sender_email"]
        assert sum(char.isdigit() for char in generated["phone_number"]) >= 7
        assert generated["website"].startswith("http")
        assert re.fullmatch(r"ord-[a-z0-9]{7,10}", generated["order_id"])
        assert datetime.fromisoformat(generated["created_at"]) <= NOW
        assert generated["due_date"] > NOW.date().isoformat()
        assert generated["currency"] == "USD"
        assert generated["country"] == "US"
        assert generated["success"] is True
        assert generated["has_more"] is False
        assert generated["exit_code"] == 0
        assert -90 <= generated["latitude"] <= 90

    def test_ids_are_not_sequential(self) -> None:
        ids = [generate(record(id={"type": "integer"}), str(seed))["id"] for seed in range(20)]
        assert len(set(ids)) == 20
        assert ids != sorted(ids)

    def test_a_bare_name_belongs_to_the_object_around_it(self) -> None:
        generated = generate(record(contacts=listed(record(name=TEXT)), files=listed(record(name=TEXT))))
        assert all(" " in contact["name"] for contact in generated["contacts"])
        assert all("." in file["name"] for file in generated["files"])

    def test_a_status_reports_success(self) -> None:
        for seed in range(10):
            assert generate(record(status={"enum": ["FAILED", "sent", "rejected"]}), str(seed)) == {"status": "sent"}

    def test_objects_without_declared_members_are_not_empty(self) -> None:
        generated = generate(record(payees=listed({"type": "object"})))
        assert all(set(payee) == {"id", "name"} for payee in generated["payees"])

    @pytest.mark.parametrize("locale", ["pt_BR", "zh_CN", "ar_SA", "en_MS", "xx_XX"])
    def test_every_locale_is_accepted(self, locale: str) -> None:
        schema = record(name=TEXT, address=TEXT, country=TEXT, company=TEXT, title=TEXT, body=TEXT)
        assert all(generate(schema, locale=locale).values())

    def test_generated_addresses_reach_no_third_party(self) -> None:
        generated = [ValueGenerator(str(seed), "en_US", NOW) for seed in range(30)]
        assert all(re.search(r"@\w+\.example$", each.text(("email",))) for each in generated)
        assert all(re.match(r"https://www\.\w+\.example/", each.text(("url",))) for each in generated)
        assert all(each.text(("ip",)).startswith(("192.0.2.", "198.51.100.", "203.0.113.")) for each in generated)


class TestEcho:
    def test_members_named_like_an_argument_take_its_value(self) -> None:
        schema = record(name=TEXT, owner=record(name=TEXT, age={"type": "integer"}))
        generated = generate(schema, name="Anna", age="not a number")
        assert generated["name"] == generated["owner"]["name"] == "Anna"
        assert isinstance(generated["owner"]["age"], int)

    def test_a_list_of_ids_gets_one_item_for_each_id(self) -> None:
        generated = generate(record(events=listed(record(event_id=TEXT, title=TEXT))), event_ids=["a", "b", "c", "d"])
        assert [event["event_id"] for event in generated["events"]] == ["a", "b", "c", "d"]

    def test_a_limit_is_respected(self) -> None:
        assert len(generate(record(events=listed(record(title=TEXT))), limit=1)["events"]) == 1

    def test_search_results_contain_the_query(self) -> None:
        generated = generate(record(contacts=listed(record(contact_id=TEXT, name=TEXT))), query="Maya")
        assert all(contact["name"].startswith("Maya") for contact in generated["contacts"])


class TestReferences:
    TREE = {
        "type": "object",
        "properties": {"root": {"$ref": "#/$defs/node"}, "same": {"$ref": "#/properties/label"}, "label": TEXT},
        "required": ["root", "same"],
        "$defs": {"node": {
            "type": "object",
            "properties": {"name": TEXT, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
            "required": ["name", "children"],
        }},
    }  # fmt: skip

    def test_a_recursive_schema_becomes_finite(self) -> None:
        generated = generate(self.TREE)
        assert violations(self.TREE, generated) == []
        assert generated["root"]["children"] == []

    def test_no_references_remain(self) -> None:
        assert "$ref" not in json.dumps(inlined(self.TREE))

    def test_escaped_and_indexed_pointers(self) -> None:
        schema = {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/x~1y"}, "b": {"$ref": "#/anyOf/0"}},
            "$defs": {"x/y": {"type": "integer"}},
            "anyOf": [{"type": "object"}],
        }
        assert inlined(schema)["properties"] == {"a": {"type": "integer"}, "b": {"type": "object"}}

    def test_other_references_accept_anything(self) -> None:
        schema = {
            "type": "object",
            "properties": {"a": {"$ref": "#here"}, "b": {"$ref": "#/$defs/no"}, "c": {"$ref": "#"}},
        }
        assert inlined(schema)["properties"] == {"a": True, "b": True, "c": False}

    def test_a_schema_that_grows_exponentially_is_cut(self) -> None:
        chain = {f"d{n}": {"type": "array", "prefixItems": [{"$ref": f"#/$defs/d{n + 1}"}] * 10} for n in range(12)}
        schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": chain | {"d12": TEXT}}
        assert len(json.dumps(inlined(schema))) < 200_000


@pytest.mark.parametrize(
    ("name", "parts"),
    [("contactId", ["contact", "id"]), ("IBANNumber", ["iban", "number"]), ("due_date", ["due", "date"]), ("x9", ["x"]), ("", [])],
)  # fmt: skip
def test_a_name_is_split_into_words(name: str, parts: list[str]) -> None:
    assert words(name) == tuple(parts)


@pytest.mark.parametrize(
    ("many", "one"),
    [("contacts", "contact"), ("entries", "entry"), ("addresses", "address"), ("address", "address"), ("boxes", "box"), ("s", "s")],
)  # fmt: skip
def test_the_singular_of_a_name_is_formed(many: str, one: str) -> None:
    assert singular(many) == one
