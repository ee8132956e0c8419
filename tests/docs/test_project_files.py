"""The files that other services read: the workflow, the citation, and the pre-commit hooks."""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from check_jsonschema import main as check_jsonschema  # type: ignore[import-untyped]
from click.testing import CliRunner
from packaging.requirements import Requirement

import pytest_toolemu

ROOT = Path(__file__).parents[2]
WORKFLOWS = [
    ROOT / ".github/workflows/ci.yml",
    ROOT / ".github/workflows/release.yml",
    ROOT / "examples/starter/agent-safety.yml",
    *sorted((ROOT / "examples/github-actions").glob("*.yml")),
]


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("schema", "paths"),
    [
        ("vendor.github-workflows", WORKFLOWS),
        ("vendor.dependabot", [ROOT / ".github/dependabot.yml"]),
        ("vendor.citation-file-format", [ROOT / "CITATION.cff"]),
    ],
)
def test_files_satisfy_their_published_schema(schema: str, paths: list[Path]) -> None:
    result = CliRunner().invoke(check_jsonschema, ["--builtin-schema", schema, *map(str, paths)])
    assert result.exit_code == 0, result.output


def test_each_action_runs_at_one_commit() -> None:
    """Dependabot updates the project's own workflow; the examples follow."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in WORKFLOWS)
    pins = set(re.findall(r"uses: (\S+)@([0-9a-f]{40}) # v\d+\.\d+\.\d+$", text, re.MULTILINE))
    assert text.count("uses: ") == len(re.findall(r"uses: \S+@[0-9a-f]{40} # v", text))
    assert len(pins) == len({action for action, _ in pins}) == 9


def test_ci_installs_versions_that_the_project_allows() -> None:
    lines = (ROOT / ".ci/constraints.txt").read_text(encoding="utf-8").splitlines()
    versions = dict(line.split("==") for line in lines if not line.startswith("#"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = (line for name, lines in project["optional-dependencies"].items() if name != "vllm" for line in lines)
    requirements = [Requirement(line) for line in (*project["dependencies"], *extras)]
    pinned = {each.name.lower(): each for each in requirements if each.name != project["name"]}
    assert [name for name, each in pinned.items() if not each.specifier.contains(versions[name])] == []


def test_the_citation_names_the_version_of_the_package() -> None:
    assert read("CITATION.cff")["version"] == pytest_toolemu.__version__


def test_the_commands_of_the_pre_commit_hooks_exist() -> None:
    hooks = [hook for repository in read(".pre-commit-config.yaml")["repos"] for hook in repository["hooks"]]
    assert {hook["language"] for hook in hooks} == {"system"}
    bin_folder = str(Path(sys.executable).parent)
    assert [hook["id"] for hook in hooks if not shutil.which(hook["entry"].split()[0], path=bin_folder)] == []


def test_images_are_small_and_each_is_on_a_page() -> None:
    images = sorted((ROOT / "docs" / "images").iterdir())
    assert {"failing-case.png", "report.png"} <= {image.name for image in images}
    assert all(image.stat().st_size < 300_000 for image in images)
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    assert [image.name for image in images if f"images/{image.name})" not in shown] == []
