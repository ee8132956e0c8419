"""All automatic checks on one draft, and the comparison with everything that it must not repeat."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, get_args

from pytest_toolemu.authoring.drafts.check_runs import (
    NO_OP,
    CheckModels,
    no_op_findings,
    play_and_check,
    run_no_op,
    run_trials,
    trial_findings,
)
from pytest_toolemu.authoring.drafts.draft_store import (
    AskedSource,
    CheckResults,
    Draft,
    DraftFinding,
    DraftStore,
    FindingLevel,
    FindingSource,
)
from pytest_toolemu.authoring.find_files import find
from pytest_toolemu.authoring.lint import LintResult, lint_files
from pytest_toolemu.authoring.lint.dataset_rules import jaccard, near_duplicates, pieces_of
from pytest_toolemu.authoring.lint.rules import LintProblem
from pytest_toolemu.authoring.mutants import Mutant
from pytest_toolemu.core.case import Case
from pytest_toolemu.core.case_loading import case_id, load_case, toolkit_folders
from pytest_toolemu.core.identity import identity_of, provider_and_name
from pytest_toolemu.core.run import hashes_of, sha256
from pytest_toolemu.core.toolkit import SUFFIX as TOOLKIT_SUFFIX
from pytest_toolemu.errors import DocumentError
from pytest_toolemu.formats.yaml_document import Document, show

_AFTERWARDS: Final = ("canary", "split", "target", "variant")
"""Rules on what a draft has only in the suite: what ``toolemu lint --stamp`` writes, and the origin of a variant."""

_LEVELS: Final[dict[str, FindingLevel]] = {
    "leak": "error",
    "placeholder": "error",
    "incomplete": "warning",
    "no-gap": "warning",
}
"""Levels of lint rules for drafts, where they differ from those for a dataset."""

_IDLE_AGENT: Final = "an agent that does nothing gets"
"""The beginning of the remark of lint on a case in which such an agent scores too well."""


LEAST_SHARE: Final = 0.8
"""The share of a text's four-letter pieces that are also in the instruction, from which it counts as stated there.

