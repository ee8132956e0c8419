"""Refuses a session before its first case if a cascade adds more error than its gates allow, or is not calibrated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import get_args

from pytest_toolemu.analysis.calibration.calibration_file import judge_reliabilities
from pytest_toolemu.analysis.gates.gate_decision import check_added_error, format_limit
from pytest_toolemu.analysis.gates.gate_file import Gates
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.identity import ComponentName, component_name, identity_of
from pytest_toolemu.core.verdict import CASCADE_KIND
from pytest_toolemu.errors import UsageError
from pytest_toolemu.plugin.collection.item_agents import agent_configs
from pytest_toolemu.plugin.services import Services
from pytest_toolemu.settings import cascade_names


def check_cascades(services: Services, gates: Iterable[Gates]) -> None:
    """Raise UsageError for a cascade whose calibration does not show the added error that the gates require.

    Cascades of fixtures are known only after the runs; the gates decide on these.
    """
    rules = [each.calibration for each in gates if each.calibration and each.calibration.added_error_at_most]
    if not rules:
        return
    reliabilities = judge_reliabilities(services.files.calibrations)
    for judge in dict.fromkeys(_cascades(services)):
        reliability = reliabilities.get(str(judge))
        for rule in rules:
            limit = rule.added_error_at_most or 0.0
            check = check_added_error(rule, limit, judge, reliability)
            if check.is_met:
                continue
            if reliability is None:
                problem = f"{check.text}, and pass its file with --toolemu-calibration"
            else:
                remedy = "calibrate it with more labels, or name only its strong judge with --toolemu-evaluator"
                problem = f"{judge}: {check.text}; {remedy}"
            raise UsageError(f"the gates limit the added error of cascades to {format_limit(limit)}, but {problem}")


def _cascades(services: Services) -> Iterator[ComponentName]:
    """Yield the names of the cascades that the settings name, as they are in runs and calibrations."""
    components, settings = services.models.open_components(), services.session.settings
    metrics: tuple[Metric, ...] = get_args(Metric)
    for config in agent_configs(settings) or (None,):
        if any(map(cascade_names, components.names.evaluators(config))):
            for metric in metrics:
                for evaluator in components.evaluators(config, metric):
                    name = component_name(identity_of(evaluator, in_dialogue=settings.turns > 1))
                    if name.kind == CASCADE_KIND:
                        yield name
