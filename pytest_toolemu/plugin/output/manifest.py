"""What a session is, in its folder: settings, versions, datasets, servers, cost."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pytest_toolemu.analysis.run_row import NOT_RUN
from pytest_toolemu.analysis.summary import total_costs
from pytest_toolemu.core.environment import versions
from pytest_toolemu.plugin.session import ToolemuSession


def write(session: ToolemuSession) -> None:
    """Once a process, before its first case; a worker leaves one that is there. UsageError where it cannot be."""
    if not session.manifest_written:
        try:
            if not (session.is_worker and session.store.manifest()):
                session.store.put_manifest(_content(session))
        except OSError as error:
            raise session.unwritable(error) from None
        session.manifest_written = True


def _content(session: ToolemuSession) -> dict[str, Any]:
    rows = session.rows.values()
    return {
        "session": session.name,
        "settings": session.settings.as_json(),
        "arguments": list(session.config.invocation_params.args),
        "rootdir": str(session.config.rootpath),
        "versions": versions(),
        "datasets": [edition.model_dump() for edition in session.editions],
        "resumed_from": session.earlier.names(session.folder.parent) if session.earlier else [],
        "evaluators": session.roles.evaluators_in_force(session.variants()),
        "judged_by": sorted({judge for row in rows for judge in row.judges}),
        "models": session.library.mode_in_words if session.library else "live",
        "servers": session.fleet.as_json() if session.fleet else [],
        "cost": {role: asdict(cost) for role, cost in total_costs(rows).items()},
        "not_run": sum(row.outcome == NOT_RUN for row in rows),
    }
