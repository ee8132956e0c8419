"""Agent files: ``support.agent.yaml`` describes an agent that is a command or a service."""

from __future__ import annotations

import difflib
import json
import re
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import Field

from pytest_toolemu.core.toolbox import Task, Toolbox
from pytest_toolemu.errors import AgentProgramError, UsageError
from pytest_toolemu.formats.redaction import REGISTRY, looks_like_a_key
from pytest_toolemu.formats.text import truncated
from pytest_toolemu.formats.yaml_document import KEY, Document, Loc, Record

_KINDS: Final = ("command", "url", "responses", "a2a")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# The keys that only some kinds of agents have.
_OWNERS: Final = {
    "folder": ("command",),
    "env": ("command",),
    "gateway": ("command",),
    "headers": ("url", "responses", "a2a"),
    "body": ("url",),
    "model": ("responses",),
    "answer": ("command", "url"),
    "usage": ("command", "url"),
    "keeps_session": ("url",),
    "retries": ("url", "responses", "a2a"),
    "tools_port": ("url", "responses", "a2a"),
    "tools_path": ("url", "responses", "a2a"),
    "passes_traceparent": ("url", "responses", "a2a"),
}


class UsagePaths(Record):
    """Where a JSON answer states the tokens that the agent used."""

    model: str = Field(min_length=1, description="The model as in options, such as `openai:gpt-4o`, for its price")
    input: str = Field(min_length=1, description="Path of the number of input tokens, such as `usage.input_tokens`")
    output: str = Field(min_length=1, description="Path of the number of output tokens")
    cached: str | None = Field(default=None, description="Path of the number of input tokens read from a cache")

    def report(self, value: Any, toolbox: Toolbox) -> None:
        """Report the tokens in a JSON answer. If a number is missing, the tokens of the run stay unknown."""
        counts = [_at(value, path) for path in (self.input, self.output, self.cached or "")]
        tokens, output, cached = (count if type(count) is int and count >= 0 else None for count in counts)
        if tokens is not None and output is not None:
            toolbox.used(self.model, input=tokens, output=output, cached=cached or 0)


class AgentFile(Record):
    """An agent that is a command or a service. Exactly one of the first four keys is given."""

    command: str | None = Field(
        default=None,
        min_length=1,
        description="Command with its arguments, quoted as for a shell; may have placeholders",
    )
    url: str | None = Field(default=None, description="URL of a service that gets `body` as JSON and returns JSON")
    responses: str | None = Field(
        default=None, description="URL of an endpoint that is compatible with OpenAI's Responses API and MCP tools"
    )
    a2a: str | None = Field(default=None, description="URL of an agent that speaks A2A 1.x with JSON-RPC")
    folder: str = Field(default=".", description="Folder in which the command runs, relative to this file")
    env: dict[str, str] = Field(
        default={}, description="Environment variables of the command; may have placeholders and `${VARIABLE}`"
    )
    gateway: bool = Field(
        default=True,
        description="Whether the command gets base URLs of OpenAI and Anthropic that count its tokens and apply the "
        "session's rate limits, budget, and cassettes",
    )
    headers: dict[str, str] = Field(default={}, description="HTTP headers; may have placeholders and `${VARIABLE}`")
    body: dict[str, Any] | None = Field(
        default=None, description="JSON that is sent to `url`; its texts may have placeholders and `${VARIABLE}`"
    )
    model: str | None = Field(default=None, min_length=1, description="Model that `responses` asks for")
    answer: str | None = Field(
        default=None,
        min_length=1,
        description="Path of the answer in the JSON that comes back, such as `reply.parts.0.text`; a command without "
        "it prints plain text",
    )
    usage: UsagePaths | None = Field(default=None, description="Where that JSON states the tokens the agent used")
    keeps_session: bool = Field(
        default=False,
        description="Whether the service at `url` continues the conversation of a `{session}`: a reply of the user is "
        "sent with the same session, in place of the task",
    )
    retries: int = Field(
        default=2, ge=0, le=10, description="Further attempts if a request was certainly not processed"
    )
    tools_port: int | None = Field(
        default=None,
        ge=1,
        le=65535,
        description="Port of this computer at which the service expects the tools "
        "(http://127.0.0.1:PORT/PATH/mcp), if it cannot take an address with each request; its cases run one at a time",
    )
    tools_path: str | None = Field(
        default=None,
        description="The secret PATH of that address, as `${VARIABLE}`: at least 16 random letters, digits, `-`, or "
        "`_`, so that nobody else on this computer can call the tools; with `tools_port`",
    )
    passes_traceparent: bool = Field(
        default=False,
        description="Whether the service sends the `traceparent` header of its request with each call of a tool, so "
        "that its cases can run at the same time; with `tools_port`",
    )
    watch: tuple[str, ...] = Field(
        default=(), description="Files and folders, relative to this file, whose change makes another agent"
    )

    @property
    def kind(self) -> str:
        """The key that says what the agent is: command, url, responses, or a2a."""
        return next(kind for kind in _KINDS if getattr(self, kind) is not None)


