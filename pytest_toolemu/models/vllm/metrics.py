"""A server's ``/metrics`` page as the few figures that are kept; and what comes of them all, in a sentence."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

_LINE: Final = re.compile(r"^(vllm:\w+)(?:\{.*\})? (\S+)")
# Ours, and vLLM's. The last is the only one that is no count, so that of several engines the highest is taken.
_COUNTS: Final = {
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
    "prompt_tokens": "vllm:prompt_tokens_total",
    "output_tokens": "vllm:generation_tokens_total",
    "prefix_queries": "vllm:prefix_cache_queries_total",
    "prefix_hits": "vllm:prefix_cache_hits_total",
    "requests": "vllm:request_success_total",
}
_SHARE: Final = {"kv_cache": "vllm:kv_cache_usage_perc"}


def read_metrics(text: str) -> dict[str, float]:
    """Requests running and waiting, tokens and requests so far, the prefix cache's tokens asked for and found, and the
    share of the KV cache in use. What the page does not say is left out.
    """
    found: defaultdict[str, list[float]] = defaultdict(list)
    for line in text.splitlines():
        if match := _LINE.match(line):
            try:
                found[match[1]].append(float(match[2]))
            except ValueError:
                continue
    counts = {name: sum(found[source]) for name, source in _COUNTS.items() if source in found}
    return counts | {name: round(max(found[source]), 4) for name, source in _SHARE.items() if source in found}


def summary(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Tokens, their rates in tokens/s, the prefix cache's hit rate, and the most that ran, waited and was in memory.

    Rates are over the spans of the lines in which anything was asked. A figure that nobody gave is left out.
    """
    if not lines:
        return {}
    seconds = sum(
        later["time"] - earlier["time"]
        for earlier, later in itertools.pairwise(lines)
        if _of(later, "requests") > _of(earlier, "requests") or _of(later, "running")
    )
    used = {name: _of(lines[-1], name) - _of(lines[0], name) for name in ("requests", "prompt_tokens", "output_tokens")}
    found: dict[str, Any] = {name: int(value) for name, value in used.items()} | {"seconds": round(seconds, 1)}
    if seconds:
        found |= {f"{name}_per_second": round(used[name] / seconds, 1) for name in ("prompt_tokens", "output_tokens")}
    asked, hits = (_of(lines[-1], name) - _of(lines[0], name) for name in ("prefix_queries", "prefix_hits"))
    if asked:
        found["prefix_hit_rate"] = round(hits / asked, 4)
    found |= {f"most_{name}": max(_of(line, name) for line in lines) for name in ("running", "waiting", "kv_cache")}
    return found | ({"gpus": cards} if (cards := _cards(lines)) else {})


def usage_text(model: str, figures: dict[str, Any]) -> str:
    """The summary as one line for people."""
    told = [
        f"{figures['requests']:,} requests, {figures['prompt_tokens']:,} tokens in, {figures['output_tokens']:,} out"
    ]
    if "output_tokens_per_second" in figures:
        told.append(f"{figures['output_tokens_per_second']:,.0f} tokens/s out")
    if "prefix_hit_rate" in figures:
        told.append(f"{figures['prefix_hit_rate']:.0%} of prompt tokens from the prefix cache")
    told.append(f"at most {figures['most_running']:.0f} running, {figures['most_waiting']:.0f} waiting")
    told.append(f"KV cache {figures['most_kv_cache']:.0%} full at most")
    told += [
        f"GPU {card['index']} {card['utilization']:.0f}% busy on average, "
        f"{card['memory_used'] / 1024:.1f} of {card['memory_total'] / 1024:.1f} GiB at most"
        for card in figures.get("gpus", ())
    ]
    return f"vllm serve {model}: " + "; ".join(told)


def _cards(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    seen: dict[int, list[dict[str, Any]]] = {}
    for line in lines:
        for card in line.get("gpus", ()):
            if None not in card.values():
                seen.setdefault(card["index"], []).append(card)
    return [
        {
            "index": index,
            "utilization": round(sum(card["utilization"] for card in cards) / len(cards), 1),
            "memory_used": max(card["memory_used"] for card in cards),
            "memory_total": cards[-1]["memory_total"],
        }
        for index, cards in seen.items()
    ]


def _of(line: dict[str, Any], name: str) -> float:
    return float(line.get(name, 0.0))
