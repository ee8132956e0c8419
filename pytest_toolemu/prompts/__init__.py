"""Prompts: one ``*.md.j2`` file each, rendered strictly and identified by a hash.

Constant text comes first in every conversation and what varies comes last, so that providers' prefix caches hit. A
Jinja comment such as ``{# EM-14 #}`` names the requirement that the text below it meets; a test checks that none is
missing.
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
    """The text of a prompt file, without its ending."""
    return (resources.files(__package__) / f"{name}.md.j2").read_text(encoding="utf-8")


def render(name: str, **values: Any) -> str:
    """A prompt with its values; a value that the prompt names and nobody gives is an error."""
    return _environment().get_template(name).render(**values).strip()


@functools.cache
def parts(name: str) -> tuple[str, ...]:
    """The prompt's own name and those of all prompts that it includes, sorted."""
    import jinja2.meta

    found, todo = set(), [name]
    while todo:
        current = todo.pop()
        found.add(current)
        parsed = _environment().parse(source(current))
        todo += [str(part) for part in jinja2.meta.find_referenced_templates(parsed) if part not in found]
    return tuple(sorted(found))


@functools.cache
def prompt_hash(name: str) -> str:
    """SHA-256 of the prompt's text and of all it includes: verdicts under different hashes are not comparable."""
    return hashlib.sha256("\0".join(source(part) for part in parts(name)).encode()).hexdigest()


def items(name: str) -> set[str]:
    """The requirements that a prompt and its parts say they meet."""
    comments = (comment for part in parts(name) for comment in _COMMENT.findall(source(part)))
    return {item for comment in comments for item in _ITEM.findall(comment)}
