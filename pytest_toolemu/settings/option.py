"""What an option of the plugin is, and how one is declared as a field of ``Settings``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pytest_toolemu.settings.option_values import flag, text


@dataclass(frozen=True)
class Option:
    """One option of the plugin.

    ``many``: can be given several times (separated by commas in the environment, one line per value in an ini file).
    ``bare``: the value of the option when it is given without one.
    ``words``: no value contains a comma, so commas separate values on the command line and in ini files as well.
    """

    name: str
    help: str
    parse: Callable[[str], object]
    default: object
    metavar: str
    many: bool
    bare: str | None
    words: bool

    @property
    def option(self) -> str:
        """Return the command-line option."""
        return f"--toolemu-{self.name}"

    @property
    def key(self) -> str:
        """Return the ini key, which is also the attribute in which pytest keeps the option."""
        return f"toolemu_{self.name.replace('-', '_')}"

    @property
    def variable(self) -> str:
        """Return the environment variable."""
        return self.key.upper()

    @property
    def is_flag(self) -> bool:
        """Return whether the option takes no value."""
        return self.parse is flag


def option(
    help: str,  # noqa: A002 - named as in argparse
    parse: Callable[[str], object] = text,
    default: object = None,
    *,
    metavar: str = "TEXT",
    many: bool = False,
    bare: str | None = None,
    words: bool = False,
) -> Any:
    """Declare an option as a field of Settings; the name of the field gives the name of the option."""
    default = () if many and default is None else default
    details = {"help": help, "parse": parse, "default": default, "metavar": metavar}
    return field(default=default, metadata=details | {"many": many, "bare": bare, "words": words})


@dataclass(frozen=True)
class ResolvedOption:
    """The value of an option, and the option, variable, or ini key that it came from."""

    value: Any
    source: str
