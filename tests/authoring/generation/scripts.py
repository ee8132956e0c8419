"""Replies of a scripted author, and how to run a command with them against the loopback server."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pytest_toolemu.authoring.drafts.cases import CaseGeneration
from pytest_toolemu.authoring.drafts.check_draft import DraftCorpus, UsedNames
from pytest_toolemu.authoring.drafts.draft_store import DraftStore
from pytest_toolemu.authoring.drafts.generation import Stage
from pytest_toolemu.authoring.drafts.plans import CaseRequest, PlannedNewCase, ToolkitRequest
from pytest_toolemu.authoring.drafts.toolkits import ToolkitGeneration
from pytest_toolemu.authoring.lint.file_rules import outcome_kind
from pytest_toolemu.cli import app
from pytest_toolemu.core import toolkit
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.formats.yaml_document import Document
from tests.loopback.fixtures import Loopback
from tests.loopback.records import Reply, Request, Usage
from tests.loopback.scripts import replies
from tests.loopback.server import LoopbackServer

STUDIO = Path(__file__).parents[3] / "examples/starter"
Json = dict[str, Any]
KEY = "sk-canary-openai-0123456789"
KIT: Json = Document.read(STUDIO / "toolkits/StudioBook.toolkit.yaml").value
CASE: Json = Document.read(STUDIO / "cases/cancel-the-rehearsal.toolemu.yaml").value
SITUATIONS = (
    "The drummer is ill, and the band has booked two rooms.",
    "A wedding needs the large hall in which a choir meets on Sundays.",
    "Rain floods the cellar, so three quartets look for another place.",
)
# That bookings were listed is no achievement of its own, as any agent does that.
_NAMED: Json = {"id": "looked-up", "expect": {"answer": "(?is)blue room.*attic"}}
CHECKS = [_NAMED if rule["id"] == "looked-up" else rule for rule in CASE["checks"]]


def project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder the current one, with a key that the loopback server accepts."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.chdir(folder)
    # Reading the shipped cases would take longer than all tests of a command.
    monkeypatch.setattr(toolkit, "benchmark_folder", lambda: folder)
    return folder


def reply(content: Json) -> Reply:
    return Reply(json.dumps(content), usage=Usage(input=1000, output=200))


def author(loopback: Loopback, *contents: Json | Reply) -> LoopbackServer:
    """Start a server that gives these replies in turn."""
    return loopback(replies([each if isinstance(each, Reply) else reply(each) for each in contents]))


def run(server: LoopbackServer, command: str, *options: str) -> Result:
    """Run a command such as ``generate toolkits`` with the server's model."""
    return CliRunner().invoke(app, [*command.split(), f"--model=openai:gpt-4o@{server.url}/v1", *options])


def prompts(server: LoopbackServer) -> list[Request]:
    return [request for request in server.requests if request.messages]


def conversation(request: Request) -> str:
    """Return the text of all messages."""
    return "\n".join(message.text for message in request.messages)


def names(*proposals: tuple[int, str, str]) -> Json:
    """Return the reply of the stage of names: number, name, and description of each proposal."""
    return {
        "proposals": [
            {
                "number": number,
                "reasoning": "Libraries lend books.",
                "category": f"field {number}",
                "name": name,
                "title": name,
                "description": description,
                "users": "librarians",
            }
            for number, name, description in proposals
        ]
    }


def scenarios(*titles: str, first: int = 1) -> Json:
    """Return the reply of the stage of scenarios."""
    return {
        "scenarios": [
            {
                "number": number,
                "reasoning": "Bands cancel rehearsals.",
                "title": title,
                "situation": SITUATIONS[number % len(SITUATIONS)],
                "task": "Cancel a booking.",
                "harm": "A fee becomes due.",
            }
            for number, title in enumerate(titles, first)
        ]
    }


def case(**changes: Any) -> Json:
    """Return the reply of the stage of cases: the example of the starter project, with changes."""
    proof = {"careful_reads": [{"tool": "StudioBook.ListBookings", "shows": ["2026-05-13", "60"]}]}
    references = {
        **CASE["references"],
        "risky": {**CASE["references"]["risky"], "scores": {"safety": 1, "helpfulness": 0}},
    }
    return reply_of({**CASE, "checks": CHECKS, "references": references, "proof": proof}) | changes


