"""Reads a case file and the toolkits that it names, and checks every reference between them.

The checks are strict because a mistake here is silent otherwise: a pin for an unknown tool would never answer, and a
check with a misspelled argument would never match, so an unsafe agent would pass.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.core.case import SUFFIX, SUFFIXES, Case, ResolvedCase, poison_problems, with_hostile_texts
from pytest_toolemu.core.case_rules import (
    CallPattern,
    CarefulRead,
    Check,
    Pin,
    Reference,
    ReferenceCall,
    argument_problems,
)
from pytest_toolemu.core.case_vocabulary import UNASKED
from pytest_toolemu.core.toolkit import NAME, Tool, Toolkit, benchmark_folder, provider_name
from pytest_toolemu.core.toolkit import SUFFIX as TOOLKIT_SUFFIX
from pytest_toolemu.core.world.case_rows import row_problems
from pytest_toolemu.core.world.database import require_sqlite
from pytest_toolemu.core.world.toolkit_plan import declaration_problems_in_file
from pytest_toolemu.core.world.world_state import query_problems
from pytest_toolemu.errors import DocumentError
from pytest_toolemu.formats.identifiers import case_id_problem
from pytest_toolemu.formats.json_schema import unknown_keywords
from pytest_toolemu.formats.yaml_document import KEY, Document, Loc, closest, show


def case_id(path: Path) -> str:
    """Return the ID of the case in a file: the file name without the suffix."""
    return path.name.removesuffix(SUFFIX).removesuffix(SUFFIXES[1])


def load_case(path: Path) -> ResolvedCase:
    """Return the case in a file with its toolkits. Raise a DocumentError with all problems and their locations."""
    return build_case(Document.read(path))


def build_case(document: Document) -> ResolvedCase:
    """Return the case in a document that was read, with its toolkits. Raise a DocumentError as ``load_case`` does."""
    path = document.path
    identity = case_id(path)
    if problem := case_id_problem(identity):
        raise document.error([((), f"the file's stem {show(identity)} is the case's id; {problem}")])
    if isinstance(document.value, dict) and "id" in document.value:
        raise document.error([(("id", KEY), "unknown key 'id'; the id of a case is the stem of its file")])
    try:
        case = document.build(Case, {"id": identity})
    except DocumentError as error:
        raise DocumentError(error.path, [*_with_tool_names(error, document)]) from None
    toolkits = resolve_toolkits(case.toolkits, document)
    if problems := list(poison_problems(toolkits, case.poisoned_tools)):
        raise document.error(problems)
    resolved_case = ResolvedCase(case, with_hostile_texts(toolkits, case.poisoned_tools), path)
    if problems := [*_reference_problems(resolved_case), *row_problems(case, resolved_case.toolkits)]:
        raise document.error(problems)
    queries = {(*loc, "state"): pattern.state for loc, pattern in _patterns(case) if pattern.state is not None}
    for entity, condition in case.allowed_rows.items():
        queries["allow_changes", entity] = f"SELECT 1 FROM initial.{entity} WHERE {condition}"
    reasons = query_problems(resolved_case, queries.values()) if queries else []
    if wrong := [(loc, reason) for loc, reason in zip(queries, reasons, strict=True) if reason is not None]:
        raise document.error(wrong)
    return resolved_case


_NO_TOOL: Final = re.compile(r'(.*"(?:\w+\.)?([\w-]+)"): expected Toolkit\.Tool,.*', re.DOTALL)


def _with_tool_names(error: DocumentError, document: Document) -> Iterator[tuple[int, int, str]]:
    """Yield the problems; for a name by which agents call a tool, with the name that files use."""
    names = document.value.get("toolkits", ()) if isinstance(document.value, dict) else ()
    tools: dict[str, str] = {}
    for name in names if isinstance(names, list | tuple) else ():
        path = find_toolkit(name, document.path.resolve().parent) if NAME.fullmatch(str(name)) else None
        if path is not None:
            with contextlib.suppress(DocumentError):
                toolkit = load_toolkit(path)
                tools |= {toolkit.callable_name(tool): f"{name}.{tool.name}" for tool in toolkit.tools}
    for line, column, text in error.problems:
        called = _NO_TOOL.fullmatch(text)
        tool = tools.get(called[2]) if called else None
        yield line, column, f"{called[1]} is the name for agents; write {tool}" if called and tool else text


def _reference_problems(resolved_case: ResolvedCase) -> list[tuple[Loc, str]]:
    """Return the tools that the case's toolkits lack, and the values that their schemas refuse."""
    case, tools = resolved_case.case, resolved_case.tools_in_files
    problems = [
        (loc, f"unknown tool {name!r}{closest(name, tools)}") for loc, name in _tool_names(case) if name not in tools
    ]
    for index, pin in enumerate(case.pins):
        if pin.tool in tools:
            problems += _argument_problems(pin.arguments, (pin.tool,), tools, ("pins", index))
            problems += _pin_problems(pin, tools[pin.tool], ("pins", index))
    for loc, pattern in _patterns(case):
        if pattern.state is not None and not case.world:
            problems.append(((*loc, "state"), "there are no rows to query; add 'world' to the case"))
        problems += _argument_problems(pattern.arguments, pattern.tools, tools, loc)
    for loc, call in _made_calls(case):
        if call.tool in tools:
            invalid = tools[call.tool].argument_schema.violations(call.arguments)
            problems += [
                ((*loc, "arguments"), f"{call.tool} does not take these arguments: {text}") for text in invalid
            ]
    problems += [
        (("unlabeled", label, KEY), f"{label!r} is also the name of a labeled reference; choose another name")
        for label in case.unlabeled
        if label in case.references
    ]
    if case.conversation is not None:
        problems += [(("conversation", *loc), text) for loc, text in _label_problems(case.in_conversation)]
    return [*problems, *_label_problems(case), *conversation_problems(case)]


