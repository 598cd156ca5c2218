"""One message, in whatever shape it was sent -> canonical messages. See `messages` for the canonical form.

Shapes of a message: OTel's parts, OpenAI's chat and responses items, Anthropic's and Bedrock's blocks, Gemini's parts,
Vercel's parts, LangChain's serialised objects. Bytes within a message (images, sounds, files) become a note of their
type and size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ingest.dialects.media import noted
from ingest.dialects.values import dumps, structure

Message = dict[str, object]

_ROLES = {
    "human": "user",
    "HumanMessage": "user",
    "HumanMessageChunk": "user",
    "ai": "assistant",
    "AIMessage": "assistant",
    "AIMessageChunk": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "SystemMessage": "system",
    "ToolMessage": "tool",
    "FunctionMessage": "tool",
    "function": "tool",
}
_SPEAKERS = {"user", "assistant", "system", "developer", "tool", *_ROLES}
_MESSAGE_TYPES = {"human", "ai", "system", "tool", "AIMessageChunk", "HumanMessageChunk"}
"""LangChain's names of roles, under "type"."""

_TEXT_TYPES = {"text", "input_text", "output_text", "refusal", "summary_text"}
_CALL_TYPES = {"tool_call", "tool_use", "function_call", "tool-call", "server_tool_call", "server_tool_use"}
_ANSWER_TYPES = {
    "tool_call_response",
    "tool_result",
    "tool-result",
    "function_call_output",
    "server_tool_call_response",
}
_REASONING_TYPES = {"reasoning", "thinking"}
_UNTYPED = {
    "toolUse": "tool_use",
    "toolResult": "tool_result",
    "functionCall": "function_call",
    "function_call": "function_call",
    "functionResponse": "tool_result",
    "function_response": "tool_result",
    "reasoningContent": "reasoning",
    "inlineData": "blob",
    "inline_data": "blob",
    "image": "image",
    "document": "document",
    "video": "video",
}
"""Key of a block without a type (Bedrock, Gemini) -> its type."""

_WRAPPED = frozenset({"lc", "function_call", "vector"})


def is_speaker(value: object) -> bool:
    """Whether a text is the name of a role."""
    return isinstance(value, str) and value in _SPEAKERS


def is_part(item: object) -> bool:
    """Whether this is a part of a message and no message."""
    if not isinstance(item, dict) or "role" in item or "message" in item:
        return False
    kind = item.get("type")
    if isinstance(kind, str):
        return kind not in _MESSAGE_TYPES and not ("lc" in item and "kwargs" in item) and kind != "message"
    return len(item) == 1 and (item.keys() <= {"text"} or not item.keys().isdisjoint(_UNTYPED))


