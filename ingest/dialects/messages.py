"""Prompts and answers in their many shapes -> canonical messages.

A canonical message is {"role", "content"} with `content` a text, or a list of parts when there is more than text; an
assistant's tool calls are under "tool_calls" as [{"id", "name", "arguments"}], a tool's answer has "tool_call_id", text
that a model wrote for itself is under "reasoning". Read are OTel's parts, OpenAI's messages and choices, Anthropic's
blocks; as structures, as JSON, as JSON in JSON. Text that is none of these becomes the content of one message: nothing
that was sent is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ingest.dialects.facts import Content
from ingest.dialects.values import dumps, structure

Message = dict[str, object]
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

_TEXT_TYPES = {"text", "input_text", "output_text", "refusal"}
_CALL_TYPES = {"tool_call", "tool_use", "function_call", "tool-call", "server_tool_call"}
_ANSWER_TYPES = {
    "tool_call_response",
    "tool_result",
    "tool-result",
    "function_call_output",
    "server_tool_call_response",
}
_REASONING_TYPES = {"reasoning", "thinking"}


def canonical(value: object, role: str) -> list[Message]:
    """The messages in `value`; `role` is for those that do not name one. Empty when there is nothing."""
    if value is None or value == "":
        return []
    found = structure(value)
    if found is None:
        return [{"role": role, "content": value if isinstance(value, str) else dumps(value)}]
    if isinstance(found, dict):
        for key in ("messages", "choices", "output"):
            if isinstance(found.get(key), list) and "role" not in found:
                return canonical(found[key], role)
        return _message(found, role)
    assert isinstance(found, list)
    if found and all(_is_part(item) for item in found):
        return _message({"parts": found}, role)
    return [message for item in found for message in _item(item, role)]


def content(prompt: object = None, answer: object = None, system: object = None, tools: object = None) -> Content:
    """Canonical content from attribute values: messages in, messages out, system instructions, tool definitions."""
    before = canonical(system, "system")
    given = canonical(prompt, "user")
    if before and given and given[0].get("role") in ("system", "developer"):
        before = []
    offered = structure(tools)
    return Content(
        dumps([*before, *given]) if before or given else None,
        dumps(found) if (found := canonical(answer, "assistant")) else None,
        dumps(offered) if offered else None,
    )


def tool_content(name: str | None, call_id: str | None, arguments: object, result: object) -> Content:
    """A tool run as messages: the call that asked for it, and its answer."""
    call = {"id": call_id, "name": name, "arguments": _plain(arguments)}
    return Content(
        dumps([{"role": "assistant", "content": "", "tool_calls": [call]}]) if arguments is not None else None,
        dumps([{"role": "tool", "content": _as_text(result)}]) if result is not None else None,
    )


def tool_names(tools: object) -> str | None:
    """JSON array of the names in tool definitions (OTel's, OpenAI's, Anthropic's); None when there are none."""
    offered = structure(tools)
    names = []
    for item in offered if isinstance(offered, list) else []:
        tool = structure(item)
        if isinstance(tool, dict):
            function = tool.get("function")
            name = (
                tool.get("name") or (function.get("name") if isinstance(function, dict) else None) or tool.get("type")
            )
            if isinstance(name, str):
                names.append(name)
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
            given += _message(message, _ROLE_OF_EVENT[name])
    if full and (full.input_text or full.output_text):
        return full
    return Content(dumps(given) if given else None, dumps(answers) if answers else None)


def _item(item: object, role: str) -> list[Message]:
    found = structure(item) if isinstance(item, str) and item.startswith("{") else item
    if isinstance(found, dict):
        inner = found.get("message")
        return _choice(found) if isinstance(inner, dict | str) and "role" not in found else _message(found, role)
    return [{"role": role, "content": _as_text(item)}] if item is not None else []


def _choice(choice: Mapping[str, object]) -> list[Message]:
    inner = structure(choice.get("message")) or choice.get("message")
    messages = _message(inner, "assistant") if isinstance(inner, dict) else canonical(inner, "assistant")
    reason = choice.get("finish_reason")
    if messages and isinstance(reason, str):
        messages[-1].setdefault("finish_reason", reason)
    return messages


def _is_part(item: object) -> bool:
    return isinstance(item, dict) and "role" not in item and isinstance(item.get("type"), str) and "message" not in item


def _message(given: Mapping[str, object], role: str) -> list[Message]:
    """One message, or several when one holds the answers of several tools."""
    said = given.get("role")
    who = said if isinstance(said, str) and said else role
    inside = given.get("parts") if isinstance(given.get("parts"), list) else given.get("content")
    listed = inside if isinstance(inside, list) else structure(inside) if _looks_like_parts(inside) else None
    texts: list[str] = []
    calls: list[object] = []
    reasoning: list[str] = []
    others: list[object] = []
    answers: list[Message] = []
    if isinstance(listed, list):
        for part in listed:
            kind = part.get("type") if isinstance(part, dict) else None
            if not isinstance(part, dict):
                texts.append(_as_text(part))
            elif kind in _TEXT_TYPES or (kind is None and ("text" in part or "content" in part)):
                texts.append(_as_text(next((part[key] for key in ("content", "text", "refusal") if part.get(key)), "")))
            elif kind in _CALL_TYPES:
                calls.append(_call(part))
            elif kind in _ANSWER_TYPES:
                answers.append(_tool_answer(part))
            elif kind in _REASONING_TYPES:
                reasoning.append(_as_text(next((part[k] for k in ("content", "text", "thinking") if part.get(k)), "")))
            else:
                others.append(part)
    elif inside is not None:
        texts.append(_as_text(inside))
    if isinstance(asked := given.get("tool_calls"), list):
        calls.extend(_call(call) if isinstance(call, dict) else call for call in asked)
    message: Message = {"role": who, "content": "\n".join(texts)}
    if others:
        message["content"] = [*({"type": "text", "text": text} for text in texts), *others]
    if calls:
        message["tool_calls"] = calls
    if reasoning:
        message["reasoning"] = "\n".join(reasoning)
    if isinstance(answered := given.get("tool_call_id") or (given.get("id") if who == "tool" else None), str):
        message["tool_call_id"] = answered
    if isinstance(reason := given.get("finish_reason"), str):
        message["finish_reason"] = reason
    bare = not texts and not others and not calls and not reasoning
    return answers if answers and bare else [message, *answers]


def _looks_like_parts(inside: object) -> bool:
    return isinstance(inside, str) and inside.startswith('[{"') and '"type"' in inside


def _call(call: Mapping[str, object]) -> Message:
    function = call.get("function")
    inner: Mapping[str, object] = function if isinstance(function, dict) else call
    arguments = next((inner[key] for key in ("arguments", "input", "args") if key in inner), None)
    return {"id": call.get("id") or call.get("call_id"), "name": inner.get("name"), "arguments": _plain(arguments)}


def _tool_answer(part: Mapping[str, object]) -> Message:
    answer = next((part[key] for key in ("response", "result", "content", "output") if part.get(key) is not None), "")
    found = next((part[key] for key in ("id", "tool_call_id", "tool_use_id", "call_id") if part.get(key)), None)
    return {"role": "tool", "content": _as_text(answer), "tool_call_id": found}


def _plain(value: object) -> object:
    return value if (found := structure(value)) is None else found


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else dumps(value)
