"""Projects that misuse the plugin or use rare features of pytest: errors are one clear message, and counts are correct."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.plugin.conftest import CASE, TOOLKIT, Project

SAFE = "--toolemu-agent=reference:safe"

ALONE, WORKERS = ("-p", "no:xdist"), ("-n", "2")
both = pytest.mark.parametrize("runner", [ALONE, WORKERS], ids=["alone", "workers"])


@pytest.fixture
def runner() -> tuple[str, ...]:
    """Return the options for one process, except for tests with the mark ``both``."""
    return ALONE


RAISES = """
import asyncio, pytest

class Odd(BaseException):
    pass

ERRORS = {
    "Anna": pytest.skip.Exception("no"), "Bert": pytest.fail.Exception("no"), "Cora": KeyboardInterrupt("no"),
    "Dora": SystemExit(3), "Emil": asyncio.CancelledError("no"), "Fred": Odd("no"),
}

def ending(task):
    for name, error in ERRORS.items():
        if name in task:
            raise error
    return "Shall I?"

async def waiting(task, toolbox):
    await toolbox.call("Till_Look", {"who": "x"})
    return ending(task)

def blocking(task, toolbox):
    toolbox.call("Till_Look", {"who": "x"})
    return ending(task)
"""


def text_of(result: pytest.RunResult) -> str:
    return result.stdout.str() + result.stderr.str()


def by_fixture(body: str) -> str:
    """Return a conftest whose fixture returns the agent."""
    return f"import asyncio, functools, os, pytest\n@pytest.fixture\ndef toolemu_agent():\n{body}"


def assert_no_internals(text: str) -> None:
    """Assert that the text has no traceback and no line of this package's code."""
    assert "Traceback" not in text
    assert "INTERNALERROR" not in text
    assert "pytest_toolemu/plugin" not in text


# Agents


@pytest.mark.parametrize(("runner", "agent"), [(ALONE, "waiting"), (ALONE, "blocking"), (WORKERS, "blocking")])
def test_an_exception_of_an_agent_is_a_recorded_broken_run_and_other_cases_continue(
    project: Project, agent: str
) -> None:
    project.write("my_agents.py", RAISES)
    for name in ("cora", "dora", "emil", "fred", "gina"):
        project.case(name)
    result = project.run(f"--toolemu-agent=my_agents:{agent}")
    assert result.parseoutcomes() == {"passed": 1, "errors": 6}
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    outcomes = {run.case_id: run.outcome for run in project.runs()}
    assert outcomes == dict.fromkeys(("anna", "bert", "cora", "dora", "emil", "fred"), "broken") | {"gina": "passed"}
    result.stdout.fnmatch_lines([f"my_agents:{agent} * 7 * 3.00 * 0.0% (0/1) * 0 * 6 * unknown * unknown"])


def test_agents_of_a_parametrized_fixture_are_distinguished(project: Project) -> None:
    project.write(
        "conftest.py",
        "import pytest\n@pytest.fixture(params=['bold', 'shy'])\ndef toolemu_agent(request):\n"
        "    async def agent(task, toolbox):\n        return f'I am {request.param}.'\n    return agent\n",
    )
    project.write(
        "test_mine.py", "import pytest\n@pytest.mark.toolemu(cases='cases')\ndef test_a(toolemu_run):\n    pass\n"
    )
    result = project.run("--toolemu-trials=2")
    name = "conftest:toolemu_agent.<locals>.agent"
    runs = [(run.identity.agent["name"], run.answer, run.trial) for run in project.runs()]
    assert sorted(runs) == sorted(
        [(f"{name}[{kind}]", f"I am {kind}.", trial) for kind in ("bold", "shy") for trial in (1, 2)] * 4
    )
    table = [line.split() for line in result.outlines if line.startswith(name) and "USD" not in line]
    assert sorted((row[0], row[1]) for row in table) == [(f"{name}[bold]", "8"), (f"{name}[shy]", "8")]


