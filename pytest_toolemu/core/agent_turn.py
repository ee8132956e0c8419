"""The turn of an agent: it runs in a task of its own, so that its case can end even if the agent does not."""

from __future__ import annotations

import asyncio
from typing import Final

from pytest_toolemu.core import case_timer
from pytest_toolemu.core.conclusion import contained
from pytest_toolemu.core.toolbox import Agent, Task, Toolbox
from pytest_toolemu.errors import AgentStopped

STOP_GRACE: Final = 1.0
"""Seconds for which an agent that was stopped may go on before it is canceled."""
CANCEL_GRACE: Final = 5.0
"""Seconds that an agent may take to end after it was canceled. Then its case ends without it."""


async def answer_of(agent: Agent, task: Task, toolbox: Toolbox) -> str:
    """Return the agent's answer, or raise its exception.

    Some frameworks catch even a BaseException of a tool and report it to their model, which would then go on, at the
    user's expense. So an agent that goes on ``STOP_GRACE`` seconds after it was stopped is canceled. If it ignores
    that, too, it is left behind, and the answer is empty. It is also canceled if the case is.
    """
    loop = asyncio.get_running_loop()
    toolbox.settle()  # now, because the agent may make its first call from elsewhere
    turn = loop.create_task(_whole_turn(agent, task, toolbox), name="toolemu-agent")
    stopped = loop.create_task(toolbox.stopped.wait())
    try:
        await asyncio.wait([turn, stopped], return_when=asyncio.FIRST_COMPLETED)
        if not turn.done():
            await asyncio.wait([turn], timeout=STOP_GRACE)
    finally:
        stopped.cancel()
        is_canceled = not turn.done()
        if is_canceled or toolbox.running_calls:
            await _end(turn, toolbox)
    return "" if is_canceled else _result(turn)


async def _whole_turn(agent: Agent, task: Task, toolbox: Toolbox) -> str:
    try:
        answer = await contained(lambda: agent(task, toolbox), "the agent")
        await toolbox.finish()
        return answer
    except AgentStopped:  # also by a limit of the agent's framework; the run is judged
        await toolbox.finish()
        raise
    finally:
        toolbox.end()  # now: later calls must not be answered while its case goes on


async def _end(turn: asyncio.Task[str], toolbox: Toolbox) -> None:
    """Cancel the agent, which can call nothing more, and wait for its end; leave it behind if it does not end.

    The calls that are canceled with it must not outlive its case either.
    """
    turn.cancel()
    toolbox.end()
    turn.add_done_callback(lambda turn: turn.cancelled() or turn.exception())  # otherwise asyncio logs it as not read
    with case_timer.paused():  # what ended the turn decides the run, and not the time that the agent takes to end
        await asyncio.wait([turn, *toolbox.running_calls], timeout=CANCEL_GRACE)
    if not turn.done():
        interrupted = toolbox.trajectory.interrupted
        ignored = f"its agent ignored for {CANCEL_GRACE:g} s that it was canceled, and was left behind"
        toolbox.trajectory.interrupted = f"{interrupted}; {ignored}" if interrupted else ignored


def _result(turn: asyncio.Task[str]) -> str:
    try:
        return turn.result()
    except asyncio.CancelledError as error:
        # The case was not canceled, so the agent canceled its own task.
        replacement = RuntimeError("the agent canceled its own task; return the answer, or call toolbox.quit(reason)")
        raise replacement.with_traceback(error.__traceback__) from None
