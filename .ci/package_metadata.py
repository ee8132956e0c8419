"""Completes the metadata of the package in a build on GitHub: project URLs, and absolute links in its description.

Package indexes show the README outside of the repository. GitHub's variables name the repository that builds the
package. In any other build, the description keeps the text of its links, without targets that lead nowhere.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:)([^)]+)\)")


class PackageMetadata(MetadataHookInterface):
    """The hook that hatchling finds in this file."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the README, and the project URLs if the repository is known."""
        server, name = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
        repository = f"{server}/{name}" if server and name else ""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute_links(text, repository)}
        metadata["urls"] = {
            name: f"{repository}{path}"
            for name, path in (
                ("Repository", ""),
                ("Documentation", "/blob/HEAD/docs/index.md"),
                ("Changelog", "/blob/HEAD/CHANGELOG.md"),
                ("Issues", "/issues"),
            )
            if repository
        }


def absolute_links(text: str, repository: str) -> str:
    """Return the README with the repository's address in front of relative links; without one, with their texts."""

    def link(match: re.Match[str]) -> str:
        is_image, label, path = match.groups()
        if not repository:
            return "" if is_image else label
        return f"{is_image}[{label}]({repository}/{'raw' if is_image else 'blob'}/HEAD/{path})"

    return _LINK.sub(link, text)
