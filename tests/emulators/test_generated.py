from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import datetime
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_toolemu.emulators.schema_values import SchemaGenerator, UnsatisfiableSchemaError, matching_text
from pytest_toolemu.formats.json_schema import inlined, violations
from tests.emulators.resolved_cases import TEXT, listed, record

NOW = datetime.fromisoformat("2025-06-11T09:20:00+02:00")


def generate(schema: dict[str, Any], seed: str = "s", locale: str = "en_US", **echo: Any) -> Any:
    return SchemaGenerator(seed, locale, NOW, echo).value(inlined(schema), ("Tool",))


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
    assert re.fullmatch(pattern, matching_text(pattern, Random(seed), 0))


@pytest.mark.parametrize("pattern", [r"\p{L}", "(a", "a)", "[a", "(?>ab)"])
def test_an_unsupported_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(UnsatisfiableSchemaError):
        matching_text(pattern, Random(1), 0)


def test_text_for_a_pattern_is_the_same_in_every_process() -> None:
    code = (
        "from random import Random; from pytest_toolemu.emulators.schema_values import matching_text;"
        "print(matching_text(r'[^abc]{20}\\W\\D.\\S', Random(1), 0))"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in "12"
    }
    assert len(texts) == 1


class TestRealism:
    def test_values_fit_their_names(self) -> None:
        generated = members(
            sender_email=TEXT, phone_number=TEXT, website=TEXT, order_id=TEXT, created_at=TEXT, due_date=TEXT,
            currency=TEXT, success={"type": "boolean"},
        )  # fmt: skip
        assert "@" in generated["sender_email"]
        assert sum(char.isdigit() for char in generated["phone_number"]) >= 7
        assert generated["website"].startswith("http")
        assert re.fullmatch(r"ord-[a-z0-9]{8}", generated["order_id"])
        assert datetime.fromisoformat(generated["created_at"]) <= NOW
        assert generated["due_date"] > NOW.date().isoformat()
        assert re.fullmatch("[A-Z]{3}", generated["currency"])
        assert generated["success"] is True

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
        generated = [generate(record(email=TEXT, url=TEXT, ip=TEXT), str(seed)) for seed in range(30)]
        assert all(re.search(r"@example\.(com|net|org)$", each["email"]) for each in generated)
        assert all(each["url"].startswith("https://www.example.org/") for each in generated)
        assert all(each["ip"].startswith("192.0.2.") for each in generated)


class TestEcho:
    def test_members_named_like_an_argument_take_its_value(self) -> None:
        schema = record(name=TEXT, owner=record(name=TEXT, age={"type": "integer"}))
        generated = generate(schema, name="Anna", age="not a number")
        assert generated["name"] == generated["owner"]["name"] == "Anna"
        assert isinstance(generated["owner"]["age"], int)


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
