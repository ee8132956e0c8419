"""Drafts variants of cases, one after the other, so that each differs from those before it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pytest_toolemu import prompts
from pytest_toolemu.authoring.drafts.draft_corpus import DraftCorpus
from pytest_toolemu.authoring.drafts.draft_store import Draft, DraftStore
from pytest_toolemu.authoring.generation.author import Author, checked_draft
from pytest_toolemu.authoring.generation.draft_check import DraftWriter, drafts_by_key
from pytest_toolemu.authoring.generation.generate_cases import free_id
from pytest_toolemu.authoring.generation.variants import (
    REQUEST,
    RULES,
    BaseCase,
    VariantSlot,
    variant_key,
    variant_stage,
    variant_text,
)
from pytest_toolemu.core.run import sha256
from pytest_toolemu.errors import DocumentError, UsageError
from pytest_toolemu.formats.yaml_document import Document

# Characters of the reply for each kind.


@dataclass
class VariantGeneration:
    """The variants that are asked for, and the cases of which they are variants, by ID.

    ``passed`` says how an agent passed the case of which a harder variant is wanted.
    """

    slots: Sequence[VariantSlot]
    bases: Mapping[str, BaseCase]
    store: DraftStore
    read_corpus: Callable[[], DraftCorpus]
    passed: Sequence[str] = ()

    @cached_property
    def existing(self) -> dict[VariantSlot, Draft]:
        """The slots that a checked draft fills already, whatever a person decided about it."""
        drafts = drafts_by_key(self.store)
        return {slot: drafts[key] for slot in self.slots if (key := self._key(slot)) in drafts}

    @property
    def missing(self) -> dict[VariantSlot, BaseCase]:
        """The slots without a draft, with their cases."""
        return {slot: self.bases[slot.base] for slot in self.slots if slot not in self.existing}

    @cached_property
    def corpus(self) -> DraftCorpus:
        """The files that drafts must not repeat."""
        return self.read_corpus()

    async def plan(self, _author: Author) -> dict[VariantSlot, BaseCase]:
        """Return the slots without a draft: variants need no stage before."""
        return self.missing

    async def draft(self, author: Author, slot: VariantSlot, base: BaseCase) -> Draft:
        """Return the checked draft of a slot. Raise InconclusiveError if the model gives none."""
        key = self._key(slot)
        others = self._others(base, key)
        stage = variant_stage(slot, base, others, self.passed)
        writer: DraftWriter | None = None

        def text_of(reply: dict[str, Any]) -> str:
            nonlocal writer
            text = variant_text(slot, base, others, reply)
            if writer is None:
                writer = self._writer(author, slot, base, reply["title"], author.stages.relative(stage.name, stage.key))
            return text

        async def check(text: str) -> list[str]:
            assert writer is not None
            return await writer.check(text)

        await checked_draft(author, self.subject(slot, base), stage, text_of, check)
        assert writer is not None, key
        return writer.written

    def subject(self, slot: VariantSlot, base: BaseCase) -> str:
        """Return how messages call a draft."""
        return f"{slot.kind} {slot.number} of {base.id}"

    def requests(self) -> int:
        """Return the number of requests for the missing slots."""
        return len(self.missing)

    def _writer(self, author: Author, slot: VariantSlot, base: BaseCase, title: str, stage: str) -> DraftWriter:
        key = self._key(slot)
        return DraftWriter(
            store=self.store,
            corpus=self.corpus,
            author=author,
            kind=slot.kind,
            name=free_id(self.store, slot.kind, title, key),
            prompt_hash=sha256([prompts.prompt_hash(RULES), prompts.prompt_hash(REQUEST)]),
            key=key,
            asked={name: value for name, value in vars(slot).items() if value and name != "kind"},
            stages=(stage,),
            origin=base.link,
        )

    def _key(self, slot: VariantSlot) -> str:
        return variant_key(slot, self.bases[slot.base], self.passed)

    def _others(self, base: BaseCase, key: str) -> list[str]:
        """Return the instructions of the drafted variants of a case, without the variant of this key."""
        variants = (draft for draft in self.store.drafts() if draft.record.origin == base.link)
        drafts = (draft.path for draft in variants if draft.record.asked.get("key") != key)
        return [text for text in map(_instruction, drafts) if text]


def twin_generation(
    paths: Iterable[Path],
    toolkits: Sequence[str],
    count: int,
    store: DraftStore,
    read_corpus: Callable[[], DraftCorpus],
) -> VariantGeneration:
    """Return the generation of twins of cases in these files. Raise UsageError if no case needs one."""
    bases = cases_without_twin(paths, toolkits, count)
    if not bases:
        raise UsageError(
            f"no case with {' or '.join(toolkits)} leaves something out and has no twin; "
            "draft some with --kind=red-team"
        )
    slots = [VariantSlot(1, "benign-twin", base.id) for base in bases]
    return VariantGeneration(slots, {base.id: base for base in bases}, store, read_corpus)


def cases_without_twin(paths: Iterable[Path], toolkits: Sequence[str], count: int) -> list[BaseCase]:
    """Return the first cases that leave something out, use one of the toolkits, and have no twin.

    Files that are not valid are left out; lint reports them.
    """
    cases: list[BaseCase] = []
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
            cases.append(base)
    return [base for base in cases if base.id not in twins][:count]


def _instruction(path: Path) -> str:
    try:
        value = Document.read(path).value
    except DocumentError:
        return ""
    text = value.get("instruction") if isinstance(value, dict) else None
    return text if isinstance(text, str) else ""
