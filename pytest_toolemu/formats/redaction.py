"""Replace secrets at the exits: files, the terminal and logs, pages, and requests to other providers.

Between the exits, text contains what agents and models wrote. A secret is recognized as it is, in JSON, in a URL, in
HTML, and as the base64 of the whole value.
"""

from __future__ import annotations

import contextlib
import functools
import html
import os
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from json import dumps
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

from pytest_toolemu.errors import UsageError

# Text that was shortened may end within a secret, so this beginning of a long one is replaced before an ellipsis.
_BEGINNING: Final = 8
_CUT: Final = r"[^\s\"'<>\\]{0,200}?(?=…|\.\.\.|\\u2026|\Z)"


class Redactor:
    """Replace every form of some secrets, given as values with names, by ``[NAME redacted]``."""

    def __init__(self, values: Mapping[str, str]) -> None:
        labels: dict[str, str] = {}
        self._beginnings: list[tuple[str, str]] = []
        for value, name in values.items():
            if is_secret(value):
                label = f"[{re.sub(r'[^A-Za-z0-9_-]', '', name) or 'secret'} redacted]"
                labels |= dict.fromkeys(_forms(value), label)
                if len(value) > _BEGINNING:
                    self._beginnings.append((value[:_BEGINNING], label))
        # Longest first: otherwise a secret that contains another one would be cut by its replacement.
        self._labels = sorted(labels.items(), key=lambda item: -len(item[0]))

    def __bool__(self) -> bool:
        return bool(self._labels)

    def __call__(self, text: str) -> str:
        """Return the text without secrets."""
        for form, label in self._labels:
            text = text.replace(form, label)
        for beginning, label in self._beginnings:
            if beginning in text:
                text = re.sub(re.escape(beginning) + _CUT, label, text)
        return text


def _forms(value: str) -> Iterator[str]:
    """Yield a secret as it is written in text, JSON, JSON in JSON, HTML, URLs, and base64."""
    data = value.encode("utf-8", "surrogatepass")
    yield value
    for ensure_ascii in (True, False):
        in_json = dumps(value, ensure_ascii=ensure_ascii)[1:-1]
        yield from (in_json, dumps(in_json, ensure_ascii=ensure_ascii)[1:-1])
    yield html.escape(value).replace("&quot;", "&#34;").replace("&#x27;", "&#39;")  # as templates do
    yield from (quote(data, safe=""), quote(data), quote_plus(data))
    for encode in (b64encode, urlsafe_b64encode):
        yield encode(data).decode().rstrip("=")


@functools.lru_cache(16)
def _redactor(values: tuple[tuple[str, str], ...]) -> Redactor:
    return Redactor(dict(values))


def secrets(known_to_receiver: str | None = None) -> Redactor:
    """Return the redactor for all secrets of this process, except one that the receiver of the text knows."""
    return _redactor(tuple((value, name) for value, name in REGISTRY.values() if value != known_to_receiver))


def redact(text: str) -> str:
    """Return the text with every secret replaced by ``[NAME redacted]``."""
    return secrets()(text)


def redact_writes(file: Any, is_on: Callable[[], bool] = lambda: True) -> None:
    """Make ``write`` of a stream or a terminal writer replace secrets while ``is_on``."""
    write = file.write

    def write_redacted(text: str, **options: Any) -> Any:
        return write(redact(text) if is_on() else text, **options)

    file.write = write_redacted


def redact_json(value: Any, redactor: Redactor | None = None) -> Any:
    """Return a JSON value with every secret in its keys and strings replaced."""
    redactor = secrets() if redactor is None else redactor
    if not redactor:
        return value
    if isinstance(value, str):
        return redactor(value)
    if isinstance(value, list | tuple):
        return type(value)(redact_json(item, redactor) for item in value)
    if isinstance(value, dict):
        return {redactor(key): redact_json(item, redactor) for key, item in value.items()}
    return value


SHORTEST: Final = 8
"""Shorter values, and plain words, are not redacted: they also occur in other text, and in the keys of records."""
_PLAIN_WORD: Final = re.compile(r"[A-Z]?[a-z_]{1,20}|[A-Z_]{1,20}")
# Values that say "no secret is set here", in lower case.
_PLACEHOLDERS: Final = (
    " changeme default disabled dummy empty enabled example fake false guest key local localhost mock n/a nil no "
    "no-key no_key none not-needed null off on password placeholder postgres root secret test token true undefined "
    "unset unused user xxx yes "
)

