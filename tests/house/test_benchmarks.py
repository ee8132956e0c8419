"""The benchmarks run and print their results. No test asserts the values, which mean something only on an idle machine."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from pytest_toolemu.authoring.importers.toolemu import convert
from tests import processes
from tests.authoring.originals import DATA, needs_data

ROOT = Path(__file__).parents[2]
SECONDS, MILLISECONDS = r"\d+\.\d{3} s", r"-?\d+\.\d\d ms"


def report(*command: str, runs: tuple[str, ...] = ("--runs=1",)) -> str:
    result = processes.run([sys.executable, "-m", *command, *runs], cwd=ROOT)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_the_collection_benchmark_prints_its_ratio_and_parts() -> None:
    output = report("benchmarks.collect", "--cases=3", "--toolkits=2")
    assert re.search(r"^3 cases \(\d+ kB\) and 2 toolkits \(\d+ kB\)$", output, re.MULTILINE)
    assert re.search(rf"the cases +{SECONDS}  target: under 1\.5 s, (met|MISSED)", output)
    assert re.search(rf"an empty folder +{SECONDS}", output)
    assert re.search(r"ratio +\d+\.\d\d", output)
    parts = ", ".join(rf"{name} {SECONDS}" for name in ("imports", "YAML", "records", "items"))
    assert re.search(parts, output)


def test_the_report_benchmark_prints_its_ratio_to_parsing() -> None:
    output = report("benchmarks.report", "--count=12")
    assert re.search(r"^12 runs, \d\.\d MB, CPU time, median of 1:$", output, re.MULTILINE)
    assert re.search(rf"HTML +{SECONDS}  target: under 3 s, (met|MISSED)", output)
    assert re.search(rf"parsing JSON +{SECONDS}  ratio of HTML +\d+\.\d\d", output)
    assert re.search(r"memory +\d+ MB target: under 300 MB, (met|MISSED)", output)


def test_the_benchmark_of_the_web_application_prints_the_time_of_the_first_page() -> None:
    output = report("benchmarks.ui", "--sessions=2", "--count=3", "--large=5")
    assert re.search(r"^  list of sessions +\d+ ms  target: under 300 ms, (met|MISSED)$", output, re.MULTILINE)
    assert len(re.findall(r"^  [\w ]+ ms, after a restart \d+ ms, again \d+ ms$", output, re.MULTILINE)) == 3


def test_the_simulation_prints_memory_requests_and_merged_files() -> None:
    output = report("benchmarks.simulation", "--cases", "8", "--in-flight=66", runs=())
    assert re.search(r"^memory: 64 in flight \d+ MB, 66 in flight \d+ MB: -?\d+ kB each$", output, re.MULTILINE)
    for part in ("session", "merge", "gate", "report"):
        assert re.search(
            rf"^ +8 cases  {part} +\d+\.\d s CPU +\d+\.\d\d ms a case +\d+ MB +\d+\.\d s$", output, re.MULTILINE
        )
    assert re.search(
        r"^ +8 cases  96 requests, 0\.0% refused, 0\.\d\d virtual hours, \d\.\d+ of the limit$", output, re.MULTILINE
    )
    assert re.search(r"^ +8 cases  8 files, 0\.00 GB, linked by the merge$", output, re.MULTILINE)


def test_the_cpu_benchmark_prints_the_cost_per_call() -> None:
    output = report("benchmarks.cpu", "--cases=1")
    for provider in ("openai", "anthropic"):
        figures = rf"ours +{MILLISECONDS} \(whole {MILLISECONDS} - bare SDK {MILLISECONDS}; 13 calls of \d+ kB\)"
        assert re.search(rf"{provider} +{figures}  target: under 1 ms, (met|MISSED)", output)


def test_the_mcp_benchmark_prints_the_cost_per_call() -> None:
    output = report("benchmarks.mcp", "--cases=4", "--calls=2")
    for name in ("of many cases", "of one case"):
        figures = rf"{MILLISECONDS} \(whole {MILLISECONDS} - toolbox {MILLISECONDS}\)"
        assert re.search(rf"^{name} +{figures}  target: under 3 ms, (met|MISSED)$", output, re.MULTILINE)


def test_the_world_benchmark_prints_checks_worlds_and_calls_beside_plain_tables() -> None:
    output = report("benchmarks.worlds", "--cases=4")
    for name, target in (
        ("check of a toolkit", r"max under 5"),
        ("world of a case", r"max under 3"),
        ("call of a reference", r"p95 under 0\.3"),
    ):
        assert re.search(
            rf"^{name} +\d+ +\d+\.\d\d +\d+\.\d\d +\d+\.\d\d  target: {target}, (met|MISSED)$", output, re.MULTILINE
        )
    assert re.search(r"^worlds relative to plain tables and rows: \d+\.\d\d$", output, re.MULTILINE)


def test_the_token_benchmark_prints_tokens_by_role() -> None:
    output = report("benchmarks.tokens", "cases/finance", runs=())
    for role, requests in (("agent", r"4\.\d"), ("emulator", r"3\.\d"), ("evaluator", r"2\.0")):
        assert re.search(rf"^{role} +{requests} +[\d,]+ +[\d,]+ +\d\.\d\d$", output, re.MULTILINE)
    for name in ("prompt", "uncached"):
        goal = r"[\d,]+ \(original: [\d,]+; goal: [\d,]+, (met|MISSED|not comparable .*)\)$"
        assert re.search(rf"^agent and emulator, {name}: {goal}", output, re.MULTILINE)


@needs_data
def test_the_token_benchmark_counts_official_cases_in_worlds_of_rows(tmp_path: Path) -> None:
    convert(DATA, tmp_path)
    for path in (tmp_path / "cases").iterdir():
        if not path.name.startswith(("official_0.", "official_79.", "official_126.")):
            path.unlink()
    output = report("benchmarks.tokens", str(tmp_path), "--world=built", "--calls=5", runs=())
    assert "3 plays, 15 calls: " in output
    assert re.search(r"^ +\d+ published calls: rows: a result; published: a result$", output, re.MULTILINE)
    assert re.search(r"^ +\d+ generated calls: rows: a result$", output, re.MULTILINE)
    assert re.search(
        r"^builder, once per case: 1 request with [\d,]+ prompt tokens; rows of [\d,]+ tokens$", output, re.MULTILINE
    )
    assert re.search(r"^built worlds, requests: 0\.00 \(goal: 1\.5, met\)$", output, re.MULTILINE)
