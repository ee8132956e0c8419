"""Runs a server and outlives nobody: when whoever started it is gone, however that came, so is the server.

A process of its own, so that it is there when the other is killed: ``python -I guard.py PARENT GRACE COMMAND...``.
PARENT is the process to outlive. When standard input ends, or PARENT is gone, the server is asked to end
(SIGTERM), and after GRACE seconds its whole process group is killed. The first line of its output is the group's
number; it ends with the server's exit status. Standard library only, and little of it: it starts in a moment.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time

_LOOK = 0.25


def main(parent: int, grace: float, command: list[str]) -> int:
    """Run the command; its exit status, or 128 and the number of the signal that ended it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Whoever is meant by them tells us through the pipe. Not SIG_IGN, which the server would inherit.
        signal.signal(number, lambda *_: None)
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, start_new_session=True)
    os.write(1, f"{server.pid}\n".encode())
    os.close(1)
    while server.poll() is None and not _alone(parent):
        pass
    if server.poll() is None:
        # To the server alone, which tells its engines when they have answered what they had begun.
        server.terminate()
        deadline = time.monotonic() + grace
        while server.poll() is None and time.monotonic() < deadline:
            time.sleep(_LOOK / 5)
    _kill(server.pid)
    code = server.wait()
    return code if code >= 0 else 128 - code


def _alone(parent: int) -> bool:
    """Whether nobody is there any more; waits a moment to see."""
    readable, _, _ = select.select([0], [], [], _LOOK)
    return bool(readable and not os.read(0, 1)) or os.getppid() != parent


def _kill(group: int) -> None:
    """Kill what is left of a process group: an engine survives the server that started it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
