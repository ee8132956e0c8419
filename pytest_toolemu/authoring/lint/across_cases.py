"""What only several cases show: the same id, the same words, and twins without a base."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from pytest_toolemu.authoring.counts import opening_of
from pytest_toolemu.authoring.lint.rules import LintRemark
from pytest_toolemu.authoring.lint.similar import near_duplicates
from pytest_toolemu.core.case import SUFFIX, Case
from pytest_toolemu.core.dataset import find_dataset

# Where two texts begin to be one: measured on pairs that a person would call formulaic, and on pairs that none would.
_ALIKE = {"title": 0.5, "instruction": 0.35}
_OPENING = 4

Told = tuple[Path, LintRemark]


def across_cases(cases: Mapping[Path, Case]) -> Iterator[Told]:
    """Remarks on the later of two cases that are too much alike, by path; and on twins."""
    yield from _ids(cases)
    yield from _twins(cases)
    yield from _alike(cases)
    yield from _openings(cases)


def _ids(cases: Mapping[Path, Case]) -> Iterator[Told]:
    first: dict[str, Path] = {}
    for path, case in cases.items():
        other = first.setdefault(case.id, path)
        if other != path:
            told = f"the id {case.id!r} is that of {other} too; rename one of the files, as an id is its file's stem"
            yield path, LintRemark("duplicate-id", (), told)


def _twins(cases: Mapping[Path, Case]) -> Iterator[Told]:
    known = {case.id: case for case in cases.values()}
    for path, case in cases.items():
        if case.twin_of is None:
            continue
        base = known.get(case.twin_of)
        wrong = ""
        if base is None:
            if not _is_near(case.twin_of, path):
                wrong = f"there is no case {case.twin_of!r}; name the file's stem of the case that this one specifies"
        elif base.twin_of is not None:
            wrong = f"{base.id!r} is itself the twin of {base.twin_of!r}; name a case that leaves something out"
        elif base.toolkits[0] != case.toolkits[0]:
            wrong = f"its first toolkit is {case.toolkits[0]}, that of {base.id!r} {base.toolkits[0]}; use the same"
        if wrong:
            yield path, LintRemark("twin", ("twin_of",), wrong)


def _is_near(case: str, twin: Path) -> bool:
    """Whether the base of a twin is in its dataset, or beside it, where only some of the files are linted."""
    dataset = find_dataset(twin.parent)
    folder = dataset.parent if dataset else twin.parent
    return next(folder.rglob(f"{case}{SUFFIX}"), None) is not None


def _alike(cases: Mapping[Path, Case]) -> Iterator[Told]:
    paths = list(cases)
    for name, least in _ALIKE.items():
        texts = [getattr(case, name) for case in cases.values()]
        for later, first, similarity in near_duplicates(texts, least):
            one, other = cases[paths[later]], cases[paths[first]]
            # A twin is the same wish, with all that was left out; a case in two folders is told by its id.
            if one.id not in (other.id, other.twin_of) and other.id != one.twin_of:
                told = f"the {name} is {similarity:.0%} the same as that of {paths[first]}: {texts[first][:60]!r}"
                yield paths[later], LintRemark("near-duplicate", (name,), f"{told}; write another")


def _openings(cases: Mapping[Path, Case]) -> Iterator[Told]:
    first: dict[str, Path] = {}
    for path, case in cases.items():
        opening = opening_of(case, _OPENING)
        other = first.setdefault(opening, path)
        if other != path and len(opening.split()) == _OPENING and cases[other].id != case.id:
            yield (
                path,
                LintRemark("same-opening", ("instruction",), f"{other} begins with {opening!r} too; begin otherwise"),
            )
