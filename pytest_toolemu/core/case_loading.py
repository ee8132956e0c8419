"""Reads a case file and the toolkits that it names, and checks every reference between them.

The checks are strict because a mistake here is silent otherwise: a pin for an unknown tool would never answer, and a
check with a misspelled argument would never match, so an unsafe agent would pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytest_toolemu.core.case import SUFFIX, SUFFIXES, Case, ResolvedCase, poison_problems, with_hostile_texts
from pytest_toolemu.core.case_rules import CallPattern, Check, Pin, argument_problems
from pytest_toolemu.core.references import CarefulRead, Reference, ReferenceCall
from pytest_toolemu.core.toolkit import Tool
from pytest_toolemu.core.toolkit_files import resolve_toolkits
from pytest_toolemu.core.world.case_rows import row_problems
from pytest_toolemu.core.world.state_query import query_problems
from pytest_toolemu.formats.identifiers import case_id_problem
from pytest_toolemu.formats.yaml_document import KEY, Document, Loc, closest, show


def case_id(path: Path) -> str:
    """Return the ID of the case in a file: the file name without the suffix."""
    return path.name.removesuffix(SUFFIX).removesuffix(SUFFIXES[1])


def load_case(path: Path) -> ResolvedCase:
    """Return the case in a file with its toolkits. Raise a DocumentError with all problems and their locations."""
    return build_case(Document.read(path))


def build_case(document: Document) -> ResolvedCase:
    """Return the case in a document that was read, with its toolkits. Raise a DocumentError as ``load_case`` does."""
    path = document.path
    identity = case_id(path)
    if problem := case_id_problem(identity):
        raise document.error([((), f"the file's stem {show(identity)} is the case's id; {problem}")])
    if isinstance(document.value, dict) and "id" in document.value:
        raise document.error([(("id", KEY), "unknown key 'id'; the id of a case is the stem of its file")])
    case = document.build(Case, {"id": identity})
    toolkits = resolve_toolkits(case.toolkits, document)
    if problems := list(poison_problems(toolkits, case.poisoned_tools)):
        raise document.error(problems)
    resolved_case = ResolvedCase(case, with_hostile_texts(toolkits, case.poisoned_tools), path)
    if problems := [*_reference_problems(resolved_case), *row_problems(case, resolved_case.toolkits)]:
        raise document.error(problems)
    queries = {loc: pattern.state for loc, pattern in _patterns(case) if pattern.state is not None}
    reasons = query_problems(resolved_case, queries.values()) if queries else []
    if wrong := [((*loc, "state"), reason) for loc, reason in zip(queries, reasons, strict=True) if reason is not None]:
        raise document.error(wrong)
    return resolved_case


def _reference_problems(resolved_case: ResolvedCase) -> list[tuple[Loc, str]]:
    """Return the tools that the case's toolkits lack, and the values that their schemas refuse."""
    case, tools = resolved_case.case, resolved_case.tools_in_files
    problems = [
        (loc, f"unknown tool {name!r}{closest(name, tools)}") for loc, name in _tool_names(case) if name not in tools
    ]
    for index, pin in enumerate(case.pins):
        if pin.tool in tools:
            problems += _argument_problems(pin.arguments, (pin.tool,), tools, ("pins", index))
            problems += _pin_problems(pin, tools[pin.tool], ("pins", index))
    for loc, pattern in _patterns(case):
        if pattern.state is not None and not case.world:
            problems.append(((*loc, "state"), "there are no rows to query; add 'world' to the case"))
        problems += _argument_problems(pattern.arguments, pattern.tools, tools, loc)
    for loc, call in _made_calls(case):
        if call.tool in tools:
            invalid = tools[call.tool].argument_schema.violations(call.arguments)
            problems += [
                ((*loc, "arguments"), f"{call.tool} does not take these arguments: {text}") for text in invalid
            ]
    problems += [
        (("unlabeled", label, KEY), f"{label!r} is also the name of a labeled reference; choose another name")
        for label in case.unlabeled
        if label in case.references
    ]
    if case.conversation is not None:
        problems += [(("conversation", *loc), text) for loc, text in _label_problems(case.in_conversation)]
    return [*problems, *_label_problems(case), *conversation_problems(case)]


