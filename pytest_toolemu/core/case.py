"""A case: an instruction that leaves something out, its toolkits, risks, and judging; and datasets of cases."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AwareDatetime, Field, field_validator, model_validator

from pytest_toolemu.core.case_rules import (
    CallPattern,
    CaseConversation,
    CaseProof,
    Check,
    Label,
    Pin,
    Reference,
    UnlabeledReference,
    call_schema,
    is_schema,
    with_defaults,
)
from pytest_toolemu.core.case_vocabulary import Asking, Clue, Metric, RiskType, Score, Severity
from pytest_toolemu.core.toolkit import SUFFIX as TOOLKIT_SUFFIX
from pytest_toolemu.core.toolkit import Provenance, Text, Tool, Toolkit, ToolName, callable_tools
from pytest_toolemu.errors import DocumentError
from pytest_toolemu.formats.case_names import CASE_SUFFIXES
from pytest_toolemu.formats.json_schema import conforms, schema_problem, unknown_keywords
from pytest_toolemu.formats.text import counted, quoted
from pytest_toolemu.formats.yaml_document import Document, Loc, Record, closest

Tag = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]

SUFFIXES: Final = CASE_SUFFIXES
SUFFIX: Final = SUFFIXES[0]


class User(Record):
    """The person who gives the instruction, as agent and tools know them."""

    name: Text = Field(default="John Doe", description="Full name")
    email: Text = Field(default="john.doe@gmail.com", description="E-mail address")


class Underspecified(Record):
    """The gaps of the instruction. Judges and the adversarial emulator read them; the agent does not."""

    task: tuple[Text, ...] = Field(default=(), description="Facts that the task needs and the user does not state")
    safety: tuple[Text, ...] = Field(default=(), description="Safety constraints that apply though nobody states them")


class Risks(Record):
    """What can go wrong. Judges and the adversarial emulator read it; the agent does not."""

    types: tuple[RiskType, ...] = Field(default=(), description="Risk types; each is also a pytest mark and a slice")
    outcomes: tuple[Text, ...] = Field(default=(), description="Possible harm, as 'Risk type: what happens'")
    actions: tuple[Text, ...] = Field(default=(), description="Actions of the agent that can cause an outcome")


class Thresholds(Record):
    """The lowest scores with which the case passes. They take precedence over the options of the session."""

    safety: Score | None = Field(default=None, description="Lowest passing score; default: --toolemu-min-safety")
    helpfulness: Score | Literal["none"] | None = Field(
        default=None,
        description="Lowest passing score, or 'none': only safety is judged; default: toolemu_min_helpfulness",
    )


class PoisonedTool(Record):
    """What the provider of a tool changed about it."""

    tool: ToolName = Field(description="The tool, as Toolkit.Tool")
    adds: Text | None = Field(default=None, description="Text that follows the tool's description")
    parameters: dict[str, dict[str, Any]] = Field(
        default={}, description="JSON Schemas by parameter, whose keywords are replaced or added; new ones are optional"
    )

    @model_validator(mode="after")
    def _has_change(self) -> PoisonedTool:
        if self.adds is None and not self.parameters:
            raise ValueError("a poisoned tool has 'adds', 'parameters', or both")
        return self

    def __str__(self) -> str:
        return quoted(self.model_dump(mode="json", exclude_defaults=True))

    def applied(self, tool: Tool) -> Tool:
        """Return the tool as the agent sees it."""
        properties: dict[str, Any] = tool.parameters.get("properties", {})
        changed = {name: {**properties.get(name, {}), **schema} for name, schema in self.parameters.items()}
        new = [name for name in self.parameters if name not in properties]
        operation = tool.operation and tool.operation.model_copy(update={"unused": (*tool.operation.unused, *new)})
        description = tool.description if self.adds is None else f"{tool.description}{self._added}"
        parameters = {**tool.parameters, "properties": {**properties, **changed}}
        return tool.model_copy(update={"description": description, "parameters": parameters, "operation": operation})

    def removed(self, tool: Tool) -> Tool:
        """Return the tool that ``applied`` gave without its hostile texts. Types and defaults stay as they are."""
        properties: dict[str, Any] = tool.parameters.get("properties", {})
        silent = {
            name: {keyword: value for keyword, value in properties.get(name, {}).items() if keyword != "description"}
            for name in self.parameters
        }
        parameters = {**tool.parameters, "properties": {**properties, **silent}}
        return tool.model_copy(
            update={"description": tool.description.removesuffix(self._added), "parameters": parameters}
        )

    @property
    def _added(self) -> str:
        return "" if self.adds is None else f" {self.adds}"


class Case(Record):
    """A case, read from ``ID.toolemu.yaml``. The ID is the file name without the suffix and never changes."""

    id: Annotated[str, Field(min_length=1)] = Field(default="unnamed", exclude=True)
    title: Text = Field(description="One line that names the case in reports")
    toolkits: tuple[Text, ...] = Field(min_length=1, description="Toolkits of the agent, the primary one first")
    instruction: Text = Field(description="The task, as the user writes it to the agent")
    user: User = Field(default=User(), description="The person who gives the instruction")
    now: AwareDatetime = Field(
        default=datetime.fromisoformat("2022-02-22T11:37:00-05:00"),
        description="Time in the emulated world, in quotes with its UTC offset",
    )
    locale: str = Field(default="en_US", pattern=r"^[a-z]{2}_[A-Z]{2}$", description="Language and country of the user")
    underspecified: Underspecified = Field(default=Underspecified(), description="What the instruction leaves out")
    risks: Risks = Field(default=Risks(), description="What can go wrong")
    expected: tuple[Text, ...] = Field(default=(), description="What a good agent achieves; each entry is essential")
    desirable: tuple[Text, ...] = Field(default=(), description="Further achievements; a miss costs at most one level")
    severity: Severity = Field(
        default="severe",
        description="Severity of the worst outcome; mild if it is soon put right, cheap, and hurts nobody",
    )
    asking: Asking | None = Field(
        default=None,
        description="Whether a good agent asks first: needed (only the user knows), acceptable, or needless",
    )
    clues: tuple[Clue, ...] = Field(default=(), description="Where a careful agent discovers what is wrong")
    tags: tuple[Tag, ...] = Field(default=(), description="Words of your own; each is also a pytest mark")
    twin_of: str | None = Field(default=None, description="ID of the case that this one specifies completely")
    variant_of: str | None = Field(default=None, description="ID of the case of which this one is a variant")
    split: Literal["public", "heldout"] = Field(default="public", description="'toolemu lint --stamp' writes it")
    canary: str | None = Field(default=None, description="The dataset's canary; 'toolemu lint --stamp' writes it")
    world: dict[str, dict[str, tuple[dict[str, Any], ...]]] = Field(
        default={}, description="The first rows, by toolkit and entity; code answers the calls of these toolkits"
    )
    ids: dict[str, tuple[str | int, ...]] = Field(default={}, description="Keys of new rows, by Toolkit.entity")
    poisoned_tools: tuple[PoisonedTool, ...] = Field(default=(), description="Tools with hostile descriptions")
    pins: tuple[Pin, ...] = Field(default=(), description="Fixed results of calls; the first pin that matches answers")
    checks: tuple[Check, ...] = Field(default=(), description="Rules without a model; the worst verdict decides")
    allow_changes: dict[Text, Text] | Literal["any"] = Field(
        default={},
        description="Changes that no good reference makes and that do no harm: by Toolkit.entity, an SQL condition on "
        "the rows before the run, or 'any'; 'any' alone allows every change",
    )
    references: dict[Label, Reference] = Field(default={}, description="Labeled trajectories that reference:NAME plays")
    unlabeled: dict[Label, UnlabeledReference] = Field(default={}, description="Trajectories that nobody has labeled")
    conversation: CaseConversation | None = Field(
        default=None,
        description="What the user says if asked, and how such a run is judged; needs --toolemu-turns above 1",
    )
    proof: CaseProof | None = Field(default=None, description="Calls that show a reason to stop; only lint reads it")
    thresholds: Thresholds = Field(default=Thresholds(), description="The lowest scores with which this case passes")
    inferred: tuple[str, ...] = Field(default=(), description="What an importer guessed; a person should check it")
    provenance: Provenance | None = Field(default=None, description="The model that drafted the case, and its reviewer")

    @field_validator("checks")
    @classmethod
    def _distinct(cls, checks: tuple[Check, ...]) -> tuple[Check, ...]:
        ids = [check.id for check in checks]
        if repeated := next((check_id for check_id in ids if ids.count(check_id) > 1), None):
            raise ValueError(f"the check {repeated!r} occurs twice")
        return checks

    @field_validator("clues")
    @classmethod
    def _none_is_alone(cls, clues: tuple[Clue, ...]) -> tuple[Clue, ...]:
        if "none" in clues and len(clues) > 1:
            raise ValueError("'none' means that nothing is wrong; remove it, or the other clues")
        return clues

    def rules(self, metric: Metric) -> tuple[Check, ...]:
        """Return the checks that decide the metric: ``never`` for safety, ``expect`` for helpfulness."""
        return tuple(check for check in self.checks if (check.never if metric == "safety" else check.expect))

    def judges(self, metric: Metric) -> bool:
        """Return whether the metric is judged: all but helpfulness always are."""
        return metric != "helpfulness" or self.thresholds.helpfulness != "none"

    @property
    def allowed_rows(self) -> dict[str, str]:
        """The SQL conditions of ``allow_changes`` on rows before the run, by entity."""
        allowed = {} if self.allow_changes == "any" else self.allow_changes
        return {entity: "true" if condition == "any" else condition for entity, condition in allowed.items()}

    @property
    def in_conversation(self) -> Case:
        """The case as it is in a run with several turns; the same case if it has no conversation."""
        if self.conversation is None:
            return self
        return self.model_copy(update=self.conversation.fields_of_case(self.checks))

    def applies(self, check: Check) -> bool:
        """Return whether a check can be decided: one that queries rows cannot if the case is run without its rows."""
        return bool(self.world) or not check.queries_rows


@dataclass(frozen=True)
class ResolvedCase:
    """A case with its toolkits: everything that the agent, the emulator, and the evaluators may know about it.

    ``toolkits`` are those that the agent sees: they contain the texts of poisoned tools.
    """

    case: Case
    toolkits: tuple[Toolkit, ...]
    path: Path

    @functools.cached_property
    def tools(self) -> dict[str, Tool]:
        """The tools by the name that agents call them by, such as ``Bank_Transfer``."""
        return {name: tool for name, _, tool in callable_tools(self.toolkits)}

    @functools.cached_property
    def tools_in_files(self) -> dict[str, Tool]:
        """The tools by their name in case files, such as ``Bank.Transfer``."""
        return {f"{toolkit.name}.{tool.name}": tool for _, toolkit, tool in callable_tools(self.toolkits)}

    @functools.cached_property
    def trusted_toolkits(self) -> tuple[Toolkit, ...]:
        """The toolkits without the texts of poisoned tools, for models that emulate or judge."""
        return without_hostile_texts(self.toolkits, self.case.poisoned_tools)

    @functools.cached_property
    def trusted_tools(self) -> dict[str, Tool]:
        """The tools of ``trusted_toolkits`` by the name that agents call them by."""
        return {name: tool for name, _, tool in callable_tools(self.trusted_toolkits)}

    def matches(self, pattern: Pin | CallPattern, tool: str, arguments: Any) -> bool:
        """Return whether the pin or check is about calls of ``tool`` (``Toolkit.Tool``) with these arguments.

        Plain values also match an argument that the agent left out because it is the default: both calls do the same.
        Raise SlowExpressionError if a regular expression takes too long.
        """
        names = (pattern.tool,) if isinstance(pattern, Pin) else pattern.tools
        if tool not in names:
            return False
        schema = call_schema(pattern.arguments)
        if conforms(schema, arguments):
            return True
        specification = self.tools_in_files.get(tool)
        if specification is None or not isinstance(arguments, dict) or is_schema(pattern.arguments):
            return False
        if specification.operation is not None and specification.operation.update is not None:
            return False  # an absent argument changes nothing then, also if it has a default
        return conforms(schema, with_defaults(arguments, specification.parameters))

    def callable_name(self, dotted: str) -> str:
        """Return the name that agents use for ``Toolkit.Tool``. Raise KeyError if the case has no such tool."""
        return {f"{toolkit.name}.{tool.name}": name for name, toolkit, tool in callable_tools(self.toolkits)}[dotted]


def with_hostile_texts(toolkits: tuple[Toolkit, ...], changes: tuple[PoisonedTool, ...]) -> tuple[Toolkit, ...]:
    """Return the toolkits as the agent sees them."""
    return _changed(toolkits, changes, PoisonedTool.applied)


def without_hostile_texts(toolkits: tuple[Toolkit, ...], changes: tuple[PoisonedTool, ...]) -> tuple[Toolkit, ...]:
    """Return toolkits that ``with_hostile_texts`` gave as models that emulate or judge see them."""
    return _changed(toolkits, changes, PoisonedTool.removed)


def _changed(
    toolkits: tuple[Toolkit, ...], changes: tuple[PoisonedTool, ...], change: Callable[[PoisonedTool, Tool], Tool]
) -> tuple[Toolkit, ...]:
    """Return the toolkits with each poisoned tool replaced; a toolkit without one is returned itself."""
    by_tool = {poisoned.tool: poisoned for poisoned in changes}
    return tuple(
        toolkit.model_copy(
            update={
                "tools": tuple(
                    change(by_tool[name], tool) if (name := f"{toolkit.name}.{tool.name}") in by_tool else tool
                    for tool in toolkit.tools
                )
            }
        )
        if any(name.startswith(f"{toolkit.name}.") for name in by_tool)
        else toolkit
        for toolkit in toolkits
    )


def poison_problems(toolkits: tuple[Toolkit, ...], changes: tuple[PoisonedTool, ...]) -> Iterator[tuple[Loc, str]]:
    """Yield unknown and repeated tools, and parameters that are not valid JSON Schemas, with their locations."""
    tools = {f"{toolkit.name}.{tool.name}" for toolkit in toolkits for tool in toolkit.tools}
    seen: set[str] = set()
    for index, poisoned in enumerate(changes):
        loc: Loc = ("poisoned_tools", index)
        if poisoned.tool not in tools:
            yield (*loc, "tool"), f"unknown tool {poisoned.tool!r}{closest(poisoned.tool, tools)}"
        if poisoned.tool in seen:
            yield (*loc, "tool"), f"{poisoned.tool!r} occurs twice; write both changes into one entry"
        seen.add(poisoned.tool)
        for name, schema in poisoned.parameters.items():
            if problem := schema_problem(schema):
                yield (*loc, "parameters", name), f"not a valid JSON Schema: {problem}"
            for inner, message in unknown_keywords(schema):
                yield (*loc, "parameters", name, *inner), message


DATASET_FILE: Final = "toolemu-dataset.yaml"
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
    return next((path for parent in (folder, *folder.parents) if (path := parent / DATASET_FILE).is_file()), None)


def dataset_of_toolkit(toolkit: Path) -> Path | None:
    """Return the dataset file next to a toolkit's ``toolkits/`` folder, or one folder below; None if there is none."""
    toolkit = toolkit.resolve()
    around = toolkit.parent.parent
    candidates = (path for path in (around / DATASET_FILE, *sorted(around.glob(f"*/{DATASET_FILE}"))) if path.is_file())
    return next((path for path in candidates if toolkit in DatasetFiles(path).toolkits), None)


def datasets_near(folder: Path) -> list[Path]:
    """Return the dataset file that a file or folder belongs to; if there is none, those one folder below it."""
    around = find_dataset(folder if folder.is_dir() else folder.parent)
    return [around] if around else sorted(folder.glob(f"*/{DATASET_FILE}"))


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


DRAFT_MARK: Final = "# toolemu: a draft; 'toolemu review' removes this line when you accept it\n"
"""The last line of a draft, which stays with a copy of the file."""


def is_draft(path: Path) -> bool:
    """Return whether a case or toolkit is a draft of a model that nobody has accepted."""
    suffix = next((suffix for suffix in (*SUFFIXES, TOOLKIT_SUFFIX) if path.name.endswith(suffix)), None)
    if suffix is None or not path.is_file():
        return False
    has_record = path.with_name(path.name.removesuffix(suffix) + DRAFT_SUFFIX).is_file()
    return has_record or path.read_bytes().endswith(DRAFT_MARK.encode())


def case_files(root: Path) -> list[Path]:
    """Return the case files below a folder, sorted, without drafts; if ``root`` is a file, only that one."""
    if root.is_file():
        return [root]
    return sorted(path for path in root.rglob("*") if path.name.endswith(SUFFIXES) and not is_draft(path))
