"""Builds the run of a play from its setup: who plays which part."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pytest_toolemu.components import Components
from pytest_toolemu.core.agent_access.user_channel import SimulatedUser
from pytest_toolemu.core.run_spec import Limits, RunSpec
from pytest_toolemu.core.toolbox import Agent, Emulator
from pytest_toolemu.core.world.replaced_rows import per_call
from pytest_toolemu.emulators.consistent import ConsistentEmulator
from pytest_toolemu.emulators.offline.emulator import OfflineEmulator
from pytest_toolemu.emulators.pinned import PinnedEmulator
from pytest_toolemu.emulators.rows import RowsEmulator
from pytest_toolemu.emulators.validated import ValidatedEmulator
from pytest_toolemu.errors import UsageError
from pytest_toolemu.sessions.single_run import evaluators_of, refuse_session_settings, required_scores
from pytest_toolemu.settings import REFERENCE, AgentConfig, Settings
from pytest_toolemu.ui.playground.forks import ForkedEmulator, earlier_moves, earlier_replies, earlier_steps
from pytest_toolemu.ui.playground.persons import PersonAgent, PersonEmulator, PersonUser
from pytest_toolemu.ui.playground.play import Play
from pytest_toolemu.ui.playground.play_setup import PERSON, SetupError
from pytest_toolemu.ui.playground.watched import WatchedAgent, WatchedEmulator

_A_DAY: Final = 24 * 3600.0
"""People think as long as they like; a play that nobody looks at ends much earlier."""


async def checked_spec(play: Play, settings: Settings, components: Components) -> RunSpec:
    """Return the run of a play, after a check of its endpoints.

    Raise SetupError for a field of the form that a person has to correct, and UsageError for everything else.
    """
    setup, case = play.setup, play.resolved_case
    refuse_session_settings(settings, "the playground")
    conversation = case.case.conversation
    if setup.user == PERSON and (conversation is None or setup.turns == 1):
        remedy = "give the agent at least 2 messages" if conversation else "add 'conversation' to the case first"
        raise SetupError("user", f"no agent would ask you; {remedy}")
    with _about("agent"):
        agent = WatchedAgent(_agent(play, components), play)
    with _about("emulator"):
        emulator = WatchedEmulator(_emulator(play, components), play)
    with _about("evaluators"):
        evaluators = evaluators_of(settings, components)
    with _about("user"):
        user = _user(play, components)
    spec = RunSpec(
        per_call(case) if settings.world == "calls" else case,
        agent,
        emulator,
        evaluators,
        required_scores(settings),
        Limits(settings.max_steps, settings.max_tokens, _A_DAY),
        seed=settings.seed,
    ).in_conversation(user, setup.turns)
    await components.preflight(() if setup.agent == PERSON else (AgentConfig(setup.agent),))
    return spec


@contextlib.contextmanager
def _about(field: str) -> Iterator[None]:
    """Attribute errors to a field of the form."""
    try:
        yield
    except UsageError as error:
        raise SetupError(field, str(error)) from None


def _agent(play: Play, components: Components) -> Agent:
    if play.setup.agent == PERSON:
        return PersonAgent(play, earlier_moves(play.fork) if play.fork is not None else ())
    name = play.setup.agent.removeprefix(REFERENCE)
    references = {**play.resolved_case.case.references, **play.resolved_case.case.unlabeled}
    if play.setup.agent != name and name and name not in references and play.setup.turns == 1:
        raise UsageError(f"the case has no reference {name!r}; it has: {', '.join(references) or 'none'}")
    # Custom agents are modules of the project.
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.append(folder)
    return components.agent(AgentConfig(play.setup.agent))


def _emulator(play: Play, components: Components) -> Emulator:
    emulator = repeating = components.emulator(None)
    if play.setup.emulator == PERSON:
        suggesting = PinnedEmulator(RowsEmulator(ConsistentEmulator(OfflineEmulator())))
        emulator, repeating = ValidatedEmulator(PersonEmulator(suggesting, play)), ValidatedEmulator(suggesting)
    if play.fork is None:
        return emulator
    return ForkedEmulator(emulator, repeating, play, play.fork, earlier_steps(play.fork))


def _user(play: Play, components: Components) -> SimulatedUser:
    if play.setup.user == PERSON:
        return PersonUser(play, earlier_replies(play.fork) if play.fork is not None else ())
    return components.user()
