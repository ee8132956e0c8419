"""What stops the session: a provider that fails repeatedly, a full disk, and an agent whose tools are not emulated."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest

from tests.e2e.opinions import judge
from tests.loopback import Fault, Request, by_role, conforming
from tests.loopback.fixtures import Loopback
from tests.loopback.records import Answer, Reply
from tests.plugin.conftest import Project, in_one_process, in_one_process_and_first_with_workers

CASES = 18


@dataclass
class FailingProvider:
    """A script that answers ``after`` completions, and each further one with ``fault`` while that is set."""

    after: int
    fault: Fault | None
    answered: int = 0
    failed: int = 0

    def __call__(self, request: Request) -> Answer:
        if request.role and self.fault is not None and self.answered >= self.after:
            self.failed += 1
            return self.fault
        self.answered += bool(request.role)
        answer = by_role(agent=conforming(calls=2), evaluator=judge)(request)
        assert not hasattr(answer, "__await__")
        return answer


@pytest.fixture
def many(project: Project) -> Project:
    for name in ("anna", "bert"):
        (project.path / "cases" / f"{name}.toolemu.yaml").unlink()
    for number in range(CASES):
        project.case(f"p{number:02}")
    return project


def agent(url: str, name: str = "gpt-4o") -> str:
    return f"--toolemu-agent=openai:{name}@{url}/v1"


PASSING = ("--toolemu-min-safety=0", "-otoolemu_min_helpfulness=0", "--toolemu-concurrency=3")


@in_one_process_and_first_with_workers(
    "fault",
    [
        Fault(status=401, message="no such key"),
        Fault(status=404, message="no such model"),
        Fault(status=429, message="You have run out of quota", code="insufficient_quota"),
    ],
    ids=["refused key", "missing model", "spent quota"],
)
def test_after_repeated_permanent_failures_of_a_provider_no_case_is_started_until_a_resume(
    many: Project, loopback: Loopback, fault: Fault
) -> None:
    script = FailingProvider(after=12, fault=fault)
    url = loopback(script).url
    result = many.run(agent(url), *PASSING)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    broken = [run for run in many.runs() if run.outcome == "broken"]
    not_run = CASES - len(many.runs())
    # Five failures are counted, and requests are in flight then; each request with a schema is sent again without it.
    assert script.failed <= 2 * (5 + 2 * 3)
    assert not_run >= CASES - 12
    assert many.manifest()["not_run"] == not_run
    assert {run.error.origin for run in broken if run.error} == {"provider"}
    text = result.stdout.str()
    assert text.count("a provider failed 5 times in a row in the same way, with no success in between") == 1
    result.stdout.fnmatch_lines(
        [
            "openai:gpt-4o: * of 18 not run: a provider failed 5 times in a row in the same way, with no success in "
            f"between, so no more cases that need it are started: openai:gpt-4o: {url}/v1 *",
            f"*{len(broken)} error*, {not_run} not run in *",
        ]
    )
    script.fault = None
    resumed = many.run(agent(url), *PASSING, "--toolemu-resume")
    resumed.assert_outcomes(passed=CASES)


@in_one_process
def test_cases_that_need_another_provider_continue(many: Project, loopback: Loopback) -> None:
    dead, alive = loopback(FailingProvider(0, Fault(status=403))).url, loopback(FailingProvider(0, None)).url
    result = many.run(agent(dead), agent(alive, "gpt-4o-mini"), f"--toolemu-emulator=openai:e@{alive}/v1", *PASSING)
    assert result.parseoutcomes()["passed"] == CASES
    result.stdout.fnmatch_lines(["openai:gpt-4o: * of 18 not run: *answered 403: *"])
    assert "openai:gpt-4o-mini: " not in [
        line.partition("not run")[0] for line in result.outlines if "not run:" in line
    ]


def test_after_repeated_failures_of_the_judge_no_agent_is_started(alone: Project, loopback: Loopback) -> None:
    for number in range(CASES):
        alone.case(f"p{number:02}")
    acting, judging = FailingProvider(0, None), FailingProvider(0, Fault(status=401))
    evaluator = f"--toolemu-evaluator=openai:judge@{loopback(judging).url}/v1"
    alone.run(agent(loopback(acting).url), evaluator, *PASSING)
    assert judging.failed <= 10
    assert acting.answered <= 5 * 8


def test_failures_between_successes_do_not_add_up(alone: Project, loopback: Loopback) -> None:
    """Every third completion of one agent is permanently refused; the others are answered."""
    numbers = iter(range(10_000))
    obeys = FailingProvider(0, None)

    def script(request: Request) -> Answer:
        return Fault(status=403) if request.role and next(numbers) % 3 == 2 else obeys(request)

    for number in range(CASES):
        alone.case(f"p{number:02}")
    result = alone.run(agent(loopback(script).url), *PASSING)
    assert "not run" not in result.stdout.str()
    assert len(alone.runs()) == CASES + 2


@in_one_process
def test_an_emulator_without_any_valid_reply_stops_the_session_until_a_resume(
    many: Project, loopback: Loopback
) -> None:
    is_mute = [True]
    for path in (many.path / "cases").glob("*.toolemu.yaml"):  # without pins, the emulator is asked
        path.write_text(re.sub(r"pins:\n(  - .*\n)+", "", path.read_text()))

    answering = conforming()

    def emulate(request: Request) -> Any:
        return Reply("I cannot.") if is_mute else answering(request)

    url = loopback(by_role(agent=conforming(calls=2), emulator=emulate, evaluator=judge)).url
    limits = ("-otoolemu_same_failures=4", "--toolemu-concurrency=1")
    result = many.run(agent(url), *PASSING[:2], *limits)
    assert {run.outcome for run in many.runs()} == {"inconclusive"}
    assert len(many.runs()) <= 6, "four, and those in flight"
    result.stdout.fnmatch_lines(
        [
            "openai:gpt-4o: * of 18 not run: this agent with its emulator and judges failed 4 times in a row in the same "
            "way, with no success in between, so no more cases that need it are started: * "
            "(toolemu_same_failures: 4)*"
        ]
    )
    is_mute.clear()
    again = many.run(agent(url), *PASSING[:2], *limits, "--toolemu-resume", "-otoolemu_resume_again=inconclusive")
    again.assert_outcomes(passed=CASES)


ONCE = """
verdicts = []

