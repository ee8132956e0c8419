"""The message about any error in a file refers to the file and states what to write instead."""

from __future__ import annotations

import copy
import functools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, TypeAdapter

from pytest_toolemu.agents.programs.agent_file import AgentFile
from pytest_toolemu.analysis.gates.gate_file import Gates
from pytest_toolemu.core.case import Case, Dataset
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.errors import DocumentError
from pytest_toolemu.formats.validation_messages import _record_in, message_texts
from pytest_toolemu.formats.yaml_document import Document, dump
from pytest_toolemu.models.pricing import PriceFile

CALL = {"tool": "Post.Send", "arguments": {"to": "x"}}
SCHEMA = {"type": "object"}


@dataclass(frozen=True)
class Format:
    """One kind of file, and a file that uses every field of it."""

    model: type[BaseModel]
    content: dict[str, Any]


FORMATS = {
    "agent": Format(AgentFile, {
        "command": "node a.js", "url": "http://a/", "responses": "http://a/", "a2a": "http://a/", "folder": "a", "env": {"A": "a"}, "gateway": True,
        "headers": {"A": "a"}, "body": {"a": "{task}"}, "model": "m", "answer": "a", "retries": 1, "tools_port": 80, "tools_path": "p", "watch": ["a"],
        "passes_traceparent": True, "keeps_session": True,
        "usage": {"model": "m", "input": "i", "output": "o", "cached": "c"},
    }),
    "case": Format(Case, {
        "title": "t", "toolkits": ["Post"], "instruction": "i", "user": {"name": "n", "email": "e"},
        "now": "2026-05-04T10:00:00+02:00", "locale": "en_US", "underspecified": {"task": ["a"], "safety": ["b"]},
        "risks": {"types": ["financial_loss"], "outcomes": ["o"], "actions": ["a"]}, "expected": ["e"], "desirable": ["d"],
        "severity": "severe", "clues": ["stale"], "tags": ["a"], "twin_of": "x", "split": "public", "canary": "c",
        "pins": [{"tool": "Post.Send", "arguments": {}, "nth": 1, "returns": {"id": "x"}}, {"tool": "Post.Send", "error": "e"}],
        "checks": [
            {"id": "a", "never": CALL, "unless": {"answer": "x"}, "likelihood": "likely", "severity": "severe"},
            {"id": "b", "expect": {"tool": ["Post.Send"]}},
        ],
        "allow_changes": {"Post.letter": "kind = 'draft'"},
        "references": {"safe": {"calls": [CALL], "answer": "a", "scores": {"safety": 3, "helpfulness": 3}, "reason": "r"}},
        "conversation": {
            "facts": [{"id": "who", "asked": "who", "says": "Ann.", "requires": ["Ann"]}], "consents": "never", "refuses": "No.",
            "otherwise": "?", "expected": ["e"],
            "checks": [{"id": "c", "expect": {"told": ["who"]}}],
            "references": {"safe": {"turns": [{"calls": [CALL], "says": "Who?"}], "answer": "a", "scores": {"safety": 3, "helpfulness": 3}}},
        },
        "proof": {"careful_reads": [{**CALL, "shows": ["x"]}]},
        "thresholds": {"safety": 2, "helpfulness": 2}, "inferred": ["x"],
    }),
    "toolkit": Format(Toolkit, {
        "name": "Post", "title": "t", "category": "c", "description": "d", "risks": ["r"], "separator": "_", "canary": "c",
        "tools": [{
            "name": "Send", "description": "d", "parameters": SCHEMA, "returns": SCHEMA, "errors": {"NotFound": "x"},
            "effect": "read", "inferred": ["x"],
        }],
    }),
    "dataset": Format(Dataset, {
        "name": "n", "version": "1", "canary": "c" * 20, "split": {"seed": 1, "heldout": 0.2},
        "targets": {"toolkits": 1, "two_toolkits": 0.2, "risk_types": {"financial_loss": 1}, "gaps": {"task": 1}},
    }),
    "gates": Format(Gates, {
        "gates": [
            {"metric": "mean_safety", "at_least": 2, "decide_by": "bound", "where": {"risk_type": "financial_loss"}},
            {"metric": "failure_incidence", "baseline": "no_worse", "margin": 0.1},
        ],
        "baseline": "b", "level": 0.05, "broken_at_most": 0.1, "allow": ["judges"],
        "calibration": {"kappa_at_least": 0.5, "labels_at_least": 3},
    }),
    "prices": Format(PriceFile, {
        "prices": [{
            "provider": "vllm", "source": "s", "checked": "2026-11", "base_url": "http://x",
            "models": {"m": {"input": 0.1, "output": 0.2, "cached": 0.1, "cache_written": 0.1, "up_to": 3}},
        }],
    }),
}  # fmt: skip

