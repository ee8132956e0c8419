"""A dataset: a folder of cases with a name, a version, and targets that ``toolemu lint`` verifies."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from pytest_toolemu.core.case import SUFFIXES as CASE_SUFFIXES
from pytest_toolemu.core.case import Case
from pytest_toolemu.core.case_vocabulary import RiskType
from pytest_toolemu.core.toolkit import SUFFIX as TOOLKIT_SUFFIX
from pytest_toolemu.core.toolkit import Text
from pytest_toolemu.errors import DocumentError
from pytest_toolemu.formats.text import counted
from pytest_toolemu.formats.yaml_document import Document, Record

FILE: Final = "toolemu-dataset.yaml"
"""The name of a dataset file. It differs from the names of cases, which end with ``.toolemu.yaml``."""

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, lt=1)]


class Split(Record):
    """The split of the cases: a case is held out if the hash of its ID with ``seed`` falls into the share."""

    seed: int = Field(description="Seed of the hash; a change moves cases between the splits")
    heldout: Share = Field(description="Share of the cases that is held out, above 0 and below 1")


class Targets(Record):
    """The size and variety that the dataset promises; ``toolemu lint`` verifies them. An absent target is not verified.

    Counts are minimums, and shares (0 to 1) are minimum shares of all cases. Targets whose name starts with ``max_``
    are maximums.
    """

    toolkits: Count | None = Field(default=None, description="Toolkits")
    tools: Count | None = Field(default=None, description="Tools of all toolkits")
    categories: Count | None = Field(default=None, description="Different categories of toolkits")
    cases: Count | None = Field(default=None, description="Cases")
    primary: Count | None = Field(default=None, description="Cases for each toolkit as the primary one")
    two_toolkits: Share | None = Field(default=None, description="Share of cases with exactly two toolkits")
    more_toolkits: Share | None = Field(default=None, description="Share of cases with three or more toolkits")
    risk_types: dict[RiskType, Count] = Field(default={}, description="Cases with each of these risk types")
    gaps: dict[Literal["task", "safety", "both"], Count] = Field(default={}, description="Cases by what is left out")
    twins: Count | None = Field(default=None, description="Cases with 'twin_of'")
    terse: Share | None = Field(default=None, description="Share of instructions with at most 12 words")
    long: Count | None = Field(default=None, description="Instructions with at least 80 words")
    graded: Count | None = Field(default=None, description="Cases with further references that score 1 and 2")
    labels: Count | None = Field(default=None, description="References with each score from 0 to 3, for each metric")
    mild: Share | None = Field(default=None, description="Share of cases whose worst outcome is mild")
    several_solutions: Count | None = Field(default=None, description="Cases with perfect references of other rows")
    long_tasks: Count | None = Field(default=None, description="Cases whose reference 'safe' makes 8 calls or more")
    injection_controls: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="Share of the cases with the risk type prompt_injection that have a twin"
    )
    heldout_within: Share | None = Field(default=None, description="Largest deviation from the held-out share")
    users: Count | None = Field(default=None, description="Different names of users")
    locales: Count | None = Field(default=None, description="Different locales")
    years: Count | None = Field(default=None, description="Different years of 'now'")
    max_same_toolkits: Count | None = Field(default=None, description="Most cases with the same set of toolkits")
    max_one_toolkit: Share | None = Field(default=None, description="Largest share of cases with the same toolkit")
    max_time_pressure: Share | None = Field(default=None, description="Largest share of cases tagged time-pressure")
    max_same_opening: Share | None = Field(default=None, description="Largest share of instructions with one opening")


class Dataset(Record):
    """A dataset: the folder of its file with all cases below it, and the toolkits of these cases."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", description="Name of the dataset in reports")
    version: Text = Field(description="Version; raise it with every release that changes a case or a toolkit")
    canary: str = Field(min_length=20, description="A unique text; a model that knows it has seen the files")
    split: Split = Field(description="Which cases are held out")
    targets: Targets = Field(default=Targets(), description="The size and variety that the dataset promises")

    def split_of(self, case: Case) -> Literal["public", "heldout"]:
        """Return the split of a case. It depends only on the seed and the ID, so new cases never move others.

        A twin or variant has the split of its base case, as knowing one means knowing the other.
        """
        digest = hashlib.sha256(f"{self.split.seed} {case.variant_of or case.twin_of or case.id}".encode()).digest()
        fraction = int.from_bytes(digest[:8]) / 2**64
        return "heldout" if fraction < self.split.heldout else "public"


class Edition(Record):
    """The exact files of a dataset: its name and version, and the SHA-256 of all its cases and toolkits."""

    name: str = Field(description="Name of the dataset")
    version: str = Field(description="Version of the dataset")
    sha256: str = Field(description="SHA-256 of all its cases and toolkits")

    def __str__(self) -> str:
        return f"{self.name} {self.version} (sha256 {self.sha256[:12]})"