def act(task, toolbox):
    if not verdicts:
        verdicts.append(1)
        return "Done."
    raise KeyError("desk")
"""


@in_one_process
def test_after_one_verdict_runs_that_fail_alike_do_not_stop_the_session(many: Project) -> None:
    many.write("mine.py", ONCE)
    args = ("--toolemu-agent=mine:act", "-otoolemu_same_failures=4", "--toolemu-concurrency=1", *PASSING[:2])
    assert "not run" not in many.run(*args).stdout.str()
    many.write("mine.py", ONCE.replace("[]", "[1]"))
    many.run(*args).stdout.fnmatch_lines(["mine:act: * of 18 not run: *KeyError: 'desk' (toolemu_same_failures: 4)"])


OWN = """
import openai, os

async def asks(task, toolbox):
    client = openai.AsyncOpenAI(api_key="k", base_url=open("url").read(), max_retries=0)
    done = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": str(task)}])
    return done.choices[0].message.content
"""


@in_one_process
def test_an_agent_whose_own_client_keeps_failing_is_not_started_again(many: Project, loopback: Loopback) -> None:
    script = FailingProvider(after=4, fault=Fault(status=503))
    many.write("mine.py", OWN)
    many.write("url", f"{loopback(script).url}/v1")
    args = ("--toolemu-agent=mine:asks", "--toolemu-agent=reference:safe", *PASSING)
    result = many.run(*args)
    result.stdout.fnmatch_lines(["mine:asks: * of 18 not run: *InternalServerError: Error code: 503*"])
    assert result.parseoutcomes()["passed"] == CASES + 4
    assert script.failed <= 5 + 2 * 3


VANISHING = """
import os, pytest, shutil

@pytest.fixture
def toolemu_agent():
    async def agent(task, toolbox):
        await toolbox.call("Till_Look", {"who": "x"})
        if "P03" in task and os.path.exists("break"):
            exec(open("break").read())
        return "Shall I pay? " + 50_000 * "."
    return agent
"""
FULL_DISK = """
from pytest_toolemu.formats import file_access

def full(descriptor):
    raise OSError(28, "No space left on device")

file_access.os.fsync = full
"""
# The real limit, RLIMIT_FSIZE, would also cut off the file with pytest's output.
LIMIT = """
from pytest_toolemu.sessions import store

store.record_limit = lambda: 2_000
"""
FOREIGN_TOOL = """
import pytest

@pytest.fixture
def toolemu_agent():
    async def agent(task, toolbox):
        toolbox.used("openai:gpt-4o", input=100, output=10)
        toolbox.require_tools("porter", ["burn_down", toolbox.tools[0].name])
        return "never reached"
    return agent
