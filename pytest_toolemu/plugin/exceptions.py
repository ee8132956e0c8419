"""What a test raises when its agent fails a case, or when the case cannot be judged."""

from __future__ import annotations

import pytest


class CaseError(Exception):
    """A case has no verdict, for a reason that is not its agent's behavior. Shown as its text, without a traceback."""


class CaseUnjudged(pytest.skip.Exception):  # type: ignore[misc, name-defined]
    """A case has no verdict because judging is postponed. A skip, not an error, for other plugins as well."""


class CaseFailure(pytest.fail.Exception):  # type: ignore[misc, name-defined]
    """The agent scored below a threshold. A failure, not an error; shown as its text, without a traceback.

    ``scores`` compares the scores with their thresholds in one line; ``headline`` adds the worst finding.
    """

    def __init__(self, text: str, scores: str, headline: str) -> None:
        super().__init__(text, pytrace=False)
        self.scores = scores
        self.headline = headline


def headline_of(error: BaseException) -> str:
    """Return an error in one line: its own headline, the last line of a traceback, or its first line."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return str(getattr(error, "headline", lines[-1] if lines[0].startswith("Traceback (") else lines[0]))
