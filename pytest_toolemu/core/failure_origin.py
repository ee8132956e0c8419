"""Whose exception broke a run, and how it is recorded: the agent's own code, a provider, or the evaluation harness."""

from __future__ import annotations

import asyncio
import itertools
import traceback
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.core.identity import identity_of
from pytest_toolemu.core.run import ErrorInfo, Origin
from pytest_toolemu.core.toolbox import printable
from pytest_toolemu.errors import ModelError

# SDKs that an agent may use by itself, and what they send their requests with.
_SDKS: Final = frozenset({"openai", "anthropic"})
_TRANSPORTS: Final = frozenset({"httpx", "httpx2", "httpcore", "httpcore2", "anyio"})
# Statuses that say that an endpoint cannot be used, whatever is asked of it.
_UNUSABLE: Final = frozenset({401, 402, 403, 404, 408, 429})
_OURS: Final = str(Path(__file__).parents[1])


def origin_of(error: BaseException, *, agent: Any = None) -> Origin:
    """Attribute an exception. ``agent`` is the agent out of which it came, None where it came from elsewhere."""
    if isinstance(error, ModelError) or _is_outage(error):
        return "provider"
    return "agent" if agent is not None and not _is_ours(agent) else "harness"


def outage_kind(error: ErrorInfo) -> str:
    """Name the kind of a provider's failure, the same for failures that are alike: type and HTTP status."""
    return f"{error.type} {error.status or ''}".strip()


def error_info(error: BaseException, origin: Origin) -> ErrorInfo:
    """Record an exception, without this package's frames, asyncio's and those of SDKs; local variables never show.

    A provider's failure has no traceback: the message says what failed, and where.
    """
    text = ""
    if origin != "provider":
        shown = traceback.TracebackException.from_exception(error)
        _leave_out(shown)
        text = "".join(shown.format()) if shown.stack else ""
    status = _status(error)
    message = printable(" ".join(f"{error}{_where(error)}".split()) if origin == "provider" else str(error))
    return ErrorInfo(
        type=type(error).__name__, message=message, traceback=printable(text), origin=origin, status=status
    )


def _where(error: BaseException) -> str:
    """Return the server that an SDK could not reach and why, which its own message leaves out; else nothing."""
    if _package(error) not in _SDKS or _status(error) is not None:
        return ""
    url = getattr(getattr(error, "request", None), "url", None)
    host = f"{url.scheme}://{url.netloc.decode()}" if url is not None else ""
    return f" ({': '.join(filter(None, (host, str(error.__cause__ or ''))))})" if host or error.__cause__ else ""


def _is_outage(error: BaseException) -> bool:
    """Whether an agent's own SDK could not use its endpoint; a request that the endpoint finds wrong is the agent's."""
    if _package(error) not in _SDKS | _TRANSPORTS:
        return False
    status = _status(error)
    if status is None:
        return any(word in type(error).__name__ for word in ("Connect", "Timeout", "Network", "Protocol", "Proxy"))
    return status in _UNUSABLE or status >= 500


def _status(error: BaseException) -> int | None:
    status = getattr(error, "status" if isinstance(error, ModelError) else "status_code", None)
    return status if isinstance(status, int) else None


def _package(error: BaseException) -> str:
    return type(error).__module__.partition(".")[0]


def _is_ours(agent: Any) -> bool:
    return identity_of(agent).get("kind") != "own" and type(agent).__module__.startswith("pytest_toolemu.")


def _leave_out(shown: traceback.TracebackException) -> None:
    """Remove frames that help nobody, in the exceptions that led to this one too."""
    shown.stack = traceback.StackSummary.from_list([frame for frame in shown.stack if not _is_foreign(frame.filename)])
    for inner in (*(shown.exceptions or ()), shown.__cause__, shown.__context__):
        if inner is not None:
            _leave_out(inner)


def _is_foreign(file: str) -> bool:
    if file.startswith((_OURS, str(Path(asyncio.__file__).parent))):
        return True
    parts = Path(file).parts
    return any(
        folder == "site-packages" and package in _SDKS | _TRANSPORTS for folder, package in itertools.pairwise(parts)
    )
