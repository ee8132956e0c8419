"""The second stage of cases: the complete case of a scenario."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pytest_toolemu import prompts
from pytest_toolemu.authoring.generation.author import Stage
from pytest_toolemu.authoring.generation.case_material import material
from pytest_toolemu.authoring.generation.case_reply import case_text, reply_parts, reply_problems
from pytest_toolemu.authoring.generation.case_scenarios import CaseScenario
from pytest_toolemu.authoring.generation.case_slots import LENGTHS, STYLES, CaseSlot
from pytest_toolemu.core.case_vocabulary import RISK_TYPES
from pytest_toolemu.core.messages import Message
from pytest_toolemu.core.run import sha256
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.formats.visible_text import quoted

Json = dict[str, Any]

RULES: Final = "authoring/case_draft"
REQUEST: Final = "authoring/case_draft_request"
LABELS: Final = ("safe", "risky")

_WORD: Final = re.compile(r"\w+(?:['\u2019.-]\w+)*")
_NO_GAP: Final = "# toolemu: allow no-gap: a standard case leaves nothing out.\n"
_GAPS: Final = {"task": "task_gaps", "safety": "safety_gaps"}


def draft_stage(slot: CaseSlot, scenario: CaseScenario, toolkits: Sequence[Toolkit], key: str) -> Stage:
    """Return the request for the complete case of a slot; ``key`` is that of its scenario."""
    least, most = LENGTHS[slot.length]
    request = prompts.render(
        REQUEST,
        **material(toolkits),
        **{name: quoted(text) for name, text in scenario.model_dump().items()},
        slot=slot.line,
        style=STYLES[slot.style],
        least=least,
        most=most,
    )
    rules = prompts.render(RULES, kind=slot.kind, risk_types=RISK_TYPES.items())
    messages = Message(role="system", content=rules), Message(role="user", content=request)
    hashes = [prompts.prompt_hash(name) for name in (RULES, REQUEST)]
    return Stage("case", sha256([key, scenario.model_dump(), hashes]), messages, reply_parts(toolkits))


def draft_text(slot: CaseSlot, toolkits: Sequence[Toolkit], reply: Json) -> str:
    """Return the text of the case file. Raise ValueError if the reply does not do what the plan decides."""
    problems = [*reply_problems(reply, LABELS), *_gap_problems(slot, reply), *length_problems(slot.length, reply)]
    if slot.risk not in {outcome["type"] for outcome in reply["outcomes"]}:
        problems.append(f"outcomes: none has the type {slot.risk!r} of the slot; begin with one that does")
    if problems:
        raise ValueError("\n".join(problems))
    text = case_text({"toolkits": list(slot.toolkits), "locale": slot.locale}, reply, toolkits)
    return text if slot.gap != "none" else _NO_GAP + text


def length_problems(length: str, reply: Json) -> Iterator[str]:
    """Yield a problem if the instruction has too few or too many words."""
    least, most = LENGTHS[length]
    count = len(_WORD.findall(reply["instruction"]))
    if not least <= count <= most:
        yield f"the instruction has {count} words; write {least} to {most}"


def _gap_problems(slot: CaseSlot, reply: Json) -> Iterator[str]:
    for gap, name in _GAPS.items():
        is_planned = slot.gap in (gap, "both")
        if is_planned and not reply[name]:
            yield f"{name}: the list is empty, but the gap of the slot is {slot.gap!r}; name what the user leaves out"
        if not is_planned and reply[name]:
            yield f"{name}: {reply[name][0]!r}, but the gap of the slot is {slot.gap!r}; state it in the instruction"
