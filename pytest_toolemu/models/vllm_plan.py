"""Plan the vLLM servers of a session: models, arguments, tool-call parsers, and GPUs."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.errors import UsageError
from pytest_toolemu.models.endpoint import ModelSpec, ServedEndpoint

# Seconds in which a server that is being stopped may finish the requests in progress.
DRAIN_SECONDS: Final = 10
# The values that vLLM accepts for --max-lora-rank.
_RANKS: Final = (8, 16, 32, 64, 128, 256, 320, 512)


@dataclass(frozen=True)
class LoraAdapter:
    """A LoRA adapter: a folder as saved by PEFT."""

    name: str
    path: Path
    base: str
    rank: int


@dataclass(frozen=True)
class ServerPlan:
    """One server: the model as the user named it, its LoRA adapters, and the user's arguments for it."""

    model: str
    adapters: tuple[LoraAdapter, ...] = ()
    parser: str | None = None
    arguments: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Model names that requests to this server use."""
        return (self.model, *(adapter.name for adapter in self.adapters))

    @property
    def gpus(self) -> int:
        """Number of GPUs that its arguments require."""
        return (
            number_of(self.arguments, "--tensor-parallel-size", "-tp")
            * number_of(self.arguments, "--pipeline-parallel-size", "-pp")
            * number_of(self.arguments, "--data-parallel-size", "-dp")
        )

    def command(self, executable: str, port: int, memory: float | None = None) -> list[str]:
        """Return the complete command line. The user's arguments come last, so they override the others."""
        is_path = self.model.startswith(("/", "./", "../", "~"))  # and not the name of a model on the hub
        words = [executable, "serve", str(Path(self.model).expanduser()) if is_path else self.model]
        words += ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", self.model]
        words += ["--shutdown-timeout", str(DRAIN_SECONDS), "--enable-prompt-tokens-details"]
        if self.parser and value_of(self.arguments, "--tool-call-parser") is None:
            words += ["--enable-auto-tool-choice", "--tool-call-parser", self.parser]
        elif value_of(self.arguments, "--tool-call-parser") is not None:
            words += ["--enable-auto-tool-choice"]
        if self.adapters:
            rank = max(adapter.rank for adapter in self.adapters)
            words += ["--enable-lora", "--max-loras", str(len(self.adapters))]
            words += ["--max-lora-rank", str(next((size for size in _RANKS if size >= rank), rank))]
            words += ["--lora-modules", *(f"{adapter.name}={adapter.path}" for adapter in self.adapters)]
        if memory is not None:
            words += ["--gpu-memory-utilization", str(memory)]
        return [*words, *self.arguments]

    def endpoint(self, name: str, port: int) -> ServedEndpoint:
        """Return where requests for one of its names go, and how records name that endpoint."""
        lora = [f"--lora-modules={adapter.name}={adapter.path}" for adapter in self.adapters if adapter.name == name]
        base = [self.model] if lora else []
        recorded_as = shlex.join(["vllm", "serve", *base, *lora, *self.arguments])
        return ServedEndpoint(f"http://127.0.0.1:{port}/v1", recorded_as)


def plan_servers(
    models: Mapping[ModelSpec, bool], arguments: str = "", adapters: Collection[str] = (), tools: bool = True
) -> list[ServerPlan]:
    """Plan the servers for these models, in their order; the mapping's values say which models act as agents.

    ``tools`` says whether agents make native tool calls. UsageError for a model that cannot be served as requested.
    """
    adapter_by_name = dict(map(_adapter, adapters))
    adapters_of: dict[str, list[LoraAdapter]] = {}
    agents: set[str] = set()
    for spec, is_agent in models.items():
        if spec.provider != "vllm" or spec.base_url is not None:
            continue
        adapter = adapter_by_name.get(spec.name)
        model = adapter.base if adapter else spec.name
        agents |= {model} if is_agent else set()
        adapters_of.setdefault(model, []).extend([adapter] if adapter else [])
    arguments_of = split_arguments(arguments, adapters_of)
    return [
        ServerPlan(
            model,
            tuple(used),
            _parser(model, arguments_of[model]) if model in agents and tools else None,
            arguments_of[model],
        )
        for model, used in adapters_of.items()
    ]


