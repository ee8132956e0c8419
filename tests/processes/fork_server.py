"""A server that starts Python commands as forks of a process that has already imported everything.

A new interpreter spends most of its time on imports. A fork of a process that has imported everything is as isolated
(memory, environment, signal handlers, exit status), and takes a tenth of the time. Each fork ends like an interpreter:
threads are joined, ``atexit`` functions are called, and the objects of the command are finalized. Only what was imported
before the fork is not destroyed, because that would copy all its memory.

Run as a script, this module is the server; its argument is the descriptor of the socket that controls it. Tests import
``request`` to start sessions of pytest, and these sessions use it to start their xdist workers.
"""

from __future__ import annotations

import atexit
import contextlib
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
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

_LARGEST: Final = 1 << 20
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# Modules that sessions import besides this package: pytest's plugins and this package's dependencies.
_LIBRARIES: Final = (
    "_hypothesis_pytestplugin", "allure_pytest.plugin", "anthropic", "anyio.pytest_plugin", "asyncio", "coverage", "dotenv",
    "execnet", "h11", "httpcore2", "httpx2", "hypothesis.strategies", "jinja2", "jsonschema_rs", "numpy", "openai",
    "openai.resources.models", "platformdirs.pytest_plugin", "pydantic", "pytest", "pytest_rerunfailures",
    "pytest_timeout", "regex", "rich.console", "truststore", "typer.rich_utils", "xdist.dsession", "xdist.looponfail",
    "xdist.plugin", "xdist.remote", "xdist.workermanage", "yaml",
)  # fmt: skip
# Options with which pytest starts workers. Where only an environment variable or a file has one, they are not forked.
_WORKER_OPTIONS: Final = ("-n", "--numprocesses", "--tx", "--dist")
# Packages that are imported with all their modules: this one, and pytest's own plugins.
_PACKAGES: Final = ("pytest_toolemu", "_pytest")


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
        arguments, *how = json.loads(message)
        if "--toolemu-benchmark" in arguments:
            sys.modules["session_caches"].read_benchmark()
        if not (pid := os.fork()):
            os.close(status)
            self._close()
            return _enter(streams, arguments, *how)
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
    # No test depends on what survives a loss of power.
    os.fsync = lambda fd: None  # noqa: ARG005 - the parameter has this name
    caches = importlib.import_module("session_caches")  # a module beside this script
    caches.keep_cases()
    modules = (
        module.name
        for package in _PACKAGES
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")
    )
    for name in itertools.chain(_LIBRARIES, modules):
        # Importing a command's module would run it. The environment of tests/live/vllm has few of the libraries.
        if not name.endswith("__main__"):
            with contextlib.suppress(ModuleNotFoundError):
                importlib.import_module(name)
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module("pytest_toolemu.models.sdk_model").ssl_context()
    caches.keep_metadata()
    caches.keep_names()
    caches.run_session()
    caches.keep_default_plugins()
    for loaded in list(sys.modules.values()):
        # Otherwise pytest warns that it cannot rewrite the asserts of its plugins any more.
        if type(loaded) is ModuleType:
            loaded.__doc__ = f"{loaded.__doc__ or ''}\nPYTEST_DONT_REWRITE"
    inspect.stack()  # This fills a cache that coverage uses when it starts.
    gc.collect()
    gc.freeze()
    gc.enable()


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


@dataclass
class _Ending:
    """The end of a fork; ``preloaded`` is the number of modules before the fork, ``exit_status`` None while unknown."""

    preloaded: int = 0
    exit_status: int | None = None

    def end(self) -> None:
        """End this process like the interpreter, but without destroying the modules that were imported before the fork.

        If the exit status is unknown, or the last output cannot be written, leave the end to the interpreter.
        """
        if self.exit_status is None:
            return
        # The command's modules are the last ones. Reading the others would change their reference counts, and copy memory.
        for name in [*itertools.islice(reversed(sys.modules), len(sys.modules) - self.preloaded)]:
            del sys.modules[name]
        gc.collect()
        with contextlib.suppress(OSError, ValueError):
            for stream in filter(None, (sys.stdout, sys.stderr)):
                stream.flush()
            os._exit(self.exit_status & 0xFF)


def main(descriptor: int) -> None:
    """Serve requests; in a fork, run its command until the interpreter ends."""
    ending = _Ending()
    atexit.register(ending.end)  # The function that is registered first is called last.
    gc.disable()  # A search of what is imported, during the imports, would find nothing.
    _preload()
    del sys.path[0]  # the folder of this script
    ending.preloaded = len(sys.modules)
    arguments = Server(socket.socket(fileno=descriptor)).serve()
    is_pytest = {"pytest", "-mpytest"} & {Path(argument).name for argument in arguments[:2]}
    if is_pytest and any(argument.startswith(_WORKER_OPTIONS) for argument in arguments):
        arguments = _fork_workers(arguments)
    try:
        _run(arguments)
    except SystemExit as exit_:
        if exit_.code is None or isinstance(exit_.code, int):
            ending.exit_status = exit_.code or 0
        raise
    ending.exit_status = 0


if __name__ == "__main__":
    main(int(sys.argv[1]))
