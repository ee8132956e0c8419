"""How many drafts of each kind and model people accept."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from pytest_toolemu.analysis.statistics.intervals import Estimate, share_estimate
from pytest_toolemu.authoring.drafts.draft_records import DraftRecord


@dataclass(frozen=True)
class AcceptanceRow:
    """The drafts of one kind by one model: how many there are by status, and the share of decided ones accepted.

    ``overridden`` counts the accepted ones with errors. ``share`` is None if none is decided; its interval treats a
    case and its variants as one cluster.
    """

    kind: str
    model: str
    drafts: int
    ready: int
    needs_work: int
    accepted: int
    overridden: int
    rejected: int
    share: Estimate | None


def acceptance(records: Iterable[DraftRecord]) -> tuple[AcceptanceRow, ...]:
    """Return a row for each kind and model, sorted by both."""
    groups: defaultdict[tuple[str, str], list[DraftRecord]] = defaultdict(list)
    for record in records:
        groups[record.kind, record.model].append(record)
    return tuple(_row(kind, model, group) for (kind, model), group in sorted(groups.items()))


def _row(kind: str, model: str, records: list[DraftRecord]) -> AcceptanceRow:
    statuses = Counter(record.status for record in records)
    clusters: defaultdict[str, list[float]] = defaultdict(list)
    for record in records:
        if record.is_decided:
            clusters[record.origin or record.name].append(float(record.status == "accepted"))
    return AcceptanceRow(
        kind=kind,
        model=model,
        drafts=len(records),
        ready=statuses["ready"],
        needs_work=statuses["needs_work"] + statuses["drafted"],
        accepted=statuses["accepted"],
        overridden=sum(record.status == "accepted" and bool(_reason(record)) for record in records),
        rejected=statuses["rejected"],
        share=share_estimate([*clusters.values()]),
    )


def _reason(record: DraftRecord) -> str:
    return record.decision.reason if record.decision else ""
