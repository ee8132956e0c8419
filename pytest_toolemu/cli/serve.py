"""``toolemu serve``: try any MCP client by hand on one case."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlsplit

import typer

from pytest_toolemu.agents.mcp import served
from pytest_toolemu.cli.common import err, out
from pytest_toolemu.cli.judging import Evaluators
from pytest_toolemu.core.engine import Limits, RunSpec, run_case
from pytest_toolemu.core.run_notes import note_lines, notes_of
from pytest_toolemu.core.world.built_world import per_call
from pytest_toolemu.emulators.layers import WrapperEmulator
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.text import counted, truncated, visible
from pytest_toolemu.sessions import session_id
from pytest_toolemu.sessions.single_run import evaluators_of, refuse_session_settings, required_scores, stored
from pytest_toolemu.sessions.store import RunStore

if TYPE_CHECKING:
    from types import FrameType

    from pytest_toolemu.components import Components
    from pytest_toolemu.core.case import ResolvedCase
    from pytest_toolemu.core.engine import RunSpec
    from pytest_toolemu.core.run import Call, Observation, Run, Trajectory
    from pytest_toolemu.core.toolbox import Agent, Task, Toolbox
    from pytest_toolemu.settings.option_table import Settings


def serve(
    case: Annotated[
        str,
        typer.Argument(
            help="Case file; ID of a shipped case, such as june-rent-for-anna; or URL of a case that is being served, "
            "to connect a client that starts its servers as programs (stdio)."
        ),
    ],
    *,
    emulator: Annotated[
        str | None, typer.Option(metavar="SPEC", help="A model as emulator, a fallback A|B, or offline (default).")
    ] = None,
    evaluator: Evaluators = None,
    agent: Annotated[str, typer.Option(metavar="NAME", help="Name of the agent in the record.")] = "mcp-client",
) -> None:
    """Serve the tools of one case over MCP until Ctrl-C; then judge and store the run.

    Prints the URL and a configuration for MCP clients, and shows each call as it is answered. Other settings, such
    as TOOLEMU_MAX_STEPS, are read from variables. Exit with 1 unless the agent passed.
    """
    from pytest_toolemu.cli.common import command_settings, with_components
    from pytest_toolemu.models.sdk_versions import require_sdk

    require_sdk("serve", "toolemu serve")
    if "://" in case:
        _connect(case)
        return
    if not agent.strip():
        raise UsageError("--agent is empty; give the agent a name, such as --agent=my-agent, or omit the option")
    resolved_case = _load(case)
    settings = command_settings({"toolemu_emulator": emulator, "toolemu_evaluator": evaluator})
    interrupted = asyncio.Event()
    attended = AttendedAgent(agent, lambda url: _show_case(resolved_case, url), interrupted.wait, _ask_answer)

    def create(components: Components) -> tuple[RunSpec, list[str]]:
        spec = attended_spec(resolved_case, attended, components, settings, _show)
        return spec, components.names.evaluators_in_force(())

    async def work(created: tuple[RunSpec, list[str]]) -> int:
        spec, evaluators = created
        with _interrupts(interrupted):
            run, path = await run_attended(spec, settings, evaluators)
        for line in verdict_lines(run, path):
            _show(line)
        return 0 if run.outcome == "passed" else 1

    raise typer.Exit(with_components(settings, create, work))


def _load(name: str) -> ResolvedCase:
    """Return a case by its file, or a shipped one by its ID. Raise UsageError if there is none."""
    from pytest_toolemu.core.case import SUFFIX
    from pytest_toolemu.core.case_loading import case_id, load_case
    from pytest_toolemu.core.toolkit import benchmark_folder
    from pytest_toolemu.formats.yaml_document import closest

    if Path(name).is_file():
        return load_case(Path(name))
    shipped = {case_id(path): path for path in (benchmark_folder() / "cases").rglob(f"*{SUFFIX}")}
    if name in shipped:
        return load_case(shipped[name])
    raise UsageError(
        f"{name!r} is neither a case file nor the ID of a shipped case; name one file, such as cases/transfer{SUFFIX}"
        f"{closest(name, shipped)}"
    )


def _show(line: str) -> None:
    out.print(line)


def _show_case(resolved_case: ResolvedCase, url: str) -> None:
    """Print what a person needs in order to connect an agent and to give it its task."""

    case = resolved_case.case
    toolkits = ", ".join(toolkit.name for toolkit in resolved_case.toolkits)
    program = shutil.which("toolemu") or "toolemu"
    _show(f"{case.id}: {counted(len(resolved_case.tools), 'tool')} of {toolkits}")
    _show(f"URL: {url}")
    _show(f"configuration: {_configuration({'type': 'http', 'url': url})}")
    _show(f"configuration for stdio: {_configuration({'command': program, 'args': ['serve', url]})}")
    _show("instruction for the agent:")
    _show(visible(case.instruction))
    err.print("Ctrl-C ends the agent's turn; then the run is judged and stored.")


def _configuration(server: dict[str, Any]) -> str:
    # Clients show the name of a server to their model, so it does not tell that the tools are emulated.
    return json.dumps({"mcpServers": {"tools": server}})


def _ask_answer() -> str:
    """Return the agent's final answer, which a person copies from wherever the agent runs."""
    if sys.stdin.isatty():
        err.print("Final answer of the agent, then Ctrl-D (Ctrl-C: no answer):")
    try:
        return sys.stdin.read().strip()
    except KeyboardInterrupt:
        return ""


