"""Problems that involve several cases: equal IDs, similar texts, and twins without a base."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from pytest_toolemu.authoring.dataset_stats import TIME_PRESSURE, DatasetCounts, is_graded, opening_of
from pytest_toolemu.authoring.lint.rules import LintRemark
from pytest_toolemu.core.case import SUFFIX, Case, Dataset, Targets, find_dataset
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.formats.yaml_document import Loc

# The similarity from which two texts count as near-duplicates. The values separate pairs that people judged to be
# formulaic from pairs that they judged to be different.
_ALIKE = {"title": 0.5, "instruction": 0.35}
_OPENING = 4

FileRemark = tuple[Path, LintRemark]


def across_cases(cases: Mapping[Path, Case]) -> Iterator[FileRemark]:
    """Yield remarks with their paths: on the later of two similar cases, and on twins."""
    yield from _ids(cases)
    yield from _origins(cases)
    yield from _alike(cases)
    yield from _openings(cases)


def _ids(cases: Mapping[Path, Case]) -> Iterator[FileRemark]:
    first: dict[str, Path] = {}
    for path, case in cases.items():
        other = first.setdefault(case.id, path)
        if other != path:
            message = f"{other} has the same ID, {case.id!r}; rename one of the files, because the file name is the ID"
            yield path, LintRemark("duplicate-id", (), message)


def _origins(cases: Mapping[Path, Case]) -> Iterator[FileRemark]:
    """Yield twins whose base does not fit, and variants whose origin is missing: they would count as independent."""
    by_id = {case.id: case for case in cases.values()}
    for path, case in cases.items():
        for rule, name, kind in (("twin", case.twin_of, "the twin"), ("variant", case.variant_of, "a variant")):
            if name is None:
                continue
            base = by_id.get(name)
            earlier = base and getattr(base, f"{rule}_of")
            problem = ""
            if base is None and not _is_near(name, path):
                problem = f"there is no case {name!r}; give the ID of the case of which this one is {kind}"
            elif base is not None and earlier is not None:
                problem = f"{base.id!r} is itself {kind} of {earlier!r}; name the first of these cases"
            elif base is not None and rule == "twin" and base.toolkits[0] != case.toolkits[0]:
                problem = (
                    f"its first toolkit is {case.toolkits[0]}, but that of {base.id!r} is {base.toolkits[0]}; use the "
                    "same one"
                )
            if problem:
                yield path, LintRemark(rule, (f"{rule}_of",), problem)


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
            # A twin or variant may be like its case, and like the other twins and variants of that case.
            roots = ({case.id, case.twin_of or case.id, case.variant_of or case.id} for case in (one, other))
            if one.id != other.id and set.isdisjoint(*roots):
                message = f"the {name} is {similarity:.0%} identical to that of {paths[first]}: {texts[first][:60]!r}"
                yield paths[later], LintRemark("near-duplicate", (name,), f"{message}; write a different {name}")


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


_SIZE: Final = 4
_DIGITS: Final = re.compile(r"\d+")
_BETWEEN: Final = re.compile(r"\W+")


def near_duplicates(texts: Sequence[str], least: float) -> Iterator[tuple[int, int, float]]:
    """Yield each text that is similar to an earlier one: its index, the index of the earlier one, and the similarity.

    The similarity is the Jaccard index of the sets of four-letter pieces; letter case, punctuation, and the values of
    numbers are ignored. ``least`` is the lowest similarity to report. A reported text is not compared with later ones,
    so a thousand copies take no longer than other texts.
    """
    sizes: dict[int, int] = {}
    holders: defaultdict[str, list[int]] = defaultdict(list)
    for index, text in enumerate(texts):
        pieces = pieces_of(text)
        shared = Counter(other for piece in pieces for other in holders[piece])
        alike = ((count / (len(pieces) + sizes[other] - count), -other) for other, count in shared.items())
        similarity, other = max(alike, default=(0.0, 0))
        if similarity >= least:
            yield index, -other, similarity
            continue
        sizes[index] = len(pieces)
        for piece in pieces:
            holders[piece].append(index)


def pieces_of(text: str) -> frozenset[str]:
    """Return the four-letter pieces of a text, without letter case, punctuation, and the values of numbers."""
    plain = f" {_BETWEEN.sub(' ', _DIGITS.sub('0', text.casefold())).strip()} "
    return frozenset(plain[start : start + _SIZE] for start in range(max(1, len(plain) - _SIZE + 1)))


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the Jaccard index of two sets, from 0 (nothing in common) to 1 (equal); one of them is not empty."""
    common = len(one & other)
    return common / (len(one) + len(other) - common)


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
        "tools": (len(counts.tools), "tools"),
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
