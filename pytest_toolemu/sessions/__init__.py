"""What a session leaves on disk. Naming a session must stay cheap, because the plugin does it at every start."""

from __future__ import annotations

import time
from secrets import token_hex


def session_id() -> str:
    """Return a unique name for a session's folder. Names sort by time, also within a second."""
    now = time.time()
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{int(now % 1 * 4096):03x}{token_hex(5)}"
