"""A session with gates refuses a cascade before its first case if it may add more error than they allow."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args

import pytest

from pytest_toolemu.analysis.calibration.judge_calibration import CascadeCalibration, JudgeCalibration
from pytest_toolemu.analysis.statistics.intervals import Estimate
from pytest_toolemu.components import Components
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.identity import component_name, identity_of
from pytest_toolemu.plugin.output.gate_hooks import GateHooks
from pytest_toolemu.settings.option_table import Settings
from pytest_toolemu.settings.resolution import resolve

CASCADE = "checks then gpt-5-mini then gpt-5"
GATES = "gates: [{metric: failure_incidence, at_most: 0.5}]\ncalibration: {added_error_at_most: 3%}\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a gate file."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-openai-0123456789")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    (tmp_path / "release.yaml").write_text(GATES)
    return tmp_path


def settings_of(evaluator: str = CASCADE, **options: Any) -> Settings:
    return resolve(
        {"toolemu_evaluator": [evaluator], "toolemu_gate": ["release.yaml"], **options}.get, lambda _: None, {}
    )


def start(root: Path, settings: Settings, *, high: float | None = None, is_collecting: bool = False) -> None:
    """Start the session, up to its first case; with ``high``, its cascades are calibrated with this upper end."""
    components = Components(settings)
    calibrations = {}
    if high is not None:
        added = CascadeCalibration(
            strong="b",
            decided={"checks": 0, "cheap": 80, "strong": 0},
            strong_accuracy=None,
            added_error=Estimate(0.01, -0.01, high, 80),
            reversed_runs=1,
            unpaired=0,
        )
        calibration = cast(Any, JudgeCalibration).model_construct(kappa=None, judged=0, labels=80, cascade=added)
        judges = [judge for metric in get_args(Metric) for judge in components.evaluators(None, metric)]
        calibrations = {str(component_name(identity_of(judge))): calibration for judge in judges}
    session = SimpleNamespace(settings=settings, calibrations=calibrations, permitted_error=None)
    process: Any = SimpleNamespace(session=session, runner=SimpleNamespace(components=components))
    pytest_session: Any = SimpleNamespace(
        config=SimpleNamespace(rootpath=root, option=SimpleNamespace(collectonly=is_collecting))
    )
    next(GateHooks(process).pytest_runtestloop(pytest_session))


def test_a_cascade_without_a_calibration_is_refused(root: Path) -> None:
    with pytest.raises(pytest.UsageError) as error:
        start(root, settings_of())
    head, _, rest = str(error.value).partition("#")
    assert head == (
        "toolemu: a gate limits the added error of cascade checks then openai:gpt-5-mini then openai:gpt-5 safety "
    )
    assert rest.endswith(
        " is uncalibrated; run 'toolemu calibrate' with this judge; pass its file with --toolemu-calibration, or "
        "name only its strong judge with --toolemu-evaluator"
    )


def test_a_cascade_that_may_add_more_error_than_allowed_is_refused(root: Path) -> None:
    with pytest.raises(pytest.UsageError) as error:
        start(root, settings_of(), high=0.05)
    assert (
        str(error.value)
        .partition("#")[2][8:]
        .startswith(
            ": added error +1.0% [-1.0%, +5.0%] on 80 labels, required at most 3% at the upper end, on at least 50 labels; "
        )
    )


@pytest.mark.usefixtures("root")
def test_a_calibration_with_another_threshold_is_that_of_another_cascade() -> None:
    names = {
        str(
            component_name(identity_of(Components(settings_of(toolemu_min_safety=least)).evaluators(None, "safety")[0]))
        )
        for least in ("2", "3")
    }
    assert len(names) == 2


def test_other_sessions_start(root: Path) -> None:
    start(root, settings_of(), high=0.03)
    start(root, settings_of("gpt-5"))
    start(root, settings_of(), is_collecting=True)
    start(root, settings_of(toolemu_estimate=True))
    (root / "release.yaml").write_text(GATES.replace("added_error_at_most: 3%", "kappa_at_least: 0.6"))
    start(root, settings_of())