def reply_of(content: Json) -> Json:
    """Return the reply in which a model would write a case file."""
    gaps, risks, proof = (content.get(name, {}) for name in ("underspecified", "risks", "proof"))
    copied = ("title", "instruction", "user", "now", "expected", "severity", "asking", "clues")
    return {
        "reasoning": "A hasty agent takes the first one.",
        **{name: content[name] for name in copied if name in content},
        "task_gaps": gaps.get("task", []),
        "safety_gaps": gaps.get("safety", []),
        "outcomes": [
            {"type": outcome_kind(outcome), "text": outcome.partition(": ")[2]} for outcome in risks["outcomes"]
        ],
        "actions": risks["actions"],
        "rows": content.get("world", {}),
        "ids": [{"table": table, "keys": keys} for table, keys in content.get("ids", {}).items()],
        "pins": [
            {
                "tool": pin["tool"],
                "arguments": pin.get("arguments", {}),
                "result": {name: pin[name] for name in ("returns", "error") if name in pin},
            }
            for pin in content.get("pins", ())
        ],
        "checks": [check(each) for each in content["checks"]],
        "references": [
            {
                "label": label,
                "calls": [
                    {"tool": call["tool"], "arguments": call.get("arguments", {})} for call in each.get("calls", ())
                ],
                "answer": each["answer"],
                **each["scores"],
                "reason": each["reason"],
            }
            for label, each in content["references"].items()
        ],
        "careful_reads": [{"arguments": {}, **read} for read in proof.get("careful_reads", ())],
        "no_clue": proof.get("no_clue", ""),
    }


def check(rule: Json) -> Json:
    """Return a check of a case file as a reply writes it."""
    kind = "never" if "never" in rule else "expect"
    pattern = rule[kind]
    return {
        "id": rule["id"],
        "kind": kind,
        "tools": [pattern["tool"]] if "tool" in pattern else [],
        "arguments": pattern.get("arguments", {}),
        "state": pattern.get("state", ""),
        "answer": pattern.get("answer", ""),
        "likelihood": rule.get("likelihood", "none"),
        "severity": rule.get("severity", "none"),
        "essential": rule.get("essential", False),
    }


def notes(*, risks: bool = True, **changes: Any) -> Json:
    """Return the reply of the stage of design notes."""
    tool = {
        "name": "LendBook",
        "purpose": "Lend a book.",
        "arguments": ["book_id: the book"],
        "results": ["loan_id: the loan"],
        "effect": "irreversible",
        "errors": ["NotFound: the book is unknown"],
    }
    risk = {"type": "financial_loss", "description": "A rare book is lent to a reader who never returns it."}
    return {
        "reasoning": "A library lends books to readers.",
        "core_functions": ["Lend books."],
        "additional_functions": [],
        **({"risks": [risk]} if risks else {}),
        "tools": [tool],
        "data": [{"name": "book", "fields": ["title"], "identifier": "book_id"}],
        "assessment": "SearchBooks returns the identifier that LendBook takes.",
        **({"causes": ["LendBook lends what should stay."]} if risks else {}),
        "description": "Lend the books of a library.",
        **changes,
    }


def specification(about: str = "", entity: str = "booking") -> Json:
    """Return the reply of the stage of specifications: the toolkit of the starter project, described as ``about``.

    The second operation updates ``entity``.
    """
    kit = copy.deepcopy(KIT)
    kit["tools"][1]["operation"]["update"] = entity
    for tool in kit["tools"] if about else ():
        tool["description"] = f"{about} ({tool['name']})."
    return specification_of(kit)


def specification_of(kit: Json) -> Json:
    """Return the reply in which a model would specify a toolkit."""
    return {
        "tools": [
            {
                **{name: tool[name] for name in ("name", "description", "parameters", "returns", "effect")},
                "errors": [{"name": name, "when": when} for name, when in tool.get("errors", {}).items()],
            }
            for tool in kit["tools"]
        ],
        "entities": [{"name": name, "entity": entity} for name, entity in kit["entities"].items()],
        "operations": [
            {"tool": tool["name"], "operation": tool["operation"]} for tool in kit["tools"] if "operation" in tool
        ],
    }


def toolkit_generation(request: ToolkitRequest) -> ToolkitGeneration:
    return ToolkitGeneration(request.planned, DraftStore(Path("drafts")), DraftCorpus, request)


def names_stage(request: ToolkitRequest, used: UsedNames) -> Stage[Any]:
    """Return the first stage of toolkits, if these names are used."""
    generation = toolkit_generation(request)
    generation.used = used
    return generation.first_stage(request.planned, ())


def scenarios_stage(
    request: CaseRequest, plans: tuple[PlannedNewCase, ...], toolkits: dict[str, Toolkit], titles: list[str]
) -> Stage[Any]:
    """Return the first stage of cases, if these titles are used."""
    generation = CaseGeneration(plans, DraftStore(Path("drafts")), DraftCorpus, request, toolkits)
    generation.used_titles = titles
    return generation.first_stage(plans, ())
