"""What is read out of a server's log and figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_toolemu.models.vllm.log_errors import causes, last_line
from pytest_toolemu.models.vllm.metrics import read_metrics, summary, usage_text
from tests.servers.stand_in import DEATH, FAILURE, METRICS


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "vllm.log"


def test_the_cause_comes_before_the_wrapper(log: Path) -> None:
    log.write_text(FAILURE)
    assert causes(log) == [
        "EngineCore failed to start.",
        "ValueError: no room for the KV cache",
        "RuntimeError: Engine core initialization failed. See root cause above.",
    ]


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (DEATH, "Engine core proc EngineCore died unexpectedly."),
        ("vllm: error: unrecognized arguments: --nonsense", "vllm: error: unrecognized arguments: --nonsense"),
        ("OSError: [Errno 98] Address already in use", "OSError: [Errno 98] Address already in use"),
        ("pkg.errors.LocalNotFoundError: Cannot find it", "pkg.errors.LocalNotFoundError: Cannot find it"),
        ("Fatal Python error: Illegal instruction", "Fatal Python error: Illegal instruction"),
        ("torch.OutOfMemoryError: CUDA out of memory.", "torch.OutOfMemoryError: CUDA out of memory."),
    ],
)
def test_causes_of_many_kinds(log: Path, line: str, cause: str) -> None:
    log.write_text(
        f"INFO 11-21 18:00:00 [a.py:1] Error handling is on\nTraceback (most recent call last):\n{line}\nbye\n"
    )
    assert causes(log) == [cause]


def test_a_validation_error_is_told_with_what_is_invalid(log: Path) -> None:
    log.write_text(
        "pydantic_core.ValidationError: 1 validation error for ModelConfig\n  Value error, no such thing\n    See x\n"
    )
    assert causes(log)[1:] == ["Value error, no such thing"]


def test_a_log_without_a_cause_tells_its_end(log: Path) -> None:
    log.write_text("".join(f"line {number}\n" for number in range(9)))
    assert causes(log) == [f"line {number}" for number in range(4, 9)]


def test_no_log_tells_nothing(log: Path) -> None:
    assert causes(log) == []
    assert last_line(log) == ""


def test_the_last_line_of_a_bar_is_the_latest_and_cannot_harm_a_terminal(log: Path) -> None:
    log.write_bytes(b"INFO 11-21 18:00:00 [a.py:1] go\n\rshards: 20%\x1b[31m\rshards: 40% \x07\n\n")
    assert last_line(log) == r"shards: 40% \x07"


def line(time: float, requests: int, **more: object) -> dict[str, object]:
    text = METRICS.format(prompt=100 * requests, output=10 * requests, hits=60 * requests, requests=requests)
    return {"time": time, "server": "m", **read_metrics(text), "running": 2.0 * bool(requests), **more}


def test_engines_are_counted_together() -> None:
    text = 'vllm:num_requests_running{engine="0"} 2\nvllm:num_requests_running{engine="1"} 3.0\n'
    text += (
        'vllm:kv_cache_usage_perc{engine="0"} 0.1\nvllm:kv_cache_usage_perc{engine="1"} 0.4\nother 1\nvllm:broken x\n'
    )
    assert read_metrics(text) == {"running": 5.0, "kv_cache": 0.4}


def test_rates_are_over_the_time_in_which_something_was_asked() -> None:
    cards = [{"index": 0, "utilization": 80, "memory_used": 2048, "memory_total": 4096}]
    idle = [{"index": 0, "utilization": 20, "memory_used": 1024, "memory_total": 4096}]
    found = summary([line(0, 0, gpus=idle), line(10, 0, gpus=idle), line(30, 40, gpus=cards)])
    assert found == {
        "requests": 40,
        "prompt_tokens": 4000,
        "output_tokens": 400,
        "seconds": 20,
        "prompt_tokens_per_second": 200.0,
        "output_tokens_per_second": 20.0,
        "prefix_hit_rate": 0.6,
        "most_running": 2.0,
        "most_waiting": 1.0,
        "most_kv_cache": 0.25,
        "gpus": [{"index": 0, "utilization": 40.0, "memory_used": 2048, "memory_total": 4096}],
    }
    assert usage_text("m", found) == (
        "vllm serve m: 40 requests, 4,000 tokens in, 400 out; 20 tokens/s out; 60% of prompt tokens from the prefix "
        "cache; at most 2 running, 1 waiting; KV cache 25% full at most; GPU 0 40% busy on average, 2.0 of 4.0 GiB at most"
    )


def test_nothing_asked_has_no_rate() -> None:
    assert summary([]) == {}
    assert "tokens/s" not in usage_text("m", summary([line(0, 0), line(9, 0)]))
