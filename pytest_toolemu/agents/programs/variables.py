"""Variables of the environment such as ``${DESK_KEY}`` in agent files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.credentials import REGISTRY

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def expanded(value: Any, environ: Mapping[str, str], source: str, *, secret: bool = False) -> Any:
    """Return a JSON value with all variables replaced. Raise UsageError for one that is not set.

    The values of ``secret`` texts, such as those in headers, are redacted from now on, whatever their variables are
    called.
    """
    if isinstance(value, dict):
        return {key: expanded(part, environ, source, secret=secret) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [expanded(part, environ, source, secret=secret) for part in value]
    if not isinstance(value, str):
        return value
    for name in _VARIABLE.findall(value):
        if name not in environ:
            raise UsageError(f"{source}: the variable {name} is not set; set it in the environment or the .env file")
        if secret:
            REGISTRY.register(environ[name], name)
    return _VARIABLE.sub(lambda match: environ[match[1]], value)
