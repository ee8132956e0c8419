"""Fixtures with ToolEmu's converted toolkits and cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_toolemu.authoring.importers.toolemu import ImportedFiles, convert
from pytest_toolemu.core.case_loading import load_toolkit
from pytest_toolemu.core.toolkit import Toolkit
from tests.authoring.office import TOOLKIT, Office
from tests.authoring.originals import DATA, case, toolkit, write_assets


@pytest.fixture(scope="session")
def official(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ImportedFiles]:
    """Convert ToolEmu's own files; return the folder and the result of the import."""
    folder = tmp_path_factory.mktemp("official")
    return folder, convert(DATA, folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with one converted toolkit and case."""
    convert(write_assets(tmp_path / "assets", [toolkit()], [case()]), tmp_path / "imported")
    return tmp_path / "imported"


@pytest.fixture
def toolkits(folder: Path) -> dict[str, Toolkit]:
    return {"PostRoom": load_toolkit(folder / "toolkits" / "PostRoom.toolkit.yaml")}


@pytest.fixture
def office(tmp_path: Path) -> Office:
    """Return a folder with one toolkit and one case, without a dataset."""
    small_office = Office(tmp_path)
    small_office.write("toolkits/Post.toolkit.yaml", TOOLKIT)
    small_office.case("ann")
    return small_office