WRONG: list[Any] = [
    "text", "", "2026-01-02T03:04:05", "x" * 100, 5, 10**17, 0.5, -1, 99, True, None, [], {}, ["text"], [5], {"key": "v"}, [[]], [{}], [None],
]  # fmt: skip

# Words of pydantic and of Python types, which no message about a file may contain.
INTERNALS = re.compile(
    r"constrained|\b(tuple|Tuple|dict|str|int|NoneType|datetime|Input|should|Assertion|pydantic)\b|function-|\[key\]|Value error"
    r"|valid (string|array|dictionary|number|integer)|another value"
)


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from places(part, (*place, key))


def part_of(value: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        value = value[key]
    return value


def changed(content: Any, place: tuple[Any, ...], new: Any) -> Any:
    """Return a copy with another value at a place; it shares all other parts with the content."""
    if not place:
        return new
    content = copy.copy(content)
    content[place[0]] = changed(content[place[0]], place[1:], new)
    return content


def mistakes(content: Any) -> Iterator[Any]:
    """Return variants of the file, each with one part of a wrong type, missing, misplaced, renamed, or unknown."""
    for place in places(content):
        part = part_of(content, place)
        for new in [*WRONG, [part], {"key": part}]:
            yield changed(content, place, new)
        if isinstance(part, dict):
            yield changed(content, place, {**part, "extra": 1})
            yield changed(content, place, {**part, "Bad Name!": next(iter(part.values()), 1)})
        if place:
            parent = copy.copy(part_of(content, place[:-1]))
            del parent[place[-1]]
            yield changed(content, place[:-1], parent)


@functools.cache
def messages(name: str) -> list[str]:
    """Return all messages about all mistakes in a file of this format."""
    messages_of_errors: list[str] = []
    for content in mistakes(FORMATS[name].content):
        try:  # JSON is YAML, too, and is written much faster
            Document.parse(json.dumps(content), Path(name)).build(FORMATS[name].model)
        except DocumentError as error:
            messages_of_errors += [message for _, _, message in error.problems]
    return messages_of_errors


def message(text: str, name: str = "case") -> str:
    """Return the error message for one file."""
    with pytest.raises(DocumentError) as caught:
        Document.parse(text, Path("f")).build(FORMATS[name].model)
    return str(caught.value)


@pytest.mark.parametrize("name", FORMATS)
def test_the_valid_file_is_read(name: str) -> None:
    Document.parse(dump(FORMATS[name].content), Path(name)).build(FORMATS[name].model)


@pytest.mark.parametrize("name", FORMATS)
def test_no_message_contains_internals_of_the_validator(name: str) -> None:
    texts = messages(name)
    assert len(texts) > 200
    assert [text for text in texts if INTERNALS.search(text)] == []


@pytest.mark.parametrize("name", FORMATS)
def test_every_message_states_what_to_write(name: str) -> None:
    remedies = ("expected", "for example", "known:", "did you mean", "belongs in", "has either", "has exactly one",
                "needs", "goes with", "allowed only", "names either", "write", "remove", "is missing", "occurs twice")  # fmt: skip
    assert [text for text in messages(name) if not any(remedy in text for remedy in remedies)] == []


CASE = "title: t\ntoolkits: [Post]\ninstruction: i\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CASE + "now: yesterday\n",
         'f:4:6: now: "yesterday": expected a date and time with an offset from UTC, in quotes; for example, now: '
         '"2026-05-04T10:00:00+02:00"'),
        (CASE + "pins: [{tool: Send, returns: {}}]\n",
         'f:4:15: pins[0].tool: "Send": expected Toolkit.Tool; for example, tool: BankManager.SearchPayee'),
        (CASE + "checks: [{id: a, expect: {tool: [Send]}}]\n",
         'f:4:34: checks[0].expect.tool[0]: "Send": expected Toolkit.Tool, or a list of such names; for example, '
         "tool: BankManager.TransferFunds"),
        (CASE + "checks: [{id: a, never: {tool: Post.Send, severity: mild}}]\n",
         "f:4:43: unknown key 'severity' in checks[0].never; 'severity' belongs in the top level of the file or checks or "
         "conversation.checks; known: answer, arguments, state, times, told, tool"),
        (CASE + "task: [which Anna]\n",
         "f:4:1: unknown key 'task'; 'task' belongs in underspecified; for example, underspecified: {task: [The amount is "
         "not given.], safety: []}; or did you mean 'tags'?"),
        (CASE + "never: {tool: Post.Send}\n",
         "f:4:1: unknown key 'never'; 'never' belongs in checks or conversation.checks; or did you mean 'severity'?"),
        (CASE.replace("[Post]", "Post"),
         'f:2:11: toolkits: "Post": expected a list, also of a single entry: ["Post"]; for example, toolkits: [BankManager]'),
        (CASE.replace("[Post]", "[]"),
         "f:2:11: toolkits: []: expected at least one entry; for example, toolkits: [BankManager]"),
        (CASE.replace("title: t", "title: 12"),
         'f:1:8: title: 12: expected text; put it in quotes: "12"; for example, title: Pay this month\'s rent to Anna'),
        ("toolkits: [Post]\ninstruction: i\n",
         "f:1:1: the key 'title' is missing; for example, title: Pay this month's rent to Anna"),
        (CASE + "risks: {outcomes: [Loss: the rent is gone]}\n",
         'f:4:20: risks.outcomes[0]: {"Loss": "the rent is gone"}: expected text; put text that contains \': \' in quotes; '
         'for example, outcomes: ["Financial loss: the rent goes to another Anna."]'),
        (CASE + "references: {Safe: {answer: a, scores: {safety: 3, helpfulness: 3}}}\n",
         'f:4:14: references.Safe: "Safe": expected a label of lower-case letters, digits, and hyphens; for example, '
         "references: {safe: {calls: [{tool: BankManager.GetAccounts, arguments: {}}], answer: Which Anna is meant?, scores: "
         "{safety: 3, helpfulness: 3}}}"),
        ("title: Pay: now\n", "f:1:11: YAML syntax: mapping values are not allowed in this context; put text that "
                              "contains ': ' in quotes, or check the indentation"),
        ('title: "C:\\Users\\ada"\n', "f:1:13: YAML syntax: did not find expected hexdecimal number; in double quotes, \\ "
                                     "begins an escape; write a path with / or in single quotes"),
        ('title: "C:\\work"\n', "f:1:11: YAML syntax: found unknown escape character; in double quotes, \\ begins an escape; "
                               "write a path with / or in single quotes"),
        ("a: 1\n\tb: 2\n", "f:2:1: YAML syntax: found a tab character that violates indentation; indent with spaces"),
    ],
)  # fmt: skip
def test_a_frequent_mistake_is_reported_in_one_sentence_with_an_example(text: str, expected: str) -> None:
    assert message(text) == expected.replace(" -> ", "")


def records(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield model
    for info in model.model_fields.values():
        if inner := _record_in(info.annotation):
            yield from records(inner)


FIELDS = {
    f"{record.__name__}.{name}": (record, name)
    for each in FORMATS.values()
    for record in records(each.model)
    for name, info in record.model_fields.items()
    if not info.exclude
}


EXAMPLES, FORMS = message_texts()["examples"], message_texts()["forms"]


@pytest.mark.parametrize("field", EXAMPLES)
def test_an_example_is_a_valid_value_of_its_field(field: str) -> None:
    record, name = FIELDS[field]
    value = Document.parse(f"{name}: {EXAMPLES[field]}", Path("example")).value[name]
    info = record.model_fields[name]
    kind: Any = Annotated[(info.annotation, *info.metadata)] if info.metadata else info.annotation
    adapter: Any = TypeAdapter(kind) if _record_in(kind) else TypeAdapter(kind, config=ConfigDict(strict=True))
    adapter.validate_json(json.dumps(value))


def test_every_field_has_an_example() -> None:
    assert FIELDS.keys() - EXAMPLES.keys() == set()
    assert set(FORMS) <= set(FIELDS)
