"""A server that starts Python commands as forks of a process that has already imported everything.

A new interpreter spends most of its time on imports. A fork of a process that has imported everything is as isolated
(memory, environment, signal handlers, exit status), and takes a fourth of the time. Each fork runs to the regular end
of the interpreter: threads are joined, and ``atexit`` functions are called.

Run as a script, this module is the server; its argument is the descriptor of the socket that controls it. Tests import
``request`` to start sessions of pytest, and these sessions use it to start their xdist workers.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import inspect
import itertools
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

_LARGEST: Final = 1 << 20
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_PACKAGE: Final = "pytest_toolemu"
# Modules that sessions import besides this package: pytest's plugins and this package's dependencies.
_LIBRARIES: Final = (
    "_hypothesis_pytestplugin", "allure_pytest.plugin", "anthropic", "anyio.pytest_plugin", "asyncio", "coverage", "dotenv",
    "execnet", "httpx2", "jinja2", "jsonschema_rs", "numpy", "openai", "pydantic", "pytest", "pytest_rerunfailures",
    "pytest_timeout", "regex", "rich.console", "typer", "xdist.dsession", "xdist.looponfail", "xdist.plugin",
    "xdist.remote", "xdist.workermanage", "yaml",
)  # fmt: skip


class Forked:
    """A process that the server started, with the part of the interface of ``subprocess.Popen`` that tests use."""

    stdin = None

    def __init__(self, pid: int, status: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status

    def wait(self, timeout: float | None = None) -> int:
        """Wait at most ``timeout`` seconds; return the exit status, or the negative number of the fatal signal."""
        if self.returncode is None:
            self._status.settimeout(timeout)
            self.returncode = int(
                self._status.recv(_LARGEST) or -signal.SIGKILL
            )  # the server was killed together with the process
            self._status.close()
        return self.returncode

    def kill(self) -> None:
        """Kill the process unless it is known to have ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


def request(
    server: socket.socket,
    arguments: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    streams: Sequence[int],
    own_session: bool = False,
) -> Forked:
    """Start ``python ARGUMENTS`` with three descriptors as its standard streams."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    message = json.dumps([list(arguments), cwd, dict(env), own_session]).encode()
    socket.send_fds(server, [message], [*streams, theirs.fileno()])
    theirs.close()
    return Forked(int(ours.recv(_LARGEST)), ours)


# ---- the server


class Server:
    """Forks for each request, and reports the exit status of each fork, until the client closes the socket."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)

    def serve(self) -> list[str]:
        """Serve requests; return only in a fork, with the arguments of its command."""
        for number in _SIGNALS:  # Ctrl-C and hang-ups are meant for the forks
            signal.signal(number, signal.SIG_IGN)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is not self._control:
                    self._report(key)
                elif (arguments := self._fork()) is not None:
                    return arguments

    def _fork(self) -> list[str] | None:
        message, descriptors, _, _ = socket.recv_fds(self._control, _LARGEST, 4)
        if not message:
            os._exit(0)
        *streams, status = descriptors
        if not (pid := os.fork()):
            os.close(status)
            self._close()
            return _enter(streams, *json.loads(message))
        for descriptor in streams:
            os.close(descriptor)
        os.write(status, str(pid).encode())
        self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, status))
        return None

    def _report(self, key: selectors.SelectorKey) -> None:
        pid, status = key.data
        self._selector.unregister(key.fileobj)
        os.close(key.fd)
        exit_status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with contextlib.suppress(OSError):  # no client waits for it
            os.write(status, str(exit_status).encode())
        os.close(status)

    def _close(self) -> None:
        for key in list(self._selector.get_map().values()):
            if key.data is not None:
                os.close(key.fd)
                os.close(key.data[1])
        self._selector.close()
        self._control.close()


def _enter(streams: Sequence[int], arguments: list[str], cwd: str, env: dict[str, str], own_session: bool) -> list[str]:
    """Make this fork look like a new interpreter that was started with these arguments."""
    if own_session:
        os.setsid()
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(cwd)
    path = env.get("PYTHONPATH", "").split(os.pathsep)
    first = cwd if arguments[0].startswith("-m") else str(Path(arguments[0]).parent) if arguments[0][0] != "-" else ""
    os.environ.clear()
    os.environ.update(env)
    sys.dont_write_bytecode = "PYTHONDONTWRITEBYTECODE" in env
    sys.path[:0] = [first, *filter(None, path)]
    sys.orig_argv[1:] = arguments
    streams_by_name = {
        "stdin": os.fdopen(0, closefd=False),
        "stdout": os.fdopen(1, "w", closefd=False),
        "stderr": os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False),
    }
    for name, stream in streams_by_name.items():
        vars(sys)[name] = vars(sys)[f"__{name}__"] = stream
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    return arguments


