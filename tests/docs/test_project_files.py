"""The files that other services read: the workflow, the citation, and the pre-commit hooks."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import pytest_toolemu

ROOT = Path(__file__).parents[2]


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("schema", "name"),
    [("vendor.github-workflows", ".github/workflows/ci.yml"), ("vendor.citation-file-format", "CITATION.cff")],
)
def test_a_file_satisfies_its_published_schema(schema: str, name: str) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(ROOT / name)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


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
