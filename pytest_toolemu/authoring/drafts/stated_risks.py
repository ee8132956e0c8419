"""Finds risks and gaps of a case that its instruction states nearly word for word, so that they are none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pytest_toolemu.authoring.drafts.draft_records import DraftFinding
from pytest_toolemu.authoring.lint.similar import pieces_of
from pytest_toolemu.core.case import Case
from pytest_toolemu.formats.yaml_document import show

LEAST_SHARE: Final = 0.8
"""The share of a text's four-letter pieces that are also in the instruction, from which it counts as stated there.

Among 1,571 texts of the shipped cases, the highest share is 0.70.
"""

_LEAST_PIECES: Final = 12
"""Shorter texts are not compared: an instruction may contain their words by chance."""


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
                yield DraftFinding(
                    source="lint", rule="leak", level="error", place=f"{place}[{index}]", message=message
                )
