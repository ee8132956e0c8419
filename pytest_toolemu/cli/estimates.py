"""Prints what a command would cost, for ``--estimate``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_toolemu.cli.consoles import out

if TYPE_CHECKING:
    from pytest_toolemu.analysis.cost_estimate.forecast import Forecast
    from pytest_toolemu.settings import Settings


def print_estimate(forecast: Forecast, settings: Settings, subject: str) -> None:
    """Print a forecast at the prices of the settings. ``subject`` is what it is for, such as ``4 runs``."""
    from pytest_toolemu.formats.redaction import plain
    from pytest_toolemu.reporting.estimate_text import estimate_lines
    from pytest_toolemu.sessions.single_run import prices_of_settings

    width = out.width if out.is_terminal else None
    for line in estimate_lines(forecast, prices_of_settings(settings), subject, width):
        out.print(plain(line), markup=False)
