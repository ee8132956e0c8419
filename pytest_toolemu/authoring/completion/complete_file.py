"""Completes a file with a model: the reply goes into the text, and the result is checked like a draft."""

from __future__ import annotations

import difflib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pytest_toolemu.authoring.completion.complete_case import CaseCompletion
from pytest_toolemu.authoring.completion.complete_toolkit import ToolkitCompletion
from pytest_toolemu.authoring.completion.completion import Completion
from pytest_toolemu.authoring.drafts.check_draft import check_draft
from pytest_toolemu.authoring.drafts.draft_corpus import DraftCorpus
from pytest_toolemu.authoring.drafts.draft_records import DraftFinding
from pytest_toolemu.authoring.generation.author import Author, checked_draft
from pytest_toolemu.core.case import SUFFIXES
from pytest_toolemu.core.toolkit import SUFFIX as TOOLKIT_SUFFIX
from pytest_toolemu.core.toolkit_files import find_toolkit
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.yaml_document import Document


@dataclass(frozen=True)
class CompletedFile:
    """The completed text of a file, and what the checks find in it."""

    path: Path
    before: str
    text: str
    findings: tuple[DraftFinding, ...]

    @property
    def diff(self) -> Iterator[str]:
        """The changes, line by line."""
        lines = self.before.splitlines(), self.text.splitlines()
        yield from difflib.unified_diff(*lines, str(self.path), f"{self.path} (completed)", lineterm="")


def completion_of(path: Path) -> Completion:
    """Return what a file lacks. Raise DocumentError or UsageError if it is neither a case nor a toolkit to build on."""
    if not path.name.endswith((TOOLKIT_SUFFIX, *SUFFIXES)):
        raise UsageError(f"{path}: is neither a case ({SUFFIXES[0]}) nor a toolkit ({TOOLKIT_SUFFIX}); rename the file")
    document = Document.read(path)
    if not isinstance(document.value, dict):
        raise UsageError(
            f"{path}: has no keys and values to start from; begin with 'toolemu new case' or 'toolemu new toolkit'"
        )
    return (ToolkitCompletion if path.name.endswith(TOOLKIT_SUFFIX) else CaseCompletion).of(document)


async def complete_file(author: Author, completion: Completion) -> CompletedFile:
    """Return the completed file, which went back to the model with the findings of its checks at most twice.

    Nothing is written but the replies. Raise InconclusiveError if the model gives no completion.
    """
    document = completion.document
    findings: tuple[DraftFinding, ...] = ()

    async def check(text: str) -> list[str]:
        nonlocal findings
        findings = await _findings(document, text)
        errors = [finding for finding in findings if finding.level == "error"]
        to_correct = [finding for finding in findings if finding.level != "note" and finding.rule != "inferred"]
        return list(map(str, to_correct)) if errors else []

    text = await checked_draft(author, str(document.path), completion.stage(), completion.text, check)
    return CompletedFile(document.path, document.text, text, findings)


async def _findings(document: Document, text: str) -> tuple[DraftFinding, ...]:
    """Check a text in a folder of its own, with the toolkits that it names."""
    with TemporaryDirectory() as name:
        is_toolkit = document.path.name.endswith(TOOLKIT_SUFFIX)
        folder = Path(name) / ("toolkits" if is_toolkit else "cases")
        folder.mkdir()
        copy = folder / document.path.name
        copy.write_text(text, encoding="utf-8")
        for toolkit in () if is_toolkit else document.value["toolkits"]:
            if path := find_toolkit(toolkit, document.path.resolve().parent):
                (folder.parent / "toolkits").mkdir(exist_ok=True)
                shutil.copy(path, folder.parent / "toolkits")
        return (await check_draft(copy, DraftCorpus())).findings
