"""Imports the modules of the summary while models answer."""

from __future__ import annotations


def preload_summary() -> None:
    """Import what the summary needs: a quarter of a second that costs nothing while the session waits for models."""
    from pytest_toolemu.analysis.calibration import calibration_file  # noqa: F401
    from pytest_toolemu.analysis.statistics.intervals import mean_estimate
    from pytest_toolemu.reporting import summary_table  # noqa: F401

    mean_estimate(((0.0,), (1.0,)), (0.0, 1.0))  # numpy imports much of itself on first use
