"""One run's exchanges: played from what was recorded, and recorded where they were not."""

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
    """A tape for one run of one item. Requests that are the same are told apart by how often they were made before.

    ``once`` asks the models only where no complete recording of the item exists, ``new`` for what is missing in it,
    ``all`` for everything, ``none`` for nothing.
    """

    def __init__(self, library: CassetteDirectory, item: str, case: str, trial: int) -> None:
        self._library = library
        self._item, self._case, self._trial = item, case, trial
        self._known = secrets()
        self._old = None if library.mode == "all" else library.load(item)
        self._by_key: dict[str, list[int]] = defaultdict(list)
        for index, entry in enumerate(self._old.entries if self._old else ()):
            self._by_key[entry.request.key].append(index)
        self._asked: Counter[str] = Counter()
        self._constants: set[tuple[Role, str]] = set()
        self._made: list[CassetteEntry | None] = []
        """What this run had, in the order in which it was asked for."""
        self._played: set[int] = set()
        self._plays = self._adds = self._open = 0

    async def complete(self, role: Role, model: Model, request: ModelRequest) -> tuple[Reply, str]:
        """Return the recorded reply and its file, or the model's own reply and an empty string.

        ReplayMissError when there is no recorded reply and the mode does not allow a model call.
        """
        canonical = CassetteRequest(
            role=role,
            model=model.identity,
            messages=tuple(as_json(message, self._known) for message in request.messages),
            tools=tuple(as_json(tool, self._known) for tool in request.tools),
            schema=None if request.schema is None else as_json(request.schema, self._known),
            seed=request.seed,
            trial=self._trial,
        )
        nth = self._asked[canonical.key]
        self._asked[canonical.key] += 1
        self._constants.add((role, canonical.constants))
        if found := self._recorded(canonical.key, nth):
            file, entry = found
            self._made.append(entry)
            self._plays += 1
            return reply_of(entry), file
        if not self._may_ask:
            raise ReplayMissError(self._explained(canonical))
        place = len(self._made)
        self._made.append(None)
        self._open += 1
        reply = await model.complete(request)
        self._open -= 1
        self._made[place] = entry = CassetteEntry(canonical, as_json(reply, self._known))
        self._adds += 1
        # The run goes on with what is recorded, or what follows from a credential in it could not be played.
        return reply_of(entry).model_copy(update={"request_id": reply.request_id}), ""

    def finish(self, ended: bool) -> CassetteUse:
        """Write what is new, and say what was used. ``ended``: the run came to its end, however it was judged.

        OSError when the disk refuses.
        """
        complete = ended and not self._open
        made = _in_order([entry for entry in self._made if entry is not None])
        left = [index for index in range(len(self._old.entries) if self._old else 0) if index not in self._played]
        offset = 0
        if self._is_news(complete):
            kept = [self._old.entries[index] for index in left] if self._old else []
            entries = (*made, *kept)
            self._library.save(Cassette(self._item, self._case, self._trial, complete, entries))
            left, offset = list(range(len(kept))), len(made)
            self._old = Cassette(self._item, self._case, self._trial, complete, tuple(kept))
        stale = [index for index in left if self._is_stale(index)]
        return CassetteUse(
            file=self._library.file(self._item),
            played=self._plays,
            added=self._adds,
            unused=tuple(offset + index + 1 for index in left if index not in stale),
            stale=tuple(offset + index + 1 for index in stale),
        )

    @property
    def _may_ask(self) -> bool:
        mode = self._library.mode
        return mode in ("all", "new") or (mode == "once" and not (self._old and self._old.complete))

    def _recorded(self, key: str, nth: int) -> tuple[str, CassetteEntry] | None:
        indices = self._by_key.get(key, [])
        if self._old and nth < len(indices):
            self._played.add(indices[nth])
            return self._library.file(self._item), self._old.entries[indices[nth]]
        return self._library.elsewhere(key, nth) if self._library.mode == "none" else None

    def _explained(self, request: CassetteRequest) -> str:
        """The miss, beside the item's own recording; beside others of the case where it has none of the role."""
        own = self._library.file(self._item)
        found = [(own, self._old)] if self._old else []
        known = any(entry.request.role == request.role for _, old in found for entry in old.entries)
        if self._library.mode == "none" and not known:
            found = self._library.of_case(self._case)
        numbered = [((name, number), entry) for name, r in found for number, entry in enumerate(r.entries, 1)]
        return explain_miss(request, f"{self._library.folder.name}/{own}", numbered)

    def _is_news(self, complete: bool) -> bool:
        """Whether the file has to be written: something was added, or an incomplete recording is complete now."""
        ends = complete and self._old is not None and not self._old.complete and self._library.mode != "none"
        return bool(self._adds) or ends

    def _is_stale(self, index: int) -> bool:
        """Whether this run asked that role, but never like this."""
        assert self._old is not None
        request = self._old.entries[index].request
        roles = {role for role, _ in self._constants}
        return request.role in roles and (request.role, request.constants) not in self._constants


def _in_order(entries: list[CassetteEntry]) -> list[CassetteEntry]:
    """Agent and emulator as they went; then the evaluators, who work at the same time, each with all of its own."""
    places: dict[tuple[str, str], int] = {}
    for entry in entries:
        request = entry.request
        if request.role == "evaluator":
            places.setdefault((request.constants, str(request.schema)), len(places) + 1)
    return sorted(entries, key=lambda entry: places.get((entry.request.constants, str(entry.request.schema)), 0))
