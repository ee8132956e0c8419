"""Many jobs in flight on a loop of their own."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pytest_toolemu.errors import UsageError
from pytest_toolemu.schedule import Schedule


def test_jobs_overlap_up_to_the_limit_and_start_in_order() -> None:
    schedule: Schedule[int] = Schedule(3, patience=60)
    started: list[int] = []
    running = peak = 0

    async def job(number: int) -> int:
        nonlocal running, peak
        started.append(number)
        running += 1
        peak = max(peak, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1
        return number * number

    for number in range(10):
        schedule.submit(number, lambda number=number: job(number))  # type: ignore[misc]
    assert [schedule.result(number) for number in range(10)] == [number * number for number in range(10)]
    assert started == list(range(10))
    assert peak == 3
    schedule.close()


def test_an_error_reaches_whoever_waits_for_that_job_only() -> None:
    schedule: Schedule[str] = Schedule(2, patience=60)

    async def fails() -> str:
        raise TimeoutError("of the job, not of the wait")

    async def works() -> str:
        return "fine"

    schedule.submit("bad", fails)
    schedule.submit("good", works)
    with pytest.raises(TimeoutError, match="of the job"):
        schedule.result("bad")
    assert schedule.result("good") == "fine"
    schedule.close()


def test_a_job_is_started_once_and_can_be_started_again_after_its_result() -> None:
    schedule: Schedule[int] = Schedule(1, patience=60)
    starts = 0

    async def job() -> int:
        nonlocal starts
        starts += 1
        return starts

    schedule.submit("a", job)
    schedule.submit("a", job)
    assert schedule.result("a") == 1
    schedule.submit("a", job)
    assert schedule.result("a") == 2
    schedule.close()


def test_closing_cancels_what_runs_lets_it_clean_up_and_ends_the_thread() -> None:
    schedule: Schedule[None] = Schedule(2, patience=60)
    begun = threading.Event()
    events: list[str] = []

    async def endless() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            events.append("job cleaned up")

    async def cleanup() -> None:
        events.append("connections closed")

    schedule.on_close(cleanup)
    schedule.submit("a", endless)
    begun.wait()
    schedule.close()
    assert events == ["job cleaned up", "connections closed"]
    assert "toolemu-cases" not in [thread.name for thread in threading.enumerate()]
    schedule.close()  # a second time changes nothing


def test_a_job_that_blocks_the_loop_is_told_and_does_not_hold_up_the_end() -> None:
    schedule: Schedule[None] = Schedule(2, patience=0.3)
    release = threading.Event()

    async def blocks() -> None:
        release.wait()

    async def waits() -> None:
        pass

    schedule.submit("blocks", blocks)
    schedule.submit("waits", waits)
    for key in ("blocks", "waits"):
        with pytest.raises(
            UsageError, match=r"has not ended after 0\.3 s: its agent blocks the event loop .* plain 'def'"
        ):
            schedule.result(key)
    release.set()
    schedule.close()


def test_a_job_that_ignores_its_cancellation_does_not_hold_up_the_end() -> None:
    schedule: Schedule[None] = Schedule(1, patience=0.3)
    release = threading.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue

    schedule.submit("stubborn", stubborn)
    with pytest.raises(UsageError, match="ignores that it was cancelled"):
        schedule.result("stubborn")
    schedule.close()
    release.set()


def test_a_loop_that_somebody_ended_is_told() -> None:
    schedule: Schedule[None] = Schedule(1, patience=60)

    async def stops_the_loop() -> None:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(3600)

    schedule.submit("a", stops_the_loop)
    with pytest.raises(UsageError, match="the loop that runs cases has ended"):
        schedule.result("a")
    schedule.close()
