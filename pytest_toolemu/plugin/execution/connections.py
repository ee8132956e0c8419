"""Connects workers with the coordinator, which is in the only process, or in the xdist controller over a channel."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any, Final

from pytest_toolemu.scheduling.transport import (
    EncodedMessage,
    Transport,
    decode,
    encode,
)

if TYPE_CHECKING:
    from pytest_toolemu.scheduling.coordinator_messages import WorkerMessage
    from pytest_toolemu.scheduling.worker import WorkerScheduler

_ONLY_WORKER: Final = "here"


def connect_in_process(scheduler: WorkerScheduler, transport: Transport) -> None:
    """Connect the scheduler with the coordinator of the same process."""
    transport.connect(_ONLY_WORKER, scheduler.receive)
    scheduler.connect(functools.partial(transport.receive, _ONLY_WORKER))


def connect_to_controller(scheduler: WorkerScheduler, channel: Any) -> None:
    """In an xdist worker: connect the scheduler with the coordinator at the other end of the channel."""

    def send(message: WorkerMessage) -> None:
        with contextlib.suppress(OSError):  # closed: the controller is gone, and the end marker says so
            channel.send(encode(message))

    def receive(encoded: EncodedMessage | None) -> None:
        if encoded is None:
            scheduler.coordinator_lost()
        else:
            scheduler.receive(decode(encoded))

    scheduler.connect(send)
    channel.setcallback(receive, endmarker=None)


def connect_worker(transport: Transport, node: Any) -> Any:
    """In the xdist controller: open a channel to the worker of ``node``, connect it, and return its other end."""
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