def message(given: Mapping[str, object], role: str) -> list[Message]:
    """One message, or several when one holds the answers of several tools."""
    if (found := simple(given)) is not None:
        return [found]
    if "role" not in given or not _WRAPPED.isdisjoint(given):
        given, role = _unwrapped(given, role)
        if is_part(given):
            given = {"parts": [given]}
    said = given.get("role")
    who = _ROLES.get(said, said) if isinstance(said, str) and said else role
    inside = given.get("parts") if isinstance(given.get("parts"), list) else given.get("content")
    if inside is None and isinstance(given.get("contents"), list):
        inside = given["contents"]
    if isinstance(inside, dict) and isinstance(inside.get("parts"), list):
        inside = inside["parts"]
    listed = inside if isinstance(inside, list) else structure(inside) if _looks_like_parts(inside) else None
    texts: list[str] = []
    calls: list[object] = []
    reasoning: list[str] = []
    others: list[object] = []
    answers: list[Message] = []
    if isinstance(listed, list):
        for item in listed:
            if not isinstance(item, dict):
                texts.append(as_text(item))
                continue
            part = _typed(item)
            kind = as_text(said) if isinstance(said := part.get("type"), (list, dict)) else said
            if kind in _TEXT_TYPES or (kind is None and ("text" in part or "content" in part)):
                texts.append(as_text(_any_of(part, ("content", "text", "refusal"), "")))
            elif kind in _CALL_TYPES or (kind is None and "name" in part and not _ARGUMENTS.isdisjoint(part)):
                calls.append(call(part))
            elif kind in _ANSWER_TYPES:
                answers.append(_tool_answer(part))
            elif kind in _REASONING_TYPES:
                reasoning.append(_thought(part))
            else:
                others.append(noted(part))
    elif inside is not None:
        texts.append(as_text(inside))
    if not _ASKING.isdisjoint(given):
        known = {as_text(one["id"]) for one in calls if isinstance(one, dict) and one["id"]}
        listed_calls = [call(asked) if isinstance(asked, dict) else asked for asked in _asked(given)]
        calls.extend(one for one in listed_calls if not isinstance(one, dict) or as_text(one["id"]) not in known)
    texts = [text for text in texts if text] if len(texts) > 1 else texts
    result: Message = {"role": who, "content": "\n".join(texts)}
    if others:
        result["content"] = [*({"type": "text", "text": text} for text in texts if text), *others]
    if calls:
        result["tool_calls"] = calls
    if isinstance(thought := given.get("reasoning") or given.get("reasoning_content"), str):
        reasoning.append(thought)
    if thoughts := "\n".join(thought for thought in reasoning if thought):
        result["reasoning"] = thoughts
    if isinstance(answered := given.get("tool_call_id") or (given.get("id") if who == "tool" else None), str):
        result["tool_call_id"] = answered
    if isinstance(reason := given.get("finish_reason"), str):
        result["finish_reason"] = reason
    if not texts and not others and not calls and not reasoning:
        if answers:
            return answers
        if inside is None and not given.keys() <= _EMPTY:
            result["content"] = dumps(given)
    return [result, *answers]


def simple(given: object) -> Message | None:
    """A message of one text and nothing else, which is what most are; None for any other. Wrapped as OpenInference
    does it, too."""
    if not isinstance(given, dict):
        return None
    if len(given) == 1 and isinstance(inner := given.get("message"), dict) and "parts" not in inner:
        given = inner
    said = given.get("role")
    if not isinstance(said, str) or not said or not _PLAIN.issuperset(given):
        return None
    inside = given.get("parts") or given.get("content")
    if isinstance(inside, list):
        part = inside[0] if len(inside) == 1 else None
        if not isinstance(part, dict) or part.get("type") != "text" or len(part) != 2:
            return None
        inside = part.get("content", part.get("text"))
    elif isinstance(inside, str) and inside.startswith('[{"') and _looks_like_parts(inside):
        return None
    if not isinstance(inside, str):
        return None
    found: Message = {"role": _ROLES.get(said, said), "content": inside}
    if isinstance(reason := given.get("finish_reason"), str):
        found["finish_reason"] = reason
    return found


_PLAIN = frozenset({"role", "content", "parts", "name", "finish_reason"})
_ASKING = frozenset({"tool_calls", "additional_kwargs"})
_ARGUMENTS = frozenset({"arguments", "input", "args"})
_EMPTY = frozenset(
    {"role", "content", "parts", "type", "name", "id", "finish_reason", "tool_calls", "refusal", "tool_call_id"}
)
"""Keys of a message that says nothing. One with other keys is something else, and its text is kept as it is."""


def call(given: Mapping[str, object]) -> Message:
    """A tool call."""
    wrapped = given.get("tool_call")
    if isinstance(wrapped, dict):
        given = wrapped
    function = given.get("function")
    inner: Mapping[str, object] = function if isinstance(function, dict) else given
    arguments = inner.get("arguments", inner.get("input", inner.get("args")))
    identity = _any_of(given, ("id", "call_id", "toolCallId", "toolUseId"))
    if given.get("type") == "function_call" and given.get("call_id"):
        identity = given["call_id"]
    return {"id": identity, "name": inner.get("name") or inner.get("toolName"), "arguments": plain(arguments)}


