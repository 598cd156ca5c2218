"""Prompts and answers in their many shapes -> canonical messages.

A canonical message is {"role", "content"} with `content` a text, or a list of parts when there is more than text; an
assistant's tool calls are under "tool_calls" as [{"id", "name", "arguments"}], a tool's answer has "tool_call_id", text
that a model wrote for itself is under "reasoning". Bytes become {"type", "media_type", "bytes"}, their number. Lists of
messages are read as structures, as JSON, as JSON in JSON, as requests and answers of providers' APIs. Text that is none
of these becomes the content of one message: nothing that was sent is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ingest.dialects import parts
from ingest.dialects.facts import Content
from ingest.dialects.parts import Message, as_text, plain
from ingest.dialects.values import dumps, structure, text

Event = tuple[str, object, Mapping[str, object]]
"""Name, body and attributes of a log record or span event."""

DETAILS = "gen_ai.client.inference.operation.details"
_ROLE_OF_EVENT = {
    "gen_ai.system.message": "system",
    "gen_ai.developer.message": "developer",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
CONTENT_EVENTS = frozenset(
    {*_ROLE_OF_EVENT, "gen_ai.choice", DETAILS, "gen_ai.content.prompt", "gen_ai.content.completion"}
)
"""Events that carry a call's texts."""

_LISTS = ("messages", "choices", "generations", "output", "candidates", "contents")
"""Keys of a request or an answer that hold its messages."""

_TURN = "function_call_output"

_DEEPEST = 8
"""Lists within lists beyond this are no messages."""


def canonical(value: object, role: str, depth: int = 0) -> list[Message]:
    """The messages in `value`; `role` is for those that do not name one. Empty when there is nothing."""
    if value is None or value == "":
        return []
    found = structure(value) if depth < _DEEPEST else None
    if found is None:
        said = plain(value)
        return [{"role": role, "content": said if isinstance(said, str) else dumps(said)}]
    if isinstance(found, dict):
        return _object(found, role, depth)
    assert isinstance(found, list)
    if _are_parts(found):
        return parts.message({"parts": found}, role)
    messages: list[Message] = []
    for item in found:
        if (simple := parts.simple(item)) is not None:
            messages.append(simple)
        else:
            messages += _item(item, role, depth)
    return messages


def content(
    prompt: object = None,
    answer: object = None,
    system: object = None,
    tools: object = None,
    calls: object = None,
    reasoning: object = None,
    spare: object = None,
) -> Content:
    """Canonical content from attribute values: messages in, messages out, system instructions, tool definitions; tool
    calls and reasoning of an answer that came apart from its text. `spare` is another account of the answer, for when
    the first one says nothing."""
    before = [] if system is None else canonical(system, "system")
    given = canonical(prompt, "user")
    if before and given and given[0].get("role") in ("system", "developer"):
        before = []
    found = canonical(answer, "assistant")
    if spare is not None and not any(message["content"] or message.get("tool_calls") for message in found):
        found = canonical(spare, "assistant") or found
    if calls is not None or reasoning is not None:
        found = _completed(found, structure(calls), text(reasoning))
    offered = None if tools is None else structure(tools)
    return Content(
        dumps([*before, *given]) if before or given else None,
        dumps(found) if found else None,
        dumps(offered) if offered else None,
    )


def _completed(answer: list[Message], asked: object, thought: str | None) -> list[Message]:
    """An answer with the tool calls and the reasoning that came apart from it."""
    if not asked and not thought:
        return answer
    found = answer or [{"role": "assistant", "content": ""}]
    if isinstance(asked, list):
        listed: list[object] = [parts.call(one) for item in asked if isinstance(one := plain(item), dict)]
        found[-1].setdefault("tool_calls", listed)
    if thought:
        found[-1].setdefault("reasoning", thought)
    return found


def tool_content(name: str | None, call_id: str | None, arguments: object, result: object) -> Content:
    """A tool run as messages: the call that asked for it, and its answer."""
    call = {"id": call_id, "name": name, "arguments": plain(arguments)}
    return Content(
        dumps([{"role": "assistant", "content": "", "tool_calls": [call]}]) if arguments is not None else None,
        dumps([{"role": "tool", "content": as_text(result)}]) if result is not None else None,
    )


def tool_names(tools: object) -> str | None:
    """JSON array of the names in tool definitions (OTel's, OpenAI's, Anthropic's) or among names; None when there are
    none."""
    offered = structure(tools)
    if isinstance(offered, dict):  # Pydantic AI's parameters of a request
        both = offered.get("function_tools"), offered.get("output_tools")
        offered = [tool for listed in both if isinstance(listed, list) for tool in listed]
    names = []
    for item in offered if isinstance(offered, list) else []:
        tool = structure(item)
        if isinstance(tool, dict):
            inner = structure(within) if (within := _definition(tool)) is not None else tool
            tool = inner if isinstance(inner, dict) else tool
            function = tool.get("function")
            name = (
                tool.get("name") or (function.get("name") if isinstance(function, dict) else None) or tool.get("type")
            )
            if isinstance(name, str):
                names.append(name)
        elif isinstance(item, str):
            names.append(item)
    return dumps(names) if names else None


