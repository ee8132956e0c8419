"""YAML files as pytest modules, and their cases as ordinary function items.

pytest itself creates the items, from a function object that is passed to its own hook. So fixtures of every scope,
overrides in conftest files, marks, selection, xdist, and other plugins work as they do for any Python test.
"""

from __future__ import annotations

import json
import os
import types
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_toolemu.analysis.run_summary import slices_of
from pytest_toolemu.core.case import SUFFIX, Case, ResolvedCase, case_files
from pytest_toolemu.core.case_loading import load_case, without_repeated
from pytest_toolemu.core.case_vocabulary import RISK_TYPES
from pytest_toolemu.core.run import sha256
from pytest_toolemu.errors import DocumentError, UsageError, WorldError
from pytest_toolemu.formats.text import counted, visible
from pytest_toolemu.plugin.collection.item_agents import agent_configs, agent_title, is_plugin_fixture, label_of, labels
from pytest_toolemu.plugin.execution.worlds import set_case
from pytest_toolemu.plugin.output.reports import PROPERTY, check
from pytest_toolemu.plugin.session import INI_MARKS, REPORTED, RESOLVED_CASE, SESSION, relative_path
from pytest_toolemu.settings.option_table import Settings

if TYPE_CHECKING:
    from pytest_toolemu.core.run import Run
    from pytest_toolemu.sessions.manifest_records import PlannedCase


_FROM_CASES = " (of a toolemu case)"
"""Ends the description of each mark that case files add."""


class CaseFile(pytest.Module):
    """One ``*.toolemu.yaml``. It is a Module, so module-scoped fixtures and ``request.module`` work."""

    resolved_case: ResolvedCase

    @classmethod
    def from_parent(cls, parent: Any, **kwargs: Any) -> CaseFile:
        """Create the node with an empty module of its own; nothing is imported."""
        node: CaseFile = super().from_parent(parent, **kwargs)
        module = types.ModuleType(node.path.name.replace(".", "_"))
        module.__file__ = str(node.path)
        node.obj = module
        return node

    def istestfunction(self, obj: object, name: str) -> bool:
        """Return whether this is the case, the only test of this module, whatever ``python_functions`` says."""
        return name == self.resolved_case.case.id and isinstance(obj, types.FunctionType)

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Return the case's items; a file that is wrong is one collection error with the location."""
        try:
            self.resolved_case = load_case(self.path)
        except DocumentError as document_error:
            error = without_repeated(document_error, self.config.stash.setdefault(REPORTED, set()))
            # Relative to the rootdir: short enough to read, and editors and CI annotations can link it.
            raise self.CollectError(visible(str(error)).replace(f"{self.config.rootpath}{os.sep}", "")) from None
        case = self.resolved_case.case
        if problem := conflict(self.config, case.id, self.path):
            raise self.CollectError(visible(problem))
        function = _test_function(case, self.obj.__name__)
        for mark in self._marks(case):
            function = mark(function)
        setattr(self.obj, case.id, function)
        slices = slices_of(case, self.resolved_case.toolkits)
        items = self.ihook.pytest_pycollect_makeitem(collector=self, name=case.id, obj=function) or ()
        for item in items:
            try:
                set_case(item, self.resolved_case)
            except (UsageError, WorldError) as error:
                raise self.CollectError(visible(str(error))) from None
            item.add_marker("toolemu")  # for '-m toolemu', like Python tests over cases
            location = (self.path, 0, item.name)
            item.reportinfo = lambda location=location: location
            # Set from the start, so that a case whose setup fails still counts in the summary.
            summary = {"case": case.id, "agent": agent_title(item, "custom agent"), "slices": slices}
            if case.variant_of:
                summary["variant_of"] = case.variant_of
            item.user_properties.append((PROPERTY, json.dumps(summary)))
            yield item

    def _marks(self, case: Case) -> list[pytest.MarkDecorator]:
        """Return toolkits, risk types, severity, split, and tags as marks for ``-m``; register those that are new."""
        descriptions: dict[str, str] = dict.fromkeys(case.toolkits, "cases with this toolkit")
        descriptions |= {kind: RISK_TYPES[kind] for kind in case.risks.types}
        descriptions |= {case.severity: "severity of the worst outcome", case.split: "part of the benchmark"}
        descriptions |= dict.fromkeys(case.tags, "a tag of cases")
        if reserved := sorted(set(descriptions) & reserved_marks(self.config)):
            # For example, the tag xfail would let an unsafe agent pass.
            raise self.CollectError(
                f"{self.nodeid}: {reserved[0]!r} is a mark that already has another meaning; rename it in the case"
            )
        for name, text in descriptions.items():
            line = f"{name}: {text}{_FROM_CASES}"
            if line not in self.config.getini("markers"):
                self.config.addinivalue_line("markers", line)
        return [getattr(pytest.mark, name) for name in descriptions]


def _test_function(case: Case, module: str) -> types.FunctionType:
    """Return a new function object for each case, because marks are attributes of functions."""

    def run_case(toolemu_run: Run, request: pytest.FixtureRequest) -> None:
        check(toolemu_run, request.node)

    function = types.FunctionType(
        run_case.__code__, run_case.__globals__, case.id, run_case.__defaults__, run_case.__closure__
    )
    function.__module__ = module
    function.__doc__ = visible(case.title)
    return function


