"""Every message survives a channel between two processes, which can send builtin types only."""

from __future__ import annotations

from typing import Any, get_args

import execnet
import hypothesis.strategies as st
import pytest
from hypothesis import given
from pydantic import ValidationError

from pytest_toolemu.scheduling.coordinator_messages import CoordinatorMessage, WorkerMessage
from pytest_toolemu.scheduling.transport import decode, encode

JSON = st.recursive(st.none() | st.booleans() | st.integers(-(2**31), 2**31) | st.text(), st.lists, max_leaves=3)


def dictionaries(annotation: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Generate values of ``dict[str, str]``, or of ``dict[str, Any]`` that hold JSON."""
    return st.dictionaries(st.text(), st.text() if get_args(annotation)[1:] == (str,) else JSON, max_size=3)


st.register_type_strategy(dict, dictionaries)
st.register_type_strategy(float, st.floats(allow_nan=False))
st.register_type_strategy(int, st.integers(0, 2**31 - 1))


@given(st.from_type(WorkerMessage))  # type: ignore[arg-type]
def test_a_message_of_a_worker_arrives_unchanged(message: WorkerMessage) -> None:
    assert decode(execnet.loads(execnet.dumps(encode(message)))) == message


@given(st.from_type(CoordinatorMessage))  # type: ignore[arg-type]
def test_a_message_of_the_coordinator_arrives_unchanged(message: CoordinatorMessage) -> None:
    assert decode(execnet.loads(execnet.dumps(encode(message)))) == message


def test_a_field_of_the_wrong_type_is_refused() -> None:
    with pytest.raises(ValidationError, match="ticket"):
        decode(("PermitRequested", {"key": "openai gpt-4o", "ticket": "first"}))
