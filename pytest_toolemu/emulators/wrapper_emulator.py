"""The base of emulators that answer some calls themselves, and pass the others on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytest_toolemu.core.identity import identity_of
from pytest_toolemu.core.toolbox import Emulator


@dataclass(frozen=True)
class WrapperEmulator:
    """An emulator that wraps another one and has its identity: sessions do not choose what the wrapper adds.

    Subclasses answer calls. What they answer by belongs to the case, the toolkits, or the rules of every session.
    """

    next: Emulator

    @property
    def identity(self) -> dict[str, Any]:
        """Identity of the inner emulator."""
        return identity_of(self.next)

    @property
    def dialogue_identity(self) -> dict[str, Any]:
        """The identity in runs with a dialogue."""
        return identity_of(self.next, in_dialogue=True)