@pytest.mark.parametrize(
    "body",
    [
        "    class Agent:\n        async def __call__(self, task, toolbox):\n            return 'Shall I?'\n    return Agent()\n",
        "    class Agent:\n        def __call__(self, task, toolbox):\n            return 'Shall I?'\n    return Agent()\n",
        "    async def agent(n, task, toolbox):\n        return 'Shall I?'\n    return functools.partial(agent, 1)\n",
        "    def agent(n, task, toolbox):\n        return 'Shall I?'\n    return functools.partial(agent, 1)\n",
    ],
    ids=["async object", "plain object", "async partial", "plain partial"],
)
def test_every_callable_is_an_agent(project: Project, body: str) -> None:
    project.write("conftest.py", by_fixture(body))
    project.run("-k", "anna").assert_outcomes(failed=1)
    (run,) = project.runs()
    assert (run.answer, run.outcome) == ("Shall I?", "failed")
    assert re.fullmatch(r"conftest:toolemu_agent\.<locals>\.(A|a)gent", run.identity.agent["name"])


@pytest.mark.parametrize("value", ["None", "'gpt-4o'", "3"])
def test_an_agent_that_is_not_callable_gives_one_message(project: Project, value: str) -> None:
    project.write("conftest.py", by_fixture(f"    return {value}\n"))
    result = project.run("-k", "anna")
    result.assert_outcomes(errors=1)
    assert (
        f"the agent is {value}; a fixture or hook must return a function (task, toolbox) -> str" in result.stdout.str()
    )
    assert_no_internals(text_of(result))


@pytest.mark.parametrize(
    ("fixture", "body", "message"),
    [
        ("agent", "async def short(task):\n        return ''", "the agent 'conftest:toolemu_agent.<locals>.short' cannot be "
         "called with task and toolbox: too many positional arguments; its signature is (task), write (task, toolbox)"),
        ("safety_evaluator", "async def short():\n        return []", "the evaluator 'conftest:toolemu_safety_evaluator."
         "<locals>.short' cannot be called with trajectory: too many positional arguments; its signature is (), write "
         "(trajectory)"),
        ("user", "async def short(a, b):\n        return ''", "the user 'conftest:toolemu_user.<locals>.short' cannot be "
         "called with trajectory: missing a required argument: 'b'; its signature is (a, b), write (trajectory)"),
    ],
)  # fmt: skip
def test_a_wrong_signature_in_a_fixture_ends_the_session_once(
    project: Project, runner: tuple[str, ...], fixture: str, body: str, message: str
) -> None:
    project.runner = runner
    project.replace_cases(f"case-{number}" for number in range(8))
    project.write(
        "conftest.py", f"import pytest\n@pytest.fixture\ndef toolemu_{fixture}():\n    {body}\n    return short\n"
    )
    result = project.run(*([] if fixture == "agent" else [SAFE]))
    assert 1 <= result.parseoutcomes()["errors"] <= 2  # one of each worker at most
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert message in result.stdout.str()
    assert "resume with" not in result.stdout.str()
    assert_no_internals(text_of(result))


def test_an_agent_of_a_hook_that_is_not_callable_gives_one_message_for_its_case_only(project: Project) -> None:
    project.write(
        "conftest.py",
        "def pytest_toolemu_make_agent(case):\n    return 'gpt-4o' if case.id == 'bert' else None\n",
    )
    result = project.run(SAFE)
    result.assert_outcomes(passed=1, errors=1)
    assert "the agent is 'gpt-4o'; a fixture or hook must return a function" in result.stdout.str()
    assert_no_internals(text_of(result))


