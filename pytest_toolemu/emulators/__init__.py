"""Answer tool calls without executing anything: a model, an offline world, and wrappers around either."""

from __future__ import annotations

from typing import Any

from pytest_toolemu.toolbox import Emulator


def identity_of(emulator: Emulator) -> dict[str, Any]:
    """What an emulator calls itself; a bare function by its module and name. Wrappers pass it on."""
    known: dict[str, Any] | None = getattr(emulator, "identity", None)
    own = f"{emulator.__module__}:{getattr(emulator, '__qualname__', type(emulator).__qualname__)}"
    return {"kind": "own", "name": own} if known is None else known
