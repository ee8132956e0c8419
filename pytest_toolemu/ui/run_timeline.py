"""What happened in a run, in order of time: requests to models and tool calls, with their durations."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_toolemu.core.messages import Message, ModelCall
from pytest_toolemu.core.run import Run


@dataclass(frozen=True)
class TimelineEntry:
    """A request to a model, or a tool call; ``number`` counts from 1.

    ``at`` is the start in seconds since that of the first entry; None if the record does not have it.
    """

    number: int
    label: str
    at: float | None
    seconds: float
    call: ModelCall | None = None
    """The request; None for a tool call."""


@dataclass(frozen=True)
class RunTimeline:
    """The entries of a run, the earliest first; ``total`` is the time in seconds until the last one ended."""

    entries: tuple[TimelineEntry, ...]
    total: float

    def left(self, entry: TimelineEntry) -> float:
        """Return where the bar of an entry begins, in percent of the whole time."""
        return round(100 * (entry.at or 0) / self.total, 2) if self.total else 0

    def width(self, entry: TimelineEntry) -> float:
        """Return the length of the bar of an entry, in percent of the whole time; at least half a percent."""
        return round(max(0.5, 100 * entry.seconds / self.total), 2) if self.total else 0.5


def run_timeline(run: Run) -> RunTimeline:
    """Return the timeline of a run."""
    starts = [call.started for call in run.model_calls] + [step.started for step in run.steps]
    first = min(filter(None, starts), default=0.0)

    def since(started: float) -> float | None:
        return started - first if started else None

    calls = [
        TimelineEntry(number, call.role, since(call.started), call.seconds, call)
        for number, call in enumerate(run.model_calls, 1)
    ]
    steps = [
        TimelineEntry(number, step.call.name, since(step.started), step.seconds)
        for number, step in enumerate(run.steps, 1)
    ]
    entries = tuple(sorted((*calls, *steps), key=lambda entry: (entry.at is None, entry.at or 0.0)))
    return RunTimeline(entries, max((entry.at + entry.seconds for entry in entries if entry.at is not None), default=0))


def request_messages(run: Run, call: ModelCall) -> list[Message]:
    """Return the messages of a request; those that a damaged record lacks are left out."""
    return [run.messages[index] for index in call.messages if 0 <= index < len(run.messages)]
