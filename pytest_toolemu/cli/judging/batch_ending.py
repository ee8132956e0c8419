"""How a command with batches ends: what it records, and what it says about batches that continue at the provider."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_toolemu.cli.consoles import err
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.counted import counted

if TYPE_CHECKING:
    from pytest_toolemu.models.batches.batched_model import Batches


def finish(batches: Batches) -> None:
    """Record that the command has completed. Raise UsageError if that cannot be written."""
    for line in _unused(batches):
        err.print(line, markup=False)
    try:
        batches.journal.finish()
    except OSError as error:
        raise UsageError(
            f"{batches.journal.folder}: all runs are judged, but this cannot be recorded ({error.strerror}); free "
            "disk space, and run the same command again, which sends nothing"
        ) from None


def _unused(batches: Batches) -> Iterator[str]:
    """Yield a line for each batch of an earlier command that is not needed, because the sessions have changed."""
    for sent in batches.journal.batches:
        if sent.status in ("sending", "sent"):
            name = f"batch {sent.batch}" if sent.batch else "a batch that was being sent"
            requests = counted(sent.requests, "request")
            yield (
                f"{sent.model}: {name} with {requests} of an earlier command is not used, because the sessions have "
                "changed since; cancel it at the provider, or you will be charged for it"
            )


def interruption(batches: Batches) -> Iterator[str]:
    """Yield a line for each batch that continues at the provider after Ctrl-C, and one on how to resume."""
    journal = batches.journal
    for sent in journal.batches:
        if sent.status == "sent":
            requests = counted(sent.requests, "request")
            yield (
                f"{sent.model}: batch {sent.batch} with {requests} continues at the provider, which will charge for it"
            )
    yield (
        f"interrupted; run the same command again to continue with the batches of {journal.folder}; nothing is "
        "sent twice"
    )


def foreign(folders: Iterable[Path]) -> Iterator[str]:
    """Yield a line for each folder with unfinished batches of another command."""
    for folder in folders:
        yield (
            f"{folder}: has unfinished batches for the same sessions, which the provider charges for; this command "
            "does not continue them, because its judges, prompts, or options differ"
        )
