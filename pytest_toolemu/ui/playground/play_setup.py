"""What a person asks for when a play begins: the case, who plays which part, and how it is judged."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.core.environment import load_env
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.secrets.secret_registry import REGISTRY
from pytest_toolemu.settings import OFFLINE, Settings, resolve

PERSON: Final = "person"
"""The name of a person in the form of a play, and the kind of one in records."""

MAX_TURNS: Final = 20
_LONGEST_NAME: Final = 500


class SetupError(UsageError):
    """One field of the form of a new play is not valid."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True)
class PlaySetup:
    """The form of a new play. ``agent``, ``emulator``, and ``user`` are ``person`` or named as in options.

    ``stops``: each result waits until a person lets it pass. ``turns`` is the number of messages that the agent may
    write to the user.
    """

    case_id: str
    text: str
    agent: str = PERSON
    emulator: str = OFFLINE
    user: str = OFFLINE
    evaluators: tuple[str, ...] = ()
    turns: int = 1
    stops: bool = False

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> PlaySetup:
        """Read the form as the page sends it. Raise UsageError for a field that is not valid."""
        texts = {name: content.get(name, "") for name in ("case_id", "text", "agent", "emulator", "user", "evaluators")}
        for name, value in texts.items():
            if not isinstance(value, str) or (name != "text" and len(value) > _LONGEST_NAME):
                raise SetupError(name, f"{name}: write at most {_LONGEST_NAME} characters of text")
        turns = content.get("turns", 1)
        if not isinstance(turns, int) or not 1 <= turns <= MAX_TURNS:
            raise SetupError("turns", f"turns: {turns!r} is not a number from 1 to {MAX_TURNS}")
        return cls(
            texts["case_id"].strip(),
            texts["text"].replace("\r\n", "\n"),
            texts["agent"].strip() or PERSON,
            texts["emulator"].strip() or OFFLINE,
            texts["user"].strip() or OFFLINE,
            tuple(name.strip() for name in texts["evaluators"].split(",") if name.strip()),
            turns,
            content.get("stops") is True,
        )

    @property
    def has_person(self) -> bool:
        """Whether a person plays a part."""
        return PERSON in (self.agent, self.emulator, self.user)

    def settings(self) -> Settings:
        """Return the settings: those of the form, then ``TOOLEMU_*`` variables, then the defaults. Raise UsageError."""
        load_env(Path(".env"))
        REGISTRY.remember()
        options: dict[str, Any] = {
            "toolemu_agent": [] if self.agent == PERSON else [self.agent],
            "toolemu_emulator": OFFLINE if self.emulator == PERSON else self.emulator,
            "toolemu_user": OFFLINE if self.user == PERSON else self.user,
            "toolemu_evaluator": list(self.evaluators) or None,
            "toolemu_turns": str(self.turns),
        }
        return resolve(options.get, lambda _: None, os.environ)
