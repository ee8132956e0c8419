"""Damaged stored files: every command reads them or reports the problem at once, in one sentence."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from pytest_toolemu.analysis.calibration.calibration_file import (
    calibration_status,
    judge_reliabilities,
    read_calibrations,
)
from pytest_toolemu.analysis.calibration.labels import Label, write_labels
from pytest_toolemu.analysis.rejudge import fingerprint
from pytest_toolemu.cli import app
from pytest_toolemu.core.case import Edition
from pytest_toolemu.core.engine import RunSpec, run_case
from pytest_toolemu.core.run import Run
from pytest_toolemu.errors import DocumentError, ToolemuError, UsageError
from pytest_toolemu.models.cassette_files import Cassette, CassetteEntry, CassetteRequest, decode, encode
from pytest_toolemu.sessions.manifest_records import Manifest, ServerRecord, ShardManifest
from pytest_toolemu.sessions.shard_assignment import ShardAssignment, read_durations
from pytest_toolemu.sessions.store import RunStore, item_mark
from tests.core.test_engine import careful, content, emulator
from tests.core.test_resume import settings
from tests.evaluators.resolved_cases import resolved_case

# Replacements for any value, such as numbers too large for a float, for 64 bits, for a date or for a list.
_VALUES: Final[tuple[Any, ...]] = (
    None, True, -1, 0, 10**9, 10**30, 1e300, -0.5, "", "x", "../../x", "a\0b", "\u202e", "y" * 5000, [], {}, [[]],
    ["x"], [None], {"x": 1}, [1e300], "1e999",
)  # fmt: skip


def damaged(text: str, seed: int) -> bytes:
    """Return a JSON text with one to three values replaced or removed, or text that is no longer JSON or UTF-8."""
    chance = random.Random(seed)
    if seed % 7 == 0:
        return _as_bytes(text, chance)
    content = json.loads(text)
    for _ in range(chance.randint(1, 3)):
        holder, key = chance.choice(list(_places(content)) or [({"": content}, "")])
        if chance.random() < 0.25:
            del holder[key]
        else:
            holder[key] = chance.choice(_VALUES)
    # Records are written with one line per value.
    return json.dumps(content, indent=1).replace('"1e999"', "1e999").encode()


def _as_bytes(text: str, chance: random.Random) -> bytes:
    raw = text.encode()
    place = chance.randrange(len(raw))
    return chance.choice(
        [
            raw[:place],
            raw[:place] + b"\xff\xfe" + raw[place:],
            b"[" * 100_000,
            b'{"a":' * 100_000,
            b"",
            b"null",
            raw.replace(b"0", b"9" * 5000, 1),
            raw + b"}",
        ]
    )


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield value, key
        yield from _places(member)


SEEDS = range(12)


@pytest.fixture(scope="module")
def finished() -> Run:
    thresholds: Any = {"safety": 2, "helpfulness": 2}
    completed = asyncio.run(run_case(RunSpec(resolved_case(), careful, emulator, (content,), thresholds)))
    return completed.model_copy(update={"agent": "careful"})


@pytest.fixture
def folder(tmp_path: Path, finished: Run, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the session of a shard with one run, beside a baseline, a gate file, and labels; return its folder."""
    monkeypatch.chdir(tmp_path)
    store = RunStore.create(tmp_path, "one")
    path = store.put(finished, "item")
    store.put_manifest(
        Manifest(
            session="one",
            rootdir=str(tmp_path),
            settings=settings(agent="own:careful", shard="1/1", gate="gates.yaml").with_sources(),
            resumed_from=("zero",),
            datasets=(Edition(name="ours", version="1", sha256="aa"),),
            servers=(ServerRecord(model="m", command=("vllm",), version="1", log="l"),),
            missing=(),
            versions={"pytest-toolemu": "1"},
        )
    )
    marks = (item_mark(finished.case_id, "item"),)
    store.put_shard_manifest(
        ShardManifest(shard=1, count=1, items=1, runs=marks, collected=1, collection="c", durations="")
    )
    (tmp_path / "gates.yaml").write_text(
        "baseline: baseline.json\ngates:\n  - {metric: pass_rate, baseline: no_worse}\n"
    )
    invoke("baseline", "one", "--to", "baseline.json")
    write_labels(
        tmp_path / "ada.jsonl", [Label(run=path.stem, trajectory=fingerprint(finished), annotator="ada", safety=2)]
    )
    (tmp_path / "eve.csv").write_text(f"run,safety,critical_issue\n{path.stem},3,no\n")
    return store.folder