def _parser(model: str, arguments: tuple[str, ...]) -> str:
    parser = value_of(arguments, "--tool-call-parser") or tool_parser(model)
    if parser is None:
        raise UsageError(
            f"vllm:{model}: the format of this model's tool calls is unknown; name vLLM's parser for it with "
            "-o toolemu_vllm_args='--tool-call-parser NAME', or use -o toolemu_protocol=react, which needs no parser"
        )
    return parser


def _adapter(text: str) -> tuple[str, LoraAdapter]:
    name, _, path = text.partition("=")
    folder = Path(path).expanduser().resolve()
    try:
        content: dict[str, Any] = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
        base, rank = content["base_model_name_or_path"], content["r"]
    except (OSError, ValueError, LookupError, TypeError):
        raise UsageError(
            f"toolemu_vllm_lora: {text!r}: {folder} has no adapter_config.json with base_model_name_or_path and r; "
            "name the folder of an adapter as saved by PEFT"
        ) from None
    return name, LoraAdapter(name, folder, str(base), int(rank))


# Arguments that would override what the session sets itself or would put a credential into a record, with the remedy.
_FORBIDDEN: Final = {
    "--host": "servers of a session listen on 127.0.0.1",
    "--port": "the session picks a free port; for a server of your own, use --toolemu-vllm-url",
    "--uds": "servers of a session listen on 127.0.0.1",
    "--model": "name it with --toolemu-agent, --toolemu-emulator or --toolemu-evaluator",
    "--served-model-name": "a model is served under the name that the session uses for it",
    "--lora-modules": "use -o toolemu_vllm_lora=NAME=PATH",
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
            raise UsageError(f"toolemu_vllm_args: {_name(word)} cannot be given here: {reason}")
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
    """Return the value of an option that takes a whole number; 1 if it is absent or invalid, which vLLM reports."""
    text = value_of(arguments, *names) or ""
    return int(text) if text.isdecimal() else 1


def _name(word: str) -> str:
    """Return the option of a word such as ``--max_model_len=8192``, spelled as vLLM reads it."""
    name = word.partition("=")[0]
    return name.replace("_", "-") if name.startswith("--") else name


def _model(name: str, models: Collection[str]) -> str:
    matching = [model for model in models if name in (model, f"vllm:{model}")]
    if not matching:
        served = ", ".join(models)
        raise UsageError(
            f"toolemu_vllm_args: {name + ':'!r} does not name a served model; the served models are {served}"
        )
    return matching[0]


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


def visible_gpus(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """List the usable GPUs: those of ``CUDA_VISIBLE_DEVICES`` if it is set, otherwise all that ``nvidia-smi`` lists."""
    chosen = (os.environ if environ is None else environ).get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return tuple(part.strip() for part in chosen.split(",") if part.strip() and part.strip() != "-1")
    # The indices of those that it reports; none if the command is missing or fails.
    query = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    try:
        output = subprocess.run(query, capture_output=True, text=True, timeout=_SECONDS, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(line.strip() for line in output.splitlines() if line.strip().isdecimal())


def split_gpus(required: Mapping[str, int], gpus: Sequence[str]) -> dict[str, GpuShare]:
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
            "ask for fewer with --tensor-parallel-size in toolemu_vllm_args, or serve one elsewhere (MODEL@URL)"
        )
    assigned = {model: index % len(gpus) for index, model in enumerate(required)}
    servers_on = [list(assigned.values()).count(index) for index in range(len(gpus))]
    return {
        model: GpuShare((gpus[index],), round(_SHARED / servers_on[index], 3) if servers_on[index] > 1 else None)
        for model, index in assigned.items()
    }


# From the documentation of vLLM 0.32; the first match wins. Patterns match names and, for folders, ``model_type``.
_FAMILIES: Final = tuple(json.loads((files(__package__) / "vllm_tool_parsers.json").read_text("utf-8")).items())


def tool_parser(model: str) -> str | None:
    """Return the parser for a model's name, or for a folder with a ``config.json``; None for an unknown family."""
    kind = _model_type(Path(model).expanduser())
    for text in filter(None, (Path(model).name if kind else model, kind)):
        for pattern, parser in _FAMILIES:
            if match := re.search(pattern, text, re.IGNORECASE):
                return match.expand(parser).lower()
    return None


def _model_type(folder: Path) -> str:
    try:
        content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    return str(content.get("model_type") or "") if isinstance(content, dict) else ""
