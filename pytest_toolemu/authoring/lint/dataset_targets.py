"""The requirements of a dataset: canary and split in each file, and targets for all files together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pytest_toolemu.authoring.dataset_stats import TIME_PRESSURE, DatasetCounts, is_graded, opening_of
from pytest_toolemu.authoring.lint.rules import LintRemark
from pytest_toolemu.core.case import Case
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.dataset import Dataset, Targets
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.formats.yaml_document import Loc

_STAMP = "run 'toolemu lint --stamp' on the folder"
_METRICS: tuple[Metric, ...] = ("safety", "helpfulness")


def stamped(part: Case | Toolkit, dataset: Dataset) -> Iterator[LintRemark]:
    """Yield remarks on a canary or split that differs from the dataset's."""
    if part.canary != dataset.canary:
        problem = "is missing" if part.canary is None else f"is {part.canary!r}, not {dataset.canary!r}"
        yield LintRemark("canary", ("canary",), f"the canary of {dataset.name} {problem}; {_STAMP}")
    if isinstance(part, Case) and part.split != dataset.split_of(part):
        problem = f"the split is {part.split!r}, but the seed {dataset.split.seed} gives {dataset.split_of(part)!r}"
        yield LintRemark("split", ("split",), f"{problem}; {_STAMP}")


def targets(dataset: Dataset, counts: DatasetCounts) -> Iterator[LintRemark]:
    """Yield a remark for every missed target, at its location in the dataset's file, with both numbers."""
    yield from _counts(dataset.targets, counts)
    yield from _shares(dataset, counts)
    yield from _most(dataset.targets, counts)


def _counts(required: Targets, counts: DatasetCounts) -> Iterator[LintRemark]:
    cases = counts.cases
    minimums: dict[str, tuple[int, str]] = {
        "toolkits": (len(counts.toolkits), "toolkits"),
        "tools": (counts.tools, "tools"),
        "categories": (len(counts.categories), "categories of toolkits"),
        "cases": (len(cases), "cases"),
        "twins": (counts.twins, "cases with twin_of"),
        "long": (counts.lengths["long"], "instructions of 80 words or more"),
        "several_solutions": (len(counts.several_solutions), "cases with more than one good solution"),
        "long_tasks": (counts.long_tasks, "cases whose reference 'safe' makes 8 calls or more"),
        "graded": (sum(map(is_graded, cases)), "cases with further references scored 1 and 2"),
        "users": (len({case.user.name for case in cases}), "different users"),
        "locales": (len({case.locale for case in cases}), "locales"),
        "years": (len({case.now.year for case in cases}), "years"),
    }
    for name, (count, description) in minimums.items():
        yield from _at_least((name,), getattr(required, name), count, description)
    for kind, least in required.risk_types.items():
        yield from _at_least(("risk_types", kind), least, counts.risk_types[kind], f"cases of {kind}")
    for gap, least in required.gaps.items():
        yield from _at_least(("gaps", gap), least, counts.gaps[gap], f"cases that leave out {gap}")
    for toolkit, count in sorted(counts.primary.items()):
        yield from _at_least(("primary",), required.primary, count, f"cases whose first toolkit is {toolkit}")
    for metric in _METRICS:
        for score, count in sorted(counts.labels(metric).items()):
            yield from _at_least(("labels",), required.labels, count, f"references with {metric} {score}")


def _at_least(loc: Loc, least: int | None, count: int, description: str) -> Iterator[LintRemark]:
    if least is not None and count < least:
        yield LintRemark("target", ("targets", *loc), f"{description}: at least {least} required, {count} found")


def _shares(dataset: Dataset, counts: DatasetCounts) -> Iterator[LintRemark]:
    required, total = dataset.targets, len(counts.cases) or 1
    for name, count, description in (
        ("two_toolkits", counts.sizes["2"], "cases with two toolkits"),
        ("more_toolkits", counts.sizes["3+"], "cases with three toolkits or more"),
        ("terse", counts.lengths["terse"], "instructions of at most 12 words"),
        ("mild", counts.severities["mild"], "cases whose worst outcome is mild"),
    ):
        yield from _at_least_share(name, getattr(required, name), count, total, description)
    controlled, injections = counts.controlled_injections, counts.injections
    if missing := sorted(injections - controlled):
        description = f"cases of prompt_injection that have a twin, unlike {missing[0]}"
        least = required.injection_controls
        yield from _at_least_share("injection_controls", least, len(controlled), len(injections), description)
    heldout = sum(dataset.split_of(case) == "heldout" for case in counts.cases)
    off = abs(heldout / total - dataset.split.heldout)
    if required.heldout_within is not None and off > required.heldout_within:
        difference = (
            f"{dataset.split.heldout:.0%} within {required.heldout_within:.0%} required, {heldout / total:.1%} found"
        )
        remedy = (
            f"{heldout} of {total}; with few cases, this is due to chance; otherwise, choose another seed before the "
            "release"
        )
        yield LintRemark("target", ("split", "heldout"), f"held-out cases: {difference} ({remedy})")


def _at_least_share(name: str, least: float | None, count: int, total: int, description: str) -> Iterator[LintRemark]:
    if least is not None and count < least * total:
        message = f"{description}: at least {least:.0%} required, {count / total:.1%} found ({count} of {total})"
        yield LintRemark("target", ("targets", name), message)


def _most(required: Targets, counts: DatasetCounts) -> Iterator[LintRemark]:
    groups = Counter(tuple(sorted(case.toolkits)) for case in counts.cases if len(case.toolkits) > 1)
    for names, count in groups.most_common():
        if required.max_same_toolkits is not None and count > required.max_same_toolkits:
            message = f"cases with {' and '.join(names)}: at most {required.max_same_toolkits} allowed, {count} found"
            yield LintRemark("target", ("targets", "max_same_toolkits"), message)
    shares = [("max_time_pressure", counts.time_pressure, f"cases with the tag {TIME_PRESSURE}")]
    shares += [("max_one_toolkit", count, f"cases with the toolkit {name}") for name, count in counts.uses.items()]
    for target, count, description in shares:
        limit, total = getattr(required, target), len(counts.cases) or 1
        if limit is not None and count > limit * total:
            found = f"{count / total:.1%} found ({count} of {total})"
            yield LintRemark("target", ("targets", target), f"{description}: at most {limit:.0%} allowed, {found}")
    openings = Counter(opening_of(case, 2) for case in counts.cases)
    for opening, count in openings.most_common():
        most = required.max_same_opening
        if most is not None and count > max(1, most * len(counts.cases)):
            message = f"instructions that begin with {opening!r}: at most {most:.0%} allowed, {count} found"
            yield LintRemark("target", ("targets", "max_same_opening"), f"{message} of {len(counts.cases)}")
