"""The requests of a server, readable from any thread."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import Any

from tests.loopback.records import Request


class Log:
    """All requests, the largest number in flight at one time, and the exceptions of scripts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: list[Request] = []
        self._errors: list[str] = []
        self._in_flight = 0
        self._peak = 0

    @property
    def requests(self) -> tuple[Request, ...]:
        with self._lock:
            return tuple(self._requests)

    @property
    def errors(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(self._errors)

    @property
    def peak(self) -> int:
        with self._lock:
            return self._peak

    def arrived(self, numbered: Callable[[int], Request]) -> Request:
        """Add the request that ``numbered`` builds from its number, as one in flight."""
        with self._lock:
            request = numbered(len(self._requests) + 1)
            self._requests.append(request)
            self._in_flight += 1
            self._peak = max(self._peak, self._in_flight)
        return request

    def ended(self) -> None:
        """Count one request less as in flight."""
        with self._lock:
            self._in_flight -= 1

    def failed(self, error: str) -> None:
        """Record the exception of a script."""
        with self._lock:
            self._errors.append(error)

    def as_json(self) -> dict[str, Any]:
        """Return the log as JSON values."""
        requests = [{**dataclasses.asdict(request), "role": request.role} for request in self.requests]
        return {"requests": requests, "peak": self.peak, "errors": list(self.errors)}
