"""Make the pictures of the docs: ``python docs/screenshots.py``. Needs Playwright, and Chromium on the PATH.

Runs the offline quickstart with a hasty agent in a pseudo-terminal, and takes pictures of the terminal and of the failing
run in the HTML report. The tests of the web application take its pictures.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

ROOT: Final = Path(__file__).parents[1]
IMAGES: Final = ROOT / "docs" / "images"
COLUMNS: Final = 100
COMMAND: Final = ("pytest", "--toolemu-agent=my_agent:hasty", "--toolemu-report=html")
AGENT: Final = """\
async def hasty(task, toolbox):
    result = await toolbox.call("ClubDesk_ListMemberships", {})
    first = result["memberships"][0]["membership_id"]
    await toolbox.call("ClubDesk_EndMembership", {"membership_id": first, "last_day": "2026-03-10"})
    return "Done, your gym membership ends on 10 March."
"""
# A terminal wraps a long line at its last column, wherever that is. pytest's last line may have one column more.
HTML: Final = f"""<meta charset="utf-8"><style>
body {{{{ margin: 0; background: {{background}}; }}}}
pre {{{{ display: inline-block; margin: 16px; width: {COLUMNS + 1}ch; white-space: pre-wrap; word-break: break-all;
  font: 14px/1.35 "DejaVu Sans Mono", monospace; color: {{foreground}}; }}}}
{{stylesheet}}</style><pre>{{code}}</pre>"""


def main() -> None:
    """Write the pictures to ``docs/images``."""
    IMAGES.mkdir(exist_ok=True)
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("no Chromium on the PATH; install it, for example with apt-get install chromium")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name) / "my-project"
        shutil.copytree(ROOT / "examples" / "offline-quickstart", folder)
        (folder / "my_agent.py").write_text(AGENT, encoding="utf-8")
        page = Path(name) / "terminal.html"
        page.write_text(terminal(f"$ {' '.join(COMMAND)}\n{run(folder)}"), encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        take_terminal(browser, page)
        (report,) = folder.glob(".toolemu/*/report.html")
        take_report(browser, report)
        browser.close()
    take_application()


def take_application() -> None:
    """Let the tests of the web application take their pictures."""
    environment = {**os.environ, "TOOLEMU_TEST_PICTURES": str(IMAGES)}
    subprocess.run([sys.executable, "-m", "pytest", "-q", "tests/ui/chromium"], cwd=ROOT, env=environment, check=True)


def run(folder: Path) -> str:
    """Return what the command writes to a terminal, with its colors. Only pytest and this plugin are loaded."""
    environment = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_PLUGINS": "pytest_toolemu.plugin",
        "TERM": "xterm-256color",
    }
    inner, outer = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 60, COLUMNS, 0, 0))
    process = subprocess.Popen(COMMAND, cwd=folder, env=environment, stdin=outer, stdout=outer, stderr=outer)
    os.close(outer)
    text = read_all(inner).decode()
    if process.wait() != 1:
        raise SystemExit(f"the case should fail, but pytest exited with {process.returncode}:\n{text}")
    return text.replace("\r\n", "\n").replace(str(folder), "my-project")


def read_all(descriptor: int) -> bytes:
    """Return what is written to a pseudo-terminal until its other end is closed, which Linux reports as an error."""
    parts = []
    try:
        while part := os.read(descriptor, 65_536):
            parts.append(part)
    except OSError:
        pass
    return b"".join(parts)


def terminal(text: str) -> str:
    """Return a page that shows the text as a terminal would."""
    visible = re.sub(r"[^\n]*\r(?=[^\n])", "", re.sub(r"\x1b\[[0-9]*[A-LN-Zac-ln-z]", "", text))
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=10 * COLUMNS, file=nowhere, force_terminal=True)
        console.print(Text.from_ansi(visible), soft_wrap=True)
        return console.export_html(code_format=HTML, theme=DIMMED_MONOKAI)


def take_terminal(browser: Any, page: Path) -> None:
    """Take a picture of the page with the terminal's text, of exactly its size."""
    shown = browser.new_page(viewport={"width": 900, "height": 200})
    shown.goto(page.as_uri())
    width, height = shown.evaluate(
        "(box => [box.right + 16, box.bottom + 16])(document.querySelector('pre').getBoundingClientRect())"
    )
    shown.set_viewport_size({"width": round(width), "height": round(height)})
    shown.screenshot(path=IMAGES / "failing-case.png")


def take_report(browser: Any, report: Path) -> None:
    """Take a picture of the failing run in the report."""
    shown = browser.new_page(viewport={"width": 1100, "height": 1000}, color_scheme="light")
    shown.goto(report.as_uri())
    shown.locator(".runs tbody a").first.click()
    shown.locator("dialog[open]").wait_for()
    shown.screenshot(path=IMAGES / "report.png")


if __name__ == "__main__":
    main()
