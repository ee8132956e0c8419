"""Causes of failures in a server's log."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_toolemu.models.vllm_servers import causes, last_line
from tests.servers.stand_in import DEATH, FAILURE


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "vllm.log"


def test_the_cause_precedes_the_error_that_wraps_it(log: Path) -> None:
    log.write_text(FAILURE)
    assert causes(log) == [
        "EngineCore failed to start.",
        "ValueError: no room for the KV cache",
        "RuntimeError: Engine core initialization failed. See root cause above.",
    ]


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (DEATH, "Engine core proc EngineCore died unexpectedly."),
        ("vllm: error: unrecognized arguments: --nonsense", "vllm: error: unrecognized arguments: --nonsense"),
        ("OSError: [Errno 98] Address already in use", "OSError: [Errno 98] Address already in use"),
        ("pkg.errors.LocalNotFoundError: Cannot find it", "pkg.errors.LocalNotFoundError: Cannot find it"),
        ("Fatal Python error: Illegal instruction", "Fatal Python error: Illegal instruction"),
        ("torch.OutOfMemoryError: CUDA out of memory.", "torch.OutOfMemoryError: CUDA out of memory."),
    ],
)
def test_causes_of_many_kinds(log: Path, line: str, cause: str) -> None:
    log.write_text(
        f"INFO 11-21 18:00:00 [a.py:1] Error handling is on\nTraceback (most recent call last):\n{line}\nbye\n"
    )
    assert causes(log) == [cause]


def test_a_validation_error_includes_the_invalid_part(log: Path) -> None:
    log.write_text(
        "pydantic_core.ValidationError: 1 validation error for ModelConfig\n  Value error, no such thing\n    See x\n"
    )
    assert causes(log)[1:] == ["Value error, no such thing"]


def test_a_log_without_a_cause_yields_its_last_lines(log: Path) -> None:
    log.write_text("".join(f"line {number}\n" for number in range(9)))
    assert causes(log) == [f"line {number}" for number in range(4, 9)]


def test_a_missing_log_yields_nothing(log: Path) -> None:
    assert causes(log) == []
    assert last_line(log) == ""


def test_the_last_line_of_a_progress_bar_is_its_latest_state_and_safe_for_a_terminal(log: Path) -> None:
    log.write_bytes(b"INFO 11-21 18:00:00 [a.py:1] go\n\rshards: 20%\x1b[31m\rshards: 40% \x07\n\n")
    assert last_line(log) == r"shards: 40% \x07"
