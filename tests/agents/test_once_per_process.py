from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from pytest_toolemu.agents.once_per_process import OncePerProcess


def test_a_value_is_created_once_and_again_in_a_forked_process(monkeypatch: pytest.MonkeyPatch) -> None:
    once = OncePerProcess(object)
    with ThreadPoolExecutor(4) as threads:
        values = list(threads.map(lambda _: once(), range(20)))
    assert len(set(map(id, values))) == 1
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert once() is not values[0]
    assert once() is once()
