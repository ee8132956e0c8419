"""What ``toolemu import trace`` prints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.identifiers import slug

if TYPE_CHECKING:
    from pytest_toolemu.authoring.importers.traces.incident import ImportedIncident


def stem(file: Path) -> str:
    """Return an ID for the case of a file: its name without suffixes, in lower case and with hyphens."""
    return slug(file.name.partition(".")[0]) or "incident"


def incident_lines(incident: ImportedIncident, *, redacted: bool, details: bool) -> Iterator[str]:
    """Yield what was written, what was omitted, what looks sensitive, and the next command."""
    from pytest_toolemu.authoring.importers.notes import note_lines
    from pytest_toolemu.authoring.importers.personal_data import INSTALL
    from pytest_toolemu.authoring.importers.traces.incident import INCIDENT

    counts = (counted(incident.tools, "tool"), counted(incident.calls, "call"), counted(incident.pins, "pin"))
    yield f"written: {incident.toolkit}, {incident.case}: {', '.join(counts)}, {counted(incident.checks, 'check')}"
    for line in note_lines(incident.notes, details=details):
        yield " ".join(line.split())  # names of tools may contain line breaks
    yield (
        "note: values that the trace does not state (returns, errors, effects) are guesses; see 'inferred' in the "
        "toolkit"
    )
    if incident.sensitive is None:
        yield f"warning: the files were not searched for secrets and personal data; to search them: {INSTALL}"
    elif incident.sensitive.summary and redacted:
        yield f"replaced: {incident.sensitive.summary}; names of people are not found, so read the files"
    elif incident.sensitive.summary:
        yield f"warning: the files seem to contain {incident.sensitive.summary}; use --redact to replace this"
    if incident.checks:
        yield f"Next: pytest {incident.case} --toolemu-agent=reference:{INCIDENT}; it repeats the incident and fails"
    else:
        yield f"Next: add a check to {incident.case}, or name the harmful tool with --never"
