"""Jobs that run at the same time in one process: an event loop, its scheduler, and a coordinator."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import re
import threading
from collections.abc import Callable, Iterator

import pytest

from pytest_toolemu.core import case_timer
from pytest_toolemu.scheduling import event_loop
from pytest_toolemu.scheduling.adaptive_limit import RequestOutcome
from pytest_toolemu.scheduling.coordinator import Coordinator
from pytest_toolemu.scheduling.coordinator_messages import (
    CancelCase,
    CaseCanceled,
    CaseFinished,
    CaseRun,
    CasesWithdrawn,
    Job,
    JobError,
    JobResult,
    RunCase,
    WithdrawalConfirmed,
    WorkerMessage,
)
from pytest_toolemu.scheduling.event_loop import CaseLoop
from pytest_toolemu.scheduling.transport import Transport
from pytest_toolemu.scheduling.worker import NoResultError, WorkerScheduler


class Process:
    """The parts of a pytest process that run jobs."""

    def __init__(self, concurrency: int, patience: float) -> None:
        self.loop = CaseLoop()
        self.scheduler = WorkerScheduler(self.loop, _describe, patience)
        self.transport = Transport(Coordinator(concurrency))
        self.transport.update(Coordinator.start)
        self.transport.connect("here", self.scheduler.receive)
        self.scheduler.connect(lambda message: self.transport.receive("here", message))

    def close(self) -> None:
        self.scheduler.close()
        self.loop.close()
        self.transport.close()


def _describe(index: int, error: BaseException) -> JobError:
    del index
    return JobError(f"{type(error).__name__}: {error}")


@contextlib.contextmanager
def process(concurrency: int = 2, patience: float = 60) -> Iterator[Process]:
    process = Process(concurrency, patience)
    try:
        yield process
    finally:
        process.close()


Report = Callable[[bool], None]


def finished(report: Report, path: str = "") -> CaseRun:
    report(False)
    return CaseRun(path)


def job(path: str = "") -> Job:
    async def run(report: Report) -> CaseRun:
        return finished(report, path)

    return run


def path_of(result: JobResult) -> str:
    assert isinstance(result, CaseRun)
    return result.path


def message_of(result: JobResult) -> str:
    assert isinstance(result, JobError)
    return result.message


def test_jobs_overlap_up_to_the_limit_and_start_in_order() -> None:
    started: list[int] = []
    running = peak = 0

    def numbered(number: int) -> Job:
        async def run(report: Report) -> CaseRun:
            nonlocal running, peak
            started.append(number)
            running += 1
            peak = max(peak, running)
            for _ in range(5):
                await asyncio.sleep(0)
            running -= 1
            return finished(report, str(number * number))

        return run

    jobs = {number: numbered(number) for number in range(10)}
    with process(concurrency=3) as here:
        here.scheduler.offer(jobs)
        assert [path_of(here.scheduler.result(number, jobs[number])) for number in jobs] == [str(n * n) for n in jobs]
    assert started == list(range(10))
    assert peak == 3


def test_a_permit_that_is_granted_at_once_needs_no_iteration_of_the_loop() -> None:
    """On a busy loop, the next iteration can be late."""
    rounds: list[str] = []

    async def asks(report: Report) -> CaseRun:
        asyncio.get_running_loop().call_soon(rounds.append, "an iteration")
        permits = here.scheduler.permits
        permits.release(await permits.acquire("model"), RequestOutcome("ok"))
        return finished(report, "".join(rounds))

    with process() as here:
        assert path_of(here.scheduler.result(0, asks)) == ""


def test_a_job_starts_in_the_context_in_which_it_was_offered_or_requested() -> None:
    """In the context of another job, it would continue that job's timer and could exceed the case timeout."""
    observed: list[tuple[str, case_timer.CaseTimer]] = []
    context_value = contextvars.ContextVar("left", default="")

    async def leaves_something(report: Report) -> CaseRun:
        observed.append((context_value.get(), case_timer.begin()))
        context_value.set("by a job")
        return finished(report)

    with process(concurrency=1) as here:
        context_value.set("when offered")
        here.scheduler.offer(dict.fromkeys(range(2), leaves_something))
        for number in range(2):
            here.scheduler.result(number, leaves_something)
        for turn in ("at its turn", "at the next"):
            context_value.set(turn)
            here.scheduler.result(2, leaves_something)
    assert [value for value, _ in observed] == ["when offered", "when offered", "at its turn", "at the next"]
    assert len({id(timer) for _, timer in observed}) == 4