def _label_problems(case: Case) -> Iterator[tuple[Loc, str]]:
    """Yield the checks that references name and that the case lacks."""
    never = {check.id for check in case.checks if check.never}
    expect = {check.id for check in case.checks if check.expect}
    for label, reference in case.references.items():
        labels = (("violated", reference.violated, "never", never), ("missed", reference.missed, "expect", expect))
        for member, names, kind, ids in labels:
            for index, name in enumerate(names or ()):
                if name not in ids and name != UNASKED:
                    problem = f"no check with '{kind}' has the ID {name!r}{closest(name, ids)}"
                    yield ("references", label, member, index), problem


def _argument_problems(
    arguments: dict[str, Any], names: tuple[str, ...], tools: dict[str, Tool], loc: Loc
) -> list[tuple[Loc, str]]:
    """Return the problems of a pattern; one that several tools have is returned once."""
    problems = [
        ((*loc, "arguments", *place), message)
        for name in names
        if name in tools
        for place, message in argument_problems(arguments, tools[name].parameters, name)
    ]
    return list(dict.fromkeys(problems))


def _patterns(case: Case) -> Iterator[tuple[Loc, CallPattern]]:
    for loc, check in checks_of(case):
        for kind, pattern in (("never", check.never), ("unless", check.unless), ("expect", check.expect)):
            if pattern is not None:
                yield (*loc, kind), pattern


def _tool_names(case: Case) -> Iterator[tuple[Loc, str]]:
    """Yield every tool that the case names, with its location."""
    for index, pin in enumerate(case.pins):
        yield ("pins", index, "tool"), pin.tool
    for loc, pattern in _patterns(case):
        for name in pattern.tools:
            yield (*loc, "tool"), name
    for loc, call in _made_calls(case):
        yield (*loc, "tool"), call.tool


def _made_calls(case: Case) -> Iterator[tuple[Loc, ReferenceCall | CarefulRead]]:
    """Yield the calls of references and of the proof, with their locations."""
    for loc, reference in references_of(case):
        yield from calls_of(reference, loc)
    for label, unlabeled in case.unlabeled.items():
        for index, call in enumerate(unlabeled.calls):
            yield ("unlabeled", label, "calls", index), call
    for index, read in enumerate(case.proof.careful_reads if case.proof else ()):
        yield ("proof", "careful_reads", index), read


def _pin_problems(pin: Pin, tool: Tool, loc: Loc) -> list[tuple[Loc, str]]:
    problems: list[tuple[Loc, str]] = []
    if pin.returns is not None:
        for text in tool.result_schema.violations(pin.returns):
            problems.append(((*loc, "returns"), f"{pin.tool} does not return this: {text}"))
    if pin.error is not None:
        name = pin.error.partition(":")[0].strip()
        if name not in tool.errors:
            problems.append(((*loc, "error"), f"{pin.tool} declares no error {show(name)}{closest(name, tool.errors)}"))
    return problems


