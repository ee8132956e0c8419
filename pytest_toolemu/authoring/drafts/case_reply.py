"""The reply in which a model writes a case, the text of the case's file, and the toolkits as the model reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, get_args

from pytest_toolemu.authoring.case_text import with_world
from pytest_toolemu.authoring.lint.file_rules import KINDS
from pytest_toolemu.core.case_vocabulary import RISK_TYPES, Asking, Clue, Severity
from pytest_toolemu.core.messages import ReplySchema
from pytest_toolemu.core.toolkit import Tool, Toolkit
from pytest_toolemu.emulators.world_builder import plans_of, rows_of_reply, rows_schema, table_lines
from pytest_toolemu.formats.json_schema import members_text
from pytest_toolemu.formats.text import quoted
from pytest_toolemu.formats.yaml_document import Document, dump, show
from pytest_toolemu.models.strict_schema import FLAG, TEXT, array_of, choice_of, closed_object

Json = dict[str, Any]

_OBJECT: Final[Json] = {"type": "object"}
_NONE: Final = "none"
_SCORE: Final[Json] = {"type": "integer", "minimum": 0, "maximum": 3}
_CALL: Final = closed_object({"tool": TEXT, "arguments": _OBJECT})
_CHECK: Final = closed_object(
    {
        "id": TEXT,
        "kind": choice_of("never", "expect"),
        "tools": array_of(TEXT),
        "arguments": _OBJECT,
        "state": TEXT,
        "answer": TEXT,
        "likelihood": choice_of("possible", "likely", _NONE),
        "severity": choice_of("mild", "severe", _NONE),
        "essential": FLAG,
    }
)
_REFERENCE: Final = closed_object(
    {"label": TEXT, "calls": array_of(_CALL), "answer": TEXT, "safety": _SCORE, "helpfulness": _SCORE, "reason": TEXT}
)
PARTS: Final[dict[str, Json]] = {
    "title": TEXT,
    "instruction": TEXT,
    "user": closed_object({"name": TEXT, "email": TEXT}),
    "now": TEXT,
    "task_gaps": array_of(TEXT),
    "safety_gaps": array_of(TEXT),
    "outcomes": array_of(closed_object({"type": choice_of(*RISK_TYPES), "text": TEXT})),
    "actions": array_of(TEXT),
    "expected": array_of(TEXT),
    "severity": choice_of(*get_args(Severity)),
    "asking": choice_of(*get_args(Asking)),
    "clues": array_of(choice_of(*get_args(Clue))),
    "ids": array_of(closed_object({"table": TEXT, "keys": array_of(TEXT)})),
    "pins": array_of(closed_object({"tool": TEXT, "arguments": _OBJECT, "result": _OBJECT})),
    "checks": array_of(_CHECK),
    "references": array_of(_REFERENCE),
    "careful_reads": array_of(closed_object({"tool": TEXT, "arguments": _OBJECT, "shows": array_of(TEXT)})),
    "no_clue": TEXT,
}
"""The parts of a case in the order in which a model writes them; ``rows`` follow ``clues``."""

LABELS: Final = ("safe", "risky")
"""The references of every case."""

_ORDER: Final = (
    "title", "toolkits", "instruction", "user", "now", "locale", "variant_of", "twin_of", "underspecified",
)  # fmt: skip


def reply_parts(toolkits: Sequence[Toolkit], names: Sequence[str] = (*PARTS, "rows")) -> ReplySchema:
    """Return the schema of a reply with these parts of a case: first the reasoning, and the rows before the checks."""
    members: Json = {"reasoning": TEXT}
    for name, schema in PARTS.items():
        if name == "ids" and "rows" in names and (plans := plans_of(toolkits)):
            members["rows"] = rows_schema(plans)
        if name in names:
            members[name] = schema
    return ReplySchema(name="case", schema=closed_object(members))


def fields_of(reply: Mapping[str, Any]) -> Json:
    """Return the fields of a case file for the parts that a reply has, in the order of the file, except the rows."""
    fields: Json = {name: reply[name] for name in ("title", "instruction", "user", "now") if name in reply}
    gaps = {name.partition("_")[0]: reply[name] for name in ("task_gaps", "safety_gaps") if reply.get(name)}
    if gaps:
        fields["underspecified"] = gaps
    risks: Json = {}
    if "outcomes" in reply:
        risks["types"] = list(dict.fromkeys(outcome["type"] for outcome in reply["outcomes"]))
        risks["outcomes"] = [f"{KINDS[outcome['type']]}: {outcome['text']}" for outcome in reply["outcomes"]]
    if "actions" in reply:
        risks["actions"] = reply["actions"]
    fields |= {"risks": risks} if risks else {}
    fields |= {name: reply[name] for name in ("expected", "severity", "asking", "clues") if name in reply}
    if reply.get("pins"):
        fields["pins"] = [
            {"tool": pin["tool"], **({"arguments": pin["arguments"]} if pin["arguments"] else {}), **pin["result"]}
            for pin in reply["pins"]
        ]
    if "checks" in reply:
        fields["checks"] = [_check(check) for check in reply["checks"]]
    if "references" in reply:
        fields["references"] = {each["label"]: _reference(each) for each in reply["references"]}
    if reply.get("careful_reads"):
        fields["proof"] = {"careful_reads": reply["careful_reads"]}
    elif reply.get("no_clue"):
        fields["proof"] = {"no_clue": reply["no_clue"]}
    return fields


def rows_and_ids(reply: Mapping[str, Any], toolkits: Sequence[Toolkit]) -> tuple[Json, Json]:
    """Return the rows of a reply by toolkit and entity, and the keys of rows that calls create."""
    rows = rows_of_reply(reply.get("rows", {}), plans_of(toolkits))
    world = {kit: {name: list(each) for name, each in tables.items()} for kit, tables in rows.items()}
    return world, {each["table"]: each["keys"] for each in reply.get("ids", ()) if each["keys"]}


def case_text(fields: Mapping[str, Any], world: Json | None, ids: Json) -> str:
    """Return the text of a new case file with these fields, and one row on a line if it fits."""
    text = dump({name: fields[name] for name in (*_ORDER, *fields) if name in fields})
    return with_world(Document.parse(text, Path("draft")), world, ids) if world else text


def new_case_text(head: Json, reply: Mapping[str, Any], toolkits: Sequence[Toolkit]) -> str:
    """Return the text of a new case file; ``head`` holds what the plan decides: toolkits, locale, links."""
    return case_text({**fields_of(reply), **head}, *rows_and_ids(reply, toolkits))


def reply_problems(reply: Mapping[str, Any], labels: Sequence[str]) -> Iterator[str]:
    """Yield what a case file could not say: subjects of checks, results of pins, and missing or repeated names."""
    for check in reply.get("checks", ()):
        subjects = [name for name in ("tools", "state", "answer") if check[name]]
        if len(subjects) != 1:
            yield f"the check {show(check['id'])} has {len(subjects)} subjects; fill one of tools, state, answer"
    for pin in reply.get("pins", ()):
        if pin["result"].keys() not in ({"returns"}, {"error"}):
            yield f"the pin of {show(pin['tool'])} has the result {show(pin['result'], 60)}; give 'returns' or 'error'"
    for part, key in (("checks", "id"), ("references", "label"), ("ids", "table")):
        names = [each[key] for each in reply.get(part, ())]
        yield from (
            f"{part}: {show(name)} occurs twice; rename one" for name in dict.fromkeys(names) if names.count(name) > 1
        )
    present = {each["label"] for each in reply.get("references", ())}
    if "references" in reply:
        yield from (f"the reference {show(label)} is missing; write it" for label in labels if label not in present)


def _check(check: Json) -> Json:
    pattern: Json = {name: check[name] for name in ("state", "answer") if check[name]}
    if check["tools"]:
        pattern["tool"] = check["tools"][0] if len(check["tools"]) == 1 else check["tools"]
        pattern |= {"arguments": check["arguments"]} if check["arguments"] else {}
    marks = {name: check[name] for name in ("likelihood", "severity") if check[name] != _NONE}
    essential = {"essential": True} if check["essential"] and check["kind"] == "expect" else {}
    return {"id": check["id"], check["kind"]: pattern, **marks, **essential}


def _reference(reference: Json) -> Json:
    calls = [{"tool": call["tool"], "arguments": call["arguments"]} for call in reference["calls"]]
    scores = {name: reference[name] for name in ("safety", "helpfulness")}
    return {"calls": calls, "answer": reference["answer"], "scores": scores, "reason": reference["reason"]}


def described_toolkits(toolkits: Sequence[Toolkit]) -> Json:
    """Return the values with which prompts describe toolkits, by the names that case files use."""
    return {
        "toolkits": [
            {
                "head": f"{kit.name}: {quoted(kit.description)}",
                "risks": [quoted(risk) for risk in kit.risks],
                "tools": [_tool_line(kit, tool) for tool in kit.tools],
            }
            for kit in toolkits
        ],
        "tables": list(table_lines(toolkits, plans_of(toolkits))),
    }


def sketch_line(kit: Toolkit) -> str:
    """Return a toolkit on one line: its purpose, its tools with their effects, and its risks."""
    tools = ", ".join(f"{tool.name} ({tool.effect})" for tool in kit.tools)
    risks = f" Risks: {' '.join(map(quoted, kit.risks))}" if kit.risks else ""
    return f"{kit.name}: {quoted(kit.description)} Tools: {tools}.{risks}"


def _tool_line(kit: Toolkit, tool: Tool) -> str:
    errors = "; ".join(f"{name} ({quoted(condition)})" for name, condition in tool.errors.items())
    answered = "" if tool.operation is not None else "; needs pins"
    arguments, results = members_text(tool.parameters, "()", explain="all"), members_text(tool.returns, explain="open")
    line = (
        f"{kit.name}.{tool.name}{arguments} -> {results}: {quoted(tool.description)} Effect: {tool.effect}{answered}."
    )
    return f"{line} Errors: {errors}" if errors else line
