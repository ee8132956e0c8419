"""What a session is, in its folder: settings, versions, datasets, servers, cost."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pytest_toolemu.analysis.run_row import NOT_RUN
from pytest_toolemu.analysis.summary import total_costs
from pytest_toolemu.core.environment import versions
from pytest_toolemu.plugin.collection.planned_cases import with_outcomes
from pytest_toolemu.plugin.session import ToolemuSession
from pytest_toolemu.sessions.planned_cases import PLANNED


def write(session: ToolemuSession) -> None:
    """Write the manifest once per process, before its first case. UsageError where it cannot be written.

    A worker keeps the controller's, and adds the planned cases, which only workers know.
    """
    if not session.manifest_written:
        try:
            stored = session.store.manifest() if session.is_worker else {}
            if not stored:
                session.store.put_manifest(_content(session))
            elif session.planned and PLANNED not in stored:  # the controller wrote it, and has collected nothing
                session.store.put_manifest({**stored, PLANNED: session.planned})
        except OSError as error:
            raise session.unwritable(error) from None
        session.manifest_written = True


def _content(session: ToolemuSession) -> dict[str, Any]:
    rows, planned = session.rows.values(), _planned(session)
    return {
        "session": session.name,
        "settings": session.settings.as_json(),
        "arguments": list(session.config.invocation_params.args),
        "rootdir": str(session.config.rootpath),
        "versions": versions(),
        "datasets": [edition.model_dump() for edition in session.editions],
        "resumed_from": session.earlier.names(session.folder.parent) if session.earlier else [],
        "evaluators": session.roles.evaluators_in_force(session.variants()),
        "judged_by": sorted({str(judge) for row in rows for judge in row.judges}),
        "models": session.library.mode_in_words if session.library else "live",
        "servers": session.fleet.as_json() if session.fleet else [],
        "cost": {role: asdict(cost) for role, cost in total_costs(rows).items()},
        "not_run": sum(row.outcome == NOT_RUN for row in rows),
        **({PLANNED: with_outcomes(planned, session.rows, session.skipped)} if planned else {}),
    }


def _planned(session: ToolemuSession) -> dict[str, dict[str, Any]]:
    """Return the planned cases; in an xdist controller, which collects nothing, as its workers have stored them."""
    return session.planned or session.store.manifest().get(PLANNED, {})
