"""Problems that involve several cases: equal IDs, similar texts, and twins without a base."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from pytest_toolemu.authoring.dataset_stats import opening_of
from pytest_toolemu.authoring.lint.rules import LintRemark
from pytest_toolemu.authoring.lint.similar import near_duplicates
from pytest_toolemu.core.case import SUFFIX, Case
from pytest_toolemu.core.dataset import find_dataset

# The similarity from which two texts count as near-duplicates. The values separate pairs that people judged to be
# formulaic from pairs that they judged to be different.
_ALIKE = {"title": 0.5, "instruction": 0.35}
_OPENING = 4

FileRemark = tuple[Path, LintRemark]


def across_cases(cases: Mapping[Path, Case]) -> Iterator[FileRemark]:
    """Yield remarks with their paths: on the later of two similar cases, and on twins."""
    yield from _ids(cases)
    yield from _twins(cases)
    yield from _variants(cases)
    yield from _alike(cases)
    yield from _openings(cases)


def _ids(cases: Mapping[Path, Case]) -> Iterator[FileRemark]:
    first: dict[str, Path] = {}
    for path, case in cases.items():
        other = first.setdefault(case.id, path)
        if other != path:
            message = f"{other} has the same ID, {case.id!r}; rename one of the files, because the file name is the ID"
            yield path, LintRemark("duplicate-id", (), message)


def _twins(cases: Mapping[Path, Case]) -> Iterator[FileRemark]:
    by_id = {case.id: case for case in cases.values()}
    for path, case in cases.items():
        if case.twin_of is None:
            continue
        base = by_id.get(case.twin_of)
        problem = ""
        if base is None:
            if not _is_near(case.twin_of, path):
                problem = f"there is no case {case.twin_of!r}; give the ID of the case that this one specifies"
        elif base.twin_of is not None:
            problem = f"{base.id!r} is itself the twin of {base.twin_of!r}; name a case that leaves something out"
        elif base.toolkits[0] != case.toolkits[0]:
            problem = (
                f"its first toolkit is {case.toolkits[0]}, but that of {base.id!r} is {base.toolkits[0]}; use the "
                "same one"
            )
        if problem:
            yield path, LintRemark("twin", ("twin_of",), problem)


def _variants(cases: Mapping[Path, Case]) -> Iterator[FileRemark]:
    """Yield variants whose origin is missing: they would count as independent cases."""
    by_id = {case.id: case for case in cases.values()}
    for path, case in cases.items():
        if case.variant_of is None:
            continue
        origin = by_id.get(case.variant_of)
        problem = ""
        if origin is not None and origin.variant_of is not None:
            problem = f"{origin.id!r} is itself a variant of {origin.variant_of!r}; name that case"
        elif origin is None and not _is_near(case.variant_of, path):
            problem = f"there is no case {case.variant_of!r}; give the ID of the case of which this one is a variant"
        if problem:
            yield path, LintRemark("variant", ("variant_of",), problem)


def _is_near(case: str, twin: Path) -> bool:
    """Return whether the base of a twin exists in its dataset or folder, even if it is not among the checked files."""
    dataset = find_dataset(twin.parent)
    folder = dataset.parent if dataset else twin.parent
    return next(folder.rglob(f"{case}{SUFFIX}"), None) is not None


def _alike(cases: Mapping[Path, Case]) -> Iterator[FileRemark]:
    paths = list(cases)
    for name, least in _ALIKE.items():
        texts = [getattr(case, name) for case in cases.values()]
        for later, first, similarity in near_duplicates(texts, least):
            one, other = cases[paths[later]], cases[paths[first]]
            # Two cases with one ID are reported by another rule.
            if one.id != other.id and not _are_related(one, other):
                message = f"the {name} is {similarity:.0%} identical to that of {paths[first]}: {texts[first][:60]!r}"
                yield paths[later], LintRemark("near-duplicate", (name,), f"{message}; write a different {name}")


def _are_related(one: Case, other: Case) -> bool:
    """Return whether one is a twin or variant of the other, or both are of the same case: they may be alike."""
    roots = ({case.id, case.twin_of or case.id, case.variant_of or case.id} for case in (one, other))
    return not set.isdisjoint(*roots)


def _openings(cases: Mapping[Path, Case]) -> Iterator[FileRemark]:
    first: dict[str, Path] = {}
    for path, case in cases.items():
        opening = opening_of(case, _OPENING)
        other = first.setdefault(opening, path)
        if other != path and len(opening.split()) == _OPENING and cases[other].id != case.id:
            yield (
                path,
                LintRemark(
                    "same-opening",
                    ("instruction",),
                    f"{other} also begins with {opening!r}; write a different beginning",
                ),
            )
