"""Writes the files next to Allure's results: environment, executor, categories, configuration, and metrics.

An existing file belongs to the project and is kept; only ``environment.properties`` gets additional lines.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any, Final

from pytest_toolemu.analysis.run_summary import RunSummary
from pytest_toolemu.formats.file_access import write_atomically
from pytest_toolemu.formats.text import visible

_TEMPLATES: Final = resources.files("pytest_toolemu.reporting") / "templates"
# For Allure 2, which matches the whole message, and for Allure 3, which searches in it.
_CATEGORIES: Final = json.loads((_TEMPLATES / "allure_categories.json").read_text(encoding="utf-8"))
_MARK: Final = "// Written by pytest-toolemu next to the results."
_OWN_LINES: Final = "# pytest-toolemu"

# For each CI: the variable that identifies it, its name and type in Allure, variables with number and title, its URL.
_CI: Final = json.loads((_TEMPLATES / "allure_ci.json").read_text(encoding="utf-8"))


def write_files(
    folder: Path, runs: Sequence[RunSummary], facts: Mapping[str, str], environ: Mapping[str, str], session: str
) -> None:
    """Write all files next to the results of a session; ``facts`` are added to the environment. May raise OSError."""
    _add_properties(folder / "environment.properties", {**_components(runs), **facts})
    if executor := executor_of(environ):
        _write_new(folder / "executor.json", json.dumps(executor, indent=1))
    _write_new(folder / "categories.json", json.dumps(_CATEGORIES, indent=1))
    _write_new(folder / "allurerc.mjs", configuration(folder.name))
    # One file for each session, because results of several sessions or shards may be in one folder.
    stop = round(time.time() * 1000)
    metrics = [
        {"id": run.item, "key": f"toolemu.{name}", "value": value, "start": stop, "stop": stop}
        for run in runs
        for name, value in (("safety", run.safety), ("helpfulness", run.helpfulness), ("tokens", run.known_tokens))
        if value is not None
    ]
    write_atomically(folder / f"toolemu-{session}-perf.json", json.dumps(metrics))


def configuration(folder: str) -> str:
    """Return the configuration of Allure 3 for a results folder of this name."""
    categories = json.dumps(_CATEGORIES, indent=2).replace("\n", "\n  ")
    template = Template((_TEMPLATES / "allurerc.mjs").read_text(encoding="utf-8"))
    return template.substitute(folder=folder, categories=categories)


def executor_of(environ: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the CI build that ran the session, for Allure; None outside CI."""
    for ci in _CI:
        if environ.get(ci["variable"], "").casefold() not in ("", "0", "false"):
            order = environ.get(ci["number"], "")
            build = environ.get(ci["title"], "") or ci["name"]
            executor: dict[str, Any] = {"name": ci["name"], "type": ci["type"], "buildName": build}
            if order.isdigit():
                executor |= {"buildOrder": int(order), "buildName": f"{build} #{order}"}
            with contextlib.suppress(KeyError):
                executor["buildUrl"] = ci["url"].format_map(environ)
            return executor
    return None


def _components(runs: Sequence[RunSummary]) -> dict[str, str]:
    """Return the components of the runs by role, with the hash of their configuration."""
    parts = {
        "agents": [run.agent for run in runs],
        "emulators": [str(run.emulator or "") for run in runs],
        "evaluators": [str(judge) for run in runs for judge in run.judges],
        "datasets": [str(run.dataset) for run in runs if run.dataset],
    }
    return {name: ", ".join(sorted(set(filter(None, values)))) for name, values in parts.items()}


def _add_properties(path: Path, facts: Mapping[str, str]) -> None:
    """Add lines to a Java properties file, after those of the project, and replace those of an earlier session."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    user_lines = text.partition(_OWN_LINES)[0].splitlines()
    user_keys = {line.partition("=")[0].strip() for line in user_lines}
    lines = [f"{_escaped(name, ':= ')}={_escaped(value, '')}" for name, value in facts.items() if value]
    added = [line for line in lines if line.partition("=")[0] not in user_keys]
    write_atomically(path, "\n".join([*user_lines, _OWN_LINES, *added]) + "\n")


def _escaped(text: str, special: str) -> str:
    """Return text on one line of ASCII, escaped for Java, which reads UTF-16 code units."""
    escaped = " ".join(visible(text).split()).replace("\\", "\\\\")
    for character in special:
        escaped = escaped.replace(character, f"\\{character}")
    # JSON escapes what is not ASCII in the same way.
    return "".join(one if one.isascii() else json.dumps(one)[1:-1] for one in escaped)


def _write_new(path: Path, text: str) -> None:
    if not path.exists() or path.read_text(encoding="utf-8").startswith(_MARK):
        write_atomically(path, text)
