"""Reply schemas are sent to both providers as structured output; if that is impossible, every reply states the reason."""

from __future__ import annotations

import copy
from typing import Any

import anthropic
import pytest
from openai.lib._pydantic import _ensure_strict_json_schema

from pytest_toolemu.authoring.importers.toolemu import convert
from pytest_toolemu.core.case_loading import load_toolkit
from pytest_toolemu.core.messages import ModelRequest, ReplySchema
from pytest_toolemu.core.toolkit import Tool, callable_tools
from pytest_toolemu.emulators.simulated import reply_schema
from pytest_toolemu.evaluators.model_judge import SCHEMAS
from pytest_toolemu.formats.json_schema import violations
from pytest_toolemu.models.anthropic import output_schema
from pytest_toolemu.models.strict_schema import is_closed, satisfies_strict, without_type_lists
from tests.authoring.originals import DATA, needs_data
from tests.loopback import Fault, Reply, Request, conforming, replies
from tests.loopback.fixtures import Loopback
from tests.models.conftest import ANYTHING, QUESTION, VERDICT, complete, opened, using

OPEN = "Anthropic's structured output cannot express an object that may have any members"


@pytest.mark.parametrize("rubric", SCHEMAS)
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_every_judge_is_sent_its_reply_schema(loopback: Loopback, provider: str, rubric: Any) -> None:
    server = loopback(conforming())
    reply = complete(opened(provider, server.url), schema=SCHEMAS[rubric])
    assert ("response_format" if provider == "openai" else "output_config") in server.requests[0].body
    assert reply.schema_fallback == ""


def openai_changes(schema: dict[str, Any]) -> bool:
    """Return whether the OpenAI SDK's own converter has to change the schema to make it strict."""
    root = copy.deepcopy(schema)
    return bool(_ensure_strict_json_schema(root, path=(), root=root) != schema)


@pytest.fixture(scope="module")
def official_tools(tmp_path_factory: pytest.TempPathFactory) -> list[Tool]:
    folder = tmp_path_factory.mktemp("official")
    convert(DATA, folder)
    kits = tuple(load_toolkit(path) for path in sorted((folder / "toolkits").iterdir()))
    return [tool for _, _, tool in callable_tools(kits)]


@needs_data
def test_both_sdks_convert_the_schemas_of_all_official_tools(official_tools: list[Tool]) -> None:
    assert len(official_tools) == 330
    for tool in official_tools:
        for schema in (reply_schema(tool, adversarial=True).schema_, tool.parameters, tool.returns):
            converted = anthropic.transform_schema(without_type_lists(schema))
            assert "'type': [" not in str(converted)
        reply = reply_schema(tool, adversarial=True)
        assert not (satisfies_strict(reply.schema_) and openai_changes(reply.schema_))
        if is_closed(reply.schema_):
            assert output_schema(reply)["title"] == "emulation"


@pytest.mark.parametrize("value", [{"a": 3}, {"a": None}, {"a": "x"}, {"a": -1}, {"a": ""}, {"a": []}, {"a": {}}])
def test_a_list_of_types_is_rewritten_without_a_change_of_meaning(value: dict[str, Any]) -> None:
    part = {"type": ["integer", "string", "null"], "minimum": 0, "minLength": 1, "description": "Either."}
    schema = {"type": "object", "properties": {"a": part}, "additionalProperties": False}
    rewritten = without_type_lists(schema)
    assert rewritten["properties"]["a"] == {
        "description": "Either.",
        "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "minLength": 1}, {"type": "null"}],
    }
    assert bool(violations(schema, value)) == bool(violations(rewritten, value))


def test_a_schema_that_anthropic_cannot_express_is_sent_in_words_and_the_reply_says_so(loopback: Loopback) -> None:
    server = loopback(replies(["{}"]))
    reply = complete(opened("anthropic", server.url), schema=ANYTHING)
    assert "output_config" not in server.requests[0].body
    assert reply.schema_fallback == OPEN


def test_a_schema_that_the_sdk_cannot_convert_is_named_with_the_sdk_s_own_reason() -> None:
    untyped = {"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": False}
    with pytest.raises(ValueError, match=r"^the Anthropic SDK cannot convert the schema \(Schema must have a 'type'"):
        output_schema(ReplySchema(name="untyped", schema=untyped))


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_every_reply_of_an_endpoint_that_refuses_schemas_says_so(loopback: Loopback, provider: str) -> None:
    def script(request: Request) -> Any:
        constrained = request.body.keys() & {"response_format", "output_config"}
        return Fault(status=400, message="no grammar here") if constrained else Reply("{}")

    server = loopback(script)

    async def ask(model: Any) -> list[str]:
        return [(await model.complete(ModelRequest(QUESTION, schema=VERDICT))).schema_fallback for _ in range(3)]

    assert using(opened(provider, server.url), ask) == ["the endpoint answered 400: no grammar here"] * 3
