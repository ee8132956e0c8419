"""Prompts: one ``*.md.j2`` file each, rendered strictly and identified by a hash.

In every conversation, constant text comes first and variable text last, so that providers can cache the beginning. A
Jinja comment such as ``{# EM-14 #}`` names the requirement that the text below it meets; a test checks that every
requirement is met. A paragraph that is sent often is one line: most line breaks are a token of their own.
"""

from __future__ import annotations

import functools
import hashlib
import re
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jinja2

_COMMENT = re.compile(r"\{#-?(.*?)-?#\}", re.DOTALL)
_ITEM = re.compile(r"\b[A-Z]{2}-\d+\b")


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FunctionLoader(source),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # text for models, not HTML
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
    )


def source(name: str) -> str:
    """Read the template of a prompt; ``name`` is its path without ``.md.j2``."""
    return (resources.files(__package__) / f"{name}.md.j2").read_text(encoding="utf-8")


def render(name: str, /, **values: Any) -> str:
    """Render a prompt; a value that the template uses and the caller does not give is an error."""
    return _environment().get_template(name).render(**values).strip()


@functools.cache
def parts(name: str) -> tuple[str, ...]:
    """Return the names of a prompt and of all prompts that it includes, sorted."""
    import jinja2.meta

    names, pending = set(), [name]
    while pending:
        current = pending.pop()
        names.add(current)
        parsed = _environment().parse(source(current))
        pending += [str(part) for part in jinja2.meta.find_referenced_templates(parsed) if part not in names]
    return tuple(sorted(names))


@functools.cache
def prompt_hash(name: str) -> str:
    """Return the SHA-256 of a prompt and all it includes: verdicts under different hashes are not comparable."""
    return hashlib.sha256("\0".join(source(part) for part in parts(name)).encode()).hexdigest()


def items(name: str) -> set[str]:
    """Return the requirements named in the comments of a prompt and its parts."""
    comments = (comment for part in parts(name) for comment in _COMMENT.findall(source(part)))
    return {item for comment in comments for item in _ITEM.findall(comment)}