def read_agent_file(path: Path) -> AgentFile:
    """Return the content of an agent file. Raise DocumentError with all problems and their positions."""
    document = Document.read(path)
    file = document.build(AgentFile)
    if problems := list(_problems(file, document.value)):
        raise document.error(problems)
    return file


def _problems(file: AgentFile, value: dict[str, Any]) -> Iterator[tuple[Loc, str]]:
    kinds = [kind for kind in _KINDS if getattr(file, kind) is not None]
    if len(kinds) != 1:
        given = f"{' and '.join(kinds)} are given" if kinds else "none is given"
        yield (), f"an agent has exactly one of {', '.join(_KINDS)}, but {given}"
        return
    (kind,) = kinds
    for key, owners in _OWNERS.items():
        if key in value and kind not in owners:
            yield (key, KEY), f"{key!r} belongs to {' and '.join(owners)}, but this agent has {kind!r}; remove it"
    if kind != "command" and (problem := _url_problem(getattr(file, kind))):
        yield (kind,), problem
    yield from ((place, message) for is_wrong, place, message in _combinations(file, kind) if is_wrong)
    for part in ("command", "env", "headers", "body"):
        for message in misspelled(value.get(part)):
            yield (part,), message
    yield from _pair_problems(file)


def _pair_problems(file: AgentFile) -> Iterator[tuple[Loc, str]]:
    """Yield the problems of the names and values of headers and variables."""
    for name in file.headers:
        if not _HEADER_NAME.fullmatch(name):
            yield ("headers", name, KEY), f"{name!r} is not the name of a header; write letters, digits, and hyphens"
    for name, text in {**file.headers, **file.env}.items():
        part = "headers" if name in file.headers else "env"
        if any(looks_like_a_key(word) for word in text.split()):
            yield (part, name), f"the value of {name!r} looks like a key; write ${{NAME}}, and set the variable NAME"


def _combinations(file: AgentFile, kind: str) -> Iterator[tuple[bool, Loc, str]]:
    """Yield whether keys are missing or do not fit together, with the place and the message."""
    names = names_in(file.body)
    yield kind == "url" and file.answer is None, ("url", KEY), _NO_ANSWER
    yield kind == "url" and "task" not in names, ("url" if file.body is None else "body", KEY), _NO_TASK
    yield kind == "responses" and file.model is None, ("responses", KEY), _NO_MODEL
    yield file.keeps_session and "session" not in names, ("keeps_session", KEY), _NO_SESSION
    for key in ("passes_traceparent", "tools_path"):
        yield bool(getattr(file, key)) and file.tools_port is None, (key, KEY), f"{key!r} {_NO_PORT}"
    yield file.tools_port is not None and file.tools_path is None, ("tools_port", KEY), _NO_PATH
    is_text = kind == "command" and file.answer is None
    yield is_text and file.usage is not None, ("usage", KEY), "'usage' needs 'answer': the command must print JSON"


_NO_ANSWER: Final = "'answer' is missing: the path of the answer in the service's JSON, such as answer: reply.text"
_NO_TASK: Final = '\'body\' must contain the placeholder {task}, such as body: {message: "{task}", tools: "{mcp_url}"}'
_NO_MODEL: Final = "'model' is missing: the model to ask for, such as model: gpt-4o"
_NO_SESSION: Final = "'keeps_session' needs the placeholder {session} in 'body'"
_NO_PATH: Final = "'tools_port' needs 'tools_path', such as tools_path: ${DESK_TOOLS}: a secret part of the address"
_NO_PORT: Final = "needs 'tools_port': otherwise, each case has an address of its own; remove it"


