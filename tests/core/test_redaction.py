"""Nothing secret is written or shown, and nothing a model says can move a cursor."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_toolemu.redaction import plain, redact, redact_json, secrets

KEY = "sk-canary-0123456789"


def test_credentials_are_found_by_the_names_of_their_variables() -> None:
    environ = {
        "OPENAI_API_KEY": KEY,
        "DB_PASSWORD": "hunter2-hunter2",
        "AWS_SECRET_ACCESS_KEY": "abcdefghijkl",
        "SOME_TOKEN": "short",
        "TOKEN_FILE": "/run/secrets/token",
        "PATH": "/usr/bin:/bin-long-enough",
    }
    assert set(secrets(environ).values()) == {"OPENAI_API_KEY", "DB_PASSWORD", "AWS_SECRET_ACCESS_KEY"}


def test_a_variable_may_vanish_while_credentials_are_looked_for() -> None:
    class Environment(dict[str, str]):
        def __iter__(self) -> Iterator[str]:
            names = list(super().__iter__())
            self.pop("A_TOKEN", None)
            return iter(names)

    assert secrets(Environment(A_TOKEN="gone-by-then", B_TOKEN="still-there")) == {"still-there": "B_TOKEN"}


def test_a_credential_that_contains_another_is_replaced_whole() -> None:
    known = secrets({"A_KEY": "abcdefgh", "B_KEY": "abcdefghijkl"})
    assert redact("x abcdefghijkl y abcdefgh z", known) == "x [B_KEY redacted] y [A_KEY redacted] z"


def test_json_is_redacted_in_keys_and_values() -> None:
    known = secrets({"OPENAI_API_KEY": KEY})
    value = {"a": [f"Bearer {KEY}", 1, None], f"k-{KEY}": {"b": KEY}}
    assert redact_json(value, known) == {
        "a": ["Bearer [OPENAI_API_KEY redacted]", 1, None],
        "k-[OPENAI_API_KEY redacted]": {"b": "[OPENAI_API_KEY redacted]"},
    }


@pytest.mark.parametrize(
    "hostile",
    [
        "\x1b[31mred\x1b[0m",
        "\x1b]0;title\x07",
        "\x1b]8;;http://x\x1b\\link",
        "a\rb",
        "\x9b2J",
        "\u202egnp.exe",
        "\u200bhidden",
        "\x07",
    ],
)
def test_control_sequences_do_not_reach_a_terminal(hostile: str) -> None:
    assert not set(plain(hostile)) & set("\x1b\x07\r\x9b\u202e\u200b")


@given(st.text())
def test_what_is_shown_is_printable_lines(text: str) -> None:
    assert all(char in "\n\t" or ord(char) >= 32 for char in plain(text))


def test_known_credentials_do_not_reach_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert plain(f"401: bad key {KEY}") == "401: bad key [OPENAI_API_KEY redacted]"
