"""What happened in one case: the agent's calls and their results, in order."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from json import JSONEncoder, dumps
from typing import Any, Final, Literal

from pydantic import Field

from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.messages import FallbackUse, Ledger
from pytest_toolemu.core.world.state_changes import StateChange
from pytest_toolemu.core.world.world import World, beginning_of
from pytest_toolemu.core.world.world_state import StateHistory, WorldBeginning
from pytest_toolemu.formats.yaml_document import Record

# Created once: 'dumps' with these options would create an encoder for each text, of which a report needs thousands.
_CANONICAL: Final = JSONEncoder(ensure_ascii=False, sort_keys=True)

TurnEnding = Literal["final", "quit", "step_limit", "token_limit", "timeout", "error"]
"""Why the agent's turn ended. The agent causes the limits on steps and tokens; it need not cause a timeout."""

Source = Literal["rejected", "pinned", "rows", "remembered", "simulated", "offline", "recorded", "person"]
"""What answered: validation, a pin, rows, an equal earlier read, a model, the offline emulator, an import, a person."""


class Call(Record):
    """One use of a tool.

    ``tool`` is ``Toolkit.Tool``, or None if the name is unknown. ``arguments`` is the JSON value that the agent
    sent, or its text if that is not JSON.
    """

    index: int = Field(description="Number of the call, from 0")
    name: str = Field(description="Name by which the agent called the tool")
    tool: str | None = Field(description="The tool as `Toolkit.Tool`; null if the name is unknown")
    arguments: Any = Field(description="The JSON value that the agent sent, or its text if that is not JSON")

    @property
    def text(self) -> str:
        """The arguments as JSON text, with sorted keys."""
        return json_text(self.arguments)


class StressTest(Record):
    """The plan of an adversarial emulator. ``realised``: this observation carries it out."""

    needed: bool = Field(description="Whether the call required a plan")
    plan: str = Field(default="", description="How the emulated world tempts the agent into a risky action")
    risky_actions: tuple[str, ...] = Field(default=(), description="The risky actions that the plan leads to")
    realised: bool = Field(default=False, description="Whether this observation carries out the plan")


class Emulation(Record):
    """How a model arrived at an observation. Neither the agent nor an evaluator sees any of it.

    ``repairs`` lists the problems of rejected replies, which the model was asked to correct.
    """

    validation: str = Field(default="", description="The emulator's check of the call")
    reasoning: str = Field(default="", description="The emulator's reasoning")
    log_summary: str = Field(default="", description="New facts of the emulated world")
    stress_test: StressTest | None = Field(default=None, description="Plan of an adversarial emulator")
    repairs: tuple[str, ...] = Field(default=(), description="Problems of rejected replies, which it had to correct")
    fallback: FallbackUse | None = Field(default=None, description="Which fallback model answered; null if none did")


class Observation(Record):
    """The result of a call: a value that satisfies the tool's ``returns``, or ``{"error": "Name: message"}``."""

    content: dict[str, Any] = Field(description="A value that satisfies the tool's `returns`, or an `error`")
    source: Source = Field(description="What answered the call")
    emulation: Emulation | None = Field(default=None, description="How a model arrived at the observation")

    @property
    def is_error(self) -> bool:
        """Whether the result is an error."""
        return set(self.content) == {"error"} and isinstance(self.content["error"], str)

    @property
    def text(self) -> str:
        """The content as JSON text, as the agent receives it."""
        return dumps(self.content, ensure_ascii=False)


def failure(message: str, source: Source = "rejected") -> Observation:
    """Return an observation with an error; ``message`` has the form ``Name: what is wrong``."""
    return Observation(content={"error": message}, source=source)


class Step(Record):
    """A call with its observation. Times are in seconds, ``started`` since the epoch.

    ``thought`` is the agent's reasoning before the call. It is set only if no recorded reply contains it: in imported
    and in rejudged runs.
    """

    call: Call = Field(description="The tool call")
    observation: Observation = Field(description="What the call returned")
    thought: str = Field(default="", description="Reasoning before the call, if no recorded reply has it")
    changes: tuple[StateChange, ...] = Field(default=(), description="The rows that the call added, changed or removed")
    started: float = Field(default=0.0, description="Start, in seconds since the epoch")
    seconds: float = Field(default=0.0, description="Duration in seconds")


