"""What sessions and parts call themselves in records and keys; for somebody's own function, its name and a hash of its
file.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
from pathlib import Path
from typing import Any


def identity_of(part: Any) -> dict[str, Any]:
    """The ``identity`` of an agent, emulator or evaluator, or what ``own_identity`` says of a plain function."""
    known = getattr(part, "identity", None)
    return own_identity(part, name_of(part)) if known is None else dict(known)


def own_identity(function: Any, name: str) -> dict[str, Any]:
    """Kind, name, and as ``source`` the hash of the file that defines the function, where there is one.

    What the file imports is not in the hash: an agent in several files sets an ``identity`` of its own.
    """
    source = _source(_defined(function))
    return {"kind": "own", "name": name} | ({"source": source} if source else {})


def name_of(part: Any) -> str:
    """``module:function`` of somebody's function, or of the class of a callable object."""
    named = _defined(part)
    return f"{named.__module__}:{named.__qualname__}"


def _defined(part: Any) -> Any:
    """What has a name and a file: the function inside a functools.partial, the class of a callable object."""
    part = getattr(part, "func", part)
    return part if hasattr(part, "__qualname__") else type(part)


def _source(named: Any) -> str:
    try:
        path = inspect.getsourcefile(inspect.unwrap(named))
    except TypeError:  # builtins, classes made in a prompt
        return ""
    return _hash(path) if path else ""


@functools.cache  # as it was when it was loaded: an edit while cases run changes nothing that runs
def _hash(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]
    except OSError:
        return ""
