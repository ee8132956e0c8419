"""The package's layout: no import cycle, few entries at the top, and names that occur once."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp

import pytest_toolemu

PACKAGE = Path(pytest_toolemu.__file__).parent
MAX_TOP_LEVEL = 18
MAX_MODULES_IN_A_FOLDER = 22


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


def test_the_package_has_few_entries_at_its_top_level() -> None:
    entries = {
        path.name
        for path in PACKAGE.iterdir()
        if path.name not in ("__init__.py", "__pycache__", "py.typed") and not path.name.startswith(".")
    }
    assert len(entries) <= MAX_TOP_LEVEL, sorted(entries)


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


def test_no_folder_has_more_modules_than_a_reader_can_scan() -> None:
    counts = Counter(path.parent.as_posix() for path in modules() if path.name != "__init__.py")
    assert {folder: count for folder, count in counts.items() if count > MAX_MODULES_IN_A_FOLDER} == {}


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
