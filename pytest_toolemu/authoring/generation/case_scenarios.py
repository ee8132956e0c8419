"""The first stage of cases: scenarios for several slots at once, so that they differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from pytest_toolemu import prompts
from pytest_toolemu.authoring.generation.author import Stage
from pytest_toolemu.authoring.generation.case_material import sketch_line
from pytest_toolemu.authoring.generation.case_slots import CaseSlot, CaseWishes
from pytest_toolemu.authoring.lint.similar import near_duplicates
from pytest_toolemu.core.case_vocabulary import RISK_TYPES
from pytest_toolemu.core.messages import Message, ReplySchema
from pytest_toolemu.core.run import sha256
from pytest_toolemu.core.toolkit import Text, Toolkit
from pytest_toolemu.formats.visible_text import quoted
from pytest_toolemu.formats.yaml_document import Record, show
from pytest_toolemu.models.strict_schema import TEXT, array_of, closed_object

Json = dict[str, Any]

RULES: Final = "authoring/case_scenarios"
REQUEST: Final = "authoring/case_scenarios_request"
# The similarity from which two texts tell the same; as in the checks of drafts.
_ALIKE: Final = {"title": 0.5, "situation": 0.35}
_MAX_TITLE: Final = 80


class CaseScenario(Record):
    """The scenario of one slot."""

    title: Text
    situation: Text
    task: Text
    harm: str


def scenario_key(wishes: CaseWishes, slot: CaseSlot, toolkits: Mapping[str, Toolkit]) -> str:
    """Return the key of everything that is asked for a slot, except the used titles."""
    kits = [toolkits[name].model_dump(mode="json") for name in slot.toolkits]
    return sha256([vars(slot), wishes.seed, kits, prompts.prompt_hash(RULES), prompts.prompt_hash(REQUEST)])


def scenarios_stage(
    wishes: CaseWishes, slots: Sequence[CaseSlot], toolkits: Mapping[str, Toolkit], used: Sequence[str]
) -> Stage:
    """Return the request for the scenarios of several slots."""
    names = sorted({name for slot in slots for name in slot.toolkits})
    scenario = {"number": {"type": "integer"}, "reasoning": TEXT, **dict.fromkeys(CaseScenario.model_fields, TEXT)}
    messages = (
        Message(role="system", content=prompts.render(RULES, kind=wishes.kind, risk_types=RISK_TYPES.items())),
        Message(
            role="user",
            content=prompts.render(
                REQUEST,
                toolkits=[sketch_line(toolkits[name]) for name in names],
                used=[quoted(title) for title in used],
                slots=[slot.line for slot in slots],
            ),
        ),
    )
    key = sha256([scenario_key(wishes, slot, toolkits) for slot in slots])
    schema = ReplySchema(name="scenarios", schema=closed_object({"scenarios": array_of(closed_object(scenario))}))
    return Stage("scenarios", key, messages, schema)


def scenarios_parser(
    slots: Sequence[CaseSlot], used: Sequence[str], earlier: Sequence[CaseScenario]
) -> Callable[[Json], dict[CaseSlot, CaseScenario]]:
    """Return the function that reads the scenarios of these slots. It raises ValueError for those that are not new."""

    def parse(reply: Json) -> dict[CaseSlot, CaseScenario]:
        by_number = {each["number"]: each for each in reply["scenarios"]}
        if len(by_number) != len(reply["scenarios"]) or by_number.keys() != {slot.number for slot in slots}:
            raise ValueError(f"write exactly one scenario for each of {', '.join(str(slot.number) for slot in slots)}")
        texts = {
            slot: {name: " ".join(by_number[slot.number][name].split()) for name in CaseScenario.model_fields}
            for slot in slots
        }
        if problems := [*_text_problems(texts), *_repeated(texts, used, earlier)]:
            raise ValueError("\n".join(problems))
        return {slot: CaseScenario(**each) for slot, each in texts.items()}

    return parse


def _text_problems(texts: Mapping[CaseSlot, dict[str, str]]) -> Iterator[str]:
    for slot, each in texts.items():
        yield from (
            f"scenario {slot.number}: the {name} is empty; write one"
            for name in ("title", "situation", "task")
            if not each[name]
        )
        if len(each["title"]) > _MAX_TITLE:
            yield f"scenario {slot.number}: the title has {len(each['title'])} characters; write at most {_MAX_TITLE}"


def _repeated(
    texts: Mapping[CaseSlot, dict[str, str]], used: Sequence[str], earlier: Sequence[CaseScenario]
) -> Iterator[str]:
    """Yield the scenarios that repeat a used title, an earlier scenario, or another one of the reply."""
    slots = list(texts)
    known = {
        "title": [*used, *(scenario.title for scenario in earlier)],
        "situation": [scenario.situation for scenario in earlier],
    }
    for part, least in _ALIKE.items():
        all_texts = [*known[part], *(each[part] for each in texts.values())]
        for later, first, _ in near_duplicates(all_texts, least):
            if later >= len(known[part]):
                slot = slots[later - len(known[part])]
                other = show(all_texts[first], 80)
                yield f"scenario {slot.number}: the {part} is nearly {other}; write about a different situation"
