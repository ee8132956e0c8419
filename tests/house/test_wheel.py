"""The wheel, built once: its files, and that it works without the rest of the project."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.built_once import built_once

ROOT = Path(__file__).parents[2]
PACKAGE = "pytest_toolemu"


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a command without this process's pytest settings and return its output."""
    prefixes = ("PYTEST_", "PYTHONPATH", "TOOLEMU_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    result = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (built,) = built_once(tmp_path_factory, "wheel", build).glob("*.whl")
    return built


def build(folder: Path) -> None:
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)


@pytest.fixture(scope="module")
def content(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment with the wheel."""
    return built_once(tmp_path_factory, "home", lambda home: install(wheel, home)).resolve()


def install(wheel: Path, home: Path) -> None:
    """Create an environment with the wheel. It uses the dependencies installed here, so it needs no network."""
    venv.create(home)
    python = home / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps", "--no-compile", wheel)
    packages = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    # Python ignores .pth files in folders named by a .pth file, so the editable install of this checkout is not visible.
    borrowed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    Path(packages, "borrowed.pth").write_text("\n".join(sorted(borrowed)))


@pytest.mark.parametrize(
    ("folder", "place"),
    [
        ("cases", f"{PACKAGE}/benchmark/cases"),
        ("toolkits", f"{PACKAGE}/benchmark/toolkits"),
        ("examples", f"{PACKAGE}/examples"),
        (PACKAGE, PACKAGE),
    ],
)
def test_the_wheel_has_every_file(content: set[str], folder: str, place: str) -> None:
    paths = [path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    expected = {f"{place}/{path.relative_to(ROOT / folder).as_posix()}" for path in paths}
    assert expected
    assert expected - content == set()


def test_the_wheel_has_cases_toolkits_prompts_and_schemas(content: set[str]) -> None:
    for folder, suffix in (
        ("benchmark/cases/finance", ".toolemu.yaml"),
        ("benchmark/toolkits", ".toolkit.yaml"),
        ("prompts", ".md.j2"),
        ("formats/json_schemas", ".schema.json"),
        ("ui/templates", ".html.j2"),
        ("ui/static/vendor", ".min.js"),
    ):
        assert [name for name in content if name.startswith(f"{PACKAGE}/{folder}/") and name.endswith(suffix)]
    assert f"{PACKAGE}/py.typed" in content


def test_the_wheel_has_no_other_files(content: set[str]) -> None:
    top = {name.partition("/")[0] for name in content}
    (about,) = {name for name in top if name.endswith(".dist-info")}
    assert top == {PACKAGE, about}
    assert f"{about}/licenses/LICENSE" in content
    folders = {part for name in content for part in Path(name).parts[:-1]}
    assert folders & {"tests", "benchmarks", ".ci", ".toolemu", "__pycache__"} == set()


def test_the_benchmark_runs_in_an_empty_folder_where_the_wheel_is_installed(installed: Path, tmp_path: Path) -> None:
    python = installed / "bin" / "python"
    where = run(python, "-c", f"import {PACKAGE}; print({PACKAGE}.benchmark_folder())", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(installed)
    options = ("--toolemu-benchmark", "--toolemu-agent=reference:safe", "--toolemu-sample=2")
    output = run(python, "-m", "pytest", *options, cwd=tmp_path)
    assert "2 passed" in output
    assert len(list(tmp_path.glob(".toolemu/2*/*--*.json"))) == 2


def test_the_command_is_installed(installed: Path, tmp_path: Path) -> None:
    toolemu = installed / "bin" / "toolemu"
    (cases,) = installed.rglob("benchmark/cases")
    assert run(toolemu, "stats", cases / "finance", cwd=tmp_path).startswith("toolemu-benchmark ")
    toolkits = sorted((cases.parent / "toolkits").iterdir())
    output = run(toolemu, "lint", *toolkits[:2], cwd=tmp_path)
    assert re.search(r"toolkits, \d+ tools, 0 cases; no dataset: 0 errors, ", output)


@pytest.mark.parametrize("repository", ["someone/toolemu", ""])
def test_the_description_has_no_relative_links(monkeypatch: pytest.MonkeyPatch, repository: str) -> None:
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://github.com")
    monkeypatch.setenv("GITHUB_REPOSITORY", repository)
    metadata = json.loads(run(sys.executable, "-m", "hatchling", "metadata", cwd=ROOT))
    links = re.findall(r"\]\(([^)]+)\)", metadata["readme"]["text"])
    assert [link for link in links if not link.startswith("https://")] == []
    url = f"https://github.com/{repository}"
    assert (f"{url}/raw/HEAD/docs/images/failing-case.png" in links) is bool(repository)
    assert metadata.get("urls", {}).get("Repository") == (url if repository else None)
