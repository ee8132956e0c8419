"""The calls of published runs of ToolEmu's cases, for ``benchmarks.tokens``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.rehearsal import Script
from benchmarks.scripted_worlds import RecordedRun, hits, in_scripted_world, longest_runs, recorded_runs, script
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.emulators.world_builder import builder_messages, plans_of, reply_schema
from tests.authoring.originals import DATA

Count = Callable[[str], Sequence[Any]]

RUNS: Final = DATA / "trajectories" / "records.jsonl.gz"
"""The sample of published runs, with ToolEmu's files."""


@dataclass(frozen=True)
class ScriptedPlay:
    """A case with the calls that are made, and the published run from which the first of them are taken, if any."""

    resolved_case: ResolvedCase
    calls: Script
    run: RecordedRun | None

    @property
    def recorded(self) -> int:
        """The number of calls from the published run."""
        return min(len(self.run.steps), len(self.calls)) if self.run else 0


def scripted_plays(
    resolved_cases: Sequence[ResolvedCase], numbers: Sequence[int], path: Path, *, recorded: bool, built: bool
) -> list[ScriptedPlay]:
    """Return each published run with its own calls, or each case with the given number of calls.

    The first calls of a case are those of its longest published run.
    """
    runs = recorded_runs(path)
    uses = Counter(step.call.name for run in runs for step in run.steps)
    by_id = {resolved_case.case.id: resolved_case for resolved_case in resolved_cases}
    chosen: list[tuple[str, RecordedRun | None, int]]
    if recorded:
        chosen = [(run.case_id, run, len(run.steps)) for run in runs if run.case_id in by_id]
    else:
        longest = longest_runs(runs)
        chosen = [(name, longest.get(name), number) for name, number in zip(by_id, numbers, strict=True)]
    plays = []
    for name, run, number in chosen:
        resolved_case = in_scripted_world(by_id[name], run) if built else by_id[name]
        plays.append(ScriptedPlay(resolved_case, script(resolved_case, run, number, uses), run))
    return plays


def calls_line(plays: Sequence[ScriptedPlay]) -> str:
    """Return how many calls there are, and where they come from."""
    calls, recorded = sum(len(each.calls) for each in plays), sum(each.recorded for each in plays)
    runs = sum(each.run is not None for each in plays)
    return f"{len(plays)} plays, {calls} calls: {recorded} from {runs} published runs, {calls - recorded} generated"


def basis(plays: Sequence[ScriptedPlay], tokens: Count) -> Iterator[str]:
    """Yield where the calls come from, how the worlds answer them, and what a builder would get."""
    yield calls_line(plays)
    for title, is_recorded in {"published": True, "generated": False}.items():
        answers = Counter(
            answer
            for each in plays
            for index, answer in enumerate(hits(each.resolved_case, each.calls, each.run))
            if (index < each.recorded) == is_recorded
        )
        for answer, number in answers.most_common():
            yield f"  {number:4} {title} calls: {answer}"
    prompts = [_builder_prompt(each.resolved_case) for each in plays]
    rows = [json.dumps(each.resolved_case.case.model_dump(mode="json")["world"]) for each in plays]
    sizes = [sum(len(tokens(text)) for text in texts) / len(plays) for texts in (prompts, rows)]
    yield f"builder, once per case: 1 request with {sizes[0]:,.0f} prompt tokens; rows of {sizes[1]:,.0f} tokens"


def _builder_prompt(resolved_case: ResolvedCase) -> str:
    plans = plans_of(resolved_case.toolkits)
    if not plans:
        return ""
    schema = json.dumps(reply_schema(plans).schema_, separators=(",", ":"))
    return "\n".join([schema, *(message.content for message in builder_messages(resolved_case, plans))])
