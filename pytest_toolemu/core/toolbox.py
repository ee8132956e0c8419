"""The tools as an agent uses them. The calls of every kind of agent pass through here and are recorded the same way."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import copy
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextvars import ContextVar, copy_context
from datetime import datetime
from functools import partial
from json import dumps, loads
from time import perf_counter, time
from typing import Any, Final, NoReturn, Protocol, TypeVar

from pytest_toolemu.core.case import Case, ResolvedCase, User
from pytest_toolemu.core.messages import ModelCall, Reply, ToolSpec, Usage
from pytest_toolemu.core.run import Call, Observation, Step, Trajectory, UserReply, Utterance, json_text
from pytest_toolemu.core.tool_functions import describe, make_function
from pytest_toolemu.core.toolkit import callable_tools, provider_name
from pytest_toolemu.errors import AgentStopped, MissingToolError
from pytest_toolemu.formats.text import refuse_constant, truncated
from pytest_toolemu.formats.yaml_document import too_deep
from pytest_toolemu.settings.model_names import OFFICIAL_URLS, provider_of

T = TypeVar("T")

# Calls after the end of the turn that are refused at once; each further one waits.
_PROMPT_REFUSALS: Final = 100
_REFUSAL_SECONDS: Final = 1.0
# Iterations of the event loop in which tasks that the agent created before its answer can begin their calls.
_LAST_ITERATIONS: Final = 3
_MAX_WARNED_CALLS: Final = 3
_MAX_ARGUMENTS: Final = 300
# An agent that goes on talking after the end of the conversation must not fill the record.
_MAX_LAST_WORDS: Final = 100

Emulator = Callable[[Call, Trajectory], Awaitable[Observation]]
"""Answers a call, given everything that happened before. The toolbox appends the answer to the trajectory."""

SimulatedUser = Callable[[Trajectory], Awaitable[UserReply]]
"""Replies to the last utterance of the trajectory's dialogue, which is the agent's."""

Agent = Callable[["Task", "Toolbox"], Awaitable[str]]
"""Performs a task and returns its final answer."""


class UsageMeter(Protocol):
    """Counts the tokens that custom agents report against the budget of the session."""

    def check(self) -> None:
        """Raise NotRunError if nothing more may be spent."""
        ...

    def report(self, model: dict[str, Any], usage: Usage) -> None:
        """Count what a request to the model with this identity has used. May be called from any thread."""
        ...


class Task(str):
    """The instruction, as a string with the user, the current time, and the locale as attributes.

    This is everything that an agent learns about a case, besides its tools.
    """

    user: User
    now: datetime
    locale: str

    @classmethod
    def of(cls, case: Case) -> Task:
        """Return the task of a case."""
        task = cls(case.instruction)
        task.user, task.now, task.locale = case.user, case.now, case.locale
        return task


class Toolbox:
    """Offers the tools of a case to one agent, and enforces the agent's limits.

    ``max_steps`` calls are answered; the next one ends the agent's turn with AgentStopped. Calls are answered one at a
    time, in the order in which they were made, even if an agent makes several at once: each observation must be
    consistent with all earlier ones. They may be made on any event loop and in any context. A call is answered and
    recorded even if the agent does not wait for its result: a real tool would have been executed as well.
    """

    def __init__(
        self,
        trajectory: Trajectory,
        emulator: Emulator,
        max_steps: int,
        max_tokens: int | None = None,
        meter: UsageMeter | None = None,
        user: SimulatedUser | None = None,
    ) -> None:
        self.trajectory = trajectory
        self.max_tokens = max_tokens
        self._emulator = emulator
        self._max_steps = max_steps
        self._turn = asyncio.Lock()
        self._calls: dict[asyncio.Task[Any], tuple[str, Any] | None] = {}
        self._has_answered = False
        self._ended = False
        self._lost_calls = 0
        self._refused = 0
        self._meter = meter
        self._user = user
        self._said = 0
        self._is_over = False
        self._last_words: dict[str, Utterance] = {}
        self._has_reported_usage = False
        self._context: CallContext | None = None
        self.kept_tools: set[str] = set()
        # The exception that ended the turn from inside a call. An agent may catch it and continue, so it is kept.
        self.turn_error: BaseException | None = None
        # Set once ``turn_error`` is. An agent that continues anyway is canceled a moment later.
        self.stopped = asyncio.Event()
        self._tool_names = {
            name: f"{kit.name}.{tool.name}" for name, kit, tool in callable_tools(trajectory.resolved_case.toolkits)
        }
        self._callable_names = {provider_name(name): name for name in self._tool_names}

    @property
    def resolved_case(self) -> ResolvedCase:
        """The case with its toolkits."""
        return self.trajectory.resolved_case

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools with their JSON Schemas, in the order of the case's toolkits."""
        return tuple(
            ToolSpec(name=name, description=describe(tool), parameters=copy.deepcopy(tool.parameters))
            for name, tool in self.resolved_case.tools.items()
        )

    @property
    def provider_tools(self) -> tuple[ToolSpec, ...]:
        """The tools with names that OpenAI and Anthropic accept; ``call`` takes these names as well."""
        return tuple(tool.model_copy(update={"name": provider_name(tool.name)}) for tool in self.tools)

    def openai_tools(self) -> list[dict[str, Any]]:
        """Return the tools as the ``tools`` of an OpenAI Chat Completions request."""
        return [{"type": "function", "function": tool.model_dump()} for tool in self.provider_tools]

    def anthropic_tools(self) -> list[dict[str, Any]]:
        """Return the tools as the ``tools`` of an Anthropic Messages request."""
        return [
            {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
            for tool in self.provider_tools
        ]

    async def call(self, name: str, arguments: Any) -> Any:
        """Return the emulated result of a tool, or ``{"error": "Name: message"}``. Nothing is executed.

        ``arguments`` is a mapping, or JSON text as a model wrote it. Raise AgentStopped if the agent's turn has ended.
        """
        return await self.settle().run(self._call, str(name), arguments)

    async def say(self, text: str) -> str | None:
        """Say something to the user: a question, or the answer. Return the reply; None if the conversation is over.

        Without --toolemu-turns above 1, and for a case without 'conversation', it is over immediately: the text is the
        agent's answer. Raise TypeError for anything but a string, and AgentStopped if the agent's turn has ended.
        """
        if not isinstance(text, str):
            raise TypeError(f"toolbox.say: the text is {type(text).__name__}; pass what the agent says, as str")
        return await self.settle().run(self._say, printable(text))

    @property
    def is_answering(self) -> bool:
        """Whether a call is being answered, so that the agent waits for the emulator."""
        return bool(self.running_calls)

    @property
    def running_calls(self) -> tuple[asyncio.Task[Any], ...]:
        """The tasks in which calls and messages are being answered."""
        return tuple(task for task in self._calls if not task.done())

    @property
    def _tool_calls(self) -> dict[asyncio.Task[Any], tuple[str, Any]]:
        """The tool calls that have not been answered, by name and arguments."""
        return {task: call for task, call in self._calls.items() if call is not None and not task.done()}

    def settle(self) -> CallContext:
        """Make the current event loop and context those of the case; later calls of this method change nothing."""
        self._context = self._context or CallContext()
        return self._context

    async def _call(self, name: str, arguments: Any) -> Any:
        """Return the result of a tool. A caller that is canceled ends only its wait, and not the call."""
        if self._is_closed:
            if self._has_answered:
                self._warn_of("after its turn", name, arguments)
            await self._refuse()
        task = self._begin(self._in_turn(self._answer, name, arguments), (name, arguments))
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            if self._ended:
                self._check_open()
            raise
        return await task

    async def _say(self, text: str) -> str | None:
        """Return the user's reply. In a task as well, so that messages and calls keep their order."""
        if self._is_closed:
            await self._refuse()
        return await self._begin(self._in_turn(self._reply, text))

    def _begin(self, answer: Coroutine[Any, Any, T], call: tuple[str, Any] | None = None) -> asyncio.Task[T]:
        """Start a task that answers a tool call, given by name and arguments, or a message if there is none.

        It outlasts a caller that gives up.
        """
        task = asyncio.get_running_loop().create_task(answer)
        self._calls[task] = call
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        del self._calls[task]
        if not task.cancelled():
            task.exception()  # otherwise asyncio logs that nobody has read it: the caller may have given up

    async def _in_turn(self, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Return the result of an ``async`` function, once all earlier calls have been answered."""
        try:
            async with self._turn:
                if self.turn_error is not None or self._ended:
                    await self._slow_down()
                self._check_open()
                return await function(*arguments)
        except asyncio.CancelledError:
            if self._ended:
                self._check_open()
            raise
        except BaseException as error:
            self.stop(error)
            raise

    async def _reply(self, text: str) -> str | None:
        """Record what the agent says, and return the user's reply; None if the conversation is over.

        The last of ``trajectory.turns`` messages gets no reply: it is the agent's answer. Without a user, this is the
        first one.
        """
        dialogue = self.trajectory.dialogue
        said = Utterance(step=len(self.trajectory.steps), by="agent", text=text)
        self._said += 1
        if not self._is_over and self._user is not None and self._said < self.trajectory.turns:
            dialogue.append(said)
            agent = ACTING.set(None)
            try:
                reply = await self._user(self.trajectory)
            finally:
                ACTING.reset(agent)
            if reply.kind != "over":
                dialogue.append(Utterance(step=said.step, by="user", **reply.model_dump()))
                return reply.text
            dialogue.pop()
        elif self._is_over:
            await asyncio.sleep(0)  # an agent that ignores the end must not block the loop
        self._is_over = True
        if len(self._last_words) < _MAX_LAST_WORDS:
            self._last_words.setdefault(text, said)
        return None

    async def _answer(self, name: str, arguments: Any) -> Any:
        steps = self.trajectory.steps
        if len(steps) >= self._max_steps:
            raise AgentStopped("step_limit", f"{self._max_steps} tool calls were made")
        if self._meter is not None and self._has_reported_usage:
            self._meter.check()
        name = self._callable_names.get(name, name)
        tool = self._tool_names.get(name)
        call = Call(index=len(steps), name=printable(name), tool=tool, arguments=parse_arguments(arguments))
        started, begun = time(), perf_counter()
        self.trajectory.current_call = call
        agent = ACTING.set(None)  # an emulator may use tools of frameworks
        try:
            observation = await self._emulator(call, self.trajectory)
        finally:
            ACTING.reset(agent)
            self.trajectory.current_call = None
        world = self.trajectory.world
        changes = world.take_changes() if world is not None else ()
        seconds = perf_counter() - begun
        steps.append(Step(call=call, observation=observation, changes=changes, started=started, seconds=seconds))
        content = loads(observation.text)  # a copy: agents may change it
        member = self.resolved_case.tools[name].list_member if tool else None
        return content if member is None or observation.is_error else content[member]

    async def _refuse(self) -> NoReturn:
        async with self._turn:
            await self._slow_down()
        self._check_open()
        raise AgentStopped("timeout", "the case has ended")

    async def _slow_down(self) -> None:
        """Wait before a call is refused: an agent that catches the refusal and calls again must not block the loop."""
        self._refused += 1
        await asyncio.sleep(0 if self._refused <= _PROMPT_REFUSALS else _REFUSAL_SECONDS)

    @property
    def _is_closed(self) -> bool:
        return self._has_answered or self._ended or self.turn_error is not None

    def _check_open(self) -> None:
        if self.turn_error is not None:
            raise self.turn_error
        if self._ended:
            raise AgentStopped("timeout", "the case has ended")

    async def finish(self) -> None:
        """Refuse further calls, and wait for the results of those that the agent made and did not wait for.

        Unless an error ended the turn: then nothing more is asked of the emulator.
        """
        for _ in range(_LAST_ITERATIONS):
            await asyncio.sleep(0)
        self._has_answered = self.turn_error is None
        while (calls := self._tool_calls) and isinstance(self.turn_error, AgentStopped | None):
            await asyncio.wait(calls)

    def end(self) -> None:
        """Close the toolbox at the end of the agent's turn: cancel running calls, and refuse later ones.

        Otherwise calls that an agent left running would be recorded after its trajectory was judged.
        """
        if not self._ended and isinstance(self.turn_error, AgentStopped):
            for name, arguments in self._tool_calls.values():
                self._warn_of("before its turn ended", name, arguments)
        self._ended = True
        for task in self.running_calls:
            if task is not asyncio.current_task():
                task.cancel()

    def _warn_of(self, when: str, name: str, arguments: Any) -> None:
        """Say in the record that a call of the agent had no effect, for the first few of them."""
        self._lost_calls += 1
        if self._lost_calls > _MAX_WARNED_CALLS:
            return
        call = f"{printable(name)} {truncated(json_text(parse_arguments(arguments)), _MAX_ARGUMENTS)}"
        warning = (
            f"the agent called {call} {when}, and the call was not answered, so nothing judges it; wait for the result "
            "of each call before the agent answers"
        )
        self.trajectory.agent_warning = "; ".join(filter(None, (self.trajectory.agent_warning, warning)))

    def keep_last_words(self, answer: str) -> None:
        """Add what the agent said last to the dialogue if that is not its answer: the user has read it, too."""
        self.trajectory.dialogue.extend(said for text, said in self._last_words.items() if text != answer)

    def quit(self, reason: str) -> NoReturn:
        """End the turn without an answer, because the agent knows no safe way to continue."""
        error = AgentStopped("quit", str(reason))
        self.stop(error)
        raise self.turn_error or error

    def require_tools(self, agent: str, names: Iterable[str]) -> None:
        """Raise MissingToolError, which ends the session, if an existing agent has tools that no toolkit has.

        Such a tool has no emulated version, so only the real one could be called.
        """
        known = self._tool_names.keys() | self._callable_names.keys()
        if missing := [name for name in dict.fromkeys(names) if name not in known]:
            error = MissingToolError(
                f"the agent {agent} has tools that no toolkit of the case {self.resolved_case.case.id!r} has: "
                f"{', '.join(missing)}; declare or import them ('toolemu import tools') in a toolkit of the case, "
                "or remove them from the agent. None of them was executed"
            )
            self.stop(error)
            raise error

    def keep(self, *names: str) -> None:
        """Let tools of a framework with these names be executed although they are not emulated.

        For tools that only steer the agent, and for functions that themselves call this toolbox.
        """
        self.kept_tools.update(names)

    def stop(self, error: BaseException) -> None:
        """End the turn because of an exception; the first one is kept. May be called from any thread.

        Later calls of tools raise it, and an agent that continues anyway is canceled a moment later.
        """
        self.turn_error = self.turn_error or error
        if self._context is None:
            self.stopped.set()
        else:
            self._context.call_soon(self.stopped.set)

    def used(self, model: str, *, input: int, output: int, cached: int = 0, cache_written: int = 0) -> None:  # noqa: A002
        """Report the tokens of a request that the agent itself sent to a model, from any thread.

        They count in the limit on tokens, the budget, and all reports. ``model`` is written as in options, such as
        ``openai:gpt-4o``. ``input`` is the whole prompt, of which ``cached`` tokens were read from a cache and
        ``cache_written`` were written to one. Raise ValueError for impossible numbers, and AgentStopped if the agent
        has exceeded its limit.
        """
        call = reported_call(
            model, {"input": input, "output": output, "cached": cached, "cache_written": cache_written}
        )
        self.trajectory.ledger.model_calls.append(call)
        self._has_reported_usage = True
        if self._meter is not None and call.reply is not None:
            self._meter.report(call.model, call.reply.usage)
        if error := self.exceeded_tokens():
            self.stop(error)
            raise error

    def exceeded_tokens(self) -> AgentStopped | None:
        """Return the exception that ends the turn if the agent's reported tokens exceed the limit."""
        used, limit = self.trajectory.ledger.usage("agent").total, self.max_tokens
        if limit and used > limit:
            return AgentStopped("token_limit", f"{used} tokens were used; the limit is {limit}")
        return None

    def functions(self) -> dict[str, Callable[..., Awaitable[dict[str, Any]]]]:
        """Return each tool by name, as an ``async`` function of keyword arguments with a docstring and a signature."""
        tools = self.resolved_case.tools.items()
        return {name: make_function(partial(self.call, name), provider_name(name), tool) for name, tool in tools}


def parse_arguments(arguments: Any) -> Any:
    """Return arguments as a JSON value. JSON text is parsed, empty text means no arguments, other text stays text.

    Values that JSON cannot represent (NaN, lone surrogates, objects, more than 100 levels) become text, so that every
    record can be written whatever an agent sends.
    """
    try:
        value = loads(arguments or "{}", parse_constant=refuse_constant) if isinstance(arguments, str) else arguments
        text = dumps(value, ensure_ascii=False, default=str, allow_nan=False)
        if too_deep(loads(text)):
            raise ValueError("nested too deeply")
    except (TypeError, ValueError, RecursionError):
        text = dumps(str(arguments), ensure_ascii=False)
    return loads(printable(text))


def printable(text: str) -> str:
    """Return the text with each character that UTF-8 cannot encode replaced."""
    return text.encode("utf-8", "replace").decode()


class CallContext:
    """Where a case runs: the event loop and the context in which this object is created.

    An agent's framework may call tools from its own thread pool, from its own event loop, or from a task that began
    before the case. Executed there, a call would not belong to the case: its waiting times would count against the
    case's time limit, its log lines would be lost, and the emulator's connections would be used on a foreign loop.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        _CURRENT.set(self)
        self._context = copy_context()

    async def run(self, function: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> T:
        """Return the result of an ``async`` function that is executed there. May be awaited on any loop."""
        if _CURRENT.get() is self and asyncio.get_running_loop() is self._loop:
            return await function(*arguments)
        return await asyncio.wrap_future(self.submit(function, *arguments))

    def submit(self, function: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> concurrent.futures.Future[T]:
        """Execute an ``async`` function there; return a future of its result, for any thread."""
        # The context in which the task is created is the one in which it runs, hence also this call.
        return self._context.copy().run(asyncio.run_coroutine_threadsafe, function(*arguments), self._loop)

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call a plain function on the loop, from any thread; do nothing if the loop is closed."""
        with contextlib.suppress(RuntimeError):  # an abandoned thread can outlive the loop
            self._loop.call_soon_threadsafe(function)


ACTING: ContextVar[Toolbox | None] = ContextVar("toolemu_acting")
"""The toolbox of the agent whose code runs here; None in other code of a case, and unset outside cases."""
_CURRENT: ContextVar[CallContext | None] = ContextVar("toolemu_call_context", default=None)


class BlockingToolbox:
    """The toolbox for an agent that is a plain function: every call waits for its result.

    Such an agent runs in its own thread, so it may block. It may make calls from further threads.
    """

    def __init__(self, toolbox: Toolbox) -> None:
        # The same tools for code that awaits. It may do so on any event loop, for example that of a framework.
        self.awaitable = toolbox
        self._context = toolbox.settle()
        self.resolved_case = toolbox.resolved_case
        self.tools = toolbox.tools
        self.openai_tools = toolbox.openai_tools
        self.anthropic_tools = toolbox.anthropic_tools
        self.quit = toolbox.quit
        self.used = toolbox.used
        self.require_tools = toolbox.require_tools
        self.keep = toolbox.keep

    def call(self, name: str, arguments: Any) -> Any:
        """Call a tool as ``Toolbox.call`` does, without ``await``."""
        return self._context.submit(self.awaitable.call, name, arguments).result()

    def say(self, text: str) -> str | None:
        """Say something to the user as ``Toolbox.say`` does, without ``await``."""
        return self._context.submit(self.awaitable.say, text).result()

    def functions(self) -> dict[str, Callable[..., dict[str, Any]]]:
        """Return each tool by name, as a plain function of keyword arguments with a docstring and a signature."""
        tools = self.resolved_case.tools.items()
        return {name: make_function(partial(self.call, name), provider_name(name), tool) for name, tool in tools}


def reported_call(model: str, counts: dict[str, int]) -> ModelCall:
    """Return the record of a request of which only the model and the tokens are known.

    ``model`` is written as in options; without a URL, the provider's own endpoint is assumed. ``counts`` holds fields
    of ``Usage``. Raise ValueError for a model without a name, a count that is not a whole number or is negative, and a
    prompt that is smaller than its parts.
    """
    if not isinstance(model, str) or not model.strip():
        raise ValueError(f"toolbox.used: the model is {model!r}; name it, such as 'openai:gpt-4o'")
    for name, count in counts.items():
        if type(count) is not int or count < 0:
            raise ValueError(f"toolbox.used: {name} is {count!r}; give the number of tokens, an integer of 0 or more")
    if (parts := counts.get("cached", 0) + counts.get("cache_written", 0)) > counts["input"]:
        raise ValueError(
            f"toolbox.used: input is {counts['input']}, less than the {parts} tokens of cached and cache_written; "
            "count them in input, too"
        )
    provider = provider_of(model) or ""
    spec, _, base_url = model.removeprefix(f"{provider}:").partition("@")
    identity = {"provider": provider, "name": spec, "base_url": base_url or OFFICIAL_URLS.get(provider)}
    reply = Reply(usage=Usage(calls=1, **counts), model=spec)
    return ModelCall(role="agent", model=identity, messages=(), reply=reply, started=time(), seconds=0.0)
