"""Builds the components of a session from its settings: agents, emulators, evaluators, and their models.

A component that is configured is used, or the session stops; nothing is replaced silently.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pytest_toolemu.agents.custom import load_custom_agent
from pytest_toolemu.agents.model_gateway import SessionRules
from pytest_toolemu.agents.no_op import no_op
from pytest_toolemu.agents.programs.load_agent import is_program, load_program
from pytest_toolemu.agents.programs.service import ServiceAgent
from pytest_toolemu.agents.react import ReactAgent
from pytest_toolemu.agents.reference import ReferenceAgent
from pytest_toolemu.agents.tool_calling import ToolCallingAgent
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.protocols import Evaluator
from pytest_toolemu.core.toolbox import Agent, Emulator
from pytest_toolemu.core.user_channel import SimulatedUser
from pytest_toolemu.emulators.consistent import ConsistentEmulator
from pytest_toolemu.emulators.model_user import ModelUser
from pytest_toolemu.emulators.offline.emulator import OfflineEmulator
from pytest_toolemu.emulators.offline_user import OfflineUser
from pytest_toolemu.emulators.pinned import PinnedEmulator
from pytest_toolemu.emulators.rows import RowsEmulator
from pytest_toolemu.emulators.simulated import SimulatedEmulator
from pytest_toolemu.emulators.validated import ValidatedEmulator
from pytest_toolemu.errors import UsageError
from pytest_toolemu.evaluators.checks import ChecksEvaluator
from pytest_toolemu.evaluators.model_judge import JudgeEvaluator
from pytest_toolemu.models import (
    KEYS,
    Endpoint,
    ModelSpec,
    Parameters,
    ServedEndpoint,
    check_url,
    named_model,
    open_model,
    parse_spec,
    preflight,
)
from pytest_toolemu.models.budgeted import BudgetedModel
from pytest_toolemu.models.endpoint import RemoteModel
from pytest_toolemu.models.pricing import Prices
from pytest_toolemu.models.rate_limiter import LocalRateLimiter, RateLimiter
from pytest_toolemu.models.retrying import RetryingModel
from pytest_toolemu.scheduling.budget import Budget, BudgetGuard
from pytest_toolemu.settings import (
    AGENT_FILE,
    CHECKS,
    COMMAND,
    NOACT,
    OFFLINE,
    PROVIDERS,
    REFERENCE,
    AgentConfig,
    Settings,
    is_model,
)

NO_BUILDER: Final = "none"
"""The value of ``--toolemu-builder`` with which a missing world is an error."""

_CUSTOM: Final = re.compile(r"(?:[A-Za-z_][\w.]*|.+\.py):[A-Za-z_][\w.]*")
_FOLDERS: Final = re.compile(r"(\.?[\w./-]*/[\w-]+):([A-Za-z_][\w.]*)")
# The names that are valid in place of an agent's model, for hints at misspelled ones.
_AGENTS: Final = (NOACT, f"{REFERENCE}safe", f"{REFERENCE}risky")


class Components:
    """Builds the components of a session. Components that name the same model share its connections."""

    def __init__(
        self,
        settings: Settings,
        rate_limiter: RateLimiter | None = None,
        budget: BudgetGuard | None = None,
        prices: Callable[[], Prices] | None = None,
        served: Callable[[], Mapping[str, ServedEndpoint]] = dict,
    ) -> None:
        self._settings = settings
        self._rate_limiter = rate_limiter or LocalRateLimiter(settings.concurrency)
        self._budget = budget or Budget()
        self._prices = prices
        self._served = served
        self._models: dict[str, Endpoint] = {}

    def agent(self, variant: AgentConfig) -> Agent:
        """Return the agent under test. Raise UsageError if it cannot be built."""
        name = variant.agent
        if name == NOACT:
            return no_op
        if name.startswith(REFERENCE):
            if name == REFERENCE:
                raise UsageError(f"{name!r} does not name a reference; write reference:safe or reference:risky")
            return ReferenceAgent(name.removeprefix(REFERENCE))
        if is_program(name):
            program = load_program(name, SessionRules(self._limited, self._settings.plays_only))
            if self._settings.turns > 1 and not isinstance(program, ServiceAgent):
                raise UsageError(
                    f"{self._settings.source('turns')} is {self._settings.turns}, but the command {name!r} ends with "
                    "its answer and cannot read a reply of the user; test it with one turn"
                )
            return program
        if _CUSTOM.fullmatch(name) and not is_model(name):
            return _custom_agent(name)
        _refuse_near_miss(name)
        loop = ReactAgent if self._settings.protocol == "react" else ToolCallingAgent
        return loop(self.model(name, _AGENTS), variant.prompt)

    def agent_note(self, variant: AgentConfig) -> str:
        """Return what the header says about an agent that a file describes; empty for nothing."""
        agent = load_program(variant.agent) if variant.agent.endswith(AGENT_FILE) else None
        return agent.note if isinstance(agent, ServiceAgent) else ""

    def emulator(self, variant: AgentConfig | None) -> Emulator:
        """Return the emulator for an agent; None means an agent that is not configured by name."""
        name = self.emulator_name(variant)
        mode = self._settings.emulator_mode
        inner: Any = OfflineEmulator() if name == OFFLINE else SimulatedEmulator(self.model(name, (OFFLINE,)), mode)
        return ValidatedEmulator(PinnedEmulator(RowsEmulator(ConsistentEmulator(inner))))

    def evaluators(self, variant: AgentConfig | None, metric: Metric) -> tuple[Evaluator, ...]:
        """Return the evaluators of a metric. Raise UsageError if there is none because the checks are turned off."""
        kind = self._settings.helpfulness
        if metric == "helpfulness" and kind == "none":
            return ()
        ignore = metric == "helpfulness" and kind == "ignore-safety"
        rubric = "helpfulness_ignore_safety" if ignore else metric
        names = self.evaluator_names(variant)
        if not names:
            raise UsageError(
                "no evaluator is left: if the emulator is not a model, the case's checks judge, but "
                f"{self._settings.source('checks')} turns them off; name a model with --toolemu-evaluator, or turn the "
                "checks on"
            )
        return tuple(
            ChecksEvaluator(metric) if name == CHECKS else JudgeEvaluator(self.model(name, (CHECKS,)), rubric)
            for name in names
        )

    def user(self) -> SimulatedUser:
        """Return the user who replies in conversations. Raise UsageError if a model is named that nobody asks."""
        if self._settings.user == OFFLINE:
            return OfflineUser()
        if self._settings.turns == 1:
            raise UsageError(
                f"{self._settings.source('user')} names the user {self._settings.user!r}, but with one turn no agent "
                "asks; set --toolemu-turns above 1, or remove the user"
            )
        return ModelUser(self.model(self._settings.user, (OFFLINE,)))

    def emulator_name(self, variant: AgentConfig | None) -> str:
        """Return the configured emulator; else the agent's model, or ``offline`` if the agent is not a model."""
        if self._settings.emulator:
            return str(self._settings.emulator)
        return variant.agent if variant and is_model(variant.agent) else OFFLINE

    def builder_name(self, variants: Sequence[AgentConfig | None]) -> str:
        """Return the model that builds missing worlds: the configured one, else the emulator's; empty for none.

        Agents with different models as emulators share their worlds, so none of these models is the default.
        """
        if self._settings.builder:
            return "" if self._settings.builder == NO_BUILDER else self._settings.builder
        models = {name for variant in variants or (None,) if is_model(name := self.emulator_name(variant))}
        return models.pop() if len(models) == 1 else ""

    def builder(self, variants: Sequence[AgentConfig | None]) -> Endpoint:
        """Return the model that builds missing worlds. Raise UsageError if it cannot be used."""
        return self.model(self.builder_name(variants), (NO_BUILDER,))

    def evaluator_names(self, variant: AgentConfig | None) -> tuple[str, ...]:
        """Return the configured evaluators; else the emulator's model, or ``checks`` if the emulator is offline.

        Each case's checks count in addition, unless ``--toolemu-checks=off`` is set. Raise UsageError if that option
        contradicts a configured ``checks``; return nothing if it leaves no evaluator.
        """
        checks = self._settings.checks == "on"
        if names := tuple(self._settings.evaluator):
            if CHECKS in names and not checks:
                raise UsageError(
                    f"{self._settings.source('evaluator')} names {CHECKS!r} as an evaluator, but "
                    f"{self._settings.source('checks')} turns the checks off; remove one of them"
                )
            return names
        emulator = self.emulator_name(variant)
        if is_model(emulator):
            return (emulator,)
        return (CHECKS,) if checks else ()

    def evaluators_in_force(self, variants: Sequence[AgentConfig | None]) -> list[str]:
        """Return the names of all evaluators of these variants, with ``checks`` if each case's checks count."""
        names = [name for variant in variants or (None,) for name in self.evaluator_names(variant)]
        return list(dict.fromkeys([*names, *([CHECKS] if self._settings.checks == "on" else [])]))

    def models_in_use(self, variants: Sequence[AgentConfig | None]) -> dict[ModelSpec, bool]:
        """Return every model that these variants use, agents first, and whether it is used as an agent."""
        acting = [variant.agent for variant in variants if variant and is_model(variant.agent)]
        supporting = [
            name
            for variant in variants
            for name in (self.emulator_name(variant), *self.evaluator_names(variant))
            if is_model(name)
        ]
        if is_model(self._settings.user):
            supporting.append(self._settings.user)
        if self._settings.world == "built" and (builder := self.builder_name(variants)):
            supporting.append(builder)
        return dict.fromkeys(map(parse_spec, [*acting, *supporting]), False) | dict.fromkeys(
            map(parse_spec, acting), True
        )

    def rate_limit_keys(self, url: str) -> list[str]:
        """Return the rate-limit keys of the models that this session serves at a URL."""
        return [
            model.rate_limit_key
            for name, model in self._models.items()
            if isinstance(model, RetryingModel) and (endpoint := self._place(parse_spec(name))) and endpoint.url == url
        ]

    def judges_itself(self, variant: AgentConfig) -> bool:
        """Return whether the agent's own model is among its evaluators."""
        return is_model(variant.agent) and variant.agent in self.evaluator_names(variant)

    def model(self, name: str, others: Sequence[str] = ()) -> Endpoint:
        """Return the model with this name and its retries. If all requests are replayed, it needs only its name.

        ``others`` are the valid names in this role that are not models, for hints at misspelled ones.
        """
        if name not in self._models:
            plays_only = self._settings.plays_only
            if self._settings.offline and not plays_only:
                raise UsageError(f"{name}: a model needs the network, but --toolemu-offline is set; remove one of them")
            parameters = Parameters(
                temperature=self._settings.temperature,
                max_tokens=self._settings.max_output_tokens,
                timeout=self._settings.request_timeout,
            )
            spec = parse_spec(name, others)
            self._models[name] = named_model(spec, parameters) if plays_only else self._opened(spec, parameters)
        return self._models[name]

    def _opened(self, spec: ModelSpec, parameters: Parameters) -> RetryingModel:
        environ = dict(os.environ)
        if self._settings.vllm_url:
            environ["VLLM_BASE_URL"] = check_url(self._settings.vllm_url, self._settings.source("vllm-url"))
        if self._settings.estimate:  # no request is sent, so no key is needed
            environ |= dict.fromkeys(KEYS, "not-needed") | os.environ
        return RetryingModel(
            self._budgeted(open_model(spec, parameters, environ, self._place(spec))), self._rate_limiter
        )

    def _place(self, spec: ModelSpec) -> ServedEndpoint | None:
        """Return the endpoint at which the session serves the model itself; None if it does not."""
        return self._served().get(spec.name) if spec.provider == "vllm" and spec.base_url is None else None

    def _budgeted(self, model: RemoteModel) -> BudgetedModel:
        """Return the model with the session's budget. Raise UsageError if that is in USD and no price is known."""
        price = self._prices().of(model.identity) if self._prices else None
        if self._budget.usd is not None and price is None:
            identity = model.identity
            raise UsageError(
                f"--toolemu-budget-usd is set, but no price is known for {identity['provider']}:{identity['name']} at "
                f"{identity['base_url']}; give one in a file with --toolemu-prices=FILE, or set --toolemu-budget-tokens"
            )
        return BudgetedModel(model, self._budget, price)

    def _limited(self, model: RemoteModel) -> RetryingModel:
        """Return a model that an agent's program has chosen, with the limits of the session."""
        price = self._prices().of(model.identity) if self._prices else None
        return RetryingModel(BudgetedModel(model, self._budget, price), self._rate_limiter)

    async def preflight(self, variants: Sequence[AgentConfig | None], *, may_be_made: bool = False) -> None:
        """Build every component of these variants, and verify each endpoint. Raise UsageError for the first problem.

        ``may_be_made``: a hook of the user may build agents, so unknown names of agents are not errors. Endpoints that
        the session serves itself are verified by ``preflight_served``, once they are running.
        """
        for variant in variants:
            try:
                if variant is not None and isinstance(agent := self.agent(variant), ServiceAgent):
                    await agent.check()
            except UsageError:
                if variant is None or is_model(variant.agent) or is_program(variant.agent) or not may_be_made:
                    raise
            self.emulator(variant)
            for name in self.evaluator_names(variant):
                if name != CHECKS:
                    self.model(name, (CHECKS,))
        self.user()
        for name, model in self._models.items():
            if self._place(parse_spec(name)) is None:
                await preflight(model)

    async def preflight_served(self) -> None:
        """Verify the endpoints that the session serves itself. Raise UsageError for the first problem."""
        for name, model in self._models.items():
            if self._place(parse_spec(name)) is not None:
                await preflight(model)

    async def close(self) -> None:
        """Close every connection."""
        for model in self._models.values():
            await model.aclose()
        self._models.clear()


