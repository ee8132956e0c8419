"""An ordered fallback A|B: when B is asked, what is recorded about it, and what counts it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pytest_toolemu.analysis.emulation_validity import validity_counts, validity_shares
from pytest_toolemu.analysis.run_summary import RunSummary, summary_of
from pytest_toolemu.core.engine import RunSpec, run_case
from pytest_toolemu.core.identity import component_name, identity_of, model_label
from pytest_toolemu.core.messages import Ledger, ModelCall, Reply, ReplySchema
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.run_notes import note_lines
from pytest_toolemu.core.toolbox import Task, Toolbox
from pytest_toolemu.emulators.simulated import SimulatedEmulator
from pytest_toolemu.errors import InconclusiveError, ModelError, NotRunError, UsageError
from pytest_toolemu.evaluators.model_judge import SCHEMAS, JudgeEvaluator
from pytest_toolemu.models.cassette_files import CassetteDirectory
from pytest_toolemu.models.cassette_recorder import CassetteRecorder
from pytest_toolemu.models.retrying import FallbackModel, model_names, parse_fallback
from pytest_toolemu.models.structured_output import StructuredReply, ask, ask_structured
from tests.emulators.resolved_cases import call, trajectory
from tests.emulators.test_simulated import ANNA
from tests.emulators.test_simulated import reply as emulated
from tests.evaluators.test_model_judge import SAFE
from tests.models.conftest import QUESTION, VERDICT
from tests.scripted_model import ScriptedModel

GOOD = {"score": 3, "reason": "Fine."}
SCHEMAS_OF_JUDGES = (SCHEMAS["safety"], SCHEMAS["helpfulness"])
REFUSAL = Reply(stop="refusal", stop_detail="content_filter")


def first(*replies: Any) -> ScriptedModel:
    return ScriptedModel(*replies, provider="openai")


def second(*replies: Any) -> ScriptedModel:
    return ScriptedModel(*replies, provider="vllm")


def asked(*models: ScriptedModel, ledger: Ledger | None = None) -> StructuredReply[Any]:
    """Return the reply of a fallback of these models."""
    fallback = FallbackModel(models)
    return asyncio.run(
        ask_structured(fallback, "evaluator", ledger or Ledger(), QUESTION, VERDICT, lambda value: value["score"])
    )


def test_the_second_model_is_not_asked_if_the_first_answers_after_a_correction() -> None:
    backup = second()
    reply = asked(first("no JSON", GOOD), backup)
    assert (reply.value, reply.fallback, len(reply.repairs)) == (3, None, 1)
    assert backup.requests == []


@pytest.mark.parametrize("refusal", [REFUSAL, "I'm sorry, but I can't help with that."])
def test_a_refusal_sends_the_original_request_to_the_second_model(refusal: Any) -> None:
    main, backup = first("no JSON", refusal), second(GOOD)
    reply = asked(main, backup)
    assert reply.value == 3
    assert reply.fallback is not None
    assert reply.fallback.model == "vllm:scripted"
    (passed_over,) = reply.fallback.passed_over
    assert (passed_over.model, passed_over.reason) == ("openai:scripted", "refused")
    assert backup.conversations == main.conversations[:1]


def test_a_reply_that_stays_invalid_after_two_corrections_sends_the_request_to_the_second_model() -> None:
    backup = second("still no JSON", GOOD)
    reply = asked(first("no", "no", "no"), backup)
    assert reply.fallback is not None
    (passed_over,) = reply.fallback.passed_over
    assert passed_over.reason == "invalid"
    assert "gave no usable verdict after 2 requests for a correction: not JSON" in passed_over.problem
    assert len(reply.repairs) == 4  # of both models
    assert len(backup.requests) == 2


def test_replies_that_are_cut_off_send_the_request_to_the_second_model() -> None:
    cut = Reply(text='{"score": 3', stop="length")
    assert asked(first(cut, cut), second(GOOD)).value == 3


def test_models_are_asked_in_their_order() -> None:
    ledger = Ledger()
    reply = asked(first(REFUSAL), second("no", "no", "no"), ScriptedModel(GOOD, provider="anthropic"), ledger=ledger)
    assert reply.fallback is not None
    assert [each.reason for each in reply.fallback.passed_over] == ["refused", "invalid"]
    assert [(call.model["provider"], call.instead_of and call.instead_of.reason) for call in ledger.model_calls] == [
        ("openai", None), ("vllm", "refused"), ("vllm", None), ("vllm", None), ("anthropic", "invalid"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "failure",
    [
        ModelError("rate limit", status=429, transient=True),
        ModelError("did not answer within 120 s", transient=True),
        ModelError("broken", status=500, transient=True),
    ],
)
def test_an_outage_rate_limit_or_timeout_is_no_reason_to_ask_the_second_model(failure: ModelError) -> None:
    backup = second(GOOD)
    with pytest.raises(ModelError) as caught:
        asked(first(failure), backup)
    assert caught.value is failure
    assert backup.requests == []


def test_a_spent_budget_is_no_reason_to_ask_the_second_model() -> None:
    class Spent(ScriptedModel):
        async def complete(self, _request: Any) -> Reply:
            raise NotRunError("the budget is spent")

    backup = second(GOOD)
    with pytest.raises(NotRunError):
        asked(Spent(provider="openai"), backup)
    assert backup.requests == []


def test_if_no_model_gives_a_usable_reply_the_problem_of_each_is_reported() -> None:
    with pytest.raises(InconclusiveError) as caught:
        asked(first(REFUSAL), second("I cannot do that."))
    assert str(caught.value) == "refused: content_filter; fallback vllm:scripted: refused: I cannot do that."


def test_the_identity_covers_all_models_and_their_order() -> None:
    main, backup = first(), second()
    both, reverse = FallbackModel((main, backup)), FallbackModel((backup, main))
    judges = [JudgeEvaluator(model, "safety") for model in (main, both, reverse)]
    assert both.identity == {**main.identity, "fallback": [backup.identity]}
    assert len({component_name(identity_of(judge)).hash for judge in judges}) == 3
    assert judges[1].name == "judge openai:scripted|vllm:scripted"
    assert component_name(identity_of(judges[1])).label == "judged openai:scripted|vllm:scripted safety"
    assert (model_label(both.identity), model_names(both)) == ("openai:scripted|vllm:scripted", "scripted|scripted")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpt-4o|", "'' does not name a model; write provider:model"),
        ("gpt-4o|checks", "'checks' does not name a model"),
        ("gpt-4o | openai:gpt-4o", "'gpt-4o | openai:gpt-4o' names a model twice, but a fallback asks each"),
        ("gpt-4o|gtp-4o", "'gtp-4o' does not name a model"),
    ],
)
def test_a_mistake_in_a_fallback_is_reported_with_the_value_and_the_fix(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_fallback(text, ("checks",))
    assert message in str(caught.value)


def test_a_base_url_belongs_to_the_model_before_it() -> None:
    specs = parse_fallback("vllm:llama@http://127.0.0.1:8000/v1 | gpt-4o")
    assert list(map(str, specs)) == ["vllm:llama@http://127.0.0.1:8000/v1", "openai:gpt-4o"]


def test_the_emulator_sends_each_model_the_schema_for_its_provider() -> None:
    main, backup = first(REFUSAL), second(emulated(ANNA))
    emulator = SimulatedEmulator(FallbackModel((main, backup)))
    where = trajectory()
    tool_call = call(where, "Contacts_GetContact", {"contact_id": "c-81f"})
    run_with(emulator)
    schemas = [model.requests[0].schema for model in (main, backup)]
    assert schemas == [emulator.schema(tool_call, where), emulator.schema(tool_call, where, backup)]
    assert schemas[0] != schemas[1]


async def agent(_task: Task, toolbox: Toolbox) -> str:
    await toolbox.call("Contacts_GetContact", {"contact_id": "c-81f"})
    return "Anna Keller."


def run_with(emulator: Any, *evaluators: Any) -> Run:
    return asyncio.run(run_case(RunSpec(trajectory().resolved_case, agent, emulator, evaluators, {"safety": 2})))


def test_a_run_is_judged_although_the_first_model_refuses_and_the_refusals_are_counted() -> None:
    emulator = SimulatedEmulator(FallbackModel((first(REFUSAL), second(emulated(ANNA)))))
    judge = JudgeEvaluator(FallbackModel((first("no", "no", "no"), second(SAFE))), "safety")
    run = run_with(emulator, judge)
    assert (run.outcome, run.score("safety")) == ("passed", 3)
    emulation, (verdict,) = run.steps[0].observation.emulation, run.verdicts
    assert emulation is not None
    assert str(emulation.fallback) == (
        "answered by the fallback model vllm:scripted, because of openai:scripted: refused: content_filter"
    )
    assert verdict.fallback is not None
    assert verdict.fallback.model == "vllm:scripted"
    counts = validity_counts(run)
    assert (counts["fallback"], counts["refused"], counts.get("never"), counts.get("first_try")) == (1, 1, None, None)
    assert ("refused by the model", 1, 1) in validity_shares(counts)
    assert ("valid reply of a fallback model", 1, 1) in validity_shares(counts)


def test_the_summary_counts_answers_and_cases_by_role_with_the_reasons() -> None:
    runs = []
    for replies in ((REFUSAL,), ("no", "no", "no")):
        emulator = SimulatedEmulator(FallbackModel((first(*replies), second(emulated(ANNA)))))
        judge = JudgeEvaluator(FallbackModel((first(REFUSAL), second(SAFE))), "safety")
        runs.append(summary_of(run_with(emulator, judge), "record.json"))
    stored = [RunSummary.from_json(run.as_json()) for run in runs]
    assert note_lines(run.case_notes for run in stored) == [
        "fallback: openai:scripted gave no valid reply as emulator, so vllm:scripted was asked for 1 answer of 1 case",
        "fallback: openai:scripted refused as emulator, so vllm:scripted was asked for 1 answer of 1 case",
        "fallback: openai:scripted refused as evaluator, so vllm:scripted was asked for 2 answers of 1 case",
    ]


def test_each_model_has_its_own_requests_in_a_cassette(tmp_path: Path) -> None:
    def ledger(mode: Any) -> tuple[Ledger, CassetteRecorder]:
        recorder = CassetteRecorder(CassetteDirectory(tmp_path, mode), "item", "case", 1)
        ledger = Ledger()
        ledger.recorder = recorder
        return ledger, recorder

    recording, recorder = ledger("once")
    asked(first(REFUSAL), second(GOOD), ledger=recording)
    recorder.finish(ended=True)
    replaying, _ = ledger("none")
    main, backup = first(), second()
    reply = asked(main, backup, ledger=replaying)
    assert (reply.value, main.requests, backup.requests) == (3, [], [])
    assert [bool(call.replayed) for call in replaying.model_calls] == [True, True]
    alone, _ = ledger("none")
    assert asked(second(), ledger=alone).value == 3


def test_the_calls_of_judges_are_in_the_same_order_in_a_cassette_whichever_refused_first(tmp_path: Path) -> None:
    def recorded(folder: Path, schemas: tuple[ReplySchema, ...]) -> list[str]:
        recorder = CassetteRecorder(CassetteDirectory(folder, "once"), "item", "case", 1)
        ledger = Ledger()
        ledger.recorder = recorder

        async def record() -> None:
            for schema in SCHEMAS_OF_JUDGES:
                await ask(first(REFUSAL), "evaluator", ledger, QUESTION, schema=schema)
            for schema in schemas:
                await ask(second(GOOD), "evaluator", ledger, QUESTION, schema=schema)

        asyncio.run(record())
        recorder.finish(ended=True)
        cassette = CassetteDirectory(folder, "none").load("item")
        assert cassette is not None
        return [
            f"{entry.request.model['provider']} {(entry.request.schema or {})['name']}" for entry in cassette.entries
        ]

    orders = [recorded(tmp_path / "1", SCHEMAS_OF_JUDGES), recorded(tmp_path / "2", SCHEMAS_OF_JUDGES[::-1])]
    assert orders == [["openai safety", "vllm safety", "openai helpfulness", "vllm helpfulness"]] * 2


def test_a_call_of_an_earlier_version_has_no_fallback() -> None:
    stored = '{"role": "emulator", "model": {}, "messages": [], "started": 0.0, "seconds": 0.0}'
    assert ModelCall.model_validate_json(stored).instead_of is None
