"""The recorder of one run, which replays and records model calls; why a call is missing; what a session used."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.core.messages import Model, ModelRequest, Reply, Role
from pytest_toolemu.core.run import CassetteUse
from pytest_toolemu.core.run_file import MAX_RUN_BYTES
from pytest_toolemu.errors import InconclusiveError, ReplayMissError
from pytest_toolemu.formats.file_access import read_regular
from pytest_toolemu.formats.redaction import secrets
from pytest_toolemu.formats.yaml_document import show
from pytest_toolemu.models.cassette_files import (
    Cassette,
    CassetteDirectory,
    CassetteEntry,
    CassetteRequest,
    as_json,
    reply_of,
)


class CassetteRecorder:
    """Recorder for one run of one item. Identical requests are distinguished by how often they were sent before.

    With mode ``once``, models are called only if the item has no complete cassette; with ``new``, for requests that its
    cassette lacks; with ``all``, for every request; with ``none``, never.
    """

    def __init__(self, directory: CassetteDirectory, item: str, case: str, trial: int) -> None:
        self._directory = directory
        self._item, self._case, self._trial = item, case, trial
        self._redactor = secrets()
        self._old = None if directory.mode == "all" else directory.load(item)
        self._by_key: dict[str, list[int]] = defaultdict(list)
        for index, entry in enumerate(self._old.entries if self._old else ()):
            self._by_key[entry.request.key].append(index)
        self._times_sent: Counter[str] = Counter()
        self._constants: set[tuple[Role, str]] = set()
        self._entries: list[CassetteEntry | None] = []
        """The calls of this run in the order of the requests; None while a reply is pending."""
        self._played: set[int] = set()
        self._played_count = self._added_count = self._pending = 0
        self.use: CassetteUse | None = None
        """What was used, once the recorder of ``recorder_of`` has finished."""

    async def complete(self, role: Role, model: Model, request: ModelRequest) -> tuple[Reply, str]:
        """Return the recorded reply and its file, or the model's own reply and an empty string.

        ReplayMissError when there is no recorded reply and the mode does not allow a model call.
        """
        canonical = CassetteRequest(
            role=role,
            model=model.identity,
            messages=tuple(as_json(message, self._redactor) for message in request.messages),
            tools=tuple(as_json(tool, self._redactor) for tool in request.tools),
            schema=None if request.schema is None else as_json(request.schema, self._redactor),
            seed=request.seed,
            trial=self._trial,
        )
        nth = self._times_sent[canonical.key]
        self._times_sent[canonical.key] += 1
        self._constants.add((role, canonical.constants))
        if recorded := self._recorded(canonical.key, nth):
            file, entry = recorded
            self._entries.append(entry)
            self._played_count += 1
            return reply_of(entry), file
        mode = self._directory.mode
        if mode == "none" or (mode == "once" and self._old and self._old.complete):
            raise ReplayMissError(self._explained(canonical))
        index = len(self._entries)
        self._entries.append(None)
        self._pending += 1
        reply = await model.complete(request)
        self._pending -= 1
        self._entries[index] = entry = CassetteEntry(canonical, as_json(reply, self._redactor))
        self._added_count += 1
        # The run continues with the recorded reply: if a credential was redacted in it, requests that quote it would
        # otherwise differ on replay.
        of_connection = {"request_id": reply.request_id, "lost_attempts": reply.lost_attempts}
        return reply_of(entry).model_copy(update=of_connection), ""

    def finish(self, ended: bool) -> CassetteUse:
        """Write the cassette if something is new, and return what was used. OSError if it cannot be written.

        ``ended`` says that the run came to its end, whatever its result.
        """
        complete = ended and not self._pending
        current = _in_order([entry for entry in self._entries if entry is not None])
        unused = [index for index in range(len(self._old.entries) if self._old else 0) if index not in self._played]
        offset = 0
        ends = complete and self._old is not None and not self._old.complete and self._directory.mode != "none"
        if self._added_count or ends:
            unused_entries = [self._old.entries[index] for index in unused] if self._old else []
            entries = (*current, *unused_entries)
            self._directory.save(Cassette(self._item, self._case, self._trial, complete, entries))
            unused, offset = list(range(len(unused_entries))), len(current)
            self._old = Cassette(self._item, self._case, self._trial, complete, tuple(unused_entries))
        # Stale: this run called the entry's role, but never with the entry's model, prompt, and tools.
        roles = {role for role, _ in self._constants}
        requests = [(index, self._old.entries[index].request) for index in unused] if self._old else []
        called = [(index, request) for index, request in requests if request.role in roles]
        stale = [index for index, request in called if (request.role, request.constants) not in self._constants]
        return CassetteUse(
            file=self._directory.file(self._item),
            played=self._played_count,
            added=self._added_count,
            unused=tuple(offset + index + 1 for index in unused if index not in stale),
            stale=tuple(offset + index + 1 for index in stale),
        )

    def _recorded(self, key: str, nth: int) -> tuple[str, CassetteEntry] | None:
        indices = self._by_key.get(key, [])
        if self._old and nth < len(indices):
            self._played.add(indices[nth])
            return self._directory.file(self._item), self._old.entries[indices[nth]]
        return self._directory.elsewhere(key, nth) if self._directory.mode == "none" else None

    def _explained(self, request: CassetteRequest) -> str:
        """Explain a miss from the item's own cassette, or from others of the case if it has no call of the role."""
        own = self._directory.file(self._item)
        cassettes = [(own, self._old)] if self._old else []
        has_role = any(entry.request.role == request.role for _, old in cassettes for entry in old.entries)
        if self._directory.mode == "none" and not has_role:
            cassettes = self._directory.of_case(self._case)
        of_role = [
            (name, number, dict(_parts_of(entry.request)))
            for name, cassette in cassettes
            for number, entry in enumerate(cassette.entries, 1)
            if entry.request.role == request.role
        ]
        head = f"no recorded call matches this request of the {request.role}"
        if not of_role:
            return f"{head}: {self._directory.folder.name}/{own} contains none of its requests; {_REMEDY}"
        sent = dict(_parts_of(request))
        file, number, nearest = max(of_role, key=lambda call: len(sent.items() & call[2].items()))
        return f"{head}: {_first_difference(nearest, sent)} (nearest: model call {number} in {file}); {_REMEDY}"


