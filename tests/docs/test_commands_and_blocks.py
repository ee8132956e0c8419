"""Every command and every code block in the docs works."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from pytest_toolemu.cli import app
from pytest_toolemu.settings.option_table import OPTIONS

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        for indent, block_language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
            if block_language == language:
                yield page, re.sub(f"^{indent}", "", text, flags=re.MULTILINE)


def commands() -> Iterator[tuple[Path, list[str]]]:
    for page, text in blocks("console"):
        joined = text.replace("\\\n", " ")
        for line in joined.splitlines():
            if line.startswith("$ "):
                for part in re.split(r" && ", line[2:]):
                    words = shlex.split(part, comments=True)
                    yield page, [*itertools.dropwhile(lambda word: re.match(r"[A-Z_]+=", word), words)]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_the_docs_have_commands() -> None:
    assert len(list(commands())) > 30


@pytest.mark.parametrize("words", [pytest.param(w, id=f"{name(p)}: {shlex.join(w)}"[:100]) for p, w in commands()])
def test_a_command_has_options_that_exist(words: list[str]) -> None:
    named_options = {word.partition("=")[0] for word in words if word.startswith("--toolemu-")}
    assert named_options <= {option.option for option in OPTIONS}
    if words[0] != "toolemu":
        return
    command: Any = typer.main.get_command(app)
    arguments = words[1:]
    while hasattr(command, "commands"):
        assert arguments[0] in command.commands, f"toolemu has no command {arguments[0]!r}"
        command = command.commands[arguments.pop(0)]
    command_options = {text for parameter in command.params for text in (*parameter.opts, *parameter.secondary_opts)}
    flags = {
        word.partition("=")[0]
        for word in arguments[: arguments.index("--") if "--" in arguments else None]
        if word.startswith("--")
    }
    assert flags <= command_options


@pytest.mark.parametrize(
    ("page", "text"), [pytest.param(p, t, id=f"{name(p)}-{i}") for i, (p, t) in enumerate(blocks("python"))]
)
def test_python_blocks_compile(page: Path, text: str) -> None:
    compile(text, name(page), "exec")


@pytest.mark.parametrize("text", [pytest.param(t, id=f"{name(p)}-{i}") for i, (p, t) in enumerate(blocks("yaml"))])
def test_yaml_blocks_are_valid_yaml(text: str) -> None:
    yaml.safe_load(text)


PATH = re.compile(r"`((?:[a-z_]+/)+[a-z_]*(?:\.py|\.yaml)?)`")
PROJECT = ("pytest_toolemu", "benchmarks", "tests", "docs", "cases", "examples")


@pytest.mark.parametrize("page", [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"], ids=name)
def test_paths_named_in_the_docs_exist(page: Path) -> None:
    """Paths start at the repository, or at the package for its own parts."""
    package = ROOT / "pytest_toolemu"
    parts = {part.name for part in package.iterdir() if part.is_dir()}
    paths = [Path(text) for text in PATH.findall(page.read_text(encoding="utf-8"))]
    ours = [path for path in paths if path.parts[0] in {*PROJECT, *parts} and not path.parts[-1].startswith("README")]
    assert [str(path) for path in ours if not ((ROOT / path).exists() or (package / path).exists())] == []
