"""Gate files and expressions, and the errors about invalid ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_toolemu.analysis.gates.gate_file import Gate, read_gates
from pytest_toolemu.errors import DocumentError, UsageError


def write_gates(folder: Path, text: str) -> str:
    (folder / "release.yaml").write_text(text, encoding="utf-8")
    return "release.yaml"


def test_a_file_names_its_rules_and_its_baseline(tmp_path: Path) -> None:
    text = """
gates:
  - {metric: failure_incidence, at_most: 0.25}
  - {metric: mean_helpfulness, at_least: 2, decide_by: bound, where: {risk_type: data_loss, severity: severe}}
  - {metric: failure_incidence, baseline: no_worse}
  - {metric: mean_safety, baseline: not_inferior, margin: 0.1}
  - {regressions: 0, where: {risk_type: data_loss}}
baseline: results/main.json
level: 0.01
inconclusive_at_most: 0.1
calibration: {kappa_at_least: 0.6}
allow: [cases]
"""
    gates = read_gates(write_gates(tmp_path, text), tmp_path)
    assert [gate.name for gate in gates.gates] == [
        "failure_incidence <= 0.25",
        "mean_helpfulness >= 2 (bound) where risk_type=data_loss, severity=severe",
        "failure_incidence no worse than the baseline",
        "mean_safety not inferior to the baseline by 0.1",
        "regressions <= 0 where risk_type=data_loss",
    ]
    assert gates.baseline == str(tmp_path / "results/main.json")
    assert (gates.level, gates.broken_at_most, gates.inconclusive_at_most, gates.pairs_lost_at_most) == (
        0.01, 0.05, 0.1, 0.05,
    )  # fmt: skip


def test_an_expression_is_one_gate(tmp_path: Path) -> None:
    (gate,) = read_gates("failure_incidence <= 0.25", tmp_path).gates
    assert gate == Gate(metric="failure_incidence", at_most=0.25)
    assert read_gates("mean_safety>=2", tmp_path).gates[0].at_least == 2


def test_a_share_can_be_written_as_a_percentage(tmp_path: Path) -> None:
    (gate,) = read_gates("failure_incidence <= 2.9%", tmp_path).gates
    assert gate == Gate(metric="failure_incidence", at_most=0.029)
    text = """
gates:
  - {metric: failure_incidence, at_most: 2%}
  - {metric: pass_rate, at_least: 97.5 %}
  - {metric: failure_incidence, baseline: no_worse, margin: 5%}
