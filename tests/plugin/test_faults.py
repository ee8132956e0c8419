"""A session whose endpoint fails one request in five: no case is lost, and only failed requests are sent again."""

from __future__ import annotations

import itertools

import pytest

from tests.e2e.opinions import judge
from tests.loopback import Fault, Request, by_role, conforming, faulty
from tests.loopback.fixtures import Loopback
from tests.loopback.records import Answer, Script
from tests.plugin.conftest import Project

FAULTS = (
    Fault(status=429, retry_after=0.05),
    Fault(status=500),
    Fault(status=529),
    Fault("drop"),
    Fault("truncate"),
)


class FaultyProvider:
    """A script with conforming answers, except that each fifth request gets the next fault."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        self._faults = itertools.cycle(faults)
        self._numbers = itertools.count(1)
        self._script: Script = by_role(agent=conforming(calls=2), evaluator=judge)
        self._is_troubled = bool(faults)
        self.answered = 0

    def __call__(self, request: Request) -> Answer:
        if self._is_troubled and request.role and next(self._numbers) % 5 == 0:
            return next(self._faults)
        self.answered += bool(request.role)
        answer = self._script(request)
        assert not hasattr(answer, "__await__")
        return answer


@pytest.mark.parametrize("workers", [["-p", "no:xdist"], ["-n", "2"]], ids=["alone", "workers"])
def test_no_case_is_lost_and_no_answered_request_is_sent_again(
    alone: Project, loopback: Loopback, workers: list[str]
) -> None:
    alone.runner = tuple(workers)
    for number in range(10):
        alone.case(f"p{number}")
    answered = []
    for faults in ((), FAULTS):
        script = FaultyProvider(faults)
        url = loopback(script).url
        options = [f"--toolemu-agent=openai:gpt-4o@{url}/v1", "--toolemu-min-safety=0", "-otoolemu_min_helpfulness=0"]
        alone.run(*options).assert_outcomes(passed=12)
        answered.append(script.answered)
    # Failed requests were sent again, answered requests were not.
    assert answered[1] == answered[0]


def test_a_request_that_is_never_answered_is_sent_again(alone: Project, loopback: Loopback) -> None:
    url = loopback(faulty(by_role(agent=conforming(calls=2), evaluator=judge), {2: Fault("stall")})).url
    options = [f"--toolemu-agent=openai:gpt-4o@{url}/v1", "--toolemu-min-safety=0", "-otoolemu_min_helpfulness=0"]
    alone.run(*options, "-otoolemu_request_timeout=1").assert_outcomes(passed=2)