def from_events(events: Iterable[Event]) -> Content:
    """The content that a call's events carry, in their order. A full account in one event wins over single messages."""
    given: list[Message] = []
    answers: list[Message] = []
    full: Content | None = None
    for name, body, attributes in events:
        fields = {**(body if isinstance(body, dict) else {}), **attributes}
        if name == DETAILS:
            full = content(
                fields.get("gen_ai.input.messages"),
                fields.get("gen_ai.output.messages"),
                fields.get("gen_ai.system_instructions"),
                fields.get("gen_ai.tool.definitions"),
            )
        elif name == "gen_ai.content.prompt":
            given += canonical(fields.get("gen_ai.prompt"), "user")
        elif name == "gen_ai.content.completion":
            answers += canonical(fields.get("gen_ai.completion"), "assistant")
        elif name == "gen_ai.choice":
            answers += _choice(fields)
        elif name in _ROLE_OF_EVENT:
            message = fields if {"content", "tool_calls", "parts"} & fields.keys() else {"content": body}
            given += parts.message(message, _ROLE_OF_EVENT[name])
    if full and (full.input_text or full.output_text):
        return full
    return Content(dumps(given) if given else None, dumps(answers) if answers else None)


def from_listed_events(listed: object) -> Content:
    """The content of events that were sent as one JSON list, each with its name under "event.name"."""
    found = structure(listed)
    events = [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []
    return from_events((str(event.get("event.name", "")), event, {}) for event in events)


def tool_from_events(events: Iterable[Event]) -> tuple[object, object]:
    """Arguments and result of a tool's run, as its own events tell them."""
    arguments: object = None
    result: object = None
    for name, body, attributes in events:
        fields = {**(body if isinstance(body, dict) else {}), **attributes}
        if name == "gen_ai.tool.message":
            arguments = fields.get("content")
        elif name == "gen_ai.choice":
            said = canonical(fields.get("message"), "tool")
            result = "\n".join(as_text(message.get("content")) for message in said) if said else None
    return arguments, result


def _object(found: dict[str, object], role: str, depth: int) -> list[Message]:
    """A message, or a request or an answer that holds messages."""
    if "role" in found or "lc" in found:
        return parts.message(found, role)
    instructions = next((found[k] for k in ("system", "instructions", "system_instruction") if found.get(k)), None)
    before = canonical(instructions, "system") if isinstance(instructions, (str, list)) else []
    for key in _LISTS:
        if isinstance(inner := found.get(key), list):
            return [*before, *canonical(inner, role, depth + 1)]
    for key in ("inputs", "outputs"):  # a run of a chain, with its tags
        if isinstance(inner := found.get(key), dict):
            return canonical(inner, role, depth + 1)
    for key in ("input", "prompt", "output"):
        if (
            isinstance(inner := found.get(key), (str, list, dict))
            and inner
            and (len(found) == 1 or "model" in found or before)
        ):
            return [*before, *canonical(inner, role, depth + 1)]
    if isinstance(found.get("message"), (dict, str)):
        return _choice(found)
    return parts.message(found, role)


def _item(item: object, role: str, depth: int) -> list[Message]:
    found = structure(item) if isinstance(item, str) and item.startswith("{") else item
    if isinstance(found, dict):
        inner = found.get("message")
        if isinstance(inner, (dict, str)) and "role" not in found and len(found) > 1:
            return _choice(found)
        if found.get("type") in ("function_call", "reasoning"):
            role = "assistant"
        return parts.message(found, role)
    if isinstance(found, list) and found:
        if len(found) == 2 and parts.is_speaker(found[0]):
            return parts.message({"role": found[0], "content": found[1]}, role)
        return canonical(found, role, depth + 1)
    return [{"role": role, "content": as_text(item)}] if item is not None else []


def _choice(choice: Mapping[str, object]) -> list[Message]:
    inner = structure(choice.get("message")) or choice.get("message")
    if isinstance(inner, dict) and "tool_calls" in choice and "tool_calls" not in inner:
        inner = {**inner, "tool_calls": choice["tool_calls"]}
    messages = parts.message(inner, "assistant") if isinstance(inner, dict) else canonical(inner, "assistant")
    reason = choice.get("finish_reason")
    if messages and isinstance(reason, str):
        messages[-1].setdefault("finish_reason", reason)
    return [*messages, *canonical(choice.get("tool.result"), "tool")]


def _are_parts(found: list[object]) -> bool:
    """Whether a list is one message's parts, and neither messages nor turns without roles as OpenAI's responses API has
    them."""
    for item in found:
        if not parts.is_part(item):
            return False
    return bool(found) and not any(isinstance(item, dict) and item.get("type") == _TURN for item in found)


def _definition(tool: Mapping[str, object]) -> object:
    inner = tool.get("tool")
    return inner.get("json_schema", inner) if isinstance(inner, dict) else tool.get("json_schema")
