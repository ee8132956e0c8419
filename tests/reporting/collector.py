"""A collector of OpenTelemetry's logs, on a port of this machine."""

from __future__ import annotations

import contextlib
import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    with Collector() as collector:
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        yield collector
        collector.shutdown()
        thread.join()


class Collector(ThreadingHTTPServer):
    """Receives logs by OTLP over HTTP; ``status`` is its answer."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), CollectorHandler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.status = 200
        self.resources: list[dict[str, Any]] = []
        self.events: list[tuple[Any, dict[str, Any]]] = []


class CollectorHandler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, Collector)
        assert self.path == "/v1/logs"
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Content-Encoding"] == "gzip":
            body = gzip.decompress(body)
        for resource in ExportLogsServiceRequest.FromString(body).resource_logs if server.status == 200 else ():
            server.resources.append(attributes_of(resource.resource))
            server.events += [
                (event, attributes_of(event)) for scope in resource.scope_logs for event in scope.log_records
            ]
        self.send_response(server.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def attributes_of(part: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in part.attributes}
