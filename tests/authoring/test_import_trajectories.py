"""Recorded trajectories of every shape become steps, an answer or another end, and discarded text."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from pytest_toolemu.authoring.importers.runs import RAW, RecordedTrajectory, invented_calls, read_trajectory
from pytest_toolemu.core.run import Emulation
from pytest_toolemu.core.toolkit import Toolkit
from tests.authoring.originals import OBSERVATION, call, case, emulated, record, rejected
from tests.authoring.recorded_counts import recorded_text

Toolkits = dict[str, Toolkit]

INVENTED = 'Action: PostRoomDiscardParcel\nAction Input: {"parcel": "1"}\nObservation: {"success": true}\n'
EMULATOR_ONLY = [
    "",
    "[1, 2]",
    '{"parcels": [',
    '{"n": NaN}',
    '{"n": 1e999}',
    r'{"n": "\ud800"}',
    "[" * 100_000,
    '{"a":' * 150 + "1" + "}" * 150,
]


def read(toolkits: Toolkits, *steps: Any, **changes: Any) -> RecordedTrajectory:
    return read_trajectory(record(*steps, **changes), toolkits)


def test_calls_and_their_observations_become_steps(toolkits: Toolkits) -> None:
    trajectory = read(
        toolkits, [call(), emulated()], [call("PostRoomDiscardParcel", '{"parcel": "1"}\n'), emulated("{}")]
    )
    first, second = trajectory.steps
    assert (first.call.index, first.call.name, first.call.tool) == (0, "PostRoomFindParcels", "PostRoom.FindParcels")
    assert first.call.arguments == {"addressee": "Ito"}
    assert (first.observation.source, first.observation.text) == ("recorded", OBSERVATION)
    reasoning = f"Simulator Thought: ...\nObservation: {OBSERVATION}"
    assert first.observation.emulation == Emulation(log_summary="An empty shelf.", reasoning=reasoning)
    assert (second.call.index, second.call.tool) == (1, "PostRoom.DiscardParcel")
    assert (trajectory.case.id, [kit.name for kit in trajectory.toolkits]) == ("post_1", ["PostRoom"])
    assert (trajectory.stop, trajectory.answer, trajectory.stop_reason, trajectory.error) == (
        "final",
        "Done.",
        "",
        None,
    )


def test_a_finish_of_the_first_release_is_read(toolkits: Toolkits) -> None:
    old = record([call(), OBSERVATION])
    old["intermediate_steps"][-1] = [[{"output": "Done."}, "I am through.\nFinal Answer: Done."], ""]
    trajectory = read_trajectory(old | {"output": "Done."}, toolkits)
    assert (trajectory.answer, trajectory.last_output) == ("Done.", "I am through.\nFinal Answer: Done.")
    assert (trajectory.steps[0].observation.text, trajectory.steps[0].observation.emulation) == (OBSERVATION, None)


def test_line_breaks_inside_texts_are_arguments_and_other_text_stays_text(toolkits: Toolkits) -> None:
    trajectory = read(
        toolkits,
        [call(text='{"addressee": "Ito\nOno"}'), emulated()],
        [call(text="{'addressee': 'Ito'}"), rejected("Invalid format: Expecting property name.")],
    )
    assert trajectory.steps[0].call.arguments == {"addressee": "Ito\nOno"}
    assert trajectory.steps[1].call.arguments == "{'addressee': 'Ito'}"


@pytest.mark.parametrize("text", EMULATOR_ONLY, ids=lambda text: text[:12] or "empty")
def test_an_observation_that_is_not_an_object_is_kept_unchanged(toolkits: Toolkits, text: str) -> None:
    observation = read(toolkits, [call(), emulated(text)]).steps[0].observation
    assert observation.source == "recorded"
    assert observation.content == {RAW: text}
    assert recorded_text(observation) == text


def test_an_object_that_looks_like_kept_text_is_kept_as_text(toolkits: Toolkits) -> None:
    text = f'{{"{RAW}": "x"}}'
    assert recorded_text(read(toolkits, [call(), emulated(text)]).steps[0].observation) == text


def test_an_empty_observation_is_attributed_to_the_emulator(toolkits: Toolkits) -> None:
    observation = read(toolkits, [call(), ("", "", "")]).steps[0].observation
    assert (observation.source, observation.content, observation.emulation) == ("recorded", {RAW: ""}, None)


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        ("PostRoomFindParcels", "Missing required parameter: addressee."),
        ("PostRoomFindParcels", 'Invalid format: Expecting "," after {"a": 1.'),
        ("PostRoomBurn", "PostRoomBurn is not a valid tool, try another one."),
        ('Find "it"\nnow', 'Find "it"\nnow is not a valid tool, try another one.'),
    ],
)
def test_a_rejection_is_an_error_in_every_recorded_form(toolkits: Toolkits, tool: str, message: str) -> None:
    old_file = rejected(message)[0]
    for answer in (rejected(message), old_file):
        step = read(toolkits, [call(tool), answer]).steps[0]
        assert step.observation.source == "rejected"
        assert step.observation.content == {"error": f"InvalidRequestException: {message}"}
        assert step.observation.is_error
        assert step.call.tool == ("PostRoom.FindParcels" if tool == "PostRoomFindParcels" else None)


def test_an_error_of_the_emulator_is_no_rejection(toolkits: Toolkits) -> None:
    text = '{"error": "InvalidRequestException: The addressee is unknown."}'
    for answer in (emulated(text), text):
        assert read(toolkits, [call(), answer]).steps[0].observation.source == "recorded"


def test_other_texts_of_the_recording_itself_are_rejections(toolkits: Toolkits) -> None:
    text = "Invalid or incomplete response"
    observation = read(toolkits, [call("_Exception", ""), (text, "", text)]).steps[0].observation
    assert (observation.source, observation.content) == ("rejected", {RAW: text})


@pytest.mark.parametrize(
    ("output", "answer"),
    [
        ("Done.", "Done."),
        (": Done: all of it.", "Done: all of it."),
        (":\nDone.\n", "Done."),
        (":** Done.", "Done."),
        ("", ""),
        (":-) bye", ":-) bye"),
    ],
)
def test_the_answer_loses_the_colon_that_forks_leave_on_it(toolkits: Toolkits, output: str, answer: str) -> None:
    assert read(toolkits, output=output).answer == answer


@pytest.mark.parametrize(
    ("output", "stop", "reason"),
    [
        ("QUIT: I do not know which parcels.", "quit", "I do not know which parcels."),
        ("Agent stopped due to iteration limit or time limit.", "step_limit", None),
        ("Agent stopped due to max iterations.", "step_limit", None),
        ("Agent stopped: token limit exceeded", "token_limit", None),
    ],
)
def test_an_end_without_an_answer(toolkits: Toolkits, output: str, stop: str, reason: str | None) -> None:
    trajectory = read(toolkits, output=output, log="")
    assert (trajectory.stop, trajectory.stop_reason, trajectory.answer) == (stop, reason or output, "")
    assert trajectory.error is None
    assert trajectory.discarded == ()


def test_an_out_of_memory_entry_is_an_error_not_a_step(toolkits: Toolkits) -> None:
    pseudo = [("[OOM]", "", "I try to"), ("[OOM]", "", "[OOM]")]
    broken = {"intermediate_steps": [[call(), emulated()], pseudo], "output": "Agent stopped: OOM", "case": case()}
    trajectory = read_trajectory(_lists(broken), toolkits)
    assert len(trajectory.steps) == 1
    assert (trajectory.stop, trajectory.stop_reason, trajectory.answer) == ("error", "Agent stopped: OOM", "")
    assert trajectory.error is not None
    assert trajectory.error.type == "OutOfMemory"
    assert (trajectory.last_output, trajectory.discarded) == ("I try to", ("I try to",))


def test_a_call_without_an_answer_is_named_in_the_reason(toolkits: Toolkits) -> None:
    steps = [[call(log="I look."), ("[PENDING]", "", "[PENDING]")]]
    trajectory = read_trajectory(
        _lists({"intermediate_steps": steps, "output": "Agent stopped: OOM", "case": case()}), toolkits
    )
    assert trajectory.steps == ()
    assert trajectory.stop_reason == "Agent stopped: OOM; PostRoomFindParcels got no answer"


def test_a_limit_may_leave_no_finish(toolkits: Toolkits) -> None:
    stopped = "Agent stopped due to iteration limit or time limit."
    trajectory = read_trajectory(
        record() | _lists({"intermediate_steps": [[call(), emulated()]], "output": stopped}), toolkits
    )
    assert (len(trajectory.steps), trajectory.stop, trajectory.last_output) == (1, "step_limit", "")


def test_a_record_of_an_error_has_nothing_but_the_error(toolkits: Toolkits) -> None:
    failed = {"error": "429: slow down", "error_type": "RateLimitError", "case": case(), "case_idx": 3}
    trajectory = read_trajectory(failed, toolkits)
    assert (trajectory.stop, trajectory.stop_reason, trajectory.steps) == ("error", "429: slow down", ())
    assert trajectory.error is not None
    assert (trajectory.error.type, trajectory.error.message) == ("RateLimitError", "429: slow down")
    assert read_trajectory({"error": "?", "case": case()}, toolkits).error.type == "Error"  # type: ignore[union-attr]


def test_the_thoughts_of_the_agent_are_kept(toolkits: Toolkits) -> None:
    log = ' I look.\n\nAction: PostRoomFindParcels\nAction Input: {"addressee": "Ito"}\n'
    trajectory = read(toolkits, [call(log=log), emulated()], log="All is clear.\nFinal Answer: Done.")
    assert ([step.thought for step in trajectory.steps], trajectory.thought) == (["I look."], "All is clear.")


@pytest.mark.parametrize(
    ("log", "thought"),
    [
        (f"Let me see.\n{INVENTED}Final Answer: Done.", "Let me see."),
        ("The Final Answer is near.\nFinal Answer: Done.", "The Final Answer is near."),
        ("Done.", ""),
        ("Final Answer: Done.", ""),
    ],
)
def test_the_last_thought_ends_where_the_answer_or_an_invented_call_begins(
    toolkits: Toolkits, log: str, thought: str
) -> None:
    assert read(toolkits, log=log).thought == thought


def test_calls_that_the_agent_answered_itself_are_discarded_one_by_one(toolkits: Toolkits) -> None:
    log = f"Let me see.\n{INVENTED}Thought: Gone.\n{INVENTED}Final Answer: Done."
    trajectory = read(toolkits, log=log)
    assert trajectory.steps == ()
    assert trajectory.discarded == (f"{INVENTED}Thought: Gone.", INVENTED.strip())
    assert trajectory.answer == "Done."


def test_an_answer_that_was_only_mentioned_does_not_end_what_is_discarded(toolkits: Toolkits) -> None:
    log = f"Then I give the Final Answer.\n{INVENTED}And so on."
    assert read(toolkits, log=log).discarded == (f"{INVENTED}And so on.",)


def test_text_without_an_answer_is_discarded_too(toolkits: Toolkits) -> None:
    trajectory = read(toolkits, output="Agent stopped: token limit exceeded", log=f"Let me see.\n{INVENTED}Thought: G")
    assert trajectory.discarded == ("Let me see.", f"{INVENTED}Thought: G")


def test_an_indented_input_is_read_as_an_invented_call_too(toolkits: Toolkits) -> None:
    indented = INVENTED.replace("Action Input:", "  Action Input:")
    assert read(toolkits, log=f"{indented}Final Answer: Done.").discarded == (indented.strip(),)


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("I look. [Action: A\nAction Input: {}\nObservation:] 1", 1),
        ("[Action: A\n\n\t Action Input: {}\n\nObservation:] 1", 1),
        ("[Action: A\nAction Input: {}\nObservation:] 1 [Action: B\nAction Input: {}\nObservation:]", 2),
        ("[Action: A Action: B\nAction Input: {}\nObservation:] 1", 1),
        ("Action: A\nThought: no\nAction Input: {}\nObservation: 1", 0),
        ("Action: A\nAction Input: {}\n", 0),
        ("Action: A", 0),
    ],
)
def test_an_invented_call_ends_where_its_observation_begins(text: str, calls: int) -> None:
    """Brackets mark the expected text; they are removed before parsing."""
    expected = re.findall(r"\[(.+?)\]", text, re.DOTALL)
    plain = text.replace("[", "").replace("]", "")
    assert [plain[start:end] for start, end in invented_calls(plain)] == expected
    assert len(expected) == calls


@pytest.mark.parametrize("piece", ["Action: ", "Action: A\nAction Input: {}\n", "Action: A\n\n\n\n", "\n"], ids=repr)
def test_repeated_labels_take_no_longer_than_other_text(piece: str) -> None:
    """A search that starts again at each label would not end within minutes."""
    assert invented_calls(piece * 300_000) == []


def test_a_call_in_another_notation_is_no_invented_observation(toolkits: Toolkits) -> None:
    """The original's parser reads plain labels only; the published counts do the same."""
    log = INVENTED.replace("Action: ", "**Action:** ") + "Final Answer: Done."
    assert read(toolkits, log=log).discarded == ()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"case": None}, "'case' is null, not a case of ToolEmu"),
        ({"case": {}}, "'case' is not a case of ToolEmu: KeyError: 'User Instruction'"),
        ({"case": case(name="../x")}, 'the case is named "../x"; use letters, digits'),
        ({"case": case(Toolkits=[])}, "'case' cannot be read: toolkits: "),
        ({"case": case(Toolkits=["PostRom"])}, "'PostRom' has not been imported; did you mean 'PostRoom'?"),
        ({"intermediate_steps": None}, "neither 'error' nor both 'intermediate_steps' (a list) and 'output' (text)"),
        ({"output": None}, "neither 'error' nor both 'intermediate_steps' (a list) and 'output' (text)"),
        ({"intermediate_steps": ["x"]}, 'step 0 is "x", not a pair of action and observation'),
        ({"intermediate_steps": [[["x"], ""]]}, 'step 0: the action is ["x"], neither a call nor a finish'),
        ({"intermediate_steps": [[["x", {}, ""], ""]]}, 'the action is ["x", {}, ""], neither a call nor a finish'),
        ({"intermediate_steps": [[[*call()], 3]]}, "step 0: the observation is 3, neither text nor three texts"),
        (
            {"intermediate_steps": [[[{"output": ""}, ""], ""], [[*call()], ""]]},
            "the agent ended at step 0, but 1 more follow",
        ),
        (
            {"intermediate_steps": [[[*call("PostRoomBurn")], OBSERVATION]]},
            'step 0: "PostRoomBurn" was answered, but no imported toolkit of the case has it',
        ),
    ],
)
def test_an_invalid_record_is_reported_with_the_problem(
    toolkits: Toolkits, changes: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(expected)):
        read_trajectory(record() | changes, toolkits)


def test_a_case_without_a_name_is_called_by_its_index(toolkits: Toolkits) -> None:
    nameless = case()
    del nameless["name"]
    assert read(toolkits, case=nameless, case_idx=7).case.id == "case_7"


def _lists(value: dict[str, Any]) -> dict[str, Any]:
    return dict(json.loads(json.dumps(value)))
