"""``toolemu review``: a person accepts, edits, or rejects drafts."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from pytest_toolemu.cli.common import out
from pytest_toolemu.cli.drafting.draft_checks import DraftsFolder, Suite
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.visible_text import visible

if TYPE_CHECKING:
    from pytest_toolemu.authoring.drafts.draft_card import DraftCard
    from pytest_toolemu.authoring.drafts.draft_store import Draft, DraftStore
    from pytest_toolemu.authoring.drafts.review_desk import ReviewDesk

_COMMANDS: Final = "a accept, e edit, r reject, s skip, q stop, ? help"
_HELP: Final = (
    "a: move the draft into the suite, with your name in the file. With errors, you give a reason.\n"
    "e: open the draft in $VISUAL or $EDITOR; it is checked again afterwards.\n"
    "r: reject the draft with a reason, so that it is not drafted again.\n"
    "s: decide later.\n"
    "q: stop; the next call continues with the drafts that are left."
)


def review(
    folder: DraftsFolder = Path("drafts"),
    *,
    reviewer: Annotated[str, typer.Option(help="Your name, as it appears in accepted files.")] = "",
    suite: Suite = Path(),
    stats: Annotated[
        bool, typer.Option("--stats", help="Print how many drafts of each kind and model were accepted, and exit.")
    ] = False,
) -> None:
    """Review drafts: accept, edit, reject, or skip each of them. A later run continues where you stopped."""
    from pytest_toolemu.authoring.drafts.review_desk import ReviewDesk, open_drafts, read_corpus, reviewer_name
    from pytest_toolemu.core.toolkit_files import drafts_move_to

    store, drafts = open_drafts(folder)
    if stats:
        _print_stats(store)
        return
    name = reviewer_name(reviewer)
    session = _Review(ReviewDesk(store, read_corpus(store, suite), suite), name)
    decided: Counter[str] = Counter()
    with drafts_move_to(suite, folder):
        for index, draft in enumerate(drafts, 1):
            title = f"\n--- {index} of {len(drafts)}: {draft.record.kind} {draft.record.name} ---"
            out.print(visible(title))
            result = session.decide(draft)
            if result == "stopped":
                break
            decided[result] += 1
    left = len(drafts) - decided["accepted"] - decided["rejected"]
    out.print(f"\n{counted(decided['accepted'], 'draft')} accepted, {decided['rejected']} rejected, {left} left")


@dataclass
class _Review:
    """The decisions of one person about drafts."""

    desk: ReviewDesk
    reviewer: str

    def decide(self, draft: Draft) -> Literal["accepted", "rejected", "skipped", "stopped"]:
        """Show a draft and its card, and ask until the person decides, skips, or stops."""
        out.print(visible(draft.path.read_text(encoding="utf-8", errors="replace")))
        draft, card = self._checked(draft)
        while True:
            choice = _ask()
            if choice == "q":
                return "stopped"
            if choice == "s":
                return "skipped"
            if choice == "e":
                _edit(draft.path)
                draft, card = self._checked(draft)
            elif choice == "r" and (reason := _read("Reason (empty: back): ")):
                moved = self.desk.reject(draft, self.reviewer, reason)
                out.print(visible(f"rejected: {moved.path}"))
                return "rejected"
            elif choice == "a" and self._accept(draft, card):
                return "accepted"

    def _checked(self, draft: Draft) -> tuple[Draft, DraftCard]:
        from pytest_toolemu.cli.drafting.draft_text import card_lines

        draft, card = asyncio.run(self.desk.check(draft))
        for line in card_lines(draft, card):
            out.print(visible(line))
        return draft, card

    def _accept(self, draft: Draft, card: DraftCard) -> bool:
        """Move a draft into the suite; return False if that is not possible or the person goes back."""
        from pytest_toolemu.core.dataset import find_dataset
        from pytest_toolemu.errors import DocumentError, UsageError

        errors, override = card.errors, ""
        if errors:
            override = _read(f"{counted(len(errors), 'error')}. Reason to accept the draft anyway (empty: back): ")
            if not override:
                return False
        try:
            path = self.desk.accept(draft, self.reviewer, errors, override)
        except (DocumentError, UsageError) as error:
            out.print(visible(f"not accepted: {error}"))
            return False
        out.print(visible(f"accepted: {path}"))
        if (dataset := find_dataset(path.parent)) is not None:
            out.print(visible(f"next: toolemu lint --stamp {dataset.parent}"))
        return True


def _ask() -> str:
    """Return the letter of a command; ``q`` at the end of the input."""
    while True:
        reply = _read(f"{_COMMANDS}: ", end="q").casefold()
        if reply in ("a", "e", "r", "s", "q"):
            return reply
        out.print(_HELP if reply == "?" else f"{reply!r} is not valid; expected {_COMMANDS}")


def _read(prompt: str, end: str = "") -> str:
    """Return what the person types; ``end`` at the end of the input."""
    try:
        return out.input(prompt, markup=False).strip()
    except EOFError:
        return end


def _edit(path: Path) -> None:
    """Open a file in the person's editor, and wait until it is closed."""
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ("notepad" if os.name == "nt" else "vi")
    try:
        status = subprocess.run([*shlex.split(command, posix=os.name != "nt"), str(path)], check=False).returncode
    except (OSError, ValueError) as error:
        out.print(visible(f"the editor {command!r} cannot be started: {error}; set EDITOR to another editor"))
        return
    if status:
        out.print(visible(f"the editor {command!r} exited with status {status}"))


def _print_stats(store: DraftStore) -> None:
    from pytest_toolemu.authoring.drafts.acceptance_stats import acceptance
    from pytest_toolemu.cli.drafting.draft_text import table_lines

    rows = acceptance(draft.record for draft in store.drafts())
    for line in table_lines(rows):
        out.print(visible(line))
    if not rows:
        out.print(visible(f"{store.folder}: there are no drafts"))
