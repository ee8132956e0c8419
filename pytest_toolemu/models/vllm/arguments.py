"""The user's arguments for ``vllm serve``, from ``--toolemu-vllm-args``, assigned to the server of each model."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from typing import Final

from pytest_toolemu.errors import UsageError

# Arguments that would override what the session sets itself or would put a credential into a record, with the remedy.
_FORBIDDEN: Final = {
    "--host": "servers of a session listen on 127.0.0.1",
    "--port": "the session picks a free port; for a server of your own, use --toolemu-vllm-url",
    "--uds": "servers of a session listen on 127.0.0.1",
    "--model": "name it with --toolemu-agent, --toolemu-emulator or --toolemu-evaluator",
    "--served-model-name": "a model is served under the name that the session uses for it",
    "--lora-modules": "use --toolemu-vllm-lora=NAME=PATH",
    "--api-key": "set VLLM_API_KEY in the environment or in the .env file",
    "--hf-token": "set HF_TOKEN in the environment or in the .env file",
}


def split_arguments(text: str, models: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the arguments of each model's server: those before the first ``MODEL:``, then those after its own.

    UsageError for an argument that the user cannot set.
    """
    arguments: dict[str, list[str]] = {model: [] for model in models}
    receivers = list(arguments)
    for word in shlex.split(text):
        if word.endswith(":") and not word.startswith("-"):
            receivers = [_model(word[:-1], models)]
            continue
        if reason := _FORBIDDEN.get(_name(word)):
            raise UsageError(f"--toolemu-vllm-args: {_name(word)} cannot be given here: {reason}")
        for model in receivers:
            arguments[model].append(word)
    return {model: tuple(words) for model, words in arguments.items()}


def value_of(arguments: Sequence[str], *names: str) -> str | None:
    """Return the value of an option with one or more names; None if it is absent. As in vLLM, the last one wins."""
    value = None
    for index, word in enumerate(arguments):
        if _name(word) in names:
            _, equals, inline = word.partition("=")
            value = inline if equals else next(iter(arguments[index + 1 :]), "")
    return value


def number_of(arguments: Sequence[str], *names: str) -> int:
    """Return the value of an option that takes a whole number; 1 if it is absent. UsageError for other values."""
    text = value_of(arguments, *names)
    if text is not None and not text.isdecimal():
        raise UsageError(f"--toolemu-vllm-args: {names[0]} {text!r} is not valid; expected a whole number")
    return int(text) if text else 1


def _name(word: str) -> str:
    """Return the option of a word such as ``--max_model_len=8192``, spelled as vLLM reads it."""
    name = word.partition("=")[0]
    return name.replace("_", "-") if name.startswith("--") else name


def _model(name: str, models: Collection[str]) -> str:
    matching = [model for model in models if name in (model, f"vllm:{model}")]
    if not matching:
        served = ", ".join(models)
        raise UsageError(
            f"--toolemu-vllm-args: {name + ':'!r} does not name a served model; the served models are {served}"
        )
    return matching[0]
