"""In the terminal, errors of agent code, providers and the harness look different, and equal ones are shown once."""

from __future__ import annotations

import fnmatch
import json

import pytest

from tests.loopback import Fault
from tests.loopback.fixtures import Loopback
from tests.plugin.conftest import CASE, Project, in_one_process, in_one_process_and_first_with_workers

BREAKING = """
import openai

async def buggy(task, toolbox):
    raise ValueError("a bug of the agent")

async def cut_off(task, toolbox):
    client = openai.AsyncOpenAI(api_key="k", base_url="http://127.0.0.1:9/v1", max_retries=0)
    await client.models.list()
"""


@pytest.fixture
def breaking(project: Project) -> Project:
    project.write("mine.py", BREAKING)
    for number in range(6):
        project.case(f"p{number}")
    return project


def test_equal_provider_failures_are_shown_once_with_their_count(breaking: Project) -> None:
    result = breaking.run("--toolemu-agent=mine:cut_off")
    result.assert_outcomes(errors=8)
    text = result.stdout.str()
    assert text.count("A model provider failed; this says nothing about the agent.") == 1
    assert "Traceback" not in text
    assert "site-packages" not in text
    result.stdout.fnmatch_lines(
        [
            "broken: APIConnectionError: Connection error. (http://127.0.0.1:9: *",
            "A model provider failed; this says nothing about the agent. 0 tool calls made. record: *",
            "broken (provider)  cases/*[[]mine:cut_off[]] and 7 more: APIConnectionError: Connection error.*",
        ]
    )


@in_one_process
def test_an_exception_in_the_agents_own_code_is_attributed_to_the_agent(breaking: Project) -> None:
    result = breaking.run("--toolemu-agent=mine:buggy", "--toolemu-report=json")
    result.assert_outcomes(errors=8)
    text = result.stdout.str()
    assert "says nothing about the agent" not in text
    assert text.count('raise ValueError("a bug of the agent")') == 1
    result.stdout.fnmatch_lines(
        [
            "broken: ValueError: a bug of the agent",
            "The agent's own code failed. The case has no verdict until the agent is fixed.",
            "broken (agent code)  cases/*[[]mine:buggy[]] and 7 more: ValueError: a bug of the agent",
        ]
    )
    content = json.loads(next(breaking.path.glob(".toolemu/2*/report.json")).read_text())
    assert {one["broken_by"] for one in content["runs"]} == {"agent"}


@in_one_process
def test_equal_failures_that_name_their_case_are_shown_once(breaking: Project) -> None:
    breaking.case("p9", text=CASE.replace("  safe:", "  other:"))
    result = breaking.run("--toolemu-agent=reference:other")
    result.assert_outcomes(errors=8, passed=1)
    assert result.stdout.str().count("ERROR at setup of") == 1
    result.stdout.fnmatch_lines(
        ["broken: UsageError: the case '*' has no reference 'other'*", "broken (*)  cases/* and 7 more: *"]
    )


@in_one_process_and_first_with_workers(
    ("agent", "message"),
    [
        ("reference:saef", "no collected case has a reference 'saef'; did you mean 'safe'?"),
        ("mine:short", "the agent 'mine:short' cannot be called with task and toolbox: *"),
    ],
)
def test_a_mistake_about_all_cases_is_reported_once_and_not_resumed(
    breaking: Project, agent: str, message: str
) -> None:
    breaking.write("mine.py", "def short(task): return 'done'\n")
    result = breaking.run(f"--toolemu-agent={agent}")
    assert result.ret != pytest.ExitCode.OK
    result.assert_outcomes()
    text = result.stdout.str() + result.stderr.str()
    assert "ERROR at setup of" not in text
    assert "resume with" not in text
    assert fnmatch.filter(text.splitlines(), f"*{message}*")


@in_one_process
def test_cases_that_nothing_can_judge_are_refused_before_the_first(breaking: Project) -> None:
    for path in breaking.path.glob("cases/*.yaml"):
        text = path.read_text()
        path.write_text(text[: text.index("checks:")] + text[text.index("references:") :])
    breaking.write("mine.py", "def answer(task, toolbox): return 'done'\n")
    result = breaking.run("--toolemu-agent=mine:answer")
    assert result.ret != pytest.ExitCode.OK
    result.assert_outcomes()
    text = result.stdout.str() + result.stderr.str()
    assert "only the checks of each case judge, and no collected case has any" in text
    assert "resume with" not in text
    later = breaking.run("--toolemu-agent=mine:answer", "--toolemu-judge-later")
    assert "8 unjudged" in later.stdout.str()


EXPECTED_FAILURES = """
import pytest

def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.xfail(reason="known unsafe"))
"""


def test_the_mark_xfail_expects_a_failure_of_the_agent_but_no_missing_verdict(alone: Project) -> None:
    alone.write("mine.py", BREAKING)
    alone.write("conftest.py", EXPECTED_FAILURES)
    unsafe = alone.run("--toolemu-agent=reference:risky")
    assert (unsafe.parseoutcomes(), unsafe.ret) == ({"xfailed": 2}, 0)
    broken = alone.run("--toolemu-agent=mine:buggy")
    assert (broken.parseoutcomes(), broken.ret) == ({"errors": 2}, 1)
    broken.stdout.fnmatch_lines(["broken: ValueError: a bug of the agent"])
    # Gates count cases without a verdict, with the mark as without it.
    gated = alone.run("--toolemu-agent=mine:buggy", "--toolemu-gate=pass_rate >= 0.5")
    assert gated.parseoutcomes()["undecided"] == 2


def test_an_exception_of_an_evaluator_is_attributed_to_the_harness(alone: Project) -> None:
    alone.write(
        "conftest.py",
        "import pytest\n@pytest.fixture\ndef toolemu_safety_evaluator():\n"
        "    async def judge(trajectory):\n        raise LookupError('a bug of the judge')\n    return judge\n",
    )
    result = alone.run("--toolemu-agent=noact")
    result.stdout.fnmatch_lines(
        [
            "broken: LookupError: a bug of the judge",
            "The evaluation harness failed; this says nothing about the agent.",
            "broken (harness)  *: LookupError: a bug of the judge",
        ]
    )


def test_different_failures_are_each_shown(alone: Project, loopback: Loopback) -> None:
    """The requests of two cases are refused with different messages."""
    messages = iter(("first complaint", "second complaint"))
    url = loopback(lambda _request: Fault(status=400, message=next(messages))).url
    result = alone.run(f"--toolemu-agent=openai:gpt-4o@{url}/v1", "--toolemu-concurrency=1")
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(["broken: ModelError: *first complaint", "broken: ModelError: *second complaint"])
    assert "more case" not in result.stdout.str()
