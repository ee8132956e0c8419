"""The built documentation site: quiet build, no request to another host, and readable on a phone in both color schemes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.browser import opened
from tests.built_once import built_once

ROOT = Path(__file__).parents[2]


class SiteHandler(SimpleHTTPRequestHandler):
    """A file server without a log. The browser keeps all files but the search index, which is empty after the first time.

    Each page would build the same search index again.
    """

    protocol_version = "HTTP/1.1"
    index_was_sent = False

    def do_GET(self) -> None:
        if not self.path.endswith("search_index.json"):
            super().do_GET()
        elif not SiteHandler.index_was_sent:
            SiteHandler.index_was_sent = True
            super().do_GET()
        else:
            index = json.dumps({"config": {}, "docs": []}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(index)))
            self.end_headers()
            self.wfile.write(index)

    def end_headers(self) -> None:
        is_kept = not self.path.endswith("search_index.json")
        self.send_header("Cache-Control", "max-age=3600" if is_kept else "no-store")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_once(tmp_path_factory, "site", build)


def build(folder: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SiteHandler, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with opened() as browser:
        yield browser


def test_every_page_of_the_sources_is_in_the_navigation(site: Path) -> None:
    home = (site / "index.html").read_text(encoding="utf-8")
    missing = [
        str(page.relative_to(ROOT))
        for page in (ROOT / "docs").rglob("*.md")
        if page.name != "index.md" and f'href="{page.relative_to(ROOT / "docs").with_suffix("")}/"' not in home
    ]
    assert missing == []


WORDS = [
    "regression",
    "langsmith",
    "langfuse",
    "pass@k",
    "flaky",
    "timeout",
    "cost",
    "budget",
    "rate limit",
    "proxy",
    "azure",
    "ollama",
    "openrouter",
    "vllm",
    "langchain",
    "langgraph",
    "pydantic ai",
    "claude",
    "mcp",
    "docker",
    "kubernetes",
    "slurm",
    "gitlab",
    "jenkins",
    "junit",
    "github actions",
    "prompt injection",
    "jailbreak",
    "red team",
    "hallucination",
    "llm as a judge",
    "custom metric",
    "human labels",
    "multi-turn",
    "user simulation",
    "function calling",
    "dry run",
    "notebook",
    "confidence interval",
    "baseline",
    "replay",
    "xdist",
    "opentelemetry",
    "inspect",
    "windows",
    "parametrized",
    "kappa",
]


def test_the_search_knows_the_words_of_other_tools(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    text = " ".join(f"{page['title']} {page['text']}" for page in index["docs"]).casefold()
    assert [word for word in WORDS if word not in text] == []


# The theme draws a page in the scheme that this attribute names. A page that is measured in two schemes at once is drawn
# once.
SCHEMES_TOO_WIDE = """() => {
    const root = document.documentElement, scheme = document.body.dataset.mdColorScheme;
    const tooWide = ["default", "slate"].filter((name) => {
        document.body.dataset.mdColorScheme = name;
        return root.scrollWidth > root.clientWidth;
    });
    document.body.dataset.mdColorScheme = scheme;
    return tooWide;
}"""


def test_no_page_needs_another_host_or_is_wider_than_a_phone(site: Path, address: str, browser: Any) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="light")
    requested: list[str] = []
    responses: list[Any] = []
    page = context.new_page()
    context.on("request", lambda request: requested.append(request.url))
    context.on("response", lambda response: responses.append(response))  # noqa: PLW0108 - Playwright marks its handlers
    too_wide = {}
    for file in sorted(site.rglob("index.html")):
        where = file.parent.relative_to(site).as_posix()
        page.goto(f"{address}/{where}/")
        if schemes := page.evaluate(SCHEMES_TOO_WIDE):
            too_wide[where] = schemes
    assert {url for url in requested if not url.startswith((address, "data:", "blob:"))} == set()
    assert {response.url for response in responses if response.status >= 400} == set()
    assert too_wide == {}
    context.close()


def test_a_page_follows_the_color_scheme_of_the_system(address: str, browser: Any) -> None:
    page = browser.new_page(color_scheme="light")
    page.goto(f"{address}/")
    for scheme, name in (("light", "default"), ("dark", "slate")):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_function("name => document.body.dataset.mdColorScheme === name", arg=name)
    page.close()
