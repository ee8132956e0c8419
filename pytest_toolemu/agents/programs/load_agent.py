"""Load the agent that a setting names: a command, or a file that describes a command or a service."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_toolemu.agents.model_gateway import SessionRules, check_base_urls
from pytest_toolemu.agents.programs.agent_file import AgentFile, expanded, parsed, read_agent_file, text_at
from pytest_toolemu.agents.programs.command import (
    CommandAgent,
    check_program,
    command_agent,
    file_hashes,
    plain_text,
    script_in,
    split_command,
)
from pytest_toolemu.agents.programs.service import ServiceAgent, check_headers
from pytest_toolemu.core.identity import file_hash
from pytest_toolemu.core.toolbox import Toolbox
from pytest_toolemu.errors import DocumentError, UsageError
from pytest_toolemu.formats.credentials import REGISTRY, in_environment
from pytest_toolemu.settings import AGENT_FILE, COMMAND


def is_program(name: str) -> bool:
    """Return whether the name of an agent is a command, or the path of an agent file."""
    return name.startswith(COMMAND) or name.endswith(AGENT_FILE)


def load_program(name: str, rules: SessionRules | None = None) -> CommandAgent | ServiceAgent:
    """Return the agent that a command or an agent file describes. Raise UsageError if it cannot work.

    ``rules`` apply to the requests of a command to models.
    """
    program = command_agent(name, rules) if name.startswith(COMMAND) else load_agent_file(name, rules=rules)
    if isinstance(program, CommandAgent) and program.rules and not program.rules.replays_only:
        check_base_urls()
    return program


def load_agent_file(
    name: str, environ: Mapping[str, str] = os.environ, rules: SessionRules | None = None
) -> CommandAgent | ServiceAgent:
    """Return the agent that a file describes. Raise UsageError if the file is not valid, or the agent cannot work.

    The path is relative to the current folder. ``environ`` has the variables that the file may use.
    """
    path = Path(name)
    if not path.is_file():
        near = sorted(str(other) for other in path.parent.glob(f"*{AGENT_FILE}"))[:3]
        hint = f"; there is {', '.join(near)}" if near else "; a path is relative to the current folder"
        raise UsageError(f"agent {name!r}: there is no such file{hint}")
    try:
        file = read_agent_file(path)
    except DocumentError as error:
        raise UsageError(str(error)) from None
    watched = file_hashes(file.watch, path.parent, name)
    label = path.name.removesuffix(AGENT_FILE)
    if file.command is not None:
        return replace(_command(file, path, label, watched, environ), rules=rules if file.gateway else None)
    identity = _identity("service", label, path, watched)
    headers: dict[str, str] = expanded(file.headers, environ, name, secret=True)
    check_headers(headers, name)
    values = {
        "headers": headers,
        "body": expanded(file.body, environ, name, secret=True),
    }
    return ServiceAgent(name, file.model_copy(update=values), identity)


def _command(
    file: AgentFile, path: Path, label: str, watched: dict[str, str], environ: Mapping[str, str]
) -> CommandAgent:
    name, folder = str(path), (path.parent / file.folder).resolve()
    if not folder.is_dir():
        raise UsageError(f"{name}: there is no folder {file.folder!r} in {path.parent.resolve()}; correct 'folder'")
    words = split_command(file.command or "", name)
    check_program(words, folder, name)
    scripts = {word: file_hash(str(script)) for word in words if (script := script_in(word, folder))}
    identity: dict[str, Any] = {
        "kind": "command",
        "name": label,
        "file": file_hash(str(path.resolve())),
        "files": scripts | watched,
    }
    read = JsonAnswer(file, name) if file.answer is not None else plain_text
    variables: dict[str, str] = expanded(file.env, environ, name)
    for value, variable in in_environment(variables):
        REGISTRY.register(value, variable)  # as in the environment of this process: the program may print it
    return CommandAgent(name, words, folder, identity, variables, read)


def _identity(kind: str, label: str, path: Path, files: dict[str, str]) -> dict[str, Any]:
    return {"kind": kind, "name": label, "file": file_hash(str(path.resolve())), "files": files}


@dataclass(frozen=True)
class JsonAnswer:
    """Reads the answer of a command that prints JSON."""

    file: AgentFile
    name: str

    def __call__(self, text: str, toolbox: Toolbox) -> str:
        """Return the text at the path of the file, and report the tokens. Raise AgentProgramError if there is none."""
        source = f"the output of the agent {self.name!r}"
        value = parsed(text, source)
        is_counted = toolbox.trajectory.ledger.usage("agent").calls > 0  # by the gateway
        if self.file.usage is not None and not is_counted:
            self.file.usage.report(value, toolbox)
        return text_at(value, self.file.answer or "", source)
