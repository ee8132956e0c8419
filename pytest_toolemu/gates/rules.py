"""Gates as people write them: a YAML file, or ``failure_incidence <= 0.25`` on the command line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from pytest_toolemu.documents import Document, Record, closest
from pytest_toolemu.errors import UsageError
from pytest_toolemu.gates.baseline import Difference
from pytest_toolemu.gates.metrics import METRICS, MetricName
from pytest_toolemu.rows import Dimension

SUFFIXES: Final = (".yaml", ".yml")
Share = Annotated[float, Field(ge=0, le=1)]
# A whole number of a YAML file is a number too; records convert nothing of themselves.
Number = Annotated[float, Field(strict=False, ge=0, le=3)]
_EXPRESSION: Final = re.compile(r"\s*([a-z_]+)\s*(<=|>=)\s*([0-9.]+)\s*")


class Gate(Record):
    """One rule, which every agent of the session must meet.

    Absolute with ``at_most`` or ``at_least``; ``decide_by: bound`` holds the unfavourable end of the 95 % interval to
    it. Relative to the baseline with ``baseline``: ``no_worse`` fails where the agent is worse by more than ``margin``
    beyond chance, so noise passes; ``not_inferior`` fails unless it is shown to be worse by less than ``margin``, so
    noise fails. ``where`` restricts it to a slice, such as ``{risk_type: financial_loss}``.
    """

    metric: MetricName
    at_most: Number | None = None
    at_least: Number | None = None
    decide_by: Literal["estimate", "bound"] = "estimate"
    baseline: Literal["no_worse", "not_inferior"] | None = None
    margin: Number = 0.0
    where: dict[Dimension, str] = {}

    @model_validator(mode="after")
    def _one_rule(self) -> Gate:
        given = [self.at_most is not None, self.at_least is not None, self.baseline is not None]
        if sum(given) != 1:
            raise ValueError("a gate has exactly one of 'at_most', 'at_least' and 'baseline'")
        if self.baseline == "not_inferior" and not self.margin:
            raise ValueError(
                "'not_inferior' needs a 'margin' above 0: no finite number of cases can show a margin of 0"
            )
        if self.baseline is None and self.margin:
            raise ValueError("'margin' goes with 'baseline'")
        if self.baseline is not None and self.decide_by != "estimate":
            raise ValueError("'decide_by' goes with 'at_most' and 'at_least'; a relative gate is a test already")
        return self

    @property
    def name(self) -> str:
        """The rule in one line: the name of its report."""
        if self.at_most is not None:
            rule = f"<= {self.at_most:g}"
        elif self.at_least is not None:
            rule = f">= {self.at_least:g}"
        else:
            rule = "no worse than the baseline" if self.baseline == "no_worse" else "not inferior to the baseline"
            rule += f" by {self.margin:g}" if self.margin else ""
        rule += " (bound)" if self.decide_by == "bound" else ""
        slice_ = ", ".join(f"{name}={value}" for name, value in self.where.items())
        return f"{self.metric} {rule}" + (f" where {slice_}" if slice_ else "")


class Calibration(Record):
    """The least that a judge's own calibration must show, by its quadratic kappa with the labels."""

    kappa_at_least: Annotated[float, Field(strict=False, ge=-1, le=1)]
    labels_at_least: Annotated[int, Field(ge=1)] = 50


class Gates(Record):
    """All rules of a file. ``level`` bounds the chance of any false alarm among its ``no_worse`` gates together.

    The shares of broken and inconclusive runs, and of pairs lost to them, are bounded whether or not a file says so:
    beyond them nothing is decided.
    """

    gates: tuple[Gate, ...] = ()
    baseline: str | None = None
    level: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    broken_at_most: Share = 0.05
    inconclusive_at_most: Share = 0.05
    pairs_lost_at_most: Share = 0.05
    calibration: Calibration | None = None
    allow: tuple[Difference, ...] = Field(
        default=(), description="Differences to the baseline that do not matter here, by name"
    )

    @model_validator(mode="after")
    def _baseline_is_there(self) -> Gates:
        if self.baseline is None and (relative := [gate.name for gate in self.gates if gate.baseline]):
            raise ValueError(f"{relative[0]!r} needs a 'baseline': a file that 'toolemu baseline update' wrote")
        return self


def read_gates(source: str, root: Path) -> Gates:
    """The gates of a file, whose baseline is relative to it, or of one expression.

    DocumentError for what is wrong in a file; UsageError for an expression that is none, or a file that is not there.
    """
    if not source.endswith(SUFFIXES):
        return Gates(gates=(_expression(source),))
    path = root / source
    if not path.is_file():
        raise UsageError(f"{source}: there is no such gate file; write one, or an expression such as "
                         "'failure_incidence <= 0.25'")  # fmt: skip
    gates = Document.read(path).build(Gates)
    if gates.baseline is not None:
        gates = gates.model_copy(update={"baseline": str(path.parent / gates.baseline)})
    return gates


def _expression(text: str) -> Gate:
    match = _EXPRESSION.fullmatch(text)
    metric = match.group(1) if match else ""
    if match is None or metric not in METRICS:
        hint = closest(metric, METRICS) if metric else ""
        raise UsageError(
            f"gate {text!r} is neither a .yaml file nor METRIC <= NUMBER or METRIC >= NUMBER{hint}; "
            f"metrics are {', '.join(METRICS)}"
        )
    side = "at_most" if match.group(2) == "<=" else "at_least"
    try:
        return Gate.model_validate({"metric": metric, side: float(match.group(3))})
    except ValueError:
        raise UsageError(f"gate {text!r}: {match.group(3)!r} is no number from 0 to 3") from None
