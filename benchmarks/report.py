"""``python -m benchmarks.report``: the time and memory that a report on stored runs takes.

The runs are generated: three agents over cases and toolkits of the size of ToolEmu's. Each report is made
by the command, in a process of its own; for comparison, the time of parsing the same files as JSON is printed.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks import material
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.core.run import (
    Call,
    Finding,
    Identity,
    Observation,
    Run,
    Step,
    Verdict,
    decide,
    hashes_of,
    run_key,
    safety_verdict,
    sha256,
    versions,
)
from pytest_toolemu.sessions.store import RUNS, RunStore
from pytest_toolemu.settings.option_table import FORMATS

SECONDS: Final = 3.0
MEGABYTES: Final = 300
_AGENTS: Final = ("careful", "average", "reckless")
_STEPS: Final = 6


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report")
    parser.add_argument("--count", type=int, default=1000, help="runs to report (%(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="measurements of each kind, in turn (%(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "session"
        write_session(Path(name), folder, options.count)
        files = sorted(folder.glob(RUNS))
        size = sum(path.stat().st_size for path in files)
        print(f"{len(files)} runs, {size / 1e6:.1f} MB, CPU time, median of {options.runs}:")
        written = tuple(name for name in FORMATS if name != "otel")  # which sends them to a server
        timed = [(_report(folder, written), _report(folder, ("html",)), _parse(files)) for _ in range(options.runs)]
    everything, page, parsed = (statistics.median(column) for column in zip(*timed, strict=True))
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"  HTML          {page:6.3f} s  target: under {SECONDS:g} s, {_met(page < SECONDS)}")
    print(f"  all formats   {everything:6.3f} s")
    print(f"  parsing JSON  {parsed:6.3f} s  ratio of HTML {page / parsed:6.2f}")
    print(f"  memory        {memory:6.0f} MB target: under {MEGABYTES} MB, {_met(memory < MEGABYTES)}")


def _met(good: bool) -> str:
    return "met" if good else "MISSED"


def _report(folder: Path, formats: tuple[str, ...]) -> float:
    """Return the CPU time from the start of Python to its end. Unlike wall time, it hardly depends on other work."""
    command = [sys.executable, "-c", "from pytest_toolemu.cli import main; main()", "report", str(folder)]
    begun = _children()
    subprocess.run([*command, "--format", ",".join(formats)], check=True, stdout=subprocess.DEVNULL)
    return _children() - begun


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _parse(files: list[Path]) -> float:
    begun = time.process_time()
    for path in files:
        json.loads(path.read_bytes())
    return time.process_time() - begun


def write_session(root: Path, folder: Path, count: int) -> None:
    """Write cases and toolkits to ``root``, and runs of them to the new ``folder``."""
    material.write(root)
    resolved_cases = [load_case(path) for path in sorted((root / "cases").iterdir())]
    draw = random.Random(0)
    store = RunStore(folder)
    folder.mkdir()
    for number in range(count):
        trial, remainder = divmod(number, len(resolved_cases) * len(_AGENTS))
        index, agent = divmod(remainder, len(_AGENTS))
        store.put(_run(resolved_cases[index], agent, trial + 1, draw), str(number))


def _run(resolved_case: ResolvedCase, agent: int, trial: int, draw: random.Random) -> Run:
    """Return a run; the later its agent is in the list, the more often it is unsafe."""
    identity = Identity(
        agent={"kind": "own", "name": _AGENTS[agent]}, emulator={"kind": "offline"}, evaluators=({"kind": "own"},)
    )
    names = list(resolved_case.tools)
    steps = tuple(_step(index, draw.choice(names), draw) for index in range(_STEPS))
    findings = (Finding(step=2, outcome="Acts on a guess.", likelihood="likely", severity="severe"),)
    verdicts = (
        safety_verdict("judge", findings if draw.random() < 0.15 * (agent + 1) else (), reason=material.text(draw, 60)),
        Verdict(evaluator="judge", metric="helpfulness", score=draw.randint(0, 3), reason=material.text(draw, 60)),
    )
    outcome, reasons = decide(verdicts, {"safety": 2, "helpfulness": 2})
    return Run(
        key=run_key(resolved_case.case.id, hashes_of(resolved_case.case, resolved_case.toolkits), identity, trial, 0),
        agent=_AGENTS[agent],
        case_id=resolved_case.case.id,
        case_path=resolved_case.path.as_posix(),
        case=resolved_case.case,
        toolkits=resolved_case.toolkits,
        hashes={"case": sha256(resolved_case.case.id)},
        identity=identity,
        trial=trial,
        steps=steps,
        answer=material.text(draw, 80),
        verdicts=verdicts,
        thresholds={"safety": 2, "helpfulness": 2},
        outcome=outcome,
        reasons=reasons,
        versions=versions(),
    )


def _step(index: int, name: str, draw: random.Random) -> Step:
    call = Call(index=index, name=name, tool=name.replace("_", "."), arguments={"query": material.text(draw, 5)})
    content = {"found": [{"id": f"A-{draw.randint(1, 9999)}", "note": material.text(draw, 12)} for _ in range(6)]}
    return Step(call=call, observation=Observation(content=content, source="offline"), seconds=0.4)


if __name__ == "__main__":
    main()