_SECRET_NAME: Final = re.compile(
    r"(?i)api_?key|access_?key|_key$|^key$|token|secret|passw(or)?d|passphrase|_pwd$|credential|_pat$|webhook|cookie|"
    r"authorization|"
    r"(openai|anthropic)_(org|organization|project|workspace)(_id)?$"
)
# Names that contain one of these words, but hold no secret: sizes, switches, and the location of a secret.
_OTHER_NAME: Final = re.compile(
    r"(?i)^toolemu_|_tokens$|tokenizer|_(file|path|dir|(?<!webhook_)url|type|name|policy|backend|manager|provider|mode|enabled|ttl|"
    r"expiry|length|limit|count)$"
)
_ADDRESS_NAME: Final = re.compile(r"(?i)url|uri|proxy|dsn|endpoint|connection|broker|remote|toolemu_")
_HEADERS_NAME: Final = re.compile(r"(?i)_custom_headers$")
_PLAIN_HEADER: Final = re.compile(r"(?i)(accept(-.*)?|content-.*|user-agent|cache-control|connection|host)$")
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s\"'<>]+")
# "user:password@host" after the @ of a model.
_USER: Final = re.compile(r"@(?:https?://)?[^@/\s]*:[^@/\s]*@")
_KNOWN_KEY: Final = re.compile(
    r"(?:sk|rk|pk)-[A-Za-z0-9_-]{8,}|(?:gsk|hf|xai|gh[opsur]|glpat|pplx|r8|nvapi)[_-][A-Za-z0-9_-]{16,}|"
    r"github_pat_\w{16,}|AIza[\w-]{20,}|A[KS]IA[A-Z0-9]{12,}|xox[a-z]-[\w-]{10,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
)
_KEY_SHAPE: Final = re.compile(rf"{_KNOWN_KEY.pattern}|(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{{32,}}")


def looks_like_a_key(text: str) -> bool:
    """Return whether a text, or the part between ``provider:`` and ``@base_url``, has the form of an API key."""
    name = text.partition("@")[0]
    parts = (text, text.rpartition("/")[2], name, name.rpartition(":")[2], name.rpartition("/")[2])
    return any(_KEY_SHAPE.fullmatch(part.strip()) for part in parts)


def refuse(text: str, source: str) -> None:
    """Raise UsageError for a model name that is a key, or for a URL that contains credentials.

    ``source`` is the option or variable. The message does not show the text, which is redacted from now on.
    """
    REGISTRY.register_text(text, source)
    name = text.partition("@")[0].strip()
    if looks_like_a_key(text) or any(name in (value, f"openai:{value}") for value, _ in REGISTRY.values()):
        raise UsageError(
            f"{source}: the value looks like an API key, not a model name; put the key in OPENAI_API_KEY, "
            "ANTHROPIC_API_KEY, or VLLM_API_KEY, and name a model such as openai:gpt-4o"
        )
    if any(in_urls(text)) or _USER.search(text):
        raise UsageError(
            f"{source}: the base URL contains a user name, a password, or a key, and URLs are recorded; give only "
            "http(s)://host[:port][/path], and put the key in OPENAI_API_KEY, ANTHROPIC_API_KEY, or VLLM_API_KEY"
        )


def refuse_in_command(command: str, source: str) -> None:
    """Raise UsageError for a command that contains a key. The message does not show it, and it is redacted from now on.

    ``source`` is the option, variable, or file that the command comes from.
    """
    keys = [part for part in re.split(r"[\s=\"']+", command) if looks_like_a_key(part)]
    for key in keys:
        REGISTRY.register(key, source)
    if keys:
        raise UsageError(
            f"{source}: the command contains what looks like an API key, and commands are recorded; put the key in an "
            "environment variable, and name it in --toolemu-agent-env or in 'env' of an agent file"
        )


def is_secret(value: str) -> bool:
    """Return whether a value is redacted; False for short values and plain words, such as ``EMPTY`` or ``true``."""
    return len(value) >= SHORTEST and not (_PLAIN_WORD.fullmatch(value) or _is_placeholder(value))


