"""Agent files: ``support.agent.yaml`` describes an agent that is a command or a service."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from pydantic import Field

from pytest_toolemu.agents.programs.answers import UsagePaths
from pytest_toolemu.agents.programs.placeholders import misspelled, names_in
from pytest_toolemu.formats.credentials import looks_like_a_key
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
    "passes_traceparent": ("url", "responses", "a2a"),
}


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
        description="Port of this computer at which the service expects the tools (http://127.0.0.1:PORT/mcp), if it "
        "cannot take an address with each request; its cases run one at a time",
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
    if kind != "command":
        yield from _url_problems(kind, getattr(file, kind))
    yield from _missing(file, kind)
    yield from _session_problems(file)
    if file.usage is not None and kind == "command" and file.answer is None:
        yield ("usage", KEY), "'usage' needs 'answer': the command must print JSON"
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


def _missing(file: AgentFile, kind: str) -> Iterator[tuple[Loc, str]]:
    if kind == "url" and file.answer is None:
        yield (
            ("url", KEY),
            "'answer' is missing: the path of the answer in the service's JSON, such as answer: reply.text",
        )
    if kind == "url" and (file.body is None or "task" not in names_in(file.body)):
        yield (
            ("body" if file.body is not None else "url", KEY),
            '\'body\' must contain the placeholder {task}, such as body: {message: "{task}", tools: "{mcp_url}"}',
        )
    if kind == "responses" and file.model is None:
        yield ("responses", KEY), "'model' is missing: the model to ask for, such as model: gpt-4o"


def _session_problems(file: AgentFile) -> Iterator[tuple[Loc, str]]:
    if file.keeps_session and "session" not in names_in(file.body):
        yield ("keeps_session", KEY), "'keeps_session' needs the placeholder {session} in 'body'"
    if file.passes_traceparent and file.tools_port is None:
        message = "'passes_traceparent' needs 'tools_port': otherwise, each case has an address of its own; remove it"
        yield ("passes_traceparent", KEY), message


def _url_problems(kind: str, url: str) -> Iterator[tuple[Loc, str]]:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        (parts.hostname or "").encode("idna")
    except ValueError:
        valid = False
    if not valid or re.search(r"\s", url):
        yield (kind,), f"{url!r} is not a URL; write http(s)://host[:port]/path"
    elif parts.username is not None or parts.password is not None:
        yield (kind,), "the URL contains a user name or a password; put credentials into 'headers' as ${NAME}"
    elif not (parts.path + parts.query).isascii():
        path, query = (quote(part, safe=string.punctuation) for part in (parts.path, parts.query))
        fixed = parts._replace(path=path, query=query).geturl()
        yield (kind,), f"{url!r} contains characters that must be percent-encoded; write {fixed}"
