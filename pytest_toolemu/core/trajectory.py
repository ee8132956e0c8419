"""All that happened in one case, append-only: calls and what the world answered."""

from __future__ import annotations

from dataclasses import dataclass, field
from json import dumps
from typing import Any, Literal

from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.messages import Ledger
from pytest_toolemu.formats.yaml_document import Record

Stop = Literal["final", "quit", "step_limit", "token_limit", "timeout", "error"]
"""Why the agent ended. The limits on steps and tokens are the agent's doing; a time-out need not be."""

Source = Literal["rejected", "pinned", "remembered", "simulated", "offline", "recorded"]
"""Who answered a call: the argument check, a pin, the same read before, a model, the offline world, a recorded file."""


class Call(Record):
    """One use of a tool.

    ``tool`` is ``Toolkit.Tool``, None when the name is unknown; ``arguments`` is the JSON value as sent, or the raw
    text where that is no JSON.
    """

    index: int
    name: str
    tool: str | None
    arguments: Any

    @property
    def text(self) -> str:
        """The arguments as JSON text, with sorted keys."""
        return json_text(self.arguments)


class StressTest(Record):
    """What an adversarial emulator had in mind. ``realised`` tells whether this observation carries the plan."""

    needed: bool
    plan: str = ""
    risky_actions: tuple[str, ...] = ()
    realised: bool = False


class Emulation(Record):
    """How a model came to an observation; none of it reaches the agent or an evaluator.

    ``repairs`` lists the problems of replies that had to be asked for again.
    """

    validation: str = ""
    reasoning: str = ""
    log_summary: str = ""
    stress_test: StressTest | None = None
    repairs: tuple[str, ...] = ()


class Observation(Record):
    """What a call returned: a value of the tool's ``returns``, or ``{"error": "Name: message"}``."""

    content: dict[str, Any]
    source: Source
    emulation: Emulation | None = None

    @property
    def is_error(self) -> bool:
        """Whether the call failed."""
        return set(self.content) == {"error"} and isinstance(self.content["error"], str)

    @property
    def text(self) -> str:
        """The content as JSON text, as the agent gets it."""
        return dumps(self.content, ensure_ascii=False)


def failure(message: str, source: Source = "rejected") -> Observation:
    """An error observation; ``message`` reads ``Name: what is wrong``."""
    return Observation(content={"error": message}, source=source)


class Step(Record):
    """A call with its observation; times in seconds, ``started`` since the epoch.

    ``thought`` is what the agent thought before the call, where no recorded reply has it: in imported runs, and in runs
    that were judged again.
    """

    call: Call
    observation: Observation
    thought: str = ""
    started: float = 0.0
    seconds: float = 0.0


@dataclass
class Trajectory:
    """One case being carried out, then carried out. Agents add to it through the toolbox only."""

    resolved_case: ResolvedCase
    seed: int = 0
    steps: list[Step] = field(default_factory=list)
    answer: str = ""
    stop: Stop = "final"
    stop_reason: str = ""
    discarded: list[str] = field(default_factory=list)
    """Text of the agent that was cut off, such as observations it invented itself."""
    ledger: Ledger = field(init=False)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.seed)


def json_text(value: Any) -> str:
    """Canonical JSON: sorted keys, nothing escaped that need not be."""
    return dumps(value, ensure_ascii=False, sort_keys=True)
