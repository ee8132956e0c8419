"""Processes that tests start. Python commands are forked from a server that has already imported all modules."""

from __future__ import annotations

import functools
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.processes import fork_server

# Changes of other variables of Python take effect only in a new interpreter.
_APPLIED: Final = {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}

# The server must not inherit variables that the first test with a fork has set.
_ENVIRONMENT: Final = dict(os.environ)
_NOT_FOR_THE_SERVER: Final = {"COVERAGE_PROCESS_CONFIG", "PYTHONDONTWRITEBYTECODE"}

Command = Sequence[str | os.PathLike[str]]


class Process:
    """A forked process with the interface of ``subprocess.Popen``. Its output contains stdout and stderr."""

    def __init__(self, forked: fork_server.Forked, output: int) -> None:
        self.pid = forked.pid
        self._forked = forked
        self._output = output

    @property
    def returncode(self) -> int | None:
        """The exit status, or the negative number of a fatal signal, after a call of ``wait``; None before."""
        return self._forked.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait at most ``timeout`` seconds for the end of the process; return its exit status."""
        return self._forked.wait(timeout)

    def send_signal(self, number: int) -> None:
        """Send a signal to this process alone."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL unless the process is known to have ended."""
        self._forked.kill()

    def communicate(self, timeout: float) -> tuple[str, None]:
        """Read until no process has the output open, and wait for the end, at most ``timeout`` seconds."""
        output = b""
        deadline = time.monotonic() + timeout
        while True:
            if not select.select([self._output], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError(output.decode(errors="replace"))
            if not (block := os.read(self._output, 1 << 16)):
                break
            output += block
        os.close(self._output)
        self.wait(timeout)
        return output.decode(errors="replace"), None


def start(command: Command, *, cwd: Path, start_new_session: bool = False) -> Process:
    """Start a Python command; ``communicate`` returns its output."""
    ours, theirs = os.pipe()
    try:
        forked = start_with(command, theirs, theirs, cwd=cwd, start_new_session=start_new_session)
    finally:
        os.close(theirs)
    return Process(forked, ours)


def run(command: Command, *, cwd: Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a Python command to its end and return its output."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        status = start_with(command, out.fileno(), err.fileno(), cwd=cwd, env=env).wait()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(command, status, out.read().decode(), err.read().decode())


def running_in(folder: Path) -> list[int]:
    """List the processes, other than this one, whose current folder is this."""
    pids = []
    for current in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if current.readlink() == folder and int(current.parent.name) != os.getpid():
                pids.append(int(current.parent.name))
        except OSError:
            continue
    return pids


def wait_for_end(pid: int) -> None:
    """Wait until a process has ended, which need not be a child; the time limit of a test bounds the wait."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    select.select([handle], [], [])
    os.close(handle)


def start_with(
    command: Command,
    stdout: int,
    stderr: int,
    *,
    stdin: int | None = None,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    start_new_session: bool = False,
) -> fork_server.Forked:
    """Start a Python command with these descriptors as its standard streams."""
    arguments = _arguments(command)
    environ = dict(os.environ if env is None else env)
    if arguments is None or _of_python(environ) != _of_python(os.environ):
        raise ValueError(f"only a new interpreter can run this: {command}")
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        streams = (nothing if stdin is None else stdin, stdout, stderr)
        return fork_server.request(
            _server(), arguments, cwd=str(cwd), env=environ, streams=streams, own_session=start_new_session
        )
    finally:
        os.close(nothing)


def fork_commands(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``pytester`` fork the Python commands that it runs."""
    popen = pytester.popen

    def fork(
        command: Command,
        stdout: Any = subprocess.PIPE,
        stderr: Any = subprocess.PIPE,
        stdin: Any = None,
        **options: Any,
    ) -> Any:
        if _arguments(command) is None or isinstance(stdin, bytes) or not hasattr(stdout, "fileno"):
            return popen(command, stdout, stderr, stdin, **options)
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH")])),
        }
        return start_with(command, stdout.fileno(), stderr.fileno(), cwd=Path.cwd(), env=env)

    monkeypatch.setattr(pytester, "popen", fork)


def _arguments(command: Command) -> list[str] | None:
    """Return the arguments of the interpreter for a Python command; None for other commands."""
    program, *arguments = [os.fspath(part) for part in command]
    executable = shutil.which(program) or program
    if executable == sys.executable or program in ("python", "python3"):
        return arguments
    with Path(executable).open("rb") as script:
        is_ours = script.readline().strip() == f"#!{sys.executable}".encode()
    return [executable, *arguments] if is_ours else None


def _of_python(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in environ.items() if name.startswith("PYTHON") and name not in _APPLIED}


@functools.cache
def _server() -> socket.socket:
    """Start the server of this process and return the socket that controls it. The server ends with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    subprocess.Popen(
        [sys.executable, fork_server.__file__, str(theirs.fileno())],
        pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True,
        cwd=os.sep,  # Some tests look for processes in their own folder.
        # Coverage is measured in the forks, not in the server, which stores the bytecode of all modules.
        env={name: text for name, text in _ENVIRONMENT.items() if name not in _NOT_FOR_THE_SERVER},
    )  # fmt: skip
    theirs.close()
    return ours