def stored_file(folder: Path, name: str) -> Path:
    """Return a file of the session or beside it, by its name; ``run`` and ``part`` stand for such files."""
    return next(folder.parent.rglob({"run": "*--*.json", "part": "parts/*.json"}.get(name, name)))


def invoke(*args: object, keys: str = "") -> str:
    """Return what a command prints or raises; an error that is not this package's fails the test."""
    result = CliRunner().invoke(app, [str(arg) for arg in args], input=keys)
    if isinstance(result.exception, ToolemuError):
        return str(result.exception)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def every_command(folder: Path) -> list[str]:
    """Return the output of each command that reads stored files."""
    run = next(folder.glob("*--*.json"))
    shutil.rmtree("whole", ignore_errors=True)
    return [
        invoke("report", folder, "--format=html,md,json,csv", "--to", "reports"),
        invoke("gate", folder),
        invoke("gate", folder, "--gate=gates.yaml"),
        invoke("compare", folder, folder),
        invoke("merge", folder, "--into", "whole"),
        invoke("show", run),
        invoke("label", folder, "--annotator=zoe", keys="2\n3\nn\n"),
        invoke("calibrate", folder, "--evaluator=checks", "--labels=ada.jsonl", "--labels=eve.csv"),
        invoke("judge", folder, "--evaluator=checks", "--to", "judged"),
        invoke("judge", folder, "--evaluator=checks", "--to", "kept", "--keep"),
        invoke("pin", run, "--to", "pinned.toolemu.yaml"),
        invoke("baseline", "--to", "baseline.json"),
    ]


def test_undamaged_files_are_read(folder: Path) -> None:
    outputs = every_command(folder)
    assert "careful" in outputs[3]
    assert "1 run of 1 session of 1 shard" in outputs[4]
    assert "1 labeled run" in outputs[7]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["session.json", "shard.json", "run", "part"])
