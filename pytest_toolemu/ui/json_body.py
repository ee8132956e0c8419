"""Bodies of requests in which pages send JSON."""

from __future__ import annotations

import json
from typing import Any, Final

from starlette.requests import Request

NO_OBJECT: Final = "the body is not a JSON object"


async def json_object(request: Request) -> dict[str, Any] | None:
    """Return the object in the body of a request; None if it is something else."""
    try:
        body = json.loads(await request.body())
    except ValueError:
        return None
    return body if isinstance(body, dict) else None
