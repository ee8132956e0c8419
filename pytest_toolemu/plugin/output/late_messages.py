"""Messages that come up when the summary has been printed, or in a worker that can no longer report anything."""

from __future__ import annotations

import contextlib
import os

from pytest_toolemu.formats.redaction import redact
from pytest_toolemu.plugin.session import ToolemuSession


def report_late(session: ToolemuSession, text: str) -> None:
    """Report something at the very end of this process.

    A worker writes it to a file for the summary of the controller, which waits for its workers to end: a worker's
    standard error is not shown, and its channels are closed before the interpreter ends.
    """
    text = redact(text)
    if session.is_worker:
        path = session.late_messages_file
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8", errors="replace") as file:
                file.write(f"{text}\n")
    else:
        capture = session.config.pluginmanager.getplugin("capturemanager")
        if capture is not None:  # an agent may end the process in the middle of a test
            capture.suspend_global_capture()
        with contextlib.suppress(OSError):  # an agent may have closed it
            os.write(2, f"toolemu: {text}\n".encode(errors="replace"))


def take_late_messages(session: ToolemuSession) -> list[str]:
    """Return what workers have left for the summary, each line once, and remove the file."""
    try:
        lines = session.late_messages_file.read_text(encoding="utf-8").splitlines()
        session.late_messages_file.unlink()
    except OSError:
        return []
    return list(dict.fromkeys(lines))