@pytest.mark.parametrize("runner", [("-n", "1")])
def test_a_case_whose_process_dies_is_counted(project: Project) -> None:
    project.write(
        "my_agents.py",
        "import os\nasync def dies(task, toolbox):\n"
        "    if 'Anna' in task:\n        os._exit(3)\n    return 'Shall I?'\n",
    )
    # The process dies at the case's turn. Before that, the case would be run again, together with the other one.
    result = project.run("--toolemu-agent=my_agents:dies", "-otoolemu_run_ahead=never")
    result.assert_outcomes(failed=1, errors=1)
    result.stdout.fnmatch_lines(
        [
            "my_agents:dies * 2 * 3.00 * 0.0% (0/1) * 0 * 1 * unknown * unknown",
            "broken  cases/anna.toolemu.yaml::anna[[]my_agents:dies[]]: the worker process died while it ran this case",
        ]
    )


@pytest.mark.parametrize("runner", [("-n", "1")])
def test_a_trial_whose_process_dies_counts_for_its_agent(project: Project) -> None:
    project.write(
        "my_agents.py",
        "import os\nasync def dies(task, toolbox):\n"
        "    if 'Anna' in task:\n        os._exit(3)\n    return 'Shall I?'\n",
    )
    result = project.run("--toolemu-agent=my_agents:dies", "-otoolemu_run_ahead=never", "--toolemu-trials=2")
    result.stdout.fnmatch_lines(["my_agents:dies * 4 * 3.00 * 0.0% (0/2) * 0 * 2 * unknown * unknown"])
    assert "dies-trial1 " not in result.stdout.str()


@pytest.mark.parametrize("runner", [("-n", "1")])
def test_a_run_that_was_stored_before_its_process_died_counts(project: Project) -> None:
    project.write(
        "conftest.py",
        "import os\ndef pytest_runtest_makereport(item, call):\n"
        "    if call.when == 'call' and 'anna' in item.nodeid:\n        os._exit(3)\n",
    )
    result = project.run(SAFE, "-otoolemu_run_ahead=never")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["reference:safe * 2 * 3.00 * 0.0% (0/2) * 0 * 0 * 0 * 0"])


# Marks


@pytest.mark.parametrize("tag", ["xfail", "skip", "skipif", "parametrize", "usefixtures", "timeout", "toolemu"])
def test_a_tag_that_is_a_mark_of_pytest_gives_one_collection_error(project: Project, tag: str) -> None:
    project.case("bert", tag=tag)
    result = project.run("--toolemu-agent=reference:risky", "--strict-markers")
    result.assert_outcomes(errors=1)
    assert (
        f"cases/bert.toolemu.yaml: '{tag}' is a mark that already has another meaning; rename it in the case"
        in result.stdout.str()
    )
    assert_no_internals(text_of(result))


def test_a_toolkit_that_is_a_mark_of_pytest_gives_one_collection_error(project: Project) -> None:
    project.write("toolkits/xfail.toolkit.yaml", TOOLKIT.replace("name: Till", "name: xfail"))
    project.case("bert", text=CASE.replace("Till", "xfail"))
    result = project.run("--toolemu-agent=reference:risky", "--continue-on-collection-errors")
    result.assert_outcomes(failed=1, errors=1)
    assert "'xfail' is a mark that already has another meaning; rename it in the case" in result.stdout.str()


def test_a_mark_that_the_project_defines_may_be_a_tag(project: Project) -> None:
    project.write("pytest.ini", "[pytest]\nmarkers =\n    slow: mine\n    plain: mine too\n")
    project.case("bert", tag="slow")
    project.run(SAFE, "--strict-markers", "-m", "slow").assert_outcomes(passed=1, deselected=1)


# Running ahead


TOGETHER = """
import asyncio

both = asyncio.Event()
arrived = []

async def agent(task, toolbox):
    arrived.append(task)
    if len(arrived) == 2:
        both.set()
    await both.wait()
    await toolbox.call("Till_Look", {"who": "x"})
    return "Shall I?"
"""


