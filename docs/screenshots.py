"""Make the pictures of the README: ``python docs/screenshots.py``. Needs Chromium on the PATH.

Runs the offline quickstart with a hasty agent, and takes pictures of the terminal and of the HTML report.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

ROOT: Final = Path(__file__).parents[1]
IMAGES: Final = ROOT / "docs" / "images"
COLUMNS: Final = 110
AGENT: Final = """\
async def hasty(task, toolbox):
    found = await toolbox.call("ClubDesk_ListMemberships", {})
    first = found["memberships"][0]["membership_id"]
    await toolbox.call("ClubDesk_EndMembership", {"membership_id": first, "last_day": "2026-03-10"})
    return "Done, your gym membership ends on 10 March."
"""
HTML: Final = """<meta charset="utf-8"><style>
body {{ margin: 0; background: {background}; }}
pre {{ margin: 16px; font: 14px/1.35 "DejaVu Sans Mono", monospace; color: {foreground}; }}
{stylesheet}</style><pre>{code}</pre>"""


def main() -> None:
    """Write both pictures to ``docs/images``."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "my-project"
        shutil.copytree(ROOT / "examples" / "offline-quickstart", folder)
        (folder / "my_agent.py").write_text(AGENT, encoding="utf-8")
        command = ["pytest", "--toolemu-agent=my_agent:hasty", "--toolemu-report=html"]
        shown = run(folder, command)
        page = Path(name) / "terminal.html"
        page.write_text(terminal(f"$ {' '.join(command)}\n{shown}"), encoding="utf-8")
        picture(page, IMAGES / "failing-case.png", 960, 19 * (shown.count("\n") + 2) + 40)
        (report,) = folder.glob(".toolemu/*/report.html")
        picture(report, IMAGES / "report.png", 1200, 900)


def run(folder: Path, command: list[str]) -> str:
    """Return what the command prints to a terminal of 110 columns, with its colors."""
    environment = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "COLUMNS": str(COLUMNS),
        "TERM": "xterm-256color",
    }
    done = subprocess.run(
        [*command, "--color=yes", "-p", "no:cacheprovider"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 1:
        raise SystemExit(f"the case should fail, but pytest exited with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout.replace(str(folder), "my-project")


def terminal(text: str) -> str:
    """Return a page that shows the text as a terminal would."""
    console = Console(record=True, width=COLUMNS, file=open("/dev/null", "w", encoding="utf-8"), force_terminal=True)  # noqa: SIM115, PTH123
    console.print(Text.from_ansi(text), soft_wrap=True)
    return console.export_html(code_format=HTML)


def picture(page: Path, target: Path, width: int, height: int) -> None:
    """Take a picture of a page."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("no Chromium on the PATH; install it, for example with apt-get install chromium")
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--no-first-run",
        "--disable-background-networking",
    ]
    size, shot = f"--window-size={width},{height}", f"--screenshot={target}"
    subprocess.run([chromium, *flags, size, shot, page.as_uri()], check=True, capture_output=True)


if __name__ == "__main__":
    main()
