"""The manifest in a session's folder: settings, versions, datasets, servers, cost."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from typing import Any

from pytest_toolemu.analysis.agent_summary import total_costs
from pytest_toolemu.analysis.run_summary import NOT_RUN
from pytest_toolemu.core.environment import versions
from pytest_toolemu.core.messages import Role
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.redaction import plain
from pytest_toolemu.models.pricing import Cost, costs_of
from pytest_toolemu.plugin.collection.agent_configs import agent_configs
from pytest_toolemu.plugin.collection.case_plan import plan_as_json, stored_plan, with_outcomes
from pytest_toolemu.plugin.services import Services
from pytest_toolemu.plugin.session import ToolemuSession
from pytest_toolemu.plugin.session_files import unwritable_records
from pytest_toolemu.sessions.planned_records import PLANNED
from pytest_toolemu.sessions.world_builds import WORLDS
from pytest_toolemu.settings.component_names import ComponentNames


def write(services: Services) -> None:
    """Write the manifest once per process, before its first case. Raise UsageError if it cannot be written.

    A worker keeps the controller's, and adds the planned cases, which only workers know.
    """
    session, store = services.session, services.files.store
    if session.is_manifest_written:
        return
    try:
        stored = store.manifest() if session.is_worker else {}
        if not stored:
            store.put_manifest(_content(services))
        elif session.case_plan and PLANNED not in stored:
            store.put_manifest({**stored, PLANNED: plan_as_json(session.case_plan)})
    except OSError as error:
        raise unwritable_records(session.folder, error) from None
    session.is_manifest_written = True


def complete(services: Services) -> None:
    """Write the manifest again at the end, with costs and outcomes, and what was used of the cassettes.

    If that fails, the cases have reported it already.
    """
    services.session.is_manifest_written = False
    with contextlib.suppress(UsageError):
        write(services)
    if (report := services.files.cassette_report()) is not None:
        with contextlib.suppress(OSError):
            services.files.store.put_recordings(report.as_json())


def builder_cost(services: Services) -> dict[Role, Cost]:
    """Return what this session paid to build worlds; empty if it built none."""
    builds = services.files.world_builds()
    return costs_of(builds.paid_for, services.files.prices) if builds else {}


def _early_end(session: ToolemuSession) -> dict[str, Any]:
    """Return why the session stopped before all of its cases had run, and how its gates were decided then."""
    if not session.stopped_early:
        return {}
    lines = [plain(decision.line) for decision in session.decisions]
    return {"stopped_early": session.stopped_early, **({"early_decisions": lines} if lines else {})}


def _content(services: Services) -> dict[str, Any]:
    session, files = services.session, services.files
    runs, resumable, cassettes, servers = (
        session.run_summaries.values(),
        files.resumable_sessions,
        files.cassettes,
        services.models.servers,
    )
    evaluators = ComponentNames(session.settings).evaluators_in_force(agent_configs(session.settings))
    # An xdist controller collects nothing; its workers have stored the plan.
    plan = session.case_plan or stored_plan(files.store.manifest())
    return {
        "session": session.name,
        "settings": session.settings.as_json(),
        "arguments": list(session.config.invocation_params.args),
        "rootdir": str(session.config.rootpath),
        "versions": versions(),
        "datasets": [edition.model_dump() for edition in files.dataset_editions],
        "resumed_from": resumable.names(session.folder.parent) if resumable else [],
        "evaluators": evaluators,
        "judged_by": sorted({str(judge) for run in runs for judge in run.judges}),
        "models": cassettes.mode_in_words if cassettes else "live",
        "servers": servers.as_json() if servers else [],
        "cost": {role: asdict(cost) for role, cost in (total_costs(runs) | builder_cost(services)).items()},
        **({WORLDS: builds.counts.model_dump(mode="json")} if (builds := files.world_builds()) else {}),
        **_early_end(session),
        "not_run": sum(run.outcome == NOT_RUN for run in runs),
        **({PLANNED: plan_as_json(with_outcomes(plan, session.run_summaries, session.skipped))} if plan else {}),
    }
