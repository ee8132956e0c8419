"""What a provider's batches have in common, and what was sent in them.

``batches.json``, next to the records, lists the batches. ``batches/`` has the requests of each one, by custom ID, and
the results of those that have ended: an interrupted command continues without paying twice.
"""

from __future__ import annotations

import json
import os
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol

from pydantic import Field

from pytest_toolemu.core.messages import ModelRequest, Reply
from pytest_toolemu.core.run import sha256
from pytest_toolemu.errors import ModelError, UsageError
from pytest_toolemu.formats.file_access import lock_file, make_subfolder, read_record, read_regular, write_atomically
from pytest_toolemu.formats.yaml_document import Record
from pytest_toolemu.models.endpoint import Body, RemoteModel

if TYPE_CHECKING:
    from pytest_toolemu.models.sdk_model import SdkModel

STATE: Final = "batches.json"
"""The file in the folder of the records that lists the batches."""

SUBJECT: ContextVar[str] = ContextVar("toolemu_batch_subject", default="")
"""What the requests of this task are about, such as the name of a run: equal requests about two runs are two requests.
"""

_FOLDER: Final = "batches"
_MAX_BYTES: Final = 1_000_000_000
_REMEDY: Final = "delete it to send all requests again, or name another folder"

UNANSWERED: Final = 408
"""Status of a request that its batch did not answer because it expired or was canceled; it costs nothing."""


@dataclass(frozen=True)
class BatchRequest:
    """One request of a batch; ``custom_id`` is the name by which its result is found."""

    custom_id: str
    body: Body


@dataclass(frozen=True)
class BatchProgress:
    """How far a batch is. ``problem`` says why the provider refused it as a whole; it has no results then."""

    ended: bool
    done: int
    problem: str = ""


class BatchEndpoint(ABC):
    """The batches of one model at one provider. Every method that sends a request raises ModelError if it fails."""

    max_requests: ClassVar[int]
    """The largest number of requests in a batch."""
    max_bytes: ClassVar[int]
    """The largest size of a batch in bytes."""

    def __init__(self, model: SdkModel) -> None:
        self._model = model

    async def upload(self, requests: Sequence[BatchRequest]) -> str:  # noqa: ARG002  (an endpoint may need them)
        """Upload the requests, and return the ID of their file; empty if the provider gets them with the batch."""
        return ""

    @abstractmethod
    async def create(self, requests: Sequence[BatchRequest], upload: str) -> str:
        """Create a batch, and return its ID. The provider starts with it at once."""

    @abstractmethod
    async def find(self, upload: str, requests: int, started: float, excluded: Collection[str]) -> list[str]:
        """Return the IDs of the batches that may be the one that was sent at ``started``, except the excluded ones."""

    @abstractmethod
    async def progress(self, batch: str) -> BatchProgress:
        """Return how far a batch is."""

    @abstractmethod
    async def results(self, batch: str) -> dict[str, Any]:
        """Return the results of a batch that has ended, by custom ID, in the provider's format."""

    @abstractmethod
    def read(self, result: Any) -> Reply:
        """Return the reply in a result. LookupError, TypeError, AttributeError, or ValueError if it is malformed."""

    def reply(self, result: Any) -> Reply:
        """Return the reply in a result; ModelError if the request was not answered."""
        try:
            return self.read(result)
        except (AttributeError, LookupError, TypeError, ValueError) as problem:
            raise self._model.address.malformed(str(problem)) from None

    def unanswered(self, reason: str) -> ModelError:
        """Build the error for a request that its batch did not answer."""
        message = f"{self._model.address.spec.label}: the batch did not answer the request: {reason}"
        return ModelError(message, status=UNANSWERED, transient=True)


class BatchableModel(RemoteModel, Protocol):
    """A remote model whose requests can be sent in batches."""

    async def complete_with(self, request: ModelRequest, send: Callable[[Body], Awaitable[Reply]]) -> Reply:
        """Return the reply to a request whose bodies ``send`` sends."""

    def batches(self) -> BatchEndpoint:
        """Return the batches of this model."""


def results_by_id(text: str) -> dict[str, Any]:
    """Return the lines of a results file by custom ID; ValueError for a line that is not a result."""
    results = {}
    for line in text.split("\n"):  # JSON may contain the other line ends of Unicode
        if line.strip():
            result = json.loads(line)
            if not isinstance(result, dict) or not isinstance(result.get("custom_id"), str):
                raise ValueError(line)
            results[result["custom_id"]] = result
    return results


