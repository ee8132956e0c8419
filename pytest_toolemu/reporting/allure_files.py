"""Writes the files next to Allure's results: environment, executor, categories, configuration, and metrics.

An existing file belongs to the project and is kept; only ``environment.properties`` gets additional lines.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any, Final

from pytest_toolemu.analysis.run_summary import RunSummary
from pytest_toolemu.formats.file_access import write_atomically
from pytest_toolemu.formats.text import visible

CATEGORIES: Final[list[dict[str, Any]]] = [
    {"name": "Unsafe", "matchedStatuses": ["failed"], "messageRegex": r"^safety [0-3] < [\s\S]*"},
    {"name": "Not helpful enough", "matchedStatuses": ["failed"], "messageRegex": r"^helpfulness [0-3] < [\s\S]*"},
    {"name": "Gates not met", "matchedStatuses": ["failed"], "messageRegex": r"^failed: [\s\S]*"},
    {"name": "Gates undecided", "matchedStatuses": ["broken"], "messageRegex": r"^undecided: [\s\S]*"},
    {"name": "Inconclusive: no verdict", "matchedStatuses": ["broken"], "messageRegex": r"^inconclusive: [\s\S]*"},
    {"name": "Broken: an exception ended the run", "matchedStatuses": ["broken"], "messageRegex": r"^broken: [\s\S]*"},
    {"name": "Unjudged: to be judged later", "matchedStatuses": ["skipped"], "messageRegex": r"^unjudged: [\s\S]*"},
    {"name": "Not run", "matchedStatuses": ["broken"], "messageRegex": r"^not run: [\s\S]*"},
    {
        "name": "Below a threshold, left to the gate",
        "matchedStatuses": ["skipped"],
        "messageRegex": r"^left to the gate: (safety|helpfulness) [0-3] < [\s\S]*",
    },
    {
        "name": "Without a verdict, left to the gate",
        "matchedStatuses": ["skipped"],
        "messageRegex": r"^left to the gate: (inconclusive|broken): [\s\S]*",
    },
]
"""Categories for Allure 2, which matches the whole message, and for Allure 3, which searches in it."""

PERFORMANCE_METRICS: Final[dict[str, Any]] = {
    "groups": {"toolemu": {"title": "Agents"}},
    "metrics": {
        f"toolemu.{name}": {"title": title, "unit": "", "better": better, "group": "toolemu"}
        for name, title, better in (
            ("safety", "Safety, 0 to 3", "higher"),
            ("helpfulness", "Helpfulness, 0 to 3", "higher"),
            ("tokens", "Tokens of a run", "lower"),
        )
    },
}

_MARK: Final = "// Written by pytest-toolemu next to the results."
_CONFIGURATION: Final = Template("""\
$mark Allure 3: allure generate $folder --config $folder/allurerc.mjs
// To change or extend it, import it into your own configuration.
export default {
  name: "Agent safety",
  output: "allure-report",
  categories: $categories,
  performance: $metrics,
  plugins: {
    awesome: { options: { reportName: "Agent safety", groupBy: ["epic", "feature", "story"] } },
  },
};
""")

_OWN_LINES: Final = "# pytest-toolemu"

# For each CI: the variable that identifies it, its name and type in Allure, and variables with number, name, and URL.
_CI: Final = (
    ("GITHUB_ACTIONS", "GitHub Actions", "github", "GITHUB_RUN_NUMBER", "GITHUB_WORKFLOW", ""),
    ("GITLAB_CI", "GitLab CI", "gitlab", "CI_PIPELINE_IID", "CI_JOB_NAME", "CI_JOB_URL"),
    ("JENKINS_URL", "Jenkins", "jenkins", "BUILD_NUMBER", "JOB_NAME", "BUILD_URL"),
    ("TF_BUILD", "Azure Pipelines", "azure", "BUILD_BUILDID", "BUILD_DEFINITIONNAME", ""),
    ("CIRCLECI", "CircleCI", "circleci", "CIRCLE_BUILD_NUM", "CIRCLE_JOB", "CIRCLE_BUILD_URL"),
    ("BUILDKITE", "Buildkite", "buildkite", "BUILDKITE_BUILD_NUMBER", "BUILDKITE_PIPELINE_NAME", "BUILDKITE_BUILD_URL"),
    ("CI", "CI", "ci", "BUILD_NUMBER", "JOB_NAME", "BUILD_URL"),
)


def write_files(
    folder: Path, runs: Sequence[RunSummary], facts: Mapping[str, str], environ: Mapping[str, str], session: str
) -> None:
    """Write all files next to the results of a session; ``facts`` are added to the environment. May raise OSError."""
    _add_properties(folder / "environment.properties", {**_components(runs), **facts})
    if executor := executor_of(environ):
        _write_new(folder / "executor.json", json.dumps(executor, indent=1))
    _write_new(folder / "categories.json", json.dumps(CATEGORIES, indent=1))
    _write_new(folder / "allurerc.mjs", configuration(folder.name))
    # One file for each session, because results of several sessions or shards may be in one folder.
    write_atomically(folder / f"toolemu-{session}-perf.json", json.dumps(_metrics(runs)))


def configuration(folder: str) -> str:
    """Return the configuration of Allure 3 for a results folder of this name."""
    categories, metrics = (
        json.dumps(part, indent=2).replace("\n", "\n  ") for part in (CATEGORIES, PERFORMANCE_METRICS)
    )
    return _CONFIGURATION.substitute(mark=_MARK, folder=folder, categories=categories, metrics=metrics)


def executor_of(environ: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the CI build that ran the session, for Allure; None outside CI."""
    for variable, name, kind, number, title, address in _CI:
        if environ.get(variable, "").casefold() not in ("", "0", "false"):
            order = environ.get(number, "")
            executor: dict[str, Any] = {"name": name, "type": kind, "buildName": environ.get(title, "") or name}
            if order.isdigit():
                executor |= {"buildOrder": int(order), "buildName": f"{executor['buildName']} #{order}"}
            url = environ.get(address, "") if address else _build_url(kind, environ)
            return {**executor, "buildUrl": url} if url else executor
    return None


def _build_url(kind: str, environ: Mapping[str, str]) -> str:
    """Return the URL of a build for a CI that has no variable with it."""
    get = environ.get
    if kind == "github" and get("GITHUB_RUN_ID"):
        return f"{get('GITHUB_SERVER_URL')}/{get('GITHUB_REPOSITORY')}/actions/runs/{get('GITHUB_RUN_ID')}"
    if kind == "azure" and get("SYSTEM_COLLECTIONURI"):
        return f"{get('SYSTEM_COLLECTIONURI')}{get('SYSTEM_TEAMPROJECT')}/_build/results?buildId={get('BUILD_BUILDID')}"
    return ""


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


def _metrics(runs: Iterable[RunSummary]) -> list[dict[str, Any]]:
    """Return the scores and tokens of each run in the format of Allure 3."""
    stop = round(time.time() * 1000)
    return [
        {"id": run.item, "key": f"toolemu.{name}", "value": value, "start": stop, "stop": stop}
        for run in runs
        for name, value in (("safety", run.safety), ("helpfulness", run.helpfulness), ("tokens", run.known_tokens))
        if value is not None
    ]


def _write_new(path: Path, text: str) -> None:
    if not path.exists() or path.read_text(encoding="utf-8").startswith(_MARK):
        write_atomically(path, text)
