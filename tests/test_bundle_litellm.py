"""The files for a LiteLLM proxy, and its hook run against a stand-in for LiteLLM's base class."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml  # type: ignore[import-untyped]

from ingest.errors import AppError, UsageError
from optimizer.bundle import write_policy
from optimizer.export.litellm import export
from optimizer.runtime import Model, Router

NAMES = ("llama-3", "org/mid 7b|plan", "org/mid 7b|answer")


def write(folder: Path, *, actions: tuple[str, ...] = NAMES, service: str = "desk", **settings: Any) -> Path:
    """A policy that always takes the first action; the incumbent is the second."""
    policy = Model("constant", actions, {"values": -np.arange(len(actions), dtype=np.float64)}, 0.0)
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


def test_the_bundle_is_a_config_a_hook_and_the_policy(tmp_path: Path) -> None:
    out = exported(tmp_path)
    assert sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()) == [
        "config.yaml", "policy/manifest.json", "policy/runtime.py", "policy/weights.npz", "policy_router.py",
    ]  # fmt: skip
    assert Router.load(out / "policy").policy_id == "desk"


def test_the_config_serves_every_action_and_the_virtual_model_by_the_incumbent(tmp_path: Path) -> None:
    config = yaml.safe_load((exported(tmp_path) / "config.yaml").read_text(encoding="utf-8"))
    served = [(entry["model_name"], entry["litellm_params"]["model"]) for entry in config["model_list"]]
    assert served == [
        ("desk", "openai/org/mid 7b"),
        ("llama-3", "openai/llama-3"),
        ("org/mid 7b|plan", "openai/org/mid 7b"),
        ("org/mid 7b|answer", "openai/org/mid 7b"),
    ]
    assert config["model_list"][1]["litellm_params"]["api_base"] == "os.environ/LLAMA_3_API_BASE"
    assert config["model_list"][3]["litellm_params"]["api_key"] == "os.environ/ORG_MID_7B_API_KEY"
    assert config["litellm_settings"]["callbacks"] == ["policy_router.handler", "otel"]
    assert "requester_metadata.policy.propensity" in config["callback_settings"]["otel"]["baggage_metadata_keys"]
    assert config["general_settings"]["master_key"] == "os.environ/LITELLM_MASTER_KEY"
    assert {"llama-3": ["org/mid 7b|plan"]} in config["router_settings"]["fallbacks"]


def test_model_names_that_look_alike_get_their_own_keys_and_odd_ones_stay_valid_yaml(tmp_path: Path) -> None:
    names = ("a.b", "a-b", '7b: "x" #\\', "模型")
    config = yaml.safe_load((exported(tmp_path, actions=names) / "config.yaml").read_text(encoding="utf-8"))
    entries = config["model_list"][1:]
    assert [entry["model_name"] for entry in entries] == list(names)
    assert len({entry["litellm_params"]["api_key"] for entry in entries}) == 4


def test_a_second_export_changes_data_only(tmp_path: Path) -> None:
    out = exported(tmp_path)
    before = {name: (out / name).read_bytes() for name in ("config.yaml", "policy_router.py")}
    export(write(tmp_path / "policy", version="v2", revision=2), out, "desk")
    assert {name: (out / name).read_bytes() for name in before} == before
    assert Router.load(out / "policy").version == "v2"


def test_an_edited_config_is_never_replaced(tmp_path: Path) -> None:
    out = exported(tmp_path)
    edited = (out / "config.yaml").read_text(encoding="utf-8") + "# mine\n"
    (out / "config.yaml").write_text(edited, encoding="utf-8")
    notes = export(tmp_path / "policy", out, "desk")
    assert (out / "config.yaml").read_text(encoding="utf-8") == edited
    assert (out / "config.new.yaml").is_file()
    assert "was edited and stays" in notes[0]


@pytest.mark.parametrize("name", ["manifest.json", "weights.npz", "runtime.py"])
def test_a_policy_without_one_of_its_files_is_refused_by_name(name: str, tmp_path: Path) -> None:
    write(tmp_path / "policy")
    (tmp_path / "policy" / name).unlink()
    with pytest.raises(AppError, match=f"{name} is missing"):
        export(tmp_path / "policy", tmp_path / "out", "desk")
    assert not (tmp_path / "out").exists()


def test_a_policy_of_another_service_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="answers to the model name desk, not other"):
        export(write(tmp_path / "policy"), tmp_path / "out", "other")


def test_a_service_named_like_one_of_its_models_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="name of one of its models"):
        export(write(tmp_path / "policy", service="llama-3"), tmp_path / "out", "llama-3")


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

    def send(self, **data: Any) -> dict[str, Any]:
        key = SimpleNamespace(parent_otel_span=self.span)
        result: dict[str, Any] = asyncio.run(self.handler.async_pre_call_hook(key, None, data, "acompletion"))
        return result

    def headers(self, data: dict[str, Any]) -> dict[str, str] | None:
        found: dict[str, str] | None = asyncio.run(
            self.handler.async_post_call_response_headers_hook(data=data, user_api_key_dict=None, response=None)
        )
        return found

    def look_again(self) -> None:
        self.handler.checked_s = float("-inf")


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], Proxy]]:
    base = ModuleType("litellm.integrations.custom_logger")
    base.CustomLogger = type("CustomLogger", (), {})  # type: ignore[attr-defined]
    for name in ("litellm", "litellm.integrations"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, base.__name__, base)
    monkeypatch.delitem(sys.modules, "litellm.proxy.proxy_server", raising=False)
    yield Proxy
    sys.modules.pop("retroute_policy_runtime", None)


CHAT = {"model": "desk", "messages": [{"role": "user", "content": "Hello"}]}


def test_a_request_for_the_virtual_model_is_rewritten_and_logged(
    tmp_path: Path, start: Callable[[Path], Proxy]
) -> None:
    proxy = start(exported(tmp_path))
    data = proxy.send(**CHAT, metadata={"requester_metadata": {"team": "a"}})
    assert data["model"] == "llama-3"
    assert data["metadata"]["requester_metadata"]["team"] == "a"
    assert data["metadata"]["requester_metadata"]["policy"]["action"] == "llama-3"
    assert proxy.span.attributes["policy.propensity"] == 1.0
    assert proxy.span.attributes["policy.requested_model"] == "desk"
    assert len(str(proxy.span.attributes["policy.features"])) == 344
    headers = proxy.headers(data)
    assert headers is not None
    assert (headers["x-policy-action"], headers["x-policy-propensity"]) == ("llama-3", "1.0")


def test_nothing_a_provider_could_take_for_a_text_label_is_added(
    tmp_path: Path, start: Callable[[Path], Proxy]
) -> None:
    data = start(exported(tmp_path)).send(**CHAT)
    added = data["metadata"]["requester_metadata"]
    assert not [key for key, value in added.items() if isinstance(value, str)]


@pytest.mark.parametrize("model", ["desk", "llama-3"])
@pytest.mark.parametrize("place", ["metadata", "litellm_metadata"])
def test_what_a_client_claims_about_policies_is_stripped(
    model: str, place: str, tmp_path: Path, start: Callable[[Path], Proxy]
) -> None:
    claims = {"policy.id": "spoof", "policy": {"id": "spoof"}, "policy.features.hash": "spoof"}
    metadata = {**claims, "_retroute": {"policy.id": "spoof"}, "requester_metadata": {**claims, "policy_number": "7"}}
    data = start(exported(tmp_path)).send(model=model, messages=[], **{place: metadata})
    assert "spoof" not in repr(data)
    assert data[place]["requester_metadata"]["policy_number"] == "7"


def test_other_models_pass_untouched(tmp_path: Path, start: Callable[[Path], Proxy]) -> None:
    proxy = start(exported(tmp_path))
    data = proxy.send(model="llama-3", messages=[])
    assert data["model"] == "llama-3"
    assert proxy.headers(data) is None
    assert not proxy.span.attributes


@pytest.mark.parametrize(
    ("body", "session"),
    [
        ({"metadata": {"requester_metadata": {"session_id": "s1"}}}, "s1"),
        ({"metadata": {"session_id": "s2"}}, "s2"),
        ({"litellm_metadata": {"requester_metadata": {"user_id": "user_x_session_s3"}}}, "s3"),
        ({"litellm_session_id": "s4"}, "s4"),
        ({}, None),
    ],
)
def test_the_session_is_found_where_clients_put_it(
    body: dict[str, Any], session: str | None, tmp_path: Path, start: Callable[[Path], Proxy]
) -> None:
    module = start(exported(tmp_path)).module
    assert module.session_of(body, body.get("litellm_metadata") or body.get("metadata") or {}) == session


def test_chat_messages_and_responses_requests_look_alike_to_the_policy(
    tmp_path: Path, start: Callable[[Path], Proxy]
) -> None:
    proxy = start(exported(tmp_path))
    bodies: list[dict[str, Any]] = [
        {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]},
        {"system": "Be brief.", "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]},
        {"instructions": "Be brief.", "input": "Hello"},
        {
            "instructions": "Be brief.",
            "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hello"}]}],
        },
    ]
    hashes = set()
    for body in bodies:
        proxy.send(model="desk", **body)
        hashes.add(proxy.span.attributes["policy.features.hash"])
    assert len(hashes) == 1


def test_an_action_the_proxy_does_not_serve_is_never_chosen(
    tmp_path: Path, start: Callable[[Path], Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = start(exported(tmp_path))
    server = ModuleType("litellm.proxy.proxy_server")
    server.llm_router = SimpleNamespace(get_model_names=lambda: ["desk", NAMES[1], NAMES[2]])  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, server.__name__, server)
    assert proxy.send(**CHAT)["model"] == NAMES[1]


def test_a_new_policy_is_taken_up_and_a_broken_one_is_not(tmp_path: Path, start: Callable[[Path], Proxy]) -> None:
    out = exported(tmp_path)
    proxy = start(out)
    export(write(tmp_path / "policy", version="v2", revision=2), out, "desk")
    assert proxy.send(**CHAT)["metadata"]["_retroute"]["policy.version"] == "v1"  # it looks once a second
    proxy.look_again()
    assert proxy.send(**CHAT)["metadata"]["_retroute"]["policy.version"] == "v2"
    for name in ("weights.npz", "manifest.json"):
        (out / "policy" / name).write_bytes(b"broken")
        proxy.look_again()
        assert proxy.send(**CHAT)["metadata"]["_retroute"]["policy.version"] == "v2"


def test_a_sticky_session_keeps_its_model_on_every_proxy(tmp_path: Path, start: Callable[[Path], Proxy]) -> None:
    """Through chat, messages and responses requests alike; drawn evenly, so that chance would not keep it."""
    evenly = {"sticky": True, "canary_percent": 0.0, "explore_percent": 100.0}
    proxies = [start(exported(tmp_path / name, **evenly)) for name in ("a", "b")]
    first = {"role": "user", "content": "Hello"}
    later = [first, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "And a poem?"}]
    bodies: list[dict[str, Any]] = [{"messages": [first]}, {"messages": later}, {"input": later}, {"input": "Hello"}]
    met = []
    for number in range(30):
        session = {"metadata": {"requester_metadata": {"session_id": f"s{number}"}}}
        models = {proxy.send(model="desk", **body, **session)["model"] for proxy in proxies for body in bodies}
        assert len(models) == 1
        met.extend(models)
    assert set(met) == set(NAMES)
    assert proxies[0].span.attributes["policy.draw"] == "session"


def test_an_orchestrator_is_not_taken_up(tmp_path: Path, start: Callable[[Path], Proxy]) -> None:
    """Its actions are agents, which are no deployments of the proxy."""
    proxy = start(exported(tmp_path))
    policy = tmp_path / "out" / "policy"
    write(policy, actions=("plan", "code", "STOP"), version="v2", revision=2, script=("plan", "STOP"))
    proxy.look_again()
    assert proxy.send(**CHAT)["metadata"]["_retroute"]["policy.version"] == "v1"


@pytest.mark.parametrize("name", ["manifest.json", "weights.npz", "runtime.py"])
def test_without_a_policy_requests_go_on_to_the_virtual_models_own_deployment(
    name: str, tmp_path: Path, start: Callable[[Path], Proxy]
) -> None:
    out = exported(tmp_path)
    (out / "policy" / name).unlink()
    proxy = start(out)
    data = proxy.send(**CHAT)
    assert data["model"] == "desk"
    assert proxy.headers(data) is None


def test_odd_requests_pass(tmp_path: Path, start: Callable[[Path], Proxy]) -> None:
    proxy = start(exported(tmp_path))
    assert proxy.send(model=None, metadata="text")["model"] is None
    assert proxy.send(model="desk", messages=[1, None], metadata=None)["model"] == "llama-3"
