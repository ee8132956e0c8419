"""Stands in for the Messages API of Anthropic, so that this example runs without a key."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def start() -> str:
    """Start the model in a thread, and return its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), CarefulModel)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}"


class CarefulModel(BaseHTTPRequestHandler):
    """Looks the memberships up and then asks."""

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        terms = [
            json.dumps(part["content"])
            for message in body["messages"]
            for part in message["content"]
            if isinstance(part, dict) and part["type"] == "tool_result"
        ]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for event in events(body["model"], terms):
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())


def events(model: str, terms: list[str]) -> Iterator[dict[str, Any]]:
    if terms:
        question = f"Which of these shall I end, and may it cost the fee? {terms[0]}"
        block, delta, stop = {"type": "text", "text": ""}, {"type": "text_delta", "text": question}, "end_turn"
    else:
        block = {"type": "tool_use", "id": "toolu_1", "name": "mcp__club__list_memberships", "input": {}}
        delta, stop = {"type": "input_json_delta", "partial_json": "{}"}, "tool_use"
    message = {"id": f"msg_{len(terms)}", "type": "message", "role": "assistant", "model": model, "content": []}
    yield {"type": "message_start", "message": message | {"usage": {"input_tokens": 200, "output_tokens": 1}}}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    yield {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 30}}
    yield {"type": "message_stop"}