def checks_of(case: Case) -> Iterator[tuple[Loc, Check]]:
    """Yield the checks of the case, then those of its conversation, with their locations."""
    for index, check in enumerate(case.checks):
        yield ("checks", index), check
    for index, check in enumerate(case.conversation.checks if case.conversation else ()):
        yield ("conversation", "checks", index), check


def references_of(case: Case) -> Iterator[tuple[Loc, Reference]]:
    """Yield the labeled references of the case, then those of its conversation, with their locations."""
    for label, reference in case.references.items():
        yield ("references", label), reference
    for label, reference in (case.conversation.references if case.conversation else {}).items():
        yield ("conversation", "references", label), reference


def calls_of(reference: Reference, loc: Loc) -> Iterator[tuple[Loc, ReferenceCall]]:
    """Yield the calls of all turns of a reference at a location, in order."""
    for number, turn in enumerate(reference.turns):
        for index, call in enumerate(turn.calls):
            yield (*loc, "turns", number, "calls", index), call
    for index, call in enumerate(reference.calls):
        yield (*loc, "calls", index), call


def conversation_problems(case: Case) -> Iterator[tuple[Loc, str]]:
    """Yield the facts that checks name and that the case lacks, and turns in references without a conversation."""
    facts = [fact.id for fact in case.conversation.facts] if case.conversation else []
    for loc, check in checks_of(case):
        for kind, pattern in (("unless", check.unless), ("expect", check.expect)):
            for index, name in enumerate(pattern.told or () if pattern else ()):
                if name not in facts:
                    remedy = closest(name, facts) if facts else "; add 'conversation' with this fact to the case"
                    yield (*loc, kind, "told", index), f"no fact of the conversation has the ID {name!r}{remedy}"
    for label, reference in case.references.items():
        if reference.turns:
            problem = "'turns' are for runs with several turns; move the reference to 'references' in 'conversation'"
            yield ("references", label, "turns"), problem


_NAME_RULE: Final = "use letters and digits, begin with a letter, and use at most 40 characters"


# Drafts, and the suite into which they move; None while no draft is read.
_DESTINATION: ContextVar[tuple[Path, Path] | None] = ContextVar("_DESTINATION", default=None)


def load_toolkit(path: Path) -> Toolkit:
    """Return the toolkit in a file, which is read once per process. Raise DocumentError if it is not valid.

    The toolkit's name must equal the file name without the suffix, as cases find a toolkit by its file name.
    """
    stat = path.stat()
    return _load(path, stat.st_mtime_ns, stat.st_size)


@functools.lru_cache(maxsize=1024)
def _load(path: Path, _modified: int, _size: int) -> Toolkit:
    document = Document.read(path)
    toolkit = document.build(Toolkit)
    expected = path.name.removesuffix(TOOLKIT_SUFFIX)
    if toolkit.name != expected:
        message = f"the toolkit is named {toolkit.name!r}, its file {path.name!r}; give both the same name"
        raise document.error([(("name",), message)])
    problems = list(_unknown_keywords(toolkit))
    if toolkit.is_declared:
        require_sqlite()
        problems += declaration_problems_in_file(toolkit)
    if problems:
        raise document.error(problems)
    return toolkit


def _unknown_keywords(toolkit: Toolkit) -> Iterator[tuple[Loc, str]]:
    """Yield the unknown keywords of all schemas.

    Only files are checked: toolkits in records of earlier versions may contain some.
    """
    for index, tool in enumerate(toolkit.tools):
        schemas: dict[str, dict[str, Any]] = {"parameters": tool.parameters, "returns": tool.returns}
        for part, schema in schemas.items():
            for loc, message in unknown_keywords(schema):
                yield ("tools", index, part, *loc), f"{tool.name}: {message}"
    for name, entity in toolkit.entities.items():
        for field, schema in entity.fields.items():
            for loc, message in unknown_keywords(schema):
                yield ("entities", name, "fields", field, *loc), f"{field}: {message}"


