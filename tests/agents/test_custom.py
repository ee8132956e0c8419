from __future__ import annotations

import asyncio
import contextvars
import functools
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_toolemu.agents.custom import custom_agent, load_custom_agent
from pytest_toolemu.core.run import Call, Observation, Trajectory
from pytest_toolemu.core.toolbox import BlockingToolbox, Task, Toolbox
from pytest_toolemu.errors import AgentStopped, UsageError
from tests.agents.scene import calls, play, toolbox

PATIENCE = 10.0
"""Seconds after which a thread that should have ended fails the test."""

number: contextvars.ContextVar[int] = contextvars.ContextVar("number", default=0)


async def awaited(task: Task, box: Toolbox) -> str:
    returned = await box.call("Lockers_Open", {"locker": task.user.name})
    return f"{task} {returned['opened']}"


def blocking(task: Task, box: BlockingToolbox) -> str:
    returned = box.call("Lockers_Open", {"locker": task.user.name})
    return f"{task} {returned['opened']}"


def undeclared(task: Task, box: Any) -> Any:
    """Return a coroutine, although the function itself is not declared as async."""
    return awaited(task, box)


class Awaitable:
    async def __call__(self, task: Task, box: Toolbox) -> str:
        return await awaited(task, box)


class Blocking:
    def __call__(self, task: Task, box: BlockingToolbox) -> str:
        return blocking(task, box)


@pytest.mark.parametrize(
    "function", [awaited, blocking, Awaitable(), Blocking(), functools.partial(awaited), functools.partial(blocking)]
)
def test_an_agent_can_be_a_function_or_an_object_async_or_plain(function: Any) -> None:
    box = toolbox()
    assert play(custom_agent(function, "mine"), box) == "Open my locker. True"
    assert calls(box) == [("Lockers_Open", {"locker": "John Doe"})]


def test_a_plain_function_can_call_tools_as_functions() -> None:
    box = toolbox()

    def agent(_: Task, tools: BlockingToolbox) -> str:
        return str(tools.functions()["Lockers_Open"](locker="7")["opened"])

    assert play(custom_agent(agent, "mine"), box) == "True"
    assert calls(box) == [("Lockers_Open", {"locker": "7"})]


def test_a_plain_function_runs_in_a_daemon_thread_with_a_copy_of_the_context() -> None:
    observed: list[Any] = []

    def agent(_: Task, __: BlockingToolbox) -> str:
        thread = threading.current_thread()
        observed.extend([thread.daemon, thread is threading.main_thread(), number.get()])
        number.set(99)
        return "ok"

    async def playing() -> int:
        number.set(7)
        box = toolbox()
        await custom_agent(agent, "mine")(Task.of(box.resolved_case.case), box)
        return number.get()

    assert asyncio.run(playing()) == 7, "what the agent sets stays with it"
    assert observed == [True, False, 7]


def test_plain_functions_run_in_parallel() -> None:
    meeting = threading.Barrier(3, timeout=PATIENCE)

    def agent(_: Task, __: BlockingToolbox) -> str:
        meeting.wait()
        return "met"

    async def playing() -> list[str]:
        box = toolbox()
        return await asyncio.gather(
            *(custom_agent(agent, "mine")(Task.of(box.resolved_case.case), box) for _ in range(3))
        )

    assert asyncio.run(playing()) == ["met"] * 3


def test_cancellation_returns_at_once_and_the_thread_can_call_nothing_more() -> None:
    started, release, ended = threading.Event(), threading.Event(), threading.Event()
    outcomes: list[BaseException] = []

    def agent(_: Task, tools: BlockingToolbox) -> str:
        started.set()
        release.wait(PATIENCE)
        try:
            tools.call("Lockers_Open", {"locker": "7"})
        except BaseException as error:
            outcomes.append(error)
            raise
        finally:
            ended.set()
        return "too late"

    async def playing() -> Toolbox:
        box = toolbox()
        turn = asyncio.create_task(custom_agent(agent, "mine")(Task.of(box.resolved_case.case), box))
        await asyncio.to_thread(started.wait, PATIENCE)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert not ended.is_set(), "nobody waited for the thread"
        release.set()
        assert await asyncio.to_thread(ended.wait, PATIENCE)
        return box

    box = asyncio.run(playing())
    assert calls(box) == []
    assert [(type(error), getattr(error, "stop", None)) for error in outcomes] == [(AgentStopped, "timeout")]