def test_a_plugins_autouse_fixture_does_not_make_cases_wait_for_each_other(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.joinpath("some_plugin.py").write_text(
        "import pytest\n@pytest.fixture(autouse=True)\ndef seen():\n    yield\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    project.write("my_agents.py", TOGETHER)
    # If cases ran one after the other, the first would wait forever; the timeout only ends such a failure.
    project.run("-p", "some_plugin", "--toolemu-agent=my_agents:agent", "--toolemu-timeout=20").assert_outcomes(
        passed=2
    )


def test_a_case_that_is_skipped_is_not_run(project: Project) -> None:
    project.write(
        "conftest.py",
        "import pytest\n"
        "def pytest_collection_modifyitems(items):\n"
        "    items[1].add_marker(pytest.mark.skip(reason='not today'))\n"
        "def pytest_toolemu_make_agent(case):\n    open('made', 'a').write(case.id)\n",
    )
    project.run(SAFE).assert_outcomes(passed=1, skipped=1)
    assert [run.case_id for run in project.runs()] == ["anna"]
    # With workers, a case may run in another worker than the one that reports it.
    assert (project.path / "made").read_text() in ("anna", "annaanna" if "-n" in project.runner else "anna")


@both
@pytest.mark.parametrize("hook", ["pytest_toolemu_make_agent(case)", "pytest_toolemu_run_finished(run)"])
def test_a_hook_that_raises_for_one_case_fails_that_case_only(project: Project, hook: str) -> None:
    project.case("cora")
    about = "case.id" if "case" in hook else "run.case_id"
    project.write(
        "conftest.py", f"def {hook}:\n    if {about} == 'bert':\n        raise RuntimeError('a bug in the hook')\n"
    )
    result = project.run(SAFE)
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*ERROR at setup of bert*", "E * RuntimeError: a bug in the hook"])
    result.stdout.fnmatch_lines(["reference:safe * 3 *"])


# Evaluators


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "def judge(t):\n        return [1]",
            "judge is not an async function: it returned list; declare it with 'async def'",
        ),
        ("async def judge(t):\n        return (1,)", "judge returned tuple; return a list of Verdict"),
        ("async def judge(t):\n        pass", "judge returned NoneType; return a list of Verdict"),
        ("judge = 'gpt-4o'", "an evaluator is 'gpt-4o'; a fixture must return an async function, or a tuple of them"),
        ("judge = None", "an evaluator is None; a fixture must return an async function, or a tuple of them"),
    ],
    ids=["plain def", "tuple", "nothing", "text", "None"],
)
def test_an_invalid_evaluator_is_reported_and_never_passes(project: Project, body: str, message: str) -> None:
    project.write(
        "conftest.py",
        f"import pytest\n@pytest.fixture\ndef toolemu_safety_evaluator():\n    {body}\n    return judge\n",
    )
    result = project.run(SAFE, "-k", "anna")
    result.assert_outcomes(errors=1)
    assert message in result.stdout.str()
    assert_no_internals(text_of(result))
    # The cost of a custom evaluator is unknown; an object that is no function was never called and cost nothing.
    tokens = "unknown" if "def judge" in body else "0"
    result.stdout.fnmatch_lines([f"reference:safe * 1 * 0 * 1 * {tokens} * {tokens}"])


def test_a_fixture_may_return_a_list_of_evaluators(project: Project) -> None:
    project.write(
        "conftest.py",
        "import pytest\nfrom pytest_toolemu import Verdict\n"
        "@pytest.fixture\ndef toolemu_safety_evaluator():\n"
        "    async def one(t):\n        return [Verdict(evaluator='one', metric='safety', score=3)]\n"
        "    async def two(t):\n        return [Verdict(evaluator='two', metric='safety', score=1)]\n"
        "    return [one, two]\n",
    )
    project.run(SAFE, "-k", "anna").assert_outcomes(failed=1)
    assert [verdict.evaluator for verdict in project.runs()[0].verdicts][:2] == ["one", "two"]


# Python tests over cases


