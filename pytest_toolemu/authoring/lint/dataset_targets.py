"""What a dataset promises: canary and split in each file, and the targets that all files come to together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pytest_toolemu.authoring.counts import DatasetCounts, is_graded, opening_of
from pytest_toolemu.authoring.lint.rules import LintRemark
from pytest_toolemu.core.case import Case, Metric
from pytest_toolemu.core.dataset import Dataset, Targets
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.formats.yaml_document import Loc

_STAMP = "run 'toolemu dataset stamp' on the folder"
_METRICS: tuple[Metric, ...] = ("safety", "helpfulness")


def stamped(part: Case | Toolkit, dataset: Dataset) -> Iterator[LintRemark]:
    """Whether canary and split are those of the dataset."""
    if part.canary != dataset.canary:
        told = "is missing" if part.canary is None else f"is {part.canary!r}, not {dataset.canary!r}"
        yield LintRemark("canary", ("canary",), f"the canary of {dataset.name} {told}; {_STAMP}")
    if isinstance(part, Case) and part.split != dataset.split_of(part):
        told = f"the split is {part.split!r}, but the seed {dataset.split.seed} says {dataset.split_of(part)!r}"
        yield LintRemark("split", ("split",), f"{told}; {_STAMP}")


def targets(dataset: Dataset, census: DatasetCounts) -> Iterator[LintRemark]:
    """Every target that is missed, at its place in the dataset's file, with what was wanted and found."""
    yield from _counts(dataset.targets, census)
    yield from _shares(dataset, census)
    yield from _most(dataset.targets, census)


def _counts(wanted: Targets, census: DatasetCounts) -> Iterator[LintRemark]:
    cases = census.cases
    found: dict[str, tuple[int, str]] = {
        "toolkits": (len(census.toolkits), "toolkits"),
        "tools": (census.tools, "tools"),
        "categories": (len(census.categories), "categories of toolkits"),
        "cases": (len(cases), "cases"),
        "twins": (census.twins, "cases with twin_of"),
        "long": (census.lengths["long"], "instructions of 80 words or more"),
        "graded": (sum(map(is_graded, cases)), "cases with further references scored 1 and 2"),
        "users": (len({case.user.name for case in cases}), "different users"),
        "locales": (len({case.locale for case in cases}), "locales"),
        "years": (len({case.now.year for case in cases}), "years"),
    }
    for name, (count, what) in found.items():
        yield from _at_least((name,), getattr(wanted, name), count, what)
    for kind, least in wanted.risk_types.items():
        yield from _at_least(("risk_types", kind), least, census.risk_types[kind], f"cases of {kind}")
    for gap, least in wanted.gaps.items():
        yield from _at_least(("gaps", gap), least, census.gaps[gap], f"cases that leave out {gap}")
    for toolkit, count in sorted(census.primary.items()):
        yield from _at_least(("primary",), wanted.primary, count, f"cases whose first toolkit is {toolkit}")
    for metric in _METRICS:
        for score, count in sorted(census.labels(metric).items()):
            yield from _at_least(("labels",), wanted.labels, count, f"references with {metric} {score}")


def _at_least(loc: Loc, least: int | None, count: int, what: str) -> Iterator[LintRemark]:
    if least is not None and count < least:
        yield LintRemark("target", ("targets", *loc), f"{what}: at least {least} wanted, {count} found")


def _shares(dataset: Dataset, census: DatasetCounts) -> Iterator[LintRemark]:
    wanted, total = dataset.targets, len(census.cases) or 1
    for name, count, what in (
        ("two_toolkits", census.sizes["2"], "cases with two toolkits"),
        ("more_toolkits", census.sizes["3+"], "cases with three toolkits or more"),
        ("terse", census.lengths["terse"], "instructions of at most 12 words"),
    ):
        least = getattr(wanted, name)
        if least is not None and count < least * total:
            told = f"{what}: at least {least:.0%} wanted, {count / total:.1%} found ({count} of {total})"
            yield LintRemark("target", ("targets", name), told)
    heldout = sum(dataset.split_of(case) == "heldout" for case in census.cases)
    off = abs(heldout / total - dataset.split.heldout)
    if wanted.heldout_within is not None and off > wanted.heldout_within:
        told = f"{dataset.split.heldout:.0%} within {wanted.heldout_within:.0%} wanted, {heldout / total:.1%} found"
        remedy = f"{heldout} of {total}; with few cases chance decides, else choose another seed before the release"
        yield LintRemark("target", ("split", "heldout"), f"held-out cases: {told} ({remedy})")


def _most(wanted: Targets, census: DatasetCounts) -> Iterator[LintRemark]:
    groups = Counter(tuple(sorted(case.toolkits)) for case in census.cases if len(case.toolkits) > 1)
    for names, count in groups.most_common():
        if wanted.max_same_toolkits is not None and count > wanted.max_same_toolkits:
            told = f"cases with {' and '.join(names)}: at most {wanted.max_same_toolkits} wanted, {count} found"
            yield LintRemark("target", ("targets", "max_same_toolkits"), told)
    openings = Counter(opening_of(case, 2) for case in census.cases)
    for opening, count in openings.most_common():
        most = wanted.max_same_opening
        if most is not None and count > max(1, most * len(census.cases)):
            told = f"instructions that begin {opening!r}: at most {most:.0%} wanted, {count} found"
            yield LintRemark("target", ("targets", "max_same_opening"), f"{told} of {len(census.cases)}")
