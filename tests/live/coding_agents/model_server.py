"""A model for coding agents that calls one tool, and then answers: Anthropic Messages and OpenAI Responses, streamed."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ARGUMENTS = '{"locker": "7"}'
ANSWER = "Opened."


@contextlib.contextmanager
def scripted_model() -> Iterator[tuple[str, list[str]]]:
    """Yield the URL of the model, and the names of all tools that it was offered."""
    offered: list[str] = []

    class Handler(ModelHandler):
        tools = offered

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", offered
        server.shutdown()


class ModelHandler(BaseHTTPRequestHandler):
    """Answers requests of both formats. Every connection is closed after its answer."""

    tools: list[str]

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the name in the standard library)
        pass

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.end_headers()

    def do_GET(self) -> None:
        self._send("application/json", '{"object": "list", "data": [], "models": []}')

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        events = self._messages(body) if "messages" in self.path else self._responses(body)
        self._send(
            "text/event-stream", "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        )

    def _send(self, kind: str, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(text.encode())

    def _messages(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        names = [tool["name"] for tool in body.get("tools", ())]
        self.tools += names
        name = next((name for name in names if name.endswith("Lockers_Open")), None)
        calls = name is not None and "tool_result" not in json.dumps(body["messages"])
        block: dict[str, Any] = {"type": "text", "text": ""}
        if calls:
            block = {"type": "tool_use", "id": "toolu_1", "name": name, "input": {}}
        delta = (
            {"type": "input_json_delta", "partial_json": ARGUMENTS} if calls else {"type": "text_delta", "text": ANSWER}
        )
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "content": []}
        usage = {"input_tokens": 10, "output_tokens": 1}
        yield {
            "type": "message_start",
            "message": message | {"stop_reason": None, "stop_sequence": None, "usage": usage},
        }
        yield {"type": "content_block_start", "index": 0, "content_block": block}
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
        yield {"type": "content_block_stop", "index": 0}
        stop = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
        yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 5}}
        yield {"type": "message_stop"}

    def _responses(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        tools = [
            (tool.get("name", ""), inner["name"])
            for tool in body.get("tools", ())
            for inner in (tool.get("tools") or [{"name": tool.get("name", tool["type"])}])
        ]
        self.tools += [name for _, name in tools]
        found = next(((group, name) for group, name in tools if name.endswith("Lockers_Open")), None)
        if found is not None and "function_call_output" not in json.dumps(body["input"]):
            group, name = found
            item = {"type": "function_call", "id": "f1", "call_id": "c1", "name": name, "arguments": ARGUMENTS}
            item |= {} if group == name else {"namespace": group}
        else:
            content = [{"type": "output_text", "text": ANSWER}]
            item = {"type": "message", "role": "assistant", "id": "m1", "content": content}
        usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        yield {"type": "response.created", "response": {"id": "r1"}}
        yield {"type": "response.output_item.done", "output_index": 0, "item": item}
        yield {"type": "response.completed", "response": {"id": "r1", "usage": usage}}
