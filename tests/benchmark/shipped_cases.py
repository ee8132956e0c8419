"""The shipped cases, each of which a process reads once."""

from __future__ import annotations

import functools
from pathlib import Path

from pytest_toolemu.core.case import SUFFIX, ResolvedCase
from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.core.toolkit import benchmark_folder

PATHS = sorted((benchmark_folder() / "cases").rglob(f"*{SUFFIX}"))


@functools.cache
def shipped_case(path: Path) -> ResolvedCase:
    return load_case(path)


def shipped_cases() -> list[ResolvedCase]:
    return [shipped_case(path) for path in PATHS]
