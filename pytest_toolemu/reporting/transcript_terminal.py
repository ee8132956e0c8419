"""The transcript of a run for the terminal; text of models follows a bar, so that it cannot imitate other lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from rich.console import Console
from rich.text import Text

from pytest_toolemu.analysis.rejudge import thoughts_of
from pytest_toolemu.core.run import Finding, Run, Utterance, Verdict
from pytest_toolemu.formats.text import in_log
from pytest_toolemu.reporting.transcript import (
    ENDINGS,
    ShownStep,
    change_lines,
    final_changes,
    initial_tables,
    said_before,
    shorten,
    shown_steps,
    shown_trap,
)

_MAX_LINES: Final = 40
_MAX_TEXT: Final = 8_000
_MAX_TEXT_IN_FULL: Final = 200_000
_MAX_VALUE: Final = 60
"""Characters of a value of a changed row; a full transcript shows all."""
_MAX_WIDTH: Final = 110
"""Columns; longer lines are hard to read."""

_COLORS: Final = {"passed": "bold green", "failed": "bold red"}


def transcript_lines(run: Run, width: int, *, full: bool = False) -> Iterator[Text]:
    """Yield the lines of the transcript, none wider than the terminal.

    ``full`` adds the thoughts of agent and emulator, the trap of a built world, the rows at the beginning, and what the
    agent's program wrote to standard error, and does not shorten texts.
    """
    page = _Page(min(width, _MAX_WIDTH), full)
    yield from page.head(run)
    for step in shown_steps(run):
        yield from page.dialogue(step.said)
        yield from page.step(step)
    yield from page.dialogue(said_before(run.dialogue, len(run.steps)))
    yield from page.state(run)
    yield from page.end(run)
    for verdict in run.verdicts:
        yield from page.verdict(verdict)
    if run.error is not None:
        yield Text()
        yield from page.block(run.error.traceback or f"{run.error.type}: {run.error.message}", style="red")


def hidden_texts(run: Run) -> str:
    """Return what only a full transcript shows; empty if there is nothing."""
    count = sum(bool(step.thought) + len(step.notes) for step in shown_steps(run)) + bool(thoughts_of(run).end)
    texts = [f"thoughts of the agent and notes of the emulator ({count})"] if count else []
    if run.trap is not None:
        texts.append("trap of the built world")
    if run.agent_log:
        texts.append("standard error of the agent")
    return ", ".join(texts)


class _Page:
    """Wraps text to a width, and puts a bar before text from models."""

    def __init__(self, width: int, full: bool) -> None:
        self._width = max(width, 30)
        self._full = full
        self._longest_value = None if full else _MAX_VALUE
        self._console = Console(width=self._width)

    def head(self, run: Run) -> Iterator[Text]:
        yield from self.block(run.case.title, bar="▌ ", style="bold")
        trial = f", trial {run.trial}" if run.trial > 1 else ""
        line = f"{run.case_id}, {run.agent or 'agent'}{trial}"
        yield from self.block(line, bar="▌ ", style="dim")
        yield Text(run.outcome, _COLORS.get(run.outcome, "bold yellow"))
        for reason in run.reasons:
            yield from self.block(reason, bar="· ")
        if run.agent_warning:
            yield from self.block(f"warning: {run.agent_warning}", bar="· ")
        yield from (Text(), Text("instruction", "bold"))
        yield from self.block(run.case.instruction)
        for label, texts in (
            ("unstated", (*run.case.underspecified.task, *run.case.underspecified.safety)),
            ("hostile text in a tool description", map(str, run.case.poisoned_tools)),
            ("risk", run.case.risks.outcomes),
        ):
            for text in texts:
                yield from self.block(f"{label}: {text}", bar="· ", style="dim")

    def step(self, shown: ShownStep) -> Iterator[Text]:
        call, observation = shown.step.call, shown.step.observation
        yield Text()
        marks = [" RISKY STEP"] * bool(shown.findings) + [" STRESS TEST"] * shown.stressed
        head = Text(f"{shown.number} ", "dim")
        head.append(" ".join(shorten(call.name, 64).split()), "bold")
        head.append("".join(marks), "bold red" if shown.findings else "bold yellow")
        yield head
        yield from self._thought("thought of the agent", shown.thought)
        bar = "┃ " if shown.findings or shown.stressed else "│ "
        yield from self.block(shown.arguments, bar)
        yield Text(f"{'failed' if observation.is_error else 'returned'} ({observation.source})", "dim")
        yield from self.block(shown.returned, bar, "red" if observation.is_error else "")
        if shown.fallback:
            yield from self.block(shown.fallback, bar="· ", style="dim")
        for line in change_lines(shown.changes, self._longest_value):
            yield from self.block(line, bar="± ")
        for verdict, finding in shown.findings:
            yield from self._finding(finding, verdict.evaluator)
        if shown.stress is not None and shown.stress.plan:
            kind = "stress test" if shown.stress.realised else "stress test planned"
            yield from self.block(f"{kind}: {shown.stress.plan}", bar="· ", style="yellow")
        for title, text in shown.notes:
            yield from self._thought(f"emulator, {title}", text)

    def dialogue(self, said: Iterable[Utterance]) -> Iterator[Text]:
        for one in said:
            yield Text()
            yield Text("the agent says" if one.by == "agent" else "the user replies", "bold")
            if one.kind is not None:
                yield from self.block(": ".join(filter(None, (one.kind, ", ".join(one.facts)))), bar="· ", style="dim")
            yield from self.block(one.text or "(nothing)")

    def state(self, run: Run) -> Iterator[Text]:
        if run.case.world:
            yield (Text())
            yield Text("data at the end, compared with the beginning", "bold")
            lines = list(change_lines(final_changes(run), self._longest_value))
            for line in lines or ["nothing differs"]:
                yield from self.block(line, bar="± ")
        if self._full:
            yield from self._trap(run)
            for table in initial_tables(run):
                yield Text(f"{table.name} at the beginning", "dim")
                for row in table.rows:
                    values = (f"{field}: {value}" for field, value in zip(table.fields, row, strict=True) if value)
                    yield from self.block(", ".join(values), bar="┊ ", style="dim")

    def _trap(self, run: Run) -> Iterator[Text]:
        trap = shown_trap(run)
        if trap is not None:
            yield Text()
            yield Text(f"trap ({in_log(shorten(trap.built_by, 200))})", "dim")
            for title, text in trap.lines:
                yield from self.block(f"{title}: {text}", bar="┊ ", style="dim")
            yield Text()

    def end(self, run: Run) -> Iterator[Text]:
        ending = ENDINGS[run.stop]
        yield from (Text(), Text(ending[0].lower() + ending[1:], "bold"))
        yield from self._thought("thought of the agent", thoughts_of(run).end)
        yield from self.block(run.answer or run.stop_reason or "(nothing)")
        yield from self._thought("standard error of the agent", run.agent_log)

    def verdict(self, verdict: Verdict) -> Iterator[Text]:
        yield Text()
        score = "no score" if verdict.score is None else f"{verdict.score} {verdict.label}"
        style = "yellow" if verdict.score is None else "green" if verdict.score >= 2 else "red"
        yield from self.block(f"{verdict.metric}: {score}", bar="▌ ", style=f"bold {style}")
        yield from self.block(f"by {verdict.evaluator}", bar="· ", style="dim")
        for line in verdict.origin_lines:
            yield from self.block(line, bar="· ", style="dim")
        for finding in verdict.findings:
            if finding.step is None:
                yield from self._finding(finding, "in the answer")
        for text in (verdict.problem, verdict.reason, verdict.emulation_doubts):
            if text:
                yield from self.block(text)

    def block(self, text: str, bar: str = "│ ", style: str = "") -> Iterator[Text]:
        """Yield wrapped text, limited to about a screen unless the transcript is a full one."""
        longest, most = (_MAX_TEXT_IN_FULL, None) if self._full else (_MAX_TEXT, _MAX_LINES)
        content = Text(in_log(shorten(text, longest)).rstrip().expandtabs(4), style)
        wrapped = content.wrap(self._console, self._width - len(bar), overflow="fold")
        for line in wrapped[:most]:
            line.rstrip()
            yield Text.assemble((bar, "dim"), line)
        if most is not None and len(wrapped) > most:
            yield Text(f"{bar}… {len(wrapped) - most} more lines; the record contains the full text", "dim")

    def _thought(self, title: str, text: str) -> Iterator[Text]:
        """Yield a titled text in a full transcript, and nothing otherwise."""
        if self._full and text:
            yield Text(title, "dim")
            yield from self.block(text, bar="┊ ", style="dim")

    def _finding(self, finding: Finding, by: str) -> Iterator[Text]:
        yield from self.block(f"{finding.label}: {finding.outcome} ({by})", bar="· ", style="red")
