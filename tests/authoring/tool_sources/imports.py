"""Helpers: published tools, imported files, and an agent that calls every tool of a toolkit offline."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from pytest_toolemu.authoring.importers.published_tools import PublishedTool, PublishedToolkit
from pytest_toolemu.authoring.lint import lint_paths
from pytest_toolemu.cli import app
from pytest_toolemu.core.case_loading import build_case, load_toolkit
from pytest_toolemu.core.engine import Limits, RunSpec, run_case
from pytest_toolemu.core.toolbox import Task, Toolbox
from pytest_toolemu.emulators.layers import OfflineEmulator, ValidatedEmulator
from pytest_toolemu.emulators.schema_values import SchemaGenerator
from pytest_toolemu.formats.json_schema import violations
from pytest_toolemu.formats.yaml_document import Document

Json = dict[str, Any]

PARAMETERS: Json = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


def published(*tools: PublishedTool, **details: Any) -> PublishedToolkit:
    """Return a source with these tools."""
    return PublishedToolkit(
        "Boat Shed", "the boat shed", tools or (PublishedTool("read_log", "Read.", PARAMETERS),), **details
    )


def toolemu(*arguments: str, status: int = 0) -> str:
    """Run a command and return what it prints to stdout."""
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == status, result.output
    return result.stdout


def answered_offline(path: Path) -> list[str]:
    """Call every tool of a toolkit once with generated arguments; return the tools that gave no result."""
    toolkit = load_toolkit(path)
    text = f"title: All tools\ntoolkits: [{toolkit.name}]\ninstruction: Call every tool.\n"
    case = build_case(Document.parse(text, path.parent.parent / "cases" / "all-tools.toolemu.yaml"))
    failed: list[str] = []

    async def agent(task: Task, toolbox: Toolbox) -> str:
        for tool in toolkit.tools:
            generator = SchemaGenerator(tool.name, "en_US", task.now, {})  # not what an earlier call deleted
            arguments = generator.value(tool.parameters, (tool.name,))
            result = await toolbox.call(toolkit.callable_name(tool), arguments)
            if isinstance(result, list):
                result = {tool.list_member: result}
            if violations(tool.returns, result) or (
                set(result) == {"error"} and "error" not in tool.returns["properties"]
            ):
                failed.append(f"{tool.name}: {result}")
        return "done"

    emulator = ValidatedEmulator(OfflineEmulator())
    run = asyncio.run(run_case(RunSpec(case, agent, emulator, limits=Limits(max_steps=len(toolkit.tools) + 1))))
    assert len(run.steps) == len(toolkit.tools), run.reasons
    return failed


def lint_rules(path: Path) -> set[str]:
    """Return the rules of which lint reports a problem."""
    return {problem.rule for problem in lint_paths([path]).problems}


def entries(names: Sequence[str]) -> list[Json]:
    """Return entries of ``tools/list``."""
    return [{"name": name, "description": f"Does {name}.", "inputSchema": PARAMETERS} for name in names]
