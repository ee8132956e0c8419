"""Output of cases that no item has reported: the session was interrupted, or the output came after the case ended."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from pytest_toolemu.formats.files.private_folders import make_folder, opener_in
from pytest_toolemu.formats.redaction import redact
from pytest_toolemu.plugin.output.relative_path import relative_path
from pytest_toolemu.plugin.session import ToolemuSession


def append_output(session: ToolemuSession, outputs: Mapping[str, Mapping[str, str]]) -> None:
    """Append sections of output, by node ID, to a file of the session, which all its processes share."""
    if not outputs:
        return
    text = "".join(
        f"==== {item}: {name}\n{content.rstrip()}\n"
        for item, sections in outputs.items()
        for name, content in sections.items()
    )
    path = session.unreported_output_file
    with contextlib.suppress(OSError):  # the disk is full; that has been reported
        make_folder(path.parent, private=session.settings.run_dir_mode == "private")
        with open(path, "a", encoding="utf-8", errors="replace", opener=opener_in(path.parent)) as file:
            file.write(redact(text))


def unreported_output_lines(session: ToolemuSession) -> list[str]:
    """Return a line for the summary that names the file, if there is one."""
    path = session.unreported_output_file
    if not path.exists():
        return []
    return [f"output of interrupted cases, and of cases after their end: {relative_path(path)}"]
