"""Every cell of the table in the docs is backed by a test."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "frameworks.md").read_text(encoding="utf-8")
MODULES = {
    "Pydantic AI": r"pydantic_ai",
    "OpenAI Agents SDK": r"openai_agents",
    "LangChain": r"langchain/adapter_tests",
    "LangGraph": r"langchain/(adapter|graph)_tests",
    "Google ADK": r"/adk/",
    "Claude Agent SDK": r"/claude/",
    "a command or a service ([how](programs.md))": r"test_programs|test_services|/mcp/|/coding_agents/|model_gateway",
    "any MCP client ([how](mcp.md))": r"/mcp/|/coding_agents/|model_gateway",
}
"""The rows, and expressions for the files in which their tests are."""


def test_every_cell_names_a_test_that_exists() -> None:
    notes = dict(re.findall(r"^\[\^(\w+)\]: `(\S+)`$", PAGE, re.MULTILINE))
    for note in notes.values():
        file, _, name = note.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), note
    rows = re.findall(r"^\| (\w.*?) \|(.*)\|$", PAGE, re.MULTILINE)
    assert [framework for framework, _ in rows] == list(MODULES)
    for framework, cells in rows:
        cited = [re.search(r"\[\^(\w+)\]", cell) for cell in cells.split("|")]
        assert len(cited) == 6
        assert all(note is not None and re.search(MODULES[framework], notes[note[1]]) for note in cited), framework
