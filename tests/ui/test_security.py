"""Only the browser that opened the printed URL may use the application, and only through its own pages."""

from __future__ import annotations

import re
from pathlib import Path
from socket import gethostname

import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from pytest_toolemu.ui.application import create_app
from pytest_toolemu.ui.context import UiContext
from pytest_toolemu.ui.security import access_rules
from tests.ui.applications import HOSTILE, NEWEST, ORIGIN, PORT, client_of, rules_of


def with_post(client: TestClient) -> TestClient:
    """Add a route that changes something."""
    client.app.routes.append(  # type: ignore[attr-defined]
        Route("/change", lambda request: PlainTextResponse(f"changed by {request.method}"), methods=["POST", "PUT"])
    )
    return client


def test_without_the_token_nothing_is_served(directory: Path) -> None:
    client = client_of(directory, is_open=False)
    for path in ("/", f"/sessions/{NEWEST}/runs", "/static/app.js", "/nothing"):
        answer = client.get(path)
        assert (answer.status_code, answer.text) == (
            401,
            "open the URL that toolemu ui printed: it contains a token\n",
        )
    answer = client.get("/?token=guess")
    assert answer.status_code == 401
    assert answer.text.startswith(
        "the token in the URL is not valid, or was used before: it opens the application once;"
    )
    assert client.get("/", headers={"cookie": f"toolemu_ui_{PORT}=guess"}).status_code == 401


def test_the_token_becomes_a_cookie_and_leaves_the_url(directory: Path) -> None:
    client = client_of(directory, is_open=False)
    rules = rules_of(client)
    token = rules.new_token()
    answer = client.get(f"/?outcome=failed&token={token}", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/?outcome=failed")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"toolemu_ui_{PORT}={rules.cookie};")
    assert {"HttpOnly", "SameSite=lax", "Path=/"} <= set(cookie.split("; "))
    assert token not in cookie
    assert client.get("/").status_code == 200
    # A path with two slashes would be another host.
    answer = client.get(f"{ORIGIN}//evil.example/?token={rules.new_token()}", follow_redirects=False)
    assert answer.headers["location"] == "/evil.example/"


def test_a_token_opens_one_browser_once(directory: Path) -> None:
    client = client_of(directory, is_open=False)
    rules = rules_of(client)
    first, second = rules.new_token(), rules.new_token()
    assert client.get(f"/?token={first}").status_code == 200
    assert client.get(f"/?token={first}").status_code == 200, "the same browser may open the URL again"
    client.cookies.clear()
    assert client.get(f"/?token={first}").status_code == 401
    assert client.get(f"/?token={second}").status_code == 200


def test_every_start_has_its_own_secrets(directory: Path) -> None:
    starts = [rules_of(client_of(directory)) for _ in range(2)]
    secrets = [secret for rules in starts for secret in (rules.new_token(), rules.cookie, rules.csrf)]
    assert len(set(secrets)) == 6
    assert not [secret for secret in secrets if secret in repr(starts)]


@pytest.mark.parametrize("host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1.evil.example", "", "[", "0.0.0.0"])
def test_another_host_is_refused(client: TestClient, host: str) -> None:
    answer = client.get("/", headers={"host": host})
    assert answer.status_code == 403
    assert answer.text == f"the host {host!r} is not served; open the URL that toolemu ui printed\n"


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_on_every_address_of_the_computer_it_is_served_under_each_of_them(directory: Path, address: str) -> None:
    rules = access_rules(address, PORT, read_only=True)
    client = TestClient(create_app(UiContext(directory, rules)), base_url=ORIGIN)
    for host in ("192.0.2.7", f"[2001:db8::1]:{PORT}", gethostname(), f"localhost:{PORT}"):
        assert client.get("/", headers={"host": host, "cookie": f"{rules.cookie_name}={rules.cookie}"}).is_success
    assert client.get("/", headers={"host": "evil.example"}).text.startswith("the host 'evil.example' is not served")


@pytest.mark.parametrize("host", [f"localhost:{PORT}", "127.0.0.1", "[::1]:9", "LOCALHOST"])
def test_every_name_of_loopback_is_served(client: TestClient, host: str) -> None:
    assert client.get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("origin", ["null", "http://evil.example", f"https://127.0.0.1:{PORT}", "http://127.0.0.1:1"])
def test_another_origin_is_refused(client: TestClient, origin: str) -> None:
    answer = client.get("/", headers={"origin": origin})
    assert answer.status_code == 403
    assert answer.text == f"requests from {origin!r} are not accepted; use the pages of this application\n"
    assert client.get("/", headers={"origin": ORIGIN}).status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_page_cannot_load_from_the_application(client: TestClient, site: str) -> None:
    answer = client.get("/static/app.js", headers={"sec-fetch-site": site, "sec-fetch-mode": "no-cors"})
    assert answer.status_code == 403
    assert answer.text == f"{site} requests are not accepted; use the pages of this application\n"


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_change_needs_the_csrf_token(directory: Path, method: str) -> None:
    client = with_post(client_of(directory))
    for headers in ({}, {"x-csrf-token": "guess"}, {"x-csrf-token": rules_of(client).cookie}):
        answer = client.request(method, "/change", headers=headers)
        assert answer.status_code == 403
        assert answer.text == "the CSRF token is missing or not valid; reload the page and repeat the action\n"
    (token,) = re.findall('name="csrf-token" content="([^"]+)"', client.get("/").text)
    assert client.request(method, "/change", headers={"x-csrf-token": token}).text == f"changed by {method}"


def test_read_only_refuses_every_change(directory: Path) -> None:
    client = with_post(client_of(directory, read_only=True))
    answer = client.post("/change", headers={"x-csrf-token": rules_of(client).csrf})
    assert answer.status_code == 403
    assert answer.text == "this application only shows; start toolemu ui without --read-only to change something\n"
    assert "read-only" in client.get("/").text


@pytest.mark.parametrize("path", ["/", "/static/app.css", "/nothing", "/?token=guess"])
def test_every_response_has_the_security_headers(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy.pop("default-src") == policy.pop("base-uri") == policy.pop("frame-ancestors") == "'none'"
    assert set(policy.values()) == {"'self'"}
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cache-control"] in ("no-store", "no-cache")


@pytest.mark.parametrize(
    "session", ["..", "..%2f..", "%2e%2e", "~.~.etc", NEWEST + "%00", NEWEST + "/../" + HOSTILE + "x"]
)
def test_no_path_leads_outside_the_run_directory(client: TestClient, session: str) -> None:
    assert client.get(f"/sessions/{session}/runs").status_code == 404


def test_no_record_or_file_outside_its_folder_is_served(client: TestClient) -> None:
    for name in ("session", "..%2fsession", "..%2f..%2fetc%2fpasswd", "parts"):
        assert client.get(f"/sessions/{NEWEST}/runs/{name}").status_code == 404
    for name in ("../context.py", "..%2fcontext.py", "vendor", "%2fetc%2fpasswd"):
        assert client.get(f"/static/{name}").status_code == 404


def test_links_in_the_run_directory_are_not_followed(tmp_path: Path, directory: Path) -> None:
    (tmp_path / "linked").symlink_to(directory / NEWEST)
    inner = tmp_path / "real"
    inner.mkdir()
    (inner / "session.json").write_text('{"session": "real"}')
    record = next((directory / NEWEST).glob("case-1--*.json"))
    (inner / record.name).symlink_to(record)
    client = client_of(tmp_path)
    assert "1 session</span> in" in client.get("/").text
    assert "No runs" in client.get("/sessions/real/runs").text
    assert client.get(f"/sessions/real/runs/{record.stem}").status_code == 404
