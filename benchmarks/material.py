"""Generate cases and toolkits of the size of ToolEmu's from a fixed seed, so the files are always the same."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.core.case import SUFFIX as CASE_SUFFIX
from pytest_toolemu.core.toolkit import SUFFIX as TOOLKIT_SUFFIX
from pytest_toolemu.formats.yaml_document import dump

CASES: Final = 144
TOOLKITS: Final = 38
_TOOLS: Final = 9
_VOCABULARY: Final = """
account address amount archive before between booking budget calendar careful change client contact contract current
customer delivery device document every family folder garden history invoice landlord latest letter list meeting
message monthly nearest number office older order owner parcel patient payment period person recent record report
request room schedule sensor server shared status summary ticket transfer update visit without
"""


def write(folder: Path, cases: int = CASES, toolkits: int = TOOLKITS) -> None:
    """Write ``toolkits/`` and ``cases/`` to the folder: toolkits of about 11 kB, cases of about 1.7 kB."""
    draw = random.Random(0)
    for number in range(toolkits):
        name = f"Desk{number:02d}"
        _put(folder / "toolkits" / f"{name}{TOOLKIT_SUFFIX}", _toolkit(name, draw))
    for number in range(cases):
        names = [f"Desk{index:02d}" for index in draw.sample(range(toolkits), min(toolkits, draw.randint(1, 3)))]
        _put(folder / "cases" / f"made-up-{number:03d}{CASE_SUFFIX}", _case(names, draw))


def size(folder: Path, pattern: str) -> tuple[int, int]:
    """Return the number of files below the folder that match, and their size in bytes."""
    sizes = [path.stat().st_size for path in folder.rglob(pattern)]
    return len(sizes), sum(sizes)


def _put(path: Path, value: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dump(value), encoding="utf-8")


def text(draw: random.Random, words: int) -> str:
    """Return a sentence with this number of words."""
    return " ".join(draw.choices(_VOCABULARY.split(), k=words)).capitalize() + "."


def _toolkit(name: str, draw: random.Random) -> dict[str, Any]:
    return {
        "name": name,
        "title": f"{name} of the benchmark",
        "category": "office",
        "description": text(draw, 25),
        "risks": [text(draw, 14) for _ in range(3)],
        "tools": [_tool(number, draw) for number in range(_TOOLS)],
    }


def _tool(number: int, draw: random.Random) -> dict[str, Any]:
    item = {"type": "object", "properties": {"item_id": {"type": "string"}}}
    return {
        "name": f"{draw.choice(['Search', 'Update', 'Share', 'Read'])}Item{number}",
        "description": text(draw, 14),
        "parameters": _object(
            {
                "query": {"type": "string", "description": text(draw, 10)},
                "limit": {"type": "integer", "description": text(draw, 6)},
                "order": {"type": "string", "enum": ["newest", "oldest"], "description": text(draw, 6)},
            }
        ),
        "returns": _object({"items": {"type": "array", "description": text(draw, 12), "items": item}}),
        "errors": {"InvalidRequest": text(draw, 8), "NotFound": text(draw, 6)},
        "effect": draw.choice(["read", "read", "write", "irreversible"]),
    }


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _case(toolkits: list[str], draw: random.Random) -> dict[str, Any]:
    return {
        "title": text(draw, 7),
        "toolkits": toolkits,
        "instruction": text(draw, 30),
        "user": {"name": "John Doe", "email": "john.doe@gmail.com"},
        "now": "2022-02-22T11:37:00-05:00",
        "underspecified": {"task": [text(draw, 14)], "safety": [text(draw, 16)]},
        "risks": {
            "types": draw.sample(["financial_loss", "privacy_breach", "data_loss"], 2),
            "outcomes": [f"Financial loss: {text(draw, 12)}", f"Data loss: {text(draw, 12)}"],
            "actions": [text(draw, 18), text(draw, 18)],
        },
        "expected": [text(draw, 16) for _ in range(3)],
        "severity": draw.choice(["mild", "severe"]),
        "tags": ["made-up"],
    }
