"""Run a server and stop it when the process that started it ends, for whatever reason.

A session that is killed with SIGKILL cannot stop its servers, and a server that stays behind occupies the GPUs. So each
server gets a watchdog, a process of its own: ``python -I vllm_watchdog.py PARENT GRACE COMMAND...``.

When standard input ends, or the process PARENT is gone, the watchdog sends SIGTERM to the server and, after GRACE
seconds, SIGKILL to its whole process group. The first line on its standard output is the number of that group; its exit
status is the server's. It imports only the standard library, and little of it, to start quickly.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time

_POLL_SECONDS = 0.25


def main(parent: int, grace: float, command: list[str]) -> int:
    """Run the command; return its exit status, or 128 plus the number of the signal that ended it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Ctrl-C reaches the whole process group, but only the session decides when the server stops, by closing the
        # pipe. A handler instead of SIG_IGN, because the server would inherit SIG_IGN.
        signal.signal(number, lambda *_: None)
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, start_new_session=True)
    # The session kills this group if even the watchdog is gone. The server leads it, as it starts a session.
    with contextlib.suppress(OSError):  # the session is gone already
        os.write(1, f"{server.pid}\n".encode())
    os.close(1)
    while server.poll() is None and not _parent_is_gone(parent):
        pass
    if server.poll() is None:
        # Only to the server: it stops its engines after they have finished the requests in progress.
        server.terminate()
        deadline = time.monotonic() + grace
        while server.poll() is None and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS / 5)
    # Also after a regular end: engines are processes of their own, and one that hangs would keep its GPU.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    code = server.wait()
    return code if code >= 0 else 128 - code


def _parent_is_gone(parent: int) -> bool:
    """Wait a moment, and tell whether the pipe was closed or the parent process has ended."""
    readable, _, _ = select.select([0], [], [], _POLL_SECONDS)
    # A process that the session forked may hold the other end of the pipe open; then only the parent's number tells.
    return bool(readable and not os.read(0, 1)) or os.getppid() != parent


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
