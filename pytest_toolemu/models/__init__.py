"""Models: from a name on the command line to an object that answers requests."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

from pytest_toolemu.errors import ModelError, UsageError
from pytest_toolemu.formats.yaml_document import closest
from pytest_toolemu.models.batch_journal import BatchableModel
from pytest_toolemu.models.endpoint import Endpoint, EndpointAddress, RemoteModel, proxy_of
from pytest_toolemu.models.sdk_versions import import_failed, require_sdk
from pytest_toolemu.models.spec import ModelSpec, Parameters, ServedEndpoint, check_url, parse_spec
from pytest_toolemu.models.wrappers import ReplayOnlyModel
from pytest_toolemu.settings import OFFICIAL_URLS

__all__ = [
    "KEYS",
    "Endpoint",
    "ModelSpec",
    "Parameters",
    "RemoteModel",
    "ServedEndpoint",
    "check_url",
    "named_model",
    "open_model",
    "parse_spec",
    "preflight",
]

_VARIABLES: Final = {
    "openai": ("OPENAI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "vllm": ("VLLM_API_KEY",),
}
# Status of a missing route, or of a response that is not JSON, such as the page of a web server.
_NO_ROUTE: Final = (200, 404, 405, 501)
KEYS: Final = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "VLLM_API_KEY")
"""The variables that are searched for keys first."""


def open_model(
    spec: ModelSpec,
    parameters: Parameters,
    environ: Mapping[str, str] | None = None,
    served: ServedEndpoint | None = None,
) -> BatchableModel:
    """Open a model without sending a request. UsageError if its SDK, key, or URL is missing.

    ``OPENAI_BASE_URL``, ``ANTHROPIC_BASE_URL``, and ``VLLM_BASE_URL`` apply if the spec has no ``@base_url``.
    ``served`` says where the session serves the model itself.
    """
    variables = dict(os.environ if environ is None else environ)
    address = _address(spec, variables | {"VLLM_BASE_URL": served.url} if served else variables)
    address = replace(address, recorded_as=served.recorded_as) if served else address
    extra = "anthropic" if spec.provider == "anthropic" else "openai"
    require_sdk(extra, spec)
    try:
        # Importing an SDK takes half a second or more, so a session imports only those it uses.
        if extra == "anthropic":
            from pytest_toolemu.models.anthropic import AnthropicModel

            return AnthropicModel(address, parameters)
        from pytest_toolemu.models.openai import OpenAIModel

        return OpenAIModel(address, parameters)
    except ImportError as error:
        raise import_failed(extra, spec, error) from None


def named_model(spec: ModelSpec, parameters: Parameters) -> Endpoint:
    """Return a model that can only be replayed: no SDK, key, or running server is needed."""
    try:
        base_url = _base_url(spec, os.environ)
    except UsageError:
        base_url = None
    return ReplayOnlyModel(spec, base_url, parameters)


async def preflight(model: Endpoint) -> None:
    """Check at no token cost that the endpoint answers, accepts the key and serves the model; UsageError if not.

    An endpoint that cannot be checked (no models route, no permission, busy) is accepted; its first request will show.
    """
    name = model.identity["name"]
    served: list[str] = []
    try:
        served = await model.served()
        # Aliases and fine-tuned models are served without being listed.
        if served and name not in served:
            await model.confirm(name)
    except ModelError as error:
        if error.status in (None, 401, 407):
            raise UsageError(str(error)) from None
        if error.status == 404 and served:
            url = model.identity["base_url"]
            raise UsageError(f"{url} does not serve a model {name!r}{closest(name, served)}") from None
        if error.status in _NO_ROUTE:
            await _check_route(model, error)


async def _check_route(model: Endpoint, listed: ModelError) -> None:
    """Distinguish an endpoint that lists no models from a URL with a wrong path, which has no completions either."""
    try:
        await model.probe()
    except ModelError as error:
        if error.status in (None, 401, 407):
            raise UsageError(str(error)) from None
        if error.status in _NO_ROUTE:
            raise UsageError(_wrong_path(model.identity, listed)) from None


def _wrong_path(identity: Mapping[str, Any], listed: ModelError) -> str:
    url, provider = str(identity["base_url"]), str(identity["provider"])
    answer = "something that is not JSON, such as a web page," if listed.status == 200 else str(listed.status)
    root, protocol = url.partition("://")[0] + "://" + urlsplit(url).netloc, "OpenAI"
    hint = "" if url.endswith("/v1") else f"; such URLs usually end in /v1: try {root}/v1"
    if provider == "anthropic":
        protocol, hint = "Anthropic", "" if url == root else f"; try {root}"
    proxy = proxy_of(url)
    by_proxy = f"; the request went through the proxy {proxy.address}: {proxy.remedy}" if proxy else ""
    return (
        f"{provider}:{identity['name']}: {url} answered {answer} for its models and for completions, so no "
        f"{protocol}-compatible API is available at this path{hint}{by_proxy}"
    )


def _address(spec: ModelSpec, environ: Mapping[str, str]) -> EndpointAddress:
    base_url = _base_url(spec, environ)
    for variable in _VARIABLES[spec.provider]:
        key = environ.get(variable, "").strip()
        if key and not re.fullmatch(r"[!-~]+", key):
            raise UsageError(
                f"{variable} contains a space, a line break, or a character that never occurs in a key; copy the key "
                f"for {spec} again"
            )
        if key:
            return EndpointAddress(spec, base_url, variable, key)
    if spec.provider != "vllm" and not _is_loopback(base_url):
        variables = " or ".join(_VARIABLES[spec.provider])
        raise UsageError(f"{spec} needs a key: set {variables} in the environment or in the .env file")
    return EndpointAddress(spec, base_url, _VARIABLES[spec.provider][0], None)


def _base_url(spec: ModelSpec, environ: Mapping[str, str]) -> str:
    variable = f"{spec.provider.upper()}_BASE_URL"
    value = environ.get(variable, "").strip()
    url = spec.base_url or (value and check_url(value, variable))
    if spec.provider == "anthropic":
        return (url or OFFICIAL_URLS["anthropic"]).removesuffix("/v1")  # the SDK adds it
    if not url and spec.provider == "vllm":
        raise UsageError(
            f"{spec} needs the URL of its server: write {spec}@http://host:8000/v1, "
            f"or set {variable} in the environment or in the .env file"
        )
    url = url or OFFICIAL_URLS["openai"]
    return url if urlsplit(url).path else f"{url}/v1"


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
