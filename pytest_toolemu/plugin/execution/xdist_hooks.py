"""The hooks of sessions with pytest-xdist, all in the controller."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest

from pytest_toolemu.errors import UsageError

if TYPE_CHECKING:
    from pytest_toolemu.plugin.services import Services
    from pytest_toolemu.plugin.session import WorkerInput

SUFFIXES = (".toolemu.yaml::", ".toolemu.yml::")
"""Occur in the node ID of every item that a case file has."""


class XdistHooks:
    """Hands workers their input, starts cases once the workers have collected, and reports workers that died."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._session = services.session

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Hand a worker the session that it belongs to, and a channel to the coordinator."""
        from pytest_toolemu.plugin.session import hand_over

        try:
            hand_over(node, self._worker_input(node))
        except UsageError as error:  # there is nothing to resume in the named folder
            raise pytest.UsageError(f"toolemu: {error}") from None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Import what the preflight of models and keys needs while the workers collect."""
        if self._services.transport is not None and self._session.settings.agent:
            from pytest_toolemu import components  # noqa: F401
            from pytest_toolemu.plugin.execution import preflight  # noqa: F401
            from pytest_toolemu.sessions import store  # noqa: F401

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        """Check models and keys once, before any worker runs a case."""
        session, services = self._session, self._services
        if session.nodeids:  # all workers collect the same items
            return
        session.nodeids = ids
        if any(_is_case(nodeid) for nodeid in ids):
            from pytest_toolemu.plugin.execution.preflight import preflight

            self._refuse_repeated_cases(node, ids)
            services.limit_exit()
            if session.settings.world == "built":
                from pytest_toolemu.plugin.execution.build_worlds import announced_worlds, build_worlds

                worlds = announced_worlds(services)
                preflight(services, builds_worlds=bool(worlds))
                build_worlds(services, worlds)
            else:
                preflight(services)
            gc.freeze()  # as in the workers
        if services.transport is not None:
            services.start_cases()

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: Any) -> None:
        """Count a case whose worker died in the summary, and name the other cases that the worker was running."""
        if _is_case(crashitem):
            from pytest_toolemu.plugin.output.run_property import summary_of_crash

            report.when = "setup"  # an error. Without a phase, as xdist leaves it, it would be shown as a failed case
            files = self._services.files
            self._session.run_summaries[crashitem] = summary_of_crash(crashitem, files.store, files.prices)
            transport = self._services.transport
            if transport is not None and crashitem in self._session.nodeids:
                worker = report.node.gateway.id
                transport.report_crashed_item(worker, self._session.nodeids.index(crashitem))
                report.longrepr = f"{report.longrepr}{self._cases_in_flight(transport.cases_running_on(worker))}"

    def _refuse_repeated_cases(self, node: Any, ids: list[str]) -> None:
        """Raise pytest.UsageError if reports of cases would replace each other. Cases of Python tests refuse to run."""
        from pytest_toolemu.plugin.execution.repeated_items import problem

        runs_all = self._session.config.getoption("dist", "no") == "each"
        workers = node.workerinput["workercount"] if runs_all else 1
        repetition = problem(filter(_is_case, ids), workers)
        if repetition and self._session.settings.agent:
            raise pytest.UsageError(f"toolemu: {repetition}")

    def _worker_input(self, node: Any) -> WorkerInput:
        from pytest_toolemu.plugin.execution.connections import connect_worker
        from pytest_toolemu.plugin.output.terminal_text import terminal_width
        from pytest_toolemu.plugin.session import WorkerInput

        session, services, config = self._session, self._services, self._session.config
        endpoints = services.models.served_endpoints
        resumable = services.files.resumable_sessions
        leads_session = config.getoption("dist", "no") == "each"
        return WorkerInput(
            session_name=session.name,
            started=session.started,
            resumed_folders=tuple(map(str, resumable.folders)) if resumable else (),
            served_endpoints={name: (endpoint.url, endpoint.recorded_as) for name, endpoint in endpoints.items()},
            terminal_width=terminal_width(config),
            channel=None if leads_session else connect_worker(services.open_transport(), node),
        )

    def _cases_in_flight(self, indices: list[int]) -> str:
        """Return a sentence about the cases that a worker was running when it died."""
        if not indices:
            return ""
        names = ", ".join(self._session.nodeids[index] for index in indices)
        return (
            "\n"
            f"That worker was running these cases, and any of them may have crashed it: {names}. Those that are not "
            "reported as crashed run again in another worker. An agent must not end its process (os._exit, a crash in "
            "an extension)."
        )


def _is_case(nodeid: str) -> bool:
    return any(suffix in nodeid for suffix in SUFFIXES)
