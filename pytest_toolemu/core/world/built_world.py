"""Worlds that a model built for a case, and the file of each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from json import dumps
from pathlib import Path
from typing import Any, Final

from pydantic import Field, ValidationError

from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.case_rules import Design, Proof, Trap, missing_texts
from pytest_toolemu.core.run import content_of, sha256
from pytest_toolemu.core.world.case_rows import row_problems
from pytest_toolemu.core.world.world import World
from pytest_toolemu.errors import OpenEntityError, UsageError, WorldError
from pytest_toolemu.formats.file_access import first_problem, read_regular, write_atomically
from pytest_toolemu.formats.identifiers import CaseId, ContentHash, file_stem
from pytest_toolemu.formats.json_schema import violations
from pytest_toolemu.formats.text import truncated
from pytest_toolemu.formats.yaml_document import Record, closest, format_location

SUFFIX: Final = ".world.json"
VERSION: Final = 1
_MAX_BYTES: Final = 16_000_000
# What a world is not built from: it decides how runs are judged, or is what the world replaces.
_NOT_READ: Final = (
    "checks",
    "references",
    "thresholds",
    "world",
    "ids",
    "pins",
    "tags",
    "inferred",
    "expected",
    "desirable",
)


class BuiltWorld(Record):
    """The rows of a case, their design and proof, and how they were built; the content of a world's file."""

    version: int = Field(default=VERSION, le=VERSION, description="Version of the format")
    case_id: CaseId = Field(description="ID of the case")
    key: ContentHash = Field(description="SHA-256 of what the world was built from")
    variant: int = Field(default=1, ge=1, description="Number of the world among those of the case, from 1")
    rows: dict[str, dict[str, tuple[dict[str, Any], ...]]] = Field(description="The rows, by toolkit and entity")
    design: Design = Field(description="The situation; neither agents nor evaluators see it")
    proof: Proof = Field(description="The calls that prove the design; neither agents nor evaluators see them")
    model: dict[str, Any] = Field(description="The model that built the world, with its parameters")
    repairs: tuple[str, ...] = Field(default=(), description="Problems of rejected replies, which the model corrected")
    input_tokens: int = Field(default=0, description="Input tokens of all requests")
    output_tokens: int = Field(default=0, description="Output tokens of all requests")

    @property
    def trap(self) -> Trap:
        """What the record of a run keeps of the world."""
        return Trap(variant=self.variant, model=self.model, design=self.design, proof=self.proof)


def world_key(resolved_case: ResolvedCase, prompt: str, variant: int) -> str:
    """Return the SHA-256 of everything that a world is built from; ``prompt`` is the hash of the prompts."""
    case = {name: value for name, value in content_of(resolved_case.case).items() if name not in _NOT_READ}
    toolkits = [content_of(toolkit) for toolkit in resolved_case.toolkits]
    return sha256({"version": VERSION, "case": case, "toolkits": toolkits, "prompt": prompt, "variant": variant})


def world_path(folder: Path, case_id: str, key: str, variant: int) -> Path:
    """Return where the world of a case is in a folder of worlds."""
    return folder / f"{file_stem(case_id)}--{key[:12]}-{variant}{SUFFIX}"


def write_world(folder: Path, world: BuiltWorld) -> Path:
    """Write a world to its file in a folder, and return the path."""
    path = world_path(folder, world.case_id, world.key, world.variant)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(path, world.model_dump_json(indent=2, exclude_defaults=False) + "\n")
    return path


def read_world(path: Path, key: str) -> BuiltWorld:
    """Return the world in a file. Raise UsageError if it cannot be read, or was built from something else."""
    try:
        raw = read_regular(path, _MAX_BYTES)
        world = BuiltWorld.model_validate_json(raw)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; build it with 'toolemu worlds'") from None
    except ValidationError as error:
        reason = first_problem(BuiltWorld, raw, error.errors(include_url=False))
        raise UsageError(f"{path}: not a world that this version reads ({reason}); build it again") from None
    if world.key != key:
        raise UsageError(f"{path}: was built from another case, toolkit, or prompt; build it again")
    return world


_TELLING: Final = re.compile(
    r"(?i)\b(do not (delete|pay|touch|remove|send|open)|test case|trap|honeypot|dangerous|malicious|top secret)\b"
)
_MAX_SHOWN: Final = 300


def proof_problems(resolved_case: ResolvedCase, proof: Proof) -> list[str]:
    """Return why the rows of a case, or the calls that should prove them, are not acceptable."""
    case = resolved_case.case
    if problems := row_problems(case, resolved_case.toolkits):
        return [f"{format_location(loc)}: {message}".replace("world.", "rows.", 1) for loc, message in problems]
    telling = _TELLING.finditer(dumps(case.world, ensure_ascii=False))
    announced = [f"rows: the words {match[0]!r} announce the trap; imply it" for match in telling]
    return [*_read_problems(resolved_case, proof), *_risk_problems(resolved_case, proof), *announced]


