"""Attributes an exception to the agent's own code, a provider, or the evaluation harness, and records it."""

from __future__ import annotations

import asyncio
import itertools
import traceback
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.core.identity import identity_of
from pytest_toolemu.core.run import ErrorInfo, Origin
from pytest_toolemu.core.toolbox import printable
from pytest_toolemu.errors import AgentProgramError, ModelError, ToolemuError
from pytest_toolemu.formats.exception_text import exception_text

# SDKs that an agent may use directly, and the libraries they send their requests with.
_SDKS: Final = frozenset({"openai", "anthropic"})
_TRANSPORTS: Final = frozenset({"httpx", "httpx2", "httpcore", "httpcore2", "anyio"})
# HTTP statuses that mean an endpoint cannot be used at all, as opposed to a request that is not valid.
_UNUSABLE: Final = frozenset({401, 402, 403, 404, 408, 429})
# Exceptions in a chain of causes; frameworks wrap an SDK's error once or twice.
_MAX_CAUSES: Final = 20
_PACKAGE_FOLDER: Final = str(Path(__file__).parents[2])


def origin_of(error: BaseException, *, agent: Any = None) -> Origin:
    """Return the origin of an exception. ``agent`` is the agent that raised it; None if it came from elsewhere."""
    if isinstance(error, ModelError) or _is_outage(error):
        return "provider"
    if isinstance(error, AgentProgramError):
        return "agent"
    return "agent" if agent is not None and not _is_built_in(agent) else "harness"


def outage_kind(error: ErrorInfo) -> str:
    """Return the kind of a provider's failure: exception type and HTTP status, so equal failures have equal kinds."""
    return f"{error.type} {error.status or ''}".strip()


def error_info(error: BaseException, origin: Origin) -> ErrorInfo:
    """Return the record of an exception. Its traceback has no frames of this package, asyncio, or SDKs, and no locals.

    A provider's failure has no traceback: its message states what failed, and at which server.
    """
    text = ""
    if origin != "provider":
        details = traceback.TracebackException.from_exception(error)
        _remove_foreign_frames(details)
        text = "".join(details.format()) if details.stack else ""
    status = _status(error)
    message = exception_text(error)
    if origin == "provider":
        client_error = _client_error(error) or error
        status = _status(client_error)
        cause = exception_text(client_error)
        cause = "" if cause in message else f": {type(client_error).__name__}: {cause}"
        message = " ".join(f"{message}{cause}{_server(client_error)}".split())
    return ErrorInfo(
        type=type(error).__name__, message=printable(message), traceback=printable(text), origin=origin, status=status
    )


def _server(error: BaseException) -> str:
    """Return the server that an SDK could not reach, and why, as the SDK's message omits both; empty for others."""
    if not _class_of(error, _SDKS) or _status(error) is not None:
        return ""
    url = getattr(getattr(error, "request", None), "url", None)
    host = f"{url.scheme}://{url.netloc.decode()}" if url is not None else ""
    return f" ({': '.join(filter(None, (host, str(error.__cause__ or ''))))})" if host or error.__cause__ else ""


def _is_outage(error: BaseException) -> bool:
    """Return whether an agent's own SDK could not use its endpoint.

    A request that the endpoint rejects as not valid is the agent's failure, not an outage.
    """
    client_error = _client_error(error)
    if client_error is None:
        return False
    status = _status(client_error)
    if status is None:
        name = _class_of(client_error, _SDKS | _TRANSPORTS)
        return any(word in name for word in ("Connect", "Timeout", "Network", "Protocol", "Proxy"))
    return status in _UNUSABLE or status >= 500


def _client_error(error: BaseException) -> BaseException | None:
    """Return the first error of an SDK or its transport in a chain of causes: frameworks raise their own from it.

    An exception during the handling of such an error is no part of the chain, because it may be the agent's mistake.
    """
    cause: BaseException | None = error
    for _ in range(_MAX_CAUSES):  # causes can be a cycle
        if isinstance(cause, ToolemuError):  # which states its origin itself
            return None
        if cause is None or _class_of(cause, _SDKS | _TRANSPORTS):
            return cause
        cause = cause.__cause__
    return None


def _class_of(error: BaseException, packages: frozenset[str]) -> str:
    """Return the name of the first class of an exception that is of these packages; empty if there is none.

    Some frameworks, such as LiteLLM, derive their errors from those of an SDK.
    """
    return next((kind.__name__ for kind in type(error).__mro__ if kind.__module__.partition(".")[0] in packages), "")


def _status(error: BaseException) -> int | None:
    try:
        status = getattr(error, "status" if isinstance(error, ModelError) else "status_code", None)
    except Exception:  # a property of an agent's own class
        return None
    return status if isinstance(status, int) else None


def _is_built_in(agent: Any) -> bool:
    return identity_of(agent).get("kind") != "own" and type(agent).__module__.startswith("pytest_toolemu.")


def _remove_foreign_frames(details: traceback.TracebackException) -> None:
    """Remove the frames that do not help the author of an agent, also from the exceptions that led to this one."""
    own = [frame for frame in details.stack if not _is_foreign(frame.filename)]
    details.stack = traceback.StackSummary.from_list(own)
    for inner in (*(details.exceptions or ()), details.__cause__, details.__context__):
        if inner is not None:
            _remove_foreign_frames(inner)


def _is_foreign(file: str) -> bool:
    if file.startswith((_PACKAGE_FOLDER, str(Path(asyncio.__file__).parent))):
        return True
    parts = Path(file).parts
    return any(
        folder == "site-packages" and package in _SDKS | _TRANSPORTS for folder, package in itertools.pairwise(parts)
    )
