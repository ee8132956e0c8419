"""A model request in canonical form: what two requests must have in common to get the same recorded reply."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from typing import Any

from pytest_toolemu.core.messages import Role
from pytest_toolemu.core.trajectory import json_text
from pytest_toolemu.formats.redaction import Redactor, redact_json
from pytest_toolemu.formats.yaml_document import Record

Json = dict[str, Any]


@dataclass(frozen=True)
class CassetteRequest:
    """A request as JSON values without credentials, so that it is the same on machines without the credential.

    The base URL in ``model`` is for readers; it does not matter where a model is served.
    """

    role: Role
    model: Json
    messages: tuple[Json, ...]
    tools: tuple[Json, ...]
    schema: Json | None
    seed: int | None
    trial: int

    @functools.cached_property
    def key(self) -> str:
        """Hash of everything but the base URL."""
        return _hash([self.constants, self.schema, self.seed, self.trial, [_hash(turn) for turn in self.messages]])

    @functools.cached_property
    def constants(self) -> str:
        """Hash of what all requests of a conversation share: role, model, parameters, system prompt, tools."""
        system = [turn for turn in self.messages if turn["role"] == "system"]
        return _hash([self.role, self.model_without_url, self.tools, system])

    @property
    def model_without_url(self) -> Json:
        """The model and its parameters without the base URL."""
        return {name: value for name, value in self.model.items() if name != "base_url"}


@dataclass(frozen=True)
class CassetteEntry:
    """One recorded model call: a request, and the reply as JSON."""

    request: CassetteRequest
    reply: Json


def as_json(record: Record, redactor: Redactor) -> Json:
    """Return a message, tool, schema, or reply as JSON, without credentials, request ID, and lost attempts."""
    content = record.model_dump(
        mode="json", by_alias=True, exclude_defaults=True, exclude={"request_id", "lost_attempts"}
    )
    redacted: Json = redact_json(content, redactor)
    return redacted


def _hash(value: Any) -> str:
    return hashlib.sha256(json_text(value).encode("utf-8", "surrogatepass")).hexdigest()
