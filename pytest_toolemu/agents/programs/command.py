"""An agent that is a command: its tools are behind an MCP address, and it prints its answer."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from pytest_toolemu.agents.mcp import served
from pytest_toolemu.agents.model_gateway import SessionRules, passed_on, stand_ins
from pytest_toolemu.agents.programs.agent_file import (
    AgentFile,
    case_values,
    filled,
    misspelled,
    names_in,
    new_session,
    parsed,
    text_at,
)
from pytest_toolemu.core.identity import file_hash
from pytest_toolemu.core.toolbox import Task, Toolbox
from pytest_toolemu.errors import AgentProgramError, UsageError
from pytest_toolemu.formats.redaction import refuse_in_command
from pytest_toolemu.settings.model_names import COMMAND

_SHOWN_LOG: Final = 600
# Longer values make the start of any program fail; such a task is on standard input all the same.
_LONGEST_VARIABLE: Final = 100_000
_LOOPBACK: Final = ("127.0.0.1", "localhost")


@dataclass(frozen=True)
class CommandAgent:
    """An agent that starts a program for each run. ``name`` is what messages call it: the command, or its file.

    The program prints its answer, or JSON with its answer if ``file`` says where it is. ``variables`` are added to the
    environment; placeholders in their values and in ``words`` are replaced. ``inherited`` names further variables, or
    ``all``. With ``rules``, the requests of the program to models are passed on, and counted.
    """

    name: str
    words: tuple[str, ...]
    folder: Path
    identity: dict[str, Any]
    variables: Mapping[str, str] = field(default_factory=dict)
    file: AgentFile | None = None
    rules: SessionRules | None = None
    inherited: tuple[str, ...] = ()

    async def __call__(self, task: Task, toolbox: Toolbox) -> str:
        """Return what the program prints. Raise AgentProgramError if it breaks off, prints nothing or too much."""
        async with contextlib.AsyncExitStack() as stack:
            home = stack.enter_context(tempfile.TemporaryDirectory(prefix="toolemu-", ignore_cleanup_errors=True))
            base_urls = await stack.enter_async_context(passed_on(toolbox, self.rules)) if self.rules else {}
            url = await stack.enter_async_context(served(toolbox))
            config = Path(home, "mcp.json")  # as many MCP clients read it
            config.write_text(json.dumps({"mcpServers": {"tools": {"type": "http", "url": url}}}), encoding="utf-8")
            values = case_values(task, toolbox, url, new_session(), str(config))
            output = await self._run(values, base_urls, toolbox)
            return output if self.file is None or self.file.answer is None else self._read(output, toolbox)

    def _read(self, output: str, toolbox: Toolbox) -> str:
        """Return the text at the path of the file, and report the tokens. Raise AgentProgramError if there is none."""
        assert self.file is not None
        source = f"the output of the agent {self.name!r}"
        value = parsed(output, source)
        is_counted = toolbox.trajectory.ledger.usage("agent").calls > 0  # by the gateway
        if self.file.usage is not None and not is_counted:
            self.file.usage.report(value, toolbox)
        return text_at(value, self.file.answer or "", source)

    async def _run(self, values: dict[str, str], base_urls: dict[str, str], toolbox: Toolbox) -> str:
        by_name = {name: value.replace("\0", "") for name, value in values.items()}
        text = "" if "task" in names_in(self.words) else values["task"]
        environ = (stand_ins() if self.rules else {}) | _environment(by_name, self.inherited)
        environ |= base_urls | filled(self.variables, by_name)
        try:
            async with running(
                filled(self.words, by_name), text.encode("utf-8", "replace"), folder=self.folder, environ=environ
            ) as program:
                await self._wait(program, toolbox)
        except OSError as error:
            reason = error.strerror or str(error)
            if error.errno == errno.E2BIG:
                reason = "the task is too long for an argument; omit {task}, and read the task from standard input"
            raise UsageError(f"agent {self.name!r}: {self.words[0]} cannot be started: {reason}") from None
        self._check_end(program, environ)
        return program.output.decode(errors="replace").strip()

    async def _wait(self, program: RunningProgram, toolbox: Toolbox) -> None:
        try:
            await program.wait()
        except asyncio.CancelledError:
            if not toolbox.is_answering:
                state = "was still running, and was not waiting for a tool call"
                toolbox.trajectory.interrupted = f"the program of the agent {self.name!r} {state}"
            raise
        finally:
            toolbox.trajectory.agent_log = program.log

    def _check_end(self, program: RunningProgram, environ: Mapping[str, str]) -> None:
        if program.has_too_much_output:
            raise AgentProgramError(
                f"the agent {self.name!r} printed more than {MAX_OUTPUT:,} bytes to standard output; print only the "
                "final answer there, and everything else to standard error"
            )
        if program.status:
            log = " ".join(program.log[-4 * _SHOWN_LOG :].split())
            ending = f"exited with status {program.status}"
            if program.status < 0:
                ending = f"was killed by {signal.Signals(-program.status).name}"
            wrote = f": … {log[-_SHOWN_LOG:].partition(' ')[2]}" if len(log) > _SHOWN_LOG else f": {log}"
            if missing := [name for name in _NAME.findall(log) if name in os.environ and name not in environ]:
                wrote += f" (it does not inherit {missing[0]}; if it needs it: --toolemu-agent-env={missing[0]})"
            raise AgentProgramError(
                f"the agent {self.name!r} {ending}" + (wrote if log else "; it wrote nothing to standard error")
            )
        if not program.output.strip():
            raise AgentProgramError(
                f"the agent {self.name!r} printed no answer; print the final answer to standard output"
            )


def command_agent(text: str, rules: SessionRules | None = None) -> CommandAgent:
    """Return the agent of a setting such as ``cmd: node agent.js``. Raise UsageError if it cannot be started.

    The program runs in the current folder.
    """
    command = text.removeprefix(COMMAND).strip()
    words, files = checked_command(command, Path.cwd(), text)
    identity: dict[str, Any] = {"kind": "command", "name": command}
    return CommandAgent(text, words, Path.cwd(), identity | ({"files": files} if files else {}), rules=rules)


def checked_command(command: str, folder: Path, source: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the words of a command, quoted as for a shell, and the hashes of the files that they name.

    Raise UsageError for no command, for one with a key in it, and if its program or its script does not exist.
    """
    refuse_in_command(command, "the agent" if source.startswith(COMMAND) else source)
    try:
        words = tuple(shlex.split(command))
    except ValueError:
        raise UsageError(f"agent {source!r}: a quote is not closed; quote as in a shell") from None
    if not words:
        raise UsageError(f"agent {source!r}: there is no command; write one, such as {COMMAND} node agent.js")
    for message in misspelled(words):
        raise UsageError(f"agent {source!r}: {message}")
    if sys.platform == "win32":
        raise UsageError(f"agent {source!r}: commands can be tested on Linux and macOS only; use WSL")
    program = str(folder / words[0]) if "/" in words[0] else words[0]
    if shutil.which(program) is None:
        fix = (
            "make it executable (chmod +x)" if Path(program).is_file() else "check its name, or add its folder to PATH"
        )
        raise UsageError(f"agent {source!r}: there is no program {words[0]!r}; {fix}")
    return words, {word: file_hash(str(path)) for word in words if (path := _file_in(word, folder))}


