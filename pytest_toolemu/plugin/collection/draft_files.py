"""Excludes drafts: a case that a model wrote is not part of a suite until a person has accepted it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_toolemu.formats.counted import counted
from pytest_toolemu.plugin.output.relative_path import relative_path

_DRAFTS: pytest.StashKey[dict[Path, None]] = pytest.StashKey()


def is_left_out(path: Path, parent: pytest.Collector) -> bool:
    """Return whether a case file is a draft that the command line does not name; remember it for the notice."""
    # Loads the records of cases, which sessions without cases must not.
    from pytest_toolemu.core.dataset import is_draft

    if not is_draft(path) or parent.session.isinitpath(path):
        return False
    parent.config.stash.setdefault(_DRAFTS, {})[path] = None
    return True


def draft_notice(config: pytest.Config) -> str:
    """Return which drafts were not collected; empty if there are none."""
    drafts = config.stash.get(_DRAFTS, {})
    if not drafts:
        return ""
    first = relative_path(next(iter(drafts)))
    verb = "was" if len(drafts) == 1 else "were"
    return (
        f"{counted(len(drafts), 'draft')} {verb} not collected, such as {first}; accept or reject drafts with "
        "'toolemu review', or name a file to run it"
    )