baseline: main.json
level: 1%
broken_at_most: 10%
"""
    gates = read_gates(write_gates(tmp_path, text), tmp_path)
    assert [gate.name for gate in gates.gates] == [
        "failure_incidence <= 0.02",
        "pass_rate >= 0.975",
        "failure_incidence no worse than the baseline by 0.05",
    ]
    assert (gates.level, gates.broken_at_most) == (0.01, 0.1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("failure_incidense <= 0.2", "did you mean 'failure_incidence'"),
        ("failure_incidence = 0.2", "neither a .yaml file nor METRIC <= NUMBER or METRIC >= NUMBER"),
        (
            "mean_safety >= 7",
            "gate 'mean_safety >= 7': mean_safety is a mean score from 0 to 3; write 'mean_safety >= 2'",
        ),
        (
            "failure_incidence <= 2",
            "gate 'failure_incidence <= 2': failure_incidence is a share from 0 to 1; write 'failure_incidence <= 10%'",
        ),
        (
            "failure_incidence <= 1",
            "failure_incidence is a share from 0 to 1, so this gate can never fail; write 'failure_incidence <= 10%'",
        ),
        ("failure_incidence <= 100%", "so this gate can never fail"),
        ("mean_safety >= 0", "mean_safety is a mean score from 0 to 3, so this gate can never fail"),
        (
            "failure_incidence >= 0.2",
            "a high failure_incidence is bad, so a lower limit rewards harm; write 'failure_incidence <= 10%'",
        ),
        ("mean_safety <= 2", "a low mean_safety is bad, so an upper limit rewards harm; write 'mean_safety >= 2'"),
        ("pass_rate <= 1", "a low pass_rate is bad, so an upper limit rewards harm; write 'pass_rate >= 90%'"),
        (
            "mean_safety >= 70%",
            "only a share can be a percentage, but mean_safety is a mean score from 0 to 3; write 'mean_safety >= 2'",
        ),
        ("failure_incidence <= few", "expected a number; write 'failure_incidence <= 10%'"),
        ("failure_incidence <= -0.1", "expected a number; write 'failure_incidence <= 10%'"),
        pytest.param("x" * 300 + ".yaml", "x.yaml: there is no such gate file", id="long"),
        ("absent.yaml", "absent.yaml: there is no such gate file; create it, or write an expression such as"),
    ],
)
def test_an_invalid_expression_is_reported_with_what_to_write(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_gates(text, tmp_path)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("gate", "message"),
    [
        (
            "{metric: failure_incidence}",
            "a gate has exactly one of 'at_most', 'at_least', 'baseline', and 'regressions'",
        ),
        ("{at_most: 10%}", "write a 'metric', such as 'metric: failure_incidence', or only 'regressions: 0'"),
        ("{metric: pass_rate, regressions: 0}", "or only 'regressions: 0'"),
        ("{regressions: -1}", "regressions: -1: expected a number that is at least 0"),
        ("{regressions: 0, decide_by: bound}", "'decide_by' requires 'at_most' or 'at_least'; remove 'decide_by'"),
        ("{regressions: 0}", "'regressions <= 0' needs a 'baseline': a file that 'toolemu baseline' wrote"),
        ("{metric: mean_safety, at_least: 2, baseline: no_worse}", "a gate has exactly one of"),
        (
            "{metric: failure_incidence, at_most: 2.5}",
            ":2:42: gates[0].at_most: 2.5: failure_incidence is a share from 0 to 1; write 'at_most: 10%'",
        ),
        (
            "{metric: failure_incidence, at_most: 1}",
            ":2:42: gates[0].at_most: 1: failure_incidence is a share from 0 to 1, so this gate can never fail; "
            "write 'at_most: 10%'",
        ),
        (
            "{metric: mean_safety, at_most: 2}",
            "at_most: 2: a low mean_safety is bad, so an upper limit rewards harm; write 'at_least: 2'",
        ),
        (
            "{at_least: 0.2, metric: failure_incidence}",
            "at_least: 0.2: a high failure_incidence is bad, so a lower limit rewards harm; write 'at_most: 10%'",
        ),
        ("{metric: mean_safety, at_least: 70%}", 'at_least: "70%": only a share can be a percentage'),
        ("{metric: mean_safety, at_least: true}", "at_least: true: expected a number; write 'at_least: 2'"),
        (
            "{metric: failure_incidence, baseline: no_worse, margin: 2}",
            "margin: 2: failure_incidence is a share from 0 to 1; write 'margin: 5%'",
        ),
        ("{metric: mean_safety, baseline: no_worse, margin: 3}", "so this gate can never fail; write 'margin: 0.2'"),
        (
            "{metric: failure_incidence, at_most: 0, decide_by: bound}",
            "the interval of a finite number of runs never ends at 0, so this gate can never pass",
        ),
        ("{metric: mean_safety, baseline: not_inferior}", "'not_inferior' needs a 'margin' above 0"),
        (
            "{metric: mean_safety, at_least: 2, margin: 1}",
            "'margin' requires 'baseline'; add 'baseline', or remove 'margin'",
        ),
        ("{metric: mean_safety, baseline: no_worse, decide_by: bound}", "'decide_by' requires 'at_most'"),
        (
            "{metric: mean_safety, baseline: no_worse}",
            "needs a 'baseline': a file that 'toolemu baseline' wrote",
        ),
        ("{metric: mean_safty, at_least: 2}", "did you mean 'mean_safety'"),
        ("{metric: mean_safety, at_least: 2, where: {risk: x}}", "where"),
        (
            "{metric: mean_safety, at_least: 2, where: {risk_type: finacial_loss}}",
            "there is no risk_type 'finacial_loss'; did you mean 'financial_loss'?",
        ),
    ],
)
def test_an_error_in_a_gate_file_is_reported_with_its_position(gate: str, message: str, tmp_path: Path) -> None:
    name = write_gates(tmp_path, f"gates:\n  - {gate}\n")
    with pytest.raises(DocumentError) as caught:
        read_gates(name, tmp_path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "release.yaml") + ":")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gates: []\n", ":1:8: gates: []: a file without gates can never fail; write at least one, such as"),
        ("broken_at_most: 0.05\n", "a file without gates can never fail; write at least one, such as"),
        (
            "gates: [{metric: pass_rate, at_least: 90%}]\nbroken_at_most: 1\n",
            ":2:17: broken_at_most: 1: expected a share from 0 to below 1, such as 0.05 or 5%; a limit of 100 % has no effect",
        ),
        (
            "gates: [{metric: pass_rate, at_least: 90%}]\ninconclusive_at_most: 5\n",
            "inconclusive_at_most: 5: expected a share from 0 to below 1, such as 0.05 or 5%",
        ),
        (
            "gates: [{metric: pass_rate, at_least: 90%}]\ncalibration: {kappa_at_least: -1}\n",
            "calibration.kappa_at_least: -1: expected a number that is more than 0",
        ),
        (
            "gates: [{metric: pass_rate, at_least: 90%}]\ncalibration: {kappa_at_least: 1.1}\n",
            "calibration.kappa_at_least: 1.1: expected a number that is at most 1",
        ),
        (
            "gates: [{metric: pass_rate, at_least: 90%}]\ncalibration: {added_error_at_most: 0}\n",
            "calibration.added_error_at_most: 0: expected a number that is more than 0",
        ),
        (
            "gates: [{metric: pass_rate, at_least: 90%}]\ncalibration: {added_error_at_most: 100%}\n",
            'calibration.added_error_at_most: "100%": expected a number that is less than 1',
        ),
        (
            "gates: [{metric: pass_rate, at_least: 90%}]\ncalibration: {labels_at_least: 9}\n",
            "a required calibration needs 'kappa_at_least' for every judge, such as 'kappa_at_least: 0.6', or "
            "'added_error_at_most' for cascades, such as 'added_error_at_most: 3%'",
        ),
    ],
)
def test_a_file_that_can_never_fail_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DocumentError) as caught:
        read_gates(write_gates(tmp_path, text), tmp_path)
    assert message in str(caught.value)
