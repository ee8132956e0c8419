"""``toolemu stats``: the same counts as a table, as Markdown and as JSON; and ``lint`` and ``stamp`` as commands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from typer.testing import CliRunner, Result

from pytest_toolemu.authoring.dataset_stats import as_markdown, stats
from pytest_toolemu.authoring.lint.file_rules import KINDS
from pytest_toolemu.cli import app
from pytest_toolemu.cli.case_files import BEGIN, END
from pytest_toolemu.core.case_vocabulary import RISK_TYPES, Clue
from pytest_toolemu.core.toolkit import benchmark_folder
from pytest_toolemu.errors import DocumentError, UsageError
from tests.authoring.office import CASE, OTHER, Office

ROOT = Path(__file__).parents[2]


def toolemu(*args: str | Path, width: int = 80) -> Result:
    return CliRunner(env={"COLUMNS": str(width)}).invoke(app, [*map(str, args)])


@pytest.fixture
def counted(office: Office) -> Office:
    aunt = OTHER.replace("severity: severe\ntags", "severity: mild\ntags").replace("nb_NO", "fi_FI")
    office.case("aunt", aunt.replace("clues: [ambiguity]", "clues: [ambiguity, status]"))
    office.dataset()
    return office


def counts_of(folder: Path) -> dict[str, dict[str, dict[str, int]]]:
    """Return all counts by the title of a table, a row, and a column."""
    return {
        table.title: {name: dict(zip(table.columns[1:], counts, strict=True)) for name, *counts in table.rows}
        for table in stats([folder]).tables
    }


def test_stats_count_toolkits_tools_and_cases(counted: Office) -> None:
    counts = counts_of(counted.folder)
    assert counts["In all"] == {
        name: {"number": number}
        for name, number in {"toolkits": 1, "tools": 2, "categories": 1, "cases": 2, "twins": 0, "references": 4,
                             "users": 2, "locales": 2, "years": 1}.items()
    }  # fmt: skip
    assert counts["Risk types"] == {kind: {"cases": 2 if kind == "wrong_person" else 0} for kind in RISK_TYPES}
    assert counts["Categories"] == {"communication": {"cases": 2, "toolkits": 1, "tools": 2}}
    assert counts["Toolkits per case"] == {"1": {"cases": 2}, "2": {"cases": 0}, "3+": {"cases": 0}}
    assert counts["Left out"] == {
        gap: {"cases": 2 if gap == "both" else 0} for gap in ("task", "safety", "both", "none")
    }
    assert counts["Severity of the worst outcome"] == {"mild": {"cases": 1}, "severe": {"cases": 1}}
    clues = {clue: count["cases"] for clue, count in counts["Clues"].items() if count["cases"]}
    assert clues == {"ambiguity": 2, "status": 1}
    assert counts["Splits"] == {"public": {"cases": 2}, "heldout": {"cases": 0}}
    assert counts["Length of instructions"] == {"terse": {"cases": 2}, "medium": {"cases": 0}, "long": {"cases": 0}}
    assert counts["Effects of tools"]["irreversible"] == {"tools": 1}
    assert counts["Scores of references"] == {
        "0": {"safety": 2, "helpfulness": 2}, "1": {"safety": 0, "helpfulness": 0},
        "2": {"safety": 0, "helpfulness": 0}, "3": {"safety": 2, "helpfulness": 2},
    }  # fmt: skip
    assert counts["Locales"] == {"nb_NO": {"cases": 1}, "fi_FI": {"cases": 1}}


def test_labels_that_differ_from_the_checks_are_counted_by_their_effect_on_the_outcome(office: Office) -> None:
    scores = "scores: {safety: 0, helpfulness: 0}"
    for name, label in (("ann", 1), ("aunt", 2)):
        different = (
            f"scores: {{safety: 0, helpfulness: {label}}}\n    checks_give: {{helpfulness: 0, reason: It is a start.}}"
        )
        office.case(name, (OTHER if name == "aunt" else CASE).replace(scores, different))
    counts = counts_of(office.folder / "cases")
    assert counts["Labels unlike the checks"] == {
        "same side of the threshold": {"references": 1},
        "other side of the threshold": {"references": 1},
    }


@pytest.mark.parametrize("width", [30, 80, 200])
def test_stats_as_tables_that_fit_the_terminal(counted: Office, width: int) -> None:
    output = toolemu("stats", counted.folder / "cases", width=width).stdout
    lines = output.splitlines()
    assert re.fullmatch(r"office 1\.2\.0 \(sha256 [0-9a-f]{12}\)", " ".join(lines[0].split()))
    assert max(len(line) for line in lines[1:]) <= width
    assert re.search(r"public +2 +100%", output)


def test_stats_as_markdown(counted: Office) -> None:
    lines = as_markdown(stats([counted.folder])).splitlines()
    assert lines[:3] == [
        "| office 1.2.0 | |",
        "|---|---|",
        "| In all | toolkits 1 · tools 2 · categories 1 · cases 2 · twins 0 · references 4 · users 2 · locales 2 · years 1 |",
    ]
    assert "| Categories: cases (toolkits, tools) | communication 2 (1, 2) |" in lines
    assert "| Severity of the worst outcome | mild 1 (50%) · severe 1 (50%) |" in lines


def test_many_locales_are_not_all_listed(office: Office) -> None:
    for number in range(14):
        office.case(f"case-{number}", CASE.replace("nb_NO", f"a{chr(97 + number)}_NO"))
    (locales,) = [table for table in stats([office.folder]).tables if table.title == "Locales"]
    assert len(locales.rows) == 13
    assert locales.rows[-1] == ("3 others", 3)


def test_markdown_is_put_between_the_markers_of_a_file(counted: Office) -> None:
    page = counted.write("page.md", f"# Page\n\n{BEGIN}\nold\n{END}\n\nEnd.\n")
    assert toolemu("stats", counted.folder, "--into", page).stdout == f"{page}: written\n"
    table = as_markdown(stats([counted.folder]))
    assert page.read_text() == f"# Page\n\n{BEGIN}\n{table}{END}\n\nEnd.\n"
    assert toolemu("stats", counted.folder, "--into", page).stdout == f"{page}: is up to date\n"
    page.write_text("# Page\n")
    result = toolemu("stats", counted.folder, "--into", page)
    assert (
        str(result.exception)
        == f"{page} has no markers for the tables; add the lines {BEGIN} and {END} where the tables belong"
    )


def test_cases_without_a_dataset_are_counted_as_such(office: Office) -> None:
    assert toolemu("stats", office.folder).stdout.splitlines()[0].strip() == "1 case of no dataset"


def test_folders_without_valid_cases_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        stats([tmp_path])
    assert str(caught.value) == (
        f"{tmp_path}: there are no cases; name a folder with cases, such as the shipped ones in {benchmark_folder()}"
    )
    (tmp_path / "a.toolemu.yaml").write_text("title: x\n")
    with pytest.raises(DocumentError, match="the key 'toolkits' is missing"):
        stats([tmp_path])


def test_the_dataset_card_is_current() -> None:
    """After a change of cases or toolkits, run ``toolemu stats cases --into docs/reference/dataset-card.md``."""
    text = (ROOT / "docs" / "reference" / "dataset-card.md").read_text(encoding="utf-8")
    tables = text.partition(f"{BEGIN}\n")[2].partition(END)[0]
    assert tables == as_markdown(stats([ROOT / "cases"]))


def test_the_risk_vocabulary_is_documented_in_one_place() -> None:
    card = (ROOT / "cases" / "README.md").read_text(encoding="utf-8")
    table_rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| (.+) \|$", card, re.MULTILINE)
    assert [(kind, meaning) for kind, _, meaning in table_rows] == list(RISK_TYPES.items())
    readable = {kind: name for kind, name, _ in table_rows if kind != "miscellaneous"}
    assert readable == {kind: name for kind, name in KINDS.items() if kind != "miscellaneous"}


def test_every_clue_is_documented_in_one_place() -> None:
    page = (ROOT / "docs" / "how-to" / "write-a-case.md").read_text(encoding="utf-8")
    section = page.partition("## Say where the clue is")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(get_args(Clue))


def test_lint_as_a_command(counted: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(counted.folder)
    result = toolemu("lint")
    pattern = r"1 toolkit, 2 tools, 2 cases; office 1\.2\.0 \(sha256 [0-9a-f]{12}\): 0 errors, 0 warnings\n"
    assert (result.exit_code, bool(re.fullmatch(pattern, result.stdout))) == (0, True)
    counted.case("aunt", "#\n" * 99 + OTHER + "titel: x\n")
    result = toolemu("lint", "cases")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0] == (
        "cases/aunt.toolemu.yaml:145:1: error: unknown key 'titel'; did you mean 'title'? [format]"
    )
    assert ": 1 error, 0 warnings" in result.stdout


def test_a_warning_does_not_fail_and_line_numbers_are_not_shown_as_emoji(office: Office) -> None:
    office.case("ann", "#\n" * 99 + CASE.replace("title: Thank", "title: Carefully thank"))
    result = toolemu("lint", office.folder)
    assert result.exit_code == 0
    assert "ann.toolemu.yaml:100:8: warning: 'Carefully' reveals" in result.stdout
    assert "; 1 case of no dataset: 0 errors, 1 warning\n" in result.stdout


def test_lint_of_an_empty_folder_fails(tmp_path: Path) -> None:
    result = toolemu("lint", tmp_path)
    assert (result.exit_code, result.stdout) == (1, "0 toolkits, 0 tools, 0 cases; no dataset: 0 errors, 0 warnings\n")


def test_stamp_as_a_command(counted: Office) -> None:
    counted.case("aunt", OTHER.replace("split: public", "split: heldout"))
    result = toolemu("lint", "--stamp", counted.folder / "cases")
    assert result.stdout.startswith("office 1.2.0: 2 cases (0 held out, 0.0%), 1 toolkit; 1 file written\n")
