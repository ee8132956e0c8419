"""No secret is written or shown in any form, and no text of a model can deceive its readers."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_toolemu.formats.redaction import (
    REGISTRY,
    Redactor,
    in_environment,
    is_secret,
    looks_like_a_key,
    redact,
    redact_json,
)
from pytest_toolemu.formats.text import visible
from tests.secret_forms import FORMS

KEY = "sk-canary-0123456789"
ODD = "/k.é y\"'\\<&>+=%"
"""Everything that some format escapes."""


def secrets(environ: Mapping[str, str]) -> Redactor:
    return Redactor(dict(in_environment(environ)))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", [KEY, ODD, f"  {KEY}\n", "pässwörd😀"])
def test_a_secret_is_redacted_in_every_form(value: str, form: str) -> None:
    credentials = secrets({"A_KEY": value})
    text = f"before {FORMS[form](value.strip())} after"
    redacted = credentials(text)
    assert "[A_KEY redacted]" in redacted
    assert FORMS[form](value.strip().strip('"')) not in redacted
    assert redacted.startswith("before ")
    assert redacted.endswith(" after")


@given(value=st.text(min_size=8, max_size=40), form=st.sampled_from(sorted(FORMS)))
def test_no_secret_of_eight_characters_is_left(value: str, form: str) -> None:
    value = value.strip().strip("\"'`").strip()
    found = in_environment({"A_KEY": value})
    if not is_secret(value) or value.startswith(("/", ".", "~")) or len(found) != 1:
        return  # too short, a word, a path, several lines, or JSON
    try:
        text = FORMS[form](value)
    except UnicodeEncodeError:  # half of a surrogate pair has no form in a URL
        return
    assert Redactor(dict(found))(f"<{text}>").replace("=", "") == "<[A_KEY redacted]>"


def test_credentials_are_found_by_the_names_of_their_variables(tmp_path: Path) -> None:
    environ = {
        "OPENAI_API_KEY": KEY,
        "DB_PASSWORD": "hunter2-hunter2",
        "AWS_SECRET_ACCESS_KEY": "abcdefghijkl1",
        "AWS_ACCESS_KEY_ID": "AKIA0123456789",
        "SOME_TOKEN": "abc-1234",
        "OPENAI_ORG_ID": "org-canary-1",
        "OPENAI_PROJECT_ID": "proj_canary_1",
        "SLASHED_KEY": "/with+slash",
        "GH_PAT": "canary-pat",
        "SLACK_WEBHOOK_URL": "https://hooks.slack.example/services/T0/B0/canary",
        "SESSION_COOKIE": "sid=canary-1",
        "COOKIE_DOMAIN_NAME": "canary-domain.example",
        "DESK_AUTHORIZATION": "Bearer canary-bearer",
        "TOKEN_FILE": "/run/secrets/token",
        "MY_CREDENTIALS": str(tmp_path),
        "MAX_TOKENS": "100000",
        "TOKENIZERS_PARALLELISM": "canary-value",
        "TOOLEMU_BUDGET_TOKENS": "500000",
        "PATH": "/usr/bin:/bin-long-enough",
    }
    assert {name for _, name in in_environment(environ)} == {
        "OPENAI_API_KEY",
        "DB_PASSWORD",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_ACCESS_KEY_ID",
        "SOME_TOKEN",
        "OPENAI_ORG_ID",
        "OPENAI_PROJECT_ID",
        "SLASHED_KEY",
        "GH_PAT",
        "SLACK_WEBHOOK_URL",
        "SESSION_COOKIE",
        "DESK_AUTHORIZATION",
    }
    assert secrets({"DESK_AUTHORIZATION": "Bearer canary-bearer"})("canary-bearer") == "[DESK_AUTHORIZATION redacted]"


@pytest.mark.parametrize(
    "key",
    [
        "ghp_0123456789abcdefghij",
        "ghu_0123456789abcdefghij",
        "github_pat_0123456789abcdefghij",
        "sk-proj-0123456789",
        "xoxb-0123456789-abc",
        "AKIA0123456789ABCDEF",
        "glpat-0123456789abcdefghij",
    ],
)
def test_a_key_of_a_well_known_form_is_redacted_whatever_its_variable_is_called(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESK", key)
    monkeypatch.setenv("COMMIT", "0123456789abcdef0123456789abcdef01234567")
    REGISTRY.remember()
    assert redact(f"{key} 0123456789abcdef0123456789abcdef01234567") == (
        "[DESK redacted] 0123456789abcdef0123456789abcdef01234567"
    )


def test_values_of_custom_headers_are_redacted() -> None:
    basic = base64.b64encode(b"canary-user:canary-pass").decode()
    credentials = secrets(
        {
            "OPENAI_CUSTOM_HEADERS": f"X-Gateway: canary-gateway\nAuthorization: Basic {basic}\nAccept: application/json",
            "ANTHROPIC_CUSTOM_HEADERS": "Proxy-Authorization: Bearer canary-bearer",
        }
    )
    text = credentials(f"canary-gateway {basic} canary-bearer application/json")
    assert "canary" not in text
    assert "application/json" in text


def test_credentials_in_urls_are_redacted() -> None:
    credentials = secrets({"OPENAI_BASE_URL": "https://robot:s3cr%2Fet!@proxy/v1?api_key=canary-key&model=gpt"})
    redacted = credentials("s3cr/et! s3cr%2Fet! robot:s3cr/et! canary-key gpt cm9ib3Q6czNjci9ldCE=")
    assert redacted.split().count("[OPENAI_BASE_URL") == 5
    assert "gpt" in redacted
    assert "cm9ib3" not in redacted


def test_every_line_of_a_private_key_is_redacted() -> None:
    credentials = secrets({"SSH_KEY": "-----BEGIN KEY-----\nMIIEcanary0\nMIIEcanary1\n-----END KEY-----\n"})
    assert "MIIE" not in credentials("E   MIIEcanary0\nE   MIIEcanary1")


@pytest.mark.parametrize(
    "value", ["k3y-77", "EMPTY", "12345", "trajectory", "risky_actions", "Undefined", "not-needed"]
)
def test_short_values_and_words_are_not_redacted(value: str) -> None:
    assert secrets({"A_KEY": value})(f"the {value}: {value}") == f"the {value}: {value}"


@pytest.mark.parametrize("end", ["", "… (900 characters)", "...", "\\u2026"])
def test_the_beginning_of_a_secret_is_redacted_in_a_truncated_text(end: str) -> None:
    key = "sk-proj-0123456789abcdefghijklmnop"
    credentials = secrets({"A_KEY": key})
    assert credentials(f"x {key[:20]}{end}") == f"x [A_KEY redacted]{end}"
    assert credentials(f"{key[:20]} is its prefix") == f"{key[:20]} is its prefix"


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

    found = in_environment(Environment(A_TOKEN="gone-by-then", B_TOKEN="still-there-1"))
    assert found == (("still-there-1", "B_TOKEN"),)


def test_a_credential_that_contains_another_is_replaced_whole() -> None:
    credentials = secrets({"A_KEY": "abcdefg1", "B_KEY": "abcdefg1ijkl"})
    assert credentials("x abcdefg1ijkl y abcdefg1 z") == "x [B_KEY redacted] y [A_KEY redacted] z"


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
    assert visible(hostile) == escaped


@pytest.mark.parametrize("text", ["❤️ ✔️ 1️⃣", "👨‍👩‍👧", "🏳️‍🌈", "می‌خواهم", "क्‍ष", "日本語 ёлка", "a\tb\nc"])
def test_joiners_of_scripts_and_emoji_are_kept(text: str) -> None:
    assert visible(text) == text


@given(st.text())
def test_shown_text_has_printable_lines_only(text: str) -> None:
    assert all(char in "\n\t" or ord(char) >= 32 for char in visible(text))
