"""The built-in agents: native tool calls, and the text protocol for models without them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, get_args

from pytest_toolemu.core.messages import Message, Model, Reply, ToolSpec
from pytest_toolemu.core.run import sha256
from pytest_toolemu.core.toolbox import Task, Toolbox
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.text import compact_json, refuse_constant
from pytest_toolemu.formats.yaml_document import closest
from pytest_toolemu.models.structured_output import ask
from pytest_toolemu.prompts import clock, prompt_hash, render
from pytest_toolemu.settings.model_names import Prompt

QUITTING: Final[frozenset[Prompt]] = frozenset({"quit", "simple_quit"})
MAX_RETRIES: Final = 2
"""Number of times in a row that an unusable reply is requested again."""


@dataclass(frozen=True)
class PromptedAgent:
    """A built-in agent: a model with a prompt. Raise UsageError for an unknown prompt."""

    model: Model
    prompt: Prompt = "naive"
    kind: ClassVar[str]
    follow_up: ClassVar[str]
    """The prompt after a turn that is unusable or cut off."""

    def __post_init__(self) -> None:
        if self.prompt not in get_args(Prompt):
            raise UsageError(f"unknown agent prompt {self.prompt!r}{closest(self.prompt, get_args(Prompt))}")

    @property
    def identity(self) -> dict[str, Any]:
        """Kind, prompt, a hash of every prompt that the agent can get, and the model's identity."""
        hashes = [prompt_hash(f"agent/{self.kind}_{self.prompt}"), prompt_hash(self.follow_up)]
        return {"kind": self.kind, "prompt": self.prompt, "prompt_hash": sha256(hashes), "model": self.model.identity}


class ToolCallingAgent(PromptedAgent):
    """Calls tools until its model replies without a call; that reply is the final answer, unless a user replies to it.

    A reply that is empty or cut off is continued, at most twice in a row. With a quitting prompt, a final reply that
    begins with ``QUIT:`` quits. A refusal counts as an answer.
    """

    kind = "tool_calling"
    follow_up = "agent/continue"

    async def __call__(self, task: Task, toolbox: Toolbox) -> str:
        """Return the final answer; AgentStopped if the agent quits or reaches a limit."""
        system = render(f"agent/tool_calling_{self.prompt}", **environment(task))
        messages = [Message(role="system", content=system), Message(role="user", content=str(task))]
        tools = toolbox.provider_tools
        parts: list[str] = []
        while True:
            reply = await next_reply(self.model, messages, toolbox, tools)
            if reply.calls:
                parts.clear()
                messages.append(reply.as_message())
                for call in reply.calls:
                    content = compact_json(await toolbox.call(call.name, call.arguments))
                    messages.append(Message(role="tool", content=content, call_id=call.id))
                continue
            parts.append(reply.text)
            if reply.stop == "refusal":
                return refusal(reply)
            has_text = bool(reply.text.strip())
            if (reply.stop == "length" or not has_text) and len(parts) <= MAX_RETRIES:
                messages += [reply.as_message()] if has_text else []  # endpoints refuse an empty turn
                messages.append(Message(role="user", content=render(self.follow_up, begun=has_text)))
                continue
            text = "".join(parts).strip()
            if self.prompt in QUITTING and text.startswith("QUIT:"):
                toolbox.quit(text.removeprefix("QUIT:").strip())
            answer = await toolbox.say(text)
            if answer is None:
                return text
            parts.clear()
            messages += [reply.as_message()] if has_text else []
            messages.append(Message(role="user", content=answer))


def environment(task: Task) -> dict[str, Any]:
    """Return user, time, and locale of the task as values for the prompts."""
    return {"user": task.user, "now": clock(task.now), "locale": task.locale}


async def next_reply(
    model: Model, messages: list[Message], toolbox: Toolbox, tools: tuple[ToolSpec, ...] = ()
) -> Reply:
    """Return the model's next turn; AgentStopped if the agent's reported tokens exceed the limit."""
    reply = await ask(model, "agent", toolbox.trajectory.ledger, messages, tools=tools)
    if error := toolbox.exceeded_tokens():
        raise error
    return reply


def refusal(reply: Reply) -> str:
    """Return the final answer of an agent that refuses: its text, or else the endpoint's explanation."""
    return reply.text.strip() or reply.stop_detail


_CUT_OFF = "the final answer was cut off at the limit of tokens; write a shorter one"


