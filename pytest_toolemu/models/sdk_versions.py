"""Check that the SDKs of models are installed in a supported version before one is imported."""

from __future__ import annotations

import functools
from importlib import metadata
from typing import TYPE_CHECKING

from pytest_toolemu.errors import UsageError

if TYPE_CHECKING:
    from packaging.requirements import Requirement

DISTRIBUTION = "pytest-toolemu"


def require_sdk(extra: str, needed_by: object) -> None:
    """Raise UsageError, with the pip command, unless every package of an extra is installed in a supported version."""
    remedy = f"pip install '{DISTRIBUTION}[{extra}]'"
    for requirement in _requirements(extra):
        try:
            installed = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            raise UsageError(f"{needed_by} needs the {requirement.name} package: {remedy}") from None
        if not requirement.specifier.contains(installed, prereleases=True):
            raise UsageError(
                f"{needed_by} needs {requirement.name}{requirement.specifier}, but {requirement.name} {installed} is "
                f"installed: {remedy}"
            )


@functools.cache
def _requirements(extra: str) -> tuple[Requirement, ...]:
    """Read what an extra of this package requires."""
    from packaging.requirements import Requirement

    declared = map(Requirement, metadata.requires(DISTRIBUTION) or [])
    requirements = [one for one in declared if one.marker is not None and one.marker.evaluate({"extra": extra})]
    return tuple(sorted(requirements, key=lambda requirement: requirement.name != extra))  # the SDK itself first
