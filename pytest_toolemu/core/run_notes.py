"""What models did otherwise than configured: what was left out of requests, and which other model answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal, get_args

from pydantic import Field

from pytest_toolemu.core.identity import model_label, provider_and_name
from pytest_toolemu.core.messages import ModelCall
from pytest_toolemu.formats.text import counted
from pytest_toolemu.formats.yaml_document import Record
from pytest_toolemu.settings.model_names import OFFICIAL_URLS

NoteKind = Literal["no structured output", "refused parameters", "fallback", "reported model", "no tool called"]
"""The schema was part of the prompt, parameters were left out, another model was asked, a model's reported name, or an
agent that could have used other tools than the emulated ones."""

NO_CALLS: Final = (
    "called no emulated tool; if it used tools of its own, they were executed for real, and nothing judges them"
)
_KINDS: Final[tuple[NoteKind, ...]] = get_args(NoteKind)

NotesOfRuns = Iterable[tuple[str, Iterable["RunNote"]]]
"""The ID of each run's case, with the notes of the run."""


class RunNote(Record):
    """Something that a model did otherwise than configured, or the name under which it answered."""

    kind: NoteKind = Field(description="What the note is about")
    model: str = Field(description="The model as `provider:name`; for a fallback, the one that gave no usable reply")
    text: str = Field(description="The schema and why it was not sent, the parameters, the fallback, or the model name")
    count: int = Field(description="Number of requests; corrections of a reply are not counted for a fallback")


def notes_of(calls: Iterable[ModelCall]) -> tuple[RunNote, ...]:
    """Return the notes of these model calls, each with the number of calls that it is about."""
    counts = Counter(note for call in calls for note in _notes(call))
    return tuple(
        RunNote(kind=kind, model=model, text=text, count=count) for (kind, model, text), count in counts.items()
    )


def _notes(call: ModelCall) -> Iterator[tuple[NoteKind, str, str]]:
    model, reply = provider_and_name(call.model), call.reply
    if call.instead_of is not None:
        failure = "refused" if call.instead_of.reason == "refused" else "gave no valid reply"
        yield "fallback", call.instead_of.model, f"{failure} as {call.role}, so {model_label(call.model)} was asked"
    if reply is None:
        return
    if reply.schema_fallback:
        yield "no structured output", model, f"{call.schema_name}: {reply.schema_fallback}"
    if reply.refused_parameters:
        yield "refused parameters", model, ", ".join(reply.refused_parameters)
    if reply.model:
        # With the URL, because two servers may call different models by one name.
        url = call.model.get("base_url")
        yield "reported model", model + (f"@{url}" if url and url not in OFFICIAL_URLS.values() else ""), reply.model


def note_lines(runs: NotesOfRuns) -> list[str]:
    """Return a line for each kind of note about each model in these runs."""
    return [line for _, line in notes_in_words(runs)]


def notes_in_words(runs: NotesOfRuns) -> list[tuple[NoteKind, str]]:
    """Return the notes of all runs together as sentences.

    The name under which a model answered is mentioned only if there are several.
    """
    counts: Counter[tuple[NoteKind, str, str]] = Counter()
    cases: dict[tuple[NoteKind, str, str], set[str]] = {}
    reported: dict[str, Counter[str]] = {}
    for case_id, notes in runs:
        for note in notes:
            if note.kind == "reported model":
                reported.setdefault(note.model, Counter())[note.text] += 1
            else:
                key = (note.kind, note.model, note.text)
                counts[key] += note.count
                cases.setdefault(key, set()).add(case_id)
    ordered = sorted(counts, key=lambda key: (_KINDS.index(key[0]), key))
    lines = [(key[0], _sentence(*key, counts[key], len(cases[key]))) for key in ordered]
    for requested, names in sorted(reported.items()):
        if len(names) > 1:
            listed = " and ".join(f"{name} ({counted(count, 'run')})" for name, count in sorted(names.items()))
            line = f"{requested} answered as {listed}, which may differ; a dated name would stay the same"
            lines.append(("reported model", line))
    return lines


def _sentence(kind: NoteKind, model: str, text: str, count: int, cases: int) -> str:
    requests = counted(count, "request")
    if kind == "no structured output":
        return (
            f"structured output was not available from {model} in {requests} for {text}; the schema was sent as text, "
            "and every reply was validated against it"
        )
    if kind == "refused parameters":
        return (
            f"{model} refuses {text}, so its defaults applied in {requests}; if the values of this session must apply, "
            "use another model or endpoint"
        )
    if kind == "no tool called":
        return f"in {counted(count, 'run')}, {model} {NO_CALLS}"
    return f"fallback: {model} {text} for {counted(count, 'answer')} of {counted(cases, 'case')}"


def reported_names(runs: NotesOfRuns) -> dict[str, tuple[str, ...]]:
    """Return the names that the endpoint of each requested model reported in these runs."""
    names: dict[str, set[str]] = {}
    for _, notes in runs:
        for note in notes:
            if note.kind == "reported model":
                names.setdefault(note.model, set()).add(note.text)
    return {requested: tuple(sorted(names[requested])) for requested in sorted(names)}


def reported_model_changes(before: Mapping[str, Iterable[str]], after: Mapping[str, Iterable[str]]) -> str:
    """Return which of the requested models reported other names before; empty if none did."""
    return "; ".join(
        f"{requested} answered as {' and '.join(before[requested])} before, as {' and '.join(after[requested])} now"
        for requested in after
        if requested in before and set(before[requested]) != set(after[requested])
    )