def reserved_marks(config: pytest.Config) -> set[str]:
    """Return the marks that have a meaning for pytest or a plugin: all except the project's own, from its ini file."""
    lines = [
        line
        for line in config.getini("markers")
        if line not in config.stash[INI_MARKS] and not line.endswith(_FROM_CASES)
    ]
    return {line.partition(":")[0].partition("(")[0].strip() for line in lines}


def is_left_out(path: Path, parent: pytest.Collector) -> bool:
    """Return whether a case file is a draft that the command line does not name; remember it for the notice."""
    # Loads the records of cases, which sessions without cases must not.
    from pytest_toolemu.core.case import is_draft

    if not is_draft(path) or parent.session.isinitpath(path):
        return False
    parent.config.stash[SESSION].drafts.append(path)
    return True


def draft_notice(drafts: Sequence[Path]) -> str:
    """Return which drafts were not collected."""
    first = relative_path(drafts[0])
    verb = "was" if len(drafts) == 1 else "were"
    return (
        f"{counted(len(drafts), 'draft')} {verb} not collected, such as {first}; accept or reject drafts with "
        "'toolemu review', or name a file to run it"
    )


def conflict(config: pytest.Config, case_id: str, path: Path) -> str | None:
    """Register the file of a case; return the error message if another file of this session has the same ID."""
    first = config.stash[SESSION].case_files.setdefault(case_id, path)
    if first == path:
        return None
    return (
        f"two cases have the ID {case_id!r}: {relative_path(first)} and {relative_path(path)}; results are identified "
        "only by ID, so rename one of the files or run them in separate sessions"
    )


def parametrize(metafunc: pytest.Metafunc, settings: Settings) -> None:
    """Multiply a test by the cases that its mark names, by the configured agents, and by trials.

    It is not multiplied by agents if a fixture of the project provides the agent.
    """
    mark = metafunc.definition.get_closest_marker("toolemu")
    if mark is not None and (mark.args or set(mark.kwargs) != {"cases"}):
        pytest.fail("@pytest.mark.toolemu takes one argument by name: cases='PATH'", pytrace=False)
    if mark is not None:
        cases = _load_cases(metafunc, str(mark.kwargs["cases"]))
        metafunc.parametrize("toolemu_case", cases, indirect=True, ids=[case.case.id for case in cases])
    configs = agent_configs(settings)
    if "toolemu_agent" in metafunc.fixturenames and configs and is_plugin_fixture(metafunc.definition, "toolemu_agent"):
        metafunc.parametrize("toolemu_variant", configs, indirect=True, ids=list(labels(configs).values()))
    if "toolemu_trial" in metafunc.fixturenames and settings.trials > 1:
        trials = range(1, settings.trials + 1)
        metafunc.parametrize("toolemu_trial", trials, indirect=True, ids=[f"trial{trial}" for trial in trials])


def _load_cases(metafunc: pytest.Metafunc, path: str) -> list[ResolvedCase]:
    """Load all cases below a path, which is relative to the rootdir, else to the test's own folder."""
    roots = (metafunc.config.rootpath / path, Path(str(metafunc.module.__file__)).parent / path)
    root = next((root for root in roots if root.exists()), None)
    files = case_files(root) if root is not None else []
    if not files:
        pytest.fail(f"{metafunc.definition.nodeid}: no {SUFFIX} file at {path!r}; looked in {roots[0]}", pytrace=False)
    try:
        cases = [load_case(file) for file in files]
    except DocumentError as error:
        pytest.fail(str(error), pytrace=False)
    for case in cases:
        if problem := conflict(metafunc.config, case.case.id, case.path):
            pytest.fail(visible(problem), pytrace=False)
    return cases


def case_plan(items: Iterable[pytest.Item]) -> dict[str, PlannedCase]:
    """Return the cases of these items with their slices and items. Python tests over cases may leave no record."""
    from pytest_toolemu.sessions.manifest_records import PlannedCase, PlannedItem

    cases: dict[str, ResolvedCase] = {}
    items_of: dict[str, dict[str, PlannedItem]] = {}
    for item in items:
        if isinstance(item.parent, CaseFile):
            resolved = item.stash[RESOLVED_CASE]
            cases.setdefault(resolved.case.id, resolved)
            planned = PlannedItem(agent=agent_title(item, "")) if label_of(item) else PlannedItem()
            items_of.setdefault(resolved.case.id, {})[item.nodeid] = planned
    return {
        name: PlannedCase(
            slices=slices_of(resolved.case, resolved.toolkits),
            variant_of=resolved.case.variant_of or "",
            items=items_of[name],
        )
        for name, resolved in cases.items()
    }


def drawn_position(case_id: str, seed: int) -> str:
    """Return what a random order of cases is sorted by."""
    return sha256(f"order {seed} {case_id}")


def shuffle(items: list[pytest.Item], seed: int) -> None:
    """Order the cases at random, all trials of one together. The order depends on the seed and the cases' IDs."""
    cases = [item for item in items if RESOLVED_CASE in item.stash]
    cases.sort(key=lambda item: drawn_position(item.stash[RESOLVED_CASE].case.id, seed))
    items[:] = [item for item in items if RESOLVED_CASE not in item.stash] + cases
