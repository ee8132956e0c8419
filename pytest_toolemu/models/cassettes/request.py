"""A request to a model in canonical form: what two requests must have in common to get the same recorded reply."""

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
    """What is asked of whom, as JSON values without credentials: so it is the same where a credential is not known.

    The base URL in ``model`` is for readers; a reply is the model's, wherever that is served.
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
        """Equal for requests that are the same in everything but the base URL."""
        return _hash([self.constants, self.schema, self.seed, self.trial, [_hash(turn) for turn in self.messages]])

    @functools.cached_property
    def constants(self) -> str:
        """Equal for requests of one role that have model, parameters, system prompt and tools in common."""
        system = [turn for turn in self.messages if turn["role"] == "system"]
        return _hash([self.role, self.asked, self.tools, system])

    @property
    def asked(self) -> Json:
        """The model and its parameters, without where it is served."""
        return {name: value for name, value in self.model.items() if name != "base_url"}


@dataclass(frozen=True)
class CassetteEntry:
    """One recorded exchange: a request, and the reply as JSON."""

    request: CassetteRequest
    reply: Json


def as_json(record: Record, known: Redactor) -> Json:
    """A message, tool, schema or reply as JSON, without the credentials that are ``known``; no request id."""
    content = record.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"request_id"})
    found: Json = redact_json(content, known)
    return found


def _hash(value: Any) -> str:
    return hashlib.sha256(json_text(value).encode("utf-8", "surrogatepass")).hexdigest()