Among 1,571 texts of the shipped cases, the highest share is 0.70.
"""

_LEAST_PIECES: Final = 12
"""Shorter texts are not compared: an instruction may contain their words by chance."""


@dataclass(frozen=True)
class CheckReport:
    """The results of all automatic checks on a draft, for a person and for the model that wrote it.

    ``mutants`` are all of them; the results have their numbers.
    """

    path: Path
    findings: tuple[DraftFinding, ...]
    results: CheckResults = field(default_factory=CheckResults)
    mutants: tuple[Mutant, ...] = ()

    @property
    def errors(self) -> tuple[DraftFinding, ...]:
        """The findings for which the draft needs work."""
        return tuple(finding for finding in self.findings if finding.level == "error")

    @property
    def status(self) -> Literal["ready", "needs_work"]:
        """The status that the record of the draft gets."""
        return "needs_work" if self.errors else "ready"


def worst_first(findings: Iterable[DraftFinding]) -> tuple[DraftFinding, ...]:
    """Return the findings sorted by level, errors first; within a level, they keep their order."""
    levels = get_args(FindingLevel)
    return tuple(sorted(findings, key=lambda finding: levels.index(finding.level)))


async def check_draft(
    path: Path, corpus: DraftCorpus, *, models: CheckModels | None = None, drafted_by: str = ""
) -> CheckReport:
    """Return the report of all checks on a draft.

    ``corpus`` are the files that it must not repeat. ``drafted_by`` is the model that wrote the draft, as
    PROVIDER:NAME: a judge with this name is not independent, which is a finding. Findings with the level ``error``
    are those to correct. Raise ModelError if a judge cannot be reached, and NotRunError if the budget is spent.
    """
    models = models or CheckModels()
    lint = await _lint(path, corpus)
    of_lint = [finding for _, finding in lint_findings(lint, path)]
    findings = [*of_lint, *corpus.findings(path)]
    part = lint.cases.get(path) or lint.toolkits.get(path)
    if part is not None and part.provenance is not None:  # only the command that a person uses may write it
        message = f"the draft names a reviewer, {part.provenance.reviewer!r}; remove 'provenance'"
        findings.append(_error("lint", "provenance", message, "provenance"))
    if path not in lint.cases:
        return CheckReport(path, worst_first(findings))
    resolved_case = load_case(path)
    findings += stated_risks(resolved_case.case)
    played = await play_and_check(resolved_case, models)
    # Lint reports some of these problems, too, as it does for cases that people write.
    messages = {finding.message for finding in played.findings}
    findings = [finding for finding in findings if finding.message not in messages]
    findings += played.findings
    if drafted_by in {provider_and_name(identity_of(judge).get("model", {})) for judge in models.judges} - {""}:
        message = f"the judge {drafted_by} wrote the draft, so it is not independent; use another judge"
        findings.append(DraftFinding(source="judge", rule="same-model", level="warning", message=message))
    quick_runs = [await run_no_op(resolved_case)]
    if not any(finding.message.startswith(_IDLE_AGENT) for finding in findings):
        findings += no_op_findings(quick_runs[0])
    if models.agent is not None:
        trials = await run_trials(resolved_case, models.agent, models)
        findings += trial_findings(trials)
        quick_runs += trials
    results = CheckResults(
        references=played.scores,
        mutants=len(played.mutants),
        noticed=sum(mutant.noticed for mutant in played.mutants),
        quick_runs=tuple(quick_runs),
    )
    return CheckReport(path, worst_first(findings), results, played.mutants)


async def check_stored(
    store: DraftStore, draft: Draft, corpus: DraftCorpus, models: CheckModels | None = None
) -> tuple[Draft, CheckReport]:
    """Check a draft, and store the findings and the status in its record. Raise as ``check_draft`` does.

    As long as the text and the toolkits are the same, the same judge and agent are not asked again, and what they
    found is kept.
    """
    models, record = models or CheckModels(), draft.record
    checked = content_hash(draft.path)
    is_same = checked is not None and checked == record.checked
    names = models.names
    kept: dict[AskedSource, str] = {
        source: name for source, name in record.models_asked.items() if is_same and names.get(source, name) == name
    }
    corpus.put(draft)
    report = await check_draft(draft.path, corpus, models=models.without(kept), drafted_by=record.model)
    found = [*report.findings, *(finding for finding in record.findings if finding.source in kept)]
    # Also for a variant, which may resemble others.
    rejected = store.rejected_before(draft.path.read_text(encoding="utf-8", errors="replace"), record.kind)
    if rejected is not None and rejected.record.decision and all(each.rule != "rejected" for each in found):
        reason = show(rejected.record.decision.reason)
        message = f"a reviewer rejected the same draft as {rejected.path}: {reason}; write a different one"
        found.append(_error("duplicates", "rejected", message))
    findings = worst_first(found)
    report = dataclasses.replace(report, findings=findings, results=_with_kept(report.results, record.results, kept))
    updated = store.update(
        draft,
        status=report.status,
        findings=findings,
        results=report.results,
        checked=checked,
        models_asked={**names, **kept},
    )
    return updated, report


def _with_kept(new: CheckResults, old: CheckResults | None, kept: Container[AskedSource]) -> CheckResults:
    """Return new results with those that an earlier judge or agent gave, if they are kept."""
    if old is None:
        return new
    references, quick_runs = new.references, new.quick_runs
    if "judge" in kept:
        judged = {scores.name: scores.judge for scores in old.references}
        references = tuple(scores.model_copy(update={"judge": judged.get(scores.name, {})}) for scores in references)
    if "agent" in kept:
        quick_runs += tuple(run for run in old.quick_runs if run.agent != NO_OP)
    return new.model_copy(update={"references": references, "quick_runs": quick_runs})


def content_hash(path: Path) -> str | None:
    """Return the SHA-256 of what is checked: the text of a draft and its toolkits. None if it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
        case = None if path.name.endswith(TOOLKIT_SUFFIX) else load_case(path)
    except (OSError, UnicodeDecodeError):
        return None
    except DocumentError:
        return sha256([text])
    return sha256([text] if case is None else [text, hashes_of(case.case, case.toolkits)])


async def _lint(path: Path, corpus: DraftCorpus) -> LintResult:
    """Check a draft by the rules of a dataset, together with the case of which it is a twin."""
    alone = await lint_files([path], as_dataset=True)
    case = alone.cases.get(path)
    base = corpus.path_of_case(case.twin_of) if case is not None and case.twin_of else None
    return alone if base is None else await lint_files([path, base], as_dataset=True)


def lint_findings(lint: LintResult, path: Path) -> Iterator[tuple[LintProblem, DraftFinding]]:
    """Yield what lint found in a file that will only be stamped after its acceptance, at the levels of drafts."""
    for problem in lint.problems:
        if problem.path == path and problem.rule not in _AFTERWARDS:
            level = _LEVELS.get(problem.rule, problem.level)
            place = f"line {problem.line}"
            finding = DraftFinding(source="lint", rule=problem.rule, level=level, place=place, message=problem.message)
            yield problem, finding


def _error(source: FindingSource, rule: str, message: str, place: str = "") -> DraftFinding:
    return DraftFinding(source=source, rule=rule, level="error", place=place, message=message)


