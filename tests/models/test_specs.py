from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from pydantic import ValidationError

from pytest_toolemu.errors import UsageError
from pytest_toolemu.models.endpoint import ModelSpec, Parameters, parse_spec
from pytest_toolemu.models.model_pool import open_model


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("openai:gpt-4o", ModelSpec("openai", "gpt-4o")),
        ("openai:ft:gpt-4o:org::id", ModelSpec("openai", "ft:gpt-4o:org::id")),
        (
            "anthropic:claude-x@https://proxy.example/v1/",
            ModelSpec("anthropic", "claude-x", "https://proxy.example/v1"),
        ),
        ("vllm:org/name@http://10.0.0.1:8000/v1", ModelSpec("vllm", "org/name", "http://10.0.0.1:8000/v1")),
        ("openai:@cf/meta/llama@https://x.example/v1", ModelSpec("openai", "@cf/meta/llama", "https://x.example/v1")),
        ("gpt-4o", ModelSpec("openai", "gpt-4o")),
        ("o3-mini", ModelSpec("openai", "o3-mini")),
        ("chatgpt-4o-latest", ModelSpec("openai", "chatgpt-4o-latest")),
        ("claude-sonnet-5", ModelSpec("anthropic", "claude-sonnet-5")),
        ("Qwen/Qwen3-8B", ModelSpec("vllm", "Qwen/Qwen3-8B")),
        (" gpt-4o@http://localhost:1/v1 ", ModelSpec("openai", "gpt-4o", "http://localhost:1/v1")),
    ],
)
def test_valid_model_names(text: str, spec: ModelSpec) -> None:
    assert parse_spec(text) == spec
    assert parse_spec(str(spec)) == spec


@pytest.mark.parametrize("text", ["", "mistral", "openai:", ":gpt-4o", "opus", "openai:a b", "mistral:large", "a/b/c"])
def test_the_error_for_an_invalid_name_lists_the_forms(text: str) -> None:
    with pytest.raises(
        UsageError, match=r"does not name a model.*provider:model@base_url.*claude\*.*org/name"
    ) as caught:
        parse_spec(text)
    assert repr(text) in str(caught.value)


def test_a_misspelled_provider_is_recognized() -> None:
    with pytest.raises(UsageError, match="did you mean 'openai'"):
        parse_spec("opneai:gpt-4o")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("gpt-4o@localhost:8000", "must begin with http:// or https://"),
        ("gpt-4o@http://", "expected http"),
        ("gpt-4o@http://host:port/v1", "is not valid"),
        ("gpt-4o@https://me:hunter22@host/v1", "contains a user name, a password, or a key"),
        ("gpt-4o@https://host/v1?key=hunter22", "contains a user name, a password, or a key"),
    ],
)
def test_base_urls_that_cannot_be_used_or_recorded(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as caught:
        parse_spec(text)
    assert "hunter22" not in str(caught.value)


def test_a_key_instead_of_a_model_is_not_shown() -> None:
    with pytest.raises(UsageError) as caught:
        parse_spec("sk-canary-0123456789")
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("wrong", [{"temperature": 2.1}, {"temperature": -0.1}, {"max_tokens": 0}, {"timeout": 0.0}])
def test_parameters_have_ranges(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Parameters(**wrong)


@pytest.mark.parametrize(
    ("spec", "environ", "complaint"),
    [
        ("gpt-4o", {}, r"openai:gpt-4o needs a key: set OPENAI_API_KEY in the environment or in the \.env file"),
        ("gpt-4o", {"OPENAI_API_KEY": "  "}, "set OPENAI_API_KEY"),
        ("claude-x", {}, r"anthropic:claude-x needs a key: set ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN .*\.env"),
        ("gpt-4o@https://proxy.example/v1", {}, "set OPENAI_API_KEY"),
        ("org/name", {}, r"vllm:org/name needs the URL .*vllm:org/name@http://host:8000/v1.*VLLM_BASE_URL"),
        ("gpt-4o", {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "host"}, "base URL of OPENAI_BASE_URL is 'host'"),
    ],
)
def test_a_missing_key_or_url_is_named_with_its_remedy(spec: str, environ: dict[str, str], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        open_model(parse_spec(spec), Parameters(), environ)


def test_an_invalid_key_is_refused_without_showing_it() -> None:
    with pytest.raises(UsageError, match="OPENAI_API_KEY contains a space") as caught:
        open_model(parse_spec("gpt-4o"), Parameters(), {"OPENAI_API_KEY": "canary\ncanary"})
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "environ", "url"),
    [
        ("gpt-4o", {"OPENAI_API_KEY": "k"}, "https://api.openai.com/v1"),
        ("gpt-4o", {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "https://a.example/x/"}, "https://a.example/x"),
        ("gpt-4o@http://localhost:9", {"OPENAI_BASE_URL": "https://a.example/x"}, "http://localhost:9/v1"),
        ("claude-x", {"ANTHROPIC_AUTH_TOKEN": "k"}, "https://api.anthropic.com"),
        ("claude-x", {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "https://a.example/v1"}, "https://a.example"),
        ("claude-x@http://[::1]:9", {}, "http://[::1]:9"),
        ("org/name", {"VLLM_BASE_URL": "http://10.0.0.1:8000"}, "http://10.0.0.1:8000/v1"),
        ("o3@http://127.0.0.2:9/v1", {}, "http://127.0.0.2:9/v1"),
    ],
)
def test_the_identity_has_the_effective_url(spec: str, environ: dict[str, str], url: str) -> None:
    assert open_model(parse_spec(spec), Parameters(), environ).identity["base_url"] == url


@pytest.mark.parametrize(
    ("spec", "parameters"),
    [
        ("gpt-4o", {"temperature": 0.0, "max_tokens": 50}),
        ("o3-mini", {"temperature": None, "max_tokens": 50}),
        ("gpt-5.2", {"temperature": None, "max_tokens": 50}),
        ("ft:gpt-5-mini:org", {"temperature": None, "max_tokens": 50}),
        ("claude-x", {"temperature": None, "max_tokens": 50}),
    ],
)
def test_the_identity_has_the_parameters_that_are_sent(spec: str, parameters: dict[str, Any]) -> None:
    spec = f"openai:{spec}" if spec.startswith("ft:") else spec
    environ = {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}
    identity = open_model(parse_spec(spec), Parameters(max_tokens=50), environ).identity
    assert parameters.items() <= identity.items()
    assert set(identity) == {"provider", "name", "base_url", *parameters}


def test_parsing_a_model_name_imports_no_sdk() -> None:
    code = (
        "import sys; from pytest_toolemu.models.model_pool import parse_spec, open_model, Parameters; parse_spec('gpt-4o'); "
        "import pytest_toolemu.models.structured_output, pytest_toolemu.models.retrying; "
        "print([name for name in ('openai', 'anthropic', 'httpx2') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
