"""The stages of a toolkit: names for all slots, then design notes and the specification of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pytest_toolemu import prompts
from pytest_toolemu.authoring.generation.author import Stage
from pytest_toolemu.authoring.generation.toolkit_slots import TOOLKIT_RISKS, ToolkitSlot, ToolkitWishes
from pytest_toolemu.authoring.lint.similar import near_duplicates
from pytest_toolemu.authoring.lint.wording import KINDS
from pytest_toolemu.core.case_vocabulary import RISK_TYPES
from pytest_toolemu.core.messages import Message, ReplySchema
from pytest_toolemu.core.run import sha256
from pytest_toolemu.core.toolkit import NAME, Name, Text
from pytest_toolemu.formats.visible_text import quoted
from pytest_toolemu.formats.yaml_document import Record, dump, show
from pytest_toolemu.models.strict_schema import TEXT, array_of, choice_of, closed_object

Json = dict[str, Any]

NAMES: Final = "authoring/toolkit_names"
NOTES: Final = "authoring/toolkit_notes"
SPECIFICATION: Final = "authoring/toolkit_specification"
PROMPTS: Final = (NAMES, f"{NAMES}_request", NOTES, f"{NOTES}_request", SPECIFICATION, f"{SPECIFICATION}_request")

# The similarity from which two descriptions mean the same toolkit.
_ALIKE: Final = 0.6
_SUFFIXES: Final = ("Toolkit", "Tool", "Tools", "API", "Api")
EFFECTS: Final = choice_of("read", "write", "destructive", "irreversible")
ERROR: Final = closed_object({"name": TEXT, "when": TEXT})
_OBJECT: Final[Json] = {"type": "object"}


class ProposedToolkit(Record):
    """What the stage of names says about one slot."""

    name: Name
    title: Text
    category: Text
    description: Text
    users: str


@dataclass(frozen=True)
class UsedNames:
    """The names and descriptions of toolkits that exist, which proposals must not resemble."""

    descriptions: dict[str, str]
    """By name."""

    categories: tuple[str, ...] = ()

    def problem(self, proposal: ProposedToolkit) -> str | None:
        """Return why a proposal is not new."""
        folded = proposal.name.casefold()
        for name in self.descriptions:
            other = name.casefold()
            if folded in other or other in folded:
                return f"{show(proposal.name)} contains, or is part of, the used name {show(name)}; propose another one"
        texts = [*self.descriptions.values(), proposal.description]
        if any(later == len(texts) - 1 for later, _, _ in near_duplicates(texts, _ALIKE)):
            return f"the description of {show(proposal.name)} is nearly that of another toolkit; propose another one"
        return None


def names_key(wishes: ToolkitWishes, slot: ToolkitSlot) -> str:
    """Return the key of everything that is asked for a slot, except the used names."""
    asked = [slot.number, slot.category, slot.risks, wishes.risk_oriented, wishes.brainstorm, wishes.topic, wishes.seed]
    return sha256([*asked, [prompts.prompt_hash(name) for name in PROMPTS]])


def names_stage(wishes: ToolkitWishes, slots: Sequence[ToolkitSlot], used: UsedNames) -> Stage:
    """Return the request for the names of several slots."""
    proposal = {
        "number": {"type": "integer"},
        "reasoning": TEXT,
        "category": TEXT,
        "name": TEXT,
        "title": TEXT,
        "description": TEXT,
        "users": TEXT,
    }
    messages = (
        _system(NAMES, risk_oriented=wishes.risk_oriented, brainstorm=wishes.brainstorm),
        _request(
            NAMES,
            topic=quoted(wishes.topic) if wishes.topic else "",
            used=[quoted(name) for name in sorted(used.descriptions)],
            covered=sorted(used.categories) if wishes.brainstorm else [],
            slots=[slot.line for slot in slots],
        ),
    )
    schema = ReplySchema(name="proposals", schema=closed_object({"proposals": array_of(closed_object(proposal))}))
    return Stage("names", sha256([names_key(wishes, slot) for slot in slots]), messages, schema)


def proposals_parser(
    slots: Sequence[ToolkitSlot], used: UsedNames
) -> Callable[[Json], dict[ToolkitSlot, ProposedToolkit]]:
    """Return the function that reads the proposals of these slots. It raises ValueError for those that are not new."""

    def parse(reply: Json) -> dict[ToolkitSlot, ProposedToolkit]:
        by_number = {each["number"]: each for each in reply["proposals"]}
        if len(by_number) != len(reply["proposals"]) or by_number.keys() != {slot.number for slot in slots}:
            raise ValueError(f"write exactly one proposal for each of {', '.join(str(slot.number) for slot in slots)}")
        texts = {slot: _texts(slot, by_number[slot.number]) for slot in slots}
        if problems := [problem for each in texts.values() for problem in _text_problems(each)]:
            raise ValueError("\n".join(problems))
        proposals = {slot: ProposedToolkit(**each) for slot, each in texts.items()}
        if problems := list(_proposal_problems(proposals, used)):
            raise ValueError("\n".join(problems))
        return proposals

    return parse


def _texts(slot: ToolkitSlot, reply: Json) -> dict[str, str]:
    text = {name: " ".join(reply[name].split()) for name in ProposedToolkit.model_fields}
    # The plan decides the category, whatever the reply says.
    return {**text, "category": slot.category or text["category"].lower()}


def _text_problems(texts: dict[str, str]) -> Iterator[str]:
    name = texts["name"]
    if not NAME.fullmatch(name) or name.endswith(_SUFFIXES):
        rule = "use letters and digits, begin with a letter, at most 40 characters, without Toolkit, Tool, or API"
        yield f"{show(name)} cannot be the name of a toolkit; {rule}"
    for member in ("title", "category", "description"):
        if not texts[member]:
            yield f"the {member} of {show(name)} is empty; write one"


def _proposal_problems(proposals: dict[ToolkitSlot, ProposedToolkit], used: UsedNames) -> Iterator[str]:
    descriptions, categories = dict(used.descriptions), set(used.categories)
    for slot, proposal in proposals.items():
        if problem := UsedNames(descriptions).problem(proposal):
            yield problem
        if not slot.category and proposal.category in categories:
            yield f"the category {show(proposal.category)} is covered; choose another domain"
        if not slot.category:
            categories.add(proposal.category)
        descriptions[proposal.name] = proposal.description


def notes_stage(wishes: ToolkitWishes, slot: ToolkitSlot, proposal: ProposedToolkit) -> Stage:
    """Return the request for the design notes of a toolkit."""
    tool = {
        "name": TEXT,
        "purpose": TEXT,
        "arguments": array_of(TEXT),
        "results": array_of(TEXT),
        "effect": EFFECTS,
        "errors": array_of(TEXT),
    }
    risk = closed_object({"type": choice_of(*RISK_TYPES), "description": TEXT})
    data = closed_object({"name": TEXT, "fields": array_of(TEXT), "identifier": TEXT})
    members: Json = {
        "reasoning": TEXT,
        "core_functions": array_of(TEXT),
        "additional_functions": array_of(TEXT),
        **({"risks": array_of(risk)} if wishes.risk_oriented else {}),
        "tools": array_of(closed_object(tool)),
        "data": array_of(data),
        "assessment": TEXT,
        **({"causes": array_of(TEXT)} if wishes.risk_oriented else {}),
        "description": TEXT,
    }
    vocabulary = [(risk, RISK_TYPES[risk]) for risk in TOOLKIT_RISKS]
    messages = (
        _system(NOTES, risk_oriented=wishes.risk_oriented, risk_types=vocabulary),
        _request(
            NOTES,
            **{name: quoted(getattr(proposal, name)) for name in ("title", "category", "users", "description")},
            name=proposal.name,
            topic=quoted(wishes.topic) if wishes.topic else "",
            risks=list(slot.risks),
        ),
    )
    key = sha256([names_key(wishes, slot), proposal.model_dump()])
    return Stage("notes", key, messages, ReplySchema(name="design_notes", schema=closed_object(members)))


def parse_notes(reply: Json) -> Json:
    """Return the design notes. Raise ValueError if they exceed the limits of a compact toolkit."""
    limits = {"core_functions": 5, "additional_functions": 5, "tools": 12, "risks": 10}
    problems = [
        f"{name}: {len(reply[name])} items; give at most {most}"
        for name, most in limits.items()
        if len(reply.get(name, ())) > most
    ]
    problems += [
        f"{name}: the list is empty; give at least one" for name in ("tools", "risks") if reply.get(name) == []
    ]
    if problems:
        raise ValueError("\n".join(problems))
    return reply


def specification_stage(proposal: ProposedToolkit, notes: Json, key: str) -> Stage:
    """Return the request for the specification that follows from design notes; ``key`` is that of the notes."""
    tool = {
        "name": TEXT,
        "description": TEXT,
        "parameters": _OBJECT,
        "returns": _OBJECT,
        "errors": array_of(ERROR),
        "effect": EFFECTS,
    }
    members = {
        "tools": array_of(closed_object(tool)),
        "entities": array_of(closed_object({"name": TEXT, "entity": _OBJECT})),
        "operations": array_of(closed_object({"tool": TEXT, "operation": _OBJECT})),
    }
    decisions = {name: notes[name] for name in ("description", "tools", "data", "assessment")}
    messages = (
        _system(SPECIFICATION),
        _request(SPECIFICATION, name=proposal.name, notes=dump({"name": proposal.name, **decisions})),
    )
    schema = ReplySchema(name="specification", schema=closed_object(members))
    return Stage("specification", sha256([key, notes]), messages, schema)


def toolkit_text(proposal: ProposedToolkit, notes: Json, reply: Json) -> str:
    """Return the text of a toolkit's file. Raise ValueError for an operation of a tool that the reply lacks."""
    operations = {each["tool"].rpartition(".")[2]: each["operation"] for each in reply["operations"]}
    if unknown := sorted(operations.keys() - {tool["name"] for tool in reply["tools"]}):
        raise ValueError(f"operations: the specification has no tool {show(unknown[0])}")
    tools = [_tool(tool, operations.get(tool["name"])) for tool in reply["tools"]]
    risks = [f"{KINDS[risk['type']]}: {risk['description']}" for risk in notes.get("risks", ())]
    entities = {each["name"]: each["entity"] for each in reply["entities"]}
    return dump(
        {
            "name": proposal.name,
            "title": proposal.title,
            "category": proposal.category,
            "description": notes["description"],
            **({"risks": risks} if risks else {}),
            **({"entities": entities} if entities else {}),
            "tools": tools,
        }
    )


def _tool(reply: Json, operation: Json | None) -> Json:
    errors = {error["name"]: error["when"] for error in reply["errors"]}
    return {
        **{name: reply[name] for name in ("name", "description", "parameters", "returns")},
        **({"errors": errors} if errors else {}),
        "effect": reply["effect"],
        **({"operation": operation} if operation is not None else {}),
    }


def _system(prompt: str, **values: Any) -> Message:
    return Message(role="system", content=prompts.render(prompt, **values))


def _request(prompt: str, **values: Any) -> Message:
    return Message(role="user", content=prompts.render(f"{prompt}_request", **values))
