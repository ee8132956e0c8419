"""Drafts cases: plans scenarios that differ, then writes and checks a complete case for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from pytest_toolemu import prompts
from pytest_toolemu.authoring.drafts.draft_corpus import DraftCorpus
from pytest_toolemu.authoring.drafts.draft_store import Draft, DraftStore
from pytest_toolemu.authoring.generation import case_drafting, case_scenarios
from pytest_toolemu.authoring.generation.author import Author, checked_draft
from pytest_toolemu.authoring.generation.case_scenarios import CaseScenario
from pytest_toolemu.authoring.generation.case_slots import CaseSlot, CaseWishes
from pytest_toolemu.authoring.generation.draft_check import DraftWriter, drafts_by_key
from pytest_toolemu.authoring.generation.existing_files import suite_cases, used_titles
from pytest_toolemu.authoring.generation.stage_files import StageFiles
from pytest_toolemu.core.run import sha256
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.formats.identifiers import slug

_BATCH: Final = 6
_SCENARIO: Final = "scenario"
_MAX_ID: Final = 60
PROMPTS: Final = (case_scenarios.RULES, case_scenarios.REQUEST, case_drafting.RULES, case_drafting.REQUEST)
# Characters of the reply of each stage.


@dataclass
class CaseGeneration:
    """The cases that are asked for, their toolkits by name, and the folders of the drafts and of the suite."""

    wishes: CaseWishes
    toolkits: Mapping[str, Toolkit]
    store: DraftStore
    read_corpus: Callable[[], DraftCorpus]
    suite: Path = Path()

    @cached_property
    def existing(self) -> dict[CaseSlot, Draft]:
        """The slots that a checked draft fills already, whatever a person decided about it."""
        drafts = drafts_by_key(self.store)
        return {slot: drafts[key] for slot in self.wishes.slots if (key := self._key(slot)) in drafts}

    @property
    def missing(self) -> list[CaseSlot]:
        """The slots without a draft."""
        return [slot for slot in self.wishes.slots if slot not in self.existing]

    @cached_property
    def corpus(self) -> DraftCorpus:
        """The files that drafts must not repeat."""
        return self.read_corpus()

    @cached_property
    def used_titles(self) -> list[str]:
        """The titles of the suite and of all drafts."""
        return used_titles(self.store, suite_cases(self.suite))

    async def plan(self, author: Author) -> dict[CaseSlot, CaseScenario]:
        """Return a scenario for each missing slot; those of an earlier run are kept."""
        scenarios = self._stored(author.stages)
        for batch in self._batches(author.stages):
            earlier = list(scenarios.values())
            titles = sorted({*self.used_titles, *(scenario.title for scenario in earlier)})
            stage = case_scenarios.scenarios_stage(self.wishes, batch, self.toolkits, titles)
            _, planned = await author.ask(stage, case_scenarios.scenarios_parser(batch, self.used_titles, earlier))
            for slot, scenario in planned.items():
                author.stages.write(_SCENARIO, self._key(slot), scenario.model_dump(), author.model.identity)
            scenarios |= planned
        return scenarios

    async def draft(self, author: Author, slot: CaseSlot, scenario: CaseScenario) -> Draft:
        """Return the checked draft of a slot. Raise InconclusiveError if the model gives none."""
        toolkits = self._toolkits(slot)
        stage = case_drafting.draft_stage(slot, scenario, toolkits, self._key(slot))
        key = self._key(slot)
        asked = {name: value for name, value in vars(slot).items() if name not in ("number", "kind")}
        writer = DraftWriter(
            store=self.store,
            corpus=self.corpus,
            author=author,
            kind=slot.kind,
            name=free_id(self.store, slot.kind, scenario.title, key),
            prompt_hash=sha256([prompts.prompt_hash(name) for name in PROMPTS]),
            key=key,
            asked={**asked, "toolkits": list(slot.toolkits)},
            stages=(author.stages.relative(_SCENARIO, key), author.stages.relative(stage.name, stage.key)),
        )
        subject = self.subject(slot, scenario)

        def text_of(reply: dict[str, Any]) -> str:
            return case_drafting.draft_text(slot, toolkits, reply)

        await checked_draft(author, subject, stage, text_of, writer.check)
        return writer.written

    def subject(self, slot: CaseSlot, scenario: CaseScenario) -> str:
        """Return how messages call a draft."""
        return f"case {slot.number} ({scenario.title})"

    def requests(self) -> int:
        """Return the number of requests for the missing slots: one for each, and for each batch of scenarios."""
        return len(list(self._batches(StageFiles(self.store.folder)))) + len(self.missing)

    def _key(self, slot: CaseSlot) -> str:
        return case_scenarios.scenario_key(self.wishes, slot, self.toolkits)

    def _toolkits(self, slot: CaseSlot) -> tuple[Toolkit, ...]:
        return tuple(self.toolkits[name] for name in slot.toolkits)

    def _stored(self, files: StageFiles) -> dict[CaseSlot, CaseScenario]:
        stored = {slot: files.read_record(_SCENARIO, self._key(slot), CaseScenario) for slot in self.missing}
        return {slot: scenario for slot, scenario in stored.items() if scenario is not None}

    def _batches(self, files: StageFiles) -> list[list[CaseSlot]]:
        """Return the slots without a scenario, in groups that share a request."""
        stored = self._stored(files)
        slots = [slot for slot in self.missing if slot not in stored]
        return [slots[start : start + _BATCH] for start in range(0, len(slots), _BATCH)]


def free_id(store: DraftStore, kind: Any, title: str, key: str) -> str:
    """Return an ID for a new case: its title in letters, digits, and hyphens, with a part of the key if it is taken.

    A draft of the same key keeps its ID.
    """
    base = slug(title)[:_MAX_ID].strip("-") or "case"
    earlier = store.find(kind, base)
    is_free = earlier is None and not store.path_of(kind, base).exists()
    if is_free or (earlier is not None and earlier.record.asked.get("key") == key):
        return base
    return f"{base}-{key[:6]}"
