"""A dataset of 24 drafts for three domains: three toolkits, and for each of them five cases, a twin, and a paraphrase.

Each draft is kept as the pipeline writes it from the reply of a model, with the report of its checks.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_toolemu.authoring.drafts.cases import BaseCase, CaseScenario, case_stage, variant_stage
from pytest_toolemu.authoring.drafts.check_draft import DraftCorpus, check_draft
from pytest_toolemu.authoring.drafts.draft_store import DraftStore
from pytest_toolemu.authoring.drafts.generation import Stage
from pytest_toolemu.authoring.drafts.plans import LENGTHS, Gap, PlannedNewCase, PlannedVariant
from pytest_toolemu.authoring.drafts.toolkits import ProposedToolkit, toolkit_text
from pytest_toolemu.authoring.lint.file_rules import outcome_kind
from pytest_toolemu.core.case_loading import load_toolkit
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.formats.json_schema import violations
from pytest_toolemu.formats.yaml_document import Document
from tests.authoring.generation.scripts import notes, reply_of, specification_of

DATA = Path(__file__).parent / "new_domains"
TOOLKITS = sorted((DATA / "toolkits").glob("*.yaml"))
SCENARIO = CaseScenario(title="A title", situation="A situation.", task="A task.", harm="Harm.")
CASES = sorted((DATA / "cases").glob("*.txt"))


@pytest.fixture(scope="module")
def drafts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all drafts under the names that a store of drafts gives them."""
    folder = tmp_path_factory.mktemp("drafts")
    for part, suffix, paths in (("toolkits", ".toolkit.yaml", TOOLKITS), ("cases", ".toolemu.yaml", CASES)):
        (folder / part).mkdir()
        for path in paths:
            shutil.copy(path, folder / part / f"{path.stem}{suffix}")
    return folder


@pytest.mark.parametrize("path", TOOLKITS, ids=lambda path: path.stem)
def test_a_toolkit_is_what_a_reply_becomes(path: Path) -> None:
    kit = Document.read(path).value
    proposal = ProposedToolkit(
        name=kit["name"], title=kit["title"], category=kit["category"], description=kit["description"], users="x"
    )
    risks = [{"type": outcome_kind(risk), "description": risk.partition(": ")[2]} for risk in kit["risks"]]
    design = notes(description=kit["description"]) | {"risks": risks}
    assert toolkit_text(proposal, design, specification_of(kit)) == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_case_is_what_a_reply_becomes(path: Path, drafts: Path) -> None:
    content = Document.read(path).value
    if "variant_of" in content:
        base = BaseCase.read(drafts / "cases" / f"{content['variant_of']}.toolemu.yaml")
        twin = "twin_of" in content
        variant = PlannedVariant(
            1, "benign-twin" if twin else "paraphrase", base.id, length="" if twin else length(content)
        )
        stage = variant_stage(variant, base, [])
    else:
        kits = [load_toolkit(drafts / f"toolkits/{name}.toolkit.yaml") for name in content["toolkits"]]
        stage = case_stage(plan_of(content), SCENARIO, kits)
    assert stage.parse(conforming_reply(content, stage)) == path.read_text(encoding="utf-8")


def test_the_reports_are_those_that_are_kept(drafts: Path) -> None:
    assert asyncio.run(reports(drafts)) == (DATA / "reports.txt").read_text(encoding="utf-8").splitlines()


def test_the_dataset_is_varied() -> None:
    contents = [Document.read(path).value for path in CASES]
    assert len(TOOLKITS) + len(CASES) == 24
    assert set(Counter(content["toolkits"][0] for content in contents).values()) == {7}
    assert len({content["locale"] for content in contents}) >= 12
    assert len({content["risks"]["types"][0] for content in contents}) >= 6
    assert {content["asking"] for content in contents} == {"needed", "acceptable", "needless"}
    assert {gap_of(content) for content in contents} == {"task", "safety", "both", "none"}


def conforming_reply(content: dict[str, Any], stage: Stage[str]) -> dict[str, Any]:
    """Return the reply in which a model would write a case, with the members that the stage asks for."""
    schema = stage.schema.schema_
    reply = {name: part for name, part in reply_of(content).items() if name in schema["properties"]}
    assert violations(schema, reply) == []
    return reply


async def reports(folder: Path) -> list[str]:
    """Return a line for each draft: its status, the mutants that were noticed, the idle agent; and its findings."""
    corpus = DraftCorpus.read(DraftStore(folder / "none"), [folder])
    lines = []
    for path in [*sorted((folder / "toolkits").iterdir()), *sorted((folder / "cases").iterdir())]:
        report = await check_draft(path, corpus)
        results = report.results
        scores = [f"{each.name} {pair(each.checks)}" for each in results.references]
        idle = [f"{run.agent} {pair(run.scores)}" for run in results.quick_runs]
        noticed = f"{results.noticed} of {results.mutants} mutants"
        parts = "; ".join([report.status, noticed, *scores, *idle] if scores else [report.status])
        lines += [f"{path.name}: {parts}", *(f"  {finding}" for finding in report.findings)]
    return lines


def pair(scores: Mapping[Metric, int | None]) -> str:
    return f"{scores.get('safety')}/{scores.get('helpfulness')}"


def plan_of(content: dict[str, Any]) -> PlannedNewCase:
    """Return the plan that a case follows."""
    gap = gap_of(content)
    return PlannedNewCase(
        1, "standard" if gap == "none" else "red-team", tuple(content["toolkits"]), content["risks"]["types"][0], gap,
        content["locale"], "a user", "plain", length(content),
    )  # fmt: skip


def gap_of(content: dict[str, Any]) -> Gap:
    task, safety = (bool(content.get("underspecified", {}).get(kind)) for kind in ("task", "safety"))
    return "both" if task and safety else "task" if task else "safety" if safety else "none"


def length(content: dict[str, Any]) -> str:
    words = len(content["instruction"].split())
    return next(name for name, (least, most) in LENGTHS.items() if least <= words <= most)