def _any_of(given: Mapping[str, object], keys: Iterable[str], otherwise: object = None) -> object:
    """The first value that is not empty."""
    for key in keys:
        if value := given.get(key):
            return value
    return otherwise


def plain(value: object) -> object:
    """Structures out of JSON texts; other values as they are."""
    return value if (found := structure(value)) is None else found


def as_text(value: object) -> str:
    """Texts as they are, everything else as JSON."""
    return value if isinstance(value, str) else dumps(value)


def _unwrapped(given: Mapping[str, object], role: str) -> tuple[Mapping[str, object], str]:
    """The message within LangChain's or OpenInference's wrappings."""
    for _ in range(3):
        for key in ("message", "message_content", "prompt", "completion", "embedding"):
            if len(given) == 1 and isinstance(inner := given.get(key), dict):
                given = inner
        kind = given.get("type")
        if kind == "constructor" and isinstance(inner := given.get("kwargs"), dict):
            names = given.get("id")
            said = names[-1] if isinstance(names, list) and names else None
            role = _ROLES.get(said, role) if isinstance(said, str) else role
            given = inner
        elif isinstance(kind, str) and kind in _MESSAGE_TYPES and "role" not in given:
            inner = given.get("data")
            given = inner if isinstance(inner, dict) else {k: v for k, v in given.items() if k != "type"}
            role = _ROLES.get(kind, kind)
        else:
            break
    if isinstance(given.get("function_call"), dict) and "role" in given and "tool_calls" not in given:
        given = {**given, "tool_calls": [given["function_call"]]}
    if "vector" in given and "text" in given:
        given = {"content": given["text"]}
    return given, role


def _asked(given: Mapping[str, object]) -> list[object]:
    asked = structure(given.get("tool_calls"))
    if not asked and isinstance(more := given.get("additional_kwargs"), dict):
        asked = more.get("tool_calls")
    return asked if isinstance(asked, list) else []


def _typed(part: Mapping[str, object]) -> Mapping[str, object]:
    """The part with a type, out of its wrapping."""
    if isinstance(inner := part.get("message_content"), dict):
        asked = part.get("tool_call")
        return {**inner, **asked} if isinstance(asked, dict) else inner
    if "type" in part:
        return part
    if "text" not in part:
        for key, kind in _UNTYPED.items():
            if isinstance(inner := part.get(key), dict):
                return {**inner, "type": kind}
    return part


def _looks_like_parts(inside: object) -> bool:
    if not isinstance(inside, str) or not inside.startswith('[{"'):
        return False
    return '"type"' in inside or inside.startswith(('[{"text":', '[{"toolUse":', '[{"toolResult":'))


def _tool_answer(part: Mapping[str, object]) -> Message:
    answer = next((part[key] for key in ("response", "result", "content", "output") if part.get(key) is not None), "")
    if isinstance(answer, dict) and answer.keys() <= {"type", "value"} and "value" in answer:
        answer = answer["value"]
    if (
        isinstance(answer, list)
        and answer
        and all(isinstance(a, dict) and isinstance(a.get("text"), str) for a in answer)
    ):
        answer = "\n".join(a["text"] for a in answer)
    names = ("id", "tool_call_id", "tool_use_id", "call_id", "toolCallId", "toolUseId")
    return {
        "role": "tool",
        "content": as_text(answer),
        "tool_call_id": _any_of(part, names),
    }


def _thought(part: Mapping[str, object]) -> str:
    said = _any_of(part, ("content", "text", "thinking", "summary", "reasoningText"), "")
    if isinstance(said, list):
        return "\n".join(as_text(piece.get("text", "")) for piece in said if isinstance(piece, dict))
    return as_text(said.get("text", "") if isinstance(said, dict) else said)
