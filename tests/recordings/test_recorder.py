"""The recorder replays and records calls, and reports missing ones."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from pytest_toolemu.core.messages import Message, ModelRequest, Reply, ReplySchema, Role, ToolCall, ToolSpec, Usage
from pytest_toolemu.core.run import CassetteUse
from pytest_toolemu.errors import ModelError, ReplayMissError, UsageError
from pytest_toolemu.models.cassette_files import CassetteDirectory
from pytest_toolemu.models.cassette_recorder import CassetteRecorder
from pytest_toolemu.settings.option_table import RecordMode

ITEM = "cases/anna.toolemu.yaml::anna[gpt-4o]"
RULES = Message(role="system", content="Line one.\nLine two.\nLine three.")
PAY = Message(role="user", content="Pay Anna.")
TOOL = ToolSpec(name="Till_Pay", description="Pay somebody.", parameters={"type": "object"})
SHAPE = ReplySchema(name="safety", schema={"type": "object"})


class Counting:
    """A model whose replies are numbered, so that they can be told apart."""

    def __init__(self, name: str = "gpt-4o", url: str = "http://one/v1") -> None:
        self.identity = {"provider": "openai", "name": name, "base_url": url, "temperature": 0.0, "max_tokens": None}
        self.request_count = 0
        self.fails = False

    async def complete(self, _request: ModelRequest) -> Reply:
        self.request_count += 1
        if self.fails:
            raise ModelError("down")
        return Reply(
            text=f"reply {self.request_count}", usage=Usage(input=3, calls=1), request_id=f"req_{self.request_count}"
        )


def ask(recorder: CassetteRecorder, model: Counting, *messages: Message, role: Role = "agent", **fields: Any) -> Reply:
    request = ModelRequest(messages or (RULES, PAY), **{"tools": (TOOL,), "seed": 0, **fields})
    reply, _ = asyncio.run(recorder.complete(role, model, request))
    return reply


def recorder_for(folder: Path, mode: RecordMode, item: str = ITEM, trial: int = 1) -> CassetteRecorder:
    return CassetteRecorder(CassetteDirectory(folder, mode), item, "anna", trial)


def record(folder: Path, *requests: tuple[Message, ...], item: str = ITEM, trial: int = 1) -> Counting:
    """Record these requests."""
    recorder, model = recorder_for(folder, "once", item, trial), Counting()
    for messages in requests or ((RULES, PAY),):
        ask(recorder, model, *messages)
    recorder.finish(ended=True)
    return model


def miss(folder: Path, *messages: Message, model: Counting | None = None, trial: int = 1, **fields: Any) -> str:
    """Return the message about a request that is not recorded."""
    player, silent = recorder_for(folder, "none", trial=trial), model or Counting()
    with pytest.raises(ReplayMissError) as caught:
        ask(player, silent, *messages, **fields)
    assert silent.request_count == 0
    return str(caught.value)


def test_a_recorded_call_is_replayed_without_calling_the_model(tmp_path: Path) -> None:
    record(tmp_path)
    player, model = recorder_for(tmp_path, "none"), Counting(url="http://elsewhere/v1")
    reply, file = asyncio.run(player.complete("agent", model, ModelRequest((RULES, PAY), (TOOL,), seed=0)))
    assert (reply, model.request_count) == (Reply(text="reply 1", usage=Usage(input=3, calls=1)), 0)
    assert file == CassetteDirectory(tmp_path, "none").file(ITEM) == "anna-gpt-4o--e7d5f6.json"
    assert player.finish(ended=True) == CassetteUse(file=file, played=1)


def test_a_request_that_is_sent_twice_has_two_replies(tmp_path: Path) -> None:
    record(tmp_path, (RULES, PAY), (RULES, PAY))
    player = recorder_for(tmp_path, "none")
    assert [ask(player, Counting()).text for _ in range(2)] == ["reply 1", "reply 2"]
    with pytest.raises(ReplayMissError, match="it was recorded fewer times than it was sent"):
        ask(player, Counting())


def test_trials_and_seeds_are_independent(tmp_path: Path) -> None:
    record(tmp_path)
    assert "the trial is 2; the cassette has 1 (nearest: model call 1 in anna-gpt-4o--e7d5f6.json)" in miss(
        tmp_path, trial=2
    )
    assert "the seed is 5; the cassette has 0" in miss(tmp_path, seed=5)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"model": Counting("gpt-4.1")}, 'the model.name is "gpt-4.1"; the cassette has "gpt-4o"'),
        ({"tools": ()}, 'tools[0].name is missing: "Till_Pay"'),
        ({"tools": (TOOL.model_copy(update={"description": "Pay anybody."}),)},
         'tools[0].description is "Pay anybody."; the cassette has "Pay somebody."'),
        ({"schema": SHAPE}, 'schema.name is new: "safety"'),
    ],
)  # fmt: skip
def test_a_miss_names_the_first_difference(tmp_path: Path, fields: dict[str, Any], expected: str) -> None:
    record(tmp_path)
    message = miss(tmp_path, **fields)
    assert message.startswith(
        f"no recorded call matches this request of the agent: {expected} (nearest: model call 1 in "
    )
    assert message.endswith(
        "record missing calls with --toolemu-record=new, or record everything again with --toolemu-record=all"
    )


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ((RULES.model_copy(update={"content": "Line one.\nLine 2.\nLine three."}), PAY),
         'message 1, line 2, is "Line 2."; the cassette has "Line two."'),
        ((RULES, Message(role="user", content="Pay Bert.")),
         'message 2 is "Pay Bert."; the cassette has "Pay Anna."'),
        ((RULES, PAY, Message(role="assistant", content="Which Anna?")),
         'message 3 is new: "Which Anna?"'),
        ((RULES,), 'message 2 is missing: "Pay Anna."'),
        ((RULES, PAY.model_copy(update={"role": "tool", "call_id": "c"})),
         'message 2.role is "tool"; the cassette has "user"'),
    ],
)  # fmt: skip
def test_a_miss_shows_where_the_conversation_differs(
    tmp_path: Path, messages: tuple[Message, ...], expected: str
) -> None:
    record(tmp_path)
    assert expected in miss(tmp_path, *messages)


def test_the_nearest_call_has_the_most_in_common(tmp_path: Path) -> None:
    answer, other = Message(role="assistant", content="Which?"), Message(role="user", content="The first.")
    record(tmp_path, (RULES, PAY), (RULES, PAY, answer, other))
    message = miss(tmp_path, RULES, PAY, answer, Message(role="user", content="The fourth."))
    assert 'message 4 is "The fourth."; the cassette has "The first." (nearest: model call 2' in message


def test_a_role_without_recorded_calls_is_named(tmp_path: Path) -> None:
    record(tmp_path)
    message = miss(tmp_path, role="emulator")
    expected = f"the emulator: {tmp_path.name}/anna-gpt-4o--e7d5f6.json contains none of its requests; record"
    assert expected in message


def test_a_replay_finds_the_same_request_of_another_item(tmp_path: Path) -> None:
    record(tmp_path, item="cases/anna.toolemu.yaml::anna[gpt-4o-trial1]")
    assert ask(recorder_for(tmp_path, "none"), Counting()).text == "reply 1"
    assert ask(recorder_for(tmp_path, "new"), model := Counting()).text == "reply 1"
    assert model.request_count == 1, "what is recorded must not depend on which item comes first"


class TestModes:
    def test_once_calls_models_only_without_a_cassette(self, tmp_path: Path) -> None:
        assert record(tmp_path).request_count == 1
        with pytest.raises(ReplayMissError):
            ask(recorder_for(tmp_path, "once"), Counting(), RULES)

    def test_new_records_missing_calls_and_keeps_the_others(self, tmp_path: Path) -> None:
        record(tmp_path, (RULES, PAY), (RULES,))
        recorder, model = recorder_for(tmp_path, "new"), Counting()
        assert ask(recorder, model).text == "reply 1"
        assert ask(recorder, model, PAY).text == "reply 1"
        use = recorder.finish(ended=True)
        assert (model.request_count, use.played, use.added, use.unused) == (1, 1, 1, (3,))
        player = recorder_for(tmp_path, "none")
        assert [ask(player, Counting(), *messages).text for messages in ((RULES, PAY), (PAY,), (RULES,))] == [
            "reply 1", "reply 1", "reply 2",
        ]  # fmt: skip

    def test_all_records_everything_again(self, tmp_path: Path) -> None:
        record(tmp_path, (RULES, PAY), (RULES,))
        recorder, model = recorder_for(tmp_path, "all"), Counting()
        model.request_count = 6
        assert ask(recorder, model).text == "reply 7"
        recorder.finish(ended=True)
        player = recorder_for(tmp_path, "none")
        assert ask(player, Counting()).text == "reply 7"
        with pytest.raises(ReplayMissError):
            ask(player, Counting(), RULES)

    def test_once_continues_an_incomplete_cassette(self, tmp_path: Path) -> None:
        recorder, model = recorder_for(tmp_path, "once"), Counting()
        ask(recorder, model)
        model.fails = True
        with pytest.raises(ModelError):
            ask(recorder, model, RULES)
        recorder.finish(ended=True)
        again, model = recorder_for(tmp_path, "once"), Counting()
        assert (ask(again, model).text, model.request_count) == ("reply 1", 0)
        assert (ask(again, model, RULES).text, model.request_count) == ("reply 1", 1)
        again.finish(ended=True)
        with pytest.raises(ReplayMissError):
            ask(recorder_for(tmp_path, "once"), Counting(), PAY)

    def test_once_continues_a_run_that_ended_between_two_requests(self, tmp_path: Path) -> None:
        recorder = recorder_for(tmp_path, "once")
        ask(recorder, Counting())
        recorder.finish(ended=False)
        again, model = recorder_for(tmp_path, "once"), Counting()
        ask(again, model, RULES)
        assert model.request_count == 1

    def test_a_run_without_requests_leaves_no_file(self, tmp_path: Path) -> None:
        recorder_for(tmp_path / "none-yet", "all").finish(ended=True)
        assert not (tmp_path / "none-yet").exists()


def test_calls_that_were_not_replayed_are_unused_or_stale(tmp_path: Path) -> None:
    record(tmp_path, (RULES, PAY), (RULES,), (RULES.model_copy(update={"content": "Other rules."}), PAY))
    player = recorder_for(tmp_path, "none")
    ask(player, Counting())
    use = player.finish(ended=True)
    assert (use.unused, use.stale) == ((2,), (3,))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"toolemu_recording": 9}', '{"toolemu_recording": 1, "model_calls": 3}']
)
def test_an_invalid_cassette_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "anna-gpt-4o--e7d5f6.json").write_text(text)
    with pytest.raises(
        UsageError, match=r"anna-gpt-4o--e7d5f6\.json: not a cassette that this version reads .*; restore"
    ):
        recorder_for(tmp_path, "none")
    assert ask(recorder_for(tmp_path, "all"), Counting()).text == "reply 1", "it is replaced anyway"


def test_credentials_are_neither_written_nor_needed_for_a_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = Message(role="user", content="The key is sk-canary-0123456789, is it not?")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-0123456789")

    class Leaking(Counting):
        async def complete(self, _request: ModelRequest) -> Reply:
            call = ToolCall(id="c", name="Till_Pay", arguments='{"who": "sk-canary-0123456789"}')
            return Reply(text="It is sk-canary-0123456789.", calls=(call,))

    recorder = recorder_for(tmp_path, "once")
    reply = ask(recorder, Leaking(), RULES, secret)
    ask(recorder, Leaking(), RULES, secret, reply.as_message())
    recorder.finish(ended=True)
    (file,) = tmp_path.iterdir()
    assert "canary" not in file.read_text()
    monkeypatch.delenv("OPENAI_API_KEY")
    player = recorder_for(tmp_path, "none")
    redacted = Message(role="user", content="The key is [OPENAI_API_KEY redacted], is it not?")
    played = ask(player, Counting(), RULES, redacted)
    assert played.text == "It is [OPENAI_API_KEY redacted]."
    assert ask(player, Counting(), RULES, redacted, played.as_message()).calls == played.calls


def test_recording_twice_writes_the_same_file(tmp_path: Path) -> None:
    texts = []
    for name in ("one", "two"):
        folder = tmp_path / name
        record(folder, (RULES, PAY), (RULES,))
        texts.append((folder / "anna-gpt-4o--e7d5f6.json").read_text())
    assert texts[0] == texts[1]
    assert "req_" not in texts[0]


def test_calls_of_parallel_judges_are_written_in_a_stable_order(tmp_path: Path) -> None:
    """Two judges, the second of which needs a repair: however their requests interleave, the file is the same."""
    safety, helpful = SHAPE, ReplySchema(name="helpfulness", schema={"type": "object"})
    again = Message(role="user", content="Again.")
    orders = ([safety, helpful, helpful], [safety, helpful, safety, helpful])
    names = []
    for number, order in enumerate(orders):
        recorder = recorder_for(tmp_path / str(number), "once")
        requests_by_schema: dict[str, int] = {}
        for shape in order:
            count = requests_by_schema[shape.name] = requests_by_schema.get(shape.name, 0) + 1
            ask(recorder, Counting(), RULES, *(again for _ in range(count - 1)), role="evaluator", schema=shape)
        recorder.finish(ended=True)
        content = json.loads((tmp_path / str(number) / "anna-gpt-4o--e7d5f6.json").read_text())
        names.append([content["schemas"][call["schema"]]["name"] for call in content["model_calls"]])
    assert names == [["safety", "helpfulness", "helpfulness"], ["safety", "safety", "helpfulness", "helpfulness"]]
