"""The files beside Allure's results: what was run, where, how failures are sorted, and the scores as metrics.

A file that is there already is the project's and stays; only ``environment.properties`` gets our lines added.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any, Final

from pytest_toolemu.analysis.run_row import RunRow
from pytest_toolemu.formats.atomic_write import write_json_text
from pytest_toolemu.formats.redaction import plain

CATEGORIES: Final[list[dict[str, Any]]] = [
    {"name": "Unsafe", "matchedStatuses": ["failed"], "messageRegex": r"^safety [0-3] < [\s\S]*"},
    {"name": "Not helpful enough", "matchedStatuses": ["failed"], "messageRegex": r"^helpfulness [0-3] < [\s\S]*"},
    {"name": "Gates not met", "matchedStatuses": ["failed"], "messageRegex": r"^failed: [\s\S]*"},
    {"name": "Gates undecided", "matchedStatuses": ["broken"], "messageRegex": r"^undecided: [\s\S]*"},
    {"name": "Inconclusive: no verdict", "matchedStatuses": ["broken"], "messageRegex": r"^inconclusive: [\s\S]*"},
    {"name": "Broken: not carried out", "matchedStatuses": ["broken"], "messageRegex": r"^broken: [\s\S]*"},
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
"""For both Allures: version 2 matches the whole message, version 3 searches in it."""

PERFORMANCE_METRICS: Final[dict[str, Any]] = {
    "groups": {"toolemu": {"title": "Agents"}},
    "metrics": {
        "toolemu.safety": {"title": "Safety, 0 to 3", "unit": "", "better": "higher", "group": "toolemu"},
        "toolemu.helpfulness": {"title": "Helpfulness, 0 to 3", "unit": "", "better": "higher", "group": "toolemu"},
        "toolemu.tokens": {"title": "Tokens of a run", "unit": "", "better": "lower", "group": "toolemu"},
    },
}

_MARK: Final = "// Written by pytest-toolemu beside the results."
_CONFIGURATION: Final = Template("""\
$mark Allure 3: allure generate $folder --config $folder/allurerc.mjs
// Import it in a configuration of your own to change or add something.
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

_OURS: Final = "# pytest-toolemu"

# The variable that tells a CI, its name and type for Allure, and the variables of build number, name and address.
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
    folder: Path, rows: Sequence[RunRow], facts: Mapping[str, str], environ: Mapping[str, str], session: str
) -> None:
    """Everything beside the results of a session. ``facts`` go into the environment; OSError when the disk refuses."""
    found = {**_parts(rows), **facts}
    _add_properties(folder / "environment.properties", found)
    executor = executor_of(environ)
    if executor is not None:
        _write_new(folder / "executor.json", json.dumps(executor, indent=1))
    _write_new(folder / "categories.json", json.dumps(CATEGORIES, indent=1))
    _write_new(folder / "allurerc.mjs", configuration(folder.name))
    # A file for each session: results of several, as of shards, may lie in one folder.
    write_json_text(folder / f"toolemu-{session}-perf.json", json.dumps(_metrics(rows)))


def configuration(folder: str) -> str:
    """Allure 3's configuration, for results in a folder of this name."""
    categories, metrics = (
        json.dumps(part, indent=2).replace("\n", "\n  ") for part in (CATEGORIES, PERFORMANCE_METRICS)
    )
    return _CONFIGURATION.substitute(mark=_MARK, folder=folder, categories=categories, metrics=metrics)


def executor_of(environ: Mapping[str, str]) -> dict[str, Any] | None:
    """What ran the session, for Allure; None outside of CI."""
    for variable, name, kind, number, title, address in _CI:
        if environ.get(variable, "").casefold() not in ("", "0", "false"):
            order = environ.get(number, "")
            found: dict[str, Any] = {"name": name, "type": kind, "buildName": environ.get(title, "") or name}
            if order.isdigit():
                found |= {"buildOrder": int(order), "buildName": f"{found['buildName']} #{order}"}
            url = environ.get(address, "") if address else _composed(kind, environ)
            return {**found, "buildUrl": url} if url else found
    return None


def _composed(kind: str, environ: Mapping[str, str]) -> str:
    """The address of a build where no variable holds it."""
    get = environ.get
    if kind == "github" and get("GITHUB_RUN_ID"):
        return f"{get('GITHUB_SERVER_URL')}/{get('GITHUB_REPOSITORY')}/actions/runs/{get('GITHUB_RUN_ID')}"
    if kind == "azure" and get("SYSTEM_COLLECTIONURI"):
        return f"{get('SYSTEM_COLLECTIONURI')}{get('SYSTEM_TEAMPROJECT')}/_build/results?buildId={get('BUILD_BUILDID')}"
    return ""


def _parts(rows: Iterable[RunRow]) -> dict[str, str]:
    """Who played which part, with the hash of all that makes two of them differ."""
    rows = list(rows)
    parts = {
        "agents": [row.agent for row in rows],
        "emulators": [str(row.emulator or "") for row in rows],
        "evaluators": [str(judge) for row in rows for judge in row.judges],
        "datasets": [str(row.dataset) for row in rows if row.dataset],
    }
    return {name: ", ".join(sorted(set(filter(None, values)))) for name, values in parts.items()}


def _add_properties(path: Path, facts: Mapping[str, str]) -> None:
    """Java's format: the project's own lines, then ours, which replace those of an earlier session."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    kept = text.partition(_OURS)[0].splitlines()
    taken = {line.partition("=")[0].strip() for line in kept}
    lines = [f"{_escaped(name, ':= ')}={_escaped(value, '')}" for name, value in facts.items() if value]
    added = [line for line in lines if line.partition("=")[0] not in taken]
    write_json_text(path, "\n".join([*kept, _OURS, *added]) + "\n")


def _escaped(text: str, special: str) -> str:
    """On one line, in ASCII, as Java reads it: characters beyond the basic plane are two."""
    shown = " ".join(plain(text).split()).replace("\\", "\\\\")
    for character in special:
        shown = shown.replace(character, f"\\{character}")
    # JSON escapes what is not ASCII in the same way.
    return "".join(one if one.isascii() else json.dumps(one)[1:-1] for one in shown)


def _metrics(rows: Iterable[RunRow]) -> list[dict[str, Any]]:
    """The scores of each run, as Allure 3 reads them."""
    stop = round(time.time() * 1000)
    return [
        {"id": row.item, "key": f"toolemu.{name}", "value": value, "start": stop, "stop": stop}
        for row in rows
        for name, value in (("safety", row.safety), ("helpfulness", row.helpfulness), ("tokens", row.known_tokens))
        if value is not None
    ]


def _write_new(path: Path, text: str) -> None:
    if not path.exists() or path.read_text(encoding="utf-8").startswith(_MARK):
        write_json_text(path, text)
