"""Things that a process has once, such as a server for all of its cases."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class OncePerProcess(Generic[T]):
    """Returns what ``create`` made when it was first called in this process, from any thread.

    A process that was forked gets its own, because the threads of its parent do not run in it.
    """

    def __init__(self, create: Callable[[], T]) -> None:
        self._create = create
        self._lock = threading.Lock()
        self._created: tuple[int, T] | None = None

    def __call__(self) -> T:
        """Return the value of this process."""
        with self._lock:
            if self._created is None or self._created[0] != os.getpid():
                self._created = os.getpid(), self._create()
            return self._created[1]
