"""Reports as files: one for each format, whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from pytest_toolemu.reporting.markdown import markdown
from pytest_toolemu.reporting.page import report_page
from pytest_toolemu.reporting.report import Report
from pytest_toolemu.reporting.sarif import sarif_text
from pytest_toolemu.reporting.tables import csv_text, json_text
from pytest_toolemu.settings import FORMATS
from pytest_toolemu.store import write_json_text

NAME: Final = "report"


def write_reports(report: Report, formats: Iterable[str], folder: Path, version: str) -> list[Path]:
    """Write ``report.FORMAT`` for each format, and tell where. OSError where the disk refuses.

    ``version`` is that of this package. HTML needs a report with transcripts.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wanted = set(formats)
    written = []
    for name in (name for name in FORMATS if name in wanted):
        path = folder / f"{NAME}.{name}"
        write_json_text(path, _text(report, name, version))
        written.append(path)
    return written


def _text(report: Report, name: str, version: str) -> str:
    if name == "html":
        return report_page(report)
    if name == "md":
        return markdown(report)
    if name == "json":
        return json_text(report)
    if name == "csv":
        return csv_text(report)
    return sarif_text(report, version)
