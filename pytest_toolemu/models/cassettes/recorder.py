"""The recorder of one run: replay recorded model calls, and record new ones."""

from __future__ import annotations

from collections import Counter, defaultdict

from pytest_toolemu.core.messages import Model, ModelRequest, Reply, Role
from pytest_toolemu.core.run import CassetteUse
from pytest_toolemu.errors import ReplayMissError
from pytest_toolemu.formats.redaction import secrets
from pytest_toolemu.models.cassettes.directory import CassetteDirectory
from pytest_toolemu.models.cassettes.file_format import Cassette, reply_of
from pytest_toolemu.models.cassettes.miss_report import explain_miss
from pytest_toolemu.models.cassettes.request import CassetteEntry, CassetteRequest, as_json


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
        if not self._may_call:
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
        if self._must_write(complete):
            unused_entries = [self._old.entries[index] for index in unused] if self._old else []
            entries = (*current, *unused_entries)
            self._directory.save(Cassette(self._item, self._case, self._trial, complete, entries))
            unused, offset = list(range(len(unused_entries))), len(current)
            self._old = Cassette(self._item, self._case, self._trial, complete, tuple(unused_entries))
        stale = [index for index in unused if self._is_stale(index)]
        return CassetteUse(
            file=self._directory.file(self._item),
            played=self._played_count,
            added=self._added_count,
            unused=tuple(offset + index + 1 for index in unused if index not in stale),
            stale=tuple(offset + index + 1 for index in stale),
        )

    @property
    def _may_call(self) -> bool:
        mode = self._directory.mode
        return mode in ("all", "new") or (mode == "once" and not (self._old and self._old.complete))

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
        numbered = [
            ((name, number), entry) for name, cassette in cassettes for number, entry in enumerate(cassette.entries, 1)
        ]
        return explain_miss(request, f"{self._directory.folder.name}/{own}", numbered)

    def _must_write(self, complete: bool) -> bool:
        """Return whether the file must be written: a call was added, or an incomplete cassette is now complete."""
        ends = complete and self._old is not None and not self._old.complete and self._directory.mode != "none"
        return bool(self._added_count) or ends

    def _is_stale(self, index: int) -> bool:
        """Return whether this run called the entry's role, but never with the entry's model, prompt, and tools."""
        assert self._old is not None
        request = self._old.entries[index].request
        roles = {role for role, _ in self._constants}
        return request.role in roles and (request.role, request.constants) not in self._constants


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
