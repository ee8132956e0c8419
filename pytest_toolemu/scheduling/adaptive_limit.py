"""How many requests may be in flight at one endpoint: as many as it bears, found out from its answers.

Pure: no clock, no thread. Times are seconds of any clock that only goes forward.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Final, Generic, Literal, NamedTuple, TypeVar

T = TypeVar("T")

# Refusals among the last answers from which on the endpoint has enough. Fewer answers would say nothing of a share.
_TOO_MANY: Final = 1 / 6
_LAST: Final = 32
# A round is as many answers as requests may be in flight, and at least so many; up to such a share of refusals in it
# the limit may grow.
_ROUND: Final = 4
_FEW: Final = 1 / 16
# Answers that take so many times longer than the quickest round's: the endpoint works through a queue of its own.
_SLOW: Final = 2.0
# Up to near where it was last cut the limit grows by half a round; from there by one, two, four ...
_NEAR: Final = 0.9
# No header is believed that asks for a longer pause, in seconds.
_LONGEST_PAUSE: Final = 300.0
_MOST: Final = 1024


class RequestOutcome(NamedTuple):
    """What became of a request, as it travels to the hub.

    ``busy`` is a refusal for load (429, 529), ``failed`` any other trouble, ``unsent`` a request that was granted and
    not made. ``usage`` is tokens in, tokens out, and of those in: from a cache, into a cache. The quotas are what
    headers say is left of requests and of tokens, and the seconds for one more.
    """

    status: Literal["ok", "busy", "failed", "unsent"]
    seconds: float = 0.0
    usage: tuple[int, int, int, int] = (0, 0, 0, 0)
    retry_after: float | None = None
    request_quota: tuple[float, float] | None = None
    token_quota: tuple[float, float] | None = None

    @property
    def tokens(self) -> int:
        """In and out."""
        return self.usage[0] + self.usage[1]


class AdaptiveLimit(Generic[T]):
    """Grants requests in the order in which they asked. AIMD: half after too many refusals, more while all goes well.

    A few refusals change nothing: the limit is for load, and some requests fail for other reasons. ``T`` is what
    requests are known by.
    """

    def __init__(self, start: int) -> None:
        self.limit = float(max(1, start))
        self.refused = 0
        self._most = max(_MOST, start)
        self._ceiling = float(start)
        self._step = 1
        self._queue: deque[T] = deque()
        self._flying: dict[T, int] = {}
        self._cuts = 0
        self._last: deque[bool] = deque()
        self._good = self._busy = 0
        self._seconds = 0.0
        self._held_back = self._is_shut = False
        self._quickest = math.inf
        self._not_before = -math.inf
        self._quota = _Quota()
        self._mean_tokens = 0.0

    @property
    def in_flight(self) -> int:
        """Requests granted and not back."""
        return len(self._flying)

    @property
    def queued(self) -> int:
        """Requests that wait for their grant."""
        return len(self._queue)

    def ask(self, who: T) -> None:
        """Queue a request; ``granted`` tells when it may be sent."""
        self._queue.append(who)

    def forget(self, who: T) -> None:
        """A request that nobody will send, or report, any more."""
        self._flying.pop(who, None)
        self._is_shut = self._is_shut and bool(self._flying)
        if who in self._queue:
            self._queue.remove(who)

    def granted(self, now: float) -> list[T]:
        """Those that may be sent now."""
        found = []
        while self._queue and self._is_open(now):
            who = self._queue.popleft()
            self._flying[who] = self._cuts
            self._quota.left -= 1
            found.append(who)
        self._held_back = self._held_back or self._is_full
        return found

    def due(self, now: float) -> float | None:
        """When to ask ``granted`` again though nothing came back; None where only an answer can help."""
        until = max(self._not_before, self._quota.due())
        return until if self._queue and until > now else None

    def back(self, who: T, answer: RequestOutcome, now: float) -> None:
        """A granted request is over; one that nobody will send may also not have been granted yet."""
        if answer.status == "unsent":
            self.forget(who)
            return
        sent_after = self._flying.pop(who, None)
        if sent_after is None:
            return
        self._note_quota(answer, now)
        # After a refusal the next request waits until one is answered: it would only be refused at once.
        self._is_shut = bool(self._flying) and (answer.status == "busy" or (self._is_shut and answer.status != "ok"))
        if answer.status == "busy":
            self.refused += 1
        # What was sent before a cut tells of the limit before it.
        if sent_after != self._cuts or answer.status == "failed":
            return
        self._last.append(answer.status == "busy")
        while len(self._last) > max(_LAST, self.limit):
            self._last.popleft()
        if answer.status == "busy":
            self._busy += 1
            if sum(self._last) >= _TOO_MANY * max(_LAST, int(self.limit)):
                self._cut(answer, now)
                return
        else:
            self._good += 1
            self._seconds += answer.seconds
            tokens = self._mean_tokens or answer.tokens
            self._mean_tokens = 0.9 * tokens + 0.1 * answer.tokens
        if self._good + self._busy >= max(_ROUND, int(self.limit)):
            self._end_round()

    @property
    def _is_full(self) -> bool:
        return bool(self._queue) and len(self._flying) >= int(self.limit)

    def _is_open(self, now: float) -> bool:
        room = len(self._flying) < int(self.limit) and not self._is_shut
        return room and now >= max(self._not_before, self._quota.due())

    def _cut(self, answer: RequestOutcome, now: float) -> None:
        """Half, at most once a round trip; and everybody waits as long as the endpoint asks."""
        self._ceiling, self._step = self.limit, 1
        self.limit = max(1.0, self.limit / 2)
        pause = min(answer.retry_after or 0.0, _LONGEST_PAUSE)
        self._not_before = max(self._not_before, now + pause)
        self._cuts += 1
        self._last.clear()
        self._begin_round()

    def _end_round(self) -> None:
        mean = self._seconds / self._good if self._good else math.inf
        # The memory of the quickest round fades: what is normal may change in an hour.
        self._quickest = min(self._quickest * 1.02, mean)
        if self._held_back and self._busy <= max(1, _FEW * self.limit) and mean <= _SLOW * self._quickest:
            if self.limit < _NEAR * self._ceiling:
                self.limit = min(1.5 * self.limit, max(self.limit + 1, _NEAR * self._ceiling))
            else:
                self.limit += self._step
                self._step *= 2
            self.limit = min(self._most, self.limit)
        self._begin_round()

    def _begin_round(self) -> None:
        self._good = self._busy = 0
        self._seconds = 0.0
        self._held_back = self._is_full

    def _note_quota(self, answer: RequestOutcome, now: float) -> None:
        """What is left by the tighter of both quotas; those in flight may have been counted or not, so they are."""
        found = [answer.request_quota] if answer.request_quota else []
        if answer.token_quota and self._mean_tokens:
            left, every = answer.token_quota
            found.append((left / self._mean_tokens, every * self._mean_tokens))
        if found:
            left, every = min(found)
            self._quota = _Quota(now, max(0.0, left - len(self._flying)), every)


@dataclass
class _Quota:
    """``left`` requests at the time ``since``, and one more each ``every`` seconds."""

    since: float = -math.inf
    left: float = math.inf
    every: float = 0.0

    def due(self) -> float:
        """When the next request may be sent."""
        return self.since + min(_LONGEST_PAUSE, max(0.0, 1 - self.left) * self.every)
