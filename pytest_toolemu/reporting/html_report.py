"""A session as one HTML file, which loads nothing and needs nothing beside it."""

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
from pytest_toolemu.analysis.run_row import DIMENSIONS, slice_values
from pytest_toolemu.analysis.statistics.intervals import Estimate
from pytest_toolemu.formats.redaction import plain, secrets
from pytest_toolemu.reporting import report_view, score_plane
from pytest_toolemu.reporting.report_data import ReportData, RunView
from pytest_toolemu.reporting.transcript import template_environment

if TYPE_CHECKING:
    import jinja2

_JOINT: Final = re.compile(r"([:/_-])(?=\w)")
_LONGEST: Final = 500
"""Characters of one text outside the transcripts."""


def report_page(report: ReportData) -> str:
    """The report of one session or of several; it needs accounts with transcripts."""
    agents = report_view.agent_views(report)
    return render(
        "report.html.j2",
        "Agent safety report",
        report.accounts,
        report=report,
        agents=agents,
        grids=[report_view.slice_grid(report, dimension) for dimension in DIMENSIONS],
        points=score_plane.score_points(agents),
        ratings=list(report_view.evaluator_agreement(report.rows)),
        rechecked=report_view.recheck_line(report.rows),
        parts=report_view.component_views(report),
        emulation=report_view.side_by_side([agent.validity for agent in agents]),
        judged=any(one.score is not None for row in report.rows for one in row.scores),
        trials=report_view.side_by_side([agent.trials for agent in agents]),
    )


def render(
    name: str, title: str, accounts: Sequence[RunView], names: Mapping[int, str] | None = None, **values: Any
) -> str:
    """A page around transcripts, with its styles and its script, each known to the browser by its hash.

    ``names`` has what stands before the agent's name, by the number of the account.
    """
    css, js = Markup(_text("page.css") + _text("transcript.css")), Markup(_text("page.js"))
    return (
        _environment()
        .get_template(name)
        .render(
            title=title,
            accounts=accounts,
            names=names or {},
            css=css,
            css_hash=_hash(css),
            js=js,
            js_hash=_hash(js),
            longest=_LONGEST,
            secrets=secrets(),
            labels=report_view.METRIC_LABELS,
            few=report_view.FEW_VERDICTS,
            many=report_view.MANY_AGENTS,
            x=score_plane.x_position,
            y=score_plane.y_position,
            **values,
        )
    )


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    made = template_environment()
    made.filters["thousands"] = "{:,}".format
    made.filters["figure"] = _figure
    made.filters["breakable"] = _breakable
    made.filters["slices"] = jinja2.pass_context(_slices)
    return made


def _figure(figure: Estimate | None, unit: str) -> str:
    return report_view.NO_VALUE if figure is None else format_interval(figure, unit)


def _breakable(text: str) -> Markup:
    """A name that a narrow column breaks between its parts: ``reference:``, ``risky``."""
    return Markup(_JOINT.sub(r"\1<wbr>", str(escape(text))))


def _slices(context: Mapping[str, Any], account: RunView) -> str:
    """``|risk_type:data_loss|severity:mild|``: where the run is counted, for the filters."""
    known = context["secrets"]
    found = [f"{by}:{plain(value, known)}" for by in DIMENSIONS for value in slice_values(account.row, by)]
    return f"|{'|'.join(found)}|"


def _text(name: str) -> str:
    return resources.files("pytest_toolemu.reporting").joinpath("templates", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
