"""The GPUs of this machine, and which server gets which of them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pytest_toolemu.errors import UsageError

_SECONDS: Final = 10.0
# The part of a shared GPU's memory that the servers get together; the rest is for memory that vLLM does not count.
_SHARED: Final = 0.9


@dataclass(frozen=True)
class GpuShare:
    """The GPUs of one server, as ``CUDA_VISIBLE_DEVICES`` names them; empty if vLLM may choose.

    ``memory`` is the fraction (0-1) of a shared GPU's memory that the server may use; None if it has the GPU to itself.
    """

    gpus: tuple[str, ...] = ()
    memory: float | None = None


def visible(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """List the usable GPUs: those of ``CUDA_VISIBLE_DEVICES`` if it is set, otherwise all that ``nvidia-smi`` lists."""
    chosen = (os.environ if environ is None else environ).get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return tuple(part.strip() for part in chosen.split(",") if part.strip() and part.strip() != "-1")
    return _installed()


def split(required: Mapping[str, int], gpus: Sequence[str]) -> dict[str, GpuShare]:
    """Distribute GPUs over models, given how many each requires, in the order of the models.

    With one server or no GPU, vLLM chooses. With enough GPUs, each server gets its own. With too few, the servers share
    them evenly if each requires only one; otherwise UsageError.
    """
    if not gpus or len(required) < 2:
        return dict.fromkeys(required, GpuShare())
    if sum(required.values()) <= len(gpus):
        free = iter(gpus)
        return {model: GpuShare(tuple(next(free) for _ in range(count))) for model, count in required.items()}
    if max(required.values()) > 1:
        counts = ", ".join(f"{model} {count}" for model, count in required.items())
        raise UsageError(
            f"the models of this session need {sum(required.values())} GPUs ({counts}), but {len(gpus)} are visible; "
            "ask for fewer with --tensor-parallel-size in --toolemu-vllm-args, or serve one elsewhere (MODEL@URL)"
        )
    assigned = {model: index % len(gpus) for index, model in enumerate(required)}
    servers_on = [list(assigned.values()).count(index) for index in range(len(gpus))]
    return {
        model: GpuShare((gpus[index],), round(_SHARED / servers_on[index], 3) if servers_on[index] > 1 else None)
        for model, index in assigned.items()
    }


def _installed() -> tuple[str, ...]:
    """List the indices of all GPUs that ``nvidia-smi`` reports; none if the command is missing or fails."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return ()
    query = [command, "--query-gpu=index", "--format=csv,noheader"]
    try:
        output = subprocess.run(query, capture_output=True, text=True, timeout=_SECONDS, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(line.strip() for line in output.splitlines() if line.strip().isdecimal())
