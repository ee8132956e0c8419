"""Read the results that allure-pytest wrote."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Results:
    """The results in a folder."""

    folder: Path

    def all(self) -> list[dict[str, Any]]:
        results = [json.loads(path.read_text("utf-8")) for path in self.folder.glob("*-result.json")]
        return sorted(results, key=lambda result: (str(result["name"]), str(result["parameters"])))

    def of(self, **parameters: str) -> dict[str, Any]:
        """Return the one result with these parameters or other fields."""
        chosen = [one for one in self.all() if parameters.items() <= {**self.parameters(one), **one}.items()]
        assert len(chosen) == 1, f"{len(chosen)} results with {parameters}"
        return chosen[0]

    def text(self, holder: dict[str, Any], name: str) -> str:
        """Return the text of an attachment of a result or step."""
        (source,) = [str(one["source"]) for one in holder["attachments"] if one["name"] == name]
        return (self.folder / source).read_text("utf-8")

    @staticmethod
    def parameters(holder: dict[str, Any]) -> dict[str, str]:
        return {one["name"]: one["value"] for one in holder.get("parameters", ())}

    @staticmethod
    def labels(result: dict[str, Any], name: str) -> list[str]:
        return [label["value"] for label in result["labels"] if label["name"] == name]

    def properties(self) -> dict[str, str]:
        lines = (self.folder / "environment.properties").read_text("utf-8").splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)
