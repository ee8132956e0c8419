"""How many requests may be in flight to one endpoint at a time, learned from its answers.

The rule is AIMD, as in TCP: halve the limit when the endpoint refuses too much, raise it while all goes well. On top of
it come what headers say (``Retry-After``, remaining quotas) and how long answers take, as some endpoints queue requests
instead of refusing them.

Pure: no clock and no thread. Times are seconds of any monotonic clock.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar

T = TypeVar("T")

# The limit is halved when a sixth of the last answers are refusals. The share is always taken of at least 32 answers,
# so that a few early refusals, which may have other reasons than load, do not halve it.
_REFUSED_SHARE: Final = 1 / 6
_WINDOW: Final = 32
# A round is as many answers as requests may be in flight, and at least 4. The limit can grow once per round, unless
# more than a sixteenth of the round was refused.
_MIN_ROUND: Final = 4
_TOLERATED_SHARE: Final = 1 / 16
# If answers take this many times longer than in the quickest round, the endpoint queues requests; more would only wait.
_SLOWDOWN: Final = 2.0
# Up to 90 % of the value at which it was last halved, the limit grows by half per round, as that much was fine before.
# From there it grows by 1, 2, 4, and so on, to approach the endpoint's capacity slowly.
_FAST_GROWTH_UNTIL: Final = 0.9
# No header can pause requests for longer, in seconds: a wrong one would stop the session.
_LONGEST_PAUSE: Final = 300.0
_MAX_LIMIT: Final = 1024


@dataclass(frozen=True, slots=True, order=True)
class Quota:
    """What an endpoint still allows: ``remaining`` requests or tokens, and one more every ``seconds_each``."""

    remaining: float
    seconds_each: float


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """How a request ended.

    ``busy`` is a refusal for load (429, 529), ``failed`` any other failure, ``unsent`` a request that was granted and
    not sent. ``seconds`` is how long the answer took, ``tokens`` the sum of input and output tokens, ``retry_after``
    the header's seconds. The quotas are those that the response headers state; None if they state none.
    """

    status: Literal["ok", "busy", "failed", "unsent"]
    seconds: float = 0.0
    tokens: int = 0
    retry_after: float | None = None
    request_quota: Quota | None = None
    token_quota: Quota | None = None


class AdaptiveLimit(Generic[T]):
    """Grants requests in the order in which they were queued. ``T`` is the type that identifies a request."""

    def __init__(self, start: int) -> None:
        self.limit = float(max(1, start))
        self.refused = 0
        self._max_limit = max(_MAX_LIMIT, start)
        # The limit at which the endpoint last refused too much, and the next step beyond 90 % of it.
        self._ceiling = float(start)
        self._step = 1
        self._queue: deque[T] = deque()
        # Each request in flight, with the number of cuts before it was sent.
        self._in_flight: dict[T, int] = {}
        self._cuts = 0
        self._last_refused: deque[bool] = deque()
        self._round_ok = self._round_busy = 0
        self._round_seconds = 0.0
        self._was_full = self._is_paused = False
        self._quickest_mean = math.inf
        self._not_before = -math.inf
        self._quota, self._quota_since = Quota(math.inf, 0.0), -math.inf
        self._mean_tokens = 0.0

    @property
    def in_flight(self) -> int:
        """The number of requests that were granted and have not ended."""
        return len(self._in_flight)

    @property
    def queued(self) -> int:
        """The number of requests that wait to be granted."""
        return len(self._queue)

    def enqueue(self, request: T) -> None:
        """Queue a request; a later call of ``grant`` returns it."""
        self._queue.append(request)

    def forget(self, request: T) -> None:
        """Remove a request that will not be sent, or whose outcome will not be reported."""
        self._in_flight.pop(request, None)
        # If this was the last request in flight, none is left whose success could end the pause.
        self._is_paused = self._is_paused and bool(self._in_flight)
        if request in self._queue:
            self._queue.remove(request)

    def grant(self, now: float) -> list[T]:
        """Return the requests that may be sent now, and count them as in flight."""
        granted = []
        while self._queue and len(self._in_flight) < int(self.limit) and not self._is_paused:
            if now < self._next_at():
                break
            request = self._queue.popleft()
            self._in_flight[request] = self._cuts
            # Headers arrive only with answers. Until then, each grant uses up one of the requests they allowed.
            self._quota = Quota(self._quota.remaining - 1, self._quota.seconds_each)
            granted.append(request)
        self._was_full = self._was_full or self._is_full
        return granted

    def next_grant(self, now: float) -> float | None:
        """Return when to call ``grant`` again even if no request ends; None if only the end of one can help."""
        until = self._next_at()
        return until if self._queue and until > now else None

    def release(self, request: T, outcome: RequestOutcome, now: float) -> None:
        """Learn from a request that has ended. An unsent request may still be in the queue."""
        if outcome.status == "unsent":
            self.forget(request)
            return
        cuts_when_sent = self._in_flight.pop(request, None)
        if cuts_when_sent is None:
            return
        self._note_quota(outcome, now)
        # After a refusal, the next request waits until one succeeds: it would be refused at once. With nothing else in
        # flight it must be sent, as nothing would ever end the pause.
        is_refusal = outcome.status == "busy"
        self._is_paused = bool(self._in_flight) and (is_refusal or (self._is_paused and outcome.status != "ok"))
        self.refused += is_refusal
        # An answer to a request sent before the last cut tells about the old limit: counting it would halve the limit
        # again for the same overload. Other failures say nothing about load.
        if cuts_when_sent == self._cuts and outcome.status != "failed":
            self._learn(outcome, now)

    def _learn(self, outcome: RequestOutcome, now: float) -> None:
        self._last_refused.append(outcome.status == "busy")
        while len(self._last_refused) > max(_WINDOW, self.limit):
            self._last_refused.popleft()
        if outcome.status == "busy":
            self._round_busy += 1
            if sum(self._last_refused) >= _REFUSED_SHARE * max(_WINDOW, int(self.limit)):
                self._cut(outcome, now)
                return
        else:
            self._round_ok += 1
            self._round_seconds += outcome.seconds
            self._mean_tokens = 0.9 * (self._mean_tokens or outcome.tokens) + 0.1 * outcome.tokens
        if self._round_ok + self._round_busy >= max(_MIN_ROUND, int(self.limit)):
            self._end_round()

    @property
    def _is_full(self) -> bool:
        return bool(self._queue) and len(self._in_flight) >= int(self.limit)

    def _cut(self, outcome: RequestOutcome, now: float) -> None:
        """Halve the limit, and pause all requests for as long as the endpoint asks."""
        # What was too much is remembered, so that growth is fast below it and careful near it.
        self._ceiling, self._step = self.limit, 1
        self.limit = max(1.0, self.limit / 2)
        pause = min(outcome.retry_after or 0.0, _LONGEST_PAUSE)
        self._not_before = max(self._not_before, now + pause)
        self._cuts += 1
        self._last_refused.clear()
        self._begin_round()

    def _end_round(self) -> None:
        mean = self._round_seconds / self._round_ok if self._round_ok else math.inf
        # The quickest round is forgotten by 2 % per round: what is normal may change within an hour.
        self._quickest_mean = min(self._quickest_mean * 1.02, mean)
        is_refused_little = self._round_busy <= max(1, _TOLERATED_SHARE * self.limit)
        # A limit that held nothing back in this round has not been tested, so it must not grow.
        if self._was_full and is_refused_little and mean <= _SLOWDOWN * self._quickest_mean:
            target = _FAST_GROWTH_UNTIL * self._ceiling
            if self.limit < target:
                self.limit = min(1.5 * self.limit, max(self.limit + 1, target))
            else:
                self.limit += self._step
                self._step *= 2
            self.limit = min(self._max_limit, self.limit)
        self._begin_round()

    def _begin_round(self) -> None:
        self._round_ok = self._round_busy = 0
        self._round_seconds = 0.0
        self._was_full = self._is_full

    def _note_quota(self, outcome: RequestOutcome, now: float) -> None:
        """Keep the tighter of both quotas.

        The provider may not have counted the requests in flight yet, so all of them are subtracted.
        """
        quotas = [outcome.request_quota] if outcome.request_quota else []
        if outcome.token_quota and self._mean_tokens:
            tokens = outcome.token_quota
            quotas.append(Quota(tokens.remaining / self._mean_tokens, tokens.seconds_each * self._mean_tokens))
        if quotas:
            tighter = min(quotas)
            self._quota_since = now
            self._quota = Quota(max(0.0, tighter.remaining - len(self._in_flight)), tighter.seconds_each)

    def _next_at(self) -> float:
        """Return the time at which pauses and quotas allow the next request."""
        wait = min(_LONGEST_PAUSE, max(0.0, 1 - self._quota.remaining) * self._quota.seconds_each)
        return max(self._not_before, self._quota_since + wait)