class ReactAgent(PromptedAgent):
    """Writes one call per turn until it writes a final answer to which no user replies.

    Each turn is cut after its first complete call; the rest goes to ``trajectory.discarded``. An unreadable turn is
    followed by a correction, at most twice in a row; the text of a third one is the final answer. A final answer that
    is cut off counts as unreadable.
    """

    kind = "react"
    follow_up = "agent/react_correction"

    async def __call__(self, task: Task, toolbox: Toolbox) -> str:
        """Return the final answer; AgentStopped if the agent quits or reaches a limit."""
        quits = self.prompt in QUITTING
        messages = self._opening(task, toolbox)
        corrections = 0
        while True:
            reply = await next_reply(self.model, messages, toolbox)
            if reply.stop == "refusal":
                return refusal(reply)
            turn = read_turn(reply.text, quits=quits)
            if isinstance(turn, TextFinal) and reply.stop == "length" and corrections < MAX_RETRIES:
                turn = TextProblem(_CUT_OFF, reply.text.strip(), "")
            match turn:
                case TextFinal():
                    answer = await toolbox.say(turn.answer)
                    if answer is None:
                        return turn.answer
                    corrections = 0
                    messages += [reply.as_message(), Message(role="user", content=f"User Input: {answer}")]
                    continue
                case TextQuit():
                    toolbox.quit(turn.reason)
                case TextProblem() if corrections == MAX_RETRIES:
                    return reply.text.strip()
            _keep(turn, messages, toolbox)
            if isinstance(turn, TextCall):
                corrections = 0
                message = f"Observation: {compact_json(await toolbox.call(turn.name, turn.arguments))}"
            else:
                corrections += 1
                message = render(self.follow_up, problem=turn.problem, quits=quits)
            messages.append(Message(role="user", content=message))

    def _opening(self, task: Task, toolbox: Toolbox) -> list[Message]:
        tools = specification(toolbox.resolved_case.toolkits)
        names = list(toolbox.resolved_case.tools)
        system = render(f"agent/react_{self.prompt}", tools=tools, names=names, **environment(task))
        return [Message(role="system", content=system), Message(role="user", content=f"User Input: {task}")]


def _keep(turn: TextCall | TextProblem, messages: list[Message], toolbox: Toolbox) -> None:
    """Add the readable part of a turn to the conversation; endpoints refuse an empty message, so that is left out."""
    if turn.kept:
        messages.append(Message(role="assistant", content=turn.kept))
    if turn.discarded:
        toolbox.trajectory.discarded.append(turn.discarded)


@dataclass(frozen=True)
class TextCall:
    """A complete call: ``kept`` is the turn up to its end, ``discarded`` the rest."""

    name: str
    arguments: dict[str, Any]
    kept: str
    discarded: str


@dataclass(frozen=True)
class TextFinal:
    """The final answer."""

    answer: str


@dataclass(frozen=True)
class TextQuit:
    """The reason for which the agent quits."""

    reason: str


@dataclass(frozen=True)
class TextProblem:
    """A turn without a call, answer, or ``QUIT:``, and the reason; ``kept`` and ``discarded`` are as for a call."""

    problem: str
    kept: str
    discarded: str


Turn = TextCall | TextFinal | TextQuit | TextProblem

_LABEL: Final = re.compile(
    r"^[ \t]{0,3}(?:\#{1,6}[ \t]{0,3})?[*_`]{0,3}"
    r"(?P<name>(?i:Thought|Action[ \t]?Input|Action|Observation|Final[ \t]?Answer)|QUIT)"
    r"[ \t]{0,3}[*_`]{0,3}[ \t]{0,3}:[*_`]{0,3}",
    re.MULTILINE,
)
# Local models may write their reasoning, with drafts of calls, before the turn; the opening tag may be missing.
_THINKING: Final = re.compile(r"\s*<think>.*?(?:</think>|\Z)|.*?\n</think>[ \t]*\n", re.DOTALL)
_OPENING: Final = re.compile(r"\s*(?:`{1,3}[ \t]*(?:json\b)?\s*)?", re.IGNORECASE)
_CLOSING: Final = re.compile(r"\s*`{1,3}(?!`)")
_DECORATION: Final = " \t\r\n*`'\"[]"


def read_turn(text: str, *, quits: bool) -> Turn:
    """Parse a turn without ever raising an error. ``QUIT:`` counts only if the prompt allows quitting."""
    thinking = _THINKING.match(text)
    label = _LABEL.search(text, thinking.end() if thinking else 0)
    while label:
        following = _LABEL.search(text, label.end())
        match _kind(label):
            case "finalanswer":
                return TextFinal(text[label.end() :].strip())
            case "quit" if quits:
                return TextQuit(text[label.end() :].strip())
            case "observation":
                return _problem("it has an observation, but no complete action before it", text, label.start())
            case "action" if following and _kind(following) == "actioninput":
                return _call(text, text[label.end() : following.start()], following.end())
        label = following
    return _problem("it has neither a complete action nor a final answer", text, len(text))


