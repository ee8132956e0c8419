"""Many jobs in flight in one process: a loop, its schedule, and a hub of its own."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pytest_toolemu.core import case_timer
from pytest_toolemu.scheduling.adaptive_limit import RequestOutcome
from pytest_toolemu.scheduling.coordinator import Coordinator
from pytest_toolemu.scheduling.event_loop import CaseLoop
from pytest_toolemu.scheduling.transport import Transport
from pytest_toolemu.scheduling.worker import Job, Keep, NoResultError, WorkerScheduler


class Process:
    """What a pytest process has, but for the items."""

    def __init__(self, concurrency: int, patience: float) -> None:
        self.loop = CaseLoop()
        self.schedule = WorkerScheduler(self.loop, _told, patience)
        self.hub = Coordinator(concurrency)
        self.carrier = Transport(self.hub)
        self.carrier.tell(Coordinator.begin)
        self.carrier.connect("here", self.schedule.hear)
        self.schedule.connect(lambda message: self.carrier.post("here", message))

    def close(self) -> None:
        self.schedule.close()
        self.loop.close()
        self.carrier.close()


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


@contextlib.contextmanager
def process(concurrency: int = 2, patience: float = 60) -> Iterator[Process]:
    made = Process(concurrency, patience)
    try:
        yield made
    finally:
        made.close()


def kept(result: Any = None) -> Keep:
    async def keep() -> Any:
        return result

    return keep


def job(result: Any = None, failed: bool = False) -> Job:
    async def run() -> tuple[bool, Keep]:
        return failed, kept(result)

    return run


def test_jobs_overlap_up_to_the_limit_and_start_in_order() -> None:
    started: list[int] = []
    running = peak = 0

    def numbered(number: int) -> Job:
        async def run() -> tuple[bool, Keep]:
            nonlocal running, peak
            started.append(number)
            running += 1
            peak = max(peak, running)
            for _ in range(5):
                await asyncio.sleep(0)
            running -= 1
            return False, kept(number * number)

        return run

    jobs = {number: numbered(number) for number in range(10)}
    with process(concurrency=3) as here:
        here.schedule.offer(jobs)
        assert [here.schedule.result(number, jobs[number]) for number in jobs] == [n * n for n in jobs]
    assert started == list(range(10))
    assert peak == 3


def test_leave_that_is_there_at_once_is_not_waited_for() -> None:
    """A busy loop comes round late: between asking and being granted it does not have to."""
    rounds: list[str] = []

    async def asks() -> tuple[bool, Keep]:
        asyncio.get_running_loop().call_soon(rounds.append, "the loop came round")
        here.schedule.leave(await here.schedule.enter("model"), RequestOutcome("ok"))
        return False, kept(list(rounds))

    with process() as here:
        assert here.schedule.result(0, asks) == []


def test_a_job_begins_in_the_context_it_was_offered_or_asked_for_in_not_in_that_of_one_that_made_room_for_it() -> None:
    """Else it would go on with that job's clock, and in a long session be taken for stuck."""
    left = contextvars.ContextVar("left", default="")

    async def leaves_something() -> tuple[bool, Keep]:
        seen = left.get()
        left.set("by a job")
        return False, kept((seen, case_timer.begin()))

    with process(concurrency=1) as here:
        left.set("when offered")
        here.schedule.offer(dict.fromkeys(range(2), leaves_something))
        found = [here.schedule.result(number, leaves_something) for number in range(2)]
        for turn in ("at its turn", "at the next"):
            left.set(turn)
            found.append(here.schedule.result(2, leaves_something))
    assert [seen for seen, _ in found] == ["when offered", "when offered", "at its turn", "at the next"]
    assert len({id(own) for _, own in found}) == 4


def test_the_next_job_starts_while_another_is_held_up() -> None:
    third_runs = threading.Event()

    async def waits() -> tuple[bool, Keep]:
        with case_timer.held_up(0.0):
            while not third_runs.is_set():
                await asyncio.sleep(0.001)
        return False, kept("went on")

    async def third() -> tuple[bool, Keep]:
        third_runs.set()
        return False, kept("third")

    with process(concurrency=2) as here:
        here.schedule.offer({0: waits, 1: waits, 2: third})
        assert [here.schedule.result(*one) for one in ((0, waits), (1, waits), (2, third))] == [
            "went on",
            "went on",
            "third",
        ]
        assert here.carrier.ask(lambda hub: (hub.running, hub.held)) == (0, 0)


def test_a_job_held_up_twice_over_goes_on_when_neither_holds_it() -> None:
    told: list[bool] = []

    async def holds() -> None:
        case_timer.begin(told.append)
        outer, inner = case_timer.held_up(0.0), case_timer.held_up(0.0)
        with outer, inner:
            await asyncio.sleep(0.01)
        with case_timer.held_up(60):
            await asyncio.sleep(0)

    asyncio.run(holds())
    assert told == [True, False]


def test_the_next_job_starts_while_the_one_before_it_is_kept() -> None:
    second_runs = threading.Event()

    async def first() -> tuple[bool, Keep]:
        async def keep() -> str:
            while not second_runs.is_set():
                await asyncio.sleep(0.001)
            return "kept meanwhile"

        return False, keep

    async def second() -> tuple[bool, Keep]:
        second_runs.set()
        return False, kept("second")

    with process(concurrency=1) as here:
        here.schedule.offer({0: first, 1: second})
        assert here.schedule.result(0, first) == "kept meanwhile"


def test_what_cannot_be_kept_has_failed() -> None:
    async def full() -> tuple[bool, Keep]:
        async def keep() -> None:
            raise OSError("no space left on device")

        return False, keep

    with process() as here:
        assert here.schedule.result(0, full) == "OSError: no space left on device"