def toolkit_folders(folder: Path) -> tuple[Path, ...]:
    """Return the folders in which a case in ``folder`` looks for toolkits.

    These are the ``toolkits/`` folders next to the case and above it, nearest first, then the shipped one. Drafts look
    in those of their suite after their own, see ``drafts_move_to``.
    """
    destination = _DESTINATION.get()
    if destination is None or destination[0] not in (folder, *folder.parents):
        return _toolkit_folders(folder)
    drafts, suite = destination
    above = _toolkit_folders(folder)
    own = [where for where in above if drafts in where.parents]
    return tuple(dict.fromkeys([*own, *_toolkit_folders(suite / "cases"), *above]))


@functools.lru_cache(maxsize=1024)
def _toolkit_folders(folder: Path) -> tuple[Path, ...]:
    own = [parent / "toolkits" for parent in (folder, *folder.parents) if (parent / "toolkits").is_dir()]
    shipped = benchmark_folder() / "toolkits"
    return tuple(dict.fromkeys([*own, shipped]))


def forget_toolkit_folders() -> None:
    """Search for folders of toolkits again, because there may be a new one."""
    _toolkit_folders.cache_clear()


@contextmanager
def drafts_move_to(suite: Path, drafts: Path) -> Iterator[None]:
    """Let cases below ``drafts`` use the toolkits that they will find in the suite, which may be anywhere.

    This is so for all that is read within the context, also in its threads and tasks.
    """
    token = _DESTINATION.set((drafts.resolve(), suite.resolve()))
    try:
        yield
    finally:
        _DESTINATION.reset(token)


def find_toolkit(name: str, folder: Path) -> Path | None:
    """Return the nearest file that defines the toolkit, for a case in ``folder``; None if there is none."""
    candidates = (where / f"{name}{TOOLKIT_SUFFIX}" for where in toolkit_folders(folder))
    return next((path for path in candidates if path.is_file()), None)


def known_toolkits(folder: Path) -> set[str]:
    """Return the names of all toolkits that a case in ``folder`` can use."""
    paths = (path for where in toolkit_folders(folder) for path in where.glob(f"*{TOOLKIT_SUFFIX}"))
    return {path.name.removesuffix(TOOLKIT_SUFFIX) for path in paths}


_INVALID: Final = " is not valid:\n"


def resolve_toolkits(names: tuple[str, ...], document: Document) -> tuple[Toolkit, ...]:
    """Return the toolkits that a case names.

    Raise DocumentError if any is unknown or not valid, with a problem at the position of each such name.
    """
    folder = document.path.resolve().parent
    toolkits: list[Toolkit] = []
    problems: list[tuple[Loc, str]] = []
    for index, name in enumerate(names):
        if not NAME.fullmatch(name):
            problems.append((("toolkits", index), f"{show(name)} cannot be the name of a toolkit; {_NAME_RULE}"))
            continue
        path = find_toolkit(name, folder)
        if path is None:
            hint = closest(name, known_toolkits(folder))
            hint += "" if "did you mean" in hint else f"; the file of a new one is toolkits/{name}{TOOLKIT_SUFFIX}"
            problems.append((("toolkits", index), f"unknown toolkit {name!r}{hint}"))
            continue
        try:
            toolkits.append(load_toolkit(path))
        except DocumentError as error:
            problems.append((("toolkits", index), f"the toolkit {name!r}{_INVALID}{error}"))
    if not problems:
        problems += [(("toolkits", index), message) for index, message in _shared_names(toolkits)]
    if problems:
        raise document.error(problems)
    return tuple(toolkits)


def without_repeated(error: DocumentError, reported: set[str]) -> DocumentError:
    """Return the error of a case without the errors of toolkits that were reported with another case."""
    problems = []
    for line, column, text in error.problems:
        head, is_of_toolkit, errors = text.partition(_INVALID)
        is_repeated = is_of_toolkit and errors in reported
        problems.append((line, column, f"{head} is not valid; its errors are reported above" if is_repeated else text))
        reported.add(errors)
    return DocumentError(error.path, problems)


def _shared_names(toolkits: list[Toolkit]) -> Iterator[tuple[int, str]]:
    """Yield the number of each toolkit that has a tool with the same name for agents as an earlier toolkit."""
    owners: dict[str, str] = {}
    for index, toolkit in enumerate(toolkits):
        for tool in toolkit.tools:
            name = toolkit.callable_name(tool)
            owner = owners.setdefault(provider_name(name), toolkit.name)
            if owner != toolkit.name:
                yield (
                    index,
                    f"agents would call a tool of {owner} and a tool of {toolkit.name} by the name {name!r}; "
                    "change 'call_as' of one of them",
                )
