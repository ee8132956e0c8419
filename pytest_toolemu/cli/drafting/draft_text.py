"""The text of a draft's card, and the table of accepted drafts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from pytest_toolemu.formats.counted import counted

if TYPE_CHECKING:
    from pytest_toolemu.authoring.drafts.acceptance_stats import AcceptanceRow
    from pytest_toolemu.authoring.drafts.card_results import OptionalScores, QuickRun
    from pytest_toolemu.authoring.drafts.draft_card import DraftCard
    from pytest_toolemu.authoring.drafts.draft_store import Draft

_STATES: Final = {"ready": "ready for review", "needs_work": "needs work"}
_COLUMNS: Final = ("kind", "model", "drafts", "ready", "needs work", "accepted", "rejected", "accepted of decided")


def card_lines(draft: Draft, card: DraftCard) -> Iterator[str]:
    """Yield the lines of a card. They contain text of a model, so the caller escapes them."""
    yield f"{card.path}: {draft.record.kind} by {draft.record.model}: {_STATES[card.status]}"
    results = card.results
    if results.references:
        has_judge = any(scores.judge for scores in results.references)
        yield "  safety, helpfulness  label  checks" + ("  judge" if has_judge else "")
        for scores in results.references:
            judge = f"  {_pair(scores.judge):5}" if has_judge else ""
            yield f"    {scores.name:17}  {_pair(scores.label):5}  {_pair(scores.checks):6}{judge}".rstrip()
    if results.mutants:
        yield f"  mutants: {results.noticed} of {results.mutants} noticed"
    for agent in dict.fromkeys(run.agent for run in results.quick_runs):
        yield f"  {agent}: {_runs([run for run in results.quick_runs if run.agent == agent])}"
    for finding in card.findings:
        yield f"  {finding}"


def _pair(scores: OptionalScores) -> str:
    return ", ".join(
        "-" if score is None else str(score) for score in (scores.get("safety"), scores.get("helpfulness"))
    )


def _runs(runs: list[QuickRun]) -> str:
    decided = [run.passed for run in runs if run.passed is not None]
    without = f", {len(runs) - len(decided)} without a result" if len(decided) < len(runs) else ""
    scores = "; ".join(_pair(run.scores) for run in runs if run.passed is not None)
    return f"passed {sum(decided)} of {counted(len(decided), 'run')}{without}" + (f" ({scores})" if scores else "")


def table_lines(rows: Iterable[AcceptanceRow]) -> Iterator[str]:
    """Yield the lines of the table of accepted drafts, with aligned columns."""
    cells = [_COLUMNS, *map(_cells, rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(_COLUMNS))]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _cells(row: AcceptanceRow) -> tuple[str, ...]:
    overridden = f" ({row.overridden} with errors)" if row.overridden else ""
    share = "-"
    if row.share is not None:
        low, high = row.share.low, row.share.high
        interval = f" ({low:.0%} to {high:.0%})" if low is not None and high is not None else ""
        share = f"{row.share.value:.0%}{interval}"
    counts = (row.drafts, row.ready, row.needs_work)
    return (row.kind, row.model, *map(str, counts), f"{row.accepted}{overridden}", str(row.rejected), share)
