"""All automatic checks on one draft."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Final

from pytest_toolemu.authoring.drafts.card_results import CardResults
from pytest_toolemu.authoring.drafts.check_models import CheckModels
from pytest_toolemu.authoring.drafts.draft_card import DraftCard, worst_first
from pytest_toolemu.authoring.drafts.draft_corpus import DraftCorpus
from pytest_toolemu.authoring.drafts.draft_records import AskedSource, DraftFinding, FindingLevel
from pytest_toolemu.authoring.drafts.draft_store import Draft, DraftStore
from pytest_toolemu.authoring.drafts.quick_runs import (
    NO_OP,
    no_op_findings,
    run_no_op,
    run_trials,
    trial_findings,
)
from pytest_toolemu.authoring.drafts.reference_findings import play_and_check
from pytest_toolemu.authoring.drafts.stated_risks import stated_risks
from pytest_toolemu.authoring.lint import LintResult, lint_files
from pytest_toolemu.authoring.lint.rules import LintProblem
from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.core.identity import identity_of, provider_and_name
from pytest_toolemu.core.run import hashes_of, sha256
from pytest_toolemu.core.toolkit import SUFFIX as TOOLKIT_SUFFIX
from pytest_toolemu.core.verdict import Evaluator
from pytest_toolemu.errors import DocumentError
from pytest_toolemu.formats.yaml_document import show

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


async def check_draft(
    path: Path, corpus: DraftCorpus, *, models: CheckModels | None = None, drafted_by: str = ""
) -> DraftCard:
    """Return the card of a draft.

    ``corpus`` are the files that it must not repeat. ``drafted_by`` is the model that wrote the draft, as
    PROVIDER:NAME: a judge with this name is not independent, which is a finding. Findings with the level ``error``
    are those to correct. Raise ModelError if a judge cannot be reached, and NotRunError if the budget is spent.
    """
    models = models or CheckModels()
    lint = await _lint(path, corpus)
    of_lint = [finding for _, finding in lint_findings(lint, path)]
    findings = [*of_lint, *corpus.findings(path), *_own_provenance(lint, path)]
    if path not in lint.cases:
        return DraftCard(path, worst_first(findings))
    resolved_case = load_case(path)
    findings += stated_risks(resolved_case.case)
    played = await play_and_check(resolved_case, models)
    # Lint reports some of these problems, too, as it does for cases that people write.
    messages = {finding.message for finding in played.findings}
    findings = [finding for finding in findings if finding.message not in messages]
    findings += [*played.findings, *_dependent(models.judges, drafted_by)]
    quick_runs = [await run_no_op(resolved_case)]
    if not any(finding.message.startswith(_IDLE_AGENT) for finding in findings):
        findings += no_op_findings(quick_runs[0])
    if models.agent is not None:
        trials = await run_trials(resolved_case, models)
        findings += trial_findings(trials)
        quick_runs += trials
    results = CardResults(
        references=played.scores,
        mutants=len(played.mutants),
        noticed=sum(mutant.noticed for mutant in played.mutants),
        quick_runs=tuple(quick_runs),
    )
    return DraftCard(path, worst_first(findings), results, played.mutants)


async def check_stored(
    store: DraftStore, draft: Draft, corpus: DraftCorpus, models: CheckModels | None = None
) -> tuple[Draft, DraftCard]:
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
    card = await check_draft(draft.path, corpus, models=models.without(kept), drafted_by=record.model)
    findings = worst_first(
        [
            *card.findings,
            *_rejected_before(store, draft, card),
            *(finding for finding in record.findings if finding.source in kept),
        ]
    )
    card = dataclasses.replace(card, findings=findings, results=_with_kept(card.results, record.results, kept))
    updated = store.update(
        draft,
        status=card.status,
        findings=findings,
        results=card.results,
        checked=checked,
        models_asked={**names, **kept},
    )
    return updated, card


def _with_kept(new: CardResults, old: CardResults | None, kept: Container[AskedSource]) -> CardResults:
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


def _rejected_before(store: DraftStore, draft: Draft, card: DraftCard) -> Iterator[DraftFinding]:
    """Yield a finding if a person rejected the same draft, also if it is a variant, which may resemble others."""
    rejected = store.rejected_before(draft.path.read_text(encoding="utf-8", errors="replace"), draft.record.kind)
    if rejected is None or rejected.record.decision is None or any(each.rule == "rejected" for each in card.findings):
        return
    message = (
        f"a reviewer rejected the same draft as {rejected.path}: {show(rejected.record.decision.reason)}; write a "
        "different one"
    )
    yield DraftFinding(source="duplicates", rule="rejected", level="error", message=message)


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
            yield problem, _lint_finding(problem)


def _lint_finding(problem: LintProblem) -> DraftFinding:
    return DraftFinding(
        source="lint",
        rule=problem.rule,
        level=_LEVELS.get(problem.rule, problem.level),
        place=f"line {problem.line}",
        message=problem.message,
    )


def _own_provenance(lint: LintResult, path: Path) -> Iterator[DraftFinding]:
    """Yield a finding if a draft says who accepted it: only the command that a person uses may write that."""
    part = lint.cases.get(path) or lint.toolkits.get(path)
    if part is not None and part.provenance is not None:
        message = f"the draft names a reviewer, {part.provenance.reviewer!r}; remove 'provenance'"
        yield DraftFinding(source="lint", rule="provenance", level="error", place="provenance", message=message)


def _dependent(judges: tuple[Evaluator, ...], drafted_by: str) -> Iterator[DraftFinding]:
    for judge in judges:
        model = identity_of(judge).get("model", {})
        if drafted_by and drafted_by == provider_and_name(model):
            message = f"the judge {drafted_by} wrote the draft, so it is not independent; use another judge"
            yield DraftFinding(source="judge", rule="same-model", level="warning", message=message)
            return
