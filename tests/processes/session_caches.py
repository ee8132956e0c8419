"""Caches of what each forked session of pytest would search, or read, with the same result.

The fork server fills them before it forks. A search of thousands of names takes time, and each object that it touches has
its memory copied in the fork.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import importlib.metadata
import itertools
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from unittest import mock

# The distributions whose versions sessions store in their records.
_RECORDED: Final = ("anthropic", "openai", "pytest-toolemu")


def keep_metadata() -> None:
    """Cache the metadata of installed distributions: each session of pytest searches all of them for plugins, twice."""

    class Kept(importlib.metadata.PathDistribution):
        @functools.cached_property
        def entry_points(self) -> Any:
            return super().entry_points

        @functools.cached_property
        def files(self) -> Any:
            return super().files

        @functools.cached_property
        def metadata(self) -> Any:
            return super().metadata

    importlib.metadata.PathDistribution = functools.cache(Kept)  # type: ignore[misc, assignment]
    plugins = []
    for distribution in importlib.metadata.distributions():
        is_plugin = any(entry_point.group == "pytest11" for entry_point in distribution.entry_points)
        if is_plugin or distribution.name in _RECORDED:
            _ = distribution.files, distribution.metadata
        if is_plugin:
            plugins.append(distribution)
    _keep_names_to_rewrite(plugins)


def _keep_names_to_rewrite(plugins: list[importlib.metadata.Distribution]) -> None:
    """Cache which modules of plugins are rewritten, and skip a warning: pytest searches all modules for each name."""
    config: Any = importlib.import_module("_pytest.config")
    rewrite = importlib.import_module("_pytest.assertion.rewrite")
    names_in, kept = config._iter_rewritable_modules, {}
    for plugin in plugins:
        files = tuple(map(str, plugin.files or ()))
        kept[files] = list(names_in(files))

    def kept_names(package_files: Any) -> Any:
        files = tuple(package_files)
        return kept.get(files) or names_in(files)

    def mark_rewrite(hook: Any, *names: str) -> None:
        hook._must_rewrite.update(names)
        hook._marked_for_rewrite_cache.clear()

    config._iter_rewritable_modules = kept_names
    rewrite.AssertionRewritingHook.mark_rewrite = mark_rewrite


def keep_names() -> None:
    """Cache which names of imported modules are hooks or fixtures, and skip a warning for other names.

    Each session of pytest searches the 2,600 names of its plugins for both, which is half of the time of a small session.
    """
    fixtures = importlib.import_module("_pytest.fixtures")
    hooks, fixture_names = {}, {}
    for module in [module for module in sys.modules.values() if type(module) is ModuleType]:
        names = sorted(vars(module))
        hooks[module] = [name for name in names if name.startswith("pytest_")]
        fixture_names[module] = [
            name for name in names if type(vars(module)[name]) is fixtures.FixtureFunctionDefinition
        ]

    def listing(kept: dict[ModuleType, list[str]]) -> Callable[[object], list[str]]:
        return lambda searched: kept[searched] if type(searched) is ModuleType and searched in kept else dir(searched)

    # Both modules search what the built-in function lists.
    vars(importlib.import_module("pluggy._manager"))["dir"] = listing(hooks)
    vars(fixtures)["dir"] = listing(fixture_names)
    if hasattr(fixtures.FixtureManager, "_check_for_wrapped_fixture"):
        fixtures.FixtureManager._check_for_wrapped_fixture = lambda *_: None


def run_session() -> None:
    """Run a session of one case, which imports modules and compiles patterns that only sessions need."""
    (case,) = _benchmark().rglob("june-rent-for-anna.toolemu.yaml")
    options = ("-qq", "-p", "no:xdist", "-p", "no:cacheprovider", "--toolemu-agent=reference:safe")
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        Path(os.devnull).open("w") as nothing,
        contextlib.redirect_stdout(nothing),
        contextlib.redirect_stderr(nothing),
        mock.patch.dict(os.environ, {"PATH": os.environ["PATH"]}, clear=True),
    ):
        importlib.import_module("pytest").main([f"--rootdir={folder}", *options, str(case)])


def keep_default_plugins() -> None:
    """Let the first ``get_config`` of a fork return one in which pytest's own plugins were registered before the fork."""
    config: Any = importlib.import_module("_pytest.config")
    get_config, excluded = config.get_config, ("-p", "no:cacheprovider")
    kept = {arguments: get_config(arguments) for arguments in ((), excluded)}

    def kept_config(args: Any = None, plugins: Any = None, *, prog: str | None = None) -> Any:
        """Fall back to ``get_config`` unless the arguments exclude no other plugin of pytest than the cache."""
        args = tuple(args or ())
        without = {after.removeprefix("no:") for option, after in itertools.pairwise(args) if option == "-p"}
        arguments = excluded if "cacheprovider" in without else ()
        if arguments not in kept or not without.isdisjoint({*config.default_plugins} - {"cacheprovider"}):
            return get_config(args, plugins, prog=prog)
        found = kept.pop(arguments)
        found.invocation_params = config.Config.InvocationParams(args=args, plugins=plugins, dir=Path.cwd())
        found._parser.prog = prog or Path(sys.argv[0]).name
        found.pluginmanager.consider_preparse(args, exclude_only=True)
        return found

    config.get_config = kept_config


def keep_cases() -> None:
    """Let ``load_case`` read each case of the benchmark once, in the fork server for all forks, unless its file changes."""
    from pytest_toolemu.core import case_loading

    load = case_loading.load_case

    @functools.cache
    def kept(path: Path, _modified: int, _size: int) -> Any:
        return load(path)

    def load_case(path: Path) -> Any:
        if not path.is_relative_to(_benchmark()):
            return load(path)
        stat = path.stat()
        return kept(path, stat.st_mtime_ns, stat.st_size)

    case_loading.load_case = load_case


@functools.cache
def _benchmark() -> Path:
    return Path(importlib.import_module("pytest_toolemu.core.toolkit").benchmark_folder() / "cases")


@functools.cache
def read_benchmark() -> None:
    """Read all cases of the benchmark, which takes longer than the rest of most sessions with the benchmark."""
    from pytest_toolemu.core import case, case_loading

    for path in _benchmark().rglob(f"*{case.SUFFIX}"):
        case_loading.load_case(path)
    gc.collect()
    gc.freeze()