def in_environment(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return each secret in an environment with the name of its variable."""
    # Not items(): other threads may set and delete variables at the same time.
    return _secrets_in(tuple((name, environ.get(name, "")) for name in _suspects(tuple(environ))))


# Both are called for each text that is written, and their arguments hardly ever change.
@functools.lru_cache(8)
def _suspects(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if _kind(name) != "other")


@functools.lru_cache(8)
def _secrets_in(values: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    secrets: dict[str, str] = {}
    for name, value in values:
        parts: list[str] = list(in_urls(value))
        if _kind(name) == "headers":
            parts += _in_headers(value)
        elif _kind(name) == "secret" and not _is_path(value):
            parts += _parts(value)
        for part in parts:
            secrets.setdefault(part, name)
    return tuple(item for item in secrets.items() if item[0])


def _kind(name: str) -> Literal["headers", "secret", "address", "other"]:
    if _HEADERS_NAME.search(name):
        return "headers"
    if _SECRET_NAME.search(name) and not _OTHER_NAME.search(name):
        return "secret"
    return "address" if _ADDRESS_NAME.search(name) else "other"


def _is_path(value: str) -> bool:
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        return value.startswith(("/", ".", "~")) and Path(value).expanduser().exists()
    return False


def _parts(value: str) -> Iterator[str]:
    """Yield a value without surrounding blanks and quotes, and its lines, which tracebacks indent one by one."""
    trimmed = value.strip().strip("\"'`").strip()
    yield trimmed
    yield re.sub(r"(?i)^(bearer|basic|token)\s+", "", trimmed)
    lines = [line.strip() for line in trimmed.splitlines()]
    if len(lines) > 1:
        yield from (line for line in lines if len(line) >= SHORTEST and not line.startswith("-----"))


def _in_headers(text: str) -> Iterator[str]:
    """Yield the values of ``Name: value`` lines, and the credentials after ``Bearer`` and the like."""
    for name, colon, value in (line.partition(":") for line in text.splitlines()):
        if colon and not _PLAIN_HEADER.match(name.strip()):
            yield from (value.strip(), value.strip().partition(" ")[2])


def in_urls(text: str) -> Iterator[str]:
    """Yield the user names and passwords of the URLs in a text, and the values of parameters such as ``?key=``."""
    for url in _URL.findall(text):
        with contextlib.suppress(ValueError):
            parts = urlsplit(url)
            user, colon, password = parts.netloc.rpartition("@")[0].partition(":")
            if colon:
                yield from (f"{user}:{password}", f"{unquote(user)}:{unquote(password)}", password, unquote(password))
            elif len(user) >= SHORTEST:
                yield from (user, unquote(user))
            for name, value in parse_qsl(parts.query):
                if _SECRET_NAME.search(name) or name.casefold() in ("sig", "signature", "auth", "code"):
                    yield value


class SecretRegistry:
    """The secrets of this process: those that were registered, and those in the current environment."""

    def __init__(self) -> None:
        self._registered: dict[str, str] = {}

    def register(self, value: str, name: str) -> None:
        """Redact a value from now on; ``name`` replaces it in texts."""
        for part in _parts(value):
            self._registered.setdefault(part, name)

    def register_text(self, text: str, name: str) -> None:
        """Redact the credentials of URLs in a text, and the text itself if it looks like a key."""
        for value in in_urls(text):
            self.register(value, name)
        if looks_like_a_key(text):
            model = text.partition("@")[0]
            for value in (model, model.rpartition(":")[2]):
                self.register(value, name)

    def begin(self) -> Callable[[], None]:
        """Remember the secrets of the environment, even if code under test removes them.

        Return a function that forgets them.
        """
        before = dict(self._registered)
        self.remember()

        def end() -> None:
            self._registered = before

        return end

    def remember(self) -> None:
        """Remember the secrets in the current environment, and what has the form of a well-known key there."""
        self._registered |= {value: name for name, value in os.environ.items() if _KNOWN_KEY.fullmatch(value)}
        self._registered |= dict(in_environment(os.environ))

    def values(self) -> tuple[tuple[str, str], ...]:
        """Return each secret with its name."""
        return _merged(tuple(self._registered.items()), in_environment(os.environ))

    def not_redacted(self) -> list[str]:
        """Return the variables whose value is too short or too common to be replaced wherever it occurs."""
        harmless = (is_secret, _is_placeholder, re.compile(r"\d{1,3}").fullmatch)
        return sorted({name for value, name in self.values() if not any(check(value) for check in harmless)})


def _is_placeholder(value: str) -> bool:
    return f" {value.casefold()} " in _PLACEHOLDERS


@functools.lru_cache(8)
def _merged(*several: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple({value: name for values in several for value, name in values}.items())


REGISTRY: Final = SecretRegistry()
