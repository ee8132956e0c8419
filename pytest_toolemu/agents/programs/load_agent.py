"""Load the agent that a setting names: a command, or a file that describes a command or a service."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.agents.model_gateway import SessionRules, check_base_urls
from pytest_toolemu.agents.programs.agent_file import AgentFile, expanded, read_agent_file
from pytest_toolemu.agents.programs.command import CommandAgent, checked_command, command_agent, file_hashes
from pytest_toolemu.agents.programs.service import ServiceAgent, check_headers
from pytest_toolemu.core.identity import file_hash
from pytest_toolemu.errors import DocumentError, UsageError
from pytest_toolemu.formats.redaction import REGISTRY, in_environment
from pytest_toolemu.models.sdk_versions import require_sdk
from pytest_toolemu.settings.model_names import AGENT_FILE, COMMAND

_SECRET_PATH: Final = re.compile(r"[A-Za-z0-9_-]{16,}")


def is_program(name: str) -> bool:
    """Return whether the name of an agent is a command, or the path of an agent file."""
    return name.startswith(COMMAND) or name.endswith(AGENT_FILE)


def load_program(name: str, rules: SessionRules | None = None) -> CommandAgent | ServiceAgent:
    """Return the agent that a command or an agent file describes. Raise UsageError if it cannot work.

    ``rules`` apply to the requests of a command to models.
    """
    require_sdk("serve", f"agent {name!r}")
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
        raise UsageError(f"agent {name!r}: there is no such file; a path is relative to the current folder")
    try:
        file = read_agent_file(path)
    except DocumentError as error:
        raise UsageError(str(error)) from None
    identity = {
        "kind": "service" if file.command is None else "command",
        "name": path.name.removesuffix(AGENT_FILE),
        "file": file_hash(str(path.resolve())),
        "files": file_hashes(file.watch, path.parent, name),
    }
    if file.command is not None:
        return _command(file, path, identity, environ, rules if file.gateway else None)
    headers: dict[str, str] = expanded(file.headers, environ, name, secret=True)
    check_headers(headers, name)
    tools_path = expanded(file.tools_path, environ, name, secret=True)
    if tools_path is not None and not _SECRET_PATH.fullmatch(tools_path):
        raise UsageError(
            f"{name}: the value of tools_path, {file.tools_path}, is not secret enough: it needs at least 16 letters, "
            "digits, '-', or '_'; create one with: python -c 'import secrets; print(secrets.token_urlsafe())'"
        )
    values = {"headers": headers, "body": expanded(file.body, environ, name, secret=True), "tools_path": tools_path}
    return ServiceAgent(name, file.model_copy(update=values), identity)


def _command(
    file: AgentFile, path: Path, identity: dict[str, Any], environ: Mapping[str, str], rules: SessionRules | None
) -> CommandAgent:
    name, folder = str(path), (path.parent / file.folder).resolve()
    if not folder.is_dir():
        raise UsageError(f"{name}: there is no folder {file.folder!r} in {path.parent.resolve()}; correct 'folder'")
    words, scripts = checked_command(file.command or "", folder, name)
    variables: dict[str, str] = expanded(file.env, environ, name)
    for value, variable in in_environment(variables):
        REGISTRY.register(value, variable)  # as in the environment of this process: the program may print it
    return CommandAgent(name, words, folder, identity | {"files": scripts | identity["files"]}, variables, file, rules)