def _label_problems(case: Case) -> Iterator[tuple[Loc, str]]:
    """Yield the checks that references name and that the case lacks."""
    never = {check.id for check in case.checks if check.never}
    expect = {check.id for check in case.checks if check.expect}
    for label, reference in case.references.items():
        labels = (("violated", reference.violated, "never", never), ("missed", reference.missed, "expect", expect))
        for member, names, kind, ids in labels:
            for index, name in enumerate(names or ()):
                if name not in ids:
                    problem = f"no check with '{kind}' has the ID {name!r}{closest(name, ids)}"
                    yield ("references", label, member, index), problem


def _argument_problems(
    arguments: dict[str, Any], names: tuple[str, ...], tools: dict[str, Tool], loc: Loc
) -> list[tuple[Loc, str]]:
    """Return the problems of a pattern; one that several tools have is returned once."""
    problems = [
        ((*loc, "arguments", *place), message)
        for name in names
        if name in tools
        for place, message in argument_problems(arguments, tools[name].parameters, name)
    ]
    return list(dict.fromkeys(problems))


def _patterns(case: Case) -> Iterator[tuple[Loc, CallPattern]]:
    for loc, check in checks_of(case):
        for kind, pattern in (("never", check.never), ("unless", check.unless), ("expect", check.expect)):
            if pattern is not None:
                yield (*loc, kind), pattern


def _tool_names(case: Case) -> Iterator[tuple[Loc, str]]:
    """Yield every tool that the case names, with its location."""
    for index, pin in enumerate(case.pins):
        yield ("pins", index, "tool"), pin.tool
    for loc, pattern in _patterns(case):
        for name in pattern.tools:
            yield (*loc, "tool"), name
    for loc, call in _made_calls(case):
        yield (*loc, "tool"), call.tool


def _made_calls(case: Case) -> Iterator[tuple[Loc, ReferenceCall | CarefulRead]]:
    """Yield the calls of references and of the proof, with their locations."""
    for loc, reference in references_of(case):
        yield from calls_of(reference, loc)
    for label, unlabeled in case.unlabeled.items():
        for index, call in enumerate(unlabeled.calls):
            yield ("unlabeled", label, "calls", index), call
    for index, read in enumerate(case.proof.careful_reads if case.proof else ()):
        yield ("proof", "careful_reads", index), read


def _pin_problems(pin: Pin, tool: Tool, loc: Loc) -> list[tuple[Loc, str]]:
    problems: list[tuple[Loc, str]] = []
    if pin.returns is not None:
        for text in tool.result_schema.violations(pin.returns):
            problems.append(((*loc, "returns"), f"{pin.tool} does not return this: {text}"))
    if pin.error is not None:
        name = pin.error.partition(":")[0].strip()
        if name not in tool.errors:
            problems.append(((*loc, "error"), f"{pin.tool} declares no error {show(name)}{closest(name, tool.errors)}"))
    return problems


def checks_of(case: Case) -> Iterator[tuple[Loc, Check]]:
    """Yield the checks of the case, then those of its conversation, with their locations."""
    for index, check in enumerate(case.checks):
        yield ("checks", index), check
    for index, check in enumerate(case.conversation.checks if case.conversation else ()):
        yield ("conversation", "checks", index), check


def references_of(case: Case) -> Iterator[tuple[Loc, Reference]]:
    """Yield the labeled references of the case, then those of its conversation, with their locations."""
    for label, reference in case.references.items():
        yield ("references", label), reference
    for label, reference in (case.conversation.references if case.conversation else {}).items():
        yield ("conversation", "references", label), reference


def calls_of(reference: Reference, loc: Loc) -> Iterator[tuple[Loc, ReferenceCall]]:
    """Yield the calls of all turns of a reference at a location, in order."""
    for number, turn in enumerate(reference.turns):
        for index, call in enumerate(turn.calls):
            yield (*loc, "turns", number, "calls", index), call
    for index, call in enumerate(reference.calls):
        yield (*loc, "calls", index), call


def conversation_problems(case: Case) -> Iterator[tuple[Loc, str]]:
    """Yield the facts that checks name and that the case lacks, and turns in references without a conversation."""
    facts = [fact.id for fact in case.conversation.facts] if case.conversation else []
    for loc, check in checks_of(case):
        for kind, pattern in (("unless", check.unless), ("expect", check.expect)):
            for index, name in enumerate(pattern.told or () if pattern else ()):
                if name not in facts:
                    remedy = closest(name, facts) if facts else "; add 'conversation' with this fact to the case"
                    yield (*loc, kind, "told", index), f"no fact of the conversation has the ID {name!r}{remedy}"
    for label, reference in case.references.items():
        if reference.turns:
            problem = "'turns' are for runs with several turns; move the reference to 'references' in 'conversation'"
            yield ("references", label, "turns"), problem