def stated_risks(case: Case) -> Iterator[DraftFinding]:
    """Yield each gap, action, and outcome that the instruction gives away."""
    instruction = pieces_of(case.instruction)
    texts = {
        "underspecified.task": case.underspecified.task,
        "underspecified.safety": case.underspecified.safety,
        "risks.actions": case.risks.actions,
        "risks.outcomes": tuple(outcome.partition(": ")[2] for outcome in case.risks.outcomes),
    }
    for place, entries in texts.items():
        for index, text in enumerate(entries):
            pieces = pieces_of(text)
            if len(pieces) >= _LEAST_PIECES and len(pieces & instruction) / len(pieces) >= LEAST_SHARE:
                message = (
                    f"the instruction states it almost word for word: {show(text)}; remove it from the instruction, "
                    "because the user should not say what the agent has to find out"
                )
                yield _error("lint", "leak", message, f"{place}[{index}]")


THRESHOLDS: Final = {"title": 0.5, "instruction": 0.35, "world": 0.5, "tools": 0.5}
"""The similarity, from 0 to 1, from which two parts count as nearly the same."""

# The similarity from which two descriptions mean the same toolkit.
_ALIKE: Final = 0.6

_LEAST_TEXTS: Final = 5
"""Worlds with fewer texts are not compared: two of them may be equal by chance."""


@dataclass(frozen=True)
class ComparedFile:
    """What is compared of a case or toolkit: the pieces of each of its parts.

    ``related`` are the IDs of cases that it may resemble: of which it is a twin or a variant. ``drafted`` orders drafts
    by age; it is empty for files of a suite. ``rejected`` says why a person rejected the draft.
    """

    path: Path
    name: str
    is_toolkit: bool
    parts: dict[str, frozenset[str]]
    related: frozenset[str] = frozenset()
    drafted: str = ""
    rejected: str | None = None

    def may_resemble(self, other: ComparedFile) -> bool:
        """Return whether one is a twin or variant of the other, or both are of the same case."""
        return self.name in other.related or other.name in self.related or not self.related.isdisjoint(other.related)


class DraftCorpus:
    """The files that a draft is compared with. Drafts that are added later are compared with those added before."""

    def __init__(self, files: Iterable[ComparedFile] = ()) -> None:
        self._files = {file.path.resolve(): file for file in files}

    @classmethod
    def read(cls, store: DraftStore, folders: Iterable[Path]) -> DraftCorpus:
        """Return the corpus of these folders, which are searched for cases and toolkits, and of all drafts in a store.

        Files that are not valid YAML are left out; lint reports them. Raise UsageError for a folder that does not
        exist.
        """
        found = find(folders)
        own = store.folder.resolve()
        paths = [path for path in (*found.toolkits, *found.cases) if own not in path.resolve().parents]
        corpus = cls(filter(None, map(_compared, paths)))
        for draft in store.drafts():
            corpus.put(draft)
        return corpus

    def put(self, draft: Draft) -> None:
        """Add a draft, or replace its earlier text. An accepted draft is part of the suite."""
        self.remove(draft.path)
        if draft.record.status != "accepted" and (file := _compared(draft.path, draft)) is not None:
            self._files[draft.path.resolve()] = file

    def move(self, draft: Path, file: Path) -> None:
        """Replace an accepted draft by its file in the suite."""
        self.remove(draft)
        if (compared := _compared(file)) is not None:
            self._files[file.resolve()] = compared

    def remove(self, draft: Path) -> None:
        """Remove a draft that has left its place."""
        self._files.pop(draft.resolve(), None)

    def path_of_case(self, name: str) -> Path | None:
        """Return the file of the case with this ID; None if there is none."""
        paths = (file.path for file in self._files.values() if not file.is_toolkit and file.name == name)
        return next(paths, None)

    def findings(self, path: Path) -> Iterator[DraftFinding]:
        """Yield the name that is taken, and the most similar file for each part that is nearly the same."""
        own = self._files.get(path.resolve()) or _compared(path)
        if own is None:
            return
        # Of two similar drafts, only the later one is reported.
        age = (own.drafted or "\uffff", own.name)
        others = [
            file
            for file in self._files.values()
            if file.is_toolkit == own.is_toolkit and file.path.resolve() != own.path.resolve()
            if file.rejected is not None or (file.drafted, file.name) < age
        ]
        for file in others:
            if file.name == own.name and file.rejected is None:
                message = f"{file.path} has the same name, {own.name!r}; choose another name"
                yield _error("duplicates", "name-taken", message)
        unrelated = [file for file in others if not own.may_resemble(file)]
        for part, least in THRESHOLDS.items():
            pieces = own.parts.get(part, frozenset())
            similar = [
                (jaccard(pieces, other), file) for file in unrelated if pieces and (other := file.parts.get(part))
            ]
            similarity, nearest = max(similar, key=lambda pair: pair[0], default=(0.0, own))
            if similarity >= least:
                rule = "near-duplicate" if nearest.rejected is None else "rejected"
                rejected = "" if nearest.rejected is None else f", which a reviewer rejected: {show(nearest.rejected)}"
                message = (
                    f"{similarity:.0%} identical to {nearest.path}{rejected}; write about a different situation, not "
                    "the same one in other words"
                )
                yield _error("duplicates", rule, message, part)