@dataclass(frozen=True)
class DatasetFiles:
    """The files of the dataset at ``path``: cases below its folder, and toolkits in the nearest ``toolkits/``.

    Drafts are not among them.
    """

    path: Path

    @property
    def cases(self) -> list[Path]:
        """All case files, sorted by path."""
        return case_files(self.path.parent)

    @property
    def toolkits(self) -> list[Path]:
        """All toolkit files, sorted by path; none if the cases use only shipped toolkits."""
        folder = self.path.resolve().parent
        own = (parent / "toolkits" for parent in (folder, *folder.parents))
        return sorted(next((where for where in own if where.is_dir()), folder).glob(f"*{TOOLKIT_SUFFIX}"))


def load_dataset(path: Path) -> Dataset:
    """Return the dataset in a file, which is read once per process. Raise DocumentError if it is not valid."""
    stat = path.stat()
    return _load(path, stat.st_mtime_ns, stat.st_size)


@functools.lru_cache(maxsize=64)
def _load(path: Path, _modified: int, _size: int) -> Dataset:
    return Document.read(path).build(Dataset)


def find_dataset(folder: Path) -> Path | None:
    """Return the dataset file in a folder, or in the nearest folder above it; None if there is none."""
    folder = folder.resolve()
    return next((path for parent in (folder, *folder.parents) if (path := parent / FILE).is_file()), None)


def dataset_of_toolkit(toolkit: Path) -> Path | None:
    """Return the dataset file next to a toolkit's ``toolkits/`` folder, or one folder below; None if there is none."""
    toolkit = toolkit.resolve()
    around = toolkit.parent.parent
    candidates = (path for path in (around / FILE, *sorted(around.glob(f"*/{FILE}"))) if path.is_file())
    return next((path for path in candidates if toolkit in DatasetFiles(path).toolkits), None)


def datasets_near(folder: Path) -> list[Path]:
    """Return the dataset file that a file or folder belongs to; if there is none, those one folder below it."""
    around = find_dataset(folder if folder.is_dir() else folder.parent)
    return [around] if around else sorted(folder.glob(f"*/{FILE}"))


def edition_of(case: Path) -> Edition | None:
    """Return the edition of a case file, as of the first call in this process; None without a dataset."""
    return _edition_in(case.parent)


@functools.lru_cache(maxsize=1024)
def _edition_in(folder: Path) -> Edition | None:
    path = find_dataset(folder)
    return edition(path) if path else None


@functools.lru_cache(maxsize=64)
def edition(path: Path) -> Edition:
    """Return the edition of a dataset file, which is read once per process. Raise DocumentError if it is not valid."""
    dataset, files = load_dataset(path), DatasetFiles(path)
    return Edition(name=dataset.name, version=dataset.version, sha256=files_hash([*files.cases, *files.toolkits]))


def origin(editions: Iterable[Edition], outside: int) -> str:
    """Return a text that names the editions of some cases, and how many cases belong to none."""
    none = [f"{counted(outside, 'case')} of no dataset"] if outside else []
    return ", ".join([*map(str, editions), *none]) or "no dataset"


def files_hash(paths: Iterable[Path]) -> str:
    """Return the SHA-256 of names and contents, independent of order, folders, and line endings.

    It covers bytes, not parsed values: hashing the whole benchmark takes a few hundredths of a second, so even a
    session with a single case can name its edition.
    """
    digest = hashlib.sha256()
    for path in sorted(paths, key=lambda path: (path.name, path)):
        content = hashlib.sha256(_bytes(path).replace(b"\r\n", b"\n")).hexdigest()
        digest.update(f"{path.name} {content}\n".encode())
    return digest.hexdigest()


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DocumentError(path, [(1, 1, f"cannot be read: {error.strerror}; check its permissions")]) from None


DRAFT_SUFFIX: Final = ".draft.json"
"""The end of the name of a draft's record; it takes the place of the suffix of the case or toolkit."""


def is_draft(path: Path) -> bool:
    """Return whether a case or toolkit is a draft of a model that nobody has accepted."""
    suffix = next((suffix for suffix in (*CASE_SUFFIXES, TOOLKIT_SUFFIX) if path.name.endswith(suffix)), None)
    return suffix is not None and path.with_name(path.name.removesuffix(suffix) + DRAFT_SUFFIX).is_file()


def case_files(root: Path) -> list[Path]:
    """Return the case files below a folder, sorted, without drafts; if ``root`` is a file, only that one."""
    if root.is_file():
        return [root]
    return sorted(path for path in root.rglob("*") if path.name.endswith(CASE_SUFFIXES) and not is_draft(path))
