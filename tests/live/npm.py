"""Packages of npm in a folder of their own, below ``.live``, where they are kept."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("TOOLEMU_LIVE_FOLDER", ROOT / ".live"))


def installed(folder: Path, packages: tuple[str, ...]) -> Path:
    """Install packages into a folder, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text('{"private": true}')
    subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", *packages], cwd=folder, check=True)
    return folder
