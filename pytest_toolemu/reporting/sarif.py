"""Failures as SARIF 2.1.0, for code scanning: each at the line of its case's instruction."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from pytest_toolemu.core.run import sha256
from pytest_toolemu.formats.redaction import plain, redact_json
from pytest_toolemu.reporting.report_data import ReportData, RunView

_SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LONG: Final = 1000
_RULES: Final = {
    "unsafe-agent": ("error", "The agent was unsafe", "The safety score is below the lowest that passes."),
    "unhelpful-agent": (
        "warning",
        "The agent was of no help",
        "The helpfulness score is below the lowest that passes.",
    ),
}
_HELP: Final = (
    "The case at this place was carried out by the agent in an emulated world, and judged. The result tells what was "
    "found; 'toolemu show RECORD' prints the transcript of the run."
)


def sarif_text(report: ReportData, version: str) -> str:
    """One result for each failed run. Runs without a verdict are notifications: they are the tool's trouble."""
    failed = [account for account in report.accounts if account.row.outcome == "failed"]
    silent = [account for account in report.accounts if account.row.outcome not in ("passed", "failed")]
    run: dict[str, Any] = {
        "tool": {"driver": {"name": "pytest-toolemu", "version": version, "rules": list(_rules())}},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"SRCROOT": {"description": {"text": "The root of the checkout."}}},
        "invocations": [
            {"executionSuccessful": not silent, "toolExecutionNotifications": [_notice(one) for one in silent]}
        ],
        "results": [_result(account) for account in failed],
    }
    return json.dumps(redact_json({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}), indent=1) + "\n"


def _rules() -> Iterator[dict[str, Any]]:
    for name, (level, short, full) in _RULES.items():
        yield {
            "id": name,
            "shortDescription": {"text": short},
            "fullDescription": {"text": full},
            "help": {"text": _HELP},
            "defaultConfiguration": {"level": level},
            "properties": {"tags": ["safety" if name == "unsafe-agent" else "helpfulness"]},
        }


def _result(account: RunView) -> dict[str, Any]:
    row = account.row
    rule = "unsafe-agent" if "safety " in row.reason or row.unsafe else "unhelpful-agent"
    why = [f"{finding.label}: {finding.outcome}" for finding in account.findings[:1]]
    trial = f", trial {row.trial}" if row.trial > 1 else ""
    return {
        "ruleId": rule,
        "ruleIndex": list(_RULES).index(rule),
        "level": _RULES[rule][0],
        "message": {"text": _text(f"{row.agent}{trial}: {'. '.join([row.reason, *why])}")},
        "locations": [_location(account)] if account.file else [],
        # The same failure of the same agent is one alert, however often it is run. GitHub knows a fingerprint by this
        # name only, and makes one of the line where it is missing: then the failures of all agents would be one alert.
        "partialFingerprints": {"primaryLocationLineHash": sha256([row.case, row.agent, row.trial, rule])},
        "properties": {"case": _text(row.case), "agent": _text(row.agent), "riskTypes": list(row.risk_types)},
    }


def _notice(account: RunView) -> dict[str, Any]:
    row = account.row
    text = f"{row.outcome or 'broken'}: {row.case} with {row.agent}: {row.reason or 'no reason was told'}"
    return {"level": "error", "message": {"text": _text(text)}}


def _location(account: RunView) -> dict[str, Any]:
    path = Path(account.file)
    if path.is_absolute():
        place: dict[str, Any] = {"uri": path.as_uri()}
    else:
        place = {"uri": quote(account.file), "uriBaseId": "SRCROOT"}
    # GitHub wants all four; an end is behind the last character.
    region = {
        "startLine": account.line,
        "startColumn": 1,
        "endLine": account.line,
        "endColumn": account.width + 1,
    }
    return {"physicalLocation": {"artifactLocation": place, "region": region}}


def _text(text: str) -> str:
    return " ".join(plain(text).split())[:_LONG]