ReplyKind = Literal["answer", "consent", "refuse", "unknown", "over"]


class Utterance(Record):
    """Something that the agent said to the user, or the user's reply."""

    step: int = Field(description="Number of tool calls before it")
    by: Literal["agent", "user"] = Field(description="Who said it")
    text: str = Field(description="What was said")
    kind: ReplyKind | None = Field(default=None, description="What the user did; null for the agent")
    facts: tuple[str, ...] = Field(default=(), description="IDs of the facts of the case that the user stated")
    repairs: tuple[str, ...] = Field(default=(), description="Problems of rejected replies of the user's model")


@dataclass
class Trajectory:
    """The course of one run. Agents add to it only through the toolbox."""

    resolved_case: ResolvedCase
    seed: int = 0
    steps: list[Step] = field(default_factory=list)
    answer: str = ""
    stop: TurnEnding = "final"
    stop_reason: str = ""
    discarded: list[str] = field(default_factory=list)
    """Text of the agent that was discarded, such as observations that it made up itself."""
    agent_log: str = ""
    """The end of what the agent's program wrote to standard error."""
    agent_warning: str = ""
    """What may explain the result, and is not part of the trajectory."""
    interrupted: str = ""
    """What the agent was doing when its time was up, as far as it is known."""
    dialogue: list[Utterance] = field(default_factory=list)
    """What agent and user said to each other, in order, without the answer."""
    current_call: Call | None = None
    """The call that is being answered."""
    has_ended: bool = False
    """Whether the agent's turn has ended, so that evaluators judge."""
    turns: int = 1
    """Number of messages that the agent may write to the user; the last one is its answer."""
    ledger: Ledger = field(init=False)
    _state: tuple[int, StateHistory] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.seed)

    @property
    def state(self) -> StateHistory:
        """The states of the rows so far. Raise WorldError if the case has no valid rows."""
        if self._state is None or self._state[0] != len(self.steps):
            changes = [step.changes for step in self.steps]
            self._state = len(self.steps), StateHistory(self.beginning, changes)
        return self._state[1]

    @functools.cached_property
    def beginning(self) -> WorldBeginning:
        """How the rows of the case begin. Raise WorldError if the case has no valid rows."""
        return beginning_of(self.resolved_case)

    @functools.cached_property
    def world(self) -> World | None:
        """The rows of the case, on which calls are executed; None if the case has none. Raise WorldError."""
        case = self.resolved_case.case
        return World.begun(self.beginning, case) if case.world else None

    def release_world(self) -> None:
        """Release the databases of the rows after the last call; the state can still be queried."""
        vars(self).pop("world", None)


def json_text(value: Any) -> str:
    """Return canonical JSON text: sorted keys, and no unnecessary escapes."""
    return _CANONICAL.encode(value)


"""What the user did: state facts, give a permission, refuse one, know nothing, or end the conversation."""


class UserReply(Record):
    """The user's reaction to what the agent said. The text is empty if the conversation is over."""

    kind: ReplyKind
    text: str = ""
    facts: tuple[str, ...] = ()
    repairs: tuple[str, ...] = ()


def calls_before_told(dialogue: Sequence[Utterance], facts: Sequence[str]) -> int | None:
    """Return the number of calls before the user had stated all of these facts; None if some were never stated."""
    missing = set(facts)
    for utterance in dialogue:
        missing -= set(utterance.facts)
        if not missing:
            return utterance.step
    return None


def said_lines(dialogue: Sequence[Utterance], step: int) -> Iterator[dict[str, str]]:
    """Yield what was said directly before a call, as models read it; after the last call if there is no such call."""
    for utterance in dialogue:
        if utterance.step == step:
            yield {"said": utterance.text, "by": utterance.by}


def words_of_agent(dialogue: Sequence[Utterance]) -> str:
    """Return everything that the agent has said to the user so far."""
    return "\n".join(utterance.text for utterance in dialogue if utterance.by == "agent")
