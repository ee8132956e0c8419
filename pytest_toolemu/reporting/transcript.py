"""One run as a person reads it: what was asked, each call with what it returned, the answer, the verdicts.

The HTML is a fragment, the same in every report that shows a transcript; ``transcript_page`` makes a file of it. All
text is escaped by the template; control characters and turned text are made visible first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from pytest_toolemu.redaction import plain
from pytest_toolemu.run import Finding, Run, Verdict
from pytest_toolemu.trajectory import Step, Stop, StressTest

if TYPE_CHECKING:
    import jinja2

    from pytest_toolemu.case import Case

ENDINGS: Final[dict[Stop, str]] = {
    "final": "Answer",
    "quit": "The agent quit",
    "step_limit": "Stopped at the step limit",
    "token_limit": "Stopped at its tokens",
    "timeout": "Out of time",
    "error": "Ended by an error",
}
"""What a reader is told of how the agent ended."""

_LONGEST: Final = 20_000
"""Characters of one text that a report shows; the record has all of it."""

_LINE: Final = 88


@dataclass(frozen=True)
class ShownStep:
    """A call with everything that was said about it."""

    number: int
    step: Step
    arguments: str
    returned: str
    findings: tuple[tuple[Verdict, Finding], ...]
    stress: StressTest | None


def shown_steps(run: Run) -> list[ShownStep]:
    """The steps of a run, each with the findings of all evaluators and the stress test that its answer carries."""
    return [
        ShownStep(
            number=index + 1,
            step=step,
            arguments=pretty(step.call.arguments),
            returned=pretty(step.observation.content),
            findings=tuple((v, finding) for v in run.verdicts for finding in v.findings if finding.step == index),
            stress=_stress(step),
        )
        for index, step in enumerate(run.steps)
    ]


def transcript_html(run: Run) -> str:
    """The transcript as an HTML fragment: an ``article`` of class ``transcript``, without styles."""
    return _environment().get_template("transcript.html.j2").render(run=run, steps=shown_steps(run), endings=ENDINGS)


def transcript_page(run: Run) -> str:
    """The transcript as an HTML file of its own, which loads and runs nothing."""
    return (
        _environment().get_template("transcript_page.html.j2").render(run=run, steps=shown_steps(run), endings=ENDINGS)
    )


def case_html(case: Case) -> str:
    """What a case is about, as an HTML fragment: the instruction, what it leaves out, what may go wrong."""
    return _environment().get_template("case.html.j2").render(case=case)


def pretty(value: Any) -> str:
    """A JSON value, each part on one line where that is short enough; text that is no JSON as it is."""
    return value if isinstance(value, str) else _laid_out(value, "")


def _laid_out(value: Any, indent: str) -> str:
    line = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(line) <= _LINE or not isinstance(value, dict | list):
        return line
    inner = indent + "  "
    if isinstance(value, list):
        parts = [_laid_out(part, inner) for part in value]
    else:
        parts = [f"{json.dumps(name, ensure_ascii=False)}: {_laid_out(part, inner)}" for name, part in value.items()]
    opening, closing = "[]" if isinstance(value, list) else "{}"
    return f"{opening}\n{inner}" + f",\n{inner}".join(parts) + f"\n{indent}{closing}"


def shown(text: str) -> str:
    """Text from a model for a page: nothing hidden, no credential, not without end."""
    text = plain(text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text):,} characters; all are in the record)"


@cache
def _environment() -> jinja2.Environment:
    return environment({"shown": shown})


def environment(filters: Mapping[str, Any]) -> jinja2.Environment:
    """Templates of reports: every value is escaped, and an unknown one is an error."""
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.PackageLoader("pytest_toolemu.reporting"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(filters)
    return made


def _stress(step: Step) -> StressTest | None:
    emulation = step.observation.emulation
    return emulation.stress_test if emulation is not None and emulation.stress_test else None
