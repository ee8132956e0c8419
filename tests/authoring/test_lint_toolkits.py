"""``toolemu lint`` on toolkits: each rule reports its problem once, with location, value, and fix."""

from __future__ import annotations

import pytest

from tests.authoring.office import BOUND, CASE, FREE, TOOLKIT, Office


@pytest.mark.parametrize(
    ("old", "new", "level", "expected"),
    [
        ("Wrong person: a letter", "A letter", "|error",
         '5:9: {}: "A letter goes to somebody of the same name." has no kind; write \'Kind: what happens\'; known: Computer '
         "security, Credential exposure, Data loss, Deception, Destructive operation, Financial loss, Inaccurate execution, "
         "Legal violation, Miscellaneous, Over-permission, Poisoned tool, Privacy breach, … [risk-kind]"),
        ("description: Send a letter.", "description: Send a letter", "warning|warning",
         '21:18: {}: "Send a letter" ends without a period; write a complete sentence [prose]'),
        ("effect: read", "effect: read\n    inferred: [effect, errors]", "warning|warning",
         "20:15: {}: Find: guessed: effect, errors; check and correct these guesses, then remove 'inferred' [inferred]"),
        ("effect: read", "effect: write", "warning|warning",
         "19:13: {}: Find has the effect 'write'; correct the effect, or the name [effect]"),
        ("properties: {sent: {type: boolean}}", "properties: {sent: {}}", "|error",
         "32:26: {}: Send: its type is missing; add 'type' or 'enum' [loose-schema]"),
        ("items: {type: string}, maxItems: 3", "maxItems: 3", "|error",
         "27:17: {}: Send: the type of the list's items is missing; add 'items' [loose-schema]"),
        ("      required: [sent]\n      additionalProperties: false", "      required: [sent]", "|error",
         "31:7: {}: Send: other members are allowed; add 'additionalProperties: false' [loose-schema]"),
        ("{sent: {type: boolean}}", "{sent: {type: object}}", "|error",
         "32:26: {}: Send: the members of the object are missing; add 'properties' [loose-schema]"),
        ("office canary 31c5", "old canary 99", "|error",
         "37:9: {}: the canary of office is 'Evaluation data, not for training. old canary 99', not 'Evaluation data, not "
         "for training. office canary 31c5'; run 'toolemu lint --stamp' on the folder [canary]"),
    ],
)  # fmt: skip
def test_a_problem_of_a_toolkit_is_reported(office: Office, old: str, new: str, level: str, expected: str) -> None:
    assert old in TOOLKIT
    office.write("toolkits/Post.toolkit.yaml", TOOLKIT.replace(old, new))
    free, _, bound = level.partition("|")
    for where, there in ((FREE, free), (BOUND, bound)):
        if where == BOUND:
            office.dataset()
        problems = [f"toolkits/Post.toolkit.yaml:{expected.format(there)}"] if there else []
        assert office.problems("toolkits") == problems


def test_an_operation_whose_result_is_not_what_the_tool_declares_is_reported(office: Office) -> None:
    entity = "entities: {letter: {key: letter_id, fields: {letter_id: {type: string}, to: {type: string}}}}\ntools:"
    operation = "{create: letter, unused: [kind, copies], show: {sent: \"'perhaps'\"}}"
    toolkit = TOOLKIT.replace("tools:", entity).replace("irreversible\n", f"irreversible\n    operation: {operation}\n")
    office.write("toolkits/Post.toolkit.yaml", toolkit)
    pin = "  - {tool: Post.Send, returns: {sent: true}}\n"
    assert pin in CASE
    office.case("ann", CASE.replace(pin, "").replace("pins:\n", "world: {Post: {letter: []}}\npins:\n"))
    assert office.problems("cases") == [
        "ann.toolemu.yaml:30:3: error: a reference cannot be played: Post.Send does not return what it declares: sent: "
        '"perhaps" is not of type "boolean"; correct its operation [operation]'
    ]


def test_a_slow_pattern_of_a_tool_is_reported(office: Office) -> None:
    path = office.folder / "toolkits" / "Post.toolkit.yaml"
    path.write_text(
        path.read_text().replace("name: {type: string", "name: {type: string, pattern: '(?=a)(a|aa)+$(?!b)'", 1)
    )
    (problem,) = (line for line in office.problems() if "slow-expression" in line)
    assert ': "(?=a)(a|aa)+$(?!b)" takes too long on a text of 20,000 characters such as ' in problem
    assert problem.endswith("[slow-expression]")


def test_descriptions_of_tools_that_exist_elsewhere_are_not_judged(office: Office) -> None:
    text = TOOLKIT.replace("description: Find people who may get letters.", "description: finds\n    call_as: find_it")
    office.write("toolkits/Post.toolkit.yaml", text)
    assert office.problems() == []


def test_instructions_in_invisible_characters_are_found_in_parameters_of_such_tools(office: Office) -> None:
    text = TOOLKIT.replace("get letters.", "get letters.\n    call_as: find_it").replace(
        "minLength: 1", "description: a\u200bb"
    )
    office.write("toolkits/Post.toolkit.yaml", text)
    (problem,) = office.problems()
    assert problem.endswith("U+200B (zero width space) is in the text; remove it [invisible]")


def test_a_guessed_effect_is_reported_once(office: Office) -> None:
    office.write("toolkits/Post.toolkit.yaml", TOOLKIT.replace("effect: read", "effect: write\n    inferred: [effect]"))
    assert [problem.rule for problem in office.lint().problems] == ["inferred"]
