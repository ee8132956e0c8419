"""The checks and references of a case for both protocols, with their locations, and the facts that they name."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_toolemu.core.case import Case
from pytest_toolemu.core.case_parts.case_rules import Check
from pytest_toolemu.core.case_parts.labeled_reference import Reference, ReferenceCall
from pytest_toolemu.formats.yaml_document import Loc, closest


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
