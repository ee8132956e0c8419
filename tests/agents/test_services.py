"""Agents that files describe: services behind HTTP, commands that print JSON, and what is wrong with a file."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from pytest_toolemu.agents.programs import service as service_module
from pytest_toolemu.agents.programs.load_agent import load_agent_file
from pytest_toolemu.core.case import User
from pytest_toolemu.core.engine import Limits, RunSpec, run_case
from pytest_toolemu.core.run import Run, Trajectory, Verdict
from pytest_toolemu.errors import UsageError
from pytest_toolemu.plugin.execution import permits
from pytest_toolemu.scheduling.request_limits import CircuitBreaker
from pytest_toolemu.sessions.store import RunStore
from tests.agents.http_service import Service
from tests.agents.scene import opened, play, resolved_case, toolbox
from tests.dialogue import landlady
from tests.mcp.raw_client import HEADERS

CHAT = """\
url: {url}/chat
headers: {{Authorization: "Bearer ${{DESK}}"}}
body: {{message: "{{task}}", tools: "{{mcp_url}}", session: "{{session}}"}}
answer: reply.text
usage: {{model: openai:gpt-4o, input: usage.in, output: usage.out}}
"""
PATH = "wrqJ0Zt2k-_cYb81gK5x"
ENVIRON: Mapping[str, str] = {"DESK": "open-sesame-open-sesame", "DESK_TOOLS": PATH}
FIXED = "tools_port: {port}\ntools_path: ${{DESK_TOOLS}}\n"


@pytest.fixture
def service() -> Iterator[Service]:
    with contextlib.closing(Service()) as service:
        yield service


def use_tool(
    url: str, headers: Mapping[str, str] = MappingProxyType({}), name: str = "Lockers_Open", **arguments: Any
) -> Any:
    """Call a tool at an MCP address, as an agent does."""
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    body["params"] = {"name": name, "arguments": arguments or {"locker": "7"}}
    request = urllib.request.Request(url, json.dumps(body).encode(), {**HEADERS, **headers})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as response:
        return json.load(response)["result"]["structuredContent"]


async def content(_trajectory: Trajectory) -> list[Verdict]:
    return [Verdict(evaluator="e", metric="safety", score=3)]


async def playing(path: Path, environ: Mapping[str, str] = ENVIRON) -> Run:
    agent = load_agent_file(str(path), environ)
    return await run_case(RunSpec(resolved_case(), agent, opened, (content,), {"safety": 2}, Limits(timeout=20)))


def run(folder: Path, text: str, environ: Mapping[str, str] = ENVIRON) -> Run:
    path = folder / "desk.agent.yaml"
    path.write_text(text)
    return asyncio.run(playing(path, environ))


def test_a_service_gets_task_and_tools_and_its_tokens_count(tmp_path: Path, service: Service) -> None:
    def answer(path: str, body: Any) -> Any:
        nth = use_tool(body["tools"])["nth"]
        return {"reply": {"text": f"{body['message']} {path} {nth}"}, "usage": {"in": 30, "out": 4}}

    service.answer = answer
    result = run(tmp_path, CHAT.format(url=service.url))
    assert (result.outcome, result.answer) == ("passed", "Open my locker. /chat 0")
    assert (result.usage["agent"].input, result.usage["agent"].output) == (30, 4)
    assert len(result.steps) == 1
    ((headers, body),) = service.requests
    assert headers["Authorization"] == "Bearer open-sesame-open-sesame"
    assert headers["traceparent"].split("-")[1] == body["session"]
    assert result.traceparent == headers["traceparent"]
    assert (result.identity.agent["kind"], result.identity.agent["name"]) == ("service", "desk")
    assert "sesame" not in result.model_dump_json()


def test_values_of_variables_in_a_body_are_not_written(tmp_path: Path, service: Service) -> None:
    service.answer = lambda _path, body: {"text": f"Unknown key {body['pass']}"}
    file = f"url: {service.url}\nbody: {{message: '{{task}}', pass: '${{DESK_PHRASE}}'}}\nanswer: text\n"
    result = run(tmp_path, file, {"DESK_PHRASE": "open-pumpkin-open"})
    assert service.requests[0][1]["pass"] == "open-pumpkin-open"
    written = RunStore(tmp_path).put(result, "item").read_text()
    assert "Unknown key [DESK_PHRASE redacted]" in written
    assert "pumpkin" not in written


def test_values_of_secret_variables_of_a_command_are_not_written(tmp_path: Path) -> None:
    command = json.dumps("sh -c 'echo $DESK_TOKEN $DESK_DB_URL $DESK_PLACE'")
    env = "{DESK_TOKEN: '${PHRASE}', DESK_DB_URL: 'pg://me:open-radish@db', DESK_PLACE: '${PLACE}'}"
    environ = {"PHRASE": "open-turnip-open", "PLACE": "reception"}
    result = run(tmp_path, f"command: {command}\nenv: {env}\n", environ)
    written = RunStore(tmp_path).put(result, "item").read_text()
    assert "[DESK_TOKEN redacted] pg://" in written
    assert "@db reception" in written
    assert not [phrase for phrase in ("turnip", "radish") if phrase in written]


def test_an_endpoint_of_the_responses_api_calls_the_tools_itself(tmp_path: Path, service: Service) -> None:
    def answer(_path: str, body: Any) -> Any:
        (tool,) = body["tools"]
        use_tool(tool["server_url"])
        parts = [{"type": "output_text", "text": f"{body['model']}: {body['input']}"}]
        usage = {"input_tokens": 9, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 5}}
        return {
            "status": "completed",
            "output": [{"type": "mcp_call"}, {"type": "message", "content": parts}],
            "usage": usage,
        }

    service.answer = answer
    result = run(tmp_path, f"responses: {service.url}/v1/responses\nmodel: gpt-4o\n")
    assert (result.outcome, result.answer, len(result.steps)) == ("passed", "gpt-4o: Open my locker.", 1)
    assert (result.usage["agent"].input, result.usage["agent"].cached) == (9, 5)
    assert result.model_calls[0].model["base_url"] == f"{service.url}/v1"


def pays(message: str, url: str) -> str:
    """Ask which Anna, and pay the rent once that is known."""
    if "Berg" not in message:
        return "Which Anna?"
    use_tool(url, name="Bank_Pay", to="Berg", amount=650)
    return "I paid Anna Berg 650."


def chat_turn(body: Any) -> Any:
    return {"reply": {"text": pays(body["message"], body["tools"])}}


def responses_turn(body: Any) -> Any:
    assert body.get("previous_response_id") == (None if body["input"] == "Pay Anna my rent." else "r1")
    parts = [{"type": "output_text", "text": pays(body["input"], body["tools"][0]["server_url"])}]
    return {"id": "r1", "output": [{"type": "message", "content": parts}]}


def a2a_turn(body: Any) -> Any:
    message = body["params"]["message"]
    text = pays(message["parts"][0]["text"], message["metadata"]["mcp_url"])
    assert ("taskId" in message) == text.startswith("I paid")
    state = "TASK_STATE_COMPLETED" if "taskId" in message else "TASK_STATE_INPUT_REQUIRED"
    status = {"state": state, "message": {"parts": [{"text": text}]}}
    return {"result": {"task": {"id": "t1", "contextId": "c1", "status": status}}}


@pytest.mark.parametrize(
    ("text", "turn"),
    [
        (CHAT + "keeps_session: true\n", chat_turn),
        ("responses: {url}/\nmodel: m\n", responses_turn),
        ("a2a: {url}/\n", a2a_turn),
    ],
)
def test_a_service_asks_the_user_and_acts_on_the_reply(
    text: str, turn: Callable[[Any], Any], tmp_path: Path, service: Service
) -> None:
    service.answer = lambda _path, body: turn(body)
    path = tmp_path / "desk.agent.yaml"
    path.write_text(text.format(url=service.url))
    where = landlady.rent(tmp_path)
    result = landlady.run(where, load_agent_file(str(path), ENVIRON))
    assert (result.outcome, result.answer) == ("passed", "I paid Anna Berg 650.")
    assert [one.text for one in result.dialogue] == ["Which Anna?", "Anna Berg."]
    assert landlady.run(where, load_agent_file(str(path), ENVIRON), turns=1).answer == "Which Anna?"


def test_an_agent_that_speaks_a2a_is_asked_until_its_task_is_done(
    tmp_path: Path, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "_POLL_SECONDS", 0.01)

    def answer(_path: str, body: Any) -> Any:
        if body["method"] == "SendMessage":
            use_tool(body["params"]["message"]["metadata"]["mcp_url"])
            return {"result": {"task": {"id": "t1", "status": {"state": "TASK_STATE_WORKING"}}}}
        parts = [{"text": "Opened."}]
        return {"result": {"id": "t1", "status": {"state": "TASK_STATE_COMPLETED"}, "artifacts": [{"parts": parts}]}}

    service.answer = answer
    result = run(tmp_path, f"a2a: {service.url}/\n")
    assert (result.outcome, result.answer, len(result.steps)) == ("passed", "Opened.", 1)
    assert [body["method"] for _, body in service.requests] == ["SendMessage", "GetTask"]
    assert service.requests[0][0]["A2A-Version"] == "1.0"


@pytest.mark.parametrize(
    ("kind", "reply", "message"),
    [
        ("url", (500, "no luck"), "/chat answered 500: 'no luck'"),
        ("url", (200, "<html>"), "/chat is not JSON: '<html>'"),
        ("url", {"reply": {"txet": "hi"}}, "has no text at 'reply.text'; correct the path"),
        ("url", {"reply": {"text": ["hi"]}}, "has no text at 'reply.text'; correct the path: "),
        ("url", {"reply": {"text": " "}}, "/chat returned an empty answer"),
        ("url", (200, "x" * 1_000_001), "answered with more than 1,000,000 bytes"),
        ("url", (307, ""), "redirects (307) to"),
        ("url", None, "closed the connection before it answered"),
        ("responses", {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "'max_output_tokens'"),
        ("a2a", {"error": {"code": -32001, "message": "no such task"}}, "answered with an error: 'no such task'"),
        ("a2a", {"result": {"task": {"status": {"state": "TASK_STATE_REJECTED"}}}}, "ended the task with TASK_STATE_REJECTED"),
    ],
)  # fmt: skip
def test_a_service_without_a_usable_answer_is_the_failure_of_the_agent(
    kind: str, reply: Any, message: str, tmp_path: Path, service: Service
) -> None:
    service.answer = lambda _path, _body: reply
    texts = {"url": CHAT.format(url=service.url), "responses": f"responses: {service.url}/\nmodel: m\n"}
    result = run(tmp_path, texts.get(kind, f"a2a: {service.url}/\n"))
    assert result.error is not None
    assert (result.outcome, result.error.origin) == ("broken", "agent")
    assert message in result.error.message
    assert len(service.requests) == 1


def test_a_header_that_a_case_makes_impossible_is_named_and_nothing_is_sent(tmp_path: Path, service: Service) -> None:
    path = tmp_path / "desk.agent.yaml"
    path.write_text(f"a2a: {service.url}/\nheaders: {{X-Who: '{{user_name}}'}}\n")
    case = resolved_case(user=User(name="Łukasz Żak"))
    with pytest.raises(UsageError) as refused:
        play(load_agent_file(str(path), ENVIRON), toolbox(case))
    assert str(refused.value).startswith(f"{service.url}/: the header 'X-Who' cannot be 'Łukasz Żak', because")
    assert service.requests == []


def test_only_a_request_that_was_turned_away_is_repeated(
    tmp_path: Path, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "_FIRST_DELAY", 0.01)
    replies: Iterator[Any] = iter([(503, "busy"), {"reply": {"text": "Done"}}])
    service.answer = lambda _path, _body: next(replies)
    assert run(tmp_path, CHAT.format(url=service.url)).answer == "Done"

    def busy(_path: str, body: Any) -> Any:
        use_tool(body["tools"])
        return 503, "busy now"

    service.answer = busy
    result = run(tmp_path, CHAT.format(url=service.url))
    assert result.error is not None
    assert "answered 503: 'busy now'" in result.error.message
    assert len(service.requests) == 3, "it had called a tool, so it was not turned away"


def test_a_service_that_does_not_run_is_named_with_the_fix(tmp_path: Path, service: Service) -> None:
    service.close()
    path = tmp_path / "desk.agent.yaml"
    path.write_text(CHAT.format(url=service.url) + "retries: 0\n")
    result = asyncio.run(playing(path))
    assert result.error is not None
    assert (result.error.type, result.error.origin) == ("ServiceUnreachableError", "agent")
    assert f"{service.url}/chat cannot be reached (Connection refused); start the service" in result.error.message
    sent: list[Any] = []
    spec = RunSpec(resolved_case(), load_agent_file(str(path), ENVIRON), opened)
    permits.report_outage(SimpleNamespace(send=sent.append), spec, result)  # type: ignore[arg-type]
    breaker = CircuitBreaker()
    for _ in range(2):
        breaker.record_failure(sent[0].key, sent[0].kind, sent[0].message, sent[0].subject, limit=2)
    (reason,) = breaker.open.values()
    assert reason.startswith("the service of the agent failed 2 times in a row in the same way, with no success in")
    assert reason.endswith("start the service, or correct the URL in the file of the agent")
    with pytest.raises(UsageError, match="cannot be reached"):
        asyncio.run(load_agent_file(str(path), ENVIRON).check())  # type: ignore[union-attr]


def test_cases_of_a_service_with_a_fixed_address_run_one_at_a_time(tmp_path: Path, service: Service) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    running: list[str] = []

    def answer(_path: str, body: Any) -> Any:
        running.append(body["session"])
        use_tool(f"http://127.0.0.1:{port}/{PATH}/mcp")
        alone = running == [body["session"]]
        running.remove(body["session"])
        return {"reply": {"text": f"alone: {alone}"}}

    service.answer = answer
    path = tmp_path / "desk.agent.yaml"
    path.write_text(CHAT.format(url=service.url) + FIXED.format(port=port))

    async def several() -> list[Run]:
        return await asyncio.gather(*(playing(path) for _ in range(3)))

    results = asyncio.run(several())
    assert [(result.answer, len(result.steps)) for result in results] == [("alone: True", 1)] * 3
    agent: Any = load_agent_file(str(path), ENVIRON)
    assert f"its cases run one at a time, because its service gets all tools at port {port}" in agent.note
    assert PATH not in agent.note
    with socket.create_server(("127.0.0.1", port)), pytest.raises(UsageError, match=f"port {port} .* cannot be used"):
        asyncio.run(agent.check())


@pytest.mark.parametrize("path", ["", "/mcp", "/guess/mcp"])
def test_a_call_at_a_fixed_port_without_the_secret_path_reaches_no_case(
    path: str, tmp_path: Path, service: Service
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    statuses: list[int] = []

    def answer(_path: str, _body: Any) -> Any:
        with pytest.raises(urllib.error.HTTPError) as refused:
            use_tool(f"http://127.0.0.1:{port}{path}")
        statuses.append(refused.value.code)
        use_tool(f"http://127.0.0.1:{port}/{PATH}/mcp")
        return {"reply": {"text": "Done"}}

    service.answer = answer
    result = run(tmp_path, CHAT.format(url=service.url) + FIXED.format(port=port))
    assert (result.outcome, len(result.steps), statuses) == ("passed", 1, [404])
    assert result.agent_warning == ""


@pytest.mark.parametrize("traced", [True, False])
def test_a_service_with_a_fixed_address_can_say_whose_tools_it_calls(
    traced: bool, tmp_path: Path, service: Service
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    together = threading.Barrier(3, timeout=20)

    def answer(_path: str, body: Any) -> Any:
        together.wait()
        parent = f"00-{body['session']}-0123456789abcdef-01"
        with contextlib.suppress(urllib.error.HTTPError):
            use_tool(f"http://127.0.0.1:{port}/{PATH}/mcp", {"traceparent": parent} if traced else {})
        return {"reply": {"text": "Done"}}

    service.answer = answer
    path = tmp_path / "desk.agent.yaml"
    path.write_text(CHAT.format(url=service.url) + FIXED.format(port=port) + "passes_traceparent: true\n")

    async def several() -> list[Run]:
        return await asyncio.gather(*(playing(path) for _ in range(3)))

    results = asyncio.run(several())
    if traced:
        assert [(result.outcome, len(result.steps)) for result in results] == [("passed", 1)] * 3
    else:  # it does not end the cases, but they say why the agent had no tools
        assert [(result.outcome, len(result.steps)) for result in results] == [("passed", 0)] * 3
        assert all("it had no traceparent header of an open case" in result.agent_warning for result in results)
    agent: Any = load_agent_file(str(path), ENVIRON)
    assert "states with the traceparent header which case a call belongs to" in agent.note


def test_a_command_can_print_json(tmp_path: Path) -> None:
    (tmp_path / "out.json").write_text('{"result": "Done", "usage": {"in": 8, "out": 1}}')
    usage = "usage: {model: openai:gpt-4o, input: usage.in, output: usage.out}\n"
    text = 'command: sh -c "echo $MODE >&2; cat out.json"\nenv: {MODE: "{locale} ${DESK}"}\nanswer: result\n'
    result = run(tmp_path, text + usage)
    assert (result.answer, result.usage["agent"].total) == ("Done", 9)
    assert result.agent_log == "en_US open-sesame-open-sesame\n"
    assert (
        run(tmp_path, text.replace("out.json", "desk.agent.yaml"))
        .reasons[0]
        .startswith("AgentProgramError: the output of the agent")
    )


def test_a_watched_file_belongs_to_the_identity(tmp_path: Path) -> None:
    hashes = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        (folder / "prompts").mkdir(parents=True)
        (folder / "prompts" / "system.md").write_text(f"prompt {number}")
        (folder / "desk.agent.yaml").write_text("command: cat\nwatch: [prompts]\n")
        hashes.append(load_agent_file(str(folder / "desk.agent.yaml"), ENVIRON).identity)
    assert list(hashes[0]["files"]) == ["prompts/system.md"]
    assert hashes[0] != hashes[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("url: http://a/\nbody: {m: '{task}'}\nanwser: x\n", "3:1: unknown key 'anwser'; did you mean 'answer'?"),
        ("watch: [a]\n", "1:1: an agent has exactly one of command, url, responses, a2a, but none is given"),
        ("command: cat\na2a: http://a/\n", "1:1: an agent has exactly one of command, url, responses, a2a, but command and a2a"),
        ("command: cat\nbody: {m: '{task}'}\n", "2:1: 'body' belongs to url, but this agent has 'command'; remove it"),
        ("url: http://a/\nbody: {m: '{task}'}\n", "1:1: 'answer' is missing: the path of the answer"),
        ("url: http://a/\nbody: {m: hi}\nanswer: a\n", "2:1: 'body' must contain the placeholder {task}"),
        (
            "url: http://a/\nbody: {m: '{task} {mcp_ulr}'}\nanswer: a\n",
            "2:7: {mcp_ulr} is not a placeholder; did you mean {mcp_url}?",
        ),
        ("responses: http://a/\n", "1:1: 'model' is missing"),
        ("a2a: desk.example\n", "1:6: 'desk.example' is not a URL; write http(s)://host[:port]/path"),
        ("a2a: http://a/straße?q=ü%20&a=b\n", "1:6: 'http://a/straße?q=ü%20&a=b' is not a URL"),
        ("a2a: http://a/\nheaders: {'X Y': a}\n", "2:11: 'X Y' is not the name of a header; write letters, digits, and hyphens"),
        (
            "a2a: http://a/\nheaders: {X: 'Bearer ${DESK}\u2026'}\n",
            "the header 'X' cannot be 'Bearer open-sesame-open-sesame\u2026', because a header is one line of Latin-1 text; correct "
            "the value, or send it in the body",
        ),
        ('a2a: http://a/\nheaders: {X: "a\\n"}\n', "the header 'X' cannot be 'a\\n', because"),
        ("a2a: http://me:secret@a/\n", "1:6: the URL contains a user name or a password; put credentials into 'headers'"),
        ("a2a: http://a/\nheaders: {X: sk-0123456789abcdef}\n", "2:14: the value of 'X' looks like a key; write ${NAME}"),
        ("command: cat\nusage: {model: m, input: a, output: b}\n", "2:1: 'usage' needs 'answer'"),
        ("a2a: http://a/\ntools_port: 80000\n", "2:13: tools_port: 80000"),
        ("a2a: http://a/\nheaders: {X: '${NOT_SET}'}\n", "the variable NOT_SET is not set"),
        ("a2a: http://a/\npasses_traceparent: true\n", "2:1: 'passes_traceparent' needs 'tools_port'"),
        ("a2a: http://a/\ntools_path: ${DESK_TOOLS}\n", "2:1: 'tools_path' needs 'tools_port'"),
        ("a2a: http://a/\ntools_port: 8765\n", "2:1: 'tools_port' needs 'tools_path', such as tools_path: ${DESK_TOOLS}"),
        ("a2a: http://a/\ntools_port: 8765\ntools_path: ${SHORT}\n", "the value of tools_path, ${SHORT}, is not secret enough"),
        ("url: http://a/\nbody: {m: '{task}'}\nanswer: a\nkeeps_session: true\n", "4:1: 'keeps_session' needs the placeholder"),
        ("command: cat\nwatch: [nothing.js]\n", "there is no file or folder 'nothing.js'"),
        ("command: cat\nfolder: nowhere\n", "there is no folder 'nowhere'"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_said_with_its_place(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "desk.agent.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        load_agent_file(str(path), {**ENVIRON, "SHORT": "desk/1"})
    assert message in str(refused.value)
    assert str(path) in str(refused.value)
    assert "sk-0123" not in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"dsk\.agent\.yaml': there is no such file; a path is relative"):
        load_agent_file(str(tmp_path / "dsk.agent.yaml"), ENVIRON)