def _in_order(entries: list[CassetteEntry]) -> list[CassetteEntry]:
    """Sort the calls of agent and emulator by time, and after them those of each evaluator together.

    Evaluators run at the same time, so the order of their calls would change the file with every recording. The calls
    of a fallback model follow those of other models with the same schema, whenever it was asked.
    """
    schemas: dict[str, int] = {}
    evaluators: dict[tuple[str, str], tuple[int, int]] = {}
    for entry in entries:
        request = entry.request
        if request.role == "evaluator":
            schema = str(request.schema)
            rank = schemas.setdefault(schema, len(schemas) + 1), len(evaluators)
            evaluators.setdefault((request.constants, schema), rank)
    return sorted(
        entries, key=lambda entry: evaluators.get((entry.request.constants, str(entry.request.schema)), (0, 0))
    )


_SHOWN: Final = 70
_BEFORE: Final = 25
_REMEDY: Final = "record missing calls with --toolemu-record=new, or record everything again with --toolemu-record=all"


def _parts_of(request: CassetteRequest) -> Iterator[tuple[str, str | int | float | None]]:
    """Yield each value and line of a request with its place; what explains the most comes first.

    A changed seed or prompt also changes later texts.
    """
    yield from _parts("the model", request.model_without_url)
    yield from (("the trial", request.trial), ("the seed", request.seed))
    turns = ({"content": turn.get("content", ""), **turn} for turn in request.messages)  # what readers know it by
    messages = [(f"message {number}", turn) for number, turn in enumerate(turns, 1)]
    for place, turn in messages:
        if turn["role"] == "system":
            yield from _parts(place, turn)
    yield from _parts("tools", request.tools)
    yield from _parts("schema", request.schema)
    for place, turn in messages:
        yield from _parts(place, turn)