def _fork_workers(arguments: list[str]) -> list[str]:
    """Fork xdist's workers in a child of this process, because this process has threads when it starts them.

    Return the arguments of the command in this process, and in each worker.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if not (pid := os.fork()):
        ours.close()
        return Server(theirs).serve()
    theirs.close()

    @atexit.register
    def end_server() -> None:
        ours.close()
        os.waitpid(pid, 0)

    from execnet import gateway_base, gateway_io

    class ForkedIO(gateway_io.Popen2IOMaster):
        """The pipes to a worker."""

        def __init__(self, args: Sequence[str], execmodel: Any) -> None:
            command, inner_in, outer_in = args[1:], *os.pipe()
            outer_out, inner_out = os.pipe()
            assert args[0] == sys.executable
            streams = inner_in, inner_out, 2
            self.popen = request(ours, command, cwd=str(Path.cwd()), env=os.environ, streams=streams)
            for descriptor in (inner_in, inner_out):
                os.close(descriptor)
            gateway_base.Popen2IO.__init__(
                self, os.fdopen(outer_in, "wb"), os.fdopen(outer_out, "rb"), execmodel=execmodel
            )

    gateway_io.Popen2IOMaster = ForkedIO  # type: ignore[misc]
    return arguments


def _preload() -> None:
    path = importlib.import_module(_PACKAGE).__path__
    modules = (module.name for module in pkgutil.walk_packages(path, f"{_PACKAGE}."))
    for name in itertools.chain(_LIBRARIES, modules):
        # Importing a command's module would run it. The environment of tests/live/vllm has few of the libraries.
        if not name.endswith("__main__"):
            with contextlib.suppress(ModuleNotFoundError):
                importlib.import_module(name)
    for loaded in list(sys.modules.values()):
        # Otherwise pytest warns that it cannot rewrite the asserts of its plugins any more.
        if type(loaded) is ModuleType:
            loaded.__doc__ = f"{loaded.__doc__ or ''}\nPYTEST_DONT_REWRITE"
    inspect.stack()  # This fills a cache that coverage uses when it starts.
    gc.collect()
    gc.freeze()


def _run(arguments: list[str]) -> None:
    """Run a command like the interpreter: ``-m MODULE``, ``-c CODE`` or a script."""
    if "COVERAGE_PROCESS_CONFIG" in os.environ:
        import coverage

        coverage.process_startup()
    first, *others = [argument for argument in arguments if argument != "-u"]
    if first.startswith("-m"):
        name, *others = [*filter(None, [first[2:]]), *others]
        sys.argv[:] = [name, *others]
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv[:] = ["-c", *others[1:]]
        exec(others[0], {"__name__": "__main__"})
    else:
        sys.argv[:] = [first, *others]
        runpy.run_path(first, run_name="__main__")


def _spare_libraries() -> None:
    """Hide installed modules from the interpreter at its end: destroying them would copy all their memory."""
    spared = [sys.modules.pop(name) for name, module in [*sys.modules.items()] if _is_installed(module)]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(spared))


def _is_installed(module: ModuleType) -> bool:
    path = getattr(module, "__file__", None) or ""
    return "site-packages" in path or module.__name__.partition(".")[0] == _PACKAGE


def main(descriptor: int) -> None:
    """Serve requests; in a fork, run its command until the interpreter ends."""
    atexit.register(_spare_libraries)  # The function that is registered first is called last.
    del sys.path[0]  # the folder of this script
    _preload()
    arguments = Server(socket.socket(fileno=descriptor)).serve()
    if {"pytest", "-mpytest"} & {Path(argument).name for argument in arguments[:2]} and "no:xdist" not in arguments:
        arguments = _fork_workers(arguments)
    _run(arguments)


if __name__ == "__main__":
    main(int(sys.argv[1]))
