"""A session in which all components echo secrets: no output contains any of them, in any form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.loopback import Fault, Reply, Request
from tests.loopback.fixtures import Loopback
from tests.loopback.records import Answer
from tests.plugin.conftest import ALWAYS_UNUSED, Project
from tests.secret_forms import echoes

SECRETS = {
    "OPENAI_API_KEY": "/canary1<&>+=%",
    "DB_PASSWORD": "canary-2 pässwörd😀",
    "A_TOKEN": "cn3-7788",
    "OPENAI_ORG_ID": "org-canary-4",
}
ALL = (*SECRETS.values(), "canary-5-header", "canary-6-pass")

AGENT = """
import json, logging, os, sys, threading, time, warnings
from pathlib import Path

library = logging.getLogger("library")

def echoed():
    return json.loads(Path(os.environ["CANARIES"]).read_text())

async def agent(task, toolbox):
    for text in echoed():
        print("out", text)
        print("err", text, file=sys.stderr)
        library.debug("log %s", text)
        warnings.warn(f"warning {text}")
        await toolbox.call("Till_Pay", {"who": text, "amount": 1, text: [text]})
    first = echoed()[0]
    sys.stdout.write(first[:5])
    sys.stdout.write(first[5:])
    try:
        raise KeyError(first)
    except KeyError:
        library.exception("caught %s", first)
    os.environ.pop("OPENAI_API_KEY", None)
    if "Bert" in task:
        raise RuntimeError(" ".join(echoed()))
    return " ".join(echoed())
"""

OWN_TEST = """
import actors

def test_that_fails():
    text = " ".join(actors.echoed())
    print(text)
    assert text == ""
"""


def outputs(project: Project, result: pytest.RunResult, inputs: set[Path]) -> dict[str, str]:
    """Return the contents of all files that a session wrote, by name."""
    files = [
        path for path in project.path.rglob("*") if path.is_file() and path not in inputs and path.suffix != ".pyc"
    ]
    texts = {str(path.relative_to(project.path)): path.read_text(errors="replace") for path in files}
    return {**texts, "stdout": result.stdout.str(), "stderr": result.stderr.str()}


def test_no_output_contains_a_secret_in_any_form(
    project: Project, loopback: Loopback, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Gateway: canary-5-header")
    monkeypatch.setenv("DATABASE_URL", "postgres://admin:canary-6-pass@host/db")
    canaries = [text for value in ALL for text in echoes(value)]
    file = tmp_path_factory.mktemp("canaries") / "canaries.json"
    file.write_text(json.dumps(canaries))
    monkeypatch.setenv("CANARIES", str(file))

    def echo(request: Request) -> Answer:
        if "Bert" in request.prompt:
            return Fault(status=400, message=" ".join([*canaries, *request.headers.values()]))
        return Reply(text=" ".join(canaries))

    project.unused = ALWAYS_UNUSED
    project.write("actors.py", AGENT)
    project.write("test_custom.py", OWN_TEST)
    inputs = {path for path in project.path.rglob("*") if path.is_file()}
    result = project.run(
        "--toolemu-agent=actors:agent",
        f"--toolemu-agent=openai:gpt-4o@{loopback(echo).url}/v1",
        "--toolemu-emulator=offline",
        "--toolemu-evaluator=checks",
        "--toolemu-max-steps=500",
        *(f"--toolemu-report={form}" for form in ("html", "md", "json", "csv")),
        "--toolemu-record=all",
        "--alluredir=allure",
        "--junitxml=junit.xml",
        "-o",
        "junit_logging=all",
        "--log-cli-level=DEBUG",
        "--log-file=log.txt",
        "--log-file-level=DEBUG",
        "--showlocals",
        "-vv",
        "-rA",
    )
    result.assert_outcomes(failed=3, errors=2)
    monkeypatch.undo()  # otherwise, the message of a failure of this test would be redacted
    contents = outputs(project, result, inputs)
    for value in ALL:
        for text in echoes(value):
            leaks = [(name, content.partition(text)[0][-80:]) for name, content in contents.items() if text in content]
            assert not leaks, text
    everything = "\n".join(contents.values())
    for name in (*SECRETS, "OPENAI_CUSTOM_HEADERS", "DATABASE_URL"):
        assert f"[{name} redacted]" in everything
    # Each of these outputs exists and contains the redacted echo.
    for ending in ("stdout", "log.txt", "junit.xml", "report.html", "report.md", "report.json", "report.csv"):
        content = next(content for name, content in contents.items() if name.endswith(ending))
        assert "redacted]" in content, ending
    assert any("recordings" in name and "redacted]" in content for name, content in contents.items())
    assert any(name.startswith("allure") and "redacted]" in content for name, content in contents.items())


@pytest.mark.parametrize(
    "spec",
    [
        "sk-proj-canary0123456789",
        "openai:sk-ant-canary0123456789",
        "openai:sk-ant-canary0123456789@http://127.0.0.1:9/v1",
        "canary" + "0123abcd" * 4,
    ],
)
@pytest.mark.parametrize("option", ["agent", "emulator", "evaluator"])
def test_a_key_in_place_of_a_model_is_refused_and_not_shown(alone: Project, option: str, spec: str) -> None:
    result = alone.run(f"--toolemu-{option}={spec}", "-v")
    output = result.stdout.str() + result.stderr.str()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"--toolemu-{option}: the value looks like an API key, not a model name; put the key in" in output
    assert "canary" not in output


@pytest.mark.parametrize(
    "url", ["https://u:canary-pass@host/v1", "https://host/v1?api_key=canary-key", "u:canary-pw@host"]
)
def test_a_credential_in_the_address_of_a_model_is_refused_and_not_shown(alone: Project, url: str) -> None:
    result = alone.run(f"--toolemu-agent=openai:gpt-4o@{url}", "--collect-only", "-v")
    output = result.stdout.str() + result.stderr.str()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--toolemu-agent: the base URL contains a user name, a password, or a key, and URLs are recorded" in output
    assert "canary" not in output


def test_a_value_that_is_too_short_for_a_secret_is_reported(alone: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_TOKEN", "q")
    result = alone.run("--toolemu-agent=reference:safe")
    result.stdout.fnmatch_lines(
        [
            "toolemu: warning: the value of CANARY_TOKEN is too short or too common to be a secret, and is not redacted; *"
        ]
    )
    assert "CANARY_TOKEN redacted" not in result.stdout.str()


def test_output_of_sessions_without_cases_is_unchanged(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_TOKEN", "canary-0123456789")
    pytester.makepyfile("def test_it():\n    print('canary-0123456789')\n    assert False\n")
    assert "canary-0123456789" in pytester.runpytest_subprocess("-p", "no:cacheprovider").stdout.str()
