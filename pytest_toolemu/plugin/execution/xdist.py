"""How processes reach the coordinator: it is in the only process, or in the xdist controller, over a channel."""

from __future__ import annotations

import contextlib
import functools
import os
from typing import TYPE_CHECKING, Any

import pytest

from pytest_toolemu.plugin.output import progress
from pytest_toolemu.plugin.session import ToolemuSession
from pytest_toolemu.scheduling.coordinator import Coordinator
from pytest_toolemu.scheduling.coordinator_messages import WorkerMessage
from pytest_toolemu.scheduling.transport import (
    EncodedMessage,
    Transport,
    decode_coordinator_message,
    decode_worker_message,
    encode,
)

if TYPE_CHECKING:
    from pytest_toolemu.scheduling.worker import WorkerScheduler

_HERE = "here"


def lead(session: ToolemuSession) -> Transport:
    """Return the transport to the coordinator in this process, created on first use."""
    if session.carrier is None:
        concurrency = max(1, int(session.settings.concurrency * session.given.get("share", 1.0)))
        coordinator = Coordinator(concurrency, maxfail(session.config), session.budget)
        session.carrier = Transport(coordinator, on_tick=session.tick)
        if not session.is_worker and progress.wanted(session.config):
            session.progress = progress.Progress(session.config, coordinator)
    return session.carrier


def attach(session: ToolemuSession, node: Any) -> None:
    """In the controller: tell a worker its session, and give it a channel to the coordinator."""
    given: dict[str, Any] = session.for_worker
    if session.config.getoption("dist", "no") == "each":
        # Every worker runs every case on its own, with its share of all limits.
        given["share"] = 1 / max(1, len(node.config.getoption("tx", None) or [1]))
    else:
        given["channel"] = channel = node.gateway.newchannel()
        carrier, worker = lead(session), node.gateway.id
        carrier.connect(worker, lambda message: channel.send(encode(message)))

        def receive(encoded: EncodedMessage | None) -> None:
            # On the thread of the gateway, which ends if this raises.
            if encoded is None:
                carrier.disconnect(worker)
            else:
                carrier.receive(worker, decode_worker_message(encoded))

        channel.setcallback(receive, endmarker=None)
    node.workerinput["toolemu"] = given


def begin(session: ToolemuSession) -> None:
    """Let cases start, as models and keys have been checked; in the one process, or in the controller."""
    carrier, earlier = lead(session), session.earlier
    if earlier is not None:
        carrier.update(lambda coordinator: coordinator.expect_to_resume(earlier.probable(session.nodeids)))
    carrier.update(Coordinator.start)


def in_flight(session: ToolemuSession, node: Any) -> str:
    """In the controller: a sentence about the cases that a worker ran when it died."""
    found = session.carrier.cases_running_on(node.gateway.id) if session.carrier else []
    if not found:
        return ""
    names = ", ".join(session.nodeids[index] for index in found)
    return (
        f"\nThat worker ran these cases, any of which may have ended it; they run again elsewhere, once: {names}. "
        "An agent must not end its process (os._exit, a crash in an extension)."
    )


def connect(session: ToolemuSession, schedule: WorkerScheduler) -> None:
    """Connect a process's scheduler with the coordinator."""
    channel = session.given.get("channel")
    if channel is None:
        carrier = lead(session)
        begin(session)
        carrier.connect(_HERE, schedule.receive)
        schedule.connect(functools.partial(carrier.receive, _HERE))
        return

    def send(message: WorkerMessage) -> None:
        with contextlib.suppress(OSError):  # closed: the controller is gone, and the end marker says so
            channel.send(encode(message))

    def receive(encoded: EncodedMessage | None) -> None:
        if encoded is None:
            schedule.coordinator_lost()
        else:
            schedule.receive(decode_coordinator_message(encoded))

    schedule.connect(send)
    channel.setcallback(receive, endmarker=None)


def report_late(session: ToolemuSession, text: str) -> None:
    """Report something at the very end of this process, when the summary has been printed.

    A worker leaves it in a file for the summary of the controller, which waits for the ends of its workers: nobody sees
    the standard error of a worker, and its channels are closed before the interpreter ends.
    """
    if session.is_worker:
        with contextlib.suppress(OSError):
            session.late_reports.parent.mkdir(parents=True, exist_ok=True)
            with session.late_reports.open("a", encoding="utf-8", errors="replace") as file:
                file.write(f"{text}\n")
    else:
        capture = session.config.pluginmanager.getplugin("capturemanager")
        if capture is not None:  # an agent may end the process in the middle of a test
            capture.suspend_global_capture()
        with contextlib.suppress(OSError):  # whatever has become of sys.stderr
            os.write(2, f"toolemu: {text}\n".encode(errors="replace"))


def late_reports(session: ToolemuSession) -> list[str]:
    """In the controller: collect what workers have left for the summary, each line once."""
    try:
        lines = session.late_reports.read_text(encoding="utf-8").splitlines()
        session.late_reports.unlink()
    except OSError:
        return []
    return list(dict.fromkeys(lines))


def maxfail(config: pytest.Config) -> int:
    """After how many failures pytest ends the session; 0 for never."""
    option = config.option
    stepwise = (1 + getattr(option, "stepwise_skip", False)) * getattr(option, "stepwise", False)
    return min(filter(None, (option.maxfail, stepwise)), default=0)


def runs_ahead(config: pytest.Config, session: ToolemuSession) -> bool:
    """Whether cases may run before their turn. Not where a person stands in the debugger meanwhile."""
    return session.settings.run_ahead == "auto" and not (
        config.getoption("usepdb", False) or config.getoption("trace", False)
    )
