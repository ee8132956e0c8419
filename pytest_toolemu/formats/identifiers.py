"""The valid forms of names that become parts of paths, whichever file or record they come from."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Final

from pydantic import AfterValidator

CASE_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
MAX_CASE_ID: Final = 240
"""Maximum length in characters: file names have at most 255 bytes, and the suffix of a case file takes 13."""

MAX_STEM: Final = 180
"""The number of characters of a case ID that are part of another file's name."""

_MAX_NAME: Final = 255
_MAX_PATH: Final = 4096


def case_id_problem(text: str) -> str:
    """Return why a text cannot be the ID of a case; empty if it can."""
    if len(text) > MAX_CASE_ID:
        return f"has {len(text)} characters; at most {MAX_CASE_ID} are allowed"
    return "" if CASE_ID.fullmatch(text) else "use letters, digits, '-', '_', and '.', and begin with a letter or digit"


def slug(text: str) -> str:
    """Return the letters a to z and digits of a text in lower case, with a hyphen for everything between them."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def file_stem(case_id: str) -> str:
    """Return the part of a file name that identifies a case: its ID, or the beginning of a long ID and a hash of it."""
    if len(case_id) <= MAX_STEM:
        return case_id
    return f"{case_id[:MAX_STEM]}-{hashlib.sha256(case_id.encode()).hexdigest()[:16]}"


def _case_id(text: str) -> str:
    if problem := case_id_problem(text):
        raise ValueError(f"not a valid case ID: {problem}")
    return text


def _matching(form: str, problem: str) -> AfterValidator:
    def check(text: str) -> str:
        if not re.fullmatch(form, text):
            raise ValueError(problem)
        return text

    return AfterValidator(check)


def _folder_name(text: str) -> str:
    if text in (".", "..") or {"/", "\\", "\0"} & set(text) or len(text.encode("utf-8", "replace")) > _MAX_NAME:
        raise ValueError("not the name of a folder")
    return text


def path_text(text: str) -> str:
    """Return text that can be a path; ValueError for anything else."""
    parts = re.split(r"[/\\]", text)
    too_long = len(text) > _MAX_PATH or any(len(part.encode("utf-8", "replace")) > _MAX_NAME for part in parts)
    if "\0" in text or too_long:
        raise ValueError("not a path")
    return text


CaseId = Annotated[str, AfterValidator(_case_id)]
RunKey = Annotated[str, _matching(r"[0-9A-Za-z]{12,128}", "not the key of a run, which is a hash")]
ContentHash = Annotated[str, _matching(r"[0-9a-f]{64}", "not a SHA-256 hash, which has 64 hexadecimal digits")]
FolderName = Annotated[str, AfterValidator(_folder_name)]
PathText = Annotated[str, AfterValidator(path_text)]
