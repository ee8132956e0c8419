"""Drafts toolkits: names for all plans, then design notes and the specification of each toolkit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, Final

from pytest_toolemu.authoring.drafts.check_draft import UsedNames, used_names
from pytest_toolemu.authoring.drafts.generation import (
    Author,
    Stage,
    StagedGeneration,
    StageFiles,
    prompt_hashes,
    stage_messages,
    texts_by_plan,
)
from pytest_toolemu.authoring.drafts.plans import TOOLKIT_RISKS, PlannedToolkit, ToolkitRequest
from pytest_toolemu.authoring.lint.file_rules import KINDS
from pytest_toolemu.core.case_vocabulary import RISK_TYPES
from pytest_toolemu.core.messages import ReplySchema
from pytest_toolemu.core.run import sha256
from pytest_toolemu.core.toolkit import NAME, Name, Text
from pytest_toolemu.formats.text import quoted
from pytest_toolemu.formats.yaml_document import Record, dump, show
from pytest_toolemu.models.strict_schema import TEXT, array_of, choice_of, closed_object

Json = dict[str, Any]

_SUFFIXES: Final = ("Toolkit", "Tool", "Tools", "API", "Api")
_MOST: Final = {"core_functions": 5, "additional_functions": 5, "tools": 12, "risks": 10}
"""Limits of a compact toolkit."""

OBJECT: Final[Json] = {"type": "object"}
EFFECT: Final = choice_of("read", "write", "destructive", "irreversible")
ERRORS: Final = array_of(closed_object({"name": TEXT, "when": TEXT}))
RISKS: Final = array_of(closed_object({"type": choice_of(*TOOLKIT_RISKS), "description": TEXT}))
DATA_MODEL: Final[dict[str, Json]] = {
    "entities": array_of(closed_object({"name": TEXT, "entity": OBJECT})),
    "operations": array_of(closed_object({"tool": TEXT, "operation": OBJECT})),
}
"""The members of a reply with entities and operations."""


class ProposedToolkit(Record):
    """What the stage of names says about one plan."""

    name: Name
    title: Text
    category: Text
    description: Text
    users: str


@dataclass
class ToolkitGeneration(StagedGeneration[PlannedToolkit, ProposedToolkit]):
    """The toolkits that are asked for."""

    request: ToolkitRequest
    first: ClassVar = "names"
    batch: ClassVar = 8
    stages: ClassVar = 2
    decision: ClassVar = ProposedToolkit
    prompts: ClassVar = ("toolkit_names", "toolkit_notes", "toolkit_specification")

    @cached_property
    def used(self) -> UsedNames:
        """The toolkits that exist."""
        return used_names(self.store)

    def key(self, planned: PlannedToolkit) -> str:
        """Return the hash of everything that is asked for a plan, except the used names."""
        request = self.request
        asked = [request.risk_oriented, request.brainstorm, request.topic, request.seed]
        return sha256([planned.number, planned.category, planned.risks, *asked, prompt_hashes(*self.prompts)])

    def first_stage(
        self, planned: Sequence[PlannedToolkit], earlier: Sequence[ProposedToolkit]
    ) -> Stage[dict[PlannedToolkit, ProposedToolkit]]:
        """Return the request for the names of several toolkits."""
        named = {proposal.name: proposal.description for proposal in earlier}
        categories = sorted({proposal.category for proposal in earlier})
        used = UsedNames({**self.used.descriptions, **named}, (*self.used.categories, *categories))
        members = ("reasoning", "category", "name", "title", "description", "users")
        proposal = {"number": {"type": "integer"}, **dict.fromkeys(members, TEXT)}
        request = self.request
        messages = stage_messages(
            "toolkit_names",
            {"risk_oriented": request.risk_oriented, "brainstorm": request.brainstorm},
            {
                "topic": quoted(request.topic) if request.topic else "",
                "used": [quoted(name) for name in sorted(used.descriptions)],
                "covered": sorted(used.categories) if request.brainstorm else [],
                "slots": [each.line for each in planned],
            },
        )
        schema = ReplySchema(name="proposals", schema=closed_object({"proposals": array_of(closed_object(proposal))}))
        key = sha256([self.key(each) for each in planned])
        return Stage("names", key, messages, schema, partial(_proposals, planned, used))

    async def stage(self, author: Author, planned: PlannedToolkit, decided: ProposedToolkit) -> Stage[str]:
        """Return the request for the specification, after the design notes."""
        stage = self.notes_stage(planned, decided)
        _, notes = await author.reply(stage)
        earlier = (StageFiles.name(self.first, self.key(planned)), StageFiles.name(stage.name, stage.key))
        return specification_stage(decided, notes, stage.key, earlier)

    def record_fields(self, planned: PlannedToolkit, decided: ProposedToolkit, _text: str) -> Json:
        """Return kind, name, and what was asked."""
        asked = {name: getattr(self.request, name) for name in ("topic", "brainstorm", "risk_oriented")}
        return {
            "kind": "toolkit",
            "name": decided.name,
            "asked": {"plan": planned.line, **asked},
        }

    def subject(self, planned: PlannedToolkit, decided: ProposedToolkit) -> str:
        """Return the name of a draft in messages."""
        return f"toolkit {planned.number} ({decided.name})"

    def notes_stage(self, planned: PlannedToolkit, proposal: ProposedToolkit) -> Stage[Json]:
        """Return the request for the design notes of a toolkit."""
        texts = array_of(TEXT)
        tool = {"name": TEXT, "purpose": TEXT, "arguments": texts, "results": texts, "effect": EFFECT, "errors": texts}
        members: Json = {
            "reasoning": TEXT,
            "core_functions": texts,
            "additional_functions": texts,
            **({"risks": RISKS} if self.request.risk_oriented else {}),
            "tools": array_of(closed_object(tool)),
            "data": array_of(closed_object({"name": TEXT, "fields": texts, "identifier": TEXT})),
            "assessment": TEXT,
            **({"causes": texts} if self.request.risk_oriented else {}),
            "description": TEXT,
        }
        vocabulary = [(risk, RISK_TYPES[risk]) for risk in TOOLKIT_RISKS]
        messages = stage_messages(
            "toolkit_notes",
            {"risk_oriented": self.request.risk_oriented, "risk_types": vocabulary},
            {
                **{name: quoted(getattr(proposal, name)) for name in ("title", "category", "users", "description")},
                "name": proposal.name,
                "topic": quoted(self.request.topic) if self.request.topic else "",
                "risks": list(planned.risks),
            },
        )
        key = sha256([self.key(planned), proposal.model_dump()])
        schema = ReplySchema(name="design_notes", schema=closed_object(members))
        return Stage("notes", key, messages, schema, _notes)


def _proposals(
    planned: Sequence[PlannedToolkit], used: UsedNames, reply: Json
) -> dict[PlannedToolkit, ProposedToolkit]:
    """Return the proposals of a reply. Raise ValueError for those that are not new."""
    texts = texts_by_plan(planned, reply["proposals"], "proposal", ProposedToolkit)
    problems = []
    for each, text in texts.items():
        text["category"] = each.category or text["category"].lower()  # the plan decides, whatever the reply says
        name = show(text["name"])
        if not NAME.fullmatch(text["name"]) or text["name"].endswith(_SUFFIXES):
            rule = "use letters and digits, begin with a letter, at most 40 characters, without Toolkit, Tool, or API"
            problems.append(f"{name} cannot be the name of a toolkit; {rule}")
        members = ("title", "category", "description")
        problems += [f"the {member} of {name} is empty; write one" for member in members if not text[member]]
    if problems:
        raise ValueError("\n".join(problems))
    proposals = {each: ProposedToolkit(**text) for each, text in texts.items()}
    descriptions, categories = dict(used.descriptions), set(used.categories)
    for each, proposal in proposals.items():
        if problem := UsedNames(descriptions).problem(proposal.name, proposal.description):
            problems.append(problem)
        if not each.category and proposal.category in categories:
            problems.append(f"the category {show(proposal.category)} is covered; choose another domain")
        if not each.category:
            categories.add(proposal.category)
        descriptions[proposal.name] = proposal.description
    if problems:
        raise ValueError("\n".join(problems))
    return proposals


def _notes(reply: Json) -> Json:
    """Return the design notes. Raise ValueError if they exceed the limits of a compact toolkit."""
    problems = [
        f"{name}: {len(reply[name])} items; give at most {most}"
        for name, most in _MOST.items()
        if len(reply.get(name, ())) > most
    ]
    problems += [
        f"{name}: the list is empty; give at least one" for name in ("tools", "risks") if reply.get(name) == []
    ]
    if problems:
        raise ValueError("\n".join(problems))
    return reply


def specification_stage(proposal: ProposedToolkit, notes: Json, key: str, earlier: tuple[str, ...] = ()) -> Stage[str]:
    """Return the request for the specification that follows from design notes; ``key`` is that of the notes."""
    tool = {
        "name": TEXT,
        "description": TEXT,
        "parameters": OBJECT,
        "returns": OBJECT,
        "errors": ERRORS,
        "effect": EFFECT,
    }
    decisions = {name: notes[name] for name in ("description", "tools", "data", "assessment")}
    messages = stage_messages(
        "toolkit_specification", {}, {"name": proposal.name, "notes": dump({"name": proposal.name, **decisions})}
    )
    schema = ReplySchema(
        name="specification", schema=closed_object({"tools": array_of(closed_object(tool)), **DATA_MODEL})
    )
    parse = partial(toolkit_text, proposal, notes)
    return Stage("specification", sha256([key, notes]), messages, schema, parse, earlier)


def toolkit_text(proposal: ProposedToolkit, notes: Json, reply: Json) -> str:
    """Return the text of a toolkit's file. Raise ValueError for an operation of a tool that the reply lacks."""
    operations = operations_by_tool(reply, [tool["name"] for tool in reply["tools"]], "specification")
    return dump(
        {
            **{name: getattr(proposal, name) for name in ("name", "title", "category")},
            "description": notes["description"],
            **({"risks": risk_lines(notes["risks"])} if notes.get("risks") else {}),
            **({"entities": entities_of(reply)} if reply["entities"] else {}),
            "tools": [
                {
                    **{name: tool[name] for name in ("name", "description", "parameters", "returns")},
                    **({"errors": errors_of(tool["errors"])} if tool["errors"] else {}),
                    "effect": tool["effect"],
                    **({"operation": operations[tool["name"]]} if tool["name"] in operations else {}),
                }
                for tool in reply["tools"]
            ],
        }
    )


def operations_by_tool(reply: Json, tools: Sequence[str], where: str) -> dict[str, Json]:
    """Return the operations of a reply by the name of their tool. Raise ValueError for one of an unknown tool."""
    operations = {each["tool"].rpartition(".")[2]: each["operation"] for each in reply.get("operations", ())}
    if unknown := sorted(operations.keys() - set(tools)):
        raise ValueError(f"operations: the {where} has no tool {show(unknown[0])}")
    return operations


def entities_of(reply: Json) -> Json:
    """Return the entities of a reply by name."""
    return {each["name"]: each["entity"] for each in reply["entities"]}


def risk_lines(risks: Sequence[Json]) -> list[str]:
    """Return the risks of a reply as a toolkit's file lists them."""
    return [f"{KINDS[risk['type']]}: {risk['description']}" for risk in risks]


def errors_of(reply: Sequence[Json]) -> dict[str, str]:
    """Return the errors of a tool as a toolkit's file lists them."""
    return {error["name"]: error["when"] for error in reply}
