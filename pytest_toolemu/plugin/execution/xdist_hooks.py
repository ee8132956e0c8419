"""The hooks of sessions with pytest-xdist, all in the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_toolemu.errors import UsageError
from pytest_toolemu.plugin.session import DIST_EACH, WorkerInput, hand_over, is_case_file

if TYPE_CHECKING:
    from pytest_toolemu.plugin.process import SessionProcess
    from pytest_toolemu.scheduling.transport import EncodedMessage, Transport


_IN_FLIGHT: Final = (
    "That worker was running these cases, and any of them may have crashed it: {}. Those that are not reported as "
    "crashed run again in another worker. An agent must not end its process (os._exit, a crash in an extension)."
)


class XdistHooks:
    """Hands workers their input, starts cases once the workers have collected, and reports workers that died."""

    def __init__(self, process: SessionProcess) -> None:
        self._process = process
        self._session = process.session

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Hand a worker the session that it belongs to, and a channel to the coordinator."""
        try:
            hand_over(node, self._worker_input(node))
        except UsageError as error:  # there is nothing to resume in the named folder
            raise pytest.UsageError(f"toolemu: {error}") from None

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Check models and keys once, before any worker runs a case."""
        session, process = self._session, self._process
        if session.nodeids:  # all workers collect the same items
            return
        session.nodeids = ids
        if any(map(is_case_file, ids)):
            from pytest_toolemu.plugin.execution import session_start, worlds

            if session.config.getoption("dist", "no") == "each":
                raise pytest.UsageError(f"toolemu: {DIST_EACH}")
            session_start.prepare_cases(process, lambda: worlds.announced_worlds(session, process.lead()))
            process.runner.scheduler.close()  # the workers run the cases
        if process.transport is not None:
            process.start_cases()

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: Any) -> None:
        """Count a case whose worker died in the summary, and name the other cases that the worker was running."""
        if is_case_file(crashitem):
            from pytest_toolemu.plugin.output.reports import summary_of_crash

            report.when = "setup"  # an error. Without a phase, as xdist leaves it, it would be shown as a failed case
            session, transport = self._session, self._process.transport
            session.run_summaries[crashitem] = summary_of_crash(crashitem, session.store, session.prices)
            if transport is not None and crashitem in session.nodeids:
                worker = report.node.gateway.id
                transport.report_crashed_item(worker, session.nodeids.index(crashitem))
                if names := ", ".join(session.nodeids[index] for index in transport.cases_running_on(worker)):
                    report.longrepr = f"{report.longrepr}\n{_IN_FLIGHT.format(names)}"

    def _worker_input(self, node: Any) -> WorkerInput:
        from pytest_toolemu.plugin.output.terminal_text import terminal_width
        from pytest_toolemu.plugin.process import names_vllm

        session, process, config = self._session, self._process, self._session.config
        endpoints = process.runner.endpoints if names_vllm(session.settings) else {}
        resumable = session.resumable_sessions
        has_coordinator = config.getoption("dist", "no") != "each"
        return WorkerInput(
            session_name=session.name,
            started=session.started,
            resumed_folders=tuple(map(str, resumable.folders)) if resumable else (),
            served_endpoints={name: (endpoint.url, endpoint.recorded_as) for name, endpoint in endpoints.items()},
            terminal_width=terminal_width(config),
            channel=_connect_worker(process.lead(), node) if has_coordinator else None,
        )


def _connect_worker(transport: Transport, node: Any) -> Any:
    """In the xdist controller: open a channel to the worker of ``node``, connect it, and return its other end."""
    from pytest_toolemu.scheduling.transport import decode, encode

    channel, worker = node.gateway.newchannel(), node.gateway.id
    transport.connect(worker, lambda message: channel.send(encode(message)))

    def receive(encoded: EncodedMessage | None) -> None:
        # Called on the thread of the gateway, which would end if this raised.
        if encoded is None:
            transport.disconnect(worker)
        else:
            transport.receive(worker, decode(encoded))

    channel.setcallback(receive, endmarker=None)
    return channel
