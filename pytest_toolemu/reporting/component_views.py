"""What the runs of a report were made with: agents, emulators, judges, fallbacks, worlds, datasets, and servers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pytest_toolemu.analysis.agent_summary import spending_text
from pytest_toolemu.analysis.cascade_use import cascade_totals
from pytest_toolemu.analysis.run_summary import judges_of, origins
from pytest_toolemu.core.identity import ComponentName
from pytest_toolemu.core.run_notes import notes_in_words
from pytest_toolemu.formats.visible_text import visible
from pytest_toolemu.models.pricing import Cost
from pytest_toolemu.reporting.report_data import ReportData
from pytest_toolemu.sessions.manifest_records import WorldCounts
from pytest_toolemu.sessions.world_builds import counts_text

_KINDS: Final = (
    "agent",
    "emulator",
    "judge",
    "cascade",
    "fallback",
    "no structured output",
    "refused parameters",
    "reported model",
    "worlds",
    "dataset",
    "edition",
    "server",
)


@dataclass(frozen=True)
class ComponentView:
    """A component of the runs, such as an agent or judge; ``hash`` covers its whole configuration."""

    kind: str
    name: str
    hash: str = ""
    note: str = ""


def component_views(report: ReportData) -> list[ComponentView]:
    """Return the components of the runs by kind, each once."""
    views = (*_components(report), *_fallbacks(report), *_of_sessions(report))
    return sorted(dict.fromkeys(views), key=lambda view: (_KINDS.index(view.kind), view.name, view.hash))


def _components(report: ReportData) -> Iterator[ComponentView]:
    """Yield agents, emulators, judges with their calibration, and the cases with their datasets."""
    for run in report.runs:
        if run.made_by:
            prompt = f", prompt {run.prompt}" if run.prompt else ""
            yield _component("agent", run.made_by, f"{run.summary.agent}{prompt}")
    judges = judges_of(report.run_summaries)
    for summary in report.run_summaries:
        if summary.emulator:
            yield _component("emulator", summary.emulator)
    for judge in {judge for summary in report.run_summaries for judge in summary.judges}:
        fixed = "fixed rules of the cases"
        yield _component("judge", judge, _calibration(str(judge), report) if judge in judges else fixed)
    yield _component("dataset", report.cases)
    for line in origins(report.run_summaries):
        yield ComponentView("edition", visible(line))


def _fallbacks(report: ReportData) -> Iterator[ComponentView]:
    """Yield how often the stages of cascades decided, and what the runs fell back on."""
    runs = report.run_summaries
    for cascade in cascade_totals(use for run in runs for use in run.cascades):
        yield ComponentView("cascade", visible(cascade.line))
    for kind, line in notes_in_words(run.case_notes for run in runs):
        yield ComponentView(kind, visible(line.removeprefix("fallback: ")))


def _of_sessions(report: ReportData) -> Iterator[ComponentView]:
    """Yield the worlds that the sessions built, and the servers that they started."""
    for manifest in report.manifests:
        if manifest.worlds:
            yield _worlds_view(manifest.worlds, manifest.cost.get("builder"))
        for server in manifest.servers:
            name, version = f"vllm serve {server.model}", f"vLLM {server.version}"
            yield ComponentView("server", visible(name), note=visible(version))


def _worlds_view(counts: WorldCounts, cost: Cost | None) -> ComponentView:
    """Return the worlds that a session built, with their cost, which is part of no run."""
    note = f"USD {spending_text('builder', cost)}" if cost else ""
    return ComponentView("worlds", visible(counts_text(counts)), note=visible(note))


def _component(kind: str, name: ComponentName, note: str = "") -> ComponentView:
    return ComponentView(kind, name.label, name.hash, note)


def _calibration(judge: str, report: ReportData) -> str:
    """Return the calibration status of a judge."""
    from pytest_toolemu.analysis.calibration.calibration_file import calibration_status

    return calibration_status(judge, report.calibrations)