def present(value: str | None, name: str) -> str:
    """Return a text that the provider must send; ValueError if it is missing."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"no {name} in the response")
    return value


class SentBatch(Record):
    """One batch that was sent to a provider, or was about to be."""

    number: int = Field(ge=1, description="Number of the batch in this folder, which begins the names of its files")
    model: str = Field(description="Model that answers the requests")
    url: str = Field(description="Base URL of the model")
    requests: int = Field(ge=1, description="Number of requests")
    started: float = Field(description="When it was sent, in seconds since the epoch")
    upload: str = Field(default="", description="ID of the uploaded file of requests; empty if there is none")
    batch: str = Field(default="", description="ID of the batch; empty as long as the provider has not confirmed it")
    # Not confirmed; confirmed; its results are here; not accepted, so its requests must be sent again.
    status: Literal["sending", "sent", "ended", "refused"] = Field(default="sending", description="How far it is")


class BatchState(Record):
    """The batches of one command, in the folder of its records."""

    version: Literal[1] = Field(default=1, description="Version of this format")
    command: str = Field(description="Hash of what was asked; only the same command continues these batches")
    finished: bool = Field(default=False, description="Whether the command came to its end")
    first: int = Field(default=1, ge=1, description="Number of the first batch since the last finished command")
    batches: tuple[SentBatch, ...] = Field(default=(), description="The batches, in the order in which they were sent")


class BatchJournal:
    """The batches of one command. Every change is on the disk before the next request is sent.

    ``lock`` is the descriptor of the lock that keeps other processes from sending the same requests.
    """

    def __init__(self, folder: Path, state: BatchState, lock: int) -> None:
        self.folder = folder
        self._lock = lock
        self._state = state
        self._occurrences: Counter[str] = Counter()
        self._number_of: dict[str, int] = {}
        for sent in state.batches[state.first - 1 :]:
            if sent.status != "refused":
                self._number_of |= dict.fromkeys(self.read(sent, "requests"), sent.number)

    @classmethod
    def open(cls, folder: Path, command: str) -> BatchJournal:
        """Go on with the unfinished batches of this command in a folder, or begin.

        UsageError if the folder has unfinished batches of another command, or if another process works with them.
        """
        try:
            lock = lock_file(make_subfolder(folder, _FOLDER) / "lock")
        except OSError as error:
            raise UsageError(
                f"{folder}: its batches cannot be locked ({error.strerror}); if another process uses them, wait until "
                "it ends, or else name another folder on a local disk with --to"
            ) from None
        try:
            state = read_state(folder) or BatchState(command=command)
            if state.finished:
                first = len(state.batches) + 1
                state = state.model_copy(update={"command": command, "finished": False, "first": first})
            elif state.command != command:
                raise UsageError(
                    f"{folder / STATE}: has unfinished batches of a command with other sessions, judges, or options; "
                    "finish that command first, or name another folder with --to"
                )
            journal = cls(folder, state, lock)
            journal._write()
        except BaseException:
            os.close(lock)
            raise
        return journal

    @property
    def batches(self) -> tuple[SentBatch, ...]:
        """The batches of this command."""
        return self._state.batches[self._state.first - 1 :]

    @property
    def known(self) -> frozenset[str]:
        """The IDs of all batches in this folder."""
        return frozenset(sent.batch for sent in self._state.batches if sent.batch)

    def custom_id(self, body: Body) -> str:
        """Return the name of a request. A call that is interrupted gives its requests the same names again.

        Equal requests about one subject are numbered, so that a retry is another request.
        """
        digest = sha256([SUBJECT.get(), body])[:32]
        self._occurrences[digest] += 1
        return f"{digest}-{self._occurrences[digest]}"

    def batch_of(self, custom_id: str) -> SentBatch | None:
        """Return the batch in which a request was sent; None if it was not sent."""
        number = self._number_of.get(custom_id)
        return None if number is None else self._state.batches[number - 1]

    def begin(self, model: str, url: str, requests: Sequence[BatchRequest]) -> SentBatch:
        """Store the requests of a batch that is about to be sent."""
        number = len(self._state.batches) + 1
        sent = SentBatch(number=number, model=model, url=url, requests=len(requests), started=time.time())
        # Before the state: if the process ends in between, nothing was sent, and the next batch gets this number.
        self.store(sent, "requests", [{"custom_id": one.custom_id, "body": one.body} for one in requests])
        self._state = self._state.model_copy(update={"batches": (*self._state.batches, sent)})
        self._write()
        self._number_of |= {one.custom_id: number for one in requests}
        return sent

    def update(self, sent: SentBatch, **changes: Any) -> SentBatch:
        """Store a change of a batch, and return it. The requests of a refused batch count as not sent."""
        changed = sent.model_copy(update=changes)
        batches = list(self._state.batches)
        batches[sent.number - 1] = changed
        self._state = self._state.model_copy(update={"batches": tuple(batches)})
        self._write()
        if changed.status == "refused":
            self._number_of = {name: number for name, number in self._number_of.items() if number != sent.number}
        return changed

    def close(self) -> None:
        """Let other processes work with the batches."""
        os.close(self._lock)

    def finish(self) -> None:
        """Record that the command came to its end: a later call sends new requests."""
        self._state = self._state.model_copy(update={"finished": True})
        self._write()

    def store(self, sent: SentBatch, kind: str, lines: Any) -> None:
        """Store the requests or results of a batch. The state says so afterwards, if at all."""
        path = make_subfolder(self.folder, _FOLDER) / f"{sent.number:04}-{kind}.jsonl"
        write_atomically(path, "".join(f"{json.dumps(line)}\n" for line in lines))

    def read(self, sent: SentBatch, kind: Literal["requests", "results"]) -> dict[str, Any]:
        """Return the stored requests or results of a batch by custom ID. UsageError if the file is damaged."""
        path = self.folder / _FOLDER / f"{sent.number:04}-{kind}.jsonl"
        try:
            return results_by_id(read_regular(path, _MAX_BYTES).decode())
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "a line is not a request or a result"
            raise UsageError(
                f"{path}: cannot be read ({reason}); restore it, or delete {self.folder / STATE} to send "
                "all requests again"
            ) from None

    def _write(self) -> None:
        write_atomically(self.folder / STATE, json.dumps(self._state.model_dump(mode="json"), indent=1))


def read_state(folder: Path) -> BatchState | None:
    """Return the batches of a folder; None if it has none. UsageError for an invalid file."""
    try:
        return read_record(folder / STATE, BatchState, expected="a list of batches", remedy=_REMEDY)
    except FileNotFoundError:
        return None
