"""How processes reach the hub: it is in the only one, or in the xdist controller at the end of a channel."""

from __future__ import annotations

import contextlib
import functools
import os
from typing import TYPE_CHECKING, Any

import pytest

from pytest_toolemu.plugin.output import progress
from pytest_toolemu.plugin.session import ToolemuSession
from pytest_toolemu.scheduling.coordinator import Coordinator, Message
from pytest_toolemu.scheduling.transport import Transport

if TYPE_CHECKING:
    from pytest_toolemu.scheduling.worker import WorkerScheduler

_HERE = "here"


def lead(session: ToolemuSession) -> Transport:
    """The hub of this process, made on first use."""
    if session.carrier is None:
        concurrency = max(1, int(session.settings.concurrency * session.given.get("share", 1.0)))
        hub = Coordinator(concurrency, maxfail(session.config), session.budget)
        session.carrier = Transport(hub, on_tick=session.tick)
        if not session.is_worker and progress.wanted(session.config):
            session.progress = progress.Progress(session.config, hub)
    return session.carrier


def attach(session: ToolemuSession, node: Any) -> None:
    """In the controller: tell a worker its session, and give it a channel to the hub."""
    given: dict[str, Any] = session.for_worker
    if session.config.getoption("dist", "no") == "each":
        # Every worker runs every case on its own, with its share of all limits.
        given["share"] = 1 / max(1, len(node.config.getoption("tx", None) or [1]))
    else:
        given["channel"] = channel = node.gateway.newchannel()
        carrier, worker = lead(session), node.gateway.id
        carrier.connect(worker, channel.send)

        def hear(message: Message | None) -> None:
            # On the thread of the gateway, which ends if this raises.
            if message is None:
                carrier.disconnect(worker)
            else:
                carrier.post(worker, message)

        channel.setcallback(hear, endmarker=None)
    node.workerinput["toolemu"] = given


def begin(session: ToolemuSession) -> None:
    """Let cases start, as models and keys have been checked; in the one process, or in the controller."""
    carrier, earlier = lead(session), session.earlier
    if earlier is not None:
        carrier.tell(lambda hub: hub.expect(earlier.probable(session.nodeids)))
    carrier.tell(Coordinator.begin)


def in_flight(session: ToolemuSession, node: Any) -> str:
    """In the controller: a sentence about the cases that a worker ran when it died."""
    found = session.carrier.was_running(node.gateway.id) if session.carrier else []
    if not found:
        return ""
    names = ", ".join(session.nodeids[index] for index in found)
    return (
        f"\nThat worker ran these cases, any of which may have ended it; they run again elsewhere, once: {names}. "
        "An agent must not end its process (os._exit, a crash in an extension)."
    )


def connect(session: ToolemuSession, schedule: WorkerScheduler) -> None:
    """Bring a process's cases and the hub together."""
    channel = session.given.get("channel")
    if channel is None:
        carrier = lead(session)
        begin(session)
        carrier.connect(_HERE, schedule.hear)
        schedule.connect(functools.partial(carrier.post, _HERE))
        return

    def tell(message: Message) -> None:
        with contextlib.suppress(OSError):  # closed: the controller is gone, and the end marker says so
            channel.send(message)

    def hear(message: Message | None) -> None:
        if message is None:
            schedule.orphaned()
        else:
            schedule.hear(message)

    schedule.connect(tell)
    channel.setcallback(hear, endmarker=None)


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
