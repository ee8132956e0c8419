"""The text of a session in terminals of several widths."""

from __future__ import annotations

import os
import re
import sys

import pytest

from pytest_toolemu.plugin.output.terminal_text import wrapped
from pytest_toolemu.reporting.summary_table import text_table
from tests.plugin.conftest import Project
from tests.terminal import Terminal

ROWS: list[tuple[str, ...]] = [("agent", "n", "safety"), ("gpt-4o", "144", "2.01"), ("noact", "7", "3.00")]
RISKY = "--toolemu-agent=reference:risky"


class TestATable:
    def test_has_aligned_columns(self) -> None:
        assert text_table(ROWS, 80) == ["agent     n  safety", "gpt-4o  144    2.01", "noact     7    3.00"]

    def test_has_no_limit_in_a_log(self) -> None:
        assert text_table(ROWS, None) == text_table(ROWS, 80)

    def test_becomes_several_tables_if_it_is_too_wide(self) -> None:
        assert text_table(ROWS, 18) == [
            "agent     n", "gpt-4o  144", "noact     7", "",
            "agent   safety", "gpt-4o    2.01", "noact     3.00",
        ]  # fmt: skip


class TestALine:
    def test_is_broken_between_words_and_indented(self) -> None:
        assert wrapped(["  one two three"], 10, more="  ") == ["  one two", "    three"]

    def test_keeps_a_path_in_one_piece(self) -> None:
        path = ".toolemu/20260101-000000-abc/a--b.json"
        assert wrapped([f"record: {path}"], 20) == ["record:", f"  {path}"]

    def test_is_not_broken_in_a_log(self) -> None:
        assert wrapped(["a " * 500], None) == ["a " * 500]


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are those of POSIX")
class TestTheSummary:
    def session_lines(self, project: Project, width: int, *args: str, folder: str = ".") -> list[str]:
        environ = {**os.environ, "TERM": "dumb"}
        with Terminal(project.command(*args), width, cwd=project.path / folder, env=environ) as terminal:
            return terminal.remainder().replace("\r\n", "\n").split("\n")

    @pytest.mark.parametrize("width", [60, 80, 100])
    def test_fits_into_a_narrow_terminal_and_breaks_no_word(self, alone: Project, width: int) -> None:
        lines = self.session_lines(alone, width, RISKY)
        lines = lines[next(index for index, line in enumerate(lines) if "= toolemu =" in line) :]
        # The terminal breaks longer words, such as paths of records.
        assert [line for line in lines if len(line) > width and len(max(line.split(), key=len)) < width - 8] == []
        words = set(" ".join(lines).split())
        assert {"safety", "unsafe", "inconcl.", "broken", "tokens", "cost", "agent"} <= words
        labels = ["agent", "n", "safety [95 %]", "SD", "unsafe [95 %]", "help. [95 %]"]
        assert [line[:15].rstrip() for line in lines[1:7]] == labels, "one table, which is not split"

    def test_is_a_single_table_if_there_is_room(self, alone: Project) -> None:
        lines = self.session_lines(alone, 200, RISKY)
        assert any(re.match(r"agent +n +safety.* +unsafe.* +cost$", line) for line in lines)

    def test_breaks_the_text_of_a_failure_between_words(self, project: Project) -> None:
        path = project.case("anna")
        path.write_text(path.read_text().replace("what I owe", "and " * 40 + "then nobody"))
        lines = self.session_lines(project, 60, RISKY, "-k", "anna")
        start = lines.index("case: Pay Anna")
        assert lines[start + 1] == "instruction: Pay Anna" + " and" * 9
        assert lines[start + 2].startswith("  and and ")


def test_the_summary_comes_after_the_list_of_failed_tests(project: Project) -> None:
    lines = project.run(RISKY).outlines
    sections = [line.strip("= ") for line in lines if line.startswith("====")]
    assert sections[-3:-1] == ["short test summary info", "toolemu"]
    assert lines[-2].startswith("records: ")
    assert "2 failed" in lines[-1]


@pytest.mark.parametrize("option", ["-q", "--tb=line", "--tb=no"])
def test_in_short_mode_a_failure_has_one_line_and_one_for_its_transcript(alone: Project, option: str) -> None:
    lines = alone.run(RISKY, "-k", "anna", option).outlines
    summary = lines[next(index for index, line in enumerate(lines) if "= short test summary" in line) :]
    failure, transcript = [line for line in summary if "anna" in line]
    assert failure.startswith("FAILED cases/anna.toolemu.yaml::anna[reference:risky] - safety 0 < 2, helpful")
    assert transcript == "show every step: toolemu show latest anna"


def test_the_worst_of_many_failures_are_listed_once_more(alone: Project) -> None:
    for name in ("cora", "dora", "emma", "fred"):
        alone.case(name)
    lines = alone.run(RISKY).outlines
    assert sum(line.startswith("safety 0 help. 0  cases/") for line in lines) == 5, "of 6"


def test_a_failure_shows_the_rejected_call_the_right_name_and_the_command_for_the_transcript(project: Project) -> None:
    project.write(
        "mine.py",
        "async def wrong(task, toolbox):\n    await toolbox.call('Till_Lok', {'who': 'x'})\n    return 'done'\n",
    )
    result = project.run("--toolemu-agent=mine:wrong", "-k", "anna")
    result.stdout.fnmatch_lines(
        [
            'step 1, rejected: Till_Lok {"who": "x"}: *there is no tool *Till_Look*',
            "record: *",
            "show every step: toolemu show latest anna",
        ]
    )
    assert "no interval" not in result.stdout.str()