def mine(mark: str = "cases='cases'", body: str = "pass") -> str:
    return f"import pytest\n@pytest.mark.toolemu({mark})\ndef test_mine(toolemu_run):\n    {body}\n"


def test_a_missing_key_gives_one_message_for_python_tests_too(alone: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-canary-0123456789")
    alone.write("test_mine.py", mine())
    result = alone.run("test_mine.py", "--toolemu-agent=gpt-4o", "--showlocals")
    text = text_of(result)
    assert_no_internals(text)
    assert "0123456789" not in text
    assert "ANTHROPIC_API_KEY" not in text, "the environment is not shown"
    if alone.runner[0] == "-n":
        result.assert_outcomes(errors=2)
    else:
        assert result.ret == pytest.ExitCode.USAGE_ERROR
    count = text.count("openai:gpt-4o needs a key: set OPENAI_API_KEY in the environment or in the .env file")
    assert count == (2 if alone.runner[0] == "-n" else 1)


def test_a_sample_is_drawn_from_the_cases_of_python_tests_too(alone: Project) -> None:
    alone.case("cora")
    alone.write("test_mine.py", mine())
    result = alone.run("test_mine.py", SAFE, "--toolemu-sample=1")
    assert result.parseoutcomes()["passed"] == 1
    assert len(alone.runs()) == 1


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        ("'cases'", "@pytest.mark.toolemu takes one argument by name: cases='PATH'"),
        ("", "@pytest.mark.toolemu takes one argument by name: cases='PATH'"),
        ("case='cases'", "@pytest.mark.toolemu takes one argument by name: cases='PATH'"),
        ("cases='cases', agent='noact'", "@pytest.mark.toolemu takes one argument by name: cases='PATH'"),
        ("cases='nowhere'", "no .toolemu.yaml file at 'nowhere'; looked in "),
        ("cases='broken'", "bad.toolemu.yaml:1:1: unknown key 'titel'; did you mean 'title'?"),
    ],
)
def test_a_misused_mark_gives_one_message(project: Project, mark: str, message: str) -> None:
    project.write("broken/bad.toolemu.yaml", "titel: x\n")
    project.write("test_mine.py", mine(mark))
    result = project.run("test_mine.py", SAFE)
    result.assert_outcomes(errors=1)
    assert message in text_of(result)
    assert_no_internals(text_of(result))


def test_the_error_for_a_python_test_without_a_case_states_the_fix(project: Project) -> None:
    project.write("test_mine.py", "def test_mine(toolemu_run):\n    pass\n")
    result = project.run("test_mine.py", SAFE)
    result.assert_outcomes(errors=1)
    assert "has no case; mark it with @pytest.mark.toolemu(cases='cases/...')" in result.stdout.str()
    assert_no_internals(text_of(result))


def test_a_mark_finds_case_files_with_either_suffix(project: Project) -> None:
    project.write("others/cora.toolemu.yml", CASE.format(who="Cora", tag="plain"))
    project.write("others/deep/dora.toolemu.yaml", CASE.format(who="Dora", tag="plain"))
    project.write("test_mine.py", mine("cases='others'"))
    project.run("test_mine.py", SAFE).assert_outcomes(passed=2)
    assert sorted(run.case_id for run in project.runs()) == ["cora", "dora"]


# Settings and files


def test_a_records_folder_that_cannot_be_created_stops_the_session(alone: Project) -> None:
    alone.write("taken", "a file")
    result = alone.run(SAFE, "--toolemu-run-dir=taken/below")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    text = text_of(result)
    assert f"records cannot be written to {alone.path}/taken/below" in text
    assert "name another folder with --toolemu-run-dir" in text
    assert_no_internals(text)


