"""``python -m benchmarks.worlds``: the cost of worlds of rows, for all shipped cases.

Three parts are measured: the check of a toolkit's declarations, the creation of a case's world, and the calls of its
references, each including the preparation of its statements and the comparison of rows that follows it. Every run is a
process of its own, and each item counts with its median. For comparison, plain SQLite creates the same tables and rows.
"""

from __future__ import annotations

import argparse
import gc
import json
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from pytest_toolemu.core.case import SUFFIX, ResolvedCase
from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.core.case_rules import ReferenceCall
from pytest_toolemu.core.toolkit import SUFFIX as TOOLKIT_SUFFIX
from pytest_toolemu.core.toolkit import Toolkit, benchmark_folder
from pytest_toolemu.core.world.database import quote
from pytest_toolemu.core.world.toolkit_plan import plan_of, planned
from pytest_toolemu.core.world.world import World
from pytest_toolemu.errors import OpenEntityError
from pytest_toolemu.formats.yaml_document import Document

CHECK_MAX: Final = 5.0
WORLD_MAX: Final = 3.0
CALL_P95: Final = 0.3

T = TypeVar("T")

Times = dict[str, list[float]]
Figure = Callable[[Sequence[float]], float]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.worlds")
    parser.add_argument("--cases", type=int, help="number of cases and of toolkits (all)")
    parser.add_argument("--runs", type=int, default=5, help="measurements of each item (%(default)s)")
    options = parser.parse_args()
    measure = (
        "import json, sys; from benchmarks.worlds import measured; print(json.dumps(measured(json.loads(sys.argv[1]))))"
    )
    command = [sys.executable, "-c", measure, json.dumps(options.cases)]
    runs: list[Times] = [json.loads(subprocess.check_output(command)) for _ in range(options.runs)]
    times = {
        name: [statistics.median(item) for item in zip(*(run[name] for run in runs), strict=True)] for name in runs[0]
    }
    print(f"CPU time in ms, each item the median of {options.runs} processes:")
    print(f"{'':24} {'number':>6} {'median':>7} {'p95':>7} {'max':>7}")
    targets: dict[str, tuple[float, Figure]] = {
        "check of a toolkit": (CHECK_MAX, max),
        "world of a case": (WORLD_MAX, max),
        "call of a reference": (CALL_P95, _p95),
    }
    for name, values in times.items():
        row = f"{name:24} {len(values):6} {statistics.median(values):7.2f} {_p95(values):7.2f} {max(values):7.2f}"
        print(row + (_target(values, *targets[name]) if name in targets else ""))
    ratio = sum(times["world of a case"]) / sum(times["plain tables and rows"])
    print(f"worlds relative to plain tables and rows: {ratio:.2f}")


def _target(values: Sequence[float], limit: float, figure: Figure) -> str:
    name = "max" if figure is max else "p95"
    return f"  target: {name} under {limit:g}, {'met' if figure(values) < limit else 'MISSED'}"


def _p95(values: Sequence[float]) -> float:
    return sorted(values)[int(0.95 * len(values))]


def measured(cases: int | None) -> Times:
    """Return the milliseconds of each toolkit, world, and call, always in the same order."""
    folder = benchmark_folder()
    files = sorted((folder / "toolkits").glob(f"*{TOOLKIT_SUFFIX}"))[:cases]
    toolkits = [Document.read(path).build(Toolkit) for path in files]
    paths = sorted((folder / "cases").rglob(f"*{SUFFIX}"))[:cases]
    resolved_cases = [resolved_case for path in paths if (resolved_case := load_case(path)).case.world]
    gc.collect()
    gc.freeze()  # as sessions do after the collection of cases
    declared = [kit for kit in toolkits if kit.is_declared]
    return {
        "check of a toolkit": [_milliseconds(planned, kit)[0] for kit in declared],
        "world of a case": [_milliseconds(World.of, case)[0] for case in resolved_cases],
        "plain tables and rows": [_milliseconds(_plain, case)[0] for case in resolved_cases],
        "call of a reference": [
            value
            for case in resolved_cases
            for each in case.case.references.values()
            for value in _calls(case, each.calls)
        ],
    }


def _plain(resolved_case: ResolvedCase) -> None:
    """Create the tables without conditions, and insert the rows."""
    for kit in resolved_case.toolkits:
        if kit.name in resolved_case.case.world:
            database = sqlite3.connect(":memory:", isolation_level=None)
            for name, table in plan_of(kit).tables.items():
                database.execute(f"CREATE TABLE {quote(name)} ({', '.join(map(quote, table.fields))})")
                for row in resolved_case.case.world[kit.name].get(name, ()):
                    table.insert(database, row)
            database.close()


def _calls(resolved_case: ResolvedCase, calls: Sequence[ReferenceCall]) -> list[float]:
    """Return the milliseconds of the calls of a reference that rows answer."""
    times = []
    world = World.of(resolved_case)
    for number, call in enumerate(calls):
        if world.plan(call.tool) is not None:
            milliseconds, is_answered = _milliseconds(_call, world, call, number)
            if is_answered:
                times.append(milliseconds)
    return times


def _call(world: World, call: ReferenceCall, number: int) -> bool:
    """Execute and check a call as a run does; return False if the emulator would have to answer it."""
    plan = world.plan(call.tool)
    try:
        content = world.call(call.tool, call.arguments, number)
    except OpenEntityError:
        return False
    world.take_changes()
    return plan is not None and ("error" in content or plan.tool.result_schema.conforms(content))


def _milliseconds(work: Callable[..., T], *arguments: Any) -> tuple[float, T]:
    """Return the CPU time of a function and its result. Unlike wall time, CPU time hardly depends on other work."""
    begun = time.thread_time_ns()
    result = work(*arguments)
    return (time.thread_time_ns() - begun) / 1e6, result


if __name__ == "__main__":
    main()
