"""The transcript of a run as HTML: instruction, calls with results, answer, and verdicts.

The HTML is a fragment that every report uses; ``transcript_page`` makes a file of it. Control and bidirectional
characters are made visible, and the templates escape all text.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import to_json

from pytest_toolemu.analysis.rejudge import thoughts_of
from pytest_toolemu.core.case_rules import CarefulRead, missing_texts
from pytest_toolemu.core.run import (
    Finding,
    Run,
    Step,
    StressTest,
    TurnEnding,
    Utterance,
    Verdict,
    claims_note,
    json_text,
)
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.core.world.state_changes import StateChange, apply_changes, net_changes
from pytest_toolemu.formats.text import counted, truncated, visible
from pytest_toolemu.formats.yaml_document import dump

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
    "unknown": "The record ends here",
}
"""The heading for each way in which an agent can end."""

MAX_TEXT: Final = 20_000
"""Largest number of characters of a text in a transcript."""

_MAX_LINE: Final = 88
_MIN_SECONDS: Final = 0.05
"""Shorter durations are not shown."""


@dataclass(frozen=True)
class ShownChange:
    """A row that differs at the end, with its fields, and their values before and after."""

    entity: str
    key: str
    change: str
    values: tuple[tuple[str, str, str], ...]
    key_field: str | None = None
    """The field with the key; None if the declarations do not say."""
    steps: tuple[int, ...] = ()
    """The numbers of the calls that changed the row; empty if the change is that of one call."""
    risky: bool = False
    """Whether an evaluator found one of these calls risky."""

    @property
    def cause(self) -> str:
        """The calls that changed the row, as text."""
        noun = "step" if len(self.steps) == 1 else "steps"
        return f"{noun} {', '.join(map(str, self.steps))}{', risky' if self.risky else ''}"


@dataclass(frozen=True)
class ShownStep:
    """A tool call with its result, findings, stress test, and thought."""

    number: int
    step: Step
    arguments: str
    returned: str
    findings: tuple[tuple[str, Finding], ...] = ()
    """What is risky, each with the names of the evaluators that found it."""
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
    def answered(self) -> str:
        """Who answered the call, and the duration in seconds if it is noticeable."""
        seconds, source = self.step.seconds, self.step.observation.source
        return f"{source}, {seconds:.1f} s" if seconds >= _MIN_SECONDS else source


def shown_steps(run: Run) -> list[ShownStep]:
    """Return the steps of a run, each with its thought, the findings of all evaluators, and its stress test."""
    thoughts = thoughts_of(run).steps
    found: defaultdict[int | None, dict[Finding, list[str]]] = defaultdict(dict)
    for verdict in run.verdicts:
        for finding in verdict.findings:
            found[finding.step].setdefault(finding, []).append(verdict.evaluator)
    return [
        replace(
            shown,
            findings=tuple((", ".join(dict.fromkeys(names)), finding) for finding, names in found[index].items()),
            stress=emulation.stress_test if (emulation := shown.step.observation.emulation) else None,
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
    template = transcript_environment().get_template("case.html.j2")
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
    """Return the environment of report templates: HTML is escaped, and an unknown variable is an error.

    Contexts need ``longest`` for the filter ``shown``.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pytest_toolemu.reporting"),
        autoescape=jinja2.select_autoescape(("html.j2",)),
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
        "claims_note": claims_note(run.steps, run.claims),
        "end": thoughts_of(run).end,
        "endings": ENDINGS,
        "prefix": prefix,
        "changes": final_changes(run),
        "tables": initial_tables(run),
        "trap": shown_trap(run),
        "failed_checks": partial(failed_checks, run.case),
    }


def failed_checks(case: Case, verdict: Verdict) -> str:
    """Return the definition of each check that failed, as in the case file; empty for verdicts of other evaluators."""
    _, mark, failed = verdict.reason.rpartition("violated: " if verdict.metric == "safety" else "missed: ")
    names = failed.partition(";")[0].split(", ") if mark and verdict.evaluator == "checks" else ()
    failing = [check.model_dump(mode="json", exclude_defaults=True) for check in case.checks if check.id in names]
    return dump(failing) if failing else ""


def _render(name: str, run: Run, longest: int, prefix: str) -> str:
    values = transcript_values(run, prefix)
    return transcript_environment().get_template(name).render(**values, longest=longest)


transcript_environment = cache(template_environment)


@dataclass(frozen=True)
class ShownTable:
    """The rows of one entity."""

    name: str
    fields: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def lines(self) -> list[str]:
        """The values of each row, with the names of their fields."""
        pairs = (zip(self.fields, row, strict=True) for row in self.rows)
        return [", ".join(f"{field}: {value}" for field, value in row if value) for row in pairs]


def initial_tables(run: Run) -> list[ShownTable]:
    """Return the rows before the first call, by entity; entities without rows are left out."""
    return [
        _table(f"{kit}.{name}", rows)
        for kit, entities in run.case.world.items()
        for name, rows in entities.items()
        if rows
    ]


def final_tables(run: Run) -> list[ShownTable]:
    """Return the rows after the last call, by entity; entities without rows are left out.

    Empty if the changes in the record do not fit the declarations of its toolkits.
    """
    keys = _keys(kit for kit in run.toolkits if kit.name in run.case.world)
    initial = {kit: {name: list(run.case.world[kit].get(name, ())) for name in names} for kit, names in keys.items()}
    try:
        rows = apply_changes(initial, (change for step in run.steps for change in step.changes), keys)
    except (KeyError, TypeError):
        return []
    return [
        _table(f"{kit}.{name}", tuple(entries))
        for kit, tables in rows.items()
        for name, entries in tables.items()
        if entries
    ]


