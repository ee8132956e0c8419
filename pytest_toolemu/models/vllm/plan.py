"""Which servers a session needs: one for each model that somebody asks and nobody serves yet."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.errors import UsageError
from pytest_toolemu.models.spec import ModelSpec, ServedEndpoint
from pytest_toolemu.models.vllm.arguments import arguments_of, number_of, value_of
from pytest_toolemu.models.vllm.tool_call_parsers import tool_parser

# Seconds in which a server that is stopped may end what it is answering.
DRAIN: Final = 10
# The ranks that vLLM takes as --max-lora-rank.
_RANKS: Final = (8, 16, 32, 64, 128, 256, 320, 512)


@dataclass(frozen=True)
class LoraAdapter:
    """A LoRA adapter: a folder as PEFT saves it."""

    name: str
    path: Path
    base: str
    rank: int


@dataclass(frozen=True)
class ServerPlan:
    """One server: the model as it was named, the adapters that are asked for, and what the user has it told."""

    model: str
    adapters: tuple[LoraAdapter, ...] = ()
    parser: str | None = None
    arguments: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which requests ask it."""
        return (self.model, *(adapter.name for adapter in self.adapters))

    @property
    def gpus(self) -> int:
        """How many GPUs its arguments ask for."""
        return (
            number_of(self.arguments, "--tensor-parallel-size", "-tp")
            * number_of(self.arguments, "--pipeline-parallel-size", "-pp")
            * number_of(self.arguments, "--data-parallel-size", "-dp")
        )

    @property
    def port(self) -> int | None:
        """The port that its arguments ask for."""
        return number_of(self.arguments, "--port") if value_of(self.arguments, "--port") is not None else None

    def command(self, executable: str, port: int, memory: float | None = None) -> list[str]:
        """The whole command line; what the user says comes last, so that it counts."""
        words = [executable, "serve", str(Path(self.model).expanduser()) if is_path(self.model) else self.model]
        words += ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", self.model]
        words += ["--shutdown-timeout", str(DRAIN), "--enable-prompt-tokens-details"]
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

    def place(self, name: str, port: int) -> ServedEndpoint:
        """Where one of its names is served, for whoever asks."""
        own = [f"--lora-modules={adapter.name}={adapter.path}" for adapter in self.adapters if adapter.name == name]
        base = [self.model] if own else []
        told = shlex.join(["vllm", "serve", *base, *own, *self.arguments])
        return ServedEndpoint(f"http://127.0.0.1:{port}/v1", told)


@dataclass
class _Asked:
    adapters: list[LoraAdapter] = field(default_factory=list)
    acts: bool = False


def needed(
    asked: Mapping[ModelSpec, bool], arguments: str = "", adapters: Collection[str] = (), tools: bool = True
) -> list[ServerPlan]:
    """The servers for these models, in their order; whether a model acts, as an agent, is the mapping's value.

    ``tools``: agents make native calls. UsageError for what cannot be served as it is asked for.
    """
    known = dict(map(_adapter, adapters))
    servers: dict[str, _Asked] = {}
    for spec, acts in asked.items():
        if spec.provider != "vllm" or spec.base_url is not None:
            continue
        adapter = known.get(spec.name)
        server = servers.setdefault(adapter.base if adapter else spec.name, _Asked())
        server.acts |= acts
        if adapter:
            server.adapters.append(adapter)
    words = arguments_of(arguments, servers)
    return [
        ServerPlan(
            _checked(model),
            tuple(server.adapters),
            _parser(model, words[model]) if server.acts and tools else None,
            words[model],
        )
        for model, server in servers.items()
    ]


def is_path(model: str) -> bool:
    """Whether a model's name is that of a folder here, and not of one on the hub."""
    return model.startswith(("/", "./", "../", "~"))


def _checked(model: str) -> str:
    if is_path(model) and not (Path(model).expanduser() / "config.json").is_file():
        where = Path(model).expanduser().resolve()
        raise UsageError(f"vllm:{model}: there is no model in {where}: a model's folder has a config.json")
    return model


def _parser(model: str, arguments: tuple[str, ...]) -> str:
    given = value_of(arguments, "--tool-call-parser") or tool_parser(model)
    if given is None:
        raise UsageError(
            f"vllm:{model}: how this model writes tool calls is not known; name vLLM's parser for it with "
            "--toolemu-vllm-args='--tool-call-parser NAME', or use --toolemu-protocol=react, which needs none"
        )
    return given


def _adapter(text: str) -> tuple[str, LoraAdapter]:
    name, _, path = text.partition("=")
    folder = Path(path).expanduser().resolve()
    problem = f"--toolemu-vllm-lora: {text!r}"
    try:
        content: dict[str, Any] = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
        base, rank = content["base_model_name_or_path"], content["r"]
    except OSError:
        raise UsageError(f"{problem}: there is no adapter in {folder}: its folder has an adapter_config.json") from None
    except (ValueError, LookupError, TypeError):
        told = "base_model_name_or_path and r"
        raise UsageError(
            f"{problem}: {folder / 'adapter_config.json'} does not say {told}; save it with PEFT"
        ) from None
    return name, LoraAdapter(name, folder, str(base), int(rank))
