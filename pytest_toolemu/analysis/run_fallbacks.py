"""The fallbacks in the requests of runs, as lines for people: schemas that were not sent, and models asked instead."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_toolemu.core.run import Run
from pytest_toolemu.core.run_parts.model_fallbacks import ModelFallback, fallback_lines, model_fallbacks_of
from pytest_toolemu.core.run_parts.structured_output_fallbacks import Fallback, fallback_text, fallbacks_of, totals


@dataclass(frozen=True)
class RunFallbacks:
    """What a run fell back on: ``schemas`` that were part of the prompt, and ``models`` that were asked instead."""

    case_id: str = ""
    schemas: tuple[Fallback, ...] = ()
    models: tuple[ModelFallback, ...] = ()

    @classmethod
    def of(cls, run: Run) -> RunFallbacks:
        """Return the fallbacks of a run."""
        return cls(run.case_id, fallbacks_of(run.exchanges), model_fallbacks_of(run.exchanges))


def fallback_notes(runs: Iterable[RunFallbacks]) -> list[str]:
    """Return a line for each schema that was not sent, and for each fallback model that was asked, with counts."""
    runs = list(runs)
    schemas = totals(fallback for run in runs for fallback in run.schemas)
    return [*map(fallback_text, schemas), *fallback_lines((run.case_id, run.models) for run in runs)]
