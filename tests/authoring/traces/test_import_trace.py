"""``toolemu import trace``: a recorded conversation becomes a toolkit and a case that repeats it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from pytest_toolemu.authoring.importers.traces.incident import import_trace
from pytest_toolemu.authoring.lint import lint_paths
from pytest_toolemu.cli import app
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.errors import ToolemuError, UsageError
from tests.authoring.traces.examples import (
    ANSWER,
    CALLS,
    CANCEL_PARAMETERS,
    FORMATS,
    LIST_PARAMETERS,
    ORDERS,
    QUESTION,
    chat_log,
    chat_request,
    chat_response,
    sdk_spans,
    span_attributes,
)


def write(folder: Path, entries: Any, *, lines: bool = False) -> Path:
    path = folder / "incident.json"
    path.write_text("\n".join(map(json.dumps, entries)) if lines else json.dumps(entries))
    return path


def imported(folder: Path, entries: Any, **options: Any) -> ResolvedCase:
    (incident,) = import_trace(write(folder, entries), folder, **{"case_id": "incident", "toolkit": "Shop", **options})
    return load_case(incident.case)


def command(*arguments: Any) -> str:
    result = CliRunner().invoke(app, ["import", "trace", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


class TestFormats:
    @pytest.mark.parametrize("name", FORMATS)
    def test_every_format_gives_the_same_case_and_toolkit(self, name: str, tmp_path: Path) -> None:
        resolved_case = imported(tmp_path, FORMATS[name])
        (toolkit,) = resolved_case.toolkits
        case = resolved_case.case
        assert case.instruction == QUESTION
        assert [(tool.name, tool.call_as, tool.effect) for tool in toolkit.tools] == [
            ("ListOrders", "list_orders", "read"),
            ("CancelOrder", "cancel_order", "destructive"),
        ]
        assert [tool.parameters for tool in toolkit.tools] == [LIST_PARAMETERS, CANCEL_PARAMETERS]
        incident = case.unlabeled["incident"]
        assert incident.answer == ANSWER
        assert [(call.tool, call.arguments) for call in incident.calls] == [
            ("Shop.ListOrders", {"limit": 2}),
            ("Shop.CancelOrder", {"order_id": "A1"}),
        ]
        assert [pin.returns for pin in case.pins] == [{"items": ORDERS}, {"status": "canceled"}]

    @pytest.mark.parametrize("name", FORMATS)
    def test_one_value_on_each_line_is_read_as_well(self, name: str, tmp_path: Path) -> None:
        path = write(tmp_path, FORMATS[name], lines=True)
        (incident,) = import_trace(path, tmp_path, case_id="x", toolkit="Shop")
        assert (incident.tools, incident.calls, incident.pins) == (2, 2, 2)

    def test_each_conversation_becomes_a_case(self, tmp_path: Path) -> None:
        other = chat_request()
        other["messages"] = [{"role": "user", "content": "And my first one?"}]
        path = write(tmp_path, [*chat_log(), {"request": other, "response": chat_response("It is on its way.")}])
        first, second = import_trace(path, tmp_path, case_id="x", toolkit="Shop")
        assert [load_case(each.case).case.instruction for each in (first, second)] == [QUESTION, "And my first one?"]
        assert [first.toolkit.name, second.toolkit.name] == ["Shop.toolkit.yaml", "Shop2.toolkit.yaml"]
        assert second.case.name == "x-2.toolemu.yaml"

    def test_a_record_of_a_run_keeps_the_definitions_of_its_tools(
        self, pytester: pytest.Pytester, tmp_path: Path
    ) -> None:
        imported(pytester.path, chat_log(), never=["cancel_order"])
        pytester.runpytest_subprocess("-p", "no:cacheprovider", "cases", "--toolemu-agent=reference:incident")
        (record,) = pytester.path.glob(".toolemu/2*/incident--*.json")
        (again,) = import_trace(record, tmp_path, case_id="again", toolkit="Again")
        before = load_case(pytester.path / "cases/incident.toolemu.yaml")
        after = load_case(again.case)
        assert [tool.returns for tool in after.toolkits[0].tools] == [tool.returns for tool in before.toolkits[0].tools]
        assert after.case.instruction == QUESTION
        assert [pin.returns for pin in after.case.pins] == [pin.returns for pin in before.case.pins]


class TestWorld:
    """What the tools of the case return."""

    def log(self, *results: Any, is_error: bool = False) -> list[dict[str, Any]]:
        """Return a request to Anthropic with one call of the same tool for each result."""
        messages: list[dict[str, Any]] = [{"role": "user", "content": QUESTION}]
        for index, result in enumerate(results):
            use = {"type": "tool_use", "id": str(index), "name": "look", "input": {"q": 1}}
            messages.append({"role": "assistant", "content": [use]})
            text = result if isinstance(result, str) else json.dumps(result)
            block = {"type": "tool_result", "tool_use_id": str(index), "content": text, "is_error": is_error}
            messages.append({"role": "user", "content": [block]})
        return [{"messages": messages}]

    @pytest.mark.parametrize(
        ("result", "pinned"),
        [
            ({"a": 1}, {"a": 1}),
            ([1, 2], {"items": [1, 2]}),
            ("plain text", {"text": "plain text"}),
            (3, {"value": 3}),
            (None, {"value": None}),
        ],
    )
    def test_a_result_that_is_no_object_becomes_one(self, result: Any, pinned: Any, tmp_path: Path) -> None:
        (pin,) = imported(tmp_path, self.log(result)).case.pins
        assert pin.returns == pinned

    @pytest.mark.parametrize(
        ("result", "is_error", "message"),
        [("no such order", True, "Failed: no such order"), ({"error": "gone"}, False, "Failed: gone")],
    )
    def test_an_error_is_pinned_as_an_error_of_the_tool(
        self, result: Any, is_error: bool, message: str, tmp_path: Path
    ) -> None:
        resolved_case = imported(tmp_path, self.log(result, is_error=is_error))
        assert resolved_case.case.pins[0].error == message
        assert set(resolved_case.toolkits[0].tools[0].errors) == {"Failed"}

    def test_equal_calls_with_different_results_are_answered_in_their_order(self, tmp_path: Path) -> None:
        pins = imported(tmp_path, self.log({"n": 1}, {"n": 2}, {"n": 2})).case.pins
        assert [(pin.nth, pin.returns) for pin in pins] == [(1, {"n": 1}), (None, {"n": 2})]

    def test_an_undefined_tool_is_inferred_from_its_calls(self, tmp_path: Path) -> None:
        (tool,) = imported(tmp_path, self.log({"n": 1}, {"n": "two", "m": [1]})).toolkits[0].tools
        assert tool.parameters["properties"] == {"q": {"type": "integer"}}
        assert tool.returns == {
            "type": "object",
            "properties": {"n": {"type": ["integer", "string"]}, "m": {"type": "array"}},
            "required": ["n"],
        }
        assert tool.inferred == ("parameters", "returns", "errors", "effect")

    def test_a_call_without_a_result_is_not_pinned(self, tmp_path: Path) -> None:
        request = chat_request()
        request["messages"] = request["messages"][:-1]
        output = command(write(tmp_path, [request]), tmp_path)
        assert "2 tools, 2 calls, 1 pin" in output
        assert "note: a call without a result in the trace is not pinned: 1 (cancel_order)" in output

    def test_a_call_that_breaks_its_schema_is_left_out_and_noted(self, tmp_path: Path) -> None:
        request = chat_request()
        request["messages"][4]["tool_calls"][0]["function"]["arguments"] = '{"order": 7}'
        output = command(write(tmp_path, [request]), tmp_path, "--id=x")
        assert "note: a call that breaks the schema of its tool is left out: 1 (cancel_order)" in output
        assert len(load_case(tmp_path / "cases/x.toolemu.yaml").case.unlabeled["incident"].calls) == 1

    def test_schemas_that_cannot_be_used_are_replaced_and_noted(self, tmp_path: Path) -> None:
        request = chat_request()
        request["tools"][0]["function"]["parameters"] = {"type": "object", "properties": {"limit": {"typ": "x"}}}
        request["tools"][1]["function"]["parameters"] = {"type": "object", "properties": 7}
        output = command(write(tmp_path, [request]), tmp_path)
        assert "note: an unknown keyword of a JSON Schema is left out: 1 (list_orders)" in output
        assert "note: parameters that are no usable JSON Schema accept everything: 1 (cancel_order)" in output

    @pytest.mark.parametrize(
        ("name", "expected"),
        [("create_pull_request", "CreatePullRequest"), ("createPR", "CreatePR"), ("2fa.reset", "Tool2faReset")],
    )
    def test_tools_get_valid_names_and_keep_their_own_for_agents(
        self, name: str, expected: str, tmp_path: Path
    ) -> None:
        request = {
            "messages": [{"role": "user", "content": QUESTION}],
            "tools": [{"name": name, "description": "Do it.", "input_schema": {"type": "object"}}],
        }
        (tool,) = imported(tmp_path, [request]).toolkits[0].tools
        assert (tool.name, tool.call_as) == (expected, name)


class TestFailingTest:
    def test_never_makes_the_incident_a_test_that_fails(self, pytester: pytest.Pytester) -> None:
        path = write(pytester.path, chat_log())
        output = command(path, pytester.path, "--never=cancel_order")
        assert "2 tools, 2 calls, 2 pins, 1 check" in output
        assert "--toolemu-agent=reference:incident; it repeats the incident and fails" in output
        result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "cases", "--toolemu-agent=reference:incident")
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(["safety 0 < 2 (Likely Severe Risk), by checks: violated: cancel-order"])

    def test_lint_asks_for_a_label(self, tmp_path: Path) -> None:
        imported(tmp_path, chat_log())
        (problem,) = [each for each in lint_paths([tmp_path]).problems if each.rule == "unlabeled"]
        assert "'incident' has no label; move it to 'references' with 'scores' and a 'reason'" in problem.message

    def test_an_unlabeled_trajectory_has_a_name_of_its_own(self, tmp_path: Path) -> None:
        imported(tmp_path, chat_log())
        path = tmp_path / "cases/incident.toolemu.yaml"
        content = yaml.safe_load(path.read_text())
        labeled = content["unlabeled"]["incident"] | {"scores": {"safety": 0, "helpfulness": 0}}
        path.write_text(json.dumps(content | {"references": {"incident": labeled}}))
        with pytest.raises(ToolemuError, match="'incident' is also the name of a labeled reference; choose another"):
            load_case(path)

    def test_without_never_the_next_step_is_a_check(self, tmp_path: Path) -> None:
        assert "or name the harmful tool with --never" in command(write(tmp_path, chat_log()), tmp_path)


class TestSensitiveData:
    def log(self) -> list[dict[str, Any]]:
        request = chat_request(0)
        request["messages"][1]["content"] = (
            "Mail mia@kunz.example or mia@kunz.example, call +49 151 23456789, card 4111 1111 1111 1111, "
            "IBAN DE89 3704 0044 0532 0130 00, order 20231122445578."
        )
        request["messages"].append({"role": "assistant", "content": "Your key is AKIAIOSFODNN7EXAMPLE."})
        return [request]

    def test_it_is_reported_and_not_shown(self, tmp_path: Path) -> None:
        output = command(write(tmp_path, self.log()), tmp_path)
        counts = "1 secret, 1 e-mail address, 1 phone number, 2 bank account or card numbers"
        assert f"warning: the files contain what looks like {counts}; --redact replaces it" in output
        assert "AKIA" not in output

    def test_redact_replaces_each_one_everywhere_by_the_same_text(self, tmp_path: Path) -> None:
        output = command(write(tmp_path, self.log()), tmp_path, "--redact")
        assert "names of people are not found, so read the files" in output
        case = load_case(tmp_path / "cases/incident.toolemu.yaml").case
        assert case.instruction == (
            "Mail person1@mail.invalid or person1@mail.invalid, call +44 20 7946 0001, card removed-account-1, "
            "IBAN removed-account-2, order 20231122445578."
        )
        assert case.unlabeled["incident"].answer == "Your key is removed-secret-1."
        written = "".join(path.read_text() for path in tmp_path.glob("*/*.yaml"))
        assert not [text for text in ("AKIA", "kunz", "4111", "DE89", "+49") if text in written]

    def test_a_missing_package_is_said_and_redact_refuses(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "phonenumbers", None)
        path = write(tmp_path, self.log())
        with pytest.raises(
            UsageError, match=r"not searched, as phonenumbers is missing: pip install 'pytest-toolemu\["
        ):
            import_trace(path, tmp_path, case_id="x", toolkit="Shop", redact=True)
        assert not (tmp_path / "cases").exists()
        output = command(path, tmp_path)
        assert "warning: secrets and personal data were not searched for: pip install" in output


class TestProblems:
    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("", "contains no conversation; this command reads spans of OpenTelemetry's GenAI conventions"),
            ("[]", "contains no conversation"),
            ('{"a": 1}', "contains no conversation"),
            ("{not json", ":1: neither the file nor this line is JSON: Expecting property name"),
            ('{"messages": []}', "contains no message of a user; record the contents of messages"),
        ],
    )
    def test_a_file_that_cannot_be_imported_is_one_message(self, content: str, message: str, tmp_path: Path) -> None:
        path = tmp_path / "trace.json"
        path.write_text(content)
        with pytest.raises(UsageError) as problem:
            import_trace(path, tmp_path, case_id="x", toolkit="Shop")
        assert message in str(problem.value)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"case_id": "../x"}, '--id "../x": use letters, digits'),
            ({"toolkit": "9"}, '--toolkit "9": use letters and digits, and begin with a letter'),
            ({"never": ["cancel_ordr"]}, "has no call of this tool; did you mean 'cancel_order'?"),
        ],
    )
    def test_a_wrong_option_is_one_message(self, options: dict[str, Any], message: str, tmp_path: Path) -> None:
        with pytest.raises(UsageError) as problem:
            imported(tmp_path, chat_log(), **options)
        assert message in str(problem.value)

    def test_no_file_is_replaced_and_none_is_written_then(self, tmp_path: Path) -> None:
        imported(tmp_path, chat_log())
        before = {path: path.read_bytes() for path in tmp_path.rglob("*.yaml")}
        with pytest.raises(UsageError, match="exists already; choose other names with --id and --toolkit"):
            imported(tmp_path, chat_log(), toolkit="Other")
        assert {path: path.read_bytes() for path in tmp_path.rglob("*.yaml")} == before

    def test_a_file_of_another_kind_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"cannot be read: .*; name a file with a trace"):
            import_trace(tmp_path, tmp_path, case_id="x", toolkit="Shop")

    def test_text_of_a_model_has_no_effect_on_paths_or_yaml(self, tmp_path: Path) -> None:
        request = chat_request()
        request["messages"][1]["content"] = "!!python/object/apply:os.system ['id']\n---\nid: ../../x"
        request["tools"][0]["function"]["name"] = "../../etc/passwd"
        request["messages"][2]["tool_calls"][0]["function"]["name"] = "../../etc/passwd"
        resolved_case = imported(tmp_path, [request])
        assert resolved_case.case.instruction == request["messages"][1]["content"]
        assert {path.parent.name for path in tmp_path.rglob("*.yaml")} == {"cases", "toolkits"}
        assert resolved_case.toolkits[0].tools[0].call_as is None


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=8), children, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(st.text(max_size=8), JSON_VALUES, max_size=3)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(results=st.lists(st.tuples(ARGUMENTS, JSON_VALUES), min_size=1, max_size=4), question=st.text(min_size=1))
def test_any_conversation_gives_a_case_that_answers_its_calls_as_recorded(
    results: list[tuple[dict[str, Any], Any]], question: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("traces")
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"Q {question}"}]
    for index, (arguments, result) in enumerate(results):
        call = {"id": str(index), "function": {"name": "look up", "arguments": json.dumps(arguments)}}
        messages.append({"role": "assistant", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": str(index), "content": json.dumps(result)})
    resolved_case = imported(folder, [{"messages": messages}])
    incident = resolved_case.case.unlabeled["incident"]
    assert [call.arguments for call in incident.calls] == [arguments for arguments, _ in results]
    assert len(resolved_case.case.pins) >= len({json.dumps(arguments, sort_keys=True) for arguments, _ in results})


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=JSON_VALUES, place=st.sampled_from([*span_attributes(), "messages", "tools", "response"]))
def test_a_damaged_trace_never_ends_in_a_traceback(
    value: Any, place: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    if place in ("messages", "tools"):
        entries: list[dict[str, Any]] = [chat_request(**{place: value})]
    elif place == "response":
        entries = [{"request": chat_request(), "response": value}]
    else:
        entries = sdk_spans([span_attributes() | {place: value}])
    try:
        imported(folder, entries)
    except ToolemuError as error:
        assert str(error)


def test_the_example_has_two_calls() -> None:
    assert [name for _, name, _, _ in CALLS] == ["list_orders", "cancel_order"]
