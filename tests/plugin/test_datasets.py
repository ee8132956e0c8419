"""All results name the edition of the dataset."""

from __future__ import annotations

import re

from pytest_toolemu.core.case import DATASET_FILE, DRAFT_MARK, edition
from tests.plugin.conftest import CASE, Project

DATASET = """\
name: tills
version: 2.1.0
canary: "Evaluation data of the tills, not for training"
split: {seed: 0, heldout: 0.2}
"""


def test_the_edition_is_named_in_header_summary_session_and_runs(alone: Project) -> None:
    path = alone.write(f"cases/{DATASET_FILE}", DATASET)
    alone.write("other/carl.toolemu.yaml", (alone.path / "cases/anna.toolemu.yaml").read_text())
    result = alone.run("--toolemu-agent=reference:safe", "--toolemu-agent=noact")
    dataset = edition(path)
    label = f"tills 2.1.0 (sha256 {dataset.sha256[:12]})"
    result.stdout.fnmatch_lines(
        [f"toolemu: dataset {label}".replace("[", "[[]"), f"dataset {label}: 2 cases", "no dataset: 1 case"]
    )
    assert alone.manifest()["datasets"] == [dataset.model_dump()]
    assert {(run.case_id, run.dataset) for run in alone.runs()} == {
        ("anna", dataset),
        ("bert", dataset),
        ("carl", None),
    }


def test_the_summary_states_if_there_is_no_dataset(alone: Project) -> None:
    result = alone.run("--toolemu-agent=reference:safe")
    result.stdout.fnmatch_lines(["no dataset: 2 cases"])
    assert "toolemu: dataset" not in result.stdout.str()
    assert alone.manifest()["datasets"] == []


def test_a_broken_dataset_file_stops_the_session_with_one_message(alone: Project) -> None:
    alone.write(f"cases/{DATASET_FILE}", DATASET.replace("version: 2.1.0", "version: 2.1"))
    result = alone.run("--toolemu-agent=reference:safe")
    output = result.stdout.str() + result.stderr.str()
    assert re.search(
        rf"ERROR: toolemu: .*{re.escape(DATASET_FILE)}:2:10: version: 2.1: expected text; put it in quotes", output
    )
    assert result.ret == 4
    assert alone.runs() == []


def test_the_dataset_file_is_not_collected_as_a_case(alone: Project) -> None:
    alone.write(f"cases/{DATASET_FILE}", DATASET)
    result = alone.run("--collect-only", "-q", f"cases/{DATASET_FILE}", "cases")
    assert DATASET_FILE not in result.stdout.str().replace(
        f"found no collectors for {alone.path}/cases/{DATASET_FILE}", ""
    )


def test_drafts_are_not_collected_unless_the_command_line_names_them(alone: Project) -> None:
    named = alone.write("drafts/cases/carl.toolemu.yaml", CASE.format(who="carl", tag="named"))
    for record in ("cases/bert.draft.json", "drafts/cases/carl.draft.json"):
        alone.write(record, "{}")
    result = alone.run("--collect-only", "-q", "cases", str(named))
    notice = "toolemu: 1 draft was not collected, such as cases/bert.toolemu.yaml; accept or reject drafts with 'toolemu review'*"
    result.stdout.fnmatch_lines([notice, "*::anna", "*::carl", "", "2 tests collected*"], consecutive=True)


def test_a_copied_draft_is_still_a_draft(alone: Project) -> None:
    draft = CASE.format(who="carl", tag="named") + DRAFT_MARK
    copied = alone.write("cases/carl.toolemu.yaml", draft)
    result = alone.run("--collect-only", "-q", "-k", "carl")
    result.stdout.fnmatch_lines(["toolemu: 1 draft was not collected, such as cases/carl.toolemu.yaml; *"])
    copied.write_text(draft.removesuffix(DRAFT_MARK))
    alone.run("--collect-only", "-q", "-k", "carl").stdout.fnmatch_lines(["cases/carl.toolemu.yaml::carl"])


def test_held_out_cases_can_be_selected_by_their_mark(alone: Project) -> None:
    anna = alone.path / "cases/anna.toolemu.yaml"
    anna.write_text(anna.read_text() + "split: heldout\n")
    for expression, case in (("heldout", "anna"), ("not heldout", "bert")):
        output = alone.run("--collect-only", "-q", "-m", expression).stdout.str()
        assert re.findall(r"cases/(\w+)\.toolemu\.yaml::", output) == [case]
