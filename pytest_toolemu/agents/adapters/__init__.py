"""Run agents of other frameworks with emulated tools. Each module imports its framework inside its functions.

Here is what they share: the translation between the values of a toolbox and those of frameworks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar
from weakref import WeakKeyDictionary, proxy

from pytest_toolemu.core.toolbox import BlockingToolbox, Toolbox
from pytest_toolemu.errors import AgentStopped, MissingToolError
from pytest_toolemu.settings.model_names import PROVIDERS

Counter = TypeVar("Counter")

AnyToolbox = Toolbox | BlockingToolbox
"""What an agent gets: a Toolbox if it is an ``async`` function, or else a BlockingToolbox."""


def awaitable(toolbox: AnyToolbox) -> Toolbox:
    """Return the toolbox whose calls a framework awaits, on whatever event loop it runs."""
    return toolbox.awaitable if isinstance(toolbox, BlockingToolbox) else toolbox


def is_error(result: Any) -> bool:
    """Return whether a tool reports an error, which frameworks pass to their models with a status of its own."""
    return isinstance(result, dict) and set(result) == {"error"}


def stop(toolbox: Toolbox, error: AgentStopped | MissingToolError) -> NoReturn:
    """End the turn of the agent with an error, and raise it."""
    toolbox.stop(error)
    raise error


def option_name(provider: str | None, model: str | None) -> str:
    """Return the name of a model as ``toolbox.used`` takes it.

    A name of another provider stays recognizable as such, so that it does not get the prices of this model's maker.
    """
    model = model or "unknown"
    if not provider:
        return model
    return f"{provider}:{model}" if provider in PROVIDERS else f"{provider} {model}"


_COUNTERS: Final[WeakKeyDictionary[Toolbox, Any]] = WeakKeyDictionary()


def counter_of(toolbox: Toolbox, create: Callable[[Toolbox], Counter]) -> Counter:
    """Return what counts the tokens of an agent's turn: the same for every use of the toolbox, and as long as it lives.

    The counter gets a weak reference to the toolbox. A strong one would keep every toolbox until the session ends.
    """
    counters: WeakKeyDictionary[Toolbox, Counter] = _COUNTERS
    return counters.setdefault(toolbox, create(proxy(toolbox)))


class OnceCounter:
    """Tells which responses of models have not been counted yet, as several hooks may receive one."""

    def __init__(self, toolbox: Toolbox) -> None:
        self.toolbox = toolbox
        self._seen: dict[Any, tuple[object, Any]] = {}

    def is_first(self, response: Any, key: Any = None) -> bool:
        """Return whether this is the first time. Without a key, the object is what identifies a response."""
        mark = object()
        # Responses are not hashable, and an ID is unique while its object exists.
        return self._seen.setdefault(id(response) if key is None else key, (mark, response))[0] is mark