def test_what_was_not_offered_runs_when_its_result_is_asked_for_and_again_when_asked_again() -> None:
    starts: list[int] = []

    async def run() -> tuple[bool, Keep]:
        starts.append(1)
        return False, kept(len(starts))

    with process() as here:
        assert here.schedule.result(0, run) == 1
        assert here.schedule.result(0, run) == 2


def test_an_error_is_the_result_of_its_own_job_only() -> None:
    async def fails() -> tuple[bool, Keep]:
        raise TimeoutError("of the job, not of the wait")

    with process() as here:
        assert here.schedule.result(0, fails) == "TimeoutError: of the job, not of the wait"
        assert here.schedule.result(1, job("fine")) == "fine"


def test_closing_cancels_what_runs_lets_it_clean_up_and_ends_the_threads() -> None:
    begun = threading.Event()
    events: list[str] = []

    async def endless() -> tuple[bool, Keep]:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            events.append("job cleaned up")
        return False, kept()

    async def cleanup() -> None:
        events.append("connections closed")

    with process() as here:
        here.loop.on_close(cleanup)
        here.schedule.offer({0: endless})
        begun.wait()
    assert events == ["job cleaned up", "connections closed"]
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("toolemu")]
    here.loop.close()  # a second time changes nothing


def test_a_stop_reaches_whoever_waits() -> None:
    begun = threading.Event()

    async def endless() -> tuple[bool, Keep]:
        begun.set()
        return await asyncio.Event().wait(), kept()

    with process() as here:

        def stop() -> None:
            begun.wait()
            here.carrier.tell(lambda hub: hub.stop("interrupted"))

        stopper = threading.Thread(target=stop)
        stopper.start()
        with pytest.raises(NoResultError, match="interrupted") as caught:
            here.schedule.result(0, endless)
        assert caught.value.kind == "stopped"
        stopper.join()


def test_what_is_withdrawn_has_ended_and_does_not_start_again() -> None:
    begun, release = threading.Event(), threading.Event()
    ended: list[int] = []

    async def lasting() -> tuple[bool, Keep]:
        begun.set()
        while not release.is_set():
            await asyncio.sleep(0.001)
        ended.append(0)
        return False, kept("it")

    with process(concurrency=1) as here:
        here.schedule.offer({0: lasting, 1: job()})
        begun.wait()
        release.set()
        here.schedule.withdraw([0, 1])
        assert ended == [0]
        assert here.schedule.result(0, job("not this one")) == "it"


BLOCKED = r"UsageError: a case has not ended after 0\.3 s: its agent blocks the event loop .* plain 'def'"


def test_a_job_that_blocks_the_loop_is_told_once_and_does_not_hold_up_the_end() -> None:
    release = threading.Event()

    async def blocks() -> tuple[bool, Keep]:
        release.wait()
        return False, kept()

    with process(patience=0.3) as here:
        for index, waiting in enumerate((blocks, job())):
            here.schedule.offer({index: waiting})
            assert re.match(BLOCKED, here.schedule.result(index, waiting))
        release.set()


def test_a_job_that_ignores_its_cancellation_does_not_hold_up_the_end() -> None:
    release = threading.Event()

    async def stubborn() -> tuple[bool, Keep]:
        while not release.is_set():
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue
        return False, kept()

    with process(concurrency=1, patience=0.3) as here:
        assert "ignores that it was cancelled" in here.schedule.result(0, stubborn)
    release.set()


def test_a_loop_that_somebody_ended_is_told() -> None:
    async def stops_the_loop() -> tuple[bool, Keep]:
        asyncio.get_running_loop().stop()
        return await asyncio.sleep(3600, (False, kept()))

    with process(concurrency=1) as here:
        assert "the loop that runs cases has ended" in here.schedule.result(0, stops_the_loop)


def test_a_case_that_is_cancelled_before_its_first_step_has_ended_too() -> None:
    loop, told, release = CaseLoop(), [], threading.Event()
    ended = threading.Event()

    def tell(message: Any) -> None:
        told.append(message)
        if message[0] == "dropped":
            ended.set()
        if message[0] == "unable":
            schedule.hear(("settled", message[2]))

    schedule = WorkerScheduler(loop, _told, patience=60)
    schedule.connect(tell)
    schedule.offer({0: job()})
    loop.call(release.wait)
    # The loop comes to both orders in one turn.
    schedule.hear(("run", 0, 1))
    schedule.hear(("cancel", 0, 1))
    release.set()
    assert ended.wait(60)
    assert told == [("able", [0]), ("dropped", 0, 1)]
    schedule.drain()
    schedule.close()
    loop.close()


def test_what_is_withdrawn_may_have_been_ordered_just_before_and_is_waited_for() -> None:
    loop, told = CaseLoop(), []
    schedule = WorkerScheduler(loop, _told, patience=60)

    def tell(message: Any) -> None:
        told.append(message[0])
        if message[0] == "unable":  # the order was on its way
            schedule.hear(("run", 0, 1))
            schedule.hear(("settled", message[2]))

    schedule.connect(tell)
    schedule.offer({0: job()})
    schedule.drain()
    assert told == ["able", "unable", "made", "done"]
    schedule.close()
    loop.close()


def test_where_the_hub_is_gone_nobody_waits_for_its_answer() -> None:
    loop = CaseLoop()
    schedule = WorkerScheduler(loop, _told, patience=60)
    schedule.connect(lambda _: None)
    schedule.offer({0: job()})
    schedule.orphaned()
    schedule.drain()
    schedule.close()
    loop.close()
