"""The GPUs of this machine: which there are, which server gets which, and how busy they are."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pytest_toolemu.errors import UsageError

_SECONDS: Final = 10.0
# Of a GPU that several servers share; the rest is for what none of them counts.
_SHARED: Final = 0.9


@dataclass(frozen=True)
class GpuShare:
    """What one server gets: GPUs as ``CUDA_VISIBLE_DEVICES`` names them, none where nothing need be said.

    ``memory`` is its part of a GPU that it shares, 0-1; None where it has its own.
    """

    gpus: tuple[str, ...] = ()
    memory: float | None = None


def visible(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The GPUs that may be used: those of ``CUDA_VISIBLE_DEVICES``, else all that ``nvidia-smi`` lists."""
    chosen = (os.environ if environ is None else environ).get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return tuple(part.strip() for part in chosen.split(",") if part.strip() and part.strip() != "-1")
    return tuple(str(gpu["index"]) for gpu in figures())


def split(asked: Mapping[str, int], gpus: Sequence[str]) -> dict[str, GpuShare]:
    """Who gets which GPUs, when each model asks for so many; in the order in which the models are named.

    No GPU, or one server: nothing is said. Several: each gets its own, as many as it asks for. Too few, and none asks
    for more than one: they share, evenly. UsageError else.
    """
    if not gpus or len(asked) < 2:
        return dict.fromkeys(asked, GpuShare())
    if sum(asked.values()) <= len(gpus):
        left = iter(gpus)
        return {model: GpuShare(tuple(next(left) for _ in range(count))) for model, count in asked.items()}
    if max(asked.values()) > 1:
        told = ", ".join(f"{model} {count}" for model, count in asked.items())
        raise UsageError(
            f"the models of this session need {sum(asked.values())} GPUs ({told}), and {len(gpus)} can be seen; ask "
            "for fewer with --tensor-parallel-size in --toolemu-vllm-args, or serve one of them elsewhere (MODEL@URL)"
        )
    at = {model: index % len(gpus) for index, model in enumerate(asked)}
    on = [list(at.values()).count(index) for index in range(len(gpus))]
    return {
        model: GpuShare((gpus[index],), round(_SHARED / on[index], 3) if on[index] > 1 else None)
        for model, index in at.items()
    }


def figures() -> list[dict[str, Any]]:
    """Of each GPU: index, utilisation in per cent, memory used and in all in MiB. Empty without ``nvidia-smi``."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    names = ("index", "utilization.gpu", "memory.used", "memory.total")
    query = [command, f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, timeout=_SECONDS, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    keys = ("index", "utilization", "memory_used", "memory_total")
    rows = [[part.strip() for part in line.split(",")] for line in said.splitlines()]
    return [
        {key: int(cell) if cell.isdecimal() else None for key, cell in zip(keys, row, strict=True)}
        for row in rows
        if len(row) == len(keys)
    ]
