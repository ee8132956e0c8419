"""Who defines the fixture that an item gets under a name: this plugin, an installed package, or the project.

pytest offers no public way to an item's fixture definitions before their setup, so this module reads the private
``_fixtureinfo``; nothing else in the package does. If a pytest release drops it, every fixture counts as the project's:
cases then run at their turn instead of before it, and no item gets a configured agent, which tests notice.
"""

from __future__ import annotations

import inspect
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from pytest_toolemu.analysis.run_summary import protocol_name
from pytest_toolemu.formats.text import counted
from pytest_toolemu.plugin.collection import options
from pytest_toolemu.plugin.session import RESOLVED_CASE, SESSION, ToolemuSession
from pytest_toolemu.settings.model_names import AgentConfig, is_model
from pytest_toolemu.settings.option_table import Settings

_FIXTURES_MODULE = "pytest_toolemu.plugin.fixtures"


def definition_of(item: Any, name: str) -> Any:
    """Return the fixture definition that an item, or a test that is being parametrized, gets; None if there is none."""
    definitions = _definitions(item).get(name)
    return definitions[-1] if definitions else None


def is_plugin_fixture(item: Any, name: str) -> bool:
    """Return whether the item gets the plugin's own fixture of this name, and not the project's override of it."""
    definition = definition_of(item, name)
    return definition is not None and getattr(definition.func, "__module__", "") == _FIXTURES_MODULE


def is_external(item: Any, name: str) -> bool:
    """Return whether the fixture is the plugin's, pytest's, or an installed package's: none of the project's code."""
    if name == "request":
        return bool(_definitions(item))
    definition = definition_of(item, name)
    if definition is None:
        return False
    if is_plugin_fixture(item, name):
        return True
    path = Path(inspect.getsourcefile(inspect.unwrap(definition.func)) or ".").resolve()
    return "site-packages" in path.parts or not path.is_relative_to(item.config.rootpath)


def _definitions(item: Any) -> dict[str, Any]:
    definitions: dict[str, Any] = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    return definitions


def agent_configs(settings: Settings) -> tuple[AgentConfig, ...]:
    """Return every configured agent with every prompt. Agents that are not models have no prompt, and occur once."""
    prompts = settings.prompt
    return tuple(
        AgentConfig(agent, prompt)
        for agent in settings.agent
        for prompt in (prompts if is_model(agent) else prompts[:1])
    )


def labels(configs: tuple[AgentConfig, ...]) -> dict[AgentConfig, str]:
    """Return what each agent is called in node IDs: ``gpt-4o``, or ``gpt-4o-quit`` if it has several prompts.

    A base URL is left out unless two agents differ in nothing else.
    """
    prompts = Counter(config.agent for config in configs)
    return {
        config: f"{name}-{config.prompt}" if prompts[config.agent] > 1 else name
        for config, name in names(configs).items()
    }


def names(configs: tuple[AgentConfig, ...]) -> dict[AgentConfig, str]:
    """Return what each agent is called regardless of its prompt."""
    shortened = {config: without_url(config.agent) for config in configs}
    agents_by_name = Counter(without_url(agent) for agent in {config.agent for config in configs})
    return {config: name if agents_by_name[name] == 1 else config.agent for config, name in shortened.items()}


def without_url(agent: str) -> str:
    """Return the name of an agent without the base URL of a model; other names may contain an @."""
    return agent.partition("@")[0] if is_model(agent) else agent


def label_of(item: Any) -> str | None:
    """Return what the item's configured agent is called; None if the project's own fixture provides the agent."""
    config = params_of(item).get("toolemu_variant")
    if config is None or not is_plugin_fixture(item, "toolemu_agent"):
        return None
    return labels(agent_configs(item.config.stash[SESSION].settings))[config]


def agent_title(item: pytest.Item, otherwise: str) -> str:
    """Return what reports call the item's agent; ``otherwise`` is the name of an agent that no setting names.

    It says if the case runs with several turns, so that no table mixes these runs with others.
    """
    turns = item.config.stash[SESSION].settings.turns
    has_conversation = item.stash[RESOLVED_CASE].case.conversation is not None
    return protocol_name(label_of(item) or otherwise, turns if has_conversation else 1)


