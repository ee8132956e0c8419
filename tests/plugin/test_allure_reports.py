"""Allure 2 and Allure 3 build reports from the results, and a reader can find the steps of a case.

Needs ``npm ci --prefix tests/allure``, Java for Allure 2, and Debian's chromium with Playwright for the browser.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests import processes
from tests.browser import opened
from tests.plugin.conftest import ALWAYS_UNUSED, CASE, TOOLKIT

TOOLS = Path(__file__).parents[1] / "allure" / "node_modules"
EXAMPLE = Path(__file__).parents[2] / "examples" / "allure" / "allurerc.mjs"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run a safe and a risky agent in a project, over two workers."""
    root = tmp_path_factory.mktemp("allure")
    (root / "pytest.ini").write_text("[pytest]\n")
    for name, text in {
        "toolkits/Till.toolkit.yaml": TOOLKIT,
        "cases/anna.toolemu.yaml": CASE.format(who="Anna", tag="plain"),
        "cases/bert.toolemu.yaml": CASE.format(who="Bert", tag="other"),
    }.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    agents = ("--toolemu-agent=reference:safe", "--toolemu-agent=reference:risky")
    command = ["python", "-m", "pytest", "-p", "no:cacheprovider", *ALWAYS_UNUSED, "-n", "2", *agents]
    run = processes.run([*command, "--alluredir=allure-results"], cwd=root)
    assert "2 failed, 2 passed" in run.stdout, run.stdout + run.stderr
    shutil.copy(EXAMPLE, root)
    return root


def tool(path: str, *needs: str) -> Path:
    """Return a program of the report tools; skip the test, with the remedy, if the program or a requirement is missing."""
    for name in needs:
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")
    if not (TOOLS / path).exists():
        pytest.skip(f"{path} is not installed: npm ci --prefix tests/allure")
    return TOOLS / path


def call(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def report(project: Path) -> Path:
    """Build Allure 3's report with the example's configuration."""
    allure = tool("allure/cli.js", "node")
    generated = call("node", allure, "generate", "allure-results", cwd=project)
    assert generated.returncode == 0, generated.stdout + generated.stderr
    return project / "allure-report"


def named(folder: Path, name: str) -> dict[str, Any]:
    """Return the only case with this name in the data of a report."""
    contents = [json.loads(path.read_text("utf-8")) for path in folder.glob("*.json")]
    (chosen,) = [one for one in contents if one["name"] == name]
    return dict(chosen)


def test_allure_2_shows_cases_gates_and_history(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allure = tool("allure-commandline/bin/allure", "java")
    # A short-lived JVM spends most of its time on optimizing code.
    monkeypatch.setenv("JAVA_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    generated = call(allure, "generate", "allure-results", "-o", "two", "--clean", cwd=project)
    assert generated.returncode == 0, generated.stdout + generated.stderr
    case = named(project / "two/data/test-cases", "Pay Anna [reference:risky]")
    assert case["status"] == "failed"
    assert case["extra"]["severity"] == "blocker"
    assert [category["name"] for category in case["extra"]["categories"]] == ["Unsafe"]
    assert [step["name"] for step in case["testStage"]["steps"]][:2] == [
        'Till_Pay {"amount": 900, "who": "Anna"}', "Answer",
    ]  # fmt: skip
    assert [one["name"] for one in case["testStage"]["attachments"]] == ["transcript", "transcript (JSON)"]
    environment = json.loads((project / "two/widgets/environment.json").read_text())
    assert {"name": "agents", "values": ["reference:risky, reference:safe"]} in environment
    (behaviours,) = json.loads((project / "two/data/behaviors.json").read_text())["children"]
    assert (behaviours["name"], behaviours["children"][0]["name"]) == ("Financial loss", "Till")


def test_allure_3_shows_cases_and_gates(report: Path) -> None:
    data = next(report.rglob("data/test-results"))
    case = named(data, "Pay Anna [reference:risky]")
    assert (case["status"], [category["name"] for category in case["categories"]]) == ("failed", ["Unsafe"])
    assert case["steps"][0]["name"] == 'Till_Pay {"amount": 900, "who": "Anna"}'
    assert case["steps"][0]["parameters"][0]["name"] == "who"
    metrics = json.loads(next(report.rglob("metrics.json")).read_text())
    assert {one["title"] for one in metrics["current"]} >= {"Safety, 0 to 3", "Helpfulness, 0 to 3"}


def test_the_examples_quality_gate_stops_an_unsafe_agent(project: Path) -> None:
    """Allure 3.18 needs Node 22 for this command."""
    node, allure = tool("node/bin/node"), tool("allure/cli.js")
    decided = call(node, allure, "quality-gate", "allure-results", cwd=project)
    assert decided.returncode == 1
    assert "risk: no unsafe run/maxFailures" in decided.stdout + decided.stderr
    assert "risk: mean safety/metricMin" in decided.stdout + decided.stderr


@pytest.fixture
def address(report: Path) -> Iterator[str]:
    """Serve the report on a local port; return its address."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(report))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_a_reader_can_open_a_case_and_see_its_steps(address: str) -> None:
    with opened() as browser:
        from playwright import sync_api

        page = browser.new_page(viewport={"width": 1280, "height": 900})
        # The page requests an analytics script.
        page.route("**/*", lambda route: route.continue_() if address in route.request.url else route.abort())
        page.goto(address)
        page.get_by_text("Pay Anna [reference:risky]").first.click()
        steps = page.get_by_test_id("test-result-step-title")
        sync_api.expect(steps.first).to_have_text('Till_Pay {"amount": 900, "who": "Anna"}')
        sync_api.expect(page.get_by_test_id("test-result-error-message").first).to_contain_text("safety 0 < 2")
        page.get_by_text("transcript", exact=True).click()
        transcript = page.frame_locator("[data-testid=html-attachment-preview] iframe")
        sync_api.expect(transcript.get_by_text("risky step", exact=True)).to_be_visible()
