"""``toolemu import tools python``: functions and definitions; frameworks are in ``tests/adapters``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_toolemu.core.case_loading import load_toolkit
from pytest_toolemu.core.toolkit import Toolkit
from tests.authoring.tool_sources.imports import answered_offline, toolemu
from tests.usage_errors import message_of

MODULE = '''\
from __future__ import annotations
from dataclasses import dataclass
from typing import Annotated, Literal, NotRequired, Optional, TypedDict
from pydantic import Field

@dataclass
class Trip:
    id: str
    legs: list[str]

class Leg(TypedDict):
    port: str
    note: NotRequired[str]

class Route(TypedDict, total=False):
    legs: list[Leg]
    next: Optional[Leg]

class RunContext: ...

class Shop:
    def refund(self, order: int) -> None:
        """Refund an order."""

def book(context: RunContext, where: Annotated[str, Field(description="City.")], kind: Literal["a"] = "a", *rest, **more) -> Trip:
    """Book a trip.

    It can be canceled.
    """

async def find(query: str) -> list[str]: ...

def route(start: Leg, days: int = 3, kind: str | None = None, when: float = "soon") -> Route: ...

def odd(value: Unknown): ...

class Lazy:
    def __getattr__(self, name):
        raise RuntimeError(f"no {name} yet")

class Set:
    tools = {"find": find}

TOOLS = [book, (find, {"name": "plain", "description": "Plain.", "input_schema": {"type": "object"}})]
ALL = {"a": [Shop().refund], "b": odd, "c": Set(), "d": object(), "e": Shop, "f": 3}
LAZY = [find, Lazy()]
LOOP = []
LOOP.append(LOOP)
'''


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "trip_tools.py").write_text(MODULE)
    (tmp_path / "trip_broken.py").write_text("raise SystemExit(3)")
    monkeypatch.delitem(sys.modules, "trip_tools", raising=False)
    return tmp_path


def imported(target: str) -> Toolkit:
    output = toolemu("import", "tools", "python", target)
    return load_toolkit(Path(output.partition(":")[0]).absolute())


def test_functions_and_definitions_become_tools(folder: Path) -> None:
    book, find, plain = imported("trip_tools:TOOLS").tools
    assert (book.name, book.call_as, book.description) == ("Book", "book", "Book a trip.\n\nIt can be canceled.")
    assert book.parameters["properties"] == {
        "where": {"type": "string", "description": "City."},
        "kind": {"type": "string", "const": "a", "default": "a"},
    }
    assert book.parameters["required"] == ["where"]
    assert (set(book.returns["properties"]), book.inferred) == ({"id", "legs"}, ("errors", "effect"))
    assert find.returns["properties"]["result"]["type"] == "array"
    assert find.list_member == "result"
    assert plain.description == "Plain."
    assert answered_offline(folder / "toolkits/TripTools.toolkit.yaml") == []


def test_typed_dicts_and_defaults_are_kept() -> None:
    (route,) = imported("trip_tools:route").tools
    assert route.parameters["required"] == ["start"]
    assert {name: schema.get("default") for name, schema in route.parameters["properties"].items()} == {
        "start": None, "days": 3, "kind": None, "when": None,
    }  # fmt: skip
    assert route.parameters["properties"]["start"]["required"] == ["port"]
    legs, following = route.returns["properties"]["legs"], route.returns["properties"]["next"]
    assert set(legs["items"]["properties"]) == {"port", "note"}
    assert [kind.get("type") for kind in following["anyOf"]] == ["object", "null"]
    assert "returns" not in route.inferred


def test_containers_are_searched_and_other_objects_are_noted() -> None:
    output = toolemu("import", "tools", "python", "trip_tools.py:ALL")
    assert output.splitlines()[:2] == [
        "toolkits/TripTools.toolkit.yaml: 3 tools",
        "note: an object that is not a known kind of tool is left out: 3 (object, type, int)",
    ]
    refund, odd, find = load_toolkit(Path("toolkits/TripTools.toolkit.yaml").absolute()).tools
    assert list(refund.parameters["properties"]) == ["order"]
    assert "parameters" in odd.inferred
    assert find.call_as == "find"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("trip_tools", "'trip_tools' does not name tools; write package.module:object or path.py:object"),
        ("trip_tools:TOOL", "tools 'trip_tools:TOOL': trip_tools has no 'TOOL'; did you mean 'TOOLS'?"),
        ("trip_tool:TOOLS", "tools 'trip_tool:TOOLS': there is no module 'trip_tool'; check the name"),
        ("trip_broken:x", "tools 'trip_broken:x': importing trip_broken failed: SystemExit: 3"),
        (
            "trip_tools:Trip",
            "trip_tools:Trip: an object of type type that contains no tools; name functions,",
        ),
        (
            "trip_tools:LAZY",
            "trip_tools:LAZY: reading its tools failed: RuntimeError: no handoffs yet; correct the object, or name one",
        ),
        ("trip_tools:LOOP", "trip_tools:LOOP: an object of type list that contains no tools; name functions,"),
    ],
)
def test_a_target_without_tools_gets_one_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], target: str, message: str
) -> None:
    assert message_of(monkeypatch, capsys, "import", "tools", "python", target).startswith(message)
