"""Datasets: which cases are held out, and the hash of their files."""

from __future__ import annotations

import shutil
from pathlib import Path

from pytest_toolemu.core.case import (
    DATASET_FILE,
    Case,
    Dataset,
    DatasetFiles,
    Split,
    dataset_of_toolkit,
    datasets_near,
    edition,
    edition_of,
    files_hash,
    find_dataset,
)
from pytest_toolemu.core.run import content_of, hashes_of
from pytest_toolemu.core.toolkit import benchmark_folder


def case(identity: str, **fields: object) -> Case:
    return Case.model_validate({"id": identity, "title": "t", "toolkits": ("Post",), "instruction": "i", **fields})


def dataset(seed: int = 0, heldout: float = 0.2) -> Dataset:
    return Dataset(name="set", version="1", canary="a text like no other", split=Split(seed=seed, heldout=heldout))


def test_the_share_is_held_out_with_any_seed() -> None:
    cases = [case(f"case-{number}") for number in range(3000)]
    for seed in range(3):
        heldout = [each.id for each in cases if dataset(seed).split_of(each) == "heldout"]
        assert abs(len(heldout) / 3000 - 0.2) < 0.03
    assert {each.id for each in cases if dataset(7).split_of(each) == "heldout"} != set(heldout)


def test_the_split_of_a_case_never_changes() -> None:
    """A release fixes the split, so it must not depend on the order of cases or on Python's hashes."""
    splits = [dataset(20261121).split_of(case(f"case-{number}")) for number in range(12)]
    assert [number for number, split in enumerate(splits) if split == "heldout"] == [1, 6, 9, 10, 11]


def test_a_larger_share_contains_the_cases_of_a_smaller_share() -> None:
    cases = [case(f"case-{number}") for number in range(300)]
    small, large = (
        {each.id for each in cases if dataset(heldout=share).split_of(each) == "heldout"} for share in (0.1, 0.4)
    )
    assert small < large


def test_a_twin_is_in_the_split_of_its_base() -> None:
    for number in range(50):
        base = case(f"case-{number}")
        twin = case(f"twin-{number}", twin_of=base.id)
        assert dataset().split_of(twin) == dataset().split_of(base)


def test_the_hash_depends_only_on_file_names_and_contents(tmp_path: Path) -> None:
    def write(folder: str, **contents: bytes) -> list[Path]:
        (tmp_path / folder).mkdir()
        paths = [tmp_path / folder / name for name in contents]
        for path, content in zip(paths, contents.values(), strict=True):
            path.write_bytes(content)
        return paths

    first = files_hash(write("a", one=b"1\n2\n", two=b"3"))
    assert first == files_hash(reversed(write("b", one=b"1\n2\n", two=b"3")))
    assert first == files_hash(write("c", one=b"1\r\n2\r\n", two=b"3"))
    others = [
        files_hash(write(f"d{number}", **contents))
        for number, contents in enumerate(
            [{"one": b"1\n2\n"}, {"one": b"1\n2\n", "too": b"3"}, {"one": b"3", "two": b"1\n2\n"}]
        )
    ]
    assert len({first, *others}) == 4


def test_the_shipped_dataset_is_found_from_its_files(tmp_path: Path) -> None:
    file = benchmark_folder() / "cases" / DATASET_FILE
    files = DatasetFiles(file)
    assert find_dataset(files.cases[0].parent) == file
    assert dataset_of_toolkit(files.toolkits[0]) == file
    assert datasets_near(benchmark_folder()) == datasets_near(files.cases[0]) == [file]
    assert edition_of(files.cases[0]) == edition(file)
    assert str(edition(file)) == f"toolemu-benchmark {edition(file).version} (sha256 {edition(file).sha256[:12]})"
    assert edition_of(tmp_path / "own.toolemu.yaml") is None


def test_a_copy_of_the_files_has_the_same_edition(tmp_path: Path) -> None:
    for part in ("cases", "toolkits"):
        shutil.copytree(benchmark_folder() / part, tmp_path / part)
    assert edition(tmp_path / "cases" / DATASET_FILE) == edition(benchmark_folder() / "cases" / DATASET_FILE)


def test_split_and_canary_do_not_identify_a_run() -> None:
    stamped = case("a", split="heldout", canary="a text like no other")
    assert content_of(stamped) == content_of(case("a"))
    assert hashes_of(stamped, ()) == hashes_of(case("a"), ())
    assert hashes_of(case("a", title="other"), ()) != hashes_of(case("a"), ())
