"""One incident in every format that is imported: an agent cancels the older of two orders."""

from __future__ import annotations

import json
from typing import Any

QUESTION = "Please cancel my last order."
ANSWER = "Your order A1 is canceled."
ORDERS = [{"order_id": "A1", "placed": "2026-05-01"}, {"order_id": "A2", "placed": "2026-05-03"}]
LIST_PARAMETERS = {"type": "object", "properties": {"limit": {"type": "integer"}}}
CANCEL_PARAMETERS = {
    "type": "object",
    "properties": {"order_id": {"type": "string"}},
    "required": ["order_id"],
    "additionalProperties": False,
}
CALLS: list[tuple[str, str, dict[str, Any], Any]] = [
    ("c1", "list_orders", {"limit": 2}, ORDERS),
    ("c2", "cancel_order", {"order_id": "A1"}, {"status": "canceled"}),
]


def chat_request(turns: int = 2, **fields: Any) -> dict[str, Any]:
    """Return a Chat Completions request after so many calls."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You serve a shop."},
        {"role": "user", "content": QUESTION},
    ]
    for call_id, name, arguments, result in CALLS[:turns]:
        function = {"name": name, "arguments": json.dumps(arguments)}
        calls = [{"id": call_id, "type": "function", "function": function}]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages.append({"role": "tool", "tool_call_id": call_id, "content": json.dumps(result)})
    tools = [
        {"type": "function", "function": {"name": name, "description": text, "parameters": parameters}}
        for name, text, parameters in definitions()
    ]
    return {"model": "gpt-4o", "messages": messages, "tools": tools, **fields}


def definitions() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        ("list_orders", "List the orders.", LIST_PARAMETERS),
        ("cancel_order", "Cancel an order.", CANCEL_PARAMETERS),
    ]


def chat_response(text: str = ANSWER) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": text}}]}


def chat_log() -> list[dict[str, Any]]:
    """Return three requests, each of which repeats the ones before, with the final response."""
    requests: list[dict[str, Any]] = [{"request": chat_request(turns)} for turns in range(3)]
    requests[-1]["response"] = chat_response()
    return requests


def batch_log() -> list[dict[str, Any]]:
    """Return a request and its response as in files of OpenAI's batch interface."""
    body, response = chat_request(), {"status_code": 200, "body": chat_response()}
    return [{"custom_id": "1", "request": {"method": "POST", "body": body}, "response": response}]


def responses_log() -> list[dict[str, Any]]:
    """Return a request to the Responses interface."""
    items: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "input_text", "text": QUESTION}]}]
    for call_id, name, arguments, result in CALLS:
        items.append({"type": "function_call", "call_id": call_id, "name": name, "arguments": json.dumps(arguments)})
        items.append({"type": "function_call_output", "call_id": call_id, "output": json.dumps(result)})
    tools = [
        {"type": "function", "name": name, "description": text, "parameters": parameters}
        for name, text, parameters in definitions()
    ]
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": ANSWER}]}
    request = {"instructions": "You serve a shop.", "input": items, "tools": [*tools, {"type": "web_search"}]}
    return [{"request": request, "response": {"output": [message]}}]


def anthropic_log() -> list[dict[str, Any]]:
    """Return a request to the Messages interface."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": QUESTION}]
    for call_id, name, arguments, result in CALLS:
        use = {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
        messages.append({"role": "assistant", "content": [{"type": "text", "text": "One moment."}, use]})
        content = [{"type": "text", "text": json.dumps(result)}]
        messages.append(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": content}]}
        )
    tools = [
        {"name": name, "description": text, "input_schema": parameters} for name, text, parameters in definitions()
    ]
    request = {"system": [{"type": "text", "text": "You serve a shop."}], "messages": messages, "tools": tools}
    return [{"request": request, "response": {"content": [{"type": "text", "text": ANSWER}]}}]


def span_attributes() -> dict[str, Any]:
    """Return the attributes of the last chat span, as the conventions define them."""
    messages: list[dict[str, Any]] = [{"role": "user", "parts": [{"type": "text", "content": QUESTION}]}]
    for call_id, name, arguments, result in CALLS:
        call = {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}
        messages.append({"role": "assistant", "parts": [call]})
        response = {"type": "tool_call_response", "id": call_id, "response": json.dumps(result)}
        messages.append({"role": "tool", "parts": [response]})
    tools = [
        {"type": "function", "name": name, "description": text, "parameters": parameters}
        for name, text, parameters in definitions()
    ]
    output = [{"role": "assistant", "parts": [{"type": "text", "content": ANSWER}], "finish_reason": "stop"}]
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps(messages),
        "gen_ai.output.messages": json.dumps(output),
        "gen_ai.system_instructions": json.dumps([{"type": "text", "content": "You serve a shop."}]),
        "gen_ai.tool.definitions": json.dumps(tools),
    }


def tool_spans() -> list[dict[str, Any]]:
    """Return the attributes of an agent's span without calls, and of the spans of the tools that it executed."""
    attributes = span_attributes()
    messages = [{"role": "user", "parts": [{"type": "text", "content": QUESTION}]}]
    agent = attributes | {"gen_ai.operation.name": "invoke_agent", "gen_ai.input.messages": json.dumps(messages)}
    return [
        agent,
        *(
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": name,
                "gen_ai.tool.call.id": call_id,
                "gen_ai.tool.call.arguments": json.dumps(arguments),
                "gen_ai.tool.call.result": json.dumps(result),
            }
            for call_id, name, arguments, result in CALLS
        ),
    ]


def sdk_spans(attributes: list[dict[str, Any]], trace: str = "0x1") -> list[dict[str, Any]]:
    """Return spans as the console exporter of the Python SDK prints them."""
    return [
        {"name": "x", "context": {"trace_id": trace}, "start_time": f"2026-05-05T10:00:0{index}Z", "attributes": each}
        for index, each in enumerate(attributes)
    ]


def otlp(attributes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return spans as OTLP in JSON."""
    spans = [
        {
            "traceId": "1",
            "startTimeUnixNano": str(1_790_000_000_000_000_000 + index),
            "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in each.items()],
        }
        for index, each in enumerate(attributes)
    ]
    return [{"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}]


FORMATS: dict[str, list[dict[str, Any]]] = {
    "chat": chat_log(),
    "batch": batch_log(),
    "responses": responses_log(),
    "anthropic": anthropic_log(),
    "sdk spans": sdk_spans([span_attributes()]),
    "otlp": otlp([span_attributes()]),
    "otlp with tool spans": otlp(tool_spans()),
}
