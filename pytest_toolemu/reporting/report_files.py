"""Writes report files atomically."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from pytest_toolemu.formats.files.atomic_write import write_json_text
from pytest_toolemu.reporting.html_report import report_page
from pytest_toolemu.reporting.json_csv import csv_text, json_text
from pytest_toolemu.reporting.markdown import markdown
from pytest_toolemu.reporting.report_data import ReportData
from pytest_toolemu.reporting.summary_metrics import slices_csv
from pytest_toolemu.settings import FORMATS, REPORT


def write_reports(report: ReportData, formats: Iterable[str], folder: Path) -> list[Path]:
    """Write ``report.FORMAT`` for each format, and return the paths; OSError if a file cannot be written.

    CSV has a second file for slices. HTML needs a report with transcripts.
    """
    folder.mkdir(parents=True, exist_ok=True)
    requested = set(formats)
    paths = []
    for name in (name for name in FORMATS if name in requested):
        for suffix, text in _texts(report, name):
            path = folder / f"{REPORT}.{suffix}"
            write_json_text(path, text)
            paths.append(path)
    return paths


def _texts(report: ReportData, name: str) -> Iterator[tuple[str, str]]:
    """Yield the file suffix and the content of each file of a format."""
    if name == "html":
        yield name, report_page(report)
    elif name == "md":
        yield name, markdown(report)
    elif name == "json":
        yield name, json_text(report)
    else:
        yield name, csv_text(report)
        yield f"slices.{name}", slices_csv(report)
