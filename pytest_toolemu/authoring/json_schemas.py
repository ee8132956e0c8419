"""JSON Schemas of the file formats, generated from the records, for completion and validation in editors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.agents.programs.agent_file import AgentFile
from pytest_toolemu.core.case import Case
from pytest_toolemu.core.case_vocabulary import RISK_TYPES
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.formats.file_access import write_for_user
from pytest_toolemu.formats.yaml_document import Record

FOLDER = Path(__file__).parents[1] / "formats" / "json_schemas"
"""The folder of the shipped schemas."""


_RECORDS: Final[dict[str, type[Record]]] = {"case": Case, "toolkit": Toolkit, "agent": AgentFile}


def schema_of(kind: str) -> dict[str, Any]:
    """Return the schema of the files ``*.toolemu.yaml``, ``*.toolkit.yaml``, or ``*.agent.yaml``."""
    schema = _RECORDS[kind].model_json_schema()
    if kind == "case":
        schema["properties"].pop("id")
        types = schema["$defs"]["Risks"]["properties"]["types"]["items"]
        types["enumDescriptions"] = list(RISK_TYPES.values())
    del schema["title"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"toolemu {kind}", **schema}


def write_schemas(folder: Path) -> list[Path]:
    """Write all schemas to a folder, and return their paths. Raise UsageError if they cannot be written."""
    paths = {kind: folder / f"{kind}.schema.json" for kind in _RECORDS}
    for kind, path in paths.items():
        text = json.dumps(schema_of(kind), indent=2, ensure_ascii=False) + "\n"
        write_for_user(path, text, "name another folder")
    return [*paths.values()]
