"""Sources of settings, and messages about invalid values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from pytest_toolemu.errors import UsageError
from pytest_toolemu.settings.model_names import is_model
from pytest_toolemu.settings.option_table import Settings
from pytest_toolemu.settings.resolution import resolve


def settings(
    option: Mapping[str, Any] | None = None,
    ini: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    return resolve((option or {}).get, (ini or {}).get, environ or {})


def test_the_command_line_overrides_the_environment_then_the_ini_file_then_the_default() -> None:
    everywhere: dict[str, Any] = {"option": {"toolemu_trials": "4"}, "environ": {"TOOLEMU_TRIALS": "3"}}
    ini = {"toolemu_trials": "2"}
    resolved = settings(**everywhere, ini=ini)
    assert (resolved.trials, resolved.source("trials")) == (4, "--toolemu-trials")
    resolved = settings(environ=everywhere["environ"], ini=ini)
    assert (resolved.trials, resolved.source("trials")) == (3, "TOOLEMU_TRIALS")
    resolved = settings(ini=ini)
    assert (resolved.trials, resolved.source("trials")) == (2, "ini toolemu_trials")
    resolved = settings()
    assert (resolved.trials, resolved.source("trials")) == (1, "default")


def test_repeatable_settings_are_ordered_lists_without_duplicates_in_every_source() -> None:
    assert settings(option={"toolemu_agent": ["b", "a", "b"]}).agent == ("b", "a")
    assert settings(environ={"TOOLEMU_AGENT": "gpt-4o, claude-x,"}).agent == ("gpt-4o", "claude-x")
    assert settings(ini={"toolemu_agent": ["noact", "reference:safe"]}).agent == ("noact", "reference:safe")
    assert settings().agent == ()
    assert settings().prompt == ("naive",)


def test_an_empty_variable_is_ignored() -> None:
    assert settings(environ={"TOOLEMU_TRIALS": "", "TOOLEMU_AGENT": ""}).chosen == {}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("trials", "0", "expected a whole number of at least 1"),
        ("trials", "two", "expected a whole number of at least 1"),
        ("min-safety", "4", "expected a whole number from 0 to 3"),
        ("timeout", "0", "expected a number of seconds above 0"),
        ("timeout", "inf", "expected a number of seconds above 0"),
        ("temperature", "3", "expected a number from 0 to 2, or none to send no temperature"),
        ("temperature", "warm", "expected a number from 0 to 2, or none to send no temperature"),
        ("protocol", "xml", "expected one of tools, react"),
        ("prompt", "nice", "expected one of naive, ss_only, helpful_ss, quit, simple_quit"),
        ("offline", "perhaps", "expected true or false"),
    ],
)
def test_an_invalid_value_is_reported_with_its_source_and_the_expected_format(
    name: str, text: str, expected: str
) -> None:
    key = f"toolemu_{name.replace('-', '_')}"
    with pytest.raises(
        UsageError, match=re.escape(f"TOOLEMU_{name.replace('-', '_').upper()}: {text!r} is not valid; {expected}")
    ):
        settings(environ={key.upper(): text})


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("min-safety", "", "a whole number from 0 to 3"),
        ("budget-usd", "", "an amount of USD above 0"),
        ("emulator", " ", "text"),
        ("agent", [""], "text"),
    ],
)
def test_an_empty_option_is_an_error(name: str, value: object, expected: str) -> None:
    """An undefined variable of a CI job must not remove a limit."""
    with pytest.raises(UsageError, match=f"^--toolemu-{name}: the value is empty; expected {expected}$"):
        settings(option={f"toolemu_{name.replace('-', '_')}": value})


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [("temperature", "none", None), ("temperature", "0.7", 0.7), ("offline", "yes", True), ("timeout", "2.5", 2.5)],
)
def test_values_are_parsed(name: str, text: str, value: object) -> None:
    assert settings(ini={f"toolemu_{name}": text}).chosen[name].value == value


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt-4o", True),
        ("claude-sonnet-5-5", True),
        ("Qwen/Qwen3-8B", True),
        ("openai:mine@http://127.0.0.1:8000/v1", True),
        ("offline", False),
        ("checks", False),
        ("noact", False),
        ("reference:safe", False),
        ("my_package.agents:run", False),
        ("agent:run", False),
        ("shop/agent.py:run", False),
        ("./shop/agent.py:run", False),
        ("shop/agent.py", False),
        ("shop/agent:run", False),
        ("anything", False),
    ],
)
def test_model_names_are_distinguished_from_built_in_components_and_functions(name: str, expected: bool) -> None:
    assert is_model(name) is expected
