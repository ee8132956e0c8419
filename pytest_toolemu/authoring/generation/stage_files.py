"""Stores the reply of each stage, so that an interrupted command continues where it stopped."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.files.atomic_write import write_json_text
from pytest_toolemu.formats.files.regular_files import read_regular
from pytest_toolemu.formats.yaml_document import Record, format_location

R = TypeVar("R", bound=Record)

FOLDER: Final = "stages"
_MAX_BYTES: Final = 4_000_000


@dataclass(frozen=True)
class StageFiles:
    """The stored replies below a folder of drafts. ``key`` is a hash of everything that a reply depends on."""

    drafts: Path

    def path(self, stage: str, key: str) -> Path:
        """Return the file of a stage."""
        return self.drafts / FOLDER / f"{stage}-{key[:16]}.json"

    def relative(self, stage: str, key: str) -> str:
        """Return the path of a stage's file below the folder of drafts."""
        return self.path(stage, key).relative_to(self.drafts).as_posix()

    def read(self, stage: str, key: str) -> Any:
        """Return the stored reply; None if there is none. Raise UsageError if the file cannot be read."""
        path = self.path(stage, key)
        try:
            stored = json.loads(read_regular(path, _MAX_BYTES))
            if stored["key"] != key:
                raise ValueError("it belongs to a different request")
            return stored["reply"]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise UsageError(f"{path}: cannot be read ({error}); delete the file to ask the model again") from None

    def read_record(self, stage: str, key: str, model: type[R]) -> R | None:
        """Return a stored reply as a record, which people may have edited; None if there is none.

        Raise UsageError if the file cannot be read, or is not such a record.
        """
        value = self.read(stage, key)
        if value is None:
            return None
        try:
            return model.model_validate(value)
        except ValidationError as error:
            problems = "; ".join(f"{format_location(each['loc'])}: {each['msg']}" for each in error.errors())
            path = self.path(stage, key)
            raise UsageError(f"{path}: {problems}; correct the file, or delete it to ask the model again") from None

    def write(self, stage: str, key: str, reply: Any, model: dict[str, Any]) -> None:
        """Store a reply with the identity of its model. Raise UsageError if the file cannot be written."""
        path = self.path(stage, key)
        content = {"stage": stage, "key": key, "model": model, "reply": reply}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json_text(path, json.dumps(content, ensure_ascii=False, indent=2) + "\n")
        except OSError as error:
            raise UsageError(
                f"{path}: cannot be written: {error.strerror}; choose another folder with --into"
            ) from None