_NAME: Final = re.compile(r"\b[A-Z][A-Z0-9_]{2,}\b")
_INHERITED: Final = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|TERM|TZ|LANG|LANGUAGE|LC_\w+|TMPDIR|TEMP|TMP|XDG_\w+|PYTHON[A-Z]+|VIRTUAL_ENV|"
    r"CONDA_PREFIX|NODE_PATH|JAVA_HOME|LD_LIBRARY_PATH|(?i:(?:https?|all|no)_proxy)|SSL_CERT_(?:FILE|DIR)|"
    r"(?:REQUESTS|CURL)_CA_BUNDLE|NODE_EXTRA_CA_CERTS|OPENAI_(?:ORG|PROJECT)_ID"
)


def inherited_variables(names: Collection[str]) -> dict[str, str]:
    """Return what a program gets of the environment: no keys, except in variables that are named, or with ``all``."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    return {k: value for k, value in environ.items() if "all" in names or k in names or _INHERITED.fullmatch(k)}


def _environment(values: Mapping[str, str], inherited: Collection[str]) -> dict[str, str]:
    """Return what a program inherits, with a variable for each value of the case, but without its ID.

    The ID of a case can say what it tests, so a program gets it only if its command asks for it.
    """
    environ = inherited_variables(inherited)
    for name, value in values.items():
        if name != "case_id" and len(value) < _LONGEST_VARIABLE:
            environ[f"TOOLEMU_{name.upper()}"] = value
    for name in ("NO_PROXY", "no_proxy"):  # the tools are on this machine, wherever a proxy is
        environ[name] = ",".join(filter(None, (environ.get(name, ""), *_LOOPBACK)))
    return environ


MAX_OUTPUT: Final = 1_000_000
"""Bytes that a program may write to standard output."""
MAX_LOG: Final = 20_000
"""Bytes of standard error that are kept: the last ones."""

# Seconds between SIGTERM and SIGKILL, and for the rest of the output after the program has ended.
_GRACE: Final = 0.5
_STDERR: Final = 2


class RunningProgram(asyncio.SubprocessProtocol):
    """A program that runs. It counts as ended once it has exited, or has written too much to standard output."""

    def __init__(self) -> None:
        self.output = bytearray()
        self.has_too_much_output = False
        self._log = bytearray()
        self._dropped = 0
        self._ended, self._exited, self._closed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @property
    def status(self) -> int | None:
        """The exit status; the negative number of the signal that ended the program; None while it runs."""
        return self._transport.get_returncode()

    @property
    def log(self) -> str:
        """The end of standard error. Its first line says how much is missing."""
        text = self._log[-MAX_LOG:].decode(errors="replace")
        dropped = self._dropped + max(0, len(self._log) - MAX_LOG)
        return f"[{dropped:,} earlier bytes are not kept]\n{text}" if dropped else text

    async def wait(self) -> None:
        """Wait until the program has ended and its output is complete. End the processes that it left behind."""
        await self._ended.wait()
        if self._exited.is_set():
            self._signal(signal.SIGKILL)  # a process in the background would keep the pipes open
            await _within_grace(self._closed)

    async def end(self) -> None:
        """End the program and all processes of its group: with SIGTERM, and half a second later with SIGKILL."""
        try:
            if not self._exited.is_set():
                self._signal(signal.SIGTERM)
                await _within_grace(self._exited)
        finally:  # also if the wait is canceled
            self._signal(signal.SIGKILL)
            await _within_grace(self._exited)
            self._transport.close()

    def send(self, text: bytes) -> None:
        """Write to the program's standard input, and close it. A program that does not read it loses nothing else."""
        stdin = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(0))
        stdin.write(text)
        stdin.close()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._transport.get_pid(), number)

    # ---- callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Keep the beginning of standard output and the end of standard error."""
        if fd == _STDERR:
            self._log += data
            if len(self._log) > 2 * MAX_LOG:
                self._dropped += len(self._log) - MAX_LOG
                del self._log[:-MAX_LOG]
            return
        self.output += data[: MAX_OUTPUT + 1 - len(self.output)]
        if len(self.output) > MAX_OUTPUT:
            self.has_too_much_output = True
            self._ended.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remember that the program has exited, and that all pipes are closed."""
        del exc
        self._closed.set()

    def process_exited(self) -> None:
        """Remember that the program has exited. Processes that it started may still run."""
        self._exited.set()
        self._ended.set()


@contextlib.asynccontextmanager
async def running(
    words: Sequence[str], text: bytes, *, folder: Path, environ: Mapping[str, str]
) -> AsyncIterator[RunningProgram]:
    """Start a program with ``text`` as its standard input. At the end of the block, its process group is gone.

    Raise OSError if it cannot be started.
    """
    create: Any = asyncio.get_running_loop().subprocess_exec
    _, program = await create(RunningProgram, *words, cwd=folder, env=environ, start_new_session=True)
    try:
        program.send(text)
        yield program
    finally:
        await program.end()


async def _within_grace(event: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), _GRACE)


def _file_in(word: str, folder: Path) -> Path | None:
    """Return the path of the file that a word of a command names, relative to the folder; None if there is none there.

    Files elsewhere, such as the interpreter, differ between machines, so they are not part of an identity.
    """
    try:
        path = (folder / word).resolve()
        return path if path.is_file() and path.is_relative_to(folder.resolve()) else None
    except (OSError, ValueError):  # a word can be longer than any path, or contain a null character
        return None


def file_hashes(names: tuple[str, ...], folder: Path, source: str) -> dict[str, str]:
    """Return the hash of each file by its name, and of all files in folders. Raise UsageError if one does not exist."""
    hashes: dict[str, str] = {}
    for name in names:
        path = folder / name
        if not path.exists():
            raise UsageError(f"{source}: there is no file or folder {name!r} in {folder}; correct 'watch'")
        files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        hashes |= {file.relative_to(folder).as_posix(): file_hash(str(file.resolve())) for file in files}
    return hashes
