"""``toolemu pin`` writes the observations of a run into its case as pins."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pytest_toolemu.authoring.pin import pin_run
from pytest_toolemu.cli import app
from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.core.engine import RunSpec, run_case
from pytest_toolemu.core.run import Call, Observation, Run, Trajectory
from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.core.toolbox import Task, Toolbox
from pytest_toolemu.emulators.layers import PinnedEmulator, ValidatedEmulator
from pytest_toolemu.errors import DocumentError, UsageError
from pytest_toolemu.sessions.store import RunStore, record_text
from tests.plugin.conftest import TOOLKIT

HEAD = "# Anna, and what is owed to her\ntitle: Pay Anna\ntoolkits: [Till]   # the only one\ninstruction: Pay Anna.\n"
TAIL = (
    "# what must not happen\nchecks:\n  - {id: paid, never: {tool: Till.Pay}, likelihood: likely, severity: severe}\n"
)
OLD = "pins:\n  # the landlady\n  - {tool: Till.Look, arguments: {schema: {const: {who: Zoe}}}, returns: {balance: 1}}  # fixed\n\n"

Calls = list[tuple[str, dict[str, Any]]]


class World:
    """Return balances that decrease with each payment, or an error for an unknown name."""

    def __init__(self) -> None:
        self.balance = 12

    async def __call__(self, call: Call, _trajectory: Trajectory) -> Observation:
        if call.arguments["who"] == "Nobody":
            return Observation(content={"error": "NotFound: nobody has that name"}, source="simulated")
        if call.tool == "Till.Pay":
            self.balance -= call.arguments["amount"]
            return Observation(content={"paid": True}, source="simulated")
        return Observation(content={"balance": self.balance}, source="simulated")


async def nothing(call: Call, _trajectory: Trajectory) -> Observation:
    raise AssertionError(f"{call.name} {call.text} is not pinned")


def play(path: Path, calls: Calls, emulator: Any) -> Run:
    async def agent(_task: Task, toolbox: Toolbox) -> str:
        for name, arguments in calls:
            await toolbox.call(f"Till_{name}", arguments)
        return "Done."

    return asyncio.run(run_case(RunSpec(load_case(path), agent, ValidatedEmulator(PinnedEmulator(emulator)))))


Ran = Callable[[str, Calls], tuple[Path, Path]]


@pytest.fixture
def recorded_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Run these calls in a case with this text, in the current project; return the case file and the record."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toolkits").mkdir()
    (tmp_path / "toolkits" / "Till.toolkit.yaml").write_text(TOOLKIT)

    def run(text: str, calls: Calls) -> tuple[Path, Path]:
        path = tmp_path / "anna.toolemu.yaml"
        path.write_text(text)
        return path, RunStore.create(tmp_path / "runs", "one").put(play(path, calls, World()))

    return run


LOOK, PAY = ("Look", {"who": "Anna"}), ("Pay", {"who": "Anna", "amount": 5})


def contents(run: Run) -> list[dict[str, Any]]:
    return [step.observation.content for step in run.steps]


@pytest.mark.parametrize(
    "text", [HEAD, HEAD + TAIL, HEAD + OLD + TAIL, HEAD + OLD, HEAD + "pins: []\n" + TAIL, HEAD.rstrip()]
)
def test_another_agent_gets_the_same_results_and_comments_are_kept(recorded_run: Ran, text: str) -> None:
    path, record = recorded_run(text, [LOOK, ("Look", {"who": "Nobody"}), PAY])
    assert pin_run(record)[1] == 3
    assert contents(play(path, [PAY, ("Look", {"who": "Nobody"}), LOOK], nothing)) == [
        {"paid": True}, {"error": "NotFound: nobody has that name"}, {"balance": 12},
    ]  # fmt: skip
    case_text = path.read_text()
    for line in text.splitlines():
        assert line in case_text or line == "pins: []"
    assert case_text.startswith(HEAD.rstrip())
    assert case_text.count("\n# what must not happen\nchecks:") == (TAIL in text)


def test_an_answer_that_changed_is_pinned_for_each_time(recorded_run: Ran) -> None:
    path, record = recorded_run(HEAD, [LOOK, PAY, LOOK, LOOK])
    _, _, notes = pin_run(record)
    assert tuple(notes) == (
        'Till.Look {"who": "Anna"}: the answers changed over time, so the pins count the calls (nth)',
    )
    assert [pin.nth for pin in load_case(path).case.pins] == [1, None, None]
    assert contents(play(path, [LOOK, PAY, LOOK, LOOK, LOOK], nothing))[2:] == [{"balance": 7}] * 3


def test_pinning_again_changes_nothing(recorded_run: Ran) -> None:
    path, record = recorded_run(HEAD, [LOOK])
    pin_run(record)
    text = path.read_text()
    assert pin_run(record)[1] == 0
    assert path.read_text() == text


def test_answers_of_code_are_not_pinned(recorded_run: Ran) -> None:
    _, record = recorded_run(HEAD + OLD, [("Look", {"who": "Zoe"}), ("Look", {}), ("Lock", {})])
    assert pin_run(record)[1] == 0


def test_pins_in_flow_style_are_rewritten_with_their_comments(recorded_run: Ran) -> None:
    flow = "pins: [  # one\n  {tool: Till.Look, arguments: {schema: {const: {who: Zoe}}}, returns: {balance: 1}}]\n"
    path, record = recorded_run(HEAD + flow + TAIL, [LOOK])
    assert pin_run(record)[2] == []
    assert [pin.arguments for pin in load_case(path).case.pins] == [
        {"schema": {"const": {"who": "Zoe"}}},
        {"schema": {"const": {"who": "Anna"}}},
    ]
    assert "\n# one\npins:\n" in path.read_text()
    assert path.read_text().endswith(TAIL)


def test_a_copy_does_not_change_the_case(recorded_run: Ran, tmp_path: Path) -> None:
    path, record = recorded_run(HEAD, [LOOK])
    copy = tmp_path / "more" / "anna-again.toolemu.yaml"
    result = CliRunner().invoke(app, ["pin", str(record), "--to", str(copy)])
    assert result.output == f"1 pin added to {copy}\n"
    assert path.read_text() == HEAD
    assert load_case(copy).case.pins[0].returns == {"balance": 12}


def test_a_copy_into_a_folder_keeps_the_name_of_the_case(recorded_run: Ran, tmp_path: Path) -> None:
    _, record = recorded_run(HEAD, [LOOK])
    (tmp_path / "more").mkdir()
    assert pin_run(record, tmp_path / "more")[0] == tmp_path / "more" / "anna.toolemu.yaml"


def test_a_copy_does_not_replace_another_file(recorded_run: Ran, tmp_path: Path) -> None:
    path, record = recorded_run(HEAD, [LOOK])
    copy = tmp_path / "precious.toolemu.yaml"
    copy.write_text(HEAD + TAIL)
    with pytest.raises(UsageError) as caught:
        pin_run(record, copy)
    assert str(caught.value) == (
        f"--to {copy}: {copy} already exists and was not changed; name another file, or delete it"
    )
    assert copy.read_text() == HEAD + TAIL
    copy.unlink()
    assert [pin_run(record, target)[1] for target in (copy, copy, path)] == [1, 1, 1]


def test_a_copy_without_the_suffix_of_a_case_is_refused(recorded_run: Ran, tmp_path: Path) -> None:
    _, record = recorded_run(HEAD, [LOOK])
    with pytest.raises(
        UsageError, match=r"copy\.yaml: the name of a case file ends with \.toolemu\.yaml; name .*, or a folder"
    ):
        pin_run(record, tmp_path / "copy.yaml")


def test_a_copy_that_would_not_find_its_toolkits_is_refused(
    recorded_run: Ran, tmp_path_factory: pytest.TempPathFactory
) -> None:
    _, record = recorded_run(HEAD, [LOOK])
    copy = tmp_path_factory.mktemp("elsewhere") / "anna.toolemu.yaml"
    with pytest.raises(DocumentError, match="unknown toolkit 'Till'"):
        pin_run(record, copy)
    assert not copy.exists()


def test_an_error_that_the_tool_does_not_declare_cannot_be_pinned(recorded_run: Ran, tmp_path: Path) -> None:
    path, record = recorded_run(HEAD, [("Look", {"who": "Nobody"})])
    kit = tmp_path / "toolkits" / "Till.toolkit.yaml"
    kit.write_text(kit.read_text().replace("NotFound", "Unknown"))
    text = record_text(load_run(record)).replace('"NotFound": "Nobody', '"Unknown": "Nobody')
    record.write_text(text)
    assert tuple(pin_run(record)[2]) == (
        'Till.Look {"who": "Nobody"}: not pinned, because Till.Look declares no error "NotFound"',
    )
    assert path.read_text() == HEAD


def test_a_missing_record_or_case_is_reported(recorded_run: Ran, tmp_path: Path) -> None:
    path, record = recorded_run(HEAD, [LOOK])
    with pytest.raises(UsageError, match="runs: cannot be read: not a regular file"):
        pin_run(tmp_path / "runs")
    path.unlink()
    with pytest.raises(UsageError, match=r"its case file .*anna\.toolemu\.yaml no longer exists; restore the file"):
        pin_run(record)


def test_a_case_of_an_installed_package_is_copied_only(recorded_run: Ran, tmp_path: Path) -> None:
    path, record = recorded_run(HEAD, [LOOK])
    installed = tmp_path / "site-packages" / path.name
    installed.parent.mkdir()
    path.rename(installed)
    record.write_text(record.read_text().replace(str(path), str(installed)))
    with pytest.raises(UsageError, match="name a file for a copy with --to"):
        pin_run(record)


class TestARecordOfAnotherFile:
    """A record names the path of its case file, and a foreign record can name any path."""

    def refused(self, record: Path, source: Path, to: Path | None = None) -> str:
        text = record.read_text()
        record.write_text(text.replace(json.loads(text)["case_path"], str(source)))
        before = source.read_text()
        with pytest.raises(UsageError) as message:
            pin_run(record, to)
        assert source.read_text() == before
        return str(message.value)

    def test_that_is_no_case(self, recorded_run: Ran, tmp_path: Path) -> None:
        _, record = recorded_run(HEAD, [LOOK])
        other = tmp_path / "notes.txt"
        other.write_text("mine")
        assert self.refused(record, other).endswith(f"names {other} as its case file, which is not the case anna")

    @pytest.mark.parametrize("to", [None, "copy.toolemu.yaml"])
    def test_that_is_another_case(self, recorded_run: Ran, tmp_path: Path, to: str | None) -> None:
        _, record = recorded_run(HEAD, [LOOK])
        other = tmp_path / "other" / "anna.toolemu.yaml"
        other.parent.mkdir()
        other.write_text(HEAD.replace("Pay Anna.", "Pay nobody."))
        message = self.refused(record, other, tmp_path / to if to else None)
        assert f"{other} is not the case that was run: its instruction differs; run the case again" in message

    @pytest.mark.parametrize("link", [False, True])
    def test_outside_the_project(
        self, recorded_run: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: bool
    ) -> None:
        path, record = recorded_run(HEAD, [LOOK])
        project = tmp_path / "project"
        (project / "cases").mkdir(parents=True)
        (project / "pytest.ini").write_text("")
        monkeypatch.chdir(project / "cases")
        if link:
            path = project / "cases" / path.name
            path.symlink_to(tmp_path / path.name)
        message = self.refused(record, path)
        assert f"{path} is not in the current folder; run the command in its project, or name a file for" in message
        copy = tmp_path / "anna-again.toolemu.yaml"
        assert pin_run(record, copy)[0] == copy