def _parts(place: str, value: Any) -> Iterator[tuple[str, str | int | float | None]]:
    if isinstance(value, dict):
        for name, member in value.items():
            yield from _parts(place if name == "content" else f"{place}.{name}", member)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _parts(f"{place}[{index}]", item)
    elif isinstance(value, str) and "\n" in value:
        for number, line in enumerate(value.split("\n"), 1):
            yield f"{place}, line {number},", line
    else:
        yield place, value


def _first_difference(recorded: Mapping[str, Any], sent: Mapping[str, Any]) -> str:
    for place in {**sent, **recorded}:
        if place not in recorded or place not in sent:
            change = "is new" if place in sent else "is missing"
            return f"{place} {change}: {show({**recorded, **sent}[place], _SHOWN)}"
        if recorded[place] != sent[place]:
            before, now = recorded[place], sent[place]
            pairs = enumerate(zip(str(before), str(now), strict=False))
            at = next((index for index, (old, new) in pairs if old != new), 0)
            return f"{place} is {_around(now, at)}; the cassette has {_around(before, at)}"
    return "it was recorded fewer times than it was sent"


def _around(value: Any, at: int) -> str:
    """Return a value, of a long text the surroundings of its first difference."""
    return show(f"…{value[at - _BEFORE :]}" if isinstance(value, str) and at > _BEFORE else value, _SHOWN)


@dataclass(frozen=True)
class CassetteReport:
    """Model calls of the items that were run, and files of the other items.

    ``unused`` lists calls that were not sent this time; ``stale``, calls whose model, prompt, or tools are no longer in
    use; ``gone``, files whose case is no longer at its location; ``not_run``, files of items that were not run.
    """

    folder: str
    played: int
    added: int
    unused: Mapping[str, list[int]]
    stale: Mapping[str, list[int]]
    gone: list[str]
    not_run: list[str]


def report_on(directory: CassetteDirectory, uses: Iterable[CassetteUse], rootdir: Path) -> CassetteReport:
    """Build the report from the uses of all runs; node IDs are relative to ``rootdir``."""
    use_by_file = {use.file: use for use in uses}
    others = [path for path in directory.files() if path.name not in use_by_file]
    gone = [path.name for path in others if not _case_exists(path, rootdir)]
    return CassetteReport(
        folder=str(directory.folder),
        played=sum(use.played for use in use_by_file.values()),
        added=sum(use.added for use in use_by_file.values()),
        unused={file: list(use.unused) for file, use in sorted(use_by_file.items()) if use.unused},
        stale={file: list(use.stale) for file, use in sorted(use_by_file.items()) if use.stale},
        gone=gone,
        not_run=[path.name for path in others if path.name not in gone],
    )


def _case_exists(path: Path, rootdir: Path) -> bool:
    """Return whether the file of a cassette's item exists; False for an unreadable cassette."""
    try:
        item = json.loads(read_regular(path, MAX_RUN_BYTES))["item"]
        return (rootdir / str(item).partition("::")[0]).exists()
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


@contextmanager
def recorder_of(
    cassettes: CassetteDirectory | None, item: str, case_id: str, trial: int = 1
) -> Iterator[CassetteRecorder | None]:
    """Provide the recorder for the model calls of an item, if they are recorded; write its cassette at the end."""
    recorder = None if cassettes is None else CassetteRecorder(cassettes, item, case_id, trial)
    has_ended = False
    try:
        yield recorder
        has_ended = True
    except InconclusiveError:
        has_ended = True
        raise
    finally:
        if recorder is not None:
            recorder.use = recorder.finish(has_ended)  # also after a failure: replies that arrived were paid for
