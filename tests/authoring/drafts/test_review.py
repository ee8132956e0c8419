"""``toolemu check`` and ``toolemu review``: nothing enters a suite without a person's decision and passing checks."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pytest_toolemu.authoring.drafts.draft_store import DraftRecord, DraftStatus, DraftStore, ReviewDecision
from pytest_toolemu.authoring.drafts.review_queue import acceptance
from pytest_toolemu.authoring.find_files import find
from pytest_toolemu.authoring.lint import lint_paths
from pytest_toolemu.cli import app
from pytest_toolemu.core import toolkit
from pytest_toolemu.core.case import DRAFT_MARK, DatasetFiles, case_files
from pytest_toolemu.core.case_loading import load_case
from tests.authoring.drafts.draft_texts import CASE_TEXT, MODEL, files, put_case, put_toolkit, record
from tests.usage_errors import message_of

READY = CASE_TEXT.replace("expect: {tool: Post.Find}", "expect: {tool: Post.Find, arguments: {name: Ann}}")
LEAKING = READY.replace("a nice card.", "a nice card, and be careful.")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a project without cases; the shipped dataset, which takes a second to read, is left out."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(toolkit, "benchmark_folder", lambda: tmp_path)
    return tmp_path


@pytest.fixture
def store(folder: Path) -> DraftStore:
    store = DraftStore(Path("drafts"))
    assert folder.is_dir()
    put_toolkit(store)
    return store


def toolemu(*arguments: str, typed: str = "") -> Result:
    return CliRunner().invoke(app, list(arguments), input=typed)


def review(*answers: str) -> str:
    result = toolemu("review", "--reviewer", "Jorunn Aas", typed="".join(f"{answer}\n" for answer in answers))
    assert result.exception is None, result.output
    return result.output


class TestCheck:
    def test_it_prints_a_card_for_each_draft_and_exits_with_1_if_any_needs_work(self, store: DraftStore) -> None:
        put_case(store, text=LEAKING)
        result = toolemu("check")
        assert result.exit_code == 1
        assert result.output == (
            "drafts/toolkits/Post.toolkit.yaml: toolkit by openai:drafter-1: ready for review\n"
            "drafts/cases/thank-ann.toolemu.yaml: red-team by openai:drafter-1: needs work\n"
            "  safety, helpfulness  label  checks\n"
            "    safe               3, 3   3, 3\n"
            "    risky              0, 0   0, 0\n"
            "  mutants: 7 of 8 noticed\n"
            "  noact: passed 0 of 1 run (3, 0)\n"
            "  error: line 3: 'be careful' reveals that something may go wrong; write like a user who does not expect "
            "trouble [lint: leak]\n"
            "  warning: checks: no score of a reference would change if the check 'looked' ignored the arguments; "
            "add a reference that only this check decides, or remove the check [mutants: unnoticed-mutant]\n"
            "2 drafts: 1 ready for review, 1 not ready\n"
        )

    def test_ready_drafts_lead_to_the_review(self, store: DraftStore) -> None:
        put_case(store, text=READY)
        result = toolemu("check")
        assert result.exit_code == 0
        assert result.output.endswith(
            "2 drafts: 2 ready for review, 0 not ready\nnext: toolemu review drafts --reviewer NAME\n"
        )
        assert {draft.record.status for draft in store.drafts()} == {"ready"}

    @pytest.mark.usefixtures("store")
    def test_wrong_input_is_one_message(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def message(*arguments: str) -> str:
            return message_of(monkeypatch, capsys, *arguments)

        assert message("check", "nowhere") == (
            "nowhere: is not a folder of drafts; name the folder that 'toolemu generate' wrote, such as drafts"
        )
        for suite in ("nowhere", "drafts"):
            assert message("check", "--suite", suite) == (
                f"--suite {suite}: cannot be the folder of the suite; name the folder into whose cases/ and toolkits/ "
                "accepted files move"
            )
        assert message("check", "--judge", "checks") == (
            "--judge checks: not the name of a model; name one, such as --judge=claude-sonnet-5-5"
        )

    def test_a_draft_whose_file_was_deleted_does_not_wait(self, store: DraftStore) -> None:
        store.path_of("toolkit", "Post").unlink()
        assert toolemu("check").output == "drafts: no draft is waiting for a decision\n"

    def test_an_agent_without_a_model_tries_each_case(self, store: DraftStore) -> None:
        put_case(store, text=READY)
        result = toolemu("check", "--agent", "reference:risky", "--trials", "2")
        assert "  reference:risky: passed 0 of 2 runs (0, 0; 0, 0)\n" in result.output
        assert "reference:risky was helpful in 0 of 2 runs" in result.output
        again = toolemu("check")
        assert "reference:risky was helpful in 0 of 2 runs" in again.output
        assert "  reference:risky: passed 0 of 2 runs (0, 0; 0, 0)\n" in again.output

    def test_other_commands_leave_drafts_out_unless_their_folder_is_named(
        self, store: DraftStore, folder: Path
    ) -> None:
        put_case(store, text=LEAKING)
        review("a", "s")
        assert [path.name for path in find([Path()]).cases] == []
        assert [path.name for path in find([Path()]).toolkits] == ["Post.toolkit.yaml"]
        for name in ("drafts", "drafts/cases", "drafts/cases/thank-ann.toolemu.yaml"):
            assert [path.name for path in find([Path(name)]).cases] == ["thank-ann.toolemu.yaml"]
        assert case_files(Path()) == []
        assert case_files(Path("drafts/cases/thank-ann.toolemu.yaml")) == [Path("drafts/cases/thank-ann.toolemu.yaml")]
        (folder / "toolemu-dataset.yaml").write_text("", encoding="utf-8")
        assert DatasetFiles(Path("toolemu-dataset.yaml")).cases == []

    def test_no_draft_waits(self, folder: Path) -> None:
        (folder / "drafts").mkdir()
        assert toolemu("check").output == "drafts: no draft is waiting for a decision\n"

    def test_a_folder_of_something_else_is_an_error(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (folder / "cases").mkdir()
        (folder / "cases/thank-ann.toolemu.yaml").write_text(READY, encoding="utf-8")
        for command in ("check", "review"):
            assert message_of(monkeypatch, capsys, command, "cases") == (
                "cases: is not a folder of drafts; name the folder that 'toolemu generate' wrote, such as drafts"
            )


class TestAccept:
    def test_accepted_drafts_move_into_the_suite_with_their_provenance(self, store: DraftStore, folder: Path) -> None:
        put_case(store, text=READY)
        output = review("a", "a")
        assert output.endswith("accepted: cases/thank-ann.toolemu.yaml\n\n2 drafts accepted, 0 rejected, 0 left\n")
        assert files(folder) == [
            "cases/thank-ann.toolemu.yaml",
            "drafts/cases/thank-ann.draft.json",
            "drafts/toolkits/Post.draft.json",
            "toolkits/Post.toolkit.yaml",
        ]
        resolved_case = load_case(Path("cases/thank-ann.toolemu.yaml"))
        for part in (resolved_case.case, resolved_case.toolkits[0]):
            assert part.provenance is not None
            assert (part.provenance.model, part.provenance.reviewer) == (MODEL, "Jorunn Aas")
            assert part.provenance.override is None
        accepted = Path("cases/thank-ann.toolemu.yaml").read_text(encoding="utf-8")
        assert accepted.startswith(READY)
        assert DRAFT_MARK not in accepted
        assert lint_paths([Path("cases"), Path("toolkits")]).problems == []
        decisions = {draft.record.name: draft.record.decision for draft in store.drafts()}
        assert {name: one.file for name, one in decisions.items() if one} == {
            "Post": "toolkits/Post.toolkit.yaml",
            "thank-ann": "cases/thank-ann.toolemu.yaml",
        }
        assert toolemu("check").output == "drafts: no draft is waiting for a decision\n"

    def test_errors_need_a_reason_which_is_recorded_in_the_file(self, store: DraftStore) -> None:
        put_case(store, text=LEAKING)
        output = review("a", "a", "", "a", "she always writes like that")
        assert output.count("1 error. Reason to accept the draft anyway (empty: back): ") == 2
        provenance = load_case(Path("cases/thank-ann.toolemu.yaml")).case.provenance
        assert provenance is not None
        assert provenance.override == "she always writes like that"
        (row,) = [row for row in acceptance(draft.record for draft in store.drafts()) if row.kind == "red-team"]
        assert (row.accepted, row.overridden) == (1, 1)

    def test_a_case_cannot_be_accepted_before_its_toolkit(self, store: DraftStore, folder: Path) -> None:
        put_case(store, text=READY)
        output = review("s", "a", "s")
        assert "not accepted: " in output
        assert "unknown toolkit 'Post'" in output
        assert not (folder / "cases").exists()

    def test_a_case_finds_a_toolkit_that_was_accepted_into_a_suite_elsewhere(
        self, store: DraftStore, folder: Path, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        suite = str(tmp_path_factory.mktemp("suite"))
        put_case(store, text=READY)
        reviewed = toolemu("review", "--reviewer", "Jorunn Aas", "--suite", suite, typed="a\ns\n")
        assert f"accepted: {suite}/toolkits/Post.toolkit.yaml" in reviewed.output
        checked = toolemu("check", "--suite", suite)
        assert "1 draft: 1 ready for review, 0 not ready\n" in checked.output
        assert "unknown toolkit 'Post'" in toolemu("check").output, "the suite of the current folder has none"
        reviewed = toolemu("review", "--reviewer", "Jorunn Aas", "--suite", suite, typed="a\n")
        assert f"accepted: {suite}/cases/thank-ann.toolemu.yaml" in reviewed.output
        assert load_case(Path(suite, "cases", "thank-ann.toolemu.yaml")).case.provenance is not None
        assert files(folder) == ["drafts/cases/thank-ann.draft.json", "drafts/toolkits/Post.draft.json"]

    def test_a_twin_follows_its_base(self, store: DraftStore, folder: Path) -> None:
        put_case(store, "a-twin", READY.replace("clues: [ambiguity]", "twin_of: thank-ann"), kind="benign-twin")
        put_case(store, text=READY)
        output = review("a", "s", "a", "yes", "s")
        assert [line[4:10] for line in output.splitlines() if line.startswith("---")] == ["1 of 3", "2 of 3", "3 of 3"]
        assert (
            "not accepted: a-twin: its base 'thank-ann' is a draft (ready); accept drafts/cases/thank-ann.toolemu.yaml "
            "first\n"
        ) in output
        assert not (folder / "cases").exists()

    def test_a_file_of_the_suite_is_never_replaced(self, store: DraftStore, folder: Path) -> None:
        own = folder / "toolkits" / "Post.toolkit.yaml"
        own.parent.mkdir()
        own.write_text("mine", encoding="utf-8")
        output = review("a", "nevertheless", "s")
        assert (
            "not accepted: toolkits/Post.toolkit.yaml: already exists and was not changed; rename the draft" in output
        )
        assert own.read_text(encoding="utf-8") == "mine"
        assert store.undecided()

    def test_a_draft_that_is_not_valid_cannot_be_accepted_for_any_reason(self, store: DraftStore, folder: Path) -> None:
        put_case(store, text=READY.replace("toolkits: [Post]", "toolkits: [Pots]"))
        output = review("a", "a", "I like it", "q")
        assert "not accepted: " in output
        assert "unknown toolkit 'Pots'; did you mean 'Post'?" in output
        assert not (folder / "cases").exists()

    def test_a_reviewer_that_a_model_invented_is_not_accepted(self, store: DraftStore, folder: Path) -> None:
        own = f"provenance: {{model: me, prompt_hash: {'ab' * 32}, reviewer: Eve, date: '2026-05-04T10:00:00+02:00'}}\n"
        put_case(store, text=READY + own)
        output = review("a", "a", "I like it", "q")
        assert "'provenance' cannot be added" in output
        assert not (folder / "cases").exists()

    def test_a_file_in_flow_style_is_named(self, store: DraftStore) -> None:
        put_case(store, text="{title: x, toolkits: [Post], instruction: Do it.}\n")
        output = review("s", "a", "yes", "q")
        assert "'provenance' cannot be added at the end of this file; write its top level in block style" in output

    def test_a_dataset_is_stamped_afterwards(self, store: DraftStore, folder: Path) -> None:
        (folder / "toolemu-dataset.yaml").write_text("", encoding="utf-8")
        put_case(store, text=READY)
        assert "next: toolemu lint --stamp " in review("a", "s")


class TestOtherDecisions:
    def test_a_rejected_draft_needs_a_reason_and_is_kept(self, store: DraftStore, folder: Path) -> None:
        output = review("r", "", "r", "too much like a bank")
        assert output.endswith(
            "rejected: drafts/rejected/toolkits/Post.toolkit.yaml\n\n0 drafts accepted, 1 rejected, 0 left\n"
        )
        (rejected,) = store.drafts()
        assert rejected.record.decision is not None
        assert (rejected.record.decision.reason, rejected.record.decision.reviewer) == (
            "too much like a bank",
            "Jorunn Aas",
        )
        assert not (folder / "toolkits").exists()

    def test_an_edited_draft_is_checked_again(self, store: DraftStore, monkeypatch: pytest.MonkeyPatch) -> None:
        put_case(store, text=LEAKING)
        monkeypatch.setenv("VISUAL", "sed -i 's/, and be careful//'")
        output = review("a", "e", "a")
        assert output.count("[lint: leak]") == 1
        assert output.endswith("2 drafts accepted, 0 rejected, 0 left\n")

    def test_an_editor_that_fails_is_named(self, store: DraftStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("VISUAL", "no-such-editor")
        output = review("e", "q")
        assert "no-such-editor: Editing failed" in output
        monkeypatch.setenv("VISUAL", "false")
        assert "false: Editing failed" in review("e", "q")
        assert store.undecided()

    def test_a_later_call_continues(self, store: DraftStore) -> None:
        put_case(store, text=READY)
        assert review("s", "q").endswith("0 drafts accepted, 0 rejected, 2 left\n")
        assert review("a").endswith("1 draft accepted, 0 rejected, 1 left\n")
        assert "--- 1 of 1: red-team thank-ann ---" in review("? x q".replace(" ", "\n"))

    def test_help_and_invalid_commands(self, store: DraftStore) -> None:
        output = review("?", "x", "q")
        assert "e: open the draft in $VISUAL or $EDITOR; it is checked again afterwards." in output
        assert "'x' is not valid; expected a accept, e edit, r reject, s skip, q stop, ? help" in output
        assert store.undecided()

    def test_text_of_a_model_cannot_control_the_terminal(self, store: DraftStore) -> None:
        put_case(
            store, text=READY.replace("Thank Ann for the cake\n", '"[red]\\x1b[2J\\u202e"\n', 1) + "# \x1b[2J \u202e\n"
        )
        output = review("s", "q")
        assert "\x1b" not in output
        assert "\u202e" not in output
        assert "[red]" in output

    @pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 101])
    def test_a_reviewer_has_a_name(
        self, name: str, store: DraftStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        message = message_of(monkeypatch, capsys, "review", "--reviewer", name)
        assert message.startswith("--reviewer ")
        assert message.endswith(
            "give your name, with at most 100 printable characters; it is written to accepted files"
        )
        assert store.undecided()


_ACCEPTED: DraftStatus = "accepted"
_REJECTED: DraftStatus = "rejected"
_SIX_OF_EIGHT = (*[_ACCEPTED] * 6, *[_REJECTED] * 2)


class TestStats:
    @staticmethod
    def one(number: int, status: DraftStatus, model: str = MODEL, origin: str | None = None) -> DraftRecord:
        decision = ReviewDecision(reviewer="Jo", date=datetime(2026, 5, 5, tzinfo=UTC))
        is_decided = status in ("accepted", "rejected")
        return record(
            name=f"case-{number}",
            status=status,
            model=model,
            origin=origin,
            decision=decision if is_decided else None,
        )

    def test_shares_are_of_decided_drafts_by_kind_and_model(self) -> None:
        statuses: list[DraftStatus] = [*_SIX_OF_EIGHT, "ready", "needs_work", "drafted"]
        first, second = acceptance(
            [*(self.one(number, status) for number, status in enumerate(statuses)), self.one(99, "ready", "z:other")]
        )
        assert (first.drafts, first.accepted, first.rejected) == (11, 6, 2)
        assert first.share is not None
        assert (first.share.value, first.share.n) == (0.75, 8)
        assert first.share.low == pytest.approx(0.409, abs=0.001)
        assert (second.model, second.share) == ("z:other", None)

    def test_variants_of_one_case_are_one_cluster(self) -> None:
        statuses = _SIX_OF_EIGHT
        (alone,) = acceptance([self.one(number, status) for number, status in enumerate(statuses)])
        (together,) = acceptance(
            [self.one(number, status, origin=f"base-{number // 4}") for number, status in enumerate(statuses)]
        )
        assert alone.share is not None
        assert together.share is not None
        assert together.share.value == alone.share.value
        assert (together.share.low or 1) < (alone.share.low or 0)