def test_cancellation_also_ends_the_call_in_flight() -> None:
    ended = threading.Event()
    outcomes: list[BaseException] = []

    def agent(_: Task, tools: BlockingToolbox) -> str:
        try:
            tools.call("Lockers_Open", {"locker": "7"})
        except BaseException as error:
            outcomes.append(error)
        ended.set()
        return "too late"

    async def playing() -> Toolbox:
        call_reached_emulator = asyncio.Event()

        async def never(_: Call, __: Trajectory) -> Observation:
            call_reached_emulator.set()
            return await asyncio.Future[Observation]()

        box = toolbox(emulator=never)
        turn = asyncio.create_task(custom_agent(agent, "mine")(Task.of(box.resolved_case.case), box))
        await call_reached_emulator.wait()
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert await asyncio.to_thread(ended.wait, PATIENCE)
        return box

    assert calls(asyncio.run(playing())) == []
    assert [type(error) for error in outcomes] == [AgentStopped]


def test_a_run_canceled_before_its_start_runs_nothing() -> None:
    ran: list[int] = []

    async def playing() -> None:
        box = toolbox()
        turn = asyncio.create_task(custom_agent(lambda *_: ran.append(1), "mine")(Task.of(box.resolved_case.case), box))
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn

    asyncio.run(playing())
    assert ran == []


def test_the_step_limit_and_quitting_end_a_function_in_a_thread() -> None:
    def greedy(_: Task, tools: BlockingToolbox) -> str:
        while True:
            try:
                tools.call("Lockers_Open", {"locker": "7"})
            except Exception:  # an agent may well do this
                return "swallowed"

    def careful(_: Task, tools: BlockingToolbox) -> str:
        tools.quit("not mine")

    box = toolbox(max_steps=2)
    with pytest.raises(AgentStopped) as limit:
        play(custom_agent(greedy, "mine"), box)
    assert (limit.value.stop, len(calls(box))) == ("step_limit", 2)
    with pytest.raises(AgentStopped) as stopped:
        play(custom_agent(careful, "mine"), toolbox())
    assert (stopped.value.stop, stopped.value.reason) == ("quit", "not mine")


def test_an_agents_own_error_is_not_changed() -> None:
    def broken(_: Task, __: BlockingToolbox) -> str:
        raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        play(custom_agent(broken, "mine"), toolbox())


