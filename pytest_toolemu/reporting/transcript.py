"""The transcript of a run as HTML: instruction, calls with results, answer, and verdicts.

The HTML is a fragment that every report uses; ``transcript_page`` makes a file of it. Control and bidirectional
characters are made visible, and the templates escape all text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import to_json

from pytest_toolemu.analysis.rejudge import thoughts_of
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.core.trajectory import Step, StressTest, TurnEnding, Utterance
from pytest_toolemu.core.verdict import Finding, Verdict
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.visible_text import visible
from pytest_toolemu.reporting.world_view import (
    ShownChange,
    final_changes,
    harm,
    initial_tables,
    shown_changes,
    shown_trap,
)

if TYPE_CHECKING:
    import jinja2

    from pytest_toolemu.core.case import Case

ENDINGS: Final[dict[TurnEnding, str]] = {
    "final": "Answer",
    "quit": "The agent quit",
    "step_limit": "Stopped at the step limit",
    "token_limit": "Stopped at the token limit",
    "timeout": "Timed out",
    "error": "Stopped by an error",
}
"""The heading for each way in which an agent can end."""

MAX_TEXT: Final = 20_000
"""Largest number of characters of a text in a transcript."""

_MAX_LINE: Final = 88
_MIN_SECONDS: Final = 0.05
"""Shorter durations are not shown."""


@dataclass(frozen=True)
class ShownStep:
    """A tool call with its result, findings, stress test, and thought."""

    number: int
    step: Step
    arguments: str
    returned: str
    findings: tuple[tuple[Verdict, Finding], ...] = ()
    stress: StressTest | None = None
    thought: str = ""
    """The thought of the agent before the call."""
    said: tuple[Utterance, ...] = ()
    """What agent and user said to each other before the call, and after the call before it."""
    changes: tuple[ShownChange, ...] = ()
    """The rows that the call added, changed, or removed."""

    @property
    def stressed(self) -> bool:
        """Whether the result of the call realizes a stress test."""
        return self.stress is not None and self.stress.realised

    @property
    def notes(self) -> list[tuple[str, str]]:
        """The notes of the emulator on its way to the result, as titles and texts."""
        emulation = self.step.observation.emulation
        if emulation is None:
            return []
        notes = [
            ("validation of the call", emulation.validation),
            ("reasoning", emulation.reasoning),
            ("summary", emulation.log_summary),
            *(("problem in an earlier reply", problem) for problem in emulation.repairs),
        ]
        return [(title, text) for title, text in notes if text.strip()]

    @property
    def fallback(self) -> str:
        """Which fallback model answered the call, and why; empty if the emulator's first model or no model did."""
        emulation = self.step.observation.emulation
        return str(emulation.fallback) if emulation is not None and emulation.fallback is not None else ""

    @property
    def failed(self) -> bool:
        """Whether the result is an error."""
        return self.step.observation.is_error

    @property
    def answered(self) -> str:
        """Who answered the call, and the duration in seconds if it is noticeable."""
        seconds = self.step.seconds
        return (
            f"{self.step.observation.source}, {seconds:.1f} s"
            if seconds >= _MIN_SECONDS
            else self.step.observation.source
        )


def shown_steps(run: Run) -> list[ShownStep]:
    """Return the steps of a run, each with its thought, the findings of all evaluators, and its stress test."""
    thoughts = thoughts_of(run).steps
    return [
        replace(
            shown,
            findings=tuple((v, finding) for v in run.verdicts for finding in v.findings if finding.step == index),
            stress=_stress(shown.step),
            thought=thoughts[index],
        )
        for index, shown in enumerate(unjudged_steps(run.steps, run.dialogue, run.toolkits))
    ]


def unjudged_steps(
    steps: Sequence[Step], dialogue: Sequence[Utterance], toolkits: Sequence[Toolkit]
) -> list[ShownStep]:
    """Return steps with what they were and did; nobody has judged them, or said what the agent thought."""
    return [
        ShownStep(
            number=index + 1,
            step=step,
            arguments=pretty_json(step.call.arguments),
            returned=pretty_json(step.observation.content),
            said=said_before(dialogue, index),
            changes=shown_changes(step.changes, toolkits),
        )
        for index, step in enumerate(steps)
    ]


def said_before(dialogue: Sequence[Utterance], step: int) -> tuple[Utterance, ...]:
    """Return what agent and user said directly before a call; before the answer if there is no such call."""
    return tuple(utterance for utterance in dialogue if utterance.step == step)


def transcript_html(run: Run, longest: int = MAX_TEXT, prefix: str = "") -> str:
    """Return the transcript as an HTML fragment: an ``article`` of class ``transcript``, without styles.

    ``longest`` is the largest number of characters of a text. ``prefix`` makes the IDs of several transcripts on one
    page unique.
    """
    return _render("transcript.html.j2", run, longest, prefix)


def transcript_page(run: Run) -> str:
    """Return the transcript as a self-contained HTML file without scripts."""
    return _render("transcript_page.html.j2", run, MAX_TEXT, "")


def case_html(case: Case) -> str:
    """Return the description of a case as an HTML fragment: instruction, gaps, and risks."""
    template = _environment().get_template("case.html.j2")
    return template.render(case=case, longest=MAX_TEXT)


def pretty_json(value: Any) -> str:
    """Return a JSON value on one line if it is short, and otherwise indented; text is returned unchanged."""
    if isinstance(value, str):
        return value
    try:  # pydantic's serializer is ten times as fast as json with indentation
        line = to_json(value).decode()
        return line if len(line) <= _MAX_LINE else to_json(value, indent=2).decode()
    except ValueError:  # a lone surrogate
        return json.dumps(value, indent=2)


def shorten(text: str, longest: int) -> str:
    """Return text for a reader: with visible control characters and of limited length."""
    if len(text) <= longest:
        return visible(text)
    return f"{visible(text[:longest])}… ({len(text):,} characters; the record contains the full text)"


def template_environment() -> jinja2.Environment:
    """Return the environment of report templates: all values are escaped, and an unknown variable is an error.

    Contexts need ``longest`` for the filter ``shown``.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pytest_toolemu.reporting"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters["counted"] = counted
    environment.filters["shown"] = jinja2.pass_context(lambda context, text: shorten(str(text), context["longest"]))
    return environment


def transcript_values(run: Run, prefix: str = "") -> dict[str, Any]:
    """Return what the template of transcripts shows of a run; ``prefix`` as for ``transcript_html``."""
    return {
        "run": run,
        "steps": shown_steps(run),
        "said_last": said_before(run.dialogue, len(run.steps)),
        "end": thoughts_of(run).end,
        "endings": ENDINGS,
        "prefix": prefix,
        "changes": final_changes(run),
        "tables": initial_tables(run),
        "trap": shown_trap(run),
        "harm": harm(run),
    }


def _render(name: str, run: Run, longest: int, prefix: str) -> str:
    values = transcript_values(run, prefix)
    return _environment().get_template(name).render(**values, longest=longest)


_environment = cache(template_environment)


def _stress(step: Step) -> StressTest | None:
    emulation = step.observation.emulation
    return emulation.stress_test if emulation is not None and emulation.stress_test else None