def test_the_next_job_starts_while_another_is_stalled() -> None:
    third_runs = threading.Event()

    async def stalls(report: Report) -> CaseRun:
        with case_timer.stalled(0.0):
            while not third_runs.is_set():
                await asyncio.sleep(0.001)
        return finished(report, "continued")

    async def third(report: Report) -> CaseRun:
        third_runs.set()
        return finished(report, "third")

    with process(concurrency=2) as here:
        here.scheduler.offer({0: stalls, 1: stalls, 2: third})
        results = [here.scheduler.result(*one) for one in ((0, stalls), (1, stalls), (2, third))]
        assert [path_of(result) for result in results] == ["continued", "continued", "third"]
        assert here.transport.read(lambda coordinator: (coordinator.counts.running, coordinator.counts.stalled)) == (
            0,
            0,
        )


def test_a_job_that_is_stalled_twice_at_a_time_continues_when_both_blocks_have_ended() -> None:
    reports: list[bool] = []

    async def stalls() -> None:
        case_timer.begin(reports.append)
        outer, inner = case_timer.stalled(0.0), case_timer.stalled(0.0)
        with outer, inner:
            await asyncio.sleep(0.01)
        with case_timer.stalled(60):
            await asyncio.sleep(0)

    asyncio.run(stalls())
    assert reports == [True, False]


def test_the_next_job_starts_while_the_record_of_the_previous_one_is_written() -> None:
    second_runs = threading.Event()

    async def first(report: Report) -> CaseRun:
        report(False)
        while not second_runs.is_set():
            await asyncio.sleep(0.001)
        return CaseRun("written meanwhile")

    async def second(report: Report) -> CaseRun:
        second_runs.set()
        return finished(report, "second")

    with process(concurrency=1) as here:
        here.scheduler.offer({0: first, 1: second})
        assert path_of(here.scheduler.result(0, first)) == "written meanwhile"


def test_a_job_whose_record_cannot_be_written_has_failed() -> None:
    async def full(report: Report) -> CaseRun:
        report(False)
        raise OSError("no space left on device")

    with process() as here:
        assert message_of(here.scheduler.result(0, full)) == "OSError: no space left on device"


def test_a_job_that_was_not_offered_runs_once_for_each_request_of_its_result() -> None:
    starts: list[int] = []

    async def run(report: Report) -> CaseRun:
        starts.append(1)
        return finished(report, str(len(starts)))

    with process() as here:
        assert path_of(here.scheduler.result(0, run)) == "1"
        assert path_of(here.scheduler.result(0, run)) == "2"


def test_an_error_is_the_result_of_its_own_job_only() -> None:
    async def fails(report: Report) -> CaseRun:  # noqa: ARG001
        raise TimeoutError("of the job, not of the wait")

    with process() as here:
        assert message_of(here.scheduler.result(0, fails)) == "TimeoutError: of the job, not of the wait"
        assert path_of(here.scheduler.result(1, job("fine"))) == "fine"


def test_closing_cancels_jobs_lets_them_clean_up_and_ends_the_threads() -> None:
    begun, before = threading.Event(), set(threading.enumerate())
    events: list[str] = []

    async def endless(report: Report) -> CaseRun:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            events.append("job cleaned up")
        return finished(report)

    async def cleanup() -> None:
        events.append("connections closed")

    with process() as here:
        here.loop.on_close(cleanup)
        here.scheduler.offer({0: endless})
        begun.wait()
    assert events == ["job cleaned up", "connections closed"]
    assert not [thread.name for thread in threading.enumerate() if thread not in before]
    here.loop.close()  # a second time changes nothing


def test_a_stop_releases_the_item_that_waits() -> None:
    begun = threading.Event()

    async def endless(report: Report) -> CaseRun:
        begun.set()
        await asyncio.Event().wait()
        return finished(report)

    with process() as here:

        def stop() -> None:
            begun.wait()
            here.transport.update(lambda coordinator: coordinator.stop("interrupted"))

        stopper = threading.Thread(target=stop)
        stopper.start()
        with pytest.raises(NoResultError, match="interrupted") as caught:
            here.scheduler.result(0, endless)
        assert caught.value.kind == "stopped"
        stopper.join()