def test_errors_that_would_stop_or_stall_the_loop_become_ordinary_ones() -> None:
    def exhausted(_: Task, __: BlockingToolbox) -> str:
        return next(iter(()))

    def leaving(_: Task, __: BlockingToolbox) -> str:
        sys.exit(3)

    async def leaving_too(_: Task, __: Toolbox) -> str:
        sys.exit("bye")

    with pytest.raises(RuntimeError, match="the agent raised StopIteration"):
        play(custom_agent(exhausted, "mine"), toolbox())
    with pytest.raises(RuntimeError, match=r"the agent mine raised SystemExit\(3\); return an answer"):
        play(custom_agent(leaving, "mine"), toolbox())
    with pytest.raises(RuntimeError, match=r"SystemExit\('bye'\)"):
        play(custom_agent(leaving_too, "mine"), toolbox())


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda *_: None, r"the agent mine returned NoneType: null; return the final answer as str"),
        (lambda *_: {"answer": 1}, r'returned dict: \{"answer": 1\}; return the final answer as str'),
        (undeclared, r"returned coroutine: .*declare it with 'async def'"),
    ],
)
def test_an_invalid_answer_is_named_with_its_type(function: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        play(custom_agent(function, "mine"), toolbox())


def test_an_answer_of_a_str_subclass_becomes_plain_text() -> None:
    assert type(play(custom_agent(lambda task, _: task, "mine"), toolbox())) is str


def test_an_agent_must_be_callable() -> None:
    with pytest.raises(UsageError, match="the agent 'mine' is 3, which is not callable"):
        custom_agent(3, "mine")  # type: ignore[arg-type]


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Create the package ``shopbots`` with a good module, a broken one, and one that imports a missing module."""
    package = tmp_path / "shopbots"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "buyer.py").write_text(
        "class Kit:\n    def run(self, task, tools): return 'bought'\nbuy = Kit()\nprice = 3\n"
    )
    (package / "needy.py").write_text("import no_such_package_anywhere\n")
    (package / "failing.py").write_text("1 / 0\n")
    (package / "seller.py").write_text("from .buyer import price\ndef sell(task, tools): return f'sold for {price}'\n")
    alone = tmp_path / "own-bots"
    alone.mkdir()
    (alone / "buyer.py").write_text("def buy(task, tools): return 'bought here'\n")
    (alone / "failing.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "shopbots"]:
        del sys.modules[name]


@pytest.mark.usefixtures("on_path")
def test_an_agent_is_loaded_by_name() -> None:
    agent = load_custom_agent("shopbots.buyer:buy.run")
    assert (agent.identity["kind"], agent.identity["name"]) == ("own", "shopbots.buyer:buy.run")
    assert play(agent, toolbox()) == "bought"


@pytest.mark.parametrize(
    ("target", "answer"),
    [
        ("shopbots/seller.py:sell", "sold for 3"),  # a module of a package, with relative imports
        ("own-bots/buyer.py:buy", "bought here"),  # a file name that is no module name
        ("{folder}/own-bots/buyer.py:buy", "bought here"),
    ],
)
def test_an_agent_is_loaded_by_the_path_of_its_file(on_path: Path, target: str, answer: str) -> None:
    agent = load_custom_agent(target.format(folder=on_path))
    assert agent.identity["name"] == target.format(folder=on_path)
    assert play(agent, toolbox()) == answer


@pytest.mark.usefixtures("on_path")
@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("shopbots.buyer", "'shopbots.buyer' does not name an agent; write package.module:function"),
        (":buy", "':buy' does not name an agent"),
        ("shopbots.buyer:bui", "agent 'shopbots.buyer:bui': shopbots.buyer has no 'bui'; did you mean 'buy'?"),
        ("shopbots.buyer:buy.walk", "has no 'walk'; known: run"),
        ("shopbots.bayer:buy", "there is no module 'shopbots.bayer'; check the name"),
        (
            "mdurrr:buy",
            "there is no module 'mdurrr'; check the name, and that its folder is on the import path (PYTHONPATH)",
        ),
        (
            "shopbots.buyer.x:buy",
            "there is no module 'shopbots.buyer.x'; check the name, and that its folder is on the import path (PYTHONPATH)",
        ),
        (
            "shopbots.needy:buy",
            "importing shopbots.needy failed: ModuleNotFoundError: No module named 'no_such_package_anywhere'",
        ),
        ("shopbots/nobody.py:buy", "there is no file shopbots/nobody.py; a path is relative to the current folder"),
        ("shopbots/failing.py:buy", "importing shopbots.failing failed: ZeroDivisionError: division by zero"),
        ("shopbots.failing:buy", "importing shopbots.failing failed: ZeroDivisionError: division by zero"),
        ("own-bots/failing.py:buy", "importing own-bots/failing.py failed: ZeroDivisionError: division by zero"),
        ("shopbots.buyer:price", "the agent 'shopbots.buyer:price' is 3, which is not callable; name a function"),
    ],
)
def test_an_agent_that_cannot_be_loaded_is_named_with_the_remedy(target: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        load_custom_agent(target)
    assert message in str(error.value)
