"""Every test is in exactly one shard, regardless of other tests and of their order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_toolemu.errors import UsageError
from pytest_toolemu.sessions.shard_assignment import DURATIONS, Shard, ShardAssignment, read_durations
from pytest_toolemu.settings.option_table import Settings
from pytest_toolemu.settings.resolution import resolve

NAMES = st.lists(st.text(max_size=8), unique=True)
SECONDS = st.dictionaries(st.text(max_size=8), st.floats(0, 1e6))
COUNTS = st.integers(1, 12)


@given(names=NAMES, count=COUNTS, seconds=SECONDS)
def test_the_shard_of_a_name_depends_only_on_the_number_of_shards_and_the_durations(
    names: list[str], count: int, seconds: dict[str, float]
) -> None:
    divided = ShardAssignment.balanced(count, seconds)
    again = ShardAssignment.balanced(count, dict(reversed(seconds.items())))
    for name in (*names, *seconds):
        assert 1 <= divided.place(name) == again.place(name) <= count
    assert divided.durations == again.durations


def test_assignments_do_not_depend_on_version_or_machine() -> None:
    assert [ShardAssignment(8).place(name) for name in ("june-rent-for-anna", "tests/test_x.py::test_y")] == [5, 4]


def test_shards_are_roughly_even_by_hash_and_even_by_durations() -> None:
    seconds = {f"case-{number}": 1.0 + number % 7 for number in range(200)}
    loads = dict.fromkeys(range(1, 9), 0.0)
    divided = ShardAssignment.balanced(8, seconds)
    for case, case_seconds in seconds.items():
        loads[divided.place(case)] += case_seconds
    assert max(loads.values()) - min(loads.values()) <= 1
    assert {ShardAssignment(8).place(case) for case in seconds} == set(range(1, 9))


@pytest.mark.parametrize("text", ["0/8", "9/8", "3", "3/", "a/b", "3/8/2", "-1/8"])
def test_an_invalid_shard_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        shard(text)
    assert str(caught.value) == (
        f"--toolemu-shard: '{text}' is not valid; expected INDEX/COUNT from 1/COUNT to COUNT/COUNT, such as 3/8; "
        "or slurm, in a task of a job array without gaps; COUNT is at most 100,000"
    )


def test_a_shard_is_numbered_from_one() -> None:
    assert shard("3/8").shard == "3/8"
    assert Shard.of("3/8") == Shard(3, 8)


@pytest.mark.parametrize(
    ("task", "count", "first", "step", "expected"),
    [(0, 8, 0, 1, "1/8"), (7, 8, 0, 1, "8/8"), (3, 8, 1, 1, "3/8"), (14, 3, 10, 2, "3/3")],
)
def test_a_task_of_a_job_array_is_a_shard(
    task: int, count: int, first: int, step: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("ID", task), ("COUNT", count), ("MIN", first), ("STEP", step)):
        monkeypatch.setenv(f"SLURM_ARRAY_TASK_{name}", str(value))
    assert shard("slurm").shard == expected


def test_outside_of_an_array_there_is_no_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_ARRAY_TASK_ID", raising=False)
    with pytest.raises(UsageError, match="a task of a Slurm job array, which sets SLURM_ARRAY_TASK_ID"):
        shard("slurm")


def test_a_resubmitted_part_of_an_array_keeps_its_number_of_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("ID", 5), ("COUNT", 2), ("MIN", 3), ("STEP", 1)):
        monkeypatch.setenv(f"SLURM_ARRAY_TASK_{name}", str(value))
    with pytest.raises(
        UsageError,
        match="slurm, in a task of a job array without gaps",
    ):
        shard("slurm")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", "[]: expected keys and values"),
        ('{"a": -1}', "a: -1: expected a number that is at least 0"),
        ('{"a": "long"}', 'a: "long": expected a number'),
        ("{", "line 1, column 1: EOF while parsing an object"),
    ],
)
def test_unreadable_durations_are_an_error(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / DURATIONS
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_durations(path)
    remedy = "copy the file that 'toolemu merge' writes, or delete the file for all shards"
    assert str(caught.value) == f"{path}: not a file of durations by case that this version reads: {reason}; {remedy}"


def test_without_durations_hashes_assign_the_shards(tmp_path: Path) -> None:
    assert read_durations(tmp_path / DURATIONS) == {}
    assert ShardAssignment.balanced(4, {}) == ShardAssignment(4)
    (tmp_path / DURATIONS).write_text(json.dumps({"a": 2, "b": 0.5}))
    assert read_durations(tmp_path / DURATIONS) == {"a": 2.0, "b": 0.5}


def shard(text: str) -> Settings:
    return resolve(lambda key: text if key == "toolemu_shard" else None, lambda _key: None, {})
