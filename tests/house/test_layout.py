"""The package's layout: its size, no import cycle, and names that occur once."""

from __future__ import annotations

import ast
import contextlib
import io
import subprocess
import sys
import tokenize
import tomllib
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import grimp
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import pytest_toolemu

PACKAGE = Path(pytest_toolemu.__file__).parent
# Ratchets: lower them when the package shrinks, and never raise them. New code replaces old code.
MAX_CODE_LINES = 39_950
MAX_MODULES = 253
_LAYOUT = {
    tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT, tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip
_BLOCKS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def cycle_in(dependencies: dict[str, set[str]]) -> list[str]:
    """Return the modules of one import cycle; none if there is no cycle."""
    try:
        TopologicalSorter(dependencies).prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1]
        return cycle
    return []


def repeated(names: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: places for name, places in names.items() if len(places) > 1}


def modules() -> list[Path]:
    return sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def test_imports_have_no_cycle_even_inside_functions_and_for_type_checking() -> None:
    graph = grimp.build_graph("pytest_toolemu", cache_dir=None)
    dependencies = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert cycle_in(dependencies) == []


def test_a_cycle_is_named() -> None:
    assert set(cycle_in({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"}


def with_requirements(lines: list[str]) -> set[str]:
    """Return the names of the required packages, and of those that they require."""
    names: set[str] = set()
    while lines:
        requirement = Requirement(lines.pop())
        name = canonicalize_name(requirement.name)
        if name not in names and "extra" not in str(requirement.marker):
            names.add(name)
            with contextlib.suppress(PackageNotFoundError):
                lines += requires(name) or []
    return names


def test_commands_and_plugin_need_only_the_declared_dependencies() -> None:
    """What only this environment has, such as the requirements of extras, is missing in the environment of a user."""
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = with_requirements(project["dependencies"])
    missing = [
        name
        for name, distributions in packages_distributions().items()
        if declared.isdisjoint(map(canonicalize_name, distributions)) and name != "pytest_toolemu"
    ]
    code = f"import sys; sys.modules.update(dict.fromkeys({missing})); import pytest_toolemu.plugin, pytest_toolemu.cli.__main__"
    subprocess.run([sys.executable, "-c", code, "--help"], check=True)


def code_lines(text: str) -> int:
    """Count the lines that hold code: no blank lines, comments, and docstrings."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, _BLOCKS) and ast.get_docstring(node, clean=False) is not None:
            lines.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(lines)


def test_code_lines_are_counted_without_comments_and_docstrings() -> None:
    assert code_lines('"""A module."""\n\n# why\nx = """a\nb"""\n\ndef f():\n    """Return 1."""\n    return 1\n') == 4


def test_the_package_does_not_grow() -> None:
    sizes = [code_lines((PACKAGE / path).read_text(encoding="utf-8")) for path in modules()]
    assert (sum(sizes) <= MAX_CODE_LINES, len(sizes) <= MAX_MODULES) == (True, True), (sum(sizes), len(sizes))


def test_no_text_stands_alone_but_a_docstring() -> None:
    """The second half of a text without parentheses around both is a statement of its own, and is lost."""
    lost = []
    for path in modules():
        text = (PACKAGE / path).read_text(encoding="utf-8")
        lines = text.splitlines()
        lost += [
            f"{path}:{statement.lineno}"
            for statement in ast.walk(ast.parse(text))
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant | ast.JoinedStr)
            and '"""' not in (line := lines[statement.lineno - 1]) and not line.endswith("...")
        ]  # fmt: skip
    assert lost == []


def test_file_names_are_unique() -> None:
    places = defaultdict(list)
    for path in modules():
        if path.name not in ("__init__.py", "__main__.py"):
            places[path.name].append(path.as_posix())
    assert repeated(places) == {}


def test_class_names_are_unique() -> None:
    places = defaultdict(list)
    for path in modules():
        for node in ast.walk(ast.parse((PACKAGE / path).read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path.as_posix())
    assert repeated(places) == {}