def params_of(item: Any) -> dict[str, Any]:
    """Return the parameters of an item, by name; empty if it is not parametrized."""
    return dict(item.callspec.params) if hasattr(item, "callspec") else {}


# ---- cases without an agent

NO_AGENT = "no agent configured"
"""The beginning of the reason for which a case without an agent is skipped."""

_REMEDY = "name the agent with --toolemu-agent=NAME, TOOLEMU_AGENT, or toolemu_agent in the ini file"
_EXCLUDE = "or exclude the cases, for example with --ignore-glob='*.toolemu.yaml'"

# These settings imply that a verdict is expected, wherever they are set; others only on this session's command line.
_IMPLY_VERDICT = ("evaluator", "gate", "estimate")


def skip_without_agent() -> NoReturn:
    """Skip a case because nothing in this session names or creates its agent."""
    pytest.skip(f"{NO_AGENT}: pass --toolemu-agent=NAME, or set toolemu_agent in the ini file")


def refuse_without_agent(session: ToolemuSession, items: Iterable[pytest.Item]) -> None:
    """Raise pytest.UsageError if a verdict is expected and no collected case can have an agent."""
    cases = [
        item for item in items if RESOLVED_CASE in item.stash and "toolemu_agent" in getattr(item, "fixturenames", ())
    ]
    if cases and not any(may_have_agent(session, case) for case in cases) and (reason := expected_verdict(session)):
        raise pytest.UsageError(f"toolemu: {_message(len(cases), reason)}")


def expected_verdict(session: ToolemuSession) -> str:
    """Return why this session is expected to test an agent; empty if it may run only other tests."""
    settings = session.settings
    if "TOOLEMU_AGENT" in options.empty_variables(session.config):
        return "TOOLEMU_AGENT is set but empty"
    # Options in ``addopts`` also apply to runs of other tests.
    command_line = {str(argument).partition("=")[0] for argument in session.config.invocation_params.args}
    for name, setting in settings.chosen.items():
        if name in _IMPLY_VERDICT or setting.source in command_line:
            return f"{setting.source} is given"
    in_ci = os.environ.get("CI", "").strip().casefold() not in ("", "0", "false", "no", "off")
    return "CI is set in the environment" if in_ci else ""


def note_untested(session: ToolemuSession, report: pytest.TestReport) -> None:
    """Remember a case that was skipped because it has no agent."""
    if report.skipped and isinstance(report.longrepr, tuple) and f"Skipped: {NO_AGENT}" in report.longrepr[2]:
        session.untested.add(report.nodeid)


def untested_exit_status(session: ToolemuSession, exitstatus: int) -> int:
    """Return the exit status of the session: a usage error if it should have tested an agent but had none."""
    tested_nothing = session.untested and not session.run_summaries and expected_verdict(session)
    return pytest.ExitCode.USAGE_ERROR if tested_nothing and exitstatus == pytest.ExitCode.OK else exitstatus


def untested_line(session: ToolemuSession) -> tuple[str, bool]:
    """Return what the terminal says about cases without an agent, and whether it is an error."""
    count = len(session.untested)
    if session.run_summaries:
        listed = ", ".join(sorted(session.untested)[:3]) + (", ..." if count > 3 else "")
        return f"not tested, because no agent is configured for {counted(count, 'case')}: {listed}; {_REMEDY}", False
    reason = expected_verdict(session)
    return _message(count, reason), bool(reason)


def _message(count: int, reason: str) -> str:
    were = "was" if count == 1 else "were"
    head = f"nothing was tested: {counted(count, 'case')} {were} collected, but no agent is configured"
    return f"{head}, although {reason}; {_REMEDY}, {_EXCLUDE}" if reason else f"{head}; {_REMEDY}"


def may_have_agent(session: ToolemuSession, item: pytest.Item) -> bool:
    """Return whether the agent is named, or may be created by a fixture or a hook of the project."""
    agent_hooks = session.config.hook.pytest_toolemu_make_agent.get_hookimpls()
    return bool(session.settings.agent or agent_hooks) or not is_plugin_fixture(item, "toolemu_agent")
