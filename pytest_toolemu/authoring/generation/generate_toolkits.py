"""Drafts toolkits: proposes names that are new, then designs, specifies, and checks each toolkit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from pytest_toolemu import prompts
from pytest_toolemu.authoring.drafts.draft_corpus import DraftCorpus
from pytest_toolemu.authoring.drafts.draft_store import Draft, DraftStore
from pytest_toolemu.authoring.generation import toolkit_stages as stages
from pytest_toolemu.authoring.generation.author import Author, checked_draft
from pytest_toolemu.authoring.generation.draft_check import DraftWriter, drafts_by_key
from pytest_toolemu.authoring.generation.existing_files import used_names
from pytest_toolemu.authoring.generation.stage_files import StageFiles
from pytest_toolemu.authoring.generation.toolkit_slots import ToolkitSlot, ToolkitWishes
from pytest_toolemu.authoring.generation.toolkit_stages import ProposedToolkit, UsedNames
from pytest_toolemu.core.run import sha256

_BATCH: Final = 8
_NAMES: Final = "names"
# Characters of the reply of each stage.


@dataclass
class ToolkitGeneration:
    """The toolkits that are asked for, and the folder in which their drafts are kept."""

    wishes: ToolkitWishes
    store: DraftStore
    read_corpus: Callable[[], DraftCorpus]

    @cached_property
    def existing(self) -> dict[ToolkitSlot, Draft]:
        """The slots that a checked draft fills already, whatever a person decided about it."""
        drafts = drafts_by_key(self.store)
        return {slot: drafts[key] for slot in self.wishes.slots if (key := self._key(slot)) in drafts}

    @property
    def missing(self) -> list[ToolkitSlot]:
        """The slots without a draft."""
        return [slot for slot in self.wishes.slots if slot not in self.existing]

    @cached_property
    def corpus(self) -> DraftCorpus:
        """The files that drafts must not repeat."""
        return self.read_corpus()

    async def plan(self, author: Author) -> dict[ToolkitSlot, ProposedToolkit]:
        """Return a proposal for each missing slot; those of an earlier run are kept."""
        proposals = self._stored(author.stages)
        used = used_names(self.store)
        for batch in self._batches(author.stages):
            known = _with(used, proposals)
            parse = stages.proposals_parser(batch, known)
            _, proposed = await author.ask(stages.names_stage(self.wishes, batch, known), parse)
            for slot, proposal in proposed.items():
                author.stages.write(_NAMES, self._key(slot), proposal.model_dump(), author.model.identity)
            proposals |= proposed
        return proposals

    async def draft(self, author: Author, slot: ToolkitSlot, proposal: ProposedToolkit) -> Draft:
        """Return the checked draft of a slot. Raise InconclusiveError if the model gives none."""
        notes_stage = stages.notes_stage(self.wishes, slot, proposal)
        notes = await author.reply(notes_stage, stages.parse_notes)
        stage = stages.specification_stage(proposal, notes, notes_stage.key)
        writer = DraftWriter(
            store=self.store,
            corpus=self.corpus,
            kind="toolkit",
            name=proposal.name,
            author=author,
            prompt_hash=sha256([prompts.prompt_hash(name) for name in stages.PROMPTS]),
            key=self._key(slot),
            asked={
                "slot": slot.line,
                "topic": self.wishes.topic,
                "brainstorm": self.wishes.brainstorm,
                "risk_oriented": self.wishes.risk_oriented,
            },
            stages=tuple(
                author.stages.relative(name, key)
                for name, key in ((_NAMES, self._key(slot)), ("notes", notes_stage.key), (stage.name, stage.key))
            ),
        )
        subject = self.subject(slot, proposal)

        def text_of(reply: dict[str, Any]) -> str:
            return stages.toolkit_text(proposal, notes, reply)

        await checked_draft(author, subject, stage, text_of, writer.check)
        return writer.written

    def subject(self, slot: ToolkitSlot, proposal: ProposedToolkit) -> str:
        """Return how messages call a draft."""
        return f"toolkit {slot.number} ({proposal.name})"

    def requests(self) -> int:
        """Return the number of requests for the missing slots: two for each, and one for each batch of names."""
        return len(list(self._batches(StageFiles(self.store.folder)))) + 2 * len(self.missing)

    def _key(self, slot: ToolkitSlot) -> str:
        return stages.names_key(self.wishes, slot)

    def _stored(self, files: StageFiles) -> dict[ToolkitSlot, ProposedToolkit]:
        stored = {slot: files.read_record(_NAMES, self._key(slot), ProposedToolkit) for slot in self.missing}
        return {slot: proposal for slot, proposal in stored.items() if proposal is not None}

    def _batches(self, files: StageFiles) -> list[list[ToolkitSlot]]:
        """Return the slots without a name, in groups that share a request."""
        stored = self._stored(files)
        slots = [slot for slot in self.missing if slot not in stored]
        return [slots[start : start + _BATCH] for start in range(0, len(slots), _BATCH)]


def _with(used: UsedNames, proposals: dict[ToolkitSlot, ProposedToolkit]) -> UsedNames:
    named = {proposal.name: proposal.description for proposal in proposals.values()}
    categories = {proposal.category for proposal in proposals.values()}
    return UsedNames({**used.descriptions, **named}, (*used.categories, *sorted(categories)))