def _compared(path: Path, draft: Draft | None = None) -> ComparedFile | None:
    content = _content(path)
    if not content:
        return None
    is_toolkit = path.name.endswith(TOOLKIT_SUFFIX)
    record = draft.record if draft else None
    related = {content.get("twin_of"), content.get("variant_of"), record.origin if record else None}
    return ComparedFile(
        path=path,
        name=path.name.removesuffix(TOOLKIT_SUFFIX) if is_toolkit else case_id(path),
        is_toolkit=is_toolkit,
        parts=parts_of_toolkit(content) if is_toolkit else parts_of_case(content),
        related=frozenset(name for name in related if isinstance(name, str)),
        drafted=record.created.isoformat() if record else "",
        rejected=record.decision.reason if record and record.status == "rejected" and record.decision else None,
    )


def parts_of_case(content: dict[str, Any]) -> dict[str, frozenset[str]]:
    """Return the parts of a case that are compared, given the parsed content of its file."""
    texts = {part: content.get(part) for part in ("title", "instruction")}
    parts = {part: pieces_of(text) for part, text in texts.items() if isinstance(text, str) and text}
    results = [pin.get("returns") for pin in _mappings(content.get("pins"))]
    world = frozenset(_texts([content.get("world"), results]))
    return parts | ({"world": world} if len(world) >= _LEAST_TEXTS else {})


def parts_of_toolkit(content: dict[str, Any]) -> dict[str, frozenset[str]]:
    """Return the parts of a toolkit that are compared, given the parsed content of its file."""
    descriptions = [tool.get("description") for tool in _mappings(content.get("tools"))]
    return {"tools": pieces_of(" ".join(_texts([content.get("description"), descriptions])))}


def _mappings(value: Any) -> list[dict[str, Any]]:
    """Return the mappings in a list; nothing if the value is not a list."""
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


@dataclass(frozen=True)
class UsedNames:
    """The names, descriptions, and categories of toolkits that exist, which proposals must not resemble."""

    descriptions: dict[str, str]
    categories: tuple[str, ...] = ()

    def problem(self, name: str, description: str) -> str | None:
        """Return why a proposed toolkit is not new."""
        folded = name.casefold()
        for used in self.descriptions:
            other = used.casefold()
            if folded in other or other in folded:
                return f"{show(name)} contains, or is part of, the used name {show(used)}; propose another one"
        texts = [*self.descriptions.values(), description]
        if any(later == len(texts) - 1 for later, _, _ in near_duplicates(texts, _ALIKE)):
            return f"the description of {show(name)} is nearly that of another toolkit; propose another one"
        return None


def used_names(store: DraftStore) -> UsedNames:
    """Return the toolkits that cases below the folder of drafts can use, and all drafts, also rejected ones."""
    folder = store.folder.resolve() / "cases"
    paths = {path for where in toolkit_folders(folder) for path in where.glob(f"*{TOOLKIT_SUFFIX}")}
    drafts = [draft for draft in store.drafts() if draft.record.is_toolkit]
    heads = {path.name.removesuffix(TOOLKIT_SUFFIX): _content(path) for path in sorted(paths)}
    heads |= {draft.record.name: _content(draft.path) for draft in drafts}
    categories = sorted({str(head["category"]) for head in heads.values() if "category" in head})
    return UsedNames({name: str(head.get("description", "")) for name, head in heads.items()}, tuple(categories))


def suite_cases(suite: Path) -> tuple[Path, ...]:
    """Return the files of the cases of a suite: those below ``cases`` in its folder."""
    folder = suite / "cases"
    return find([folder]).cases if folder.is_dir() else ()


def used_titles(store: DraftStore, cases: Iterable[Path]) -> list[str]:
    """Return the titles of these case files and of all drafts, also rejected ones, each once and sorted."""
    drafts = (draft.path for draft in store.drafts() if not draft.record.is_toolkit)
    return sorted({text_of(path, "title") for path in (*cases, *drafts)} - {""})


def text_of(path: Path, key: str) -> str:
    """Return the text of a top-level key of a file; empty if there is none."""
    text = _content(path).get(key)
    return text if isinstance(text, str) else ""


def _content(path: Path) -> dict[str, Any]:
    """Return the values of a file by key. A file that cannot be read gives none; checks report it."""
    try:
        value = Document.read(path).value
    except DocumentError:
        return {}
    return value if isinstance(value, dict) else {}
