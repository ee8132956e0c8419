"""``toolemu label`` and ``toolemu calibrate --labels``: labels by people, and how judges and emulation compare with them."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import pytest

from pytest_toolemu.analysis.calibration.blind_transcript import blind_lines
from pytest_toolemu.analysis.calibration.labels import Label, LabeledRun, read_labels, sample_runs
from pytest_toolemu.analysis.rater_agreement import label_agreements
from pytest_toolemu.analysis.rejudge import fingerprint
from pytest_toolemu.errors import UsageError
from pytest_toolemu.sessions.store import read_runs
from tests.calibration.conftest import Desk, lines_with
from tests.evaluators.hostile import HOSTILE
from tests.reporting.runs import run, session


def labels(desk: Desk, name: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (desk.path / "labels" / f"{name}.jsonl").read_text().splitlines()]


def label(desk: Desk, *words: str, name: str = "ada", more: tuple[str, ...] = ()) -> str:
    answers = "".join(f"{key}\n" for word in words for key in word.split())
    return desk.toolemu("label", "judged", f"--annotator={name}", *more, typed=answers).output


def test_an_annotator_labels_a_sample_and_continues_later(desk: Desk, judged: str) -> None:
    output = label(desk, "2 3 n", "0 1 y", "q", more=("--sample=3",))
    assert output.endswith("2 of 3 labeled: labels/ada.jsonl\n")
    assert [(line["safety"], line["helpfulness"], line["critical_issue"]) for line in labels(desk, "ada")] == [
        (2, 3, False),
        (0, 1, True),
    ]
    more = label(desk, "3 3 n", more=("--sample=3",))
    assert "--- 3 of 3: " in more
    assert "--- 2 of 3: " not in more
    assert more.endswith(
        f"3 of 3 labeled: labels/ada.jsonl\nto compare judges with these labels: toolemu calibrate {judged} --labels labels/ada.jsonl\n"
    )
    assert len(labels(desk, "ada")) == 3


def test_existing_labels_that_name_only_a_record_are_kept(desk: Desk, judged: str) -> None:
    (desk.path / "labels").mkdir()
    (desk.path / "labels" / "ada.jsonl").write_text('{"run": "one", "safety": 1}\n{"run": "two", "safety": 2}\n')
    label(desk, "3 3 n", "q")
    assert [(one["run"], one["safety"]) for one in labels(desk, "ada")[:2]] == [("one", 1), ("two", 2)]
    assert len(labels(desk, "ada")) == 3
    assert judged


def test_skip_back_help_and_invalid_keys(desk: Desk, judged: str) -> None:
    output = label(desk, "s", "2 b", "3 2 n", "? 7 q", more=("--sample=2",))
    (one,) = labels(desk, "ada")
    assert (one["safety"], one["helpfulness"]) == (3, 2)
    assert "3 certainly no risk; 2 a mild risk is possible" in output
    assert "'7' is not valid; expected one of 0, 1, 2, 3, or s skip, b back, q stop, ? help" in output
    label(desk, "s", more=("--sample=2",))
    assert "safety" not in labels(desk, "ada")[1]
    assert judged


def test_judges_checks_references_and_agents_are_hidden(desk: Desk, judged: str) -> None:
    output = label(desk, "q")
    assert "Pay " in output
    for word in ("checks", "paid-unasked", "reference", "safe", "risky", "violated", "passed", "failed"):
        assert word not in output.lower().replace("risky actions", "").partition("safety, 0 to 3")[0]
    assert judged


def test_all_annotators_get_the_same_sample_spread_over_the_cases(desk: Desk, judged: str) -> None:
    runs = list(read_runs([Path(judged)]))
    four = sample_runs(runs, 4, seed=1)
    assert [mark for _, mark in four] == [mark for _, mark in sample_runs(reversed(runs), 4, seed=1)]
    assert {path.name.partition("--")[0] for path, _ in four} == {"anna", "bert", "cora", "dora"}
    assert len({tuple(sample_runs(runs, 8, seed=seed)) for seed in range(5)}) > 1
    # A trajectory that two folders have is labeled once.
    assert len(sample_runs([*runs, *runs], 99, seed=1)) == 8
    assert desk


def test_hostile_text_is_escaped_in_the_terminal(desk: Desk, judged: str) -> None:
    run = desk.runs(judged)[0]
    own_lines = {line for line in blind_lines(run) if not line.startswith("  |")}
    call = run.steps[0].call
    for name, text in HOSTILE.items():
        step = run.steps[0].model_copy(update={"call": call.model_copy(update={"arguments": text})})
        lines = list(blind_lines(run.model_copy(update={"answer": text, "steps": (step,)})))
        terminal_text = "\n".join(lines)
        terminal_text.encode()
        assert not {"\x1b", "\r", "\b", "\x00", "\u202e", "\u2028", "\x85"} & set(terminal_text), name
        assert {line for line in lines if not line.startswith("  |")} <= own_lines, name
        assert len(terminal_text) < 80_000, name


def test_the_agreement_of_several_annotators(desk: Desk, judged: str) -> None:
    keys = {fingerprint(run): run.score("safety") == 0 for _, run in read_runs([Path(judged)])}
    order = [mark for _, mark in sample_runs(read_runs([Path(judged)]), 8, seed=0)]
    honest = ["0 0 n" if keys[mark] else "3 3 n" for mark in order]
    label(desk, *honest, name="ada")
    label(desk, *honest, name="bob")
    harsh = ["0 0 n" if keys[mark] or index == order.index(next(m for m in order if not keys[m])) else "3 3 y"
             for index, mark in enumerate(order)]  # fmt: skip
    label(desk, *harsh, name="cyd")
    result = desk.toolemu(
        "calibrate",
        "--evaluator=checks",
        "TOOLEMU_HELPFULNESS=none",
        judged,
        *(f"--labels=labels/{name}.jsonl" for name in ("ada", "bob", "cyd")),
    )
    assert result.exception is None
    assert lines_with(result, ["8 labeled runs; labels by ada 8, bob 8, cyd 8"])
    assert lines_with(result, ["kappa, safety: checks and people, failure or not", "0.92 [", "n 24"])
    assert lines_with(result, ["kappa, safety: among people, quadratic", "n 24"])
    two = desk.toolemu(
        "calibrate",
        "--evaluator=checks",
        "TOOLEMU_HELPFULNESS=none",
        judged,
        "--labels=labels/ada.jsonl",
        "--labels=labels/cyd.jsonl",
    )
    assert lines_with(two, ["kappa, critical issues: among people", "undefined: ada gave the same rating throughout"])


@pytest.mark.parametrize("scores", [((3, 3, 0), (3, 0, 0), (0, 0, 0), (3, 3, 3)), ((3, 2), (1, 0), (0, 0), (2, 3))])
def test_agreement_does_not_depend_on_the_names_of_annotators(
    desk: Desk, judged: str, scores: tuple[tuple[int, ...], ...]
) -> None:
    runs = {run.case_id: run for run in desk.runs(judged)}.values()
    kappas = set()
    for names in itertools.permutations("abc"[: len(scores[0])]):
        items = [
            LabeledRun(
                "x", run, tuple(Label(run="x", annotator=n, safety=s) for n, s in zip(names, ratings, strict=True))
            )
            for run, ratings in zip(runs, scores, strict=True)
        ]
        kappas.add(tuple(line.kappa for line in label_agreements(items) if "safety: among" in line.name))
    (kappa_of_all_orders,) = kappas
    assert all(
        value and value.low is not None and value.n == len(scores) * math.comb(len(scores[0]), 2)
        for value in kappa_of_all_orders
    )


def test_labels_calibrate_a_judge_on_the_labeled_runs_and_on_their_originals(desk: Desk, judged: str) -> None:
    label(desk, *["3 3 n"] * 8)
    command = ("calibrate", "--evaluator=checks", "TOOLEMU_HELPFULNESS=none", "--labels=labels/ada.jsonl")
    assert desk.toolemu(*command, judged, "--to=of-labels.json").exception is None
    (calibrated,) = desk.calibration("of-labels.json").values()
    assert (calibrated["labels"], calibrated["labelled_by"], calibrated["accuracy"]["value"]) == (8, {"ada": 8}, 0.5)
    # The runs that the labeled ones were rejudged from have other files but the same trajectories.
    assert desk.toolemu(*command, "first", "--to=of-origins.json").exception is None
    (again,) = desk.calibration("of-origins.json").values()
    assert again["dataset"] == calibrated["dataset"]
    desk.toolemu(*command, judged, "--cases=cases", "--to=of-both.json")
    (both,) = desk.calibration("of-both.json").values()
    assert (both["labels"], both["labelled_by"]) == (16, {"ada": 8, "reference": 8})


def test_labels_can_be_read_from_csv(desk: Desk, judged: str) -> None:
    stems = [path.stem for path, _ in read_runs([Path(judged)])]
    rows = ["run,safety,helpfulness,critical_issue,note", f"{stems[0]},3,,no,fine", f'{stems[1]},1,2,Yes,"odd, this"']
    (desk.path / "eve.csv").write_text("\n".join([*rows, "gone,1,1,,", ""]))
    first, second, _ = read_labels([desk.path / "eve.csv"])
    assert first == Label(run=stems[0], annotator="eve", safety=3, critical_issue=False, note="fine")
    assert (second.critical_issue, second.note) == (True, "odd, this")
    result = desk.toolemu("calibrate", "--evaluator=checks", "TOOLEMU_HELPFULNESS=none", judged, "--labels=eve.csv")
    assert "note: ignored 1 label for runs that are not in these sessions" in result.output
    assert lines_with(result, ["2 labeled runs; labels by eve 2"])


def test_different_runs_in_records_of_the_same_name_keep_their_labels(tmp_path: Path, desk: Desk) -> None:
    folders = [str(session(tmp_path / name, run("a", answer=name))) for name in ("one", "two")]
    for folder in [*folders, folders[0]]:
        assert "1 of 1 labeled" in desk.toolemu("label", folder, "--annotator=ada", typed="3\n3\nn\n").output
    first, second = read_labels([desk.path / "labels" / "ada.jsonl"])
    assert first.run == second.run
    both = desk.toolemu(
        "calibrate", "--evaluator=checks", "TOOLEMU_HELPFULNESS=none", *folders, "--labels=labels/ada.jsonl"
    ).output
    note = (
        "note: 1 run is in several of these sessions; only the one in the session that resumed the others counts, "
        "or else the one in the last session"
    )
    assert note in " ".join(both.split())
    (desk.path / "eve.csv").write_text(f"run,safety\n{first.run},0\n")
    refused = desk.toolemu("calibrate", "--evaluator=checks", "TOOLEMU_HELPFULNESS=none", *folders, "--labels=eve.csv")
    assert str(refused.exception) == (
        f"eve labeled {first.run}, but {folders[0]} and {folders[1]} contain different runs with this name; name only the "
        "session that was labeled"
    )
    assert (
        "labels by eve 1"
        in desk.toolemu(
            "calibrate", "--evaluator=checks", "TOOLEMU_HELPFULNESS=none", folders[0], "--labels=eve.csv"
        ).output
    )


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", '{"run": "x", "safety": 4}\n', "a.jsonl:1: safety: 4: expected"),
        ("a.jsonl", '\n{"run": "x", "safty": 1}\n', "a.jsonl:2: unknown key 'safty'; did you mean 'safety'?; the fields of a label are run"),
        ("a.jsonl", "{]\n", "a.jsonl:1: not JSON: "),
        ("a.jsonl", "[]\n", "a.jsonl:1: [] is not a label; write an object"),
        (
            "a.jsonl", '{"safety": 1}\n', "a.jsonl:1: does not name a run; give 'run', the name of the record's file without .json, or"),
        ("a.jsonl", '{"run": "x"}\n{"run": "x"}\n', "a.jsonl:2: a labeled x already in a.jsonl:1; remove one of them"),
        ("a.csv", "run,safety\nx,two\n", 'a.csv:2: safety: "two": expected'),
        ("a.csv", "run,critical_issue\nx,maybe\n", 'a.csv:2: critical_issue: "maybe": expected'),
        ("a.csv", 'run,note\n"x","two\nlines"\nx,1,2\n', 'a.csv:4: "2" has no name in the first line'),
        ("a.csv", 'run,note\n"x"y,1\n', "a.csv:2: not CSV: "),
        ("a.jsonl", '{"run": "x"}\n' + "[" * 100_000, "a.jsonl:2: not JSON: "),
        ("a.csv", None, "a.csv: cannot be read: "),
    ],
)  # fmt: skip
def test_an_invalid_label_is_reported_with_its_line(desk: Desk, name: str, text: str | None, message: str) -> None:
    if text is not None:
        (desk.path / name).write_text(text)
    with pytest.raises(UsageError) as caught:
        read_labels([Path(name)])
    assert str(caught.value).startswith(message)


def test_invalid_annotator_names_and_labels_of_other_sessions_are_refused(desk: Desk, judged: str) -> None:
    named = desk.toolemu("label", judged, "--annotator=../ada")
    assert str(named.exception) == (
        "--annotator '../ada' cannot be used as a file name; use at most 100 letters, digits, '-', and '_'"
    )
    (desk.path / "eve.csv").write_text("run,safety\ngone,1\n")
    result = desk.toolemu("calibrate", "--evaluator=checks", "TOOLEMU_HELPFULNESS=none", judged, "--labels=eve.csv")
    assert str(result.exception) == "no label belongs to a run in these sessions; name the sessions that were labeled"
