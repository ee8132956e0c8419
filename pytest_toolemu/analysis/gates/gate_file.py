"""Gates as users write them: in a YAML file, or as ``failure_incidence <= 0.25`` on the command line."""

from __future__ import annotations

import os
import re
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Final, Literal, cast

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from pytest_toolemu.analysis.metrics import GATE_METRICS, METRIC_NAMES, MetricName
from pytest_toolemu.analysis.run_summary import VALUES, Dimension
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.yaml_document import Document, Record, closest
from pytest_toolemu.settings.option import is_gate_file


def read_share(value: Any) -> float:
    """Read a limit on the share of runs that a session may lose; ValueError unless it is a share below 1."""
    share = parse_percent(value)
    if not _is_number(share) or not 0 <= share < 1:
        raise ValueError("expected a share from 0 to below 1, such as 0.05 or 5%; a limit of 100 % has no effect")
    return float(share)


Difference = Literal["dataset", "cases", "emulator", "judges", "trials"]
"""What may differ between a session and its baseline besides the agent, and so may explain a change of the metrics."""

LossLimit = Annotated[float, BeforeValidator(read_share)]
_EXPRESSION: Final = re.compile(r"\s*([a-z_]+)\s*(<=|>=)\s*(\S.*?)\s*")
_NUMBER: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?|\.[0-9]+")

SIGNS: Final[dict[LimitKey, str]] = {"at_most": "<=", "at_least": ">="}
_KEYS: Final = {sign: key for key, sign in SIGNS.items()}


class Gate(Record):
    """A rule about one metric that every agent of the session must meet.

    A gate has exactly one of ``at_most``, ``at_least``, ``baseline``, and ``regressions``. Limits and margins are in
    the unit of the metric; a share can also be written as a percentage, such as ``2%``. A limit outside the range of
    the metric, one that no agent can miss, and one that rewards harm are errors.
    """

    metric: MetricName = Field(
        default="pass_rate", description="Metric that the gate decides on; required except for regressions"
    )
    at_most: float | None = Field(
        default=None, description="Upper limit, for failure_incidence and quit_rate; the limit itself passes"
    )
    at_least: float | None = Field(
        default=None, description="Lower limit, for all other metrics; the limit itself passes"
    )
    decide_by: Literal["estimate", "bound"] = Field(
        default="estimate",
        description="Compare the limit with the estimate, or with the unfavorable end of the 95 % interval (bound)",
    )
    baseline: Literal["no_worse", "not_inferior"] | None = Field(
        default=None,
        description="no_worse fails if the agent is worse by more than 'margin' beyond chance, so noise passes; "
        "not_inferior fails unless the agent is shown to be worse by less than 'margin', so noise fails",
    )
    margin: float = Field(
        default=0.0, description="How much worse than the baseline the metric may be; required for not_inferior"
    )
    regressions: Annotated[int, Field(ge=0)] | None = Field(
        default=None,
        description="Largest number of cases that may fail now although they passed in the baseline, without 'metric'; "
        "a case passes if more than half of its trials pass",
    )
    where: dict[Dimension, str] = Field(
        default={}, description="Restrict the gate to a slice: a dimension with one of its values"
    )

    @model_validator(mode="before")
    @classmethod
    def _has_a_metric(cls, data: Any) -> Any:
        if isinstance(data, dict) and ("metric" in data) == ("regressions" in data):
            raise ValueError("write a 'metric', such as 'metric: failure_incidence', or only 'regressions: 0'")
        return data

    @field_validator("at_most", "at_least", "margin", mode="before")
    @classmethod
    def _limits_are_meaningful(cls, value: Any, info: ValidationInfo) -> Any:
        metric = info.data.get("metric")  # absent if it is itself an error
        return (
            value if value is None or metric is None else read_limit(metric, cast("LimitKey", info.field_name), value)
        )

    @field_validator("where")
    @classmethod
    def _slices_exist(cls, where: dict[Dimension, str]) -> dict[Dimension, str]:
        for dimension, value in where.items():
            if value not in (values := VALUES.get(dimension, (value,))):
                raise ValueError(f"there is no {dimension} {value!r}{closest(value, values)}")
        return where

    @model_validator(mode="after")
    def _is_one_rule(self) -> Gate:
        rules = [self.at_most, self.at_least, self.baseline, self.regressions]
        if sum(rule is not None for rule in rules) != 1:
            raise ValueError("a gate has exactly one of 'at_most', 'at_least', 'baseline', and 'regressions'")
        if self.baseline == "not_inferior" and not self.margin:
            raise ValueError(
                "'not_inferior' needs a 'margin' above 0: no finite number of cases can show a margin of 0"
            )
        if self.baseline is None and self.margin:
            raise ValueError("'margin' requires 'baseline'; add 'baseline', or remove 'margin'")
        if self.is_relative and self.decide_by != "estimate":
            raise ValueError("'decide_by' requires 'at_most' or 'at_least'; remove 'decide_by'")
        if self.decide_by == "bound" and never_met_by_a_bound(self.metric, self.limit):
            raise ValueError(
                f"the interval of a finite number of runs never ends at {self.limit:g}, so this gate can never pass; "
                "remove 'decide_by: bound' or choose a limit that is less strict"
            )
        return self

    @property
    def limit(self) -> float:
        """The limit of an absolute gate, in the metric's unit."""
        return (self.at_most if self.at_least is None else self.at_least) or 0.0

    @property
    def is_relative(self) -> bool:
        """Whether the gate compares with a baseline."""
        return self.baseline is not None or self.regressions is not None

    @property
    def name(self) -> str:
        """The rule in one line, which names the gate in reports."""
        if self.at_most is not None:
            rule = f"<= {self.at_most:.12g}"
        elif self.at_least is not None:
            rule = f">= {self.at_least:.12g}"
        else:
            rule = "no worse than the baseline" if self.baseline == "no_worse" else "not inferior to the baseline"
            rule += f" by {self.margin:.12g}" if self.margin else ""
        rule += " (bound)" if self.decide_by == "bound" else ""
        rule = f"{self.metric} {rule}" if self.regressions is None else f"regressions <= {self.regressions}"
        slice_ = ", ".join(f"{name}={value}" for name, value in self.where.items())
        return rule + (f" where {slice_}" if slice_ else "")


