"""Worlds that a model built for a case, and the file of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from pydantic import Field, ValidationError

from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.run import content_of, sha256
from pytest_toolemu.core.world.trap import Design, Proof, Trap
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.files.atomic_write import write_json_text
from pytest_toolemu.formats.files.regular_files import read_regular
from pytest_toolemu.formats.files.stored_json import first_problem
from pytest_toolemu.formats.identifiers import CaseId, ContentHash, file_stem
from pytest_toolemu.formats.yaml_document import Record

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
    key: ContentHash = Field(
        description="SHA-256 of what the world was built from: case, toolkits, prompts, and variant"
    )
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
    write_json_text(path, world.model_dump_json(indent=2, exclude_defaults=False) + "\n")
    return path


def read_world(path: Path, key: str) -> BuiltWorld:
    """Return the world in a file. Raise UsageError if it cannot be read, or was built from something else."""
    try:
        raw = read_regular(path, _MAX_BYTES)
        world = BuiltWorld.model_validate_json(raw)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; build it with 'toolemu worlds build'") from None
    except ValidationError as error:
        reason = first_problem(BuiltWorld, raw, error.errors(include_url=False))
        raise UsageError(f"{path}: not a world that this version reads ({reason}); build it again") from None
    if world.key != key:
        raise UsageError(f"{path}: was built from another case, toolkit, or prompt; build it again")
    return world
