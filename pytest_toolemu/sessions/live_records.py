"""What a running session writes about itself, one small file per process, for people who watch it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pytest_toolemu.formats.yaml_document import Record
from pytest_toolemu.sessions.manifest_records import Count, Number

CaseStage = Literal["starting", "acting", "talking", "judging"]
"""The case has not begun; its agent acts; its user replies to the agent; its evaluators judge."""


class CaseInFlight(Record):
    """A case that a process is running."""

    item: str = Field(description="Node ID of the test item")
    case: str = Field(description="ID of the case")
    agent: str = Field(default="", description="Name of the agent")
    trial: Count = Field(default=1, description="Number of the trial, from 1")
    stage: CaseStage = Field(default="starting", description="What happens in the case")
    calls: Count = Field(default=0, description="Number of answered tool calls")
    tool: str = Field(default="", description="Tool whose call is being answered; empty if none is")
    seconds: Number = Field(default=0, description="Running time without pauses, in seconds")
    paused: bool = Field(
        default=False, description="Whether the case waits to send a request: for a permit, or before it repeats one"
    )


class RequestLimit(Record):
    """The limit of concurrent requests to one endpoint."""

    name: str = Field(description="Provider, model, and host")
    limit: Count = Field(description="Number of requests that may be in flight now")
    in_flight: Count = Field(description="Number of requests in flight")
    queued: Count = Field(description="Number of requests that wait for a permit")
    refused: Count = Field(description="Number of requests that the endpoint has refused for load")


class ExpectedEnd(Record):
    """An extrapolation of the remaining time, and its basis."""

    seconds: Count = Field(description="Estimated remaining time in seconds")
    elapsed: Number = Field(description="Seconds since the first case began")
    cases: Count = Field(description="Number of cases that were run in that time, without resumed ones")
    cases_left: Count = Field(description="Number of cases that still have to run")


class SessionProgress(Record):
    """What the process that leads a session knows of the whole session."""

    total: Count = Field(description="Number of cases")
    completed: Count = Field(default=0, description="Number of cases with a result")
    resumed: Count = Field(default=0, description="Number of those whose run is of an earlier session")
    running: Count = Field(default=0, description="Number of cases in flight, with those being written")
    stalled: Count = Field(default=0, description="Number of running cases that a provider makes wait")
    outcomes: dict[str, Count] = Field(default={}, description="Number of reported cases by outcome")
    tokens: Count = Field(default=0, description="Input and output tokens so far")
    cost: str = Field(default="", description="Cost so far in words; empty if no request was sent")
    budget: str = Field(default="", description="Limits of cost, tokens, and time in words; empty without any")
    expected_end: ExpectedEnd | None = Field(
        default=None, description="Estimate of the remaining time; null as long as no case was run"
    )
    request_limits: tuple[RequestLimit, ...] = Field(default=(), description="Limits of concurrent requests")
    problems: tuple[str, ...] = Field(default=(), description="Why requests to some provider are no longer sent")
    resume: str = Field(default="", description="Command that resumes the session")
    directory: str = Field(default="", description="Folder in which that command works")


class LiveProcess(Record):
    """A process of a running session. It replaces its file about once a second, and removes it when it ends."""

    process: str = Field(description="`main`, or the name of an xdist worker")
    pid: Count = Field(description="Process ID")
    started: Count = Field(description="Start of the process in clock ticks after boot; 0 if the system does not say")
    host: str = Field(description="Name of the computer")
    updated: Number = Field(description="When this was written, in seconds since the epoch")
    cases: tuple[CaseInFlight, ...] = Field(default=(), description="Cases in flight, the oldest first")
    progress: SessionProgress | None = Field(
        default=None, description="The session as a whole; null in a process that does not lead it"
    )