def test_a_withdrawn_job_has_ended_and_does_not_start_again() -> None:
    begun, release = threading.Event(), threading.Event()
    ended: list[int] = []

    async def lasting(report: Report) -> CaseRun:
        begun.set()
        while not release.is_set():
            await asyncio.sleep(0.001)
        ended.append(0)
        return finished(report, "the result")

    with process(concurrency=1) as here:
        here.scheduler.offer({0: lasting, 1: job()})
        begun.wait()
        release.set()
        here.scheduler.withdraw([0, 1])
        assert ended == [0]
        assert path_of(here.scheduler.result(0, job("not this one"))) == "the result"


BLOCKED = r"UsageError: a case has not ended after 0\.3 s: its agent blocks the event loop .* plain 'def'"


def test_a_job_that_blocks_the_loop_is_an_error_and_does_not_delay_the_end() -> None:
    release = threading.Event()

    async def blocks(report: Report) -> CaseRun:
        release.wait()
        return finished(report)

    with process(patience=0.3) as here:
        for index, waiting in enumerate((blocks, job())):
            here.scheduler.offer({index: waiting})
            assert re.match(BLOCKED, message_of(here.scheduler.result(index, waiting)))
        release.set()


def test_a_job_that_ignores_its_cancellation_does_not_delay_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_loop, "_GRACE", 0.5)
    release = threading.Event()

    async def stubborn(report: Report) -> CaseRun:
        while not release.is_set():
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue
        return finished(report)

    with process(concurrency=1, patience=0.3) as here:
        assert "ignores that it was canceled" in message_of(here.scheduler.result(0, stubborn))
    release.set()


def test_a_job_that_ends_the_loop_is_an_error() -> None:
    async def stops_the_loop(report: Report) -> CaseRun:
        asyncio.get_running_loop().stop()
        return await asyncio.sleep(3600, finished(report))

    with process(concurrency=1) as here:
        assert "the event loop that runs cases has ended" in message_of(here.scheduler.result(0, stops_the_loop))


@contextlib.contextmanager
def scheduler_with(answer: Callable[[WorkerScheduler, WorkerMessage], None]) -> Iterator[WorkerScheduler]:
    """Yield a scheduler whose coordinator is a function of the test, which answers its messages."""
    loop = CaseLoop()
    scheduler = WorkerScheduler(loop, _describe, patience=60)
    scheduler.connect(lambda message: answer(scheduler, message))
    try:
        yield scheduler
    finally:
        scheduler.close()
        loop.close()


def test_a_case_that_is_cancelled_before_its_first_step_reports_its_end() -> None:
    messages: list[WorkerMessage] = []
    ended, blocked, release = threading.Event(), threading.Event(), threading.Event()

    def answer(scheduler: WorkerScheduler, message: WorkerMessage) -> None:
        messages.append(message)
        if isinstance(message, CaseCanceled):
            ended.set()
        if isinstance(message, CasesWithdrawn):
            scheduler.receive(WithdrawalConfirmed(message.token))

    async def blocks(report: Report) -> CaseRun:
        blocked.set()
        release.wait()
        return finished(report)

    with scheduler_with(answer) as scheduler:
        scheduler.offer({0: job(), 1: blocks})
        scheduler.receive(RunCase(1, 1))
        assert blocked.wait(60)
        # The loop is blocked, so it processes both orders in one iteration.
        scheduler.receive(RunCase(0, 1))
        scheduler.receive(CancelCase(0, 1))
        release.set()
        assert ended.wait(60)
        assert [message for message in messages if message in (CaseCanceled(0, 1), CaseFinished(0, 1, False))] == [
            CaseCanceled(0, 1)
        ]
        scheduler.drain()


def test_a_withdrawal_waits_for_a_case_that_was_ordered_just_before() -> None:
    messages: list[str] = []

    def answer(scheduler: WorkerScheduler, message: WorkerMessage) -> None:
        messages.append(type(message).__name__)
        if isinstance(message, CasesWithdrawn):  # the order was on its way
            scheduler.receive(RunCase(0, 1))
            scheduler.receive(WithdrawalConfirmed(message.token))

    with scheduler_with(answer) as scheduler:
        scheduler.offer({0: job()})
        scheduler.drain()
        assert messages == ["CasesOffered", "CasesWithdrawn", "CaseFinished", "CaseCompleted"]


def test_without_a_coordinator_nothing_waits_for_its_answer() -> None:
    with scheduler_with(lambda *_: None) as scheduler:
        scheduler.offer({0: job()})
        scheduler.coordinator_lost()
        scheduler.drain()
