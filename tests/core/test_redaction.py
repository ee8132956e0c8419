"""No secret is written or shown in any form, and no text of a model can deceive its readers."""

from __future__ import annotations

import base64
import json
import random
import re
import string
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_toolemu.formats.redaction import plain, redact, redact_json, secrets
from pytest_toolemu.formats.secrets.ordinary_words import PLACEHOLDERS, RECORD_WORDS
from pytest_toolemu.formats.secrets.secret_registry import REGISTRY, looks_like_a_key
from tests.secret_forms import FORMS

KEY = "sk-canary-0123456789"
ODD = "/k.é y\"'\\<&>+=%"
"""Everything that some format escapes."""


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", [KEY, ODD, f"  {KEY}\n", '"quoted-key-1"', "\\\\b\\\\", "pässwörd😀", "k3y-77"])
def test_a_secret_is_redacted_in_every_form(value: str, form: str) -> None:
    credentials = secrets({"A_KEY": value})
    text = f"before {FORMS[form](value.strip())} after"
    redacted = redact(text, credentials)
    assert "[A_KEY redacted]" in redacted
    assert FORMS[form](value.strip().strip('"')) not in redacted
    assert redacted.startswith("before ")
    assert redacted.endswith(" after")


@pytest.mark.parametrize("before", ["", "u", "us", "user:", "Authorization: Bearer "])
@pytest.mark.parametrize("value", [KEY, ODD, "pässwörd😀"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_secret_is_redacted_in_base64_wherever_it_begins(
    value: str, before: str, encode: Callable[[bytes], bytes]
) -> None:
    text = encode(f"{before}{value} and more".encode()).decode()
    redacted = redact(text, secrets({"A_KEY": value}))
    assert "[A_KEY redacted]" in redacted
    # The remaining text on both sides does not decode to any part of the value.
    remaining_text = redacted.replace("[A_KEY redacted]", "")
    assert len(remaining_text) <= len(encode(f"{before} and more".encode())) + 4


@pytest.mark.parametrize("width", [64, 76])
@pytest.mark.parametrize("escape", [str, lambda text: json.dumps(text)[1:-1], lambda text: text.replace("\n", "\r\n")])
def test_a_secret_is_redacted_in_base64_with_line_breaks(width: int, escape: Callable[[str], str]) -> None:
    key = "sk-" + "".join(random.Random(1).choices(string.ascii_letters + string.digits, k=60))
    credentials = secrets({"A_KEY": key})
    for before in range(80):
        encoded = base64.b64encode(f"{'x' * before}{key} and more text".encode()).decode()
        redacted = redact(escape("\n".join(textwrap.wrap(encoded, width))), credentials)
        assert redacted.count("[A_KEY redacted]") == 1
        remaining_text = re.sub(r"\\[rn]|\s", "", redacted.replace("[A_KEY redacted]", ""))
        assert len(remaining_text) <= len(encoded) - len(key) * 8 // 6 + 4


@given(value=st.text(min_size=8, max_size=40), form=st.sampled_from(sorted(FORMS)))
def test_no_secret_of_eight_characters_is_left(value: str, form: str) -> None:
    value = value.strip().strip("\"'`").strip()
    credentials = secrets({"A_KEY": value})
    is_word = value.casefold() in PLACEHOLDERS | RECORD_WORDS
    if len(value) < 8 or is_word or value.startswith(("/", ".", "~")) or len(credentials.values) != 1:
        return  # too short, a word of this package's files, a path, several lines, or JSON
    try:
        text = FORMS[form](value)
    except UnicodeEncodeError:  # half of a surrogate pair has no form in a URL
        return
    assert redact(f"<{text}>", credentials) == "<[A_KEY redacted]>"


def test_credentials_are_found_by_the_names_of_their_variables(tmp_path: Path) -> None:
    environ = {
        "OPENAI_API_KEY": KEY,
        "DB_PASSWORD": "hunter2-hunter2",
        "AWS_SECRET_ACCESS_KEY": "abcdefghijkl",
        "AWS_ACCESS_KEY_ID": "AKIA0123456789",
        "SOME_TOKEN": "abc-12",
        "OPENAI_ORG_ID": "org-canary-1",
        "OPENAI_PROJECT_ID": "proj_canary_1",
        "SLASHED_KEY": "/with+slash",
        "TOKEN_FILE": "/run/secrets/token",
        "MY_CREDENTIALS": str(tmp_path),
        "MAX_TOKENS": "100000",
        "TOKENIZERS_PARALLELISM": "canary-value",
        "TOOLEMU_BUDGET_TOKENS": "500000",
        "PATH": "/usr/bin:/bin-long-enough",
    }
    assert set(secrets(environ).values.values()) == {
        "OPENAI_API_KEY",
        "DB_PASSWORD",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_ACCESS_KEY_ID",
        "SOME_TOKEN",
        "OPENAI_ORG_ID",
        "OPENAI_PROJECT_ID",
        "SLASHED_KEY",
    }


def test_values_of_custom_headers_are_redacted() -> None:
    basic = base64.b64encode(b"canary-user:canary-pass").decode()
    credentials = secrets(
        {
            "OPENAI_CUSTOM_HEADERS": f"X-Gateway: canary-gateway\nAuthorization: Basic {basic}\nAccept: application/json",
            "ANTHROPIC_CUSTOM_HEADERS": "Proxy-Authorization: Bearer canary-bearer",
        }
    )
    text = redact(f"canary-gateway {basic} canary-pass canary-bearer application/json", credentials)
    assert "canary" not in text
    assert "application/json" in text


def test_credentials_in_urls_are_redacted() -> None:
    credentials = secrets({"OPENAI_BASE_URL": "https://robot:s3cr%2Ft!@proxy/v1?api_key=canary-key&model=gpt"})
    redacted = redact("s3cr/t! s3cr%2Ft! robot:s3cr/t! canary-key gpt cm9ib3Q6czNjci90IQ==", credentials)
    assert redacted.split().count("[OPENAI_BASE_URL") == 5
    assert "gpt" in redacted
    assert "cm9ib3" not in redacted


def test_every_line_of_a_private_key_is_redacted() -> None:
    credentials = secrets({"SSH_KEY": "-----BEGIN KEY-----\nMIIEcanary0\nMIIEcanary1\n-----END KEY-----\n"})
    assert "MIIE" not in redact("E   MIIEcanary0\nE   MIIEcanary1", credentials)


def test_a_credential_inside_json_is_redacted() -> None:
    credentials = secrets({"GCP_CREDENTIALS": '{"type": "service_account", "private_key": "canary-private"}'})
    assert redact("service_account canary-private", credentials) == "service_account [GCP_CREDENTIALS redacted]"


@pytest.mark.parametrize(
    ("value", "text", "expected"),
    [
        ("k3y-77", "the k3y-77, (k3y-77) \\nk3y-77 is not in xk3y-77y", "the #, (#) \\n# is not in xk3y-77y"),
        ("a", "a cat has a key: a and a banana", "a cat has a key: # and a banana"),
        ("abc", "Incorrect API key provided: abc. abc is abcdef", "Incorrect API key provided: #. abc is abcdef"),
        ("abc", '{"Authorization": "Bearer abc"}', '{"Authorization": "Bearer #"}'),
        ("trajectory", "the trajectory: trajectory", "the #: #"),
        ("tools", '{"tools": []} token=tools', '{"tools": []} token=#'),
        ("EMPTY", "EMPTY key: EMPTY", "EMPTY key: EMPTY"),
        ("12", "12 api_key: 12", "12 api_key: 12"),
    ],
)
def test_a_short_secret_is_not_redacted_inside_words(value: str, text: str, expected: str) -> None:
    assert redact(text, secrets({"A_KEY": value})) == expected.replace("#", "[A_KEY redacted]")


def test_parts_of_a_secret_are_redacted_at_the_end_of_a_truncated_text() -> None:
    key = "sk-proj-0123456789abcdefghijklmnop"
    credentials = secrets({"A_KEY": key})
    assert redact(f"x {key[:20]}", credentials) == "x [A_KEY redacted]"
    assert redact(f"x {key[:20]}...{key[-18:]} y", credentials) == "x [A_KEY redacted]...[A_KEY redacted] y"
    assert redact(f"{key[-20:]} x", credentials) == "[A_KEY redacted] x"
    assert redact(f"{key[:20]} is its prefix", credentials) == f"{key[:20]} is its prefix"


@pytest.mark.parametrize("word", ["title", "toolkits", "instruction", "exchanges"])
def test_record_keys_are_not_mistaken_for_secrets(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SORT_KEY", word)
    assert redact_json({word: [word]}) == {word: [word]}
    assert redact(f"sort key: {word}") == "sort key: [SORT_KEY redacted]"


def test_secrets_are_redacted_after_code_removed_their_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_TOKEN", KEY)
    end = REGISTRY.begin()
    monkeypatch.delenv("CANARY_TOKEN")
    assert redact(f"it was {KEY}") == "it was [CANARY_TOKEN redacted]"
    end()
    assert redact(f"it was {KEY}") == f"it was {KEY}"


@pytest.mark.parametrize(
    "key", ["sk-proj-abcdefgh", "openai:sk-ant-abcdefgh", "hf_abcdefghijklmnopqrst", "AIza" + 35 * "x"]
)
def test_a_pasted_key_is_recognized(key: str) -> None:
    assert looks_like_a_key(key)


@pytest.mark.parametrize(
    "name", ["gpt-4o", "openai:gpt-4o", "claude-sonnet-4-5", "sk-small", "org/sky-model", "a.b:sk_x"]
)
def test_a_model_name_is_not_mistaken_for_a_key(name: str) -> None:
    assert not looks_like_a_key(name)


def test_a_variable_may_disappear_during_the_search_for_credentials() -> None:
    class Environment(dict[str, str]):
        def __iter__(self) -> Iterator[str]:
            names = list(super().__iter__())
            self.pop("A_TOKEN", None)
            return iter(names)

    credentials = secrets(Environment(A_TOKEN="gone-by-then", B_TOKEN="still-there"))
    assert credentials.values == {"still-there": "B_TOKEN"}


def test_a_credential_that_contains_another_is_replaced_whole() -> None:
    credentials = secrets({"A_KEY": "abcdefgh", "B_KEY": "abcdefghijkl"})
    assert redact("x abcdefghijkl y abcdefgh z", credentials) == "x [B_KEY redacted] y [A_KEY redacted] z"


def test_json_is_redacted_in_keys_and_values() -> None:
    credentials = secrets({"OPENAI_API_KEY": KEY})
    value = {"a": [f"Bearer {KEY}", 1, None], f"k-{KEY}": {"b": KEY}}
    assert redact_json(value, credentials) == {
        "a": ["Bearer [OPENAI_API_KEY redacted]", 1, None],
        "k-[OPENAI_API_KEY redacted]": {"b": "[OPENAI_API_KEY redacted]"},
    }


@pytest.mark.parametrize(
    ("hostile", "escaped"),
    [
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("a\rb", r"a\x0db"),
        ("\x9b2J", r"\x9b2J"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("\u200bhidden", r"\u200bhidden"),
        ("\U000e0041\U000e0001", r"\U000e0041\U000e0001"),
        ("a\ufe01b\U000e0100", r"a\ufe01b\U000e0100"),
        ("x\ufe0f\u200dy", r"x\ufe0f\u200dy"),
        ("a\u00adb\u3164c\u2800d", r"a\xadb\u3164c\u2800d"),
        ("\ud800", r"\ud800"),
    ],
)
def test_hidden_characters_are_shown_as_escapes(hostile: str, escaped: str) -> None:
    assert plain(hostile) == escaped


@pytest.mark.parametrize("text", ["❤️ ✔️ 1️⃣", "👨‍👩‍👧", "🏳️‍🌈", "می‌خواهم", "क्‍ष", "日本語 ёлка", "a\tb\nc"])
def test_joiners_of_scripts_and_emoji_are_kept(text: str) -> None:
    assert plain(text) == text


@given(st.text())
def test_shown_text_has_printable_lines_only(text: str) -> None:
    assert all(char in "\n\t" or ord(char) >= 32 for char in plain(text))


def test_known_credentials_do_not_reach_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert plain(f"401: bad key {KEY}") == "401: bad key [OPENAI_API_KEY redacted]"
