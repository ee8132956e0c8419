"""Plan the servers of a session: one for each vLLM model that no running server serves."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.errors import UsageError
from pytest_toolemu.models.spec import ModelSpec, ServedEndpoint
from pytest_toolemu.models.vllm.arguments import number_of, split_arguments, value_of
from pytest_toolemu.models.vllm.tool_call_parsers import tool_parser

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
        words = [executable, "serve", str(Path(self.model).expanduser()) if is_path(self.model) else self.model]
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


@dataclass
class _Use:
    """How a session uses one base model: with which adapters, and whether as an agent."""

    adapters: list[LoraAdapter] = field(default_factory=list)
    is_agent: bool = False


def plan_servers(
    models: Mapping[ModelSpec, bool], arguments: str = "", adapters: Collection[str] = (), tools: bool = True
) -> list[ServerPlan]:
    """Plan the servers for these models, in their order; the mapping's values say which models act as agents.

    ``tools`` says whether agents make native tool calls. UsageError for a model that cannot be served as requested.
    """
    adapter_by_name = dict(map(_adapter, adapters))
    uses: dict[str, _Use] = {}
    for spec, is_agent in models.items():
        if spec.provider != "vllm" or spec.base_url is not None:
            continue
        adapter = adapter_by_name.get(spec.name)
        use = uses.setdefault(adapter.base if adapter else spec.name, _Use())
        use.is_agent |= is_agent
        if adapter:
            use.adapters.append(adapter)
    arguments_of = split_arguments(arguments, uses)
    return [
        ServerPlan(
            _checked(model),
            tuple(use.adapters),
            _parser(model, arguments_of[model]) if use.is_agent and tools else None,
            arguments_of[model],
        )
        for model, use in uses.items()
    ]


def is_path(model: str) -> bool:
    """Return whether a model's name is a local folder rather than a model on the hub."""
    return model.startswith(("/", "./", "../", "~"))


def _checked(model: str) -> str:
    if is_path(model) and not (Path(model).expanduser() / "config.json").is_file():
        folder = Path(model).expanduser().resolve()
        raise UsageError(f"vllm:{model}: there is no config.json in {folder}; name the folder of a model")
    return model


def _parser(model: str, arguments: tuple[str, ...]) -> str:
    parser = value_of(arguments, "--tool-call-parser") or tool_parser(model)
    if parser is None:
        raise UsageError(
            f"vllm:{model}: the format of this model's tool calls is unknown; name vLLM's parser for it with "
            "--toolemu-vllm-args='--tool-call-parser NAME', or use --toolemu-protocol=react, which needs no parser"
        )
    return parser


def _adapter(text: str) -> tuple[str, LoraAdapter]:
    name, _, path = text.partition("=")
    folder = Path(path).expanduser().resolve()
    problem = f"--toolemu-vllm-lora: {text!r}"
    try:
        content: dict[str, Any] = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
        base, rank = content["base_model_name_or_path"], content["r"]
    except OSError:
        raise UsageError(
            f"{problem}: there is no adapter_config.json in {folder}; name the folder of an adapter"
        ) from None
    except (ValueError, LookupError, TypeError):
        raise UsageError(
            f"{problem}: {folder / 'adapter_config.json'} lacks base_model_name_or_path or r; save the adapter with "
            "PEFT"
        ) from None
    return name, LoraAdapter(name, folder, str(base), int(rank))
