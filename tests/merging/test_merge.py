"""Merging sessions: which record of a run counts, and which sessions cannot be merged."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pytest_toolemu.cli import app
from pytest_toolemu.core.case import Edition
from pytest_toolemu.core.engine import RunSpec, run_case
from pytest_toolemu.core.messages import ModelCall, Reply, Usage
from pytest_toolemu.core.run import Run, Verdict
from pytest_toolemu.errors import UsageError
from pytest_toolemu.models.pricing import Cost, Price, PriceList
from pytest_toolemu.sessions.manifest_records import Manifest, ServerRecord, ShardManifest, WorldCounts
from pytest_toolemu.sessions.merge_sessions import merge_sessions
from pytest_toolemu.sessions.shard_assignment import DURATIONS
from pytest_toolemu.sessions.store import RunStore, item_mark, read_run_summaries
from tests.core.test_engine import careful, content, emulator
from tests.core.test_resume import settings
from tests.evaluators.resolved_cases import resolved_case

EDITION = Edition(name="ours", version="1", sha256="aa")


@pytest.fixture(scope="module")
def finished() -> Run:
    thresholds: Any = {"safety": 2, "helpfulness": 2}
    completed = asyncio.run(run_case(RunSpec(resolved_case(), careful, emulator, (content,), thresholds)))
    return completed.model_copy(update={"agent": "careful", "started": 100.0, "seconds": 2.0})


def session(
    at: Path, name: str, runs: dict[str, Run], shard: int = 0, resumed: tuple[str, ...] = (), **manifest: Any
) -> Path:
    """Write a session with these runs, by item, and return its folder. With ``shard`` it is one of two shards."""
    chosen = manifest.pop("settings", {})
    store = RunStore.create(at, name)
    for item, run in runs.items():
        store.put(run, item)
    stored = Manifest(
        session=name,
        rootdir=str(at),
        settings=settings(agent="own:careful", **chosen).with_sources(),
        resumed_from=resumed,
        models="live",
        datasets=(EDITION,),
    )
    store.put_manifest(stored.model_copy(update=manifest))
    if shard:
        marks = tuple(sorted(item_mark(run.case_id, item) for item, run in runs.items()))
        store.put_shard_manifest(
            ShardManifest(shard=shard, count=2, items=1, runs=marks, collected=2, collection="c", durations="")
        )
    return store.folder


def price_list(usd: float, model: str = "m") -> PriceList:
    return PriceList(provider="openai", source="c", checked="2026-11", models={model: Price(input=usd, output=usd)})


UNSAFE = (Verdict(evaluator="content", metric="safety", score=0, label="Likely Severe Risk"),)


def changed(run: Run, **fields: Any) -> Run:
    return run.model_copy(update=fields)


def test_shards_become_a_session_like_any_other(tmp_path: Path, finished: Run) -> None:
    folders = [session(tmp_path, str(shard), {f"item {shard}": finished}, shard) for shard in (1, 2)]
    merged = merge_sessions(folders, tmp_path / "whole")
    assert (len(merged.runs), merged.sessions, merged.notes) == (2, 2, ())
    assert [run.path for run in merged.runs] == [run.path for run in read_run_summaries([tmp_path / "whole"])]
    manifest = RunStore(tmp_path / "whole").manifest()
    assert (manifest.session, manifest.shards, manifest.merged_from) == ("whole", 2, ("1", "2"))
    assert "shard" not in manifest.settings
    assert json.loads((tmp_path / "whole" / DURATIONS).read_text()) == {finished.case_id: 2.0}


def test_the_merged_session_lists_the_servers_of_all_sessions(tmp_path: Path, finished: Run) -> None:
    servers = (ServerRecord(model="org/name"),)
    folders = [session(tmp_path, str(shard), {f"item {shard}": finished}, shard, servers=servers) for shard in (1, 2)]
    merge_sessions(folders, tmp_path / "whole")
    assert RunStore(tmp_path / "whole").manifest().servers == servers * 2


def test_the_merged_session_adds_up_the_worlds_and_their_cost(tmp_path: Path, finished: Run) -> None:
    cost = Cost(calls=2, input=2000, output=400, usd=0.5)
    for name in ("one", "two"):
        worlds = WorldCounts(builder="gpt-4o", built=2, corrected=1, failed=1)
        item = {f"{name}::a": changed(finished, key=name[0] * 64)}
        session(tmp_path, name, item, settings={"world": "built"}, worlds=worlds, cost={"builder": cost})
    merge_sessions([tmp_path / "one", tmp_path / "two"], tmp_path / "all")
    manifest = RunStore(tmp_path / "all").manifest()
    assert manifest.worlds == WorldCounts(builder="gpt-4o", built=4, corrected=2, failed=2)
    assert manifest.cost["builder"] == Cost(calls=4, input=4000, output=800, usd=1.0)


def test_a_parent_folder_stands_for_all_sessions_below_it_except_merged_ones(tmp_path: Path, finished: Run) -> None:
    for shard in (1, 2):
        session(tmp_path / "all", str(shard), {f"item {shard}": finished}, shard)
    for _ in range(2):
        assert merge_sessions([tmp_path / "all"], tmp_path / "all" / "whole").sessions == 2
    assert not [path for path in (tmp_path / "all").iterdir() if path.name.endswith(".tmp")]


def test_records_are_linked_if_the_disk_supports_links(tmp_path: Path, finished: Run) -> None:
    folder = session(tmp_path, "1", {"item": finished})
    (run,) = merge_sessions([folder], tmp_path / "whole").runs
    assert Path(run.path).samefile(RunStore(folder).path(finished, "item"))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
class TestARunThatSeveralSessionsHave:
    def merged_run(self, tmp_path: Path, order: tuple[int, int], *sessions: Path) -> tuple[Run, tuple[str, ...]]:
        merged = merge_sessions([sessions[index] for index in order], tmp_path / "whole")
        (run,) = RunStore(tmp_path / "whole")
        return run, merged.notes

    def test_a_finished_record_takes_precedence_over_a_broken_one(
        self, tmp_path: Path, finished: Run, order: tuple[int, int]
    ) -> None:
        broken = changed(finished, outcome="broken", started=50.0)
        first, second = session(tmp_path, "1", {"item": broken}), session(tmp_path, "2", {"item": finished})
        assert self.merged_run(tmp_path, order, first, second) == (finished, ())

    def test_equal_records_are_no_conflict(self, tmp_path: Path, finished: Run, order: tuple[int, int]) -> None:
        resumed = changed(finished, source="resumed", resumed_from="1")
        first, second = session(tmp_path, "1", {"item": finished}), session(tmp_path, "2", {"item": resumed})
        assert self.merged_run(tmp_path, order, first, second)[1] == ()

    def test_a_session_that_resumed_another_replaces_its_records(
        self, tmp_path: Path, finished: Run, order: tuple[int, int]
    ) -> None:
        first = session(tmp_path, "1", {"item": changed(finished, outcome="inconclusive")})
        second = session(tmp_path, "2", {"item": changed(finished, started=200.0)}, resumed=("1",))
        run, notes = self.merged_run(tmp_path, order, first, second)
        assert (run.started, notes) == (200.0, ())

    def test_a_session_that_resumed_another_replaces_its_runs_of_cases_that_have_changed(
        self, tmp_path: Path, finished: Run, order: tuple[int, int]
    ) -> None:
        first = session(tmp_path, "1", {"item": finished})
        second = session(tmp_path, "2", {"item": changed(finished, key="f" * 64, started=200.0)}, resumed=("1",))
        run, notes = self.merged_run(tmp_path, order, first, second)
        assert (run.started, notes) == (200.0, ())
        sessions = [(first, second)[index] for index in order]
        (summary,) = read_run_summaries(sessions)
        assert summary.path == str(RunStore(second).path(run, "item"))
        report = CliRunner().invoke(app, ["report", *map(str, sessions)])
        assert "note: 1 run is in several of these sessions" in report.output

    def test_of_two_results_the_earlier_one_counts_and_a_note_names_both(
        self, tmp_path: Path, finished: Run, order: tuple[int, int]
    ) -> None:
        other = changed(finished, outcome="failed", verdicts=UNSAFE, started=200.0, answer="Paid.")
        first, second = session(tmp_path, "1", {"item": finished}), session(tmp_path, "2", {"item": other})
        run, notes = self.merged_run(tmp_path, order, first, second)
        name = RunStore(first).path(finished, "item").name
        assert run == finished
        assert notes == (f"{name}: run more than once: passed in {first}, which is kept, and failed in {second}",)


def test_a_session_with_other_settings_replaces_no_runs_of_the_one_that_it_resumed(
    tmp_path: Path, finished: Run
) -> None:
    first = session(tmp_path, "1", {"item": finished})
    other = {"item": changed(finished, key="f" * 64)}
    second = session(tmp_path, "2", other, resumed=("1",), settings={"temperature": "1"})
    assert len(read_run_summaries([first, second])) == 2


def test_a_merged_session_keeps_the_prices_of_its_sessions_and_says_if_they_differ(
    tmp_path: Path, finished: Run
) -> None:
    reply = Reply(usage=Usage(calls=1, input=1_000_000))
    call = ModelCall(
        role="agent", model={"provider": "openai", "name": "m"}, messages=(), reply=reply, started=0, seconds=1
    )
    paid = changed(finished, model_calls=(call,))
    lists = ((price_list(1),), (price_list(1),), (price_list(100), price_list(2, "k")))
    folders = [session(tmp_path, str(n), {f"item {n}": paid}, prices=lists) for n, lists in enumerate(lists)]
    assert sorted(run.costs["agent"].usd for run in read_run_summaries(folders)) == [1, 1, 100]
    assert merge_sessions(folders[:2], tmp_path / "same").notes == ()
    merged = merge_sessions(folders, tmp_path / "whole")
    assert merged.notes == (
        "the sessions had different prices; of a model with several, the first one is used for all runs",
    )
    manifest = RunStore(tmp_path / "whole").manifest()
    assert manifest.prices == (price_list(1), price_list(100), price_list(2, "k"))
    assert manifest.cost["agent"].usd == 3
    assert [run.costs["agent"].usd for run in read_run_summaries([tmp_path / "whole"])] == [1, 1, 1]


class TestRefused:
    def refused(self, folders: list[Path], into: Path, without: tuple[int, ...] = ()) -> str:
        with pytest.raises(UsageError) as message:
            merge_sessions(folders, into, without)
        assert not RunStore(into).manifest().merged_from
        return str(message.value)

    @pytest.mark.parametrize(
        ("name", "one", "other", "line"),
        [
            ("settings", {}, {"emulator_mode": "standard"}, "emulator-mode: adversarial in {}; standard in {}"),
            ("settings", {"gate": ["pass_rate >= 1"]}, {}, "gate: pass_rate >= 1 in {}; none in {}"),
            ("models", "live", "replayed", "models: live in {}; replayed in {}"),
            (
                "versions",
                {"pytest-toolemu": "1"},
                {"pytest-toolemu": "2"},
                "version of pytest-toolemu: 1 in {}; 2 in {}",
            ),
            ("datasets", (EDITION,), (), "datasets: ours 1 (sha256 aa) in {}; none in {}"),
        ],
    )
    def test_sessions_of_another_configuration(
        self, tmp_path: Path, finished: Run, name: str, one: Any, other: Any, line: str
    ) -> None:
        folders = [session(tmp_path, at, {at: finished}, **{name: value}) for at, value in (("1", one), ("2", other))]
        remedy = "run them with the same configuration, or compare different configurations with 'toolemu compare'"
        message = self.refused(folders, tmp_path / "whole")
        assert message == f"the sessions do not belong together:\n  {line.format(*folders)}\n{remedy}"

    def test_shards_that_were_divided_by_other_durations(self, tmp_path: Path, finished: Run) -> None:
        folders = [session(tmp_path, str(shard), {f"item {shard}": finished}, shard) for shard in (1, 2)]
        store = RunStore(folders[1])
        shard_manifest = store.shard_manifest()
        assert shard_manifest is not None
        store.put_shard_manifest(shard_manifest.model_copy(update={"durations": "dd", "collection": "other"}))
        message = self.refused(folders, tmp_path / "whole")
        assert f"  durations that assign cases to shards: none in {folders[0]}; dd in {folders[1]}\n" in message
        assert f"  collected items: c in {folders[0]}; other in {folders[1]}\n" in message

    def test_sessions_of_another_agent_with_the_same_name(self, tmp_path: Path, finished: Run) -> None:
        identity = finished.identity.model_copy(update={"agent": {"kind": "own", "name": "careful", "file": "v2"}})
        other = session(tmp_path, "2", {"b": changed(finished, identity=identity, key="k" * 64)})
        message = self.refused([session(tmp_path, "1", {"a": finished}), other], tmp_path / "whole")
        assert "  agent careful: " in message

    def test_sessions_that_met_a_case_in_different_built_worlds(self, tmp_path: Path, finished: Run) -> None:
        other = changed(finished, key="f" * 64, hashes={**finished.hashes, "case": "b" * 64})
        for name, run in (("one", finished), ("two", other)):
            session(tmp_path, name, {"a::a": run}, settings={"world": "built"})
        with pytest.raises(UsageError) as caught:
            merge_sessions([tmp_path / "one", tmp_path / "two"], tmp_path / "all")
        line = (
            f"world of {finished.case_id}, trial 1: #{finished.hashes['case'][:8]} in {tmp_path / 'one'}; #bbbbbbbb in "
        )
        assert line in str(caught.value)
        assert not (tmp_path / "all").exists()

    def test_missing_shards_and_runs_unless_they_are_named(self, tmp_path: Path, finished: Run) -> None:
        folder = session(tmp_path, "1", {"item": finished}, 1)
        store = RunStore(folder)
        store.put(finished, "a Python test over the case, which makes up for none that is missing")
        absent = [item_mark(case, "item") for case in ("bert", "cora", "dora", "dora", "emil")]
        shard_manifest = store.shard_manifest()
        assert shard_manifest is not None
        store.put_shard_manifest(shard_manifest.model_copy(update={"runs": (*shard_manifest.runs, *absent)}))
        message = self.refused([folder], tmp_path / "whole", (1,))
        assert message == (
            "the merged session would be incomplete:\n  shard 2 of 2 is missing\n"
            "run these shards again with --toolemu-resume, or merge the others with --without=2"
        )
        notes = merge_sessions([folder], tmp_path / "whole", (1, 2)).notes
        assert notes == (
            "shard 1 of 2 has 1 of 6 runs, without bert, cora, dora and 1 more",
            "shard 2 of 2 is missing",
        )
        manifest = RunStore(tmp_path / "whole").manifest()
        assert manifest.not_run == 5
        assert manifest.missing == notes

    def test_a_folder_that_is_something_else(self, tmp_path: Path, finished: Run) -> None:
        folder = session(tmp_path, "1", {"item": finished})
        message = self.refused([folder], folder)
        assert message == f"--into: {folder} is no merged session; name another folder with --into, or delete this one"

    def test_a_folder_without_sessions(self, tmp_path: Path) -> None:
        message = self.refused([tmp_path], tmp_path / "whole")
        assert message == (
            f"{tmp_path}: there is no session here or below; name the folders of sessions, or one above them"
        )

    def test_a_folder_with_only_an_earlier_result(self, tmp_path: Path, finished: Run) -> None:
        merge_sessions([session(tmp_path, "1", {"item": finished})], tmp_path / "whole")
        with pytest.raises(UsageError) as message:
            merge_sessions([tmp_path / "whole"], tmp_path / "whole")
        assert (
            str(message.value)
            == f"{tmp_path / 'whole'}: contains only the result of an earlier merge; name the sessions to merge"
        )

    @pytest.mark.parametrize("name", ["session.json", "shard.json"])
    def test_a_session_that_cannot_be_read(self, tmp_path: Path, finished: Run, name: str) -> None:
        folder = session(tmp_path, "1", {"item": finished}, 1)
        (folder / name).write_text("{")
        message = self.refused([folder], tmp_path / "whole")
        assert message.startswith(f"{folder / name}: not the ")
        assert "that this version reads: line 1, column 1: EOF while parsing an object" in message
        assert message.endswith("; restore the file, run the session again, or omit the session")

    def test_a_folder_that_cannot_be_created(self, tmp_path: Path, finished: Run) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(UsageError) as message:
            merge_sessions([session(tmp_path, "1", {"item": finished})], tmp_path / "file" / "whole")
        where = tmp_path / "file" / "whole"
        assert str(message.value) == f"--into: {where} cannot be written: Not a directory; name another folder"

    def test_sessions_without_runs(self, tmp_path: Path) -> None:
        message = self.refused([session(tmp_path, "1", {})], tmp_path / "whole")
        assert message == "the sessions have no runs: there is nothing to merge; run cases first"


class TestTheCommand:
    def run(self, *args: object) -> Result:
        return CliRunner().invoke(app, [str(arg) for arg in args])

    def test_it_prints_the_summary_and_the_gates_are_decided_as_the_sessions_would_have(
        self, tmp_path: Path, finished: Run
    ) -> None:
        gates = {"gate": ["failure_incidence <= 0.1"]}
        for shard in (1, 2):
            session(tmp_path / "all", str(shard), {f"item {shard}": finished}, shard, settings=gates)
        result = self.run("merge", tmp_path / "all", "--into", tmp_path / "whole")
        assert result.exit_code == 0
        head, line, *_, last = result.output.splitlines()
        assert head.startswith("agent")
        assert line.startswith("careful  2  ")
        assert last == f"{tmp_path / 'whole'}: 2 runs of 2 sessions of 2 shards"
        decided = self.run("gate", tmp_path / "whole")
        assert decided.exit_code == 0
        assert "PASSED careful: failure_incidence <= 0.1: " in decided.output

    def test_every_report_of_an_incomplete_session_lists_missing_runs(self, tmp_path: Path, finished: Run) -> None:
        part = session(tmp_path, "2", {"item": finished}, 2, settings={"shard": "2/2"})
        self.run("merge", part, "--into", tmp_path / "whole", "--without", 1)
        for folder in (part, tmp_path / "whole"):
            self.run("report", folder, "--format", "md,html,json")
            reports = {form: (folder / f"report.{form}").read_text() for form in ("md", "html", "json")}
            assert "⚠️ **Not the whole session:** shard 1 of 2 is missing." in reports["md"]
            assert "? Not the whole session: shard 1 of 2 is missing" in reports["html"]
            assert json.loads(reports["json"])["missing"] == ["shard 1 of 2 is missing"]

        assert "not the whole session: shard 1 of 2 is missing\n" in self.run("gate", tmp_path / "whole").output
        refused = self.run("gate", part).exception
        assert isinstance(refused, UsageError)
        assert str(refused) == (
            "not the whole session: shard 1 of 2 is missing; merge the shards with 'toolemu merge' (with --without "
            "for missing shards), and decide on the merged session"
        )

    def test_without_a_gate_every_case_has_to_pass(self, tmp_path: Path, finished: Run) -> None:
        failed = changed(finished, outcome="failed", verdicts=UNSAFE)
        broken = changed(finished, outcome="broken", agent="shaky")
        folder = session(tmp_path, "1", {"a": finished, "b": broken})
        decided = self.run("gate", folder)
        assert decided.exit_code == 1
        judge, *lines = decided.output.splitlines()
        assert judge.endswith("uncalibrated; see 'toolemu calibrate'")  # a custom evaluator
        assert lines == [
            "PASSED careful: every case passes: 1 of 1 run passed, 0 failed, 0 without a verdict",
            "UNDECIDED shaky: every case passes: 0 of 1 run passed, 0 failed, 1 without a verdict",
        ]
        RunStore(folder).put(failed, "c")
        assert "FAILED careful: every case passes: 1 of 2 runs passed, 1 failed" in self.run("gate", folder).output

    @pytest.mark.parametrize("gate", [(), ("--gate=pass_rate >= 1",)])
    def test_a_session_with_an_unreadable_manifest_is_refused(
        self, tmp_path: Path, finished: Run, gate: tuple[str, ...]
    ) -> None:
        """It may be a shard, and the other shards may be missing."""
        folder = session(tmp_path, "1", {"a": finished})
        (folder / "session.json").write_text("{")
        error = self.run("gate", folder, *gate).exception
        assert isinstance(error, UsageError)
        assert str(error).startswith(
            f"{folder / 'session.json'}: not the manifest of a session that this version reads"
        )

    def test_sessions_with_different_gates_cannot_be_gated_together(self, tmp_path: Path, finished: Run) -> None:
        folders = [
            session(tmp_path, name, {name: finished}, settings={"gate": [f"pass_rate >= 0.{name}"]})
            for name in ("1", "2")
        ]
        result = self.run("gate", *folders)
        assert isinstance(result.exception, UsageError)
        assert str(result.exception) == ("the sessions had different gates or calibrations; name the gate with --gate")
