"""Checks files without running a model: problems that loading rejects, and problems that it cannot see."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pytest_toolemu.authoring.dataset_stats import DatasetCounts
from pytest_toolemu.authoring.find_files import find
from pytest_toolemu.authoring.lint.dataset_rules import across_cases, stamped, targets
from pytest_toolemu.authoring.lint.file_rules import (
    case_shape,
    case_wording,
    slow_expressions,
    slow_patterns,
    toolkit_shape,
    toolkit_wording,
)
from pytest_toolemu.authoring.lint.pattern_rules import reference_checks, world_pins
from pytest_toolemu.authoring.lint.reference_rules import (
    asking,
    careful_reads,
    conversation_labels,
    empty_claim,
    reference_labels,
)
from pytest_toolemu.authoring.lint.rules import RULES, LintProblem, LintRemark
from pytest_toolemu.authoring.play_references import has_several_solutions
from pytest_toolemu.core.case import (
    Case,
    DatasetFiles,
    Edition,
    dataset_of_toolkit,
    edition,
    find_dataset,
    load_dataset,
    origin,
)
from pytest_toolemu.core.case_loading import load_case, load_toolkit, without_repeated
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.errors import DocumentError
from pytest_toolemu.formats.yaml_document import Document

# A rule is only allowed with a reason.
_ALLOW: Final = re.compile(r"#\s*toolemu: allow ([a-z-]+): *\S")


@dataclass
class LintResult:
    """The files that were read, and their problems, sorted by file and line."""

    read: int = 0
    toolkits: dict[Path, Toolkit] = field(default_factory=dict)
    cases: dict[Path, Case] = field(default_factory=dict)
    several_solutions: set[str] = field(default_factory=set)
    editions: list[Edition] = field(default_factory=list)
    problems: list[LintProblem] = field(default_factory=list)

    @property
    def origin(self) -> str:
        """The dataset editions, and the number of cases without one, as text."""
        return origin(self.editions, sum(find_dataset(path.parent) is None for path in self.cases))

    def count(self, level: str) -> int:
        """Return the number of problems of a level."""
        return sum(problem.level == level for problem in self.problems)


def lint_paths(paths: Iterable[Path]) -> LintResult:
    """Check every toolkit, case, and dataset below the paths. Raise UsageError for a path that does not exist."""
    return asyncio.run(lint_files(paths))


async def lint_files(paths: Iterable[Path], *, as_dataset: bool = False) -> LintResult:
    """Check files as ``lint_paths`` does, for callers in an event loop.

    ``as_dataset`` applies the rules and levels of a dataset to all files.
    """
    files, result = find(paths), LintResult()
    result.read = len(files.toolkits) + len(files.cases)
    remarks: defaultdict[Path, list[LintRemark]] = defaultdict(list)
    # A set, as many cases may report the same problem of a shared toolkit.
    problems: set[LintProblem] = set()
    reported: set[str] = set()

    async def collect(path: Path, check: Callable[[Path, LintResult], Awaitable[list[LintRemark]]]) -> None:
        try:
            remarks[path] += await check(path, result)
        except DocumentError as document_error:
            error = without_repeated(document_error, reported)
            file = Path(error.path)
            problems.update(LintProblem(file, line, at, "error", "format", text) for line, at, text in error.problems)

    for path in files.toolkits:
        await collect(path, _toolkit)
    for path in files.cases:
        await collect(path, _case)
    for path, remark in across_cases(result.cases):
        remarks[path].append(remark)
    for path, problem in files.misnamed:
        remarks[path].append(LintRemark("file-name", (), problem))
    for path in files.datasets:
        await collect(path, _dataset)
    result.problems = sorted(problems.union(*(_placed(path, those, as_dataset) for path, those in remarks.items())))
    return result


async def _toolkit(path: Path, result: LintResult) -> list[LintRemark]:
    toolkit = result.toolkits[path] = load_toolkit(path)
    remarks = [*toolkit_wording(toolkit), *toolkit_shape(toolkit), *slow_patterns(toolkit)]
    if dataset := dataset_of_toolkit(path):
        remarks += stamped(toolkit, load_dataset(dataset))
    return remarks


async def _case(path: Path, result: LintResult) -> list[LintRemark]:
    resolved_case = load_case(path)
    case = result.cases[path] = resolved_case.case
    remarks = [
        *case_wording(case),
        *case_shape(case),
        *reference_checks(resolved_case),
        *world_pins(resolved_case),
        *slow_expressions(case),
        *await reference_labels(resolved_case),
        *await conversation_labels(resolved_case),
        *await careful_reads(resolved_case),
        *asking(resolved_case),
        *await empty_claim(resolved_case),
    ]
    if await has_several_solutions(resolved_case):
        result.several_solutions.add(case.id)
    if dataset := find_dataset(path.parent):
        remarks += stamped(case, load_dataset(dataset))
    return remarks


async def _dataset(path: Path, result: LintResult) -> list[LintRemark]:
    """Return remarks on the targets of a dataset. Only valid files count; the others have their own problems."""
    dataset, files = load_dataset(path), DatasetFiles(path)
    result.editions.append(edition(path))
    cases = {file.resolve(): case for file, case in result.cases.items()}
    toolkits = {file.resolve(): toolkit for file, toolkit in result.toolkits.items()}
    counts = DatasetCounts(
        tuple(cases[case] for case in map(Path.resolve, files.cases) if case in cases),
        tuple(toolkits[toolkit] for toolkit in files.toolkits if toolkit in toolkits),
        frozenset(result.several_solutions),
    )
    return list(targets(dataset, counts))


def _placed(path: Path, remarks: list[LintRemark], as_dataset: bool) -> Iterator[LintProblem]:
    """Yield the remarks that apply to this file, with lines and columns. A file without any is not read again."""
    in_dataset = as_dataset or (find_dataset(path.parent) or dataset_of_toolkit(path)) is not None
    levels = {name: rule.dataset_level if in_dataset else rule.level for name, rule in RULES.items()}
    applicable = [remark for remark in remarks if levels[remark.rule] is not None]
    if not applicable:
        return
    document = Document.read(path)
    allowed = _allowed(document.text)
    for rule, loc, message in applicable:
        line, column = document.position(loc)
        level = levels[rule]
        if level is not None and rule not in allowed.get(line, ()):
            yield LintProblem(path, line, column, level, rule, message)


def _allowed(text: str) -> dict[int, set[str]]:
    """Return the rules allowed in each line, by ``# toolemu: allow RULE: reason`` in it or in the line before."""
    lines: defaultdict[int, set[str]] = defaultdict(set)
    for number, line in enumerate(text.split("\n"), 1):
        for rule in _ALLOW.findall(line):
            lines[number].add(rule)
            lines[number + 1].add(rule)
    return lines
