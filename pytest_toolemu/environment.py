"""What the process is told from outside: a ``.env`` file beside what is run."""

from __future__ import annotations

import os
from pathlib import Path

from pytest_toolemu.errors import UsageError


def load_env(path: Path) -> None:
    """Set what a ``.env`` file says and the environment does not; UsageError for a file that cannot be read."""
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
            raise UsageError(f"{path}:{binding.original.line}: is not NAME=value; mend or remove the line")
        if binding.key is not None and binding.value is not None:
            os.environ.setdefault(binding.key, binding.value)
