"""Which servers a session needs, and how they are started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_toolemu.errors import UsageError
from pytest_toolemu.models.endpoint import parse_spec
from pytest_toolemu.models.vllm_plan import GpuShare, ServerPlan, plan_servers, split_gpus, tool_parser, visible_gpus


def served(*names: str, arguments: str = "", adapters: tuple[str, ...] = (), tools: bool = True) -> list[ServerPlan]:
    """Plan servers for these models, of which the first is an agent."""
    is_agent_by_model = dict.fromkeys(map(parse_spec, names), False) | {parse_spec(names[0]): True}
    return plan_servers(is_agent_by_model, arguments, adapters, tools)


def test_models_of_other_providers_or_with_a_url_need_no_server() -> None:
    assert served("gpt-4o", "claude-sonnet-5-5", "vllm:org/name@http://10.0.0.1:8000/v1") == []


def test_each_model_has_one_server() -> None:
    agent, judge = served("Qwen/Qwen3-8B", "org/judge", "vllm:Qwen/Qwen3-8B")
    assert agent.names == ("Qwen/Qwen3-8B",)
    assert agent.parser == "hermes"
    assert judge.names == ("org/judge",)
    assert judge.parser is None  # the judge needs no tool-call parser


def test_the_command_line_of_a_server_is_complete() -> None:
    (server,) = served("Qwen/Qwen3-8B", arguments="--max-model-len 8192")
    assert server.command("/bin/vllm", 8123, memory=0.45) == [
        "/bin/vllm", "serve", "Qwen/Qwen3-8B", "--host", "127.0.0.1", "--port", "8123",
        "--served-model-name", "Qwen/Qwen3-8B", "--shutdown-timeout", "10", "--enable-prompt-tokens-details",
        "--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--gpu-memory-utilization", "0.45",
        "--max-model-len", "8192",
    ]  # fmt: skip


def test_a_tool_call_parser_in_the_arguments_takes_precedence() -> None:
    (server,) = served("org/unheard-of", arguments="--tool_call_parser=pythonic")
    command = server.command("vllm", 1)
    assert command[-1] == "--tool_call_parser=pythonic"
    assert command.count("--enable-auto-tool-choice") == 1
    assert "--tool-call-parser" not in command


def test_an_unknown_family_is_an_error_with_two_remedies() -> None:
    with pytest.raises(UsageError) as caught:
        served("org/unheard-of")
    assert str(caught.value) == (
        "vllm:org/unheard-of: the format of this model's tool calls is unknown; name vLLM's parser for it with "
        "-o toolemu_vllm_args='--tool-call-parser NAME', or use -o toolemu_protocol=react, which needs no parser"
    )
    assert served("org/unheard-of", tools=False)[0].parser is None


@pytest.mark.parametrize(
    ("model", "parser"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", "hermes"),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3_coder"),
        ("NousResearch/Hermes-3-Llama-3.1-8B", "hermes"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama3_json"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama4_pythonic"),
        ("mistralai/Mistral-Small-3.2-24B-Instruct-2506", "mistral"),
        ("openai/gpt-oss-20b", "openai"),
        ("deepseek-ai/DeepSeek-V3.1", "deepseek_v31"),
        ("zai-org/GLM-4.6", "glm45"),
        ("google/gemma-2-9b-it", None),
    ],
)
def test_the_parser_follows_the_family(model: str, parser: str | None) -> None:
    assert tool_parser(model) == parser


def test_a_folder_states_its_family_in_its_configuration(tmp_path: Path) -> None:
    folder = tmp_path / "mistral-lookalike" / "mine"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "qwen2"}')
    assert tool_parser(str(folder)) == "hermes"
    (server,) = served(str(folder))
    assert server.command("vllm", 1)[2] == str(folder)


@pytest.mark.parametrize("name", ["/models/mine", "./mine", "../mine", "~/mine", "org/name"])
def test_names_on_the_hub_and_folders_need_no_provider(name: str) -> None:
    assert parse_spec(name).provider == "vllm"


# ---- arguments


def test_arguments_after_a_models_name_apply_only_to_its_server() -> None:
    text = "--dtype half org/b: --quantization fp8 --max-model-len=4096 vllm:Qwen/a: -tp 2"
    a, b = served("Qwen/a", "org/b", arguments=text)
    assert a.arguments == ("--dtype", "half", "-tp", "2")
    assert b.arguments == ("--dtype", "half", "--quantization", "fp8", "--max-model-len=4096")
    assert (a.gpus, b.gpus) == (2, 1)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("--host 0.0.0.0", "--host cannot be given here: servers of a session listen on 127.0.0.1"),
        (
            "--port 8000",
            "--port cannot be given here: the session picks a free port; for a server of your own, use "
            "--toolemu-vllm-url",
        ),
        ("--api_key=x", "--api-key cannot be given here: set VLLM_API_KEY in the environment or in the .env file"),
        ("--lora-modules a=b", "--lora-modules cannot be given here: use -o toolemu_vllm_lora=NAME=PATH"),
        ("org/c: -tp 2", "'org/c:' does not name a served model; the served models are Qwen/a"),
    ],
)
def test_arguments_that_the_session_sets_itself_are_refused(arguments: str, problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        served("Qwen/a", arguments=arguments)
    assert str(caught.value) == f"toolemu_vllm_args: {problem}"


# ---- adapters


def adapter(folder: Path, content: object) -> str:
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps(content))
    return f"{folder.name}={folder}"


def test_adapters_share_the_server_of_their_base_and_have_identities_of_their_own(tmp_path: Path) -> None:
    base = {"base_model_name_or_path": "Qwen/a"}
    one, two = adapter(tmp_path / "one", base | {"r": 16}), adapter(tmp_path / "two", base | {"r": 64})
    (server,) = served("vllm:one", "vllm:two", "Qwen/a", adapters=(one, two))
    assert server.names == ("Qwen/a", "one", "two")
    command = server.command("vllm", 1)
    assert command[-8:] == ["--enable-lora", "--max-loras", "2", "--max-lora-rank", "64", "--lora-modules", one, two]
    recorded = {server.endpoint(name, 8123).recorded_as for name in server.names}
    assert len(recorded) == 3
    assert f"vllm serve Qwen/a --lora-modules={one}" in recorded


@pytest.mark.parametrize("content", [None, {"r": 8}])
def test_a_folder_without_an_adapter_is_an_error(tmp_path: Path, content: object) -> None:
    folder = tmp_path / "mine"
    argument = f"mine={folder}" if content is None else adapter(folder, content)
    with pytest.raises(UsageError) as caught:
        served("vllm:mine", adapters=(argument,))
    assert str(caught.value) == (
        f"toolemu_vllm_lora: {argument!r}: {folder} has no adapter_config.json with base_model_name_or_path and r; name "
        "the folder of an adapter as saved by PEFT"
    )


# ---- GPUs


def test_with_one_server_or_no_gpu_nothing_is_divided() -> None:
    assert split_gpus({"a": 2}, ["0", "1", "2"]) == {"a": GpuShare()}
    assert split_gpus({"a": 1, "b": 1}, []) == {"a": GpuShare(), "b": GpuShare()}


def test_each_server_gets_its_own_gpus_in_the_order_of_the_models() -> None:
    assert split_gpus({"a": 2, "b": 1}, ["3", "5", "7"]) == {"a": GpuShare(("3", "5")), "b": GpuShare(("7",))}


def test_too_few_gpus_are_shared_evenly() -> None:
    assert split_gpus({"a": 1, "b": 1, "c": 1}, ["0", "1"]) == {
        "a": GpuShare(("0",), 0.45),
        "b": GpuShare(("1",)),
        "c": GpuShare(("0",), 0.45),
    }


def test_too_few_gpus_for_a_server_that_needs_several_are_an_error() -> None:
    with pytest.raises(UsageError) as caught:
        split_gpus({"a": 2, "b": 1}, ["0", "1"])
    assert str(caught.value) == (
        "the models of this session need 3 GPUs (a 2, b 1), but 2 are visible; ask for fewer with "
        "--tensor-parallel-size in toolemu_vllm_args, or serve one elsewhere (MODEL@URL)"
    )


def nvidia_smi(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command = folder / "nvidia-smi"
    command.write_text(f"#!/bin/sh\ncat <<END\n{text}\nEND\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")


def test_visible_gpus_are_read_from_the_environment_or_nvidia_smi(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvidia_smi(tmp_path, "0\n1", monkeypatch)
    assert visible_gpus({}) == ("0", "1")
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "GPU-1a, GPU-2b"}) == ("GPU-1a", "GPU-2b")
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": ""}) == ()


@pytest.mark.parametrize("text", ["No devices were found", ""])
def test_without_nvidia_smi_no_gpu_is_visible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    nvidia_smi(tmp_path, text, monkeypatch)
    assert visible_gpus({}) == ()