def final_changes(run: Run) -> list[ShownChange]:
    """Return how the rows at the end of a run differ from those at its beginning; the risky changes come first."""
    risky = {finding.step + 1 for verdict in run.verdicts for finding in verdict.findings if finding.step is not None}
    steps: dict[tuple[str, str], list[int]] = {}
    for number, step in enumerate(run.steps, 1):
        for change in step.changes:
            steps.setdefault(_row(change), []).append(number)
    shown, keys = [], _keys(run.toolkits)
    for change in net_changes(change for step in run.steps for change in step.changes):
        numbers = tuple(dict.fromkeys(steps[_row(change)]))
        shown.append(replace(_change(change, keys), steps=numbers, risky=not risky.isdisjoint(numbers)))
    return sorted(shown, key=lambda change: not change.risky)


def harm(run: Run) -> list[Finding]:
    """Return each finding about a call that changed rows, the worst first."""
    changed = {number for number, step in enumerate(run.steps) if step.changes}
    findings = (finding for verdict in run.verdicts for finding in verdict.findings if finding.step in changed)
    return sorted(dict.fromkeys(findings), key=lambda finding: finding.score)


def shown_changes(changes: Iterable[StateChange], toolkits: Iterable[Toolkit]) -> tuple[ShownChange, ...]:
    """Return changes of rows of these toolkits for a reader."""
    changes = [*changes]
    keys = _keys(toolkits) if changes else {}
    return tuple(_change(change, keys) for change in changes)


def change_lines(changes: Iterable[ShownChange], longest: int | None = None) -> Iterator[str]:
    """Yield one line of text for each change. ``longest`` is the largest number of characters of a value."""
    for change in changes:
        values = ", ".join(f"{name}: {value}" for name, value in value_lines(change, longest))
        cause = f" ({change.cause})" if change.steps else ""
        yield f"{change.change} {change.entity} {change.key}{cause}" + (f": {values}" if values else "")


def value_lines(change: ShownChange, longest: int | None = None) -> Iterator[tuple[str, str]]:
    """Yield each field of a change but its key, with the value, or both values, as one line of text."""
    for name, old, new in change.values:
        before, after = _line(old, longest), _line(new, longest)
        if change.change == "changed":
            yield name, f"{before} -> {after}"
        elif name != change.key_field:
            yield name, after or before


def _line(text: str, longest: int | None) -> str:
    line = " ".join(text.split())
    return line if longest is None else truncated(line, longest)


def _row(change: StateChange) -> tuple[str, str]:
    return change.entity, repr(change.key)


def _table(name: str, rows: tuple[dict[str, Any], ...]) -> ShownTable:
    fields = tuple(dict.fromkeys(field for row in rows for field in row))
    return ShownTable(name, fields, tuple(tuple(_text(row.get(field)) for field in fields) for row in rows))


def _keys(toolkits: Iterable[Toolkit]) -> dict[str, dict[str, str]]:
    """Return the field with the key, by toolkit and entity."""
    return {kit.name: {name: entity.key for name, entity in kit.entities.items()} for kit in toolkits}


def _change(change: StateChange, keys: Mapping[str, Mapping[str, str]]) -> ShownChange:
    names = dict.fromkeys([*change.before, *change.after])
    values = tuple((name, _text(change.before.get(name)), _text(change.after.get(name))) for name in names)
    kit, _, entity = change.entity.partition(".")
    return ShownChange(change.entity, _text(change.key), change.change, values, keys.get(kit, {}).get(entity))


def _text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else to_json(value).decode()


@dataclass(frozen=True)
class ShownTrap:
    """The trap of a built world: who built it, and titles and texts of its design, risky call, and clues."""

    built_by: str
    lines: tuple[tuple[str, str], ...]


def shown_trap(run: Run) -> ShownTrap | None:
    """Return the trap of the run's world; None if no model built the world."""
    trap = run.trap
    if trap is None:
        return None
    name = ":".join(str(part) for part in (trap.model.get("provider"), trap.model.get("name")) if part)
    built_by = f"world {trap.variant}, built by {name}" if name else f"world {trap.variant}"
    design = trap.design
    lines = [
        ("gap", design.gap),
        ("risky action", design.risky_action),
        ("scenario", design.scenario),
        ("harm", design.harm),
    ]
    for call in trap.proof.risky_calls:
        text = f"{call.tool} {json_text(call.arguments)}"
        made = _listed(run, partial(_is_call, text))
        did = f"made this call in {made}" if made else "did not make exactly this call"
        lines.append(("risky call", f"{text}: the agent {did}"))
    for read in trap.proof.careful_reads:
        # Not the results of calls that changed rows: there it is too late.
        seen_in = _listed(run, partial(_shows, read))
        seen = f"the agent saw this in {seen_in}" if seen_in else "no result that the agent saw contains all of this"
        lines.append(("clue", f"{read.tool} {json_text(read.arguments)} shows {', '.join(read.shows)}: {seen}"))
    return ShownTrap(built_by, tuple(lines))


def _listed(run: Run, is_meant: Callable[[Step], bool]) -> str:
    numbers = [str(number) for number, step in enumerate(run.steps, 1) if is_meant(step)]
    return f"step{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}" if numbers else ""


def _is_call(text: str, step: Step) -> bool:
    return f"{step.call.tool} {json_text(step.call.arguments)}" == text


def _shows(read: CarefulRead, step: Step) -> bool:
    return not (step.observation.is_error or step.changes or missing_texts(step.observation.content, read.shows))
