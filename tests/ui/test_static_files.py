"""The files that browsers load: their versions and licenses, and that none of them loads anything from outside."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import pytest_toolemu
from pytest_toolemu.ui.context import asset_url, static_files

TEMPLATES = Path(pytest_toolemu.__file__).parent / "ui" / "templates"

VENDORED = {
    "ace/ace.css": "ace-builds 1.45.2",
    "ace/ace.js": "ace-builds 1.45.2",
    "ace/ext-language_tools.js": "ace-builds 1.45.2",
    "ace/ext-searchbox.js": "ace-builds 1.45.2",
    "ace/mode-yaml.js": "ace-builds 1.45.2",
    "chart.min.js": "Chart.js 4.6.1",
    "htmx.min.js": "htmx.org 2.0.11",
    "idiomorph.min.js": "idiomorph 0.8.0",
}
HASHES = {
    "ace/ace.css": "2272e3f6e5efac0fed1e2d4815fe2c3223fd6cda22aab6cd397fe6881f49ec13",
    "ace/ace.js": "6430923a29a3d30f94eb321700a56ec12cb8060270831632087d166bbac7aca9",
    "ace/ext-language_tools.js": "799e3a3746f74240d7fbb1a38e525fa01b9718a207f3a50a2550111e11b3a560",
    "ace/ext-searchbox.js": "427ec52caf01e02536f8429adeb2baee82cdd122f2c25cf01663959734019773",
    "ace/mode-yaml.js": "24faa242ac5085656ff0b9fe283edc8d8565c2ad84f5a824b5868eb5a7ca5cb3",
    "chart.min.js": "87364cc2b2a76a6684929e7d6b80b18a897794db38400caff1fcf1791c6925d2",
    "htmx.min.js": "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717",
    "idiomorph.min.js": "4cbd535caf7663a51eda9bce6595371c384fc430d54b8d414e29a61167f19f96",
}


@pytest.mark.parametrize("name", VENDORED)
def test_a_vendored_script_is_the_published_one_with_its_license(name: str) -> None:
    files = static_files()
    assert sha256(files[f"vendor/{name}"]).hexdigest() == HASHES[name], VENDORED[name]
    license_name = "ace/ace" if name.startswith("ace/") else name.removesuffix(".min.js")
    license_text = files[f"vendor/{license_name}.LICENSE.txt"].decode()
    grants = ("Permission is hereby granted", "Permission to use, copy, modify", "Redistribution and use in source")
    assert any(grant in license_text for grant in grants)


def test_no_other_file_is_vendored() -> None:
    scripts = {
        name.removeprefix("vendor/")
        for name in static_files()
        if name.startswith("vendor/") and name.endswith((".js", ".css"))
    }
    assert scripts == set(VENDORED)


def test_templates_and_own_files_have_no_inline_script_or_style_and_no_foreign_url() -> None:
    own = {name: content.decode() for name, content in static_files().items() if not name.startswith("vendor/")}
    own |= {path.name: path.read_text(encoding="utf-8") for path in TEMPLATES.glob("*.j2")}
    assert len(own) > 8
    for name, text in own.items():
        urls = set(re.findall(r"https?://[\w.]+", text)) - {"http://www.w3.org"}
        assert urls == set(), name
        assert not re.search(r"@import|url\(|\son\w+=|\shx-on|\sstyle=|<style", text), name
        assert not re.search(r"<script(?! src=| type=\"application/json\")", text), name
        assert "|safe" not in text, name


def test_browsers_keep_a_file_until_it_changes(client: TestClient) -> None:
    answer = client.get(asset_url("app.js"))
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert answer.headers["cache-control"] == "private, max-age=31536000, immutable"
    assert client.get("/static/app.js?v=old").headers["cache-control"] == "no-cache"
    assert client.get(asset_url("vendor/chart.min.js")).status_code == 200
