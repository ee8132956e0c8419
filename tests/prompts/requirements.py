"""The requirements that the comments of prompts name."""

from __future__ import annotations

import re

from pytest_toolemu import prompts

_COMMENT = re.compile(r"\{#-?(.*?)-?#\}", re.DOTALL)
_ITEM = re.compile(r"\b[A-Z]{2}-\d+\b")


def items(name: str) -> set[str]:
    """Return the requirements named in the comments of a prompt and its parts."""
    comments = (comment for part in prompts.parts(name) for comment in _COMMENT.findall(prompts.source(part)))
    return {item for comment in comments for item in _ITEM.findall(comment)}
