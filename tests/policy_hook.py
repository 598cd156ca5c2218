"""The exported hook in this process: LiteLLM's base class and what it does with the hook are stood in for."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from optimizer.bundle import write_policy
from optimizer.export.litellm import export
from optimizer.runtime import Model

NAMES = ("llama-3", "org/mid 7b|plan", "org/mid 7b|answer")
SERVER = "litellm.proxy.proxy_server"


def write(
    folder: Path, *, actions: tuple[str, ...] = NAMES, service: str = "desk", epsilon: float = 0.0, **settings: Any
) -> Path:
    """A policy that prefers the first action, and without epsilon always takes it; the incumbent is the second."""
    policy = Model("constant", actions, {"values": -np.arange(len(actions), dtype=np.float64)}, epsilon)
    defaults: dict[str, Any] = {
        "policy_id": "desk",
        "version": "v1",
        "revision": 1,
        "virtual_model": service,
        "incumbent": actions[1],
        "evaluation": {},
        "created_at": "2026-11-30T00:00:00+00:00",
    }
    write_policy(folder, policy, **(defaults | settings))
    return folder


def exported(tmp_path: Path, **settings: Any) -> Path:
    out = tmp_path / "out"
    assert export(write(tmp_path / "policy", **settings), out, settings.get("service", "desk")) == []
    return out


class Span:
    def __init__(self) -> None:
        self.attributes: dict[str, object] = {}

    def set_attribute(self, key: str, value: object) -> None:
        self.attributes[key] = value


class Proxy:
    """What LiteLLM does with the hook: one call before routing, one for the response's headers."""

    def __init__(self, out: Path) -> None:
        spec = importlib.util.spec_from_file_location("policy_router", out / "policy_router.py")
        assert spec is not None
        assert spec.loader is not None
        self.module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)
        self.handler = self.module.handler
        self.span = Span()

    def send(self, call_type: str = "acompletion", /, key: Any = None, **data: Any) -> dict[str, Any]:
        key = key or SimpleNamespace()
        key.parent_otel_span = self.span
        return run(self.handler.async_pre_call_hook(key, None, data, call_type))

    def headers(self, data: dict[str, Any]) -> dict[str, str] | None:
        hook = self.handler.async_post_call_response_headers_hook
        return run(hook(data=data, user_api_key_dict=None, response=None))

    def answered(self, model: str, status: int = 200) -> None:
        """What LiteLLM tells after an attempt."""
        kwargs: dict[str, Any] = {"litellm_params": {"metadata": {"model_group": model}}}
        if status != 200:
            kwargs["exception"] = SimpleNamespace(status_code=status)
        told = self.handler.async_log_success_event if status == 200 else self.handler.async_log_failure_event
        run(told(kwargs, None, None, None))

    def look_again(self) -> None:
        self.handler.checked_s = float("-inf")


def run(coroutine: Any) -> Any:
    """The result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("the hook waited for something")


def serving(*names: str, **more: Any) -> ModuleType:
    """The module of a proxy that serves these models, for `sys.modules[SERVER]`."""
    server = ModuleType(SERVER)
    server.llm_router = SimpleNamespace(get_model_names=lambda: list(names), **more)  # type: ignore[attr-defined]
    return server


@contextmanager
def stand_in() -> Iterator[None]:
    """Modules of LiteLLM's name with just what the hook needs."""
    base = ModuleType("litellm.integrations.custom_logger")
    base.CustomLogger = type("CustomLogger", (), {})  # type: ignore[attr-defined]
    modules = {name: ModuleType(name) for name in ("litellm", "litellm.integrations")} | {base.__name__: base}
    with mock.patch.dict(sys.modules, modules):
        sys.modules.pop(SERVER, None)
        yield
