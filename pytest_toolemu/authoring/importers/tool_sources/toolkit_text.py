"""Writes an imported toolkit as a commented file, which is valid, or as nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.authoring.starter import create_text, schema_reference
from pytest_toolemu.core.toolkit import NAME, SUFFIX, Toolkit
from pytest_toolemu.errors import DocumentError, UsageError
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.json_schema_keywords import unknown_keywords
from pytest_toolemu.formats.redaction import redact
from pytest_toolemu.formats.truncation import truncated
from pytest_toolemu.formats.visible_text import visible
from pytest_toolemu.formats.yaml_document import MAX_BYTES, Document, dump

_COMMENTS: Final = {
    "call_as": "Changed: the source's own name has characters that providers refuse.",
    "description": "Not stated by the source, or cut.",
    "parameters": "Not stated by the source, or cut: its schema is larger, recursive, not valid, or conditional.",
    "returns": "Not stated by the source, or changed: an object, of which parts may be cut.",
    "errors": "Not stated by the source. Without any, no call could fail.",
    "effect": "A guess: read, write (can be undone), destructive (data is lost), or irreversible.",
}
_ORIGIN_LENGTH: Final = 200


def toolkit_name(path: Path) -> str:
    """Return the name of the toolkit in a file. Raise UsageError if the file's name cannot be that of a toolkit."""
    name = path.name.removesuffix(SUFFIX)
    if not path.name.endswith(SUFFIX) or not NAME.fullmatch(name):
        raise UsageError(
            f"--into {path}: the file's name must be NAME{SUFFIX}, where NAME has at most 40 letters and digits and "
            "begins with a letter; choose another name"
        )
    return name


def write_toolkit(path: Path, toolkit: Mapping[str, Any], origin: str) -> None:
    """Write the file. Raise UsageError if it exists, would be too large or not valid, or cannot be written."""
    # As JSON, because writing megabytes of YAML takes seconds; the file is a little larger.
    text = "" if _size(json.dumps(toolkit, ensure_ascii=False)) > MAX_BYTES else toolkit_text(path, toolkit, origin)
    if not text or _size(text) > MAX_BYTES:
        raise UsageError(f"{path}: would exceed the maximum of {MAX_BYTES:,} bytes; select fewer tools with --only")
    check_text(path, text)
    try:
        is_new = create_text(path, text)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}; choose another file with --into") from None
    if not is_new:
        raise UsageError(
            f"{path}: already exists and was not changed; compare it with --diff, delete it, or choose another file "
            "with --into"
        )


def _size(text: str) -> int:
    return len(text.encode())


def check_text(path: Path, text: str) -> Toolkit:
    """Return the toolkit in a text that is not written yet. Raise UsageError if it is not valid."""
    try:
        toolkit = Document.parse(text, path).build(Toolkit)
    except DocumentError as error:
        raise UsageError(f"the tools do not form a valid toolkit; exclude the named one with --only: {error}") from None
    for tool in toolkit.tools:
        for part in (tool.parameters, tool.returns):
            for _, message in unknown_keywords(part):
                raise UsageError(f"{tool.name}: {message}; exclude the tool with --only")
    return toolkit


def toolkit_text(path: Path, toolkit: Mapping[str, Any], origin: str) -> str:
    """Return the content of the file, with comments."""
    head = {key: value for key, value in toolkit.items() if key != "tools"}
    source = redact(visible(" ".join(truncated(origin, _ORIGIN_LENGTH).split())))
    lines = [
        f"# yaml-language-server: $schema={schema_reference(path, 'toolkit')}",
        f"# {counted(len(toolkit['tools']), 'tool')} of {source}.",
        "# Nothing is executed: the emulator answers calls. Agents call each tool by the name in `call_as`.",
        "# `inferred` lists the parts that are guesses. Check and correct them, and remove `inferred`; until then,",
        "# `toolemu lint` warns. The same import with --diff shows what has changed in the source.",
    ]
    return "\n".join([*lines, dump(head) + "tools:", *map(_tool_text, toolkit["tools"]), ""])


def _tool_text(tool: Mapping[str, Any]) -> str:
    lines = [line for key, value in tool.items() for line in _member_lines(key, value, tool.get("inferred", ()))]
    return "\n".join([f"  - {lines[0]}", *(f"    {line}" if line else "" for line in lines[1:])])


def _member_lines(key: str, value: Any, inferred: tuple[str, ...]) -> Iterator[str]:
    if key in inferred:
        yield f"# {_COMMENTS[key]}"
    if key == "inferred":
        yield f"inferred: [{', '.join(value)}]"  # one line, which is easy to remove
        return
    yield from dump({key: value}).rstrip("\n").split("\n")