"""
FREE = "free disk space, restore the folder, or raise 'ulimit -f'"
ACTIONS = {
    "the folder vanishes": ("shutil.rmtree('.toolemu')", FREE),
    "the disk is full": (FULL_DISK, FREE),
    "even a shortened record is too large": (LIMIT, FREE),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_the_first_record_that_cannot_be_written_stops_the_session_and_resuming_runs_the_rest(
    alone: Project, action: str
) -> None:
    for name in ("anna", "bert"):
        (alone.path / "cases" / f"{name}.toolemu.yaml").unlink()
    for number in range(CASES):
        alone.case(f"p{number:02}")
    alone.write("conftest.py", VANISHING)
    code, remedy = ACTIONS[action]
    trouble = alone.write("break", code)
    result = alone.run("--toolemu-concurrency=2", "-otoolemu_min_helpfulness=0")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    text = result.stdout.str()
    assert "INTERNALERROR" not in text
    assert text.count("no record can be written to .toolemu/") == 1
    result.stdout.fnmatch_lines(
        [
            "*: ?? of 18 not run: no record can be written to .toolemu/* (*), so no more cases are started and no more "
            f"requests are sent: {remedy}",
        ]
    )
    started = int(text.partition(" passed")[0].rpartition(" ")[2])
    assert started <= 5
    trouble.unlink()
    resumed = alone.run("--toolemu-concurrency=2", "-otoolemu_min_helpfulness=0", "--toolemu-resume")
    resumed.assert_outcomes(passed=CASES)
    assert (f"{started} resumed" in resumed.stdout.str()) == (action != "the folder vanishes")


def test_no_request_is_sent_after_the_first_record_that_cannot_be_written(alone: Project, loopback: Loopback) -> None:
    """The run directory vanishes with the judge's second reply: requests in flight end, and no others are sent."""
    script = FailingProvider(0, None)

    def breaking(request: Request) -> Answer:
        if request.role == "evaluator" and request.schema_name == "helpfulness":
            for folder in (alone.path / ".toolemu").glob("2*"):
                folder.rename(alone.path / "gone")
        return script(request)

    for number in range(CASES):
        alone.case(f"p{number:02}")
    result = alone.run(agent(loopback(breaking).url), "--toolemu-concurrency=1", "--toolemu-min-safety=0")
    # Seven requests of the first case, and at most as many of the next one, which runs while the record is written.
    assert script.answered <= 2 * 7
    assert f"{CASES + 2} not run in" in result.stdout.str()
    # The cost of the case is counted, although its record is lost.
    result.stdout.fnmatch_lines(["*USD agent * requests*"])


# An agent whose arguments are larger than the limit of a record in this test.
LAVISH = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (120_000, resource.RLIM_INFINITY))

async def act(task, toolbox):
    if "Anna" in task:
        for _ in range(12):
            await toolbox.call("Till_Look", {"who": "x" * 20_000})
    await toolbox.call("Till_Look", {"who": "Bert"})
    return "You owe 12. Shall I pay?"
"""


def test_a_record_that_is_too_large_breaks_its_own_case_only(project: Project) -> None:
    project.write("lavish.py", LAVISH)
    result = project.run("--toolemu-agent=lavish:act")
    sentence = "the record of this run has 0.? MB, but the limit is 0.1 MB; texts in the record are cut."
    result.stdout.fnmatch_lines([f"broken: {sentence}*", f"broken (harness) *anna*: {sentence}*"])
    result.assert_outcomes(passed=1, errors=1)
    large, small = project.runs()
    assert (large.outcome, small.outcome) == ("broken", "passed")
    assert large.error is not None
    assert large.error.origin == "harness"
    assert len(large.steps) == 13
    assert large.steps[0].call.arguments["who"].endswith(" more characters were cut)")
    assert large.answer == "You owe 12. Shall I pay?"
    assert {verdict.metric for verdict in large.verdicts} == {"safety", "helpfulness", "honesty"}


def test_a_tool_of_an_existing_agent_that_no_toolkit_has_stops_the_session_with_its_name(alone: Project) -> None:
    alone.write("conftest.py", FOREIGN_TOOL)
    result = alone.run("--toolemu-concurrency=1")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    message = "the agent porter has tools that no toolkit of the case * has: burn_down; declare or import them *"
    result.stdout.fnmatch_lines([f"*not run: {message}"])
    assert "INTERNALERROR" not in result.stdout.str()
    result.stdout.fnmatch_lines(["*USD agent 0.00035 (1 request, *", "*== 2 not run in *"])