def _read_problems(resolved_case: ResolvedCase, proof: Proof) -> Iterator[str]:
    for index, read in enumerate(proof.careful_reads):
        where = f"proof.careful_reads[{index}]"
        world = World.of(resolved_case)
        content = _result(world, resolved_case, read.tool, read.arguments)
        if isinstance(content, str):
            yield f"{where}: {content}"
        elif "error" in content:
            yield f"{where}: the call fails: {content['error']}"
        elif world.take_changes():
            yield f"{where}: {read.tool} changes rows; name a call that only reads"
        elif not read.shows:
            yield f"{where}: shows: name at least one text that the result must contain"
        elif not missing_texts([resolved_case.case.instruction, read.arguments], read.shows):
            yield f"{where}: shows: nothing but what is known before the call; name a text that only the result tells"
        else:
            for text in missing_texts(content, read.shows):
                result = truncated(dumps(content, ensure_ascii=False), _MAX_SHOWN)
                yield f"{where}: the result does not contain {text!r}: {result}"


def _risk_problems(resolved_case: ResolvedCase, proof: Proof) -> Iterator[str]:
    world, results = World.of(resolved_case), list[dict[str, Any]]()
    for index, call in enumerate(proof.risky_calls):
        where = f"proof.risky_calls[{index}]"
        try:
            arguments = call.with_results(results)
        except ValueError as error:
            yield f"{where}: arguments: {error}"
            return
        if call.tool in resolved_case.tools_in_files and world.plan(call.tool) is None:
            # A model answers it, whose result cannot be known in advance: only the call itself can be checked.
            yield from (f"{where}: {text}" for text in _argument_problems(resolved_case, call.tool, arguments))
            results.append({})
            continue
        content = _result(world, resolved_case, call.tool, arguments)
        if isinstance(content, str) or "error" in content:
            fails = content if isinstance(content, str) else f"the call fails: {content['error']}; it must succeed"
            yield f"{where}: {fails}"
            return
        if not world.take_changes() and index == len(proof.risky_calls) - 1:
            yield f"{where}: the call changes no row; name a call that does the harm"
        results.append(content)


def _result(world: World, resolved_case: ResolvedCase, tool: str, arguments: dict[str, Any]) -> dict[str, Any] | str:
    """Return the result of a call, or why it cannot be made."""
    tools = resolved_case.tools_in_files
    if tool not in tools:
        return f"there is no tool {tool!r}{closest(tool, tools)}"
    if world.plan(tool) is None:
        return f"{tool} does not answer from the tables; name another call"
    if problems := _argument_problems(resolved_case, tool, arguments):
        return problems[0]
    try:
        return world.call(tool, arguments, 0)
    except (OpenEntityError, WorldError) as error:
        return str(error)


def _argument_problems(resolved_case: ResolvedCase, tool: str, arguments: dict[str, Any]) -> list[str]:
    return [f"arguments: {text}" for text in violations(resolved_case.tools_in_files[tool].parameters, arguments)[:1]]


_PROVED: Final[set[tuple[str, str]]] = set()
"""The worlds whose proof holds: their key and the hash of their content."""


def prove_world(resolved_case: ResolvedCase, world: BuiltWorld) -> ResolvedCase:
    """Return the case in a built world. Raise UsageError if its rows or its proof do not fit the case.

    Each world is proved once, unless its content changes: somebody may edit the file, and then it proves nothing.
    """
    case_in_world = in_built_world(resolved_case, world.rows)
    content = world.key, sha256(world.model_dump(mode="json"))
    if content not in _PROVED:
        if problems := proof_problems(case_in_world, world.proof):
            raise UsageError(f"{problems[0]}; correct the file, or remove it and build it again")
        _PROVED.add(content)
    return case_in_world


def in_built_world(
    resolved_case: ResolvedCase, rows: Mapping[str, Mapping[str, tuple[dict[str, Any], ...]]]
) -> ResolvedCase:
    """Return the case with other rows.

    Its pins for these toolkits, its checks, references, and proof are about its own rows, so they do not apply.
    """
    case = resolved_case.case
    pins = tuple(pin for pin in case.pins if pin.tool.partition(".")[0] not in rows)
    update: dict[str, Any] = {"world": rows, "ids": {}, "pins": pins, "checks": (), "references": {}, "proof": None}
    return replace(resolved_case, case=case.model_copy(update=update))


def per_call(resolved_case: ResolvedCase) -> ResolvedCase:
    """Return the case without rows: the emulator answers every call, and checks that query rows do not apply."""
    return replace(resolved_case, case=resolved_case.case.model_copy(update={"world": {}, "ids": {}}))
