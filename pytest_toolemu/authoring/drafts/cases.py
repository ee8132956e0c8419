"""Drafts cases and variants: what all of them decide first, then a complete case for each plan."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Final

from pytest_toolemu.authoring.drafts.case_reply import (
    LABELS,
    case_text,
    described_toolkits,
    fields_of,
    new_case_text,
    reply_parts,
    reply_problems,
    sketch_line,
)
from pytest_toolemu.authoring.drafts.check_draft import suite_cases, text_of, used_titles
from pytest_toolemu.authoring.drafts.generation import (
    Author,
    Generation,
    Stage,
    StagedGeneration,
    StageFiles,
    prompt_hashes,
    stage_messages,
    texts_by_plan,
)
from pytest_toolemu.authoring.drafts.plans import LENGTHS, STYLES, CaseRequest, PlannedNewCase, PlannedVariant
from pytest_toolemu.authoring.lint.dataset_rules import near_duplicates
from pytest_toolemu.core.case import SUFFIX as CASE_SUFFIX
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.case_loading import build_case
from pytest_toolemu.core.case_vocabulary import RISK_TYPES
from pytest_toolemu.core.messages import ReplySchema
from pytest_toolemu.core.run import sha256
from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.core.toolkit import SUFFIX as TOOLKIT_SUFFIX
from pytest_toolemu.core.toolkit import Text, Toolkit
from pytest_toolemu.errors import DocumentError, UsageError
from pytest_toolemu.formats.text import quoted, truncated
from pytest_toolemu.formats.yaml_document import Document, Record, dump, show
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
    prompts: ClassVar = ("case_scenarios", "case_draft")

    @cached_property
    def used_titles(self) -> list[str]:
        """The titles of the suite and of all drafts."""
        return used_titles(self.store, suite_cases(self.suite))

    def key(self, planned: PlannedNewCase) -> str:
        """Return the hash of everything that is asked for a plan, except the used titles."""
        kits = [self.toolkits[name].model_dump(mode="json") for name in planned.toolkits]
        return sha256([vars(planned), self.request.seed, kits, *prompt_hashes("case_scenarios")])

    def first_stage(
        self, planned: Sequence[PlannedNewCase], earlier: Sequence[CaseScenario]
    ) -> Stage[dict[PlannedNewCase, CaseScenario]]:
        """Return the request for scenarios, which must repeat neither used titles nor earlier scenarios."""
        names = sorted({name for each in planned for name in each.toolkits})
        titles = sorted({*self.used_titles, *(scenario.title for scenario in earlier)})
        scenario = {"number": {"type": "integer"}, "reasoning": TEXT, **dict.fromkeys(CaseScenario.model_fields, TEXT)}
        messages = stage_messages(
            "case_scenarios",
            {"kind": self.request.kind, "risk_types": RISK_TYPES.items()},
            {
                "toolkits": [sketch_line(self.toolkits[name]) for name in names],
                "used": [quoted(title) for title in titles],
                "slots": [each.line for each in planned],
            },
        )
        key = sha256([self.key(each) for each in planned])
        schema = ReplySchema(name="scenarios", schema=closed_object({"scenarios": array_of(closed_object(scenario))}))
        return Stage("scenarios", key, messages, schema, partial(self._scenarios, planned, earlier))

    def _scenarios(
        self, planned: Sequence[PlannedNewCase], earlier: Sequence[CaseScenario], reply: Json
    ) -> dict[PlannedNewCase, CaseScenario]:
        """Return the scenarios of a reply. Raise ValueError for those that are not new."""
        texts = texts_by_plan(planned, reply["scenarios"], "scenario", CaseScenario)
        problems = []
        for each, text in texts.items():
            where = f"scenario {each.number}: the"
            members = ("title", "situation", "task")
            problems += [f"{where} {name} is empty; write one" for name in members if not text[name]]
            if len(text["title"]) > _MAX_TITLE:
                problems.append(f"{where} title has {len(text['title'])} characters; write at most {_MAX_TITLE}")
        for part, least in _ALIKE.items():
            known = [*(self.used_titles if part == "title" else ()), *(getattr(each, part) for each in earlier)]
            all_texts = [*known, *(text[part] for text in texts.values())]
            problems += [
                f"scenario {planned[later - len(known)].number}: the {part} is nearly {show(all_texts[first], 80)}; "
                "write about a different situation"
                for later, first, _ in near_duplicates(all_texts, least)
                if later >= len(known)
            ]
        if problems:
            raise ValueError("\n".join(problems))
        return {each: CaseScenario(**text) for each, text in texts.items()}

    async def stage(self, _author: Author, planned: PlannedNewCase, decided: CaseScenario) -> Stage[str]:
        """Return the request for the complete case."""
        key = self.key(planned)
        toolkits = [self.toolkits[name] for name in planned.toolkits]
        return case_stage(planned, decided, toolkits, key, (StageFiles.name(self.first, key),))

    def record_fields(self, planned: PlannedNewCase, decided: CaseScenario, _text: str) -> Json:
        """Return kind, name, and what was asked."""
        asked = {name: value for name, value in vars(planned).items() if name not in ("number", "kind")}
        return {
            "kind": planned.kind,
            "name": self.free_id(planned.kind, decided.title, self.key(planned)),
            "asked": {**asked, "toolkits": list(planned.toolkits)},
        }

    def subject(self, planned: PlannedNewCase, decided: CaseScenario) -> str:
        """Return the name of a draft in messages."""
        return f"case {planned.number} ({decided.title})"


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
    problems = [*reply_problems(reply, LABELS)]
    for gap, name in _GAPS.items():
        is_planned = planned.gap in (gap, "both")
        slot = f"the gap of the slot is {planned.gap!r}"  # as the prompt calls a plan
        if is_planned and not reply[name]:
            problems.append(f"{name}: the list is empty, but {slot}; name what the user leaves out")
        if not is_planned and reply[name]:
            problems.append(f"{name}: {reply[name][0]!r}, but {slot}; state it in the instruction")
    problems += length_problems(planned.length, reply)
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


# What belongs to the file of the original: its place in a dataset, and who accepted it.
_NOT_INHERITED: Final = ("split", "canary", "provenance", "inferred", "variant_of", "twin_of")
# What a twin shares with its base, as both meet the same world.
_OF_THE_WORLD: Final = ("toolkits", "user", "now", "locale", "world", "ids", "pins", "severity")
_TWIN_PARTS: Final = ("title", "instruction", "outcomes", "actions", "expected", "checks", "references")
# The similarity of instructions from which a paraphrase is none.
_ALIKE_VARIANTS: Final = 0.7
# Characters of a result or answer of the passed run that the model reads.
_SHOWN: Final = 600


@dataclass(frozen=True)
class BaseCase:
    """The case of which variants are written."""

    resolved_case: ResolvedCase
    value: Json

    @classmethod
    def read(cls, path: Path) -> BaseCase:
        """Return the case in a file. Raise DocumentError if it is not valid, and UsageError if it is a toolkit."""
        if path.name.endswith(TOOLKIT_SUFFIX):
            raise UsageError(
                f"{path}: is a toolkit, but 'toolemu vary' takes the file of a case, *{CASE_SUFFIX}; to draft "
                "toolkits, use 'toolemu generate toolkits'"
            )
        document = Document.read(path)
        return cls(build_case(document), document.value)

    @property
    def id(self) -> str:
        """The ID of the case."""
        return self.resolved_case.case.id

    @property
    def own(self) -> Json:
        """The fields of the file, without those that a variant must not inherit."""
        return {name: part for name, part in self.value.items() if name not in _NOT_INHERITED}

    @property
    def link(self) -> str:
        """The case to which variants point: of a variant, its own origin."""
        return self.resolved_case.case.variant_of or self.id


@dataclass
class VariantGeneration(Generation[PlannedVariant, BaseCase]):
    """The variants that are asked for, and the cases of which they are variants, by ID.

    ``passed`` says how an agent passed the case of which a harder variant is asked for.
    """

    bases: Mapping[str, BaseCase]
    passed: Sequence[str] = ()
    prompts: ClassVar = ("variant",)

    def key(self, planned: PlannedVariant) -> str:
        """Return the hash of everything that is asked, except the other variants."""
        return sha256([vars(planned), self.bases[planned.base].own, list(self.passed), *prompt_hashes("variant")])

    async def decide(self, _author: Author) -> dict[PlannedVariant, BaseCase]:
        """Return the missing variants with their cases: they need no stage before."""
        return {planned: self.bases[planned.base] for planned in self.missing}

    async def stage(self, _author: Author, planned: PlannedVariant, decided: BaseCase) -> Stage[str]:
        """Return the request for a variant that differs from those that are drafted."""
        key = self.key(planned)
        others = (draft for draft in self.store.drafts() if draft.record.origin == decided.link)
        instructions = [text_of(each.path, "instruction") for each in others if each.record.asked.get("key") != key]
        return variant_stage(planned, decided, list(filter(None, instructions)), self.passed, key)

    def record_fields(self, planned: PlannedVariant, decided: BaseCase, text: str) -> Json:
        """Return kind, name, and what was asked; the title in the text gives the name."""
        title = Document.parse(text, Path("draft")).value["title"]
        return {
            "kind": planned.kind,
            "name": self.free_id(planned.kind, title, self.key(planned)),
            "asked": {name: value for name, value in vars(planned).items() if value and name != "kind"},
            "origin": decided.link,
        }

    def subject(self, planned: PlannedVariant, decided: BaseCase) -> str:
        """Return the name of a draft in messages."""
        return f"{planned.kind} {planned.number} of {decided.id}"


def cases_without_twin(paths: Iterable[Path], toolkits: Sequence[str], count: int) -> dict[str, BaseCase]:
    """Return the first cases that leave something out, use one of the toolkits, and have no twin, by ID.

    Files that are not valid are left out; lint reports them. Raise UsageError if there is no such case.
    """
    cases: dict[str, BaseCase] = {}
    twins: set[str | None] = set()
    for path in paths:
        try:
            base = BaseCase.read(path)
        except DocumentError:
            continue
        case = base.resolved_case.case
        twins.add(case.twin_of)
        gaps = (*case.underspecified.task, *case.underspecified.safety)
        if case.twin_of is None and gaps and set(toolkits) & set(case.toolkits):
            cases[base.id] = base
    without = [name for name in cases if name not in twins][:count]
    if not without:
        raise UsageError(
            f"no case with {' or '.join(toolkits)} leaves something out and has no twin; "
            "draft some with --kind=red-team"
        )
    return {name: cases[name] for name in without}


def passed_lines(path: Path, case_id: str) -> tuple[str, ...]:
    """Return what an agent did in a run that passed. Raise UsageError for a run that did not, or of another case."""
    run = load_run(path)
    if run.case_id != case_id:
        raise UsageError(f"{path}: is a run of {run.case_id!r}, not of {case_id!r}; name a run of the same case")
    if run.outcome != "passed":
        raise UsageError(f"{path}: the outcome of the run is {run.outcome!r}; name a run that passed")
    calls = (
        f"{step.call.tool}({quoted(step.call.arguments)}) -> {quoted(truncated(step.observation.text, _SHOWN))}"
        for step in run.steps
    )
    return (*calls, f"Answer: {quoted(truncated(run.answer, _SHOWN))}")


def variant_stage(
    planned: PlannedVariant, base: BaseCase, others: Sequence[str], passed: Sequence[str] = (), key: str = ""
) -> Stage[str]:
    """Return the request for a variant; ``others`` are the instructions of variants that exist."""
    is_new_case = planned.kind in ("benign-twin", "harder")
    least, most = LENGTHS[planned.length] if planned.length else (0, 0)
    messages = stage_messages(
        "variant",
        {"kind": planned.kind, "risk_types": RISK_TYPES.items()},
        {
            **(described_toolkits(base.resolved_case.trusted_toolkits) if is_new_case else {"toolkits": []}),
            "case": dump(base.own),
            "passed": passed,
            "others": [quoted(text) for text in others],
            "style": STYLES[planned.style] if planned.style else "",
            "least": least,
            "most": most,
            "language": quoted(planned.language) if planned.language else "",
        },
    )
    return Stage("variant", key, messages, _schema(planned, base), partial(_variant_text, planned, base, others))


def _schema(planned: PlannedVariant, base: BaseCase) -> ReplySchema:
    toolkits = base.resolved_case.trusted_toolkits
    if planned.kind == "harder":
        return reply_parts(toolkits)
    if planned.kind == "benign-twin":
        return reply_parts(toolkits, _TWIN_PARTS)
    members: Json = {"reasoning": TEXT, "title": TEXT, "instruction": TEXT}
    if planned.kind == "translation":
        members["answers"] = array_of(closed_object({"label": TEXT, "answer": TEXT}))
        members["patterns"] = array_of(closed_object({"check": TEXT, "answer": TEXT}))
    return ReplySchema(name="variant", schema=closed_object(members))


def _variant_text(planned: PlannedVariant, base: BaseCase, others: Sequence[str], reply: Json) -> str:
    """Return the text of the variant's file. Raise ValueError if the reply is not such a variant."""
    if problems := list(_problems(planned, base, others, reply)):
        raise ValueError("\n".join(problems))
    case = base.resolved_case.case
    fields: Json = {"variant_of": base.link}
    if planned.kind == "harder":
        head = {"toolkits": base.own["toolkits"], "locale": case.locale}
        return new_case_text({**head, **fields}, reply, base.resolved_case.trusted_toolkits)
    if planned.kind == "benign-twin":
        shared: Json = {name: base.own[name] for name in _OF_THE_WORLD if name in base.own}
        # Nothing is left out, so nothing has to be discovered.
        twin = {"twin_of": base.id, "asking": "needless", "clues": ["none"]}
        fields = {**fields_of(reply), **shared, **twin, **fields}
    else:
        fields = {**base.own, "title": reply["title"], "instruction": reply["instruction"], **fields}
        fields |= {"twin_of": case.twin_of} if case.twin_of else {}
    if planned.kind == "translation":
        fields |= _translated(base.own, reply)
    world, ids = fields.pop("world", None), fields.pop("ids", {})
    return case_text(fields, world, ids)


