"""Drafts cases: scenarios that differ for all plans, then a complete case for each scenario."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Final

from pytest_toolemu.authoring.drafts.author import Author, Stage, StageFiles, prompt_hashes, stage_messages
from pytest_toolemu.authoring.drafts.case_reply import (
    LABELS,
    described_toolkits,
    new_case_text,
    reply_parts,
    reply_problems,
    sketch_line,
)
from pytest_toolemu.authoring.drafts.draft_corpus import suite_cases, used_titles
from pytest_toolemu.authoring.drafts.generation import StagedGeneration
from pytest_toolemu.authoring.drafts.plans import LENGTHS, STYLES, CaseRequest, PlannedNewCase
from pytest_toolemu.authoring.lint.dataset_rules import near_duplicates
from pytest_toolemu.core.case_vocabulary import RISK_TYPES
from pytest_toolemu.core.messages import ReplySchema
from pytest_toolemu.core.run import sha256
from pytest_toolemu.core.toolkit import Text, Toolkit
from pytest_toolemu.formats.visible_text import quoted
from pytest_toolemu.formats.yaml_document import Record, show
from pytest_toolemu.models.strict_schema import TEXT, array_of, closed_object

Json = dict[str, Any]

# The similarity from which two texts tell the same; as in the checks of drafts.
_ALIKE: Final = {"title": 0.5, "situation": 0.35}
_MAX_TITLE: Final = 80
_WORD: Final = re.compile(r"\w+(?:['\u2019.-]\w+)*")
_NO_GAP: Final = "# toolemu: allow no-gap: a standard case leaves nothing out.\n"
_GAPS: Final = {"task": "task_gaps", "safety": "safety_gaps"}


class CaseScenario(Record):
    """The scenario of one plan."""

    title: Text
    situation: Text
    task: Text
    harm: str


@dataclass
class CaseGeneration(StagedGeneration[PlannedNewCase, CaseScenario]):
    """The cases that are asked for, their toolkits by name, and the folder of the suite."""

    request: CaseRequest
    toolkits: Mapping[str, Toolkit]
    suite: Path = Path()
    first: ClassVar = "scenario"
    batch: ClassVar = 6
    decision: ClassVar = CaseScenario

    @cached_property
    def used_titles(self) -> list[str]:
        """The titles of the suite and of all drafts."""
        return used_titles(self.store, suite_cases(self.suite))

    def key(self, planned: PlannedNewCase) -> str:
        """Return the hash of everything that is asked for a plan, except the used titles."""
        return scenario_key(self.request, planned, self.toolkits)

    def first_stage(
        self, planned: Sequence[PlannedNewCase], earlier: Sequence[CaseScenario]
    ) -> Stage[dict[PlannedNewCase, CaseScenario]]:
        """Return the request for the scenarios of several cases."""
        return scenarios_stage(self.request, planned, self.toolkits, self.used_titles, earlier)

    async def stage(self, _author: Author, planned: PlannedNewCase, decided: CaseScenario) -> Stage[str]:
        """Return the request for the complete case."""
        key = self.key(planned)
        toolkits = [self.toolkits[name] for name in planned.toolkits]
        return case_stage(planned, decided, toolkits, key, (StageFiles.name(self.first, key),))

    def record_fields(self, planned: PlannedNewCase, decided: CaseScenario, _text: str) -> Json:
        """Return kind, name, what was asked, and the hash of the prompts."""
        asked = {name: value for name, value in vars(planned).items() if name not in ("number", "kind")}
        return {
            "kind": planned.kind,
            "name": self.free_id(planned.kind, decided.title, self.key(planned)),
            "prompt_hash": sha256(prompt_hashes("case_scenarios", "case_draft")),
            "asked": {**asked, "toolkits": list(planned.toolkits)},
        }

    def subject(self, planned: PlannedNewCase, decided: CaseScenario) -> str:
        """Return the name of a draft in messages."""
        return f"case {planned.number} ({decided.title})"


def scenario_key(request: CaseRequest, planned: PlannedNewCase, toolkits: Mapping[str, Toolkit]) -> str:
    """Return the key of everything that is asked for a plan, except the used titles."""
    kits = [toolkits[name].model_dump(mode="json") for name in planned.toolkits]
    return sha256([vars(planned), request.seed, kits, *prompt_hashes("case_scenarios")])


def scenarios_stage(
    request: CaseRequest,
    planned: Sequence[PlannedNewCase],
    toolkits: Mapping[str, Toolkit],
    used: Sequence[str],
    earlier: Sequence[CaseScenario] = (),
) -> Stage[dict[PlannedNewCase, CaseScenario]]:
    """Return the request for the scenarios of several cases, which must repeat neither used titles nor earlier ones."""
    names = sorted({name for each in planned for name in each.toolkits})
    titles = sorted({*used, *(scenario.title for scenario in earlier)})
    scenario = {"number": {"type": "integer"}, "reasoning": TEXT, **dict.fromkeys(CaseScenario.model_fields, TEXT)}
    messages = stage_messages(
        "case_scenarios",
        {"kind": request.kind, "risk_types": RISK_TYPES.items()},
        {
            "toolkits": [sketch_line(toolkits[name]) for name in names],
            "used": [quoted(title) for title in titles],
            "slots": [each.line for each in planned],
        },
    )
    key = sha256([scenario_key(request, each, toolkits) for each in planned])
    schema = ReplySchema(name="scenarios", schema=closed_object({"scenarios": array_of(closed_object(scenario))}))
    return Stage("scenarios", key, messages, schema, partial(_scenarios, planned, used, earlier))


def _scenarios(
    planned: Sequence[PlannedNewCase], used: Sequence[str], earlier: Sequence[CaseScenario], reply: Json
) -> dict[PlannedNewCase, CaseScenario]:
    """Return the scenarios of a reply. Raise ValueError for those that are not new."""
    by_number = {each["number"]: each for each in reply["scenarios"]}
    if len(by_number) != len(reply["scenarios"]) or by_number.keys() != {each.number for each in planned}:
        raise ValueError(f"write exactly one scenario for each of {', '.join(str(each.number) for each in planned)}")
    texts = {
        each: {name: " ".join(by_number[each.number][name].split()) for name in CaseScenario.model_fields}
        for each in planned
    }
    if problems := [*_text_problems(texts), *_repeated(texts, used, earlier)]:
        raise ValueError("\n".join(problems))
    return {each: CaseScenario(**text) for each, text in texts.items()}


def _text_problems(texts: Mapping[PlannedNewCase, dict[str, str]]) -> Iterator[str]:
    for planned, each in texts.items():
        yield from (
            f"scenario {planned.number}: the {name} is empty; write one"
            for name in ("title", "situation", "task")
            if not each[name]
        )
        if len(each["title"]) > _MAX_TITLE:
            yield (
                f"scenario {planned.number}: the title has {len(each['title'])} characters; write at most {_MAX_TITLE}"
            )


def _repeated(
    texts: Mapping[PlannedNewCase, dict[str, str]], used: Sequence[str], earlier: Sequence[CaseScenario]
) -> Iterator[str]:
    """Yield the scenarios that repeat a used title, an earlier scenario, or another one of the reply."""
    plans = list(texts)
    known = {
        "title": [*used, *(scenario.title for scenario in earlier)],
        "situation": [scenario.situation for scenario in earlier],
    }
    for part, least in _ALIKE.items():
        all_texts = [*known[part], *(each[part] for each in texts.values())]
        for later, first, _ in near_duplicates(all_texts, least):
            if later >= len(known[part]):
                number = plans[later - len(known[part])].number
                other = show(all_texts[first], 80)
                yield f"scenario {number}: the {part} is nearly {other}; write about a different situation"


def case_stage(
    planned: PlannedNewCase,
    scenario: CaseScenario,
    toolkits: Sequence[Toolkit],
    key: str = "",
    earlier: tuple[str, ...] = (),
) -> Stage[str]:
    """Return the request for the complete case of a plan; ``key`` is that of its scenario."""
    least, most = LENGTHS[planned.length]
    messages = stage_messages(
        "case_draft",
        {"kind": planned.kind, "risk_types": RISK_TYPES.items()},
        {
            **described_toolkits(toolkits),
            **{name: quoted(text) for name, text in scenario.model_dump().items()},
            "slot": planned.line,
            "style": STYLES[planned.style],
            "least": least,
            "most": most,
        },
    )
    key = sha256([key, scenario.model_dump(), prompt_hashes("case_draft")])
    return Stage("case", key, messages, reply_parts(toolkits), partial(_text, planned, toolkits), earlier)


def _text(planned: PlannedNewCase, toolkits: Sequence[Toolkit], reply: Json) -> str:
    """Return the text of the case file. Raise ValueError if the reply does not do what the plan decides."""
    problems = [*reply_problems(reply, LABELS), *_gap_problems(planned, reply), *length_problems(planned.length, reply)]
    if planned.risk not in {outcome["type"] for outcome in reply["outcomes"]}:
        problems.append(f"outcomes: none has the type {planned.risk!r} of the slot; begin with one that does")
    if problems:
        raise ValueError("\n".join(problems))
    text = new_case_text({"toolkits": list(planned.toolkits), "locale": planned.locale}, reply, toolkits)
    return text if planned.gap != "none" else _NO_GAP + text


def length_problems(length: str, reply: Json) -> Iterator[str]:
    """Yield a problem if the instruction has too few or too many words."""
    least, most = LENGTHS[length]
    count = len(_WORD.findall(reply["instruction"]))
    if not least <= count <= most:
        yield f"the instruction has {count} words; write {least} to {most}"


def _gap_problems(planned: PlannedNewCase, reply: Json) -> Iterator[str]:
    for gap, name in _GAPS.items():
        is_planned = planned.gap in (gap, "both")
        slot = f"the gap of the slot is {planned.gap!r}"  # as the prompt calls a plan
        if is_planned and not reply[name]:
            yield f"{name}: the list is empty, but {slot}; name what the user leaves out"
        if not is_planned and reply[name]:
            yield f"{name}: {reply[name][0]!r}, but {slot}; state it in the instruction"
