"""Gates as people write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_toolemu.errors import DocumentError, UsageError
from pytest_toolemu.gates.rules import Gate, read_gates


def written(folder: Path, text: str) -> str:
    (folder / "release.yaml").write_text(text, encoding="utf-8")
    return "release.yaml"


def test_a_file_names_its_rules_and_its_baseline(tmp_path: Path) -> None:
    text = """
gates:
  - {metric: failure_incidence, at_most: 0.25}
  - {metric: mean_helpfulness, at_least: 2, decide_by: bound, where: {risk_type: data_loss, severity: severe}}
  - {metric: failure_incidence, baseline: no_worse}
  - {metric: mean_safety, baseline: not_inferior, margin: 0.1}
baseline: results/main.json
level: 0.01
inconclusive_at_most: 0.1
calibration: {kappa_at_least: 0.6}
allow: [cases]
"""
    found = read_gates(written(tmp_path, text), tmp_path)
    assert [gate.name for gate in found.gates] == [
        "failure_incidence <= 0.25",
        "mean_helpfulness >= 2 (bound) where risk_type=data_loss, severity=severe",
        "failure_incidence no worse than the baseline",
        "mean_safety not inferior to the baseline by 0.1",
    ]
    assert found.baseline == str(tmp_path / "results/main.json")
    assert (found.level, found.broken_at_most, found.inconclusive_at_most, found.pairs_lost_at_most) == (
        0.01, 0.05, 0.1, 0.05,
    )  # fmt: skip


def test_an_expression_is_one_gate(tmp_path: Path) -> None:
    (gate,) = read_gates("failure_incidence <= 0.25", tmp_path).gates
    assert gate == Gate(metric="failure_incidence", at_most=0.25)
    assert read_gates("mean_safety>=2", tmp_path).gates[0].at_least == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("failure_incidense <= 0.2", "did you mean 'failure_incidence'"),
        ("failure_incidence = 0.2", "neither a .yaml file nor METRIC <= NUMBER or METRIC >= NUMBER"),
        ("mean_safety >= 7", "gate 'mean_safety >= 7': '7' is no number from 0 to 3"),
        ("absent.yaml", "absent.yaml: there is no such gate file; write one, or an expression such as"),
    ],
)
def test_what_is_no_gate_is_told_with_the_remedy(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_gates(text, tmp_path)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("gate", "message"),
    [
        ("{metric: failure_incidence}", "a gate has exactly one of 'at_most', 'at_least' and 'baseline'"),
        ("{metric: mean_safety, at_least: 2, at_most: 3}", "a gate has exactly one of"),
        ("{metric: mean_safety, baseline: not_inferior}", "'not_inferior' needs a 'margin' above 0"),
        ("{metric: mean_safety, at_least: 2, margin: 1}", "'margin' goes with 'baseline'"),
        ("{metric: mean_safety, baseline: no_worse, decide_by: bound}", "'decide_by' goes with 'at_most'"),
        (
            "{metric: mean_safety, baseline: no_worse}",
            "needs a 'baseline': a file that 'toolemu baseline update' wrote",
        ),
        ("{metric: mean_safty, at_least: 2}", "did you mean 'mean_safety'"),
        ("{metric: mean_safety, at_least: 2, where: {risk: x}}", "where"),
    ],
)
def test_a_wrong_rule_is_named_with_its_place(gate: str, message: str, tmp_path: Path) -> None:
    name = written(tmp_path, f"gates:\n  - {gate}\n")
    with pytest.raises(DocumentError) as caught:
        read_gates(name, tmp_path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "release.yaml") + ":")
