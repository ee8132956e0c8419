"""A missing or outdated SDK is one sentence with the pip command, on every route that opens a model."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from pytest_toolemu.errors import UsageError
from pytest_toolemu.models.endpoint import Parameters, parse_spec
from pytest_toolemu.models.model_pool import open_model
from pytest_toolemu.models.sdk_versions import require_sdk
from tests.calibration.conftest import Desk, _prepared, desk, first  # noqa: F401 - fixtures
from tests.plugin.conftest import Project, alone  # noqa: F401 - a fixture

KEYS = {"OPENAI_API_KEY": "sk-test-0123456789", "ANTHROPIC_API_KEY": "sk-test-0123456789"}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a folder at the head of the import path, whose metadata hides that of the installed packages."""
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
    return folder


def claim(folder: Path, name: str, version: str) -> None:
    """Make a package look installed in this version."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def refusal(name: str, version: str, extra: str, spec: str) -> str:
    bounds = {"openai": "openai<4,>=3.52", "anthropic": "anthropic<3,>=2.11", "httpx2": "httpx2<3,>=2.12"}[name]
    return f"{spec} needs {bounds}, but {name} {version} is installed: pip install 'pytest-toolemu[{extra}]'"


@pytest.mark.parametrize(
    ("spec", "name", "version", "extra"),
    [
        ("openai:m@http://127.0.0.1:9/v1", "openai", "1.60.0", "openai"),
        ("openai:m@http://127.0.0.1:9/v1", "openai", "4.0.0", "openai"),
        ("openai:m@http://127.0.0.1:9/v1", "httpx2", "2.1.0", "openai"),
        ("vllm:m@http://127.0.0.1:9/v1", "openai", "1.60.0", "openai"),
        ("anthropic:m@http://127.0.0.1:9", "anthropic", "0.49.0", "anthropic"),
    ],
)
def test_an_unsupported_version_is_named_with_the_supported_ones(
    installed: Path, spec: str, name: str, version: str, extra: str
) -> None:
    claim(installed, name, version)
    with pytest.raises(UsageError) as caught:
        open_model(parse_spec(spec), Parameters(), {})
    assert str(caught.value) == refusal(name, version, extra, spec)


@pytest.mark.parametrize(("missing", "extra"), [("openai", "openai"), ("httpx2", "openai"), ("anthropic", "anthropic")])
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    missing: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed_version = metadata.version

    def version(name: str) -> str:
        if name == missing:
            raise metadata.PackageNotFoundError(name)
        return installed_version(name)

    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(UsageError) as caught:
        require_sdk(extra, f"{extra}:m")
    assert str(caught.value) == f"{extra}:m needs the {missing} package: pip install 'pytest-toolemu[{extra}]'"


@pytest.mark.parametrize("estimate", [[], ["--toolemu-estimate"]], ids=["run", "estimate"])
@pytest.mark.new_interpreter
def test_pytest_stops_with_one_sentence(alone: Project, installed: Path, estimate: list[str]) -> None:  # noqa: F811
    claim(installed, "openai", "1.60.0")
    alone.case("anna")
    spec = "openai:gpt-4o@http://127.0.0.1:9/v1"
    result = alone.run(f"--toolemu-agent={spec}", *estimate)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    text = result.stdout.str() + result.stderr.str()
    assert f"ERROR: toolemu: {refusal('openai', '1.60.0', 'openai', spec)}" in text
    assert "INTERNALERROR" not in text
    assert "Traceback" not in text


@pytest.mark.parametrize("command", ["judge", "calibrate"])
def test_commands_stop_with_one_sentence(desk: Desk, first: str, installed: Path, command: str) -> None:  # noqa: F811
    sessions = {"judge": [first], "calibrate": []}[command]
    claim(installed, "anthropic", "0.49.0")
    result = subprocess.run(
        [sys.executable, "-m", "pytest_toolemu.cli", command, *sessions, "--evaluator=claude-sonnet-5-5"],
        capture_output=True,
        text=True,
        check=False,
        cwd=desk.path,
        env={**os.environ, **KEYS},
    )
    assert (result.returncode, result.stderr.count("\n")) == (2, 1), result.stderr
    assert refusal("anthropic", "0.49.0", "anthropic", "anthropic:claude-sonnet-5-5") in result.stderr
