"""Plans the variants that the options of ``toolemu vary`` ask for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pytest_toolemu.authoring.generation.case_slots import LENGTHS, STYLES
from pytest_toolemu.authoring.generation.quotas import spread
from pytest_toolemu.authoring.generation.variants import VariantKind, VariantSlot
from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.truncation import truncated
from pytest_toolemu.formats.visible_text import quoted
from pytest_toolemu.formats.yaml_document import closest

# Characters of a result or answer of the passed run that the model reads.
_SHOWN: Final = 600


@dataclass(frozen=True)
class VariantWishes:
    """What the user asks for. Raise UsageError if options contradict each other."""

    kind: VariantKind
    count: int = 1
    styles: tuple[str, ...] = ()
    lengths: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    seed: int = 0
    has_run: bool = False

    def __post_init__(self) -> None:
        for option, belongs_to, is_given in (
            ("--style", "paraphrase", self.styles),
            ("--length", "paraphrase", self.lengths),
            ("--language", "translation", self.languages),
            ("--passed", "harder", self.has_run),
        ):
            if is_given and self.kind != belongs_to:
                raise UsageError(
                    f"{option} requires --as={belongs_to}, but --as is {self.kind}; change --as, or remove {option}"
                )
        _refuse_unknown("--style", self.styles, STYLES)
        _refuse_unknown("--length", self.lengths, LENGTHS)
        if self.kind == "translation" and not self.languages:
            raise UsageError("--as=translation needs a language; add one, such as --language=German")
        if self.count > 1 and self.kind in ("benign-twin", "translation"):
            reason = "has one twin" if self.kind == "benign-twin" else "is translated once for each --language"
            raise UsageError(f"--count={self.count}: a case {reason}; remove --count")

    def slots(self, base: str) -> list[VariantSlot]:
        """Return the slots of the variants of a case, by its ID. A slot does not change if the count grows."""
        if self.kind == "translation":
            return [VariantSlot(1, self.kind, base, language=language) for language in dict.fromkeys(self.languages)]
        return [self._slot(index, base) for index in range(self.count)]

    def _slot(self, index: int, base: str) -> VariantSlot:
        if self.kind != "paraphrase":
            return VariantSlot(index + 1, self.kind, base, seed=self.seed)
        return VariantSlot(
            index + 1,
            self.kind,
            base,
            style=spread(self.styles or tuple(STYLES), index, f"style {base} {self.seed}"),
            length=spread(self.lengths or tuple(LENGTHS), index, f"length {base} {self.seed}"),
            seed=self.seed,
        )


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


def _refuse_unknown(option: str, values: Sequence[str], allowed: Iterable[str]) -> None:
    for value in values:
        if value not in allowed:
            raise UsageError(f"{option}={value} is not possible{closest(value, allowed)}")
