"""The text about toolkits in prompts."""

from __future__ import annotations

from pytest_toolemu.core.toolkit import Tool, Toolkit
from pytest_toolemu.prompts import outline, sketch, tool_text


def bank(*members: str) -> Toolkit:
    properties = {member: {"type": "string"} for member in members}
    send = Tool(
        name="Send",
        description="Send money.",
        parameters={"type": "object", "properties": properties},
        returns={"type": "object"},
        effect="irreversible",
    )
    return Toolkit(name="Bank", title="Bank", category="finance", description="Keeps money.", tools=(send,))


def test_equal_toolkits_keep_their_own_order_of_members() -> None:
    one, other = bank("amount", "payee"), bank("payee", "amount")
    assert one == other
    for describe in (outline, sketch):
        assert "(amount" in describe(one)
        assert "(payee" in describe(other)
    assert tool_text(one.tools[0]).startswith("(amount")
    assert tool_text(other.tools[0]).startswith("(payee")


def test_the_text_of_a_toolkit_is_built_once() -> None:
    kit = bank("amount")
    assert outline(kit) is outline(kit)