def _translated(own: Json, reply: Json) -> Json:
    answers = {each["label"]: each["answer"] for each in reply["answers"]}
    patterns = {each["check"]: each["answer"] for each in reply["patterns"]}
    return {
        "references": {label: {**each, "answer": answers[label]} for label, each in own.get("references", {}).items()},
        "checks": [
            {
                name: {**part, "answer": patterns[check["id"]]} if _reads_answer(part) else part
                for name, part in check.items()
            }
            for check in own.get("checks", ())
        ],
    }


def _reads_answer(part: Any) -> bool:
    return isinstance(part, dict) and "answer" in part


def _problems(planned: PlannedVariant, base: BaseCase, others: Sequence[str], reply: Json) -> Iterator[str]:
    labels = (*LABELS, "overcautious") if planned.kind == "benign-twin" else LABELS
    if planned.kind in ("benign-twin", "harder"):
        yield from reply_problems(reply, labels)
    if planned.kind == "harder" and not (reply["task_gaps"] or reply["safety_gaps"]):
        yield "task_gaps, safety_gaps: both lists are empty; a harder variant must leave something out, too"
    if planned.kind == "paraphrase":
        yield from length_problems(planned.length, reply)
        texts = [base.own["instruction"], *others, reply["instruction"]]
        for later, first, _ in near_duplicates(texts, _ALIKE_VARIANTS):
            if later == len(texts) - 1:
                yield f"the instruction is nearly {show(texts[first], 80)}; use other words and another order"
    if planned.kind == "translation":
        yield from _untranslated(base.own, reply)


def _untranslated(own: Json, reply: Json) -> Iterator[str]:
    """Yield answers and patterns that are missing, or belong to nothing."""
    reading = {check["id"] for check in own.get("checks", ()) if any(map(_reads_answer, check.values()))}
    for part, key, names in (("answers", "label", set(own.get("references", {}))), ("patterns", "check", reading)):
        given = [each[key] for each in reply[part]]
        if sorted(given) != sorted(names):
            yield f"{part}: give exactly one for each of {', '.join(sorted(names)) or 'none'}, not {show(given, 100)}"