def parse_percent(value: Any) -> Any:
    """Return 0.02 for the text ``2%``, and any other value unchanged."""
    match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    return float(Fraction(match.group(1)) / 100) if match else value


class CalibrationRequirement(Record):
    """The least that the calibration of every judge must show; otherwise the gates are undecided."""

    kappa_at_least: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None,
        description="Lowest Cohen's kappa with quadratic weights between judge and labels, above 0 and at most 1",
    )
    added_error_at_most: Annotated[float, BeforeValidator(parse_percent), Field(gt=0, lt=1)] | None = Field(
        default=None,
        description="Largest error that a cascade may add to that of its strong judge: the limit for the upper end of "
        "the 95 % interval, a share above 0 and below 1; other judges need none",
    )
    labels_at_least: Annotated[int, Field(ge=1)] = Field(
        default=50, description="Lowest number of labeled runs in the calibration"
    )

    @model_validator(mode="after")
    def _requires_something(self) -> CalibrationRequirement:
        if self.kappa_at_least is None and self.added_error_at_most is None:
            raise ValueError(
                "a required calibration needs 'kappa_at_least' for every judge, such as 'kappa_at_least: 0.6', or "
                "'added_error_at_most' for cascades, such as 'added_error_at_most: 3%'"
            )
        return self


class Gates(Record):
    """The gates of a file, and the conditions under which they can be decided.

    The limits on broken runs, inconclusive runs, and lost pairs always apply: to all runs, and to the slice of each
    gate. Above a limit, the gates are undecided, which is an error and never a pass.
    """

    gates: Annotated[tuple[Gate, ...], Field(validate_default=True)] = Field(
        default=(), description="The gates; at least one"
    )
    baseline: str | None = Field(
        default=None,
        description="File that 'toolemu baseline' wrote, relative to the gate file; required by relative gates",
    )
    level: Annotated[float, BeforeValidator(parse_percent), Field(gt=0, lt=0.5)] = Field(
        default=0.05, description="Probability of any false alarm among all no_worse gates of the file together"
    )
    broken_at_most: LossLimit = Field(
        default=0.05, description="Largest share of broken runs with which gates are decided"
    )
    inconclusive_at_most: LossLimit = Field(
        default=0.05, description="Largest share of inconclusive runs with which gates are decided"
    )
    pairs_lost_at_most: LossLimit = Field(
        default=0.05, description="Largest share of pairs with the baseline that may lack a value on either side"
    )
    calibration: CalibrationRequirement | None = Field(
        default=None, description="The calibration that every judge must have; if absent, none is required"
    )
    allow: tuple[Difference, ...] = Field(
        default=(), description="Differences from the baseline that do not make a gate undecided"
    )

    @field_validator("gates")
    @classmethod
    def _not_empty(cls, value: tuple[Gate, ...]) -> tuple[Gate, ...]:
        if not value:
            raise ValueError(
                "a file without gates can never fail; write at least one, such as "
                "'gates: [{metric: failure_incidence, at_most: 10%}]'"
            )
        return value

    @model_validator(mode="after")
    def _baseline_is_there(self) -> Gates:
        if self.baseline is None and (relative := [gate.name for gate in self.gates if gate.is_relative]):
            raise ValueError(f"{relative[0]!r} needs a 'baseline': a file that 'toolemu baseline' wrote")
        return self


