"""YAML files as pytest modules, their cases as ordinary function items.

pytest itself makes the items (from a function object handed to its own hook), so fixtures of every scope, conftest
overrides, marks, selection, xdist and other plugins work as they do for any Python test.
"""

from __future__ import annotations

import json
import os
import re
import types
from collections.abc import Iterable
from typing import Any

import pytest

from pytest_toolemu.analysis.run_row import slice_keys
from pytest_toolemu.core.case import RISK_TYPES, Case, ResolvedCase
from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.core.run import Run
from pytest_toolemu.errors import DocumentError
from pytest_toolemu.formats.redaction import plain
from pytest_toolemu.plugin.collection.unique_ids import conflict
from pytest_toolemu.plugin.collection.variants import label_of
from pytest_toolemu.plugin.output.failure_text import check
from pytest_toolemu.plugin.output.row_property import PROPERTY
from pytest_toolemu.plugin.session import ITEM, MARKS

_OURS = " (of a toolemu case)"


class CaseFile(pytest.Module):
    """One ``*.toolemu.yaml``. A Module, so that module-scoped fixtures and ``request.module`` mean something."""

    resolved_case: ResolvedCase

    @classmethod
    def from_parent(cls, parent: Any, **kwargs: Any) -> CaseFile:
        """Make the node with an empty module of its own: nothing is imported."""
        node: CaseFile = super().from_parent(parent, **kwargs)
        module = types.ModuleType(node.path.name.replace(".", "_"))
        module.__file__ = str(node.path)
        node.obj = module
        return node

    def istestfunction(self, obj: object, name: str) -> bool:
        """The case is the one test of this module, whatever ``python_functions`` says."""
        return name == self.resolved_case.case.id and isinstance(obj, types.FunctionType)

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """The case's items; a file that is wrong is one collection error that says where."""
        try:
            self.resolved_case = load_case(self.path)
        except DocumentError as error:
            # As typed from the rootdir: short enough to read, and what editors and CI annotations link.
            raise self.CollectError(plain(str(error)).replace(f"{self.config.rootpath}{os.sep}", "")) from None
        case = self.resolved_case.case
        if problem := conflict(self.config, case.id, self.path):
            raise self.CollectError(plain(problem))
        function = _test_function(case, self.obj.__name__)
        for mark in self._marks(case):
            function = mark(function)
        setattr(self.obj, case.id, function)
        slices = slice_keys(case, self.resolved_case.toolkits)
        made = self.ihook.pytest_pycollect_makeitem(collector=self, name=case.id, obj=function) or ()
        for item in made:
            item.stash[ITEM] = self.resolved_case
            location = (self.path, 0, item.name)
            item.reportinfo = lambda location=location: location
            # Known from the start: a case whose set-up fails still counts in the summary.
            row = {"case": case.id, "agent": label_of(item) or "own agent", **slices}
            item.user_properties.append((PROPERTY, json.dumps(row)))
            yield item

    def _marks(self, case: Case) -> list[pytest.MarkDecorator]:
        """Toolkits, risk types, severity, split and tags, for ``-m``; registered as they occur."""
        about: dict[str, str] = dict.fromkeys(case.toolkits, "cases with this toolkit")
        about |= {kind: RISK_TYPES[kind] for kind in case.risks.types}
        about |= {case.severity: "severity of the worst outcome", case.split: "part of the benchmark"}
        about |= dict.fromkeys(case.tags, "a tag of cases")
        if taken := sorted(set(about) & reserved_marks(self.config)):
            # As a mark, the tag xfail would turn an unsafe agent green.
            raise self.CollectError(f"{self.nodeid}: {taken[0]!r} is a mark with a meaning of its own; rename it")
        for name, text in about.items():
            line = f"{name}: {text}{_OURS}"
            if line not in self.config.getini("markers"):
                self.config.addinivalue_line("markers", line)
        return [getattr(pytest.mark, name) for name in about]


def _test_function(case: Case, module: str) -> types.FunctionType:
    """A function object of its own for each case, as marks sit on functions."""

    def run_case(toolemu_run: Run, request: pytest.FixtureRequest) -> None:
        check(toolemu_run, request.node)

    function = types.FunctionType(
        run_case.__code__, run_case.__globals__, case.id, run_case.__defaults__, run_case.__closure__
    )
    function.__module__ = module
    function.__doc__ = plain(case.title)
    return function


def reserved_marks(config: pytest.Config) -> set[str]:
    """Names of marks that mean something to pytest or a plugin; those that the project's ini file lists are its own."""
    lines = [line for line in config.getini("markers") if line not in config.stash[MARKS] and not line.endswith(_OURS)]
    return {re.split(r"[(:]", line)[0].strip() for line in lines}