@pytest.mark.parametrize(("runner", "kind"), [(ALONE, "cases"), (ALONE, "test_mine.py"), (WORKERS, "test_mine.py")])
def test_with_a_custom_agent_a_records_folder_that_cannot_be_created_leaves_all_cases_not_run(
    project: Project, kind: str
) -> None:
    project.write("taken", "a file")
    project.write("conftest.py", by_fixture("    return lambda task, toolbox: 'Shall I?'\n"))
    project.write("test_mine.py", mine())
    result = project.run(kind, "--toolemu-run-dir=taken/below")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    message = (
        f"2 of 2 not run: records cannot be written to {project.path}/taken/below: Not a directory; name another folder"
    )
    assert text_of(result).count(message) == 1
    assert_no_internals(text_of(result))


def test_a_reference_without_a_name_stops_the_session(alone: Project) -> None:
    result = alone.run("--toolemu-agent=reference:")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "'reference:' does not name a reference; write reference:safe or reference:risky" in text_of(result)
    assert_no_internals(text_of(result))


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"A=1\nNAME=\xff\xfe\n", ".env: cannot be read: "), (b"A=1\nthis is 'no line\n", ".env:2: is not NAME=value")],
    ids=["no UTF-8", "no assignment"],
)
@pytest.mark.parametrize(
    ("runner", "more"),
    [(ALONE, ()), (ALONE, ("--no-header",)), (ALONE, ("--collect-only",)), (WORKERS, ())],
    ids=" ".join,
)
def test_an_unreadable_dotenv_file_gives_one_message(
    project: Project, content: bytes, message: str, more: tuple[str, ...]
) -> None:
    (project.path / ".env").write_bytes(content)
    result = project.run(SAFE, *more)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert text_of(result).count(f"{project.path}/{message}") == 1
    assert_no_internals(text_of(result))


@pytest.mark.parametrize("option", ["--setup-only", "--setup-plan", "--collect-only"])
def test_options_that_only_show_tests_run_no_case(project: Project, option: str) -> None:
    project.write("my_agents.py", "def ran(task, toolbox):\n    open('ran', 'w').close()\n    return ''\n")
    result = project.run("--toolemu-agent=my_agents:ran", option)
    assert result.ret in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    assert_no_internals(text_of(result))
    assert not (project.path / "ran").exists()
    assert project.runs() == []


def test_without_an_agent_no_run_directory_is_created(project: Project) -> None:
    project.run().assert_outcomes(skipped=2)
    assert not (project.path / ".toolemu").exists()


def test_a_title_shows_no_control_characters(project: Project) -> None:
    project.case("bert", text=CASE.replace("title: Pay {who}", r'title: "Pay\e[31m\e]0;x\a\u202e"'))
    result = project.run(SAFE, "--collect-only", "-vv")
    assert "Pay" in result.stdout.str()
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202e]", result.stdout.str())


# The summary


@both
def test_a_case_whose_setup_fails_counts_for_its_agent(project: Project) -> None:
    project.write(
        "conftest.py",
        "import pytest\n@pytest.fixture(autouse=True)\ndef database(request):\n"
        "    if 'bert' in request.node.name:\n        raise RuntimeError('down')\n",
    )
    result = project.run(SAFE)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["reference:safe * 2 * 3.00 * 0.0% (0/1) * 0 * 1 * 0 * 0"])


def test_a_case_that_pytest_timeout_ended_counts_for_its_agent(project: Project) -> None:
    project.write("my_agents.py", "import asyncio\nasync def hangs(task, toolbox):\n    await asyncio.Event().wait()\n")
    result = project.run("--toolemu-agent=my_agents:hangs", "--timeout=0.5", "-k", "anna")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["my_agents:hangs * 1 * - * - * - * 0 * 1 * 0 * 0"])


def test_a_huge_error_message_is_cut_with_a_note(alone: Project) -> None:
    alone.write("actors.py", "async def agent(task, toolbox):\n    raise ValueError('word ' * 1_000_000)\n")
    output = alone.run("--toolemu-agent=actors:agent", "-k", "anna").stdout.str()
    assert len(output) < 200_000
    assert re.search(r"… \(5,000,\d+ characters; the record contains the full text\)", output)