def _url_problem(url: str) -> str:
    import httpx2

    try:
        parsed_url = httpx2.URL(url)
    except httpx2.InvalidURL:
        parsed_url = httpx2.URL()
    if parsed_url.scheme not in ("http", "https") or not parsed_url.host or not url.isascii():
        return f"{url!r} is not a URL; write http(s)://host[:port]/path with other characters percent-encoded"
    if parsed_url.userinfo:
        return "the URL contains a user name or a password; put credentials into 'headers' as ${NAME}"
    return ""


_SHOWN: Final = 300


def parsed(text: str, source: str) -> Any:
    """Return the JSON value of an answer. Raise AgentProgramError, with the text, if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise AgentProgramError(f"{source} is not JSON: {shown(text)}") from None


def text_at(value: Any, path: str, source: str) -> str:
    """Return the text at a path such as ``reply.parts.0.text``. Raise AgentProgramError if there is none."""
    found = _at(value, path)
    if not isinstance(found, str):
        raise AgentProgramError(f"{source} has no text at {path!r}; correct the path: {shown(json.dumps(value))}")
    return found


def shown(text: str) -> str:
    """Return the beginning of a text from outside, in one line."""
    return repr(truncated(" ".join(text[: 20 * _SHOWN].split()), _SHOWN))


def _at(value: Any, path: str) -> Any:
    """Return the value at a path; None if there is none."""
    try:
        for key in path.split("."):
            value = value[int(key)] if isinstance(value, list) else value[key]
    except (LookupError, TypeError, ValueError):
        return None
    return value


# Braces occur in shell code and JSON as well: only these names are replaced.
_PLACEHOLDER: Final = re.compile(r"(?<!\$)\{([a-z_]+)\}")

NAMES: Final = (
    "task", "mcp_url", "mcp_config", "session", "case_id", "now", "locale", "user_name", "user_email",
)  # fmt: skip
"""The names of all placeholders."""


def new_session() -> str:
    """Return a random ID of a run, in the form of the trace ID of a ``traceparent`` header."""
    return secrets.token_hex(16)


def case_values(task: Task, toolbox: Toolbox, mcp_url: str, session: str, mcp_config: str = "") -> dict[str, str]:
    """Return what the agent's program or service learns about one run of a case: the value of each placeholder.

    ``session`` is random: it identifies the run, but tells nothing about the case. ``mcp_config`` is the path of a
    file, which only commands have.
    """
    return {
        "task": str(task),
        "mcp_url": mcp_url,
        "mcp_config": mcp_config,
        "session": session,
        "case_id": toolbox.resolved_case.case.id,
        "now": task.now.isoformat(),
        "locale": task.locale,
        "user_name": task.user.name,
        "user_email": task.user.email,
    }


def filled(value: Any, values: Mapping[str, str]) -> Any:
    """Return a JSON value with all placeholders replaced, once: a value that looks like a placeholder stays text."""
    if isinstance(value, str):
        return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), value)
    if isinstance(value, dict):
        return {key: filled(part, values) for key, part in value.items()}
    return [filled(part, values) for part in value] if isinstance(value, list | tuple) else value


def names_in(value: Any) -> set[str]:
    """Return the names of the placeholders in a JSON value."""
    return {name for name in _all_names(value) if name in NAMES}


def misspelled(value: Any) -> Iterator[str]:
    """Yield a message for each name in braces that is close to a placeholder."""
    for name in dict.fromkeys(_all_names(value)):
        near = difflib.get_close_matches(name, NAMES, n=1, cutoff=0.75)
        if name not in NAMES and near:
            yield f"{{{name}}} is not a placeholder; did you mean {{{near[0]}}}?"


def _all_names(value: Any) -> list[str]:
    if isinstance(value, str):
        return _PLACEHOLDER.findall(value)
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [name for part in parts for name in _all_names(part)]


_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def expanded(value: Any, environ: Mapping[str, str], source: str, *, secret: bool = False) -> Any:
    """Return a JSON value with all variables replaced. Raise UsageError for one that is not set.

    The values of ``secret`` texts, such as those in headers, are redacted from now on, whatever their variables are
    called.
    """
    if isinstance(value, dict):
        return {key: expanded(part, environ, source, secret=secret) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [expanded(part, environ, source, secret=secret) for part in value]
    if not isinstance(value, str):
        return value
    for name in _VARIABLE.findall(value):
        if name not in environ:
            raise UsageError(f"{source}: the variable {name} is not set; set it in the environment or the .env file")
        if secret:
            REGISTRY.register(environ[name], name)
    return _VARIABLE.sub(lambda match: environ[match[1]], value)
