"""A playground in an empty project, and what tests do with it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_toolemu.ui.play import Play, PlaySetup
from pytest_toolemu.ui.playground import Playground

CASE = "june-rent-for-anna"


@pytest.fixture
def playground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Playground]:
    """Yield a playground whose cases and records are in the test's folder."""
    monkeypatch.chdir(tmp_path)
    opened = Playground(tmp_path / "runs", tmp_path / "cases")
    yield opened
    opened.close()


def begun(playground: Playground, case: str = CASE, text: str | None = None, **fields: Any) -> Play:
    """Start a play, and wait until a person has something to do, or it is over."""
    return settled(playground.start(PlaySetup(case, playground.cases.text(case) if text is None else text, **fields)))


def settled(play: Play) -> Play:
    deadline = time.monotonic() + 20
    while play.turn is None and not play.is_over:
        assert time.monotonic() < deadline, "the play neither waits for a person nor ends"
        time.sleep(0.002)
    return play


def do(playground: Playground, play: Play, value: Any = None) -> Play:
    """Do what the play waits for."""
    assert play.turn is not None
    playground.resolve(play, play.turn.number, value)
    return settled(play)
