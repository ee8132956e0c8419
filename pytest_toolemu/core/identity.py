"""Identities of agents, emulators, and evaluators in records and keys, and the names that reports derive from them."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import Field

from pytest_toolemu.core.case_vocabulary import METRICS, Metric
from pytest_toolemu.core.run import COMBINE_RULES, is_judge, sha256
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.yaml_document import Record
from pytest_toolemu.settings.model_names import CHECKS, FALLBACK, IGNORING_SAFETY


class ComponentName(Record):
    """What reports call an agent, an emulator, or an evaluator: ``judged openai:gpt-4o safety #1a2b3c4d``.

    The hash covers the whole identity: model, parameters, prompt texts, and reply schema. Equal names mean comparable
    results.
    """

    kind: str = Field(default="", description="Kind of component, such as `judged`")
    label: str = Field(description="Kind, model, and other parts by which people recognize it")
    hash: str = Field(description="First digits of the SHA-256 of the identity")

    def __str__(self) -> str:
        return f"{self.label} #{self.hash}"


def component_name(identity: dict[str, Any]) -> ComponentName:
    """Return what reports call the component with this identity."""
    model = identity.get("model")
    name = model_label(model) if isinstance(model, dict) else identity.get("name")
    words = (identity.get("kind"), name, *(identity.get(key) for key in ("mode", "rubric", "metric", "label")))
    return ComponentName(
        kind=str(identity.get("kind", "")),
        label=" ".join(str(word) for word in words if word),
        hash=sha256(identity)[:8],
    )


def model_label(model: Mapping[str, Any]) -> str:
    """Return ``provider:name`` of the model with this identity; ``openai:a|vllm:b`` for an ordered fallback."""
    return FALLBACK.join(map(provider_and_name, identities_in_turn(model)))


def provider_and_name(model: Mapping[str, Any]) -> str:
    """Return ``provider:name`` of the model with this identity, without the models that it falls back on."""
    return f"{model.get('provider')}:{model.get('name')}"


def identities_in_turn(model: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the identities of the models of an ordered fallback, or the only one, in the order of being asked."""
    first = {name: value for name, value in model.items() if name != "fallback"}
    return [first, *model.get("fallback", ())]


def identity_of(component: Any, *, in_dialogue: bool = False) -> dict[str, Any]:
    """Return the ``identity`` of an agent, emulator, or evaluator; for a plain function, see ``own_identity``.

    A component that uses other prompts in runs with a dialogue has a ``dialogue_identity`` for these.
    """
    identity = getattr(component, "dialogue_identity", None) if in_dialogue else None
    identity = getattr(component, "identity", None) if identity is None else identity
    return own_identity(component, name_of(component)) if identity is None else dict(identity)


def judge_name(model: Mapping[str, Any], rubric: str) -> str:
    """Return the name of a model judge in verdicts, from the identity of its model."""
    judge = f"judge {model_label(model)}"
    return judge + IGNORING_SAFETY if rubric == "helpfulness_ignore_safety" else judge


def verdict_names(identity: Mapping[str, Any]) -> list[tuple[str, Metric]]:
    """Return name and metric of an evaluator's verdicts; both metrics if its identity does not say."""
    model, rubric = identity.get("model"), str(identity.get("rubric"))
    metrics = [metric for metric in get_args(Metric) if rubric.startswith(metric)]
    if identity.get("kind") == "judged" and isinstance(model, Mapping) and metrics:
        return [(judge_name(model, rubric), metric) for metric in metrics]
    name, own_metric = str(identity.get("name", identity.get("kind"))), identity.get("metric")
    return [(name, metric) for metric in get_args(Metric) if metric == own_metric] or [
        (name, metric) for metric in METRICS
    ]


def refuse_unknown_judge(rule: str, evaluators: Iterable[Mapping[str, Any]]) -> None:
    """Raise UsageError if the rule that combines judges names none of the judges of a metric.

    Nothing is known about the names that evaluators of fixtures give themselves in their verdicts.
    """
    judging = [identity for identity in evaluators if identity.get("kind") != CHECKS]
    is_known = rule not in COMBINE_RULES and all(one.get("kind") in ("judged", "cascade") for one in judging)
    names = [pair for identity in judging for pair in verdict_names(identity)]
    for judged in METRICS if is_known else ():
        judges = sorted({name for name, metric in names if metric == judged})
        if judges and not any(is_judge(name, rule) for name in judges):
            raise UsageError(
                f"toolemu_combine is '{rule}', which is no judge of {judged}; use {', '.join(COMBINE_RULES)}, or one "
                f"of the judges: {', '.join(judges)}"
            )


def own_identity(function: Any, name: str) -> dict[str, Any]:
    """Return the identity of a user's function: kind, name, and as ``source`` the hash of the file that defines it.

    The hash does not cover what the file imports. An agent that consists of several files sets ``identity`` itself.
    """
    source = _source(_definition(function))
    return {"kind": "own", "name": name} | ({"source": source} if source else {})


def runs_own_code(agent: Mapping[str, Any]) -> bool:
    """Return whether the agent with this identity could use other tools than the emulated ones."""
    return agent.get("kind") in ("own", "command", "service")


def name_of(component: Any) -> str:
    """Return ``module:function`` of a function, or of the class of a callable object."""
    definition = _definition(component)
    return f"{definition.__module__}:{definition.__qualname__}"


def _definition(component: Any) -> Any:
    """Return what has a name and a file: the function inside a functools.partial, a module, the class of an object."""
    component = getattr(component, "func", component)
    return component if hasattr(component, "__qualname__") or inspect.ismodule(component) else type(component)


def _source(definition: Any) -> str:
    try:
        path = inspect.getsourcefile(inspect.unwrap(definition))
    except TypeError:  # builtins, and classes defined in a console
        return ""
    return file_hash(path) if path else ""


@functools.cache  # the file as it was when it was loaded: editing it while cases run does not change what runs
def file_hash(path: str) -> str:
    """Return the start of the SHA-256 of a file; empty if it cannot be read."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]
    except OSError:
        return ""