def text_before_decision(text: str) -> str:
    """Return the text of a turn before its action, final answer, or ``QUIT:``, without a leading ``Thought:``."""
    thinking = _THINKING.match(text)
    start = thinking.end() if thinking else 0
    labels = [(label, _kind(label)) for label in _LABEL.finditer(text, start)]
    end = next((label.start() for label, kind in labels if kind not in ("thought", "actioninput")), len(text))
    thought = text[start:end].strip()
    opening = _LABEL.match(thought)
    if opening and _kind(opening) == "thought":
        thought = thought[opening.end() :]
    return f"{text[:start]}{thought}".strip()


def _kind(label: re.Match[str]) -> str:
    return re.sub(r"[ \t]", "", label["name"]).lower()


def _call(text: str, name: str, start: int) -> Turn:
    """Parse the call whose input begins at ``start``.

    An invalid input ends the turn, because labels after it may be inside one of its strings.
    """
    name = name.strip(_DECORATION)
    opening = _OPENING.match(text, start)
    begin = opening.end() if opening else start
    if not name or "\n" in name:
        return _problem("Action is not the name of one tool", text, start)
    if not text.startswith("{", begin):
        return _problem("Action Input is not a JSON object", text, start)
    try:
        arguments, end = _DECODER.raw_decode(text, begin)
        json.dumps(arguments, ensure_ascii=False).encode()  # fails for an escaped lone surrogate
    except (ValueError, RecursionError) as error:
        return _problem(f"Action Input is not a valid JSON object: {error}", text, start)
    fence = _CLOSING.match(text, end) if "`" in text[start:begin] else None
    end = fence.end() if fence else end
    return TextCall(name, arguments, text[:end].strip(), text[end:].strip())


def _problem(problem: str, text: str, start: int) -> TextProblem:
    """Return an unusable turn without the observations that the model invented from ``start`` on."""
    invented = next(
        (label.start() for label in _LABEL.finditer(text, start) if _kind(label) == "observation"), len(text)
    )
    return TextProblem(problem, text[:invented].strip(), text[invented:].strip())


# Line breaks inside strings are accepted, because models write long texts that way.
_DECODER: Final = json.JSONDecoder(strict=False, parse_constant=refuse_constant)


# Keywords that the text or the layout expresses; all others are shown with their values.
_EXPRESSED: Final = {"type", "description", "title", "properties", "required", "items", "enum", "const"}


def specification(toolkits: tuple[Toolkit, ...]) -> str:
    """Describe each toolkit with its tools; each argument and result has a line with its type and description."""
    return "\n\n".join("\n".join(_toolkit(toolkit)) for toolkit in toolkits)


def _toolkit(toolkit: Toolkit) -> Iterator[str]:
    yield f"## {toolkit.name}: {_line(toolkit.description)}"
    for tool in toolkit.tools:
        yield f"\n* {toolkit.callable_name(tool)}: {_line(tool.description)}"
        yield from _section("Arguments", tool.parameters)
        yield from _section(f"Returns only '{tool.list_member}' of" if tool.list_member else "Returns", tool.returns)


def _section(title: str, schema: dict[str, Any]) -> Iterator[str]:
    more = ", ".join(_keywords(schema))
    yield f"  * {title}{f' ({more})' if more else ''}:{'' if schema.get('properties') else ' none'}"
    yield from _fields(schema, "    ")


def _fields(schema: Any, indent: str) -> Iterator[str]:
    """Yield a line for each property of an object, or of the objects in an array."""
    while isinstance(schema, dict) and "properties" not in schema:
        schema = schema.get("items")
    if not isinstance(schema, dict):
        return
    required = schema.get("required", ())
    for name, part in schema["properties"].items():
        marks = [kind_text(part)] if name in required else [kind_text(part), "optional"]
        description = part.get("description", "") if isinstance(part, dict) else ""
        yield f"{indent}* {name} ({', '.join(marks)}){': ' if description else ''}{_line(description)}"
        yield from _fields(part, indent + "  ")


def kind_text(schema: Any) -> str:
    """Describe the allowed values: the type, the values themselves, and other limits."""
    if not isinstance(schema, dict):
        return "nothing" if schema is False else "any"
    kind = schema.get("type", "any")
    words = kind if isinstance(kind, str) else " or ".join(kind)
    if isinstance(schema.get("items"), dict):
        item = kind_text(schema["items"])
        words += f" of ({item})" if "," in item else f" of {item}"
    limits = list(_keywords(schema))
    if "enum" in schema:
        limits.insert(0, f"one of {', '.join(map(_json, schema['enum']))}")
    if "const" in schema:
        limits.insert(0, f"always {_json(schema['const'])}")
    return ", ".join([words, *limits])


def _keywords(schema: dict[str, Any]) -> Iterator[str]:
    for keyword, value in schema.items():
        closed = keyword == "additionalProperties" and isinstance(value, bool)
        if keyword not in _EXPRESSED and not closed:
            yield f"{keyword} {_json(value)}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _line(text: str) -> str:
    return " ".join(text.split())
