"""Refuses sessions in which a case has several items that cannot be told apart: only the last report would count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from pytest_toolemu.plugin.session import RESOLVED_CASE, worker_count


def problem_of_items(config: pytest.Config, items: Iterable[pytest.Item]) -> str:
    """Return why results of these items would be lost, with a remedy; empty if each case is one item of the session."""
    return problem((item.nodeid for item in items if RESOLVED_CASE in item.stash), worker_count(config))


def problem(nodeids: Iterable[str], workers: int) -> str:
    """Return why results of cases would be lost. ``workers``: how many workers run every item."""
    if workers > 1:
        return (
            f"with --dist=each, all {workers} workers would run the same cases, and only the last report of each would "
            f"count; use --dist=load, and run each case several times with --toolemu-trials={workers}"
        )
    nodeid, count = next(iter(Counter(nodeids).most_common(1)), ("", 0))
    if count > 1:
        return (
            f"the case {nodeid} was collected {count} times, and only the last report of it would count; omit "
            f"--keep-duplicates, and run each case several times with --toolemu-trials={count}"
        )
    return ""