@contextlib.contextmanager
def _interrupts(event: asyncio.Event) -> Iterator[None]:
    """Set the event on the first SIGINT or SIGTERM; the next SIGINT is a KeyboardInterrupt.

    The handler of asyncio, which is replaced meanwhile, could not interrupt the wait for the answer.
    """
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        signal.signal(signal.SIGINT, signal.default_int_handler)
        loop.call_soon_threadsafe(event.set)

    for number in before:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _connect(url: str) -> None:
    """Connect an MCP client that starts its servers as programs (stdio) with a case that is being served."""
    address = urlsplit(url)
    if address.scheme != "http" or not address.hostname or not address.path.strip("/"):
        raise UsageError(
            f"{url!r} is not the URL of a case; copy it from the output of 'toolemu serve', such as "
            "http://127.0.0.1:40000/TOKEN/mcp"
        )
    asyncio.run(_pass_on(url))


async def _pass_on(url: str) -> None:
    """Serve the tools at a URL on standard input and output until the client closes its side."""
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server

    from pytest_toolemu.agents.mcp import first_cause

    async with contextlib.AsyncExitStack() as stack:
        http = await stack.enter_async_context(httpx2.AsyncClient(timeout=httpx2.Timeout(10, read=None)))
        try:
            client = await stack.enter_async_context(Client(streamable_http_client(url, http_client=http), cache=None))
        except Exception as error:
            reason = str(first_cause(error)) or type(first_cause(error)).__name__
            raise UsageError(f"{url} does not answer: {reason}; start 'toolemu serve' again") from None

        async def listed(_context: Any, _params: Any) -> Any:
            return await client.list_tools()

        async def called(_context: Any, params: Any) -> Any:
            return await client.call_tool(params.name, params.arguments)

        server = Server("tools", version="1", on_list_tools=listed, on_call_tool=called)
        reader, writer = await stack.enter_async_context(stdio_server())
        await server.run(reader, writer, server.create_initialization_options())


_SHOWN: Final = 400
_LONG: Final = 2000
_A_WEEK: Final = 7 * 24 * 3600.0

Show = Callable[[str], object]
"""Prints a line."""


@dataclass(frozen=True)
class AttendedAgent:
    """Serves the tools, and waits.

    ``show_url`` announces where the tools are, ``end`` returns when the turn is over, and ``ask_answer`` then returns
    the agent's final answer.
    """

    name: str
    show_url: Callable[[str], object]
    end: Callable[[], Awaitable[object]]
    ask_answer: Callable[[], str]

    @property
    def identity(self) -> dict[str, Any]:
        """The name that the person gives the agent; nothing else is known about it."""
        return {"kind": "attended", "name": self.name}

    async def __call__(self, _: Task, toolbox: Toolbox) -> str:
        """Return the final answer."""
        async with served(toolbox) as url:
            self.show_url(url)
            await self.end()
        return self.ask_answer()


@dataclass(frozen=True)
class ShownEmulator(WrapperEmulator):
    """Shows each call and its result while the case runs."""

    show: Show

    async def __call__(self, call: Call, trajectory: Trajectory) -> Observation:
        """Return the observation of the emulator that answers."""
        arguments = json.dumps(call.arguments, ensure_ascii=False)
        self.show(_line(f"{call.index + 1}. {call.tool or call.name} {arguments}"))
        observation = await self.next(call, trajectory)
        self.show(_line(observation.text, indent=3))
        return observation


def attended_spec(
    resolved_case: ResolvedCase, agent: Agent, components: Components, settings: Settings, show: Show
) -> RunSpec:
    """Return what is run: the case with the emulator, the evaluators, and the limits of the settings.

    The agent may take a week. Raise UsageError for a setting that only sessions of pytest have.
    """
    refuse_session_settings(settings, "toolemu serve")
    return RunSpec(
        per_call(resolved_case) if settings.world == "calls" else resolved_case,
        agent,
        ShownEmulator(components.emulator(None), show),
        evaluators_of(settings, components),
        required_scores(settings),
        Limits(settings.max_steps, settings.max_tokens, _A_WEEK),
        seed=settings.seed,
        combine=settings.combine,
    )


async def run_attended(spec: RunSpec, settings: Settings, evaluators: list[str]) -> tuple[Run, Path]:
    """Run the case, and store it as a session of one run with these evaluators; return the run and its file."""
    store = RunStore.create(Path(settings.run_dir), session_id(), private=settings.run_dir_mode == "private")
    return stored(store, [await run_case(spec)], settings, evaluators=evaluators)


def verdict_lines(run: Run, path: Path) -> Iterator[str]:
    """Yield the outcome with its reasons, the scores with their findings, and where the run is stored."""
    yield _line(f"{run.outcome}: {', '.join(run.reasons)}" if run.reasons else run.outcome, limit=_LONG)
    if run.agent_warning:
        yield _line(f"warning: {run.agent_warning}", limit=_LONG)
    for verdict in run.verdicts:
        result = verdict.problem or ", ".join(filter(None, (f"{verdict.score} {verdict.label}", verdict.reason)))
        yield _line(f"{verdict.metric}, by {verdict.evaluator}: {result}", indent=2)
        for line in verdict.origin_lines:
            yield _line(line, indent=4)
        for finding in verdict.findings:
            place = "answer" if finding.step is None else f"call {finding.step + 1}"
            yield _line(f"{place}: {finding.outcome}", indent=4)
    yield from map(_line, note_lines([(run.case_id, notes_of(run.model_calls))]))
    if run.stop != "final":
        yield _line(f"the agent's turn ended with {run.stop}: {run.stop_reason}")
    yield f"record: {path}"
    yield f"transcript: toolemu show {path}"


def _line(text: str, *, indent: int = 0, limit: int = _SHOWN) -> str:
    """Return text of agents and models as one line that is safe to print."""
    return " " * indent + truncated(" ".join(visible(text).split()), limit)
