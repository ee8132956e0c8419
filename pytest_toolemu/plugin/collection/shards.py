"""Shards: which items this session runs, what it records for ``toolemu merge``, and what it says about itself."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.text import counted
from pytest_toolemu.plugin.collection.collect import CaseFile
from pytest_toolemu.plugin.collection.options import deselect
from pytest_toolemu.plugin.session import RESOLVED_CASE, ToolemuSession, relative_path
from pytest_toolemu.sessions.manifest_records import ShardManifest
from pytest_toolemu.sessions.shard_assignment import DURATIONS, SHARD_MANIFEST, Shard, ShardAssignment, read_durations
from pytest_toolemu.sessions.store import item_mark


def select_shard(config: pytest.Config, shard: Shard, items: list[pytest.Item]) -> ShardManifest:
    """Keep the items of this shard, and return its manifest.

    A case is kept with all its agents, prompts, and trials, any other test by itself. Raise UsageError if the file of
    durations cannot be read.
    """
    assignment = _assignment(shard, config.rootpath)
    collected = sorted(item.name if RESOLVED_CASE in item.stash else item.nodeid for item in items)
    deselect(config, items, {item for item in items if assignment.place(_unit(item)) != shard.index})
    return ShardManifest(
        shard=shard.index,
        count=shard.count,
        items=len(items),
        # The success of a Python test over cases does not imply a record, as it may not run its case.
        runs=tuple(sorted(item_mark(_unit(item), item.nodeid) for item in items if isinstance(item.parent, CaseFile))),
        collected=len(collected),
        collection=hashlib.sha256("\n".join(collected).encode()).hexdigest()[:12],
        durations=assignment.durations,
    )


def write_shard_manifest(session: ToolemuSession) -> None:
    """Record what the shard has to run before it runs it, so that ``toolemu merge`` can tell what is missing."""
    if session.shard_manifest is None or session.config.option.collectonly or session.settings.estimate:
        return
    try:
        session.store.put_shard_manifest(session.shard_manifest)
    except UsageError as error:
        if not session.is_worker:  # else the controller reports it
            raise pytest.UsageError(f"toolemu: {error}") from None


def shard_exit_status(session: ToolemuSession, status: int) -> int:
    """Return the exit status of a shard: it succeeds if it has no items because other shards have all cases."""
    is_empty = status == pytest.ExitCode.NO_TESTS_COLLECTED and (manifest := _manifest(session)) and manifest.collected
    return pytest.ExitCode.OK if is_empty else status


def shard_header(shard: Shard, source: str, rootpath: Path) -> str:
    """Return which shard this is, and how items are assigned to shards."""
    assignment = _assignment(shard, rootpath)
    method = "by the hashes of names"
    if assignment.places:
        method = f"by the durations of {counted(len(assignment.places), 'case')} in {DURATIONS} #{assignment.durations}"
    return f"toolemu: shard {shard.index} of {shard.count} ({source}), divided {method}"


def shard_summary(session: ToolemuSession) -> list[str]:
    """State that the metrics cover only this shard, how to merge all shards, and where gates are decided."""
    if not session.settings.shard or not (manifest := _manifest(session)):
        return []
    ran = f"ran {manifest.items} of {counted(manifest.collected, 'item')}; metrics cover only this shard"
    merge = f"merge all shards with: toolemu merge {relative_path(session.folder)} ... --into DIR"
    lines = [f"shard {manifest.shard} of {manifest.count}: {ran}; {merge}"]
    if gates := session.settings.gate:
        lines.append(f"gates are decided on the merged session, not here: {', '.join(gates)}; run: toolemu gate DIR")
    return lines


def _assignment(shard: Shard, rootpath: Path) -> ShardAssignment:
    return ShardAssignment.balanced(shard.count, read_durations(rootpath / DURATIONS))


def _unit(item: pytest.Item) -> str:
    # A case's id, as its path differs between machines if the cases belong to an installed package.
    return item.stash[RESOLVED_CASE].case.id if RESOLVED_CASE in item.stash else item.nodeid


def _manifest(session: ToolemuSession) -> ShardManifest | None:
    """Return the shard's manifest; with xdist its workers have written it."""
    if not session.shard_manifest and (session.folder / SHARD_MANIFEST).is_file():
        session.shard_manifest = session.store.shard_manifest()
    return session.shard_manifest
