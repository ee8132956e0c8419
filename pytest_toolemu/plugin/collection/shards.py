"""A shard of a session: its items, the account that it leaves for ``toolemu merge``, and what it says of itself."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from pytest_toolemu.errors import UsageError
from pytest_toolemu.plugin.collection.options import deselect
from pytest_toolemu.plugin.session import ITEM, SESSION, ToolemuSession, relative
from pytest_toolemu.sessions.shards import ACCOUNT, DURATIONS, Shard, ShardAssignment, read_durations


def shard_of(session: ToolemuSession) -> Shard | None:
    """Which shard this session is; None for the whole."""
    text = session.settings.shard
    return Shard.of(text) if text else None


def division(session: ToolemuSession) -> ShardAssignment:
    """How the session is divided. UsageError where the durations cannot be read."""
    shard = shard_of(session)
    assert shard is not None
    return ShardAssignment.balanced(shard.count, read_durations(session.config.rootpath / DURATIONS))


def divide(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep this shard's part. A case is kept with all its agents, prompts and trials, any other test by itself."""
    session = config.stash[SESSION]
    shard = shard_of(session)
    if shard is None:
        return
    divided = division(session)
    from pytest_toolemu.sessions.store import item_mark

    everything = sorted(item.name if ITEM in item.stash else item.nodeid for item in items)
    deselect(config, items, {item for item in items if divided.place(_name(item)) != shard.index})
    session.account = {
        "shard": shard.index,
        "count": shard.count,
        "items": len(items),
        "runs": sorted(item_mark(_name(item), item.nodeid) for item in items if _leaves_a_run(item)),
        "collected": len(everything),
        "collection": hashlib.sha256("\n".join(everything).encode()).hexdigest()[:12],
        "durations": divided.durations,
    }


def _name(item: pytest.Item) -> str:
    # A case's id: its path differs between machines where the cases of an installed package are run.
    return item.stash[ITEM].case.id if ITEM in item.stash else item.nodeid


def _leaves_a_run(item: pytest.Item) -> bool:
    """A Python test over cases may be content with less."""
    from pytest_toolemu.plugin.collection.collect import CaseFile

    return isinstance(item.parent, CaseFile)


def leave_account(session: ToolemuSession) -> None:
    """Write down what the shard is to run, before it does: whoever merges must know what is missing."""
    if session.account and not (session.config.option.collectonly or session.settings.estimate):
        try:
            session.store.put_account(session.account)
        except UsageError as error:
            if not session.is_worker:  # the controller is about to say it
                raise pytest.UsageError(f"toolemu: {error}") from None


def account(session: ToolemuSession) -> dict[str, Any]:
    """What the shard was to run; with xdist its workers have written it."""
    if not session.account and (session.folder / ACCOUNT).is_file():
        session.account = session.store.account()
    return session.account


def status(session: ToolemuSession, exitstatus: int) -> int:
    """The shard's exit status: with nothing to run it is no failure, as its cases are in other shards."""
    nothing = shard_of(session) is not None and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED
    return pytest.ExitCode.OK if nothing and account(session).get("collected") else exitstatus


def header(session: ToolemuSession) -> list[str]:
    """Which shard this is, and by what the session is divided."""
    shard = shard_of(session)
    if shard is None:
        return []
    divided = division(session)
    way = "by the hashes of names"
    if divided.places:
        way = f"by the durations of {len(divided.places)} cases in {DURATIONS} #{divided.durations}"
    return [f"toolemu: shard {shard.index} of {shard.count} ({session.settings.source('shard')}), divided {way}"]


def summary(session: ToolemuSession) -> list[str]:
    """That figures are of a part, what is decided on the whole only, and how to have the whole."""
    shard, known = shard_of(session), account(session)
    if shard is None or not known:
        return []
    told = f"shard {shard.index} of {shard.count}: {known['items']} of {known['collected']} items; figures are of these"
    lines = [f"{told}; all together: toolemu merge {relative(session.folder)} ... --into DIR"]
    if gates := session.settings.gate:
        lines.append(f"gates are decided on the whole, not here: {', '.join(gates)}: toolemu gate DIR")
    return lines