def _refuse_near_miss(name: str) -> None:
    """Raise UsageError for a name that is almost that of a custom agent, a command, or an agent file."""
    if name.endswith(".py"):
        raise UsageError(f"{name!r} names a file without a function; write {name}:FUNCTION")
    if not is_model(name) and (path := _FOLDERS.fullmatch(name)):
        module, function = path.groups()
        dotted = module.removeprefix("./").replace("/", ".")
        raise UsageError(f"{name!r} does not name an agent; write {dotted}:{function} or {module}.py:{function}")
    if name.endswith((".yaml", ".yml")):
        raise UsageError(f"{name!r} does not name an agent; a file that describes one is called NAME{AGENT_FILE}")
    if " " in name:
        raise UsageError(f"{name!r} does not name an agent; to test a program, write '{COMMAND} PROGRAM ARGUMENTS'")


def _custom_agent(name: str) -> Agent:
    """Load a custom agent.

    Raise UsageError, with a hint if its name looks like that of a built-in agent or provider.
    """
    try:
        return load_custom_agent(name)
    except UsageError as error:
        head, _, rest = name.partition(":")
        near = difflib.get_close_matches(head, [REFERENCE.removesuffix(":"), *PROVIDERS], n=1, cutoff=0.75)
        if not near or head in near or f"there is no module {head!r}" not in str(error):
            raise
        raise UsageError(f"agent {name!r}: there is no such module; did you mean {f'{near[0]}:{rest}'!r}?") from None
