"""5,000 requests of every shape a client can send, and some it cannot: the hook never raises, a model answers."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from policy_hook import NAMES, Proxy, exported, stand_in

SERVED = {"desk", *NAMES}


class Raising(dict[str, Any]):
    """A mapping that fails when it is read."""

    def get(self, key: Any, default: Any = None) -> Any:
        raise RuntimeError(key)


class Unclear:
    """Neither true nor false, nor comparable."""

    def __bool__(self) -> bool:
        raise TypeError

    def __eq__(self, other: object) -> bool:
        raise TypeError

    __hash__ = None  # type: ignore[assignment]


def deep(levels: int) -> dict[str, Any]:
    inner: dict[str, Any] = {"role": "assistant", "content": "x"}
    for _ in range(levels):
        inner = {"role": "assistant", "content": [inner], "tool_calls": [inner]}
    return inner


def cyclic() -> dict[str, Any]:
    one: dict[str, Any] = {"role": "assistant", "tool_calls": []}
    one["content"] = [one, {"text": one}]
    one["tool_calls"].append(one)
    return one


class Odd:
    """Draws odd requests, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.huge = "wörd\n " * 100_000
        self.nested = [cyclic(), deep(3000), []]

    def text(self) -> str:
        letters = "aB1 .)(\n\t`?-*#\0\ud800\udfff\U0001f642詩éİß\u202e{}[]\"'\\"
        return "".join(self.random.choices(letters, k=self.random.choice([0, 1, 5, 60, 400])))

    def scalar(self) -> Any:
        r = self.random
        plain = [None, True, False, 0, -1, 10**400, 1.5, float("nan"), float("-inf"), b"bytes", "", self.text(), 1j]
        return r.choice([*plain, set(), object(), Unclear(), Raising(role="user"), range(3), iter("ab"), str])

    def value(self, depth: int = 3) -> Any:
        r = self.random
        if depth == 0 or r.random() < 0.5:
            return self.scalar()
        if r.random() < 0.5:
            return r.choice([list, tuple])(self.value(depth - 1) for _ in range(r.randrange(4)))
        keys = ["role", "content", "type", "text", "thinking", "tool_calls", "function", "id", 3, None, self.text()]
        return {r.choice(keys): self.value(depth - 1) for _ in range(r.randrange(4))}

    def part(self) -> Any:
        url = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
        parts: list[Any] = [
            url,
            {"type": "text", "text": self.text()},
            {"type": "text", "text": self.scalar()},
            {"type": "tool_use", "id": self.scalar(), "input": self.value()},
            {"type": "tool_result", "content": self.value()},
            {"type": "thinking", "thinking": self.scalar(), "signature": None},
            {"type": self.scalar()},
        ]
        return self.random.choice([*parts, self.value()])

    def content(self) -> Any:
        r = self.random
        if r.random() < 0.01:
            return self.huge
        return r.choice([self.text(), [self.part() for _ in range(r.randrange(5))], self.value()])

    def message(self) -> Any:
        r = self.random
        if r.random() < 0.1:
            return r.choice([self.scalar(), *self.nested])
        message: dict[Any, Any] = {"role": r.choice(["user", "system", "assistant", "tool", self.scalar()])}
        if r.random() < 0.9:
            message["content"] = self.content()
        if r.random() < 0.3:
            call = {"id": self.scalar(), "function": {"name": self.scalar(), "arguments": "{broken"}}
            message["tool_calls"] = r.choice([[call], call, self.value()])
        if r.random() < 0.1:
            message[r.choice(["thinking_blocks", "parts", "type", "encrypted_content"])] = self.value()
        return message

    def messages(self) -> Any:
        r = self.random
        if r.random() < 0.15:
            return self.value()
        return [self.message() for _ in range(r.choice([0, 1, 3, 8]))]

    def metadata(self) -> Any:
        r = self.random
        own = {"session_id": self.scalar(), "policy.id": "spoof", "policy": self.value(), self.text(): self.value()}
        return r.choice(
            [None, {}, own, {"requester_metadata": own}, {"requester_metadata": self.value()}, self.value()]
        )

    def request(self) -> dict[str, Any]:
        r = self.random
        body: dict[str, Any] = {"model": "desk" if r.random() < 0.95 else r.choice([*NAMES, self.scalar()])}
        body[r.choice(["messages", "input"])] = self.messages()
        for key in ("system", "instructions", "tools", "response_format", "text", "previous_response_id", "prompt"):
            if r.random() < 0.15:
                body[key] = self.value()
        for key in ("metadata", "litellm_metadata"):
            if r.random() < 0.4:
                body[key] = self.metadata()
        return body

    def key(self) -> Any:
        models = [["desk"], ["desk", NAMES[2]], [], None, self.value(), ["*"], [None, 3, "a[b"]]
        return SimpleNamespace(models=self.random.choice(models), team_models=self.random.choice(models))


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Proxy]:
    with stand_in():
        yield Proxy(exported(tmp_path, epsilon=0.5, canary_percent=50.0, explore_percent=10.0))


def test_odd_requests_never_raise_and_always_leave_a_model_that_is_served(
    proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "retroute.policy_router")  # a trace for each would hide a failure
    odd, routed = Odd(7), 0
    for number in range(5000):
        request = odd.request()
        asked = request["model"]
        data = proxy.send(odd.random.choice(["acompletion", "aresponses", "anthropic_messages"]), odd.key(), **request)
        if asked.__class__ is not str or asked != "desk":
            assert data["model"] is asked
            continue
        assert data["model"] in SERVED, number
        headers = proxy.headers(data)
        if headers is None:
            assert data["model"] == "desk"  # what could not be read goes to the virtual model's own deployment
            continue
        routed += 1
        assert headers["x-policy-action"] == data["model"]
        assert 0.0 < float(headers["x-policy-propensity"]) <= 1.0
        places = [place for place in (data.get("metadata"), data.get("litellm_metadata")) if isinstance(place, dict)]
        (flat,) = [place["_retroute"] for place in places if "_retroute" in place]
        assert all(isinstance(value, str | float | int) for value in flat.values())
    assert routed > 4000


def test_spoofs_do_not_survive_odd_metadata(proxy: Proxy, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "retroute.policy_router")
    odd, met = Odd(11), 0
    for _ in range(500):
        request = odd.request() | {"model": "desk"}
        given = {place: request.pop(place, None) for place in ("metadata", "litellm_metadata")}
        given = {place: metadata for place, metadata in given.items() if type(metadata) is dict}  # as JSON gives it
        met += "spoof" in repr(given)
        data = proxy.send(**request, **given)
        for place in given:
            copied = data[place].get("requester_metadata")
            assert "policy.id" not in data[place]
            assert type(copied) is not dict or "policy.id" not in copied
    assert met > 50
