"""Every broken run states the origin of its exception: the agent's code, a provider, or the harness."""

from __future__ import annotations

import socket
from typing import Any

import anthropic
import openai
import pytest

from pytest_toolemu.core.run import Call, ErrorInfo, Observation, Run, Trajectory
from pytest_toolemu.core.toolbox import Task, Toolbox
from pytest_toolemu.errors import ModelError
from tests.core.test_engine import run
from tests.loopback import Fault, replies
from tests.loopback.fixtures import Loopback


def broken(result: Run) -> ErrorInfo:
    assert result.outcome == "broken"
    assert result.error is not None
    return result.error


async def calls_once(_task: Task, toolbox: Toolbox) -> str:
    await toolbox.call("Purse_FindPayees", {"name": "a"})
    return "Done."


def raising(error: Exception) -> Any:
    async def part(*_: object) -> Any:
        raise error

    return part


def test_an_exception_in_the_agents_code_is_attributed_to_the_agent() -> None:
    error = broken(run(raising(ValueError("no plan"))))
    assert (error.origin, error.type) == ("agent", "ValueError")
    assert "raise error" in error.traceback


@pytest.mark.parametrize("part", ["emulator", "evaluator"])
@pytest.mark.parametrize(
    ("raised", "origin"), [(KeyError("bug"), "harness"), (ModelError("HTTP 500", status=500), "provider")]
)
def test_exceptions_of_emulators_and_evaluators_are_never_attributed_to_the_agent(
    part: str, raised: Any, origin: str
) -> None:
    result = run(calls_once, raising(raised)) if part == "emulator" else run(judges=(raising(raised),))
    assert broken(result).origin == origin


def test_an_emulator_exception_that_passes_through_the_agent_is_a_harness_error() -> None:
    async def emulate(_call: Call, _trajectory: Trajectory) -> Observation:
        raise KeyError("bug of the emulator")

    assert broken(run(calls_once, emulate)).origin == "harness"


@pytest.mark.parametrize(
    ("status", "origin"),
    [(401, "provider"), (404, "provider"), (429, "provider"), (503, "provider"), (400, "agent"), (422, "agent")],
)
@pytest.mark.parametrize("sdk", ["openai", "anthropic"])
def test_http_errors_of_the_agents_client_are_attributed_by_status(
    loopback: Loopback, sdk: str, status: int, origin: str
) -> None:
    """An unusable endpoint is a provider error; a request that the endpoint rejects is an agent error."""
    url = loopback(replies([Fault(status=status, message="no")])).url

    async def agent(_task: Task, _toolbox: Toolbox) -> str:
        if sdk == "openai":
            client = openai.AsyncOpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0)
            await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
        else:
            other = anthropic.AsyncAnthropic(api_key="k", base_url=url, max_retries=0)
            await other.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "x"}])
        return "Done."

    error = broken(run(agent))
    assert (error.origin, error.status) == (origin, status)
    assert bool(error.traceback) == (origin == "agent")
    assert "site-packages/openai" not in error.traceback
    assert "site-packages/anthropic" not in error.traceback


def test_an_endpoint_that_the_agents_client_cannot_reach_is_named() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"

        async def agent(_task: Task, _toolbox: Toolbox) -> str:
            client = openai.AsyncOpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0)
            await client.models.list()
            return "Done."

        error = broken(run(agent))
    assert error.origin == "provider"
    assert error.message.startswith(f"Connection error. ({url}: ")
    assert error.traceback == ""


class LiteServiceError(openai.APIStatusError):
    """An error of a framework that derives its errors from those of the SDK."""


@pytest.mark.parametrize(("status", "origin"), [(503, "provider"), (400, "agent")])
@pytest.mark.parametrize("form", ["wrapped", "wrapped twice", "derived"])
def test_errors_of_frameworks_are_attributed_like_those_of_the_client_in_them(
    loopback: Loopback, form: str, status: int, origin: str
) -> None:
    url = loopback(replies([Fault(status=status, message="no")])).url

    async def agent(_task: Task, _toolbox: Toolbox) -> str:
        client = openai.AsyncOpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0)
        try:
            await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
        except openai.APIStatusError as error:
            if form == "derived":
                raise LiteServiceError(str(error), response=error.response, body=None) from None
            failure = RuntimeError("no turn")
            failure.__cause__ = error
            if form == "wrapped":
                raise failure  # noqa: B904
            raise LookupError("no answer") from failure
        return "Done."

    error = broken(run(agent))
    assert error.origin == origin
    if origin == "provider":
        type_, start = {
            "wrapped": ("RuntimeError", "no turn: InternalServerError: "),
            "wrapped twice": ("LookupError", "no answer: InternalServerError: "),
            "derived": ("LiteServiceError", ""),
        }[form]
        assert (error.type, error.status, error.traceback) == (type_, 503, "")
        assert error.message.startswith(f"{start}Error code: 503 - ")


def test_causes_in_a_cycle_and_mistakes_in_a_handler_are_the_agents() -> None:
    async def agent(_task: Task, _toolbox: Toolbox) -> str:
        first, second = ValueError("first"), ValueError("second")
        first.__cause__, second.__cause__ = second, first
        raise first

    async def handler(_task: Task, _toolbox: Toolbox) -> str:
        client = openai.AsyncOpenAI(api_key="k", base_url="http://127.0.0.1:9/v1", max_retries=0)
        try:
            await client.models.list()
        except openai.OpenAIError as error:
            return str(error.args[7])
        return "Done."

    assert broken(run(agent)).origin == "agent"
    assert broken(run(handler)).origin == "agent"


def test_the_traceback_of_a_wrapped_client_error_has_only_the_agents_lines(loopback: Loopback) -> None:
    url = loopback(replies([Fault(status=400)])).url

    async def agent(_task: Task, _toolbox: Toolbox) -> str:
        client = openai.AsyncOpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0)
        try:
            await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
        except openai.OpenAIError as error:
            raise RuntimeError("the agent gave up") from error
        return "Done."

    error = broken(run(agent))
    assert error.origin == "agent"
    assert "the agent gave up" in error.traceback
    assert "BadRequestError" in error.traceback
    assert error.traceback.count("site-packages") == 0
