"""What a session writes beside its runs: the manifest, with settings, versions, datasets, and cost; and reports."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_toolemu.analysis.metrics import total_costs
from pytest_toolemu.analysis.run_summary import NOT_RUN, RunSummary
from pytest_toolemu.core.messages import Role
from pytest_toolemu.core.run import versions
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.text import visible
from pytest_toolemu.models.pricing import Cost, costs_of
from pytest_toolemu.plugin.collection.item_agents import agent_configs
from pytest_toolemu.plugin.session import TerminalNote, ToolemuSession, relative_path, unwritable_records
from pytest_toolemu.sessions.manifest_records import Manifest, PlannedCase, PlannedItem, ServerRecord
from pytest_toolemu.settings.resolution import ComponentNames

if TYPE_CHECKING:
    from pytest_toolemu.models.vllm_servers import ServerFleet


def write_manifest(session: ToolemuSession) -> None:
    """Write the manifest once per process, before its first case. Raise UsageError if it cannot be written.

    A worker keeps the controller's, and adds the planned cases, which only workers know.
    """
    store = session.store
    if session.is_manifest_written:
        return
    try:
        stored = store.manifest() if session.is_worker else Manifest()
        if stored.is_empty:
            store.put_manifest(_manifest(session))
        elif session.case_plan and not stored.planned:
            store.put_manifest(stored.model_copy(update={"planned": session.case_plan}))
    except OSError as error:
        raise unwritable_records(session.folder, error) from None
    session.is_manifest_written = True


def complete_manifest(session: ToolemuSession) -> None:
    """Write the manifest again at the end, with costs and outcomes, and what was used of the cassettes.

    If that fails, the cases have reported it already.
    """
    session.is_manifest_written = False
    with contextlib.suppress(UsageError):
        write_manifest(session)
    if (report := session.cassette_report()) is not None:
        with contextlib.suppress(OSError):
            session.store.write("recordings.json", asdict(report))


def builder_cost(session: ToolemuSession) -> dict[Role, Cost]:
    """Return what this session paid to build worlds; empty if it built none."""
    builds = session.store.world_builds()
    return costs_of(builds.paid_for, session.prices) if builds else {}


def _manifest(session: ToolemuSession) -> Manifest:
    runs, resumable, cassettes = session.run_summaries.values(), session.resumable_sessions, session.cassettes
    evaluators = ComponentNames(session.settings).evaluators_in_force(agent_configs(session.settings))
    # An xdist controller collects nothing; its workers have stored the plan.
    plan = session.case_plan or session.store.manifest().planned
    builds = session.store.world_builds()
    return Manifest(
        session=session.name,
        settings=session.settings.with_sources(),
        arguments=tuple(map(str, session.config.invocation_params.args)),
        rootdir=str(session.config.rootpath),
        versions=versions(),
        datasets=session.dataset_editions,
        resumed_from=tuple(resumable.names(session.folder.parent)) if resumable else (),
        evaluators=tuple(evaluators),
        judged_by=tuple(sorted({str(judge) for run in runs for judge in run.judges})),
        models=(f"recorded ({cassettes.mode})" if cassettes.mode != "none" else "replayed") if cassettes else "live",
        servers=_server_records(session.servers) if session.servers else (),
        prices=session.prices.of_user if session.settings.prices else (),
        cost=total_costs(runs) | builder_cost(session),
        worlds=builds.counts if builds else None,
        stopped_early=session.stopped_early,
        early_decisions=tuple(visible(each.line) for each in session.decisions) if session.stopped_early else (),
        not_run=sum(run.outcome == NOT_RUN for run in runs),
        planned=_with_outcomes(plan, session.run_summaries, session.skipped),
    )


def _with_outcomes(
    plan: Mapping[str, PlannedCase], runs: Mapping[str, RunSummary], skipped: Iterable[str]
) -> dict[str, PlannedCase]:
    """Return the plan without skipped items. Items that left no record state the outcome and the reason."""
    skipped_ids = frozenset(skipped)
    return {
        name: case.with_items(
            {
                nodeid: _item_with_outcome(item, runs.get(nodeid))
                for nodeid, item in case.items.items()
                if nodeid not in skipped_ids
            }
        )
        for name, case in plan.items()
    }


def _item_with_outcome(item: PlannedItem, run: RunSummary | None) -> PlannedItem:
    if run is None or run.path:
        return item
    return PlannedItem(agent=run.agent, outcome=run.outcome or "broken", reason=run.reason)


def _server_records(fleet: ServerFleet) -> tuple[ServerRecord, ...]:
    return tuple(
        ServerRecord(
            model=server.plan.model,
            command=tuple(server.command),
            version=fleet.versions.get(server.plan.model),
            log=server.log.name,
        )
        for server in fleet.servers
        if server.command
    )


# ---- reports


def write_reports(session: ToolemuSession) -> None:
    """Write the requested reports next to the records, and what GitHub Actions shows; note where they are.

    If a report cannot be written, a note says so; verdicts and exit status stay as they are.
    """
    in_github = os.environ.get("GITHUB_ACTIONS") == "true"
    if not (session.settings.report or os.environ.get("GITHUB_STEP_SUMMARY") or in_github):
        return
    from pytest_toolemu.reporting import report_files
    from pytest_toolemu.reporting.report_data import read_report
    from pytest_toolemu.reporting.report_files import annotation_commands, append_summary, markdown

    formats = session.settings.report
    try:
        report_data = read_report(
            list(session.run_summaries.values()), [session.folder], with_transcripts="html" in formats
        )
        report = replace(report_data, decisions=tuple(session.decisions), calibrations=session.calibrations)
        for path in report_files.write_reports(report, formats, session.folder):
            session.notes.append(TerminalNote(f"report: {relative_path(path)}"))
        if "otel" in formats:
            from pytest_toolemu.reporting.exchange_formats import send_evaluations

            session.notes.append(TerminalNote(send_evaluations([session.folder])))
        if in_github:
            session.notes += map(TerminalNote, annotation_commands(report))
        if (file := os.environ.get("GITHUB_STEP_SUMMARY")) and not append_summary(markdown(report), Path(file)):
            raise UsageError(f"GitHub accepts 1 MiB per step, and the summary {file} would be larger")
    except (OSError, UsageError) as error:
        text = f"a report could not be written: {error}; create it later with 'toolemu report"
        session.notes.append(
            TerminalNote(f"{text} {relative_path(session.folder)} --format={','.join(formats or ['md'])}'", "red")
        )
