"""The HTML report: a self-contained file that loads nothing."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from markupsafe import Markup, escape

from pytest_toolemu.analysis.gates.gate_metrics import format_interval
from pytest_toolemu.analysis.slices import DIMENSIONS, slice_values
from pytest_toolemu.analysis.statistics.intervals import Estimate
from pytest_toolemu.analysis.statistics.paired_tests import format_p_value
from pytest_toolemu.formats.visible_text import visible
from pytest_toolemu.reporting import report_view, score_plane
from pytest_toolemu.reporting.component_views import component_views
from pytest_toolemu.reporting.dialogue_text import ASKING_LABEL
from pytest_toolemu.reporting.report_data import ReportData, RunView
from pytest_toolemu.reporting.transcript import template_environment

if TYPE_CHECKING:
    import jinja2

_SEPARATOR: Final = re.compile(r"([:/_-])(?=\w)")
_MAX_TEXT: Final = 500
"""Largest number of characters of a text outside the transcripts."""


def report_page(report: ReportData) -> str:
    """Return the report page of one or several sessions; the report data must have transcripts."""
    return render("report.html.j2", "Agent safety report", report.runs, **section_values(report))


def section_values(report: ReportData) -> dict[str, Any]:
    """Return what the templates of the sections show, except the runs."""
    agents = report_view.agent_views(report)
    return {
        "report": report,
        "agents": agents,
        "grids": [report_view.slice_grid(report, dimension) for dimension in DIMENSIONS],
        "points": score_plane.score_points(agents),
        "agreements": list(report_view.evaluator_agreement(report.run_summaries)),
        "rechecked": report_view.recheck_line(report.run_summaries),
        "components": component_views(report),
        "emulation": report_view.side_by_side([agent.validity for agent in agents]),
        "judged": any(one.score is not None for run in report.run_summaries for one in run.scores),
        "dialogue": report_view.side_by_side([agent.dialogue for agent in agents]),
        "trials": report_view.side_by_side([agent.trials for agent in agents]),
    }


def render(
    name: str, title: str, runs: Sequence[RunView], prefixes: Mapping[int, str] | None = None, **values: Any
) -> str:
    """Render a page with its transcripts, styles, and script; the browser runs only the script with the given hash.

    ``prefixes`` are texts before the agent's name, by the number of the run.
    """
    css = Markup(template_text("page.css") + template_text("transcript.css"))
    js = Markup(template_text("page.js") + template_text("sortable.js"))
    return (
        _environment()
        .get_template(name)
        .render(
            title=title,
            runs=runs,
            prefixes=prefixes or {},
            css=css,
            css_hash=_hash(css),
            js=js,
            js_hash=_hash(js),
            longest=_MAX_TEXT,
            **values,
        )
    )


def page_environment() -> jinja2.Environment:
    """Return a new environment with the filters and constants of report pages.

    Contexts need ``longest``, as those of ``template_environment`` do.
    """

    environment = template_environment()
    environment.globals.update(
        labels=report_view.METRIC_LABELS,
        asking_label=ASKING_LABEL,
        few=report_view.FEW_VERDICTS,
        many=report_view.MANY_AGENTS,
        x=score_plane.x_position,
        y=score_plane.y_position,
    )
    environment.filters["thousands"] = "{:,}".format
    environment.filters["estimate"] = _estimate
    environment.filters["number"] = _number
    environment.filters["p_value"] = format_p_value
    environment.filters["range"] = _range
    environment.filters["counts"] = _counts
    environment.filters["breakable"] = _breakable
    environment.filters["slices"] = _slices
    return environment


_environment = cache(page_environment)


def _estimate(estimate: Estimate | None, pattern: str) -> str:
    return report_view.NO_VALUE if estimate is None else format_interval(estimate, pattern)


def _number(value: float | None, pattern: str) -> str:
    return report_view.NO_VALUE if value is None else pattern.format(value)


def _range(estimate: Estimate, pattern: str, scale: float = 1, unit: str = "") -> str:
    """Return the ends of the interval, times ``scale``, with a dash between; or why there is no interval."""
    if estimate.low is None or estimate.high is None:
        return estimate.no_interval
    return f"{pattern.format(scale * estimate.low)}\u2013{pattern.format(scale * estimate.high)}{unit}"


def _counts(counts: Mapping[Any, Any], pattern: str = "{count} {name}") -> str:
    """Return ``3 broken, 1 inconclusive``."""
    return ", ".join(pattern.format(name=name, count=count) for name, count in counts.items())


def _breakable(text: str) -> Markup:
    """Return a name with optional line breaks after its separators, for narrow columns."""
    return Markup(_SEPARATOR.sub(r"\1<wbr>", str(escape(text))))


def _slices(run: RunView) -> str:
    """Return the slices of a run for the filters, as ``|risk_type:data_loss|severity:mild|``."""
    slices = [f"{by}:{visible(value)}" for by in DIMENSIONS for value in slice_values(run.summary, by)]
    return f"|{'|'.join(slices)}|"


def template_text(name: str) -> str:
    """Return a file next to the templates, such as ``page.css``."""
    return resources.files("pytest_toolemu.reporting").joinpath("templates", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
