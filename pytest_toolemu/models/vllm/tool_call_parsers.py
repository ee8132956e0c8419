"""Choose vLLM's parser for a model's tool calls, whose format differs between model families."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

# From the documentation of vLLM 0.32; the first match wins. Patterns match names and, for folders, ``model_type``.
_FAMILIES: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), parser)
    for pattern, parser in (
        (r"qwen3[-_.]?coder", "qwen3_coder"),
        (r"qwen|qwq|hermes", "hermes"),
        (r"llama[-_.]?4", "llama4_pythonic"),
        (r"llama[-_.]?3|^llama$", "llama3_json"),
        (r"mi[sx]tral|ministral|devstral|magistral|codestral", "mistral"),
        (r"gpt[-_]?oss", "openai"),
        (r"deepseek[-_]?v3[._]2", "deepseek_v32"),
        (r"deepseek[-_]?v3[._]1", "deepseek_v31"),
        (r"deepseek[-_]?v3", "deepseek_v3"),
        (r"glm[-_]?4[._]?[789]", "glm47"),
        (r"glm[-_]?4[._]?[56]|glm4_moe", "glm45"),
        (r"kimi[-_]?k2", "kimi_k2"),
        (r"minimax[-_]?m2", "minimax_m2"),
        (r"granite[-_]?4|granitemoehybrid", "granite4"),
        (r"granite", "granite"),
        (r"phi[-_]?4[-_]mini", "phi4_mini_json"),
        (r"functiongemma", "functiongemma"),
        (r"gemma[-_]?4", "gemma4"),
        (r"olmo[-_]?3", "olmo3"),
        (r"internlm", "internlm"),
        (r"jamba", "jamba"),
        (r"lfm2", "lfm2"),
        (r"seed[-_]?oss", "seed_oss"),
        (r"hunyuan[-_]a13b", "hunyuan_a13b"),
        (r"ernie[-_]?4[._]?5", "ernie45"),
        (r"apertus", "apertus"),
        (r"xlam", "xlam"),
    )
)


def tool_parser(model: str) -> str | None:
    """Return the parser for a model's name, or for a folder with a ``config.json``; None for an unknown family."""
    kind = _model_type(Path(model).expanduser())
    for text in filter(None, (Path(model).name if kind else model, kind)):
        for pattern, parser in _FAMILIES:
            if pattern.search(text):
                return parser
    return None


def _model_type(folder: Path) -> str:
    try:
        content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    return str(content.get("model_type") or "") if isinstance(content, dict) else ""
