"""The environment of the process: variables from a ``.env`` file, and versions of libraries."""

from __future__ import annotations

import os
from pathlib import Path

from pytest_toolemu.errors import UsageError


def load_env(path: Path) -> None:
    """Set the variables of a ``.env`` file that the environment does not set. Raise UsageError if it cannot be read."""
    if not path.is_file():
        return
    from dotenv.parser import parse_stream

    try:
        with path.open(encoding="utf-8") as file:
            bindings = list(parse_stream(file))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    for binding in bindings:
        if binding.error:
            raise UsageError(f"{path}:{binding.original.line}: is not NAME=value; fix or remove the line")
        if binding.key is not None and binding.value is not None:
            os.environ.setdefault(binding.key, binding.value)


def toolemu_variables(path: Path) -> dict[str, str]:
    """Return the ``TOOLEMU_*`` variables of a ``.env`` file without setting them.

    Problems of the file are ignored here; ``load_env`` reports them in sessions that need the file. A file without such
    variables costs no import.
    """
    try:
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
    except (OSError, UnicodeDecodeError):
        return {}
    if "TOOLEMU_" not in text:
        return {}
    import io

    from dotenv.parser import parse_stream

    bindings = parse_stream(io.StringIO(text))
    return {
        binding.key: binding.value
        for binding in bindings
        if binding.key is not None and binding.value is not None and binding.key.startswith("TOOLEMU_")
    }
