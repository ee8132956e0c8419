"""JSON Schemas of the file formats, generated from the records, for completion and validation in editors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pytest_toolemu.agents.programs.agent_file import AgentFile
from pytest_toolemu.core.case import Case
from pytest_toolemu.core.case_vocabulary import RISK_TYPES
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.file_access import write_atomically

FOLDER = Path(__file__).parents[1] / "formats" / "json_schemas"
"""The folder of the shipped schemas."""


def case_schema() -> dict[str, Any]:
    """Return the schema of ``*.toolemu.yaml``."""
    schema = Case.model_json_schema()
    schema["properties"].pop("id")
    types = schema["$defs"]["Risks"]["properties"]["types"]["items"]
    types["enumDescriptions"] = list(RISK_TYPES.values())
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "toolemu case", **_untitled(schema)}


def toolkit_schema() -> dict[str, Any]:
    """Return the schema of ``*.toolkit.yaml``."""
    schema = Toolkit.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "toolemu toolkit", **_untitled(schema)}


def agent_schema() -> dict[str, Any]:
    """Return the schema of ``*.agent.yaml``."""
    schema = AgentFile.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "toolemu agent", **_untitled(schema)}


def write_schemas(folder: Path) -> list[Path]:
    """Write all schemas to a folder, and return their paths. Raise UsageError if they cannot be written."""
    try:
        return _write_schemas(folder)
    except OSError as error:
        raise UsageError(f"{folder}: schemas cannot be written there: {error.strerror}; name another folder") from None


def _write_schemas(folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, schema in (("case", case_schema()), ("toolkit", toolkit_schema()), ("agent", agent_schema())):
        path = folder / f"{name}.schema.json"
        write_atomically(path, json.dumps(schema, indent=2, ensure_ascii=False) + "\n")
        paths.append(path)
    return paths


def _untitled(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "title"}
