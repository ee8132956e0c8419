"""What the user has ``vllm serve`` told: ``--toolemu-vllm-args``, and the part of it that is one model's own."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from typing import Final

from pytest_toolemu.errors import UsageError

# What would take from this package what it must know, or put a credential into a record; and what to do instead.
_NOT_HERE: Final = {
    "--host": "servers of a session listen on 127.0.0.1",
    "--uds": "servers of a session listen on 127.0.0.1",
    "--model": "name it with --toolemu-agent, --toolemu-emulator or --toolemu-evaluator",
    "--served-model-name": "a model is served under the name it is asked for by",
    "--lora-modules": "use --toolemu-vllm-lora=NAME=PATH",
    "--api-key": "set VLLM_API_KEY in the environment or in the .env file",
    "--hf-token": "set HF_TOKEN in the environment or in the .env file",
}


def arguments_of(text: str, models: Collection[str]) -> dict[str, tuple[str, ...]]:
    """The arguments of each model's server: what stands before the first ``MODEL:``, then what stands after its own.

    UsageError for one that is not the user's to give.
    """
    found: dict[str, list[str]] = {model: [] for model in models}
    receivers = list(found)
    for word in shlex.split(text):
        if word.endswith(":") and not word.startswith("-"):
            receivers = [_model(word[:-1], models)]
            continue
        if reason := _NOT_HERE.get(_name(word)):
            raise UsageError(f"--toolemu-vllm-args: {_name(word)} cannot be given here: {reason}")
        for model in receivers:
            found[model].append(word)
    return {model: tuple(words) for model, words in found.items()}


def value_of(arguments: Sequence[str], *names: str) -> str | None:
    """The value of an option that may have several names; the last one counts, as for vLLM. None where it is absent."""
    found = None
    for index, word in enumerate(arguments):
        if _name(word) in names:
            _, equals, value = word.partition("=")
            found = value if equals else next(iter(arguments[index + 1 :]), "")
    return found


def number_of(arguments: Sequence[str], *names: str) -> int:
    """The same for a whole number; 1 where it is absent. UsageError for anything else."""
    text = value_of(arguments, *names)
    if text is not None and not text.isdecimal():
        raise UsageError(f"--toolemu-vllm-args: {names[0]} {text!r} is not valid; expected a whole number")
    return int(text) if text else 1


def _name(word: str) -> str:
    """The option of a word such as ``--max_model_len=8192``, as vLLM reads it."""
    name = word.partition("=")[0]
    return name.replace("_", "-") if name.startswith("--") else name


def _model(name: str, models: Collection[str]) -> str:
    found = [model for model in models if name in (model, f"vllm:{model}")]
    if not found:
        served = ", ".join(models)
        raise UsageError(f"--toolemu-vllm-args: {name + ':'!r} names no model that is served; served are {served}")
    return found[0]
