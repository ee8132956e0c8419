"""One run as a person reads it: what was asked, each call with what it returned, the answer, the verdicts.

The HTML is a fragment, the same in every report that shows a transcript; ``transcript_page`` makes a file of it. All
text is escaped by the template; control characters and turned text are made visible first.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import to_json

from pytest_toolemu.analysis.thoughts import thoughts_of
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.trajectory import Step, Stop, StressTest
from pytest_toolemu.core.verdict import Finding, Verdict
from pytest_toolemu.formats.redaction import Redactor, plain, redact, secrets

if TYPE_CHECKING:
    import jinja2

    from pytest_toolemu.core.case import Case

ENDINGS: Final[dict[Stop, str]] = {
    "final": "Answer",
    "quit": "The agent quit",
    "step_limit": "Stopped at the step limit",
    "token_limit": "Stopped at its tokens",
    "timeout": "Out of time",
    "error": "Ended by an error",
}
"""What a reader is told of how the agent ended."""

MAX_TEXT: Final = 20_000
"""Characters of one text that a transcript shows."""

_LINE: Final = 88
_NOTICED: Final = 0.05


@dataclass(frozen=True)
class ShownStep:
    """A call with everything that was said about it."""

    number: int
    step: Step
    arguments: str
    returned: str
    findings: tuple[tuple[Verdict, Finding], ...]
    stress: StressTest | None
    thought: str = ""
    """What the agent thought before the call."""

    @property
    def stressed(self) -> bool:
        """Whether what the call returned carries a stress test."""
        return self.stress is not None and self.stress.realised

    @property
    def notes(self) -> list[tuple[str, str]]:
        """What the emulator noted on its way to the answer: titles and texts."""
        emulation = self.step.observation.emulation
        if emulation is None:
            return []
        found = [
            ("validation of the call", emulation.validation),
            ("reasoning", emulation.reasoning),
            ("summary", emulation.log_summary),
            *(("reply that was sent back", problem) for problem in emulation.repairs),
        ]
        return [(title, text) for title, text in found if text.strip()]

    @property
    def failed(self) -> bool:
        """Whether the call did."""
        return self.step.observation.is_error

    @property
    def answered(self) -> str:
        """Who answered, and how long that took where it can be noticed."""
        seconds = self.step.seconds
        return (
            f"{self.step.observation.source}, {seconds:.1f} s" if seconds >= _NOTICED else self.step.observation.source
        )


def shown_steps(run: Run) -> list[ShownStep]:
    """Return the steps of a run, each with its thought, the findings of all evaluators, and its stress test."""
    thoughts = thoughts_of(run).steps
    return [
        ShownStep(
            number=index + 1,
            step=step,
            arguments=pretty_json(step.call.arguments),
            returned=pretty_json(step.observation.content),
            findings=tuple((v, finding) for v in run.verdicts for finding in v.findings if finding.step == index),
            stress=_stress(step),
            thought=thoughts[index],
        )
        for index, step in enumerate(run.steps)
    ]


def transcript_html(run: Run, longest: int = MAX_TEXT, prefix: str = "", known: Redactor | None = None) -> str:
    """The transcript as an HTML fragment: an ``article`` of class ``transcript``, without styles.

    ``longest`` is how many characters of one text are shown; the record has all of it. ``prefix`` tells the ids of
    several transcripts on one page apart. ``known`` are the credentials to take out, those of now without it.
    """
    return _render("transcript.html.j2", run, longest, prefix, known)


def transcript_page(run: Run) -> str:
    """The transcript as an HTML file of its own, which loads and runs nothing."""
    return _render("transcript_page.html.j2", run, MAX_TEXT, "")


def case_html(case: Case) -> str:
    """What a case is about, as an HTML fragment: the instruction, what it leaves out, what may go wrong."""
    template = _environment().get_template("case.html.j2")
    return template.render(case=case, longest=MAX_TEXT, secrets=secrets())


def pretty_json(value: Any) -> str:
    """A JSON value on one line where that is short, else on several; text that is no JSON as it is."""
    if isinstance(value, str):
        return value
    try:  # ten times as fast as json with an indent
        line = to_json(value).decode()
        return line if len(line) <= _LINE else to_json(value, indent=2).decode()
    except ValueError:  # a lone surrogate
        return json.dumps(value, indent=2)


def shorten(text: str, longest: int, known: Redactor | None = None) -> str:
    """Text from a model for a reader: nothing hidden, no credential, not without end."""
    if len(text) <= longest:
        return plain(text, known)
    # Redacted before it is cut: half a credential would not be known for one.
    return f"{plain(redact(text, known)[:longest])}… ({len(text):,} characters; the record has all of them)"


def template_environment() -> jinja2.Environment:
    """Templates of reports: every value is escaped, and an unknown one is an error.

    What is rendered needs ``longest`` and ``secrets`` in its context, for the filter ``shown``.
    """
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.PackageLoader("pytest_toolemu.reporting"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters["shown"] = jinja2.pass_context(
        lambda context, text: shorten(str(text), context["longest"], context["secrets"])
    )
    return made


def _render(name: str, run: Run, longest: int, prefix: str, known: Redactor | None = None) -> str:
    template = _environment().get_template(name)
    told = {"run": run, "steps": shown_steps(run), "end": thoughts_of(run).end, "endings": ENDINGS, "prefix": prefix}
    return template.render(**told, longest=longest, secrets=secrets() if known is None else known)


_environment = cache(template_environment)


def _stress(step: Step) -> StressTest | None:
    emulation = step.observation.emulation
    return emulation.stress_test if emulation is not None and emulation.stress_test else None
