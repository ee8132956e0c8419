"""The models of a session: components that ask them, servers that serve them, and permits to send requests."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from pytest_toolemu.plugin.session import ToolemuSession
from pytest_toolemu.plugin.session_files import SessionFiles
from pytest_toolemu.settings import fallback_parts, judge_models, provider_of

if TYPE_CHECKING:
    from pytest_toolemu.components import Components
    from pytest_toolemu.models.spec import ServedEndpoint
    from pytest_toolemu.models.vllm_servers import ServerFleet, VllmServer
    from pytest_toolemu.plugin.execution.permits import Permits
    from pytest_toolemu.scheduling.transport import Transport
    from pytest_toolemu.scheduling.worker import WorkerScheduler


class SessionModels:
    """Opens the components, and starts the servers that their models need.

    ``scheduler`` and ``transport`` return those of this process. Models are opened before they exist.
    """

    def __init__(
        self,
        session: ToolemuSession,
        files: SessionFiles,
        scheduler: Callable[[], WorkerScheduler],
        transport: Callable[[], Transport | None],
    ) -> None:
        self._session = session
        self._files = files
        self._scheduler = scheduler
        self._transport = transport
        self._components: Components | None = None
        self._are_servers_started = False

    def open_components(self) -> Components:
        """Return the agents, emulators, and evaluators that the settings name.

        The first call appends the project's root to ``sys.path``, as custom agents are modules of the project, and
        loads credentials from ``.env`` next to the ini file.
        """
        if self._components is None:
            from pytest_toolemu.components import Components
            from pytest_toolemu.formats.credentials import REGISTRY
            from pytest_toolemu.models.model_pool import ModelPool
            from pytest_toolemu.settings.environment import load_env

            root = self._session.config.rootpath
            sys.path.append(str(root))
            load_env(root / ".env")
            REGISTRY.remember()
            models = ModelPool(
                self._session.settings,
                self.permits,
                self.permits,
                lambda: self._files.prices,
                lambda: self.served_endpoints,
            )
            self._components = Components(self._session.settings, models)
        return self._components

    @functools.cached_property
    def servers(self) -> ServerFleet | None:
        """The vLLM servers that this session needs, started, or not; None for none. Raise UsageError if it cannot."""
        settings = self._session.settings
        judges = (model for name in settings.evaluator for model in judge_models(name))
        names = (*settings.agent, settings.emulator or "", settings.builder or "", settings.user, *judges)
        models = (part for name in names for part in fallback_parts(name))
        if self._session.is_worker or not any(provider_of(name) == "vllm" for name in models):
            return None
        from pytest_toolemu.plugin.execution import vllm_servers

        return vllm_servers.plan(self.open_components(), settings)

    @functools.cached_property
    def served_endpoints(self) -> dict[str, ServedEndpoint]:
        """The endpoints of the models that this session serves itself, by model name."""
        worker_input = self._session.worker_input
        if worker_input is None:
            return self.servers.endpoints if self.servers else {}
        if not worker_input.served_endpoints:
            return {}
        from pytest_toolemu.models.spec import ServedEndpoint

        return {name: ServedEndpoint(*endpoint) for name, endpoint in worker_input.served_endpoints.items()}

    def start_servers(self) -> None:
        """Start the vLLM servers of this session; once. Raise UsageError if one does not start."""
        fleet = self.servers
        if fleet is None or self._are_servers_started:
            return
        self._are_servers_started = True
        from pytest_toolemu.plugin.execution import vllm_servers

        vllm_servers.start_servers(
            fleet, self._session.config, self._files.store.folder, self._session.settings.vllm_timeout
        )
        fleet.watch(self._report_dead_server)

    def _report_dead_server(self, server: VllmServer, reason: str) -> None:
        """Fail the requests to a server that has died; called on any thread."""
        keys = self.open_components().models.rate_limit_keys(f"{server.url}/v1")
        if (transport := self._transport()) is not None:
            transport.update(lambda coordinator: coordinator.requests.lose(keys, reason))

    @functools.cached_property
    def permits(self) -> Permits:
        """The rate limiter and budget of all processes, as models use them."""
        from pytest_toolemu.plugin.execution.permits import Permits

        return Permits(self._scheduler, self._session.settings.budget_usd)

    def stop_watching_servers(self) -> None:
        """Stop watching the servers that this session has started, before they are stopped."""
        if self._are_servers_started and self.servers is not None:
            self.servers.stop_watching()
