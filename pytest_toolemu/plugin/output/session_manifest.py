"""The manifest in a session's folder: settings, versions, datasets, servers, cost."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from pytest_toolemu.analysis.metrics import total_costs
from pytest_toolemu.analysis.run_summary import NOT_RUN
from pytest_toolemu.core.messages import Role
from pytest_toolemu.core.run import versions
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.visible_text import visible
from pytest_toolemu.models.pricing import Cost, costs_of
from pytest_toolemu.plugin.collection.case_plan import with_outcomes
from pytest_toolemu.plugin.collection.item_agents import agent_configs
from pytest_toolemu.plugin.services import Services
from pytest_toolemu.plugin.session_files import unwritable_records
from pytest_toolemu.sessions.manifest_records import Manifest, ServerRecord
from pytest_toolemu.settings.component_names import ComponentNames

if TYPE_CHECKING:
    from pytest_toolemu.models.vllm_servers import ServerFleet


def write_manifest(services: Services) -> None:
    """Write the manifest once per process, before its first case. Raise UsageError if it cannot be written.

    A worker keeps the controller's, and adds the planned cases, which only workers know.
    """
    session, store = services.session, services.files.store
    if session.is_manifest_written:
        return
    try:
        stored = store.manifest() if session.is_worker else Manifest()
        if stored.is_empty:
            store.put_manifest(_manifest(services))
        elif session.case_plan and not stored.planned:
            store.put_manifest(stored.model_copy(update={"planned": session.case_plan}))
    except OSError as error:
        raise unwritable_records(session.folder, error) from None
    session.is_manifest_written = True


def complete_manifest(services: Services) -> None:
    """Write the manifest again at the end, with costs and outcomes, and what was used of the cassettes.

    If that fails, the cases have reported it already.
    """
    services.session.is_manifest_written = False
    with contextlib.suppress(UsageError):
        write_manifest(services)
    if (report := services.files.cassette_report()) is not None:
        with contextlib.suppress(OSError):
            services.files.store.put_recordings(report.as_json())


def builder_cost(services: Services) -> dict[Role, Cost]:
    """Return what this session paid to build worlds; empty if it built none."""
    builds = services.files.world_builds()
    return costs_of(builds.paid_for, services.files.prices) if builds else {}


def _manifest(services: Services) -> Manifest:
    session, files = services.session, services.files
    runs, resumable, cassettes, servers = (
        session.run_summaries.values(),
        files.resumable_sessions,
        files.cassettes,
        services.models.servers,
    )
    evaluators = ComponentNames(session.settings).evaluators_in_force(agent_configs(session.settings))
    # An xdist controller collects nothing; its workers have stored the plan.
    plan = session.case_plan or files.store.manifest().planned
    builds = files.world_builds()
    return Manifest(
        session=session.name,
        settings=session.settings.with_sources(),
        arguments=tuple(map(str, session.config.invocation_params.args)),
        rootdir=str(session.config.rootpath),
        versions=versions(),
        datasets=files.dataset_editions,
        resumed_from=tuple(resumable.names(session.folder.parent)) if resumable else (),
        evaluators=tuple(evaluators),
        judged_by=tuple(sorted({str(judge) for run in runs for judge in run.judges})),
        models=cassettes.mode_in_words if cassettes else "live",
        servers=_server_records(servers) if servers else (),
        prices=files.prices.of_user if session.settings.prices else (),
        cost=total_costs(runs) | builder_cost(services),
        worlds=builds.counts if builds else None,
        stopped_early=session.stopped_early,
        early_decisions=tuple(visible(each.line) for each in session.decisions) if session.stopped_early else (),
        not_run=sum(run.outcome == NOT_RUN for run in runs),
        planned=with_outcomes(plan, session.run_summaries, session.skipped),
    )


def _server_records(fleet: ServerFleet) -> tuple[ServerRecord, ...]:
    return tuple(
        ServerRecord(
            model=server.plan.model,
            command=tuple(server.command),
            version=fleet.version_of(server),
            log=server.log.name,
        )
        for server in fleet.servers
        if server.command
    )
