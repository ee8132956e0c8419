"""``python -m tests.loopback --port 0``: run the server as a process, which prints its port and runs until SIGTERM."""

from __future__ import annotations

import argparse
import pkgutil
import signal
import threading
from types import FrameType

from tests.loopback.server import LoopbackServer


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.loopback")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--key", help="the only API key that is accepted")
    parser.add_argument("--model", action="append", dest="models", help="a model that exists; repeat it for more")
    parser.add_argument(
        "--script",
        default="tests.loopback.scripts:conforming",
        metavar="MODULE:FUNCTION",
        help="a function that returns the script (%(default)s)",
    )
    options = parser.parse_args()
    script = pkgutil.resolve_name(options.script)()
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        del number, frame
        ended.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    with LoopbackServer(script, key=options.key, models=options.models, port=options.port) as server:
        print(server.port, flush=True)
        ended.wait()


if __name__ == "__main__":
    main()
