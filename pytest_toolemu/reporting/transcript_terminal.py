"""The transcript of a run for the terminal; text of models follows a bar, so that it cannot imitate other lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.console import Console
from rich.text import Text

from pytest_toolemu.analysis.rejudge import thoughts_of
from pytest_toolemu.core.run import Run
from pytest_toolemu.formats.text import in_log
from pytest_toolemu.reporting.transcript import (
    change_lines,
    shorten,
    shown_steps,
    transcript_environment,
    transcript_values,
)

_MAX_LINES: Final = 40
_MAX_TEXT: Final = 8_000
_MAX_TEXT_IN_FULL: Final = 200_000
_MAX_VALUE: Final = 60
"""Characters of a value of a changed row; a full transcript shows all."""
_MAX_WIDTH: Final = 110
"""Columns; longer lines are hard to read."""
_STYLE, _CONTENT = "\x1e\x1f"
"""What is before the style and the text of a part of a line. No text contains them, as control characters are shown."""


def transcript_lines(run: Run, width: int, *, full: bool = False) -> Iterator[Text]:
    """Yield the lines of the transcript, none wider than the terminal.

    ``full`` adds the thoughts of agent and emulator, the trap of a built world, the rows at the beginning, and what the
    agent's program wrote to standard error, and does not shorten texts.
    """
    width = max(min(width, _MAX_WIDTH), 30)
    longest, most = (_MAX_TEXT_IN_FULL, None) if full else (_MAX_TEXT, _MAX_LINES)
    console = Console(width=width)

    def block(text: object, bar: str = "│ ", style: str = "") -> str:
        """Return wrapped text, limited to about a screen unless the transcript is a full one."""
        content = Text(in_log(shorten(str(text), longest)).rstrip().expandtabs(4))
        wrapped = content.wrap(console, width - len(bar), overflow="fold")
        lines = [_styled(bar, "dim") + _styled(line.plain.rstrip(), style) for line in wrapped[:most]]
        if more := len(wrapped) - len(lines):
            lines.append(_styled(f"{bar}… {more} more lines; the record contains the full text", "dim"))
        return "\n".join(lines)

    template = transcript_environment().get_template("transcript.txt.j2")
    text = template.render(
        **transcript_values(run),
        full=full,
        block=block,
        styled=_styled,
        change_lines=lambda changes: change_lines(changes, None if full else _MAX_VALUE),
        shorten=shorten,
        in_log=in_log,
    )
    for line in text.removesuffix("\n").split("\n"):
        parts = (part.partition(_CONTENT) for part in line.split(_STYLE)[1:])
        yield Text.assemble(*((content, style) for style, _, content in parts))


def _styled(text: str, style: str) -> str:
    return f"{_STYLE}{style}{_CONTENT}{text}"


def hidden_texts(run: Run) -> str:
    """Return what only a full transcript shows; empty if there is nothing."""
    count = sum(bool(step.thought) + len(step.notes) for step in shown_steps(run)) + bool(thoughts_of(run).end)
    texts = [f"thoughts of the agent and notes of the emulator ({count})"] if count else []
    if run.trap is not None:
        texts.append("trap of the built world")
    if run.claims:
        texts.append("discarded text of the agent")
    if run.agent_log:
        texts.append("standard error of the agent")
    return ", ".join(texts)