def read_gates(source: str, root: Path) -> Gates:
    """Read the gates of a file or of one expression; a baseline is relative to its gate file.

    DocumentError for a mistake in a file; UsageError for an invalid expression or a missing file.
    """
    if not is_gate_file(source):
        return Gates(gates=(_gate_of_expression(source),))
    path = root / source
    if not os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises an error if a name is too long
        raise UsageError(f"{source}: there is no such gate file; create it, or write an expression such as "
                         "'failure_incidence <= 0.25'")  # fmt: skip
    gates = Document.read(path).build(Gates)
    if gates.baseline is not None:
        gates = gates.model_copy(update={"baseline": str(path.parent / gates.baseline)})
    return gates


def _gate_of_expression(text: str) -> Gate:
    match = _EXPRESSION.fullmatch(text)
    name = match.group(1) if match else ""
    metric = next((each for each in METRIC_NAMES if each == name), None)
    if match is None or metric is None:
        hint = closest(name, METRIC_NAMES) if name else ""
        raise UsageError(
            f"gate {text!r} is neither a .yaml file nor METRIC <= NUMBER or METRIC >= NUMBER{hint}; "
            f"metrics are {', '.join(METRIC_NAMES)}"
        )
    key, number = _KEYS[match.group(2)], match.group(3)
    try:
        limit = read_limit(metric, key, float(number) if _NUMBER.fullmatch(number) else number, expression=True)
    except ValueError as error:
        raise UsageError(f"gate {text!r}: {error}") from None
    return Gate.model_validate({"metric": metric, key: limit})


LimitKey = Literal["at_most", "at_least", "margin"]
"""The keys of limits that can also be written as an expression."""

_PERCENT: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*")


def exact_fraction(limit: float) -> Fraction:
    """Return a float as the decimal number that the user wrote: 29/100 for ``0.29``."""
    return Fraction(repr(limit))


def read_limit(name: MetricName, key: LimitKey, value: Any, *, expression: bool = False) -> float:
    """Return a limit in the unit of its metric; ValueError says why it is a mistake and what to write instead.

    ``expression`` selects the notation of examples in error messages.
    """
    limit, metric = parse_percent(value), GATE_METRICS[name]

    def write(rule: LimitKey, text: str) -> str:
        return f"write '{name} {SIGNS[rule]} {text}'" if expression else f"write '{rule}: {text}'"

    if key == "margin":
        example = write("margin", "5%" if metric.percent else "0.2")
    else:
        example = write(metric.limit, "2" if not metric.percent else "10%" if metric.worse == 1 else "90%")
    range_ = f"{name} is {'a share' if metric.percent else 'a mean score'} from 0 to {metric.span}"
    if not _is_number(limit):
        raise ValueError(f"expected a number; {example}")
    if isinstance(value, str) and not metric.percent:
        raise ValueError(f"only a share can be a percentage, but {range_}; {example}")
    if key not in (metric.limit, "margin"):
        high, side = ("high", "a lower") if metric.worse == 1 else ("low", "an upper")
        raise ValueError(f"a {high} {name} is bad, so {side} limit rewards harm; {example}")
    if not 0 <= limit <= metric.span:
        raise ValueError(f"{range_}; {example}")
    if limit == (0 if key == "at_least" else metric.span):
        raise ValueError(f"{range_}, so this gate can never fail; {example}")
    return float(limit)


def never_met_by_a_bound(metric: MetricName, limit: float) -> bool:
    """Return whether the limit is the best possible value, which no interval of a finite number of runs can meet."""
    definition = GATE_METRICS[metric]
    return limit == (0 if definition.worse == 1 else definition.span)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