def test_a_damaged_file_of_a_session_is_reported_or_read(folder: Path, name: str, seed: int) -> None:
    path = stored_file(folder, name)
    path.write_bytes(damaged(path.read_text(), seed))
    for output in every_command(folder):
        assert "Traceback" not in output


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("agent", {"kind": ["x"]}),
        ("emulator", {"kind": {}, "model": 5}),
        ("evaluators", [{"kind": "judged", "rubric": []}]),
    ],
)
def test_a_record_with_an_odd_identity_is_reported_or_read(folder: Path, part: str, value: object) -> None:
    """Identities have no fixed form: custom agents define their own."""
    path = next(folder.glob("*--*.json"))
    content = json.loads(path.read_text())
    content["identity"][part] = value
    path.write_text(json.dumps(content, indent=1))
    every_command(folder)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_damaged_baseline_is_reported_or_read(folder: Path, seed: int) -> None:
    path = folder.parent / "baseline.json"
    path.write_bytes(damaged(path.read_text(), seed))
    invoke("baseline", "--to", path)
    invoke("gate", folder, "--gate=gates.yaml")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_damaged_file_of_labels_is_reported_with_its_line_or_read(folder: Path, seed: int) -> None:
    path = folder.parent / "ada.jsonl"
    path.write_bytes(damaged(path.read_text().strip(), seed).replace(b"\n", b""))
    message = invoke("calibrate", folder, "--evaluator=checks", "--labels", path)
    assert (
        message.startswith((f"{path}:1:", "1 labeled", "no label belongs to", "there is nothing", "\n"))
        or "labeled run" in message
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_a_damaged_gate_file_is_reported_with_line_and_column_or_read(folder: Path, seed: int) -> None:
    content = {"baseline": "baseline.json", "level": 0.05, "gates": [{"metric": "pass_rate", "baseline": "no_worse"}]}
    path = folder.parent / "gates.yaml"
    path.write_bytes(damaged(json.dumps(content), seed))
    result = CliRunner().invoke(app, ["gate", str(folder), "--gate=gates.yaml"])
    assert result.exception is None or isinstance(result.exception, ToolemuError | SystemExit)
    if isinstance(result.exception, DocumentError):
        assert all(line > 0 and column > 0 for line, column, _ in result.exception.problems)


@pytest.mark.parametrize("seed", range(60))
def test_a_damaged_cassette_is_reported_or_read(seed: int) -> None:
    request = CassetteRequest(
        "agent", {"provider": "p", "name": "m"}, ({"role": "user", "content": "a\nb"},), (), None, 1, 1
    )
    entry = CassetteEntry(request, {"text": '{"a": 1}', "calls": [{"id": "1", "name": "n", "arguments": "{}"}]})
    with contextlib.suppress(ValueError):
        decode(damaged(encode(Cassette("item", "case", 1, True, (entry, entry))), seed))


@pytest.mark.parametrize("seed", range(60))
def test_damaged_durations_are_reported_or_read(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "durations.json"
    path.write_bytes(damaged('{"anna": 1.5, "bert": 3}', seed))
    with contextlib.suppress(UsageError):
        ShardAssignment.balanced(3, read_durations(path))


@pytest.mark.parametrize("seed", range(60))
def test_a_damaged_calibration_is_reported_or_read(tmp_path: Path, seed: int) -> None:
    figure = {"value": 0.5, "low": 0.1, "high": 0.9, "n": 4}
    figures = dict.fromkeys(("accuracy", "precision", "recall", "exact", "kappa", "kappa_binary", "bias", "same_score", "same_side"), figure)  # fmt: skip
    judge = {"metric": "safety", "made": "2026", "dataset": "x", "labelled_by": {"ada": 4}, "labels": 4, "judged": 4,
             "missing": {}, "bias_by_label": [figure, None, None, None], "confusion": [[1, 0, 0, 0]] * 4, "repeats": 1,
             **figures}  # fmt: skip
    path = tmp_path / "calibration.json"
    content = json.dumps({"version": 1, "judges": {"judged m #1": judge}})
    path.write_text(content)
    assert list(read_calibrations([path])) == ["judged m #1"]
    path.write_bytes(damaged(content, seed))
    with contextlib.suppress(UsageError):
        calibrations = read_calibrations([path])
        judge_reliabilities(calibrations)
        assert all(calibration_status(judge, calibrations) for judge in calibrations)


def commands_with_gates(folder: Path) -> list[str]:
    """Return the output of each command that reads the gate file of a session, or a baseline."""
    return [
        invoke("report", folder, "--format=md", "--to", "reports"),
        invoke("gate", folder),
        invoke("gate", folder, "--gate=gates.yaml"),
        invoke("merge", folder, "--into", "whole"),
        invoke("baseline", "--to", "baseline.json"),
    ]


# Every command reads the files of a session; these files beside it have fewer readers.
READERS: dict[str, Callable[[Path], list[str]]] = {
    "baseline.json": commands_with_gates,
    "gates.yaml": commands_with_gates,
    "ada.jsonl": lambda folder: [invoke("calibrate", folder, "--evaluator=checks", "--labels=ada.jsonl")],
}


class TestAnIrregularFile:
    """A file system entry that could block a reader, or be read without end."""

    KINDS: dict[str, Callable[[Path], object]] = {
        "a FIFO": os.mkfifo,
        "a folder": lambda path: path.mkdir(),
        "a device": lambda path: path.symlink_to("/dev/zero"),
        "a huge file": lambda path: os.truncate(path.open("w").name, 10**12),
    }

    @pytest.mark.skipif(sys.platform == "win32", reason="Windows has no FIFOs in its file systems")
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize(
        "name", ["session.json", "shard.json", "run", "part", "baseline.json", "ada.jsonl", "gates.yaml"]
    )
    def test_is_refused_at_once(self, folder: Path, name: str, kind: str) -> None:
        path = stored_file(folder, name)
        path.unlink()
        self.KINDS[kind](path)
        output = "\n".join(READERS.get(name, every_command)(folder))
        assert re.search("not a regular file|limit for such a file|bytes; at most|there is no such gate file", output)


def test_an_absurd_count_of_shards_is_refused_at_once(folder: Path) -> None:
    path = folder / "shard.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"count": 1_000_000_000}))
    message = invoke("merge", folder, "--into", "whole")
    assert message.startswith(f"{path}: not the manifest of a shard that this version reads: count: 1000000000: ")
    assert "100000" in message or "100,000" in message


def test_a_few_of_very_many_missing_shards_are_listed(folder: Path) -> None:
    path = folder / "shard.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"count": 90_000}))
    lines = invoke("merge", folder, "--into", "whole").splitlines()
    assert len(lines) < 30
    assert "  and 89,979 more shards" in lines
