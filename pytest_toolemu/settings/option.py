"""What an option of the plugin is, and how one is declared as a field of ``Settings``."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

OptionGroup = Literal["everyday", "advanced", "ini"]


@dataclass(frozen=True)
class Option:
    """One option of the plugin.

    ``bare``: the value of the option when it is given without one.
    ``group``: where ``--help`` shows the option; one that few type on a command line is only an ini key and a variable.
    """

    name: str
    default: object
    help: str
    parse: Callable[[str], object]
    metavar: str
    bare: str | None
    group: OptionGroup

    @property
    def many(self) -> bool:
        """Return whether it takes several values, with commas or given several times (a line each in an ini file)."""
        return isinstance(self.default, tuple)

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


def text(value: str) -> str:
    """Parse text that is not empty."""
    if not value.strip():
        raise ValueError("text")
    return value.strip()


def option(
    help: str,  # noqa: A002 - named as in argparse
    parse: Callable[[str], object] = text,
    default: object = None,
    *,
    metavar: str = "",
    bare: str | None = None,
) -> Any:
    """Declare an option as a field of Settings; the name of the field gives the name of the option."""
    metavar = metavar or {text: "SPEC", seconds: "SECONDS", arguments: "ARGS"}.get(parse, "NAME")
    return field(default=default, metadata={"help": help, "parse": parse, "metavar": metavar, "bare": bare})


@dataclass(frozen=True)
class ResolvedOption:
    """The value of an option, and the option, variable, or ini key that it came from."""

    value: Any
    source: str


def flag(text: str) -> bool:
    """Parse a truth value."""
    word = text.strip().casefold()
    if word not in ("true", "1", "yes", "on", "false", "0", "no", "off"):
        raise ValueError("true or false")
    return word in ("true", "1", "yes", "on")


def whole_number(low: int, high: int | None = None) -> Callable[[str], int]:
    """Return a parser of whole numbers in a range."""
    expected = f"a whole number from {low} to {high}" if high is not None else f"a whole number of at least {low}"

    def parse(text: str) -> int:
        if not text.strip().isdecimal() or not low <= int(text) <= (high or math.inf):
            raise ValueError(expected)
        return int(text)

    return parse


def counted_folder(text: str) -> str:
    """Parse a folder, or a folder and a number after a colon."""
    folder, count = folder_and_count(text.strip())
    if not folder or not 1 <= count <= 99:
        raise ValueError("a folder, or a folder, a colon, and a number from 1 to 99")
    return text.strip()


def folder_and_count(text: str) -> tuple[str, int]:
    """Return the folder and the number in ``FOLDER:NUMBER``; the number is 1 if it is absent."""
    folder, _, number = text.rpartition(":")
    return (folder, int(number)) if number.isdecimal() and folder else (text, 1)


def _number(is_valid: Callable[[float], bool], expected: str) -> Callable[[str], float]:
    """Return a parser of finite numbers in a range; ``expected`` describes them in error messages."""

    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not (math.isfinite(number) and is_valid(number)):
            raise ValueError(expected)
        return number

    return parse


seconds: Final = _number(lambda number: number > 0, "a number of seconds above 0")
amount_usd: Final = _number(lambda number: number > 0, "an amount of USD above 0")
error_probability: Final = _number(lambda number: 0 <= number < 0.5, "a probability from 0 to below 0.5, such as 0.01")
_temperature: Final = _number(lambda number: 0 <= number <= 2, "a number from 0 to 2, or none to send no temperature")


def temperature(text: str) -> float | None:
    """Parse a temperature; ``none`` means that none is sent."""
    return None if text.strip().casefold() == "none" else _temperature(text)


_ARRAY: Final = "slurm"
MAX_SHARDS: Final = 100_000
"""The largest number of shards of a session."""


def shard(text: str) -> str:
    """Parse a shard such as ``3/8``; ``slurm`` means the shard of this task in its job array."""
    if text == _ARRAY:
        values = [os.environ.get(f"SLURM_ARRAY_TASK_{name}", "") for name in ("ID", "COUNT", "MIN")]
        if not all(value.isdecimal() for value in values):
            raise ValueError("a task of a Slurm job array, which sets SLURM_ARRAY_TASK_ID, _COUNT, and _MIN")
        task, count, first = map(int, values)
        text = f"{1 + (task - first) // int(os.environ.get('SLURM_ARRAY_TASK_STEP') or 1)}/{count}"
    parts = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", text.strip())
    if parts is None or int(parts[1]) > int(parts[2]) or int(parts[2]) > MAX_SHARDS:
        raise ValueError(
            f"INDEX/COUNT from 1/COUNT to COUNT/COUNT, such as 3/8; or {_ARRAY}, in a task of a job "
            f"array without gaps; COUNT is at most {MAX_SHARDS:,}"
        )
    return text.strip()


def choice(literal: Any) -> Callable[[str], object]:
    """Return a parser that accepts one of the words of a ``Literal``."""

    def parse(text: str) -> str:
        if text not in get_args(literal):
            raise ValueError("one of " + ", ".join(get_args(literal)))
        return text

    return parse


def arguments(text: str) -> str:
    """Parse arguments that are quoted as in a shell."""
    try:
        shlex.split(text)
    except ValueError:
        raise ValueError("arguments quoted as in a shell, with every quote closed") from None
    return text.strip()


def named_path(text: str) -> str:
    """Parse a path with a name, such as ``NAME=PATH``."""
    name, equals, path = text.strip().partition("=")
    if not (re.fullmatch(r"[\w.-]+", name) and equals and path):
        raise ValueError("NAME=PATH, with letters, digits, '.', '_', and '-' in the name")
    return text.strip()


def is_gate_file(text: str) -> bool:
    """Return whether the value of the option ``gate`` names a file; otherwise it is an expression."""
    return text.endswith((".yaml", ".yml"))
