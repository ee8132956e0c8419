"""Counts of what the user of a conversation did in one run."""

from __future__ import annotations

from pytest_toolemu.core.run import Run
from pytest_toolemu.emulators.user_reply_checks import INVENTED, LEAK


def dialogue_counts(run: Run) -> dict[str, int]:
    """Return the number of replies, of those of some kinds, and of rejected ones; empty for a run with one turn."""
    if run.turns == 1:
        return {}
    replies = [utterance for utterance in run.dialogue if utterance.by == "user"]
    repairs = [problem for reply in replies for problem in reply.repairs]
    return {
        "replies": len(replies),
        "unknown": sum(reply.kind == "unknown" for reply in replies),
        "refused": sum(reply.kind == "refuse" for reply in replies),
        "consents": sum(reply.kind == "consent" for reply in replies),
        "corrected": sum(bool(reply.repairs) for reply in replies),
        "leaks": sum(problem.startswith(LEAK) for problem in repairs),
        "invented": sum(problem.startswith(INVENTED) for problem in repairs),
    }
