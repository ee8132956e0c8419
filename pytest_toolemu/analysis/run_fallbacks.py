"""What runs fell back on, as lines for people: schemas and parameters that were left out, and models asked instead."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_toolemu.core.run import Run
from pytest_toolemu.core.run_parts.model_fallbacks import ModelFallback, fallback_lines, model_fallbacks_of
from pytest_toolemu.core.run_parts.refused_parameters import (
    RefusedParameters,
    refused_parameter_text,
    refused_parameters_of,
)
from pytest_toolemu.core.run_parts.structured_output_fallbacks import Fallback, fallback_text, fallbacks_of, totals


@dataclass(frozen=True)
class RunFallbacks:
    """What a run fell back on: ``schemas`` that were part of the prompt, and ``models`` that were asked instead.

    ``parameters`` are those that endpoints refused, so that their defaults applied.
    """

    case_id: str = ""
    schemas: tuple[Fallback, ...] = ()
    models: tuple[ModelFallback, ...] = ()
    parameters: tuple[RefusedParameters, ...] = ()

    @classmethod
    def of(cls, run: Run) -> RunFallbacks:
        """Return the fallbacks of a run."""
        calls = run.exchanges
        return cls(run.case_id, fallbacks_of(calls), model_fallbacks_of(calls), refused_parameters_of(calls))


def fallback_notes(runs: Iterable[RunFallbacks]) -> list[str]:
    """Return a line for each schema and parameter that was not sent, and each fallback model that was asked."""
    runs = list(runs)
    schemas = totals(fallback for run in runs for fallback in run.schemas)
    parameters = totals(refused for run in runs for refused in run.parameters)
    sentences = (*map(fallback_text, schemas), *map(refused_parameter_text, parameters))
    return [*sentences, *fallback_lines((run.case_id, run.models) for run in runs)]
