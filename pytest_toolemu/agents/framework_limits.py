"""The exceptions by which agent frameworks report that their own limit on an agent's turn is reached."""

from __future__ import annotations

from typing import Final, Literal

from pytest_toolemu.formats.exception_text import exception_text

# Qualified names, so that no framework is imported.
_STEP_LIMITS: Final = frozenset(
    {
        "agents.exceptions.MaxTurnsExceeded",
        "google.adk.agents.invocation_context.LlmCallsLimitExceededError",
        "langgraph.errors.GraphRecursionError",
    }
)
_USAGE_LIMIT: Final = "pydantic_ai.exceptions.UsageLimitExceeded"
_CLAUDE_RESULT: Final = "claude_agent_sdk._errors.ResultError"


def framework_limit(error: Exception) -> Literal["step_limit", "token_limit"] | None:
    """Return which limit of a framework the exception reports; None if it reports none.

    The agent causes such a limit, as it causes this package's own limit on steps: the run is judged and not broken.
    """
    names = {f"{each.__module__}.{each.__qualname__}" for each in type(error).__mro__}
    if names & _STEP_LIMITS:
        return "step_limit"
    if _USAGE_LIMIT in names:  # one exception for the limits on requests, on tool calls, and on tokens
        return "token_limit" if "token" in exception_text(error) else "step_limit"
    if _CLAUDE_RESULT in names and getattr(error, "subtype", None) == "error_max_turns":
        return "step_limit"
    return None
