"""The tokens and the cost of a play, by the role for which a model was asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_toolemu.core.messages import ModelCall, Role, Usage
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.usd import sum_text
from pytest_toolemu.models.pricing import Cost, costs_of
from pytest_toolemu.ui.playground.play import Play


@dataclass(frozen=True)
class PlayCost:
    """The requests of one role, or of all. ``repeated`` counts replies of an earlier play, which cost nothing."""

    requests: int
    repeated: int
    usage: Usage
    cost: Cost

    @classmethod
    def of(cls, play: Play, calls: Sequence[ModelCall]) -> PlayCost:
        """Add up model calls of a play."""
        paid = [call for call in calls if not call.replayed]
        usages = (
            call.reply.usage_of_attempts if call.reply is not None else Usage(calls=1, unknown=1) for call in paid
        )
        costs = costs_of(paid, play.prices).values() if play.prices is not None else ()
        return cls(len(paid), len(calls) - len(paid), sum(usages, Usage()), sum(costs, Cost()))

    @property
    def text(self) -> str:
        """Text such as ``3 requests, 1,204 tokens, 0.0031 USD``."""
        unknown, usd = self.usage.unknown, self.cost.text
        tokens = sum_text(f"{self.usage.total:,}", nothing_known=unknown == self.requests, incomplete=unknown > 0)
        texts = [
            counted(self.requests, "request"),
            f"{tokens} tokens" if tokens != "unknown" else "tokens unknown",
            f"{usd} USD" if usd != "unknown" else "cost unknown",
        ]
        if self.repeated:
            texts.append(f"{counted(self.repeated, 'repeated request')} at no cost")
        return ", ".join(texts if self.requests else texts[3:])


def play_costs(play: Play) -> dict[Role, PlayCost]:
    """Return the cost of each role that asked a model so far, in the order of their first requests."""
    calls = _calls(play)
    roles = dict.fromkeys(call.role for call in calls)
    return {role: PlayCost.of(play, [call for call in calls if call.role == role]) for role in roles}


def play_cost(play: Play) -> PlayCost | None:
    """Return the cost of a play so far; None if it has asked no model."""
    calls = _calls(play)
    return PlayCost.of(play, calls) if calls else None


def _calls(play: Play) -> list[ModelCall]:
    return list(play.trajectory.ledger.model_calls) if play.trajectory is not None else []
