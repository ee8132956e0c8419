"""How a command with batches ends: what it records, and what it says about batches that go on at the provider."""

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
    """Record that the command came to its end. UsageError if that cannot be written."""
    for line in _unused(batches):
        err.print(line, markup=False)
    try:
        batches.journal.finish()
    except OSError as error:
        raise UsageError(
            f"{batches.journal.folder}: everything is judged, but that cannot be recorded ({error.strerror}); free "
            "disk space, and run the same command again, which sends nothing"
        ) from None


def _unused(batches: Batches) -> Iterator[str]:
    """Yield a line for each batch of an earlier call whose replies nothing needed, as the sessions have changed."""
    for sent in batches.journal.batches:
        if sent.status in ("sending", "sent"):
            name = f"batch {sent.batch}" if sent.batch else "a batch that was being sent"
            requests = counted(sent.requests, "request")
            yield (
                f"{sent.model}: {name} with {requests} of an earlier call is not used, because the sessions have "
                "changed since; cancel it at the provider, which charges for it otherwise"
            )


def interruption(batches: Batches) -> Iterator[str]:
    """Yield a line for each batch that goes on at the provider after Ctrl-C, and how to go on with them."""
    journal = batches.journal
    for sent in journal.batches:
        if sent.status == "sent":
            requests = counted(sent.requests, "request")
            yield (
                f"{sent.model}: batch {sent.batch} with {requests} goes on at the provider, which will charge for it"
            )
    yield f"interrupted; the same command goes on with the batches of {journal.folder} and sends nothing twice"


def foreign(folders: Iterable[Path]) -> Iterator[str]:
    """Yield a line for each folder with unfinished batches of another command."""
    for folder in folders:
        yield (
            f"{folder}: has unfinished batches about the same sessions, which the provider charges for; this command "
            "does not go on with them, because its judges, prompts, or options are different"
        )
