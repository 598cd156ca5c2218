"""The files for a LiteLLM proxy, and its hook run against a stand-in for LiteLLM's base class."""

from __future__ import annotations

import json
import logging
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml  # type: ignore[import-untyped]
from policy_hook import NAMES, SERVER, Proxy, exported, serving, stand_in, write

from ingest.errors import AppError, UsageError
from optimizer.export.litellm import export
from optimizer.runtime import Breaker, Router
from optimizer.signing import sign


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


@pytest.fixture
def start() -> Iterator[Callable[[Path], Proxy]]:
    with stand_in():
        yield Proxy


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


@pytest.mark.parametrize("call_type", ["acompletion", "aresponses", "anthropic_messages", "aembedding"])
@pytest.mark.parametrize("model", ["desk", "llama-3"])
@pytest.mark.parametrize("place", ["metadata", "litellm_metadata"])
def test_what_a_client_claims_about_policies_is_stripped(
    call_type: str, model: str, place: str, tmp_path: Path, start: Callable[[Path], Proxy]
) -> None:
    claims = {"policy.id": "spoof", "policy": {"id": "spoof"}, "policy.features.hash": "spoof"}
    copied = {"requester_metadata": {**claims, "policy_number": "7"}, "spend_logs_metadata": dict(claims)}
    metadata = {**claims, "_retroute": {"policy.id": "spoof"}, **copied}
    other = {"litellm_metadata": "metadata", "metadata": "litellm_metadata"}[place]
    data = start(exported(tmp_path)).send(call_type, model=model, messages=[], **{place: metadata, other: dict(claims)})
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
    monkeypatch.setitem(sys.modules, SERVER, serving("desk", *NAMES[1:]))
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


# ------------------------------------------------------------------------------------------ what is left alone


@pytest.mark.parametrize("call_type", ["aembedding", "atext_completion", "aimage_generation", "moderation", "arerank"])
def test_only_conversations_are_routed(call_type: str, tmp_path: Path, start: Callable[[Path], Proxy]) -> None:
    proxy = start(exported(tmp_path))
    data = proxy.send(call_type, model="desk", input=["a text"])
    assert data == {"model": "desk", "input": ["a text"]}
    assert proxy.headers(data) is None


# ------------------------------------------------------------------------------------------------ virtual keys


@pytest.mark.parametrize(
    ("key", "taken"),
    [
        ({}, set(NAMES)),
        ({"models": []}, set(NAMES)),
        ({"models": ["desk"]}, set(NAMES)),
        ({"models": ["all-proxy-models"]}, set(NAMES)),
        ({"models": ["desk", NAMES[1], NAMES[2]]}, set(NAMES[1:])),
        ({"models": ["desk", "org/*"]}, set(NAMES[1:])),
        ({"models": ["desk", "cheap ones"]}, {NAMES[0]}),
        ({"models": ["desk"], "team_models": ["desk", NAMES[2]]}, {NAMES[2]}),
        ({"models": [*NAMES[:2]], "team_models": [*NAMES[1:]]}, {NAMES[1]}),
        ({"models": ["all-team-models"], "team_models": ["desk", NAMES[0]]}, {NAMES[0]}),
    ],
)
def test_a_virtual_key_gets_the_models_it_may_have(
    key: dict[str, Any],
    taken: set[str],
    tmp_path: Path,
    start: Callable[[Path], Proxy],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = {"cheap ones": [NAMES[0]], "others": [NAMES[1]]}
    server = serving("desk", *NAMES, get_model_access_groups=lambda: groups)
    monkeypatch.setitem(sys.modules, SERVER, server)
    proxy = start(exported(tmp_path, epsilon=1.0))
    seen = Counter()
    for _ in range(80):  # missing one of three drawn evenly: 3 (2/3)^80, once in 10^13
        data = proxy.send(key=SimpleNamespace(**key), **CHAT)
        said = data["metadata"]["_retroute"]
        assert set(json.loads(said["policy.candidates"])) == taken
        assert said["policy.propensity"] == pytest.approx(1 / len(taken))
        seen[data["model"]] += 1
    assert set(seen) == taken


def test_a_star_in_the_proxys_models_serves_all_it_matches(
    tmp_path: Path, start: Callable[[Path], Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, SERVER, serving("desk", "org/*"))
    proxy = start(exported(tmp_path, epsilon=1.0))
    assert {proxy.send(**CHAT)["model"] for _ in range(60)} == set(NAMES[1:])


# ---------------------------------------------------------------------------------------------- failing actions


def test_an_action_whose_calls_fail_is_set_aside(tmp_path: Path, start: Callable[[Path], Proxy]) -> None:
    proxy = start(exported(tmp_path))
    for _ in range(Breaker.FAILURES):
        assert proxy.send(**CHAT)["model"] == NAMES[0]
        proxy.answered(NAMES[0], 503)
    data = proxy.send(**CHAT)
    assert (data["model"], data["metadata"]["_retroute"]["policy.propensity"]) == (NAMES[1], 1.0)
    assert json.loads(data["metadata"]["_retroute"]["policy.candidates"]) == list(NAMES[1:])
    export(write(tmp_path / "policy", version="v2", revision=2), tmp_path / "out", "desk")
    proxy.look_again()
    assert proxy.send(**CHAT)["model"] == NAMES[1]  # a new policy does not forget it
    proxy.answered(NAMES[0])
    assert proxy.send(**CHAT)["model"] == NAMES[0]


def test_requests_that_are_at_fault_themselves_do_not_count(tmp_path: Path, start: Callable[[Path], Proxy]) -> None:
    proxy = start(exported(tmp_path))
    for status in (400, 413, 422) * Breaker.FAILURES:
        proxy.answered(NAMES[0], status)
    assert proxy.send(**CHAT)["model"] == NAMES[0]


def test_odd_outcomes_are_borne(tmp_path: Path, start: Callable[[Path], Proxy]) -> None:
    told = start(exported(tmp_path)).handler.told
    for kwargs in (None, {}, {"litellm_params": 3}, {"litellm_params": {"metadata": {"model_group": ["x"]}}}):
        told(kwargs, "failed")


# ---------------------------------------------------------------------------------------- bad policies at a reload


def replaced(policy: Path, **changes: Any) -> None:
    path = policy / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | changes), encoding="utf-8")


def not_a_number(policy: Path) -> None:
    np.savez(policy / "weights.npz", values=np.array([1.0, np.nan, 0.0]))
    import hashlib

    digest = hashlib.sha256((policy / "weights.npz").read_bytes()).hexdigest()
    files = json.loads((policy / "manifest.json").read_text(encoding="utf-8"))["files"]
    replaced(policy, files=files | {"weights.npz": f"sha256:{digest}"})


BAD: dict[str, tuple[Callable[[Path], Any], str]] = {
    "newer schema": (lambda policy: replaced(policy, schema="policy-bundle/2"), "not of schema policy-bundle/1"),
    "wrong hash": (lambda policy: (policy / "runtime.py").write_text("pass"), "sha256 differs"),
    "unknown action": (lambda policy: replaced(policy, actions=["a", "b", "c", "d"]), "must have shape"),
    "action the proxy lacks": (
        lambda policy: write(policy, actions=(*NAMES, "new"), revision=3),
        "serves no model named new",
    ),
    "NaN weights": (not_a_number, "not finite"),
    "expired": (lambda policy: replaced(policy, expires_at="2026-01-01T00:00:00Z"), "has expired"),
    "older": (lambda policy: replaced(policy, revision=1), "revision 1 is older than 2; a rollback is a new revision"),
    "another virtual model": (
        lambda policy: write(policy, service="other", revision=3),
        "it answers to the model name other, not desk",
    ),
    "an orchestrator": (
        lambda policy: write(policy, actions=("plan", "STOP"), revision=3, script=("plan", "STOP"), incumbent="plan"),
        "a proxy sees single calls only",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_policy_is_refused_with_one_line_and_the_last_good_one_stays(
    case: str,
    tmp_path: Path,
    start: Callable[[Path], Proxy],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, SERVER, serving("desk", *NAMES))
    proxy = start(exported(tmp_path, version="good", revision=2))
    breaking, told = BAD[case]
    write(tmp_path / "out" / "policy", version="bad", revision=3)
    breaking(tmp_path / "out" / "policy")
    caplog.set_level(logging.INFO, "retroute.policy_router")
    caplog.clear()
    for _ in range(3):
        proxy.look_again()
        data = proxy.send(**CHAT)
        assert data["metadata"]["_retroute"]["policy.version"] == "good"
        assert data["model"] == NAMES[0]
    (line,) = caplog.messages
    assert "version good stays" in line
    assert told in line
    assert "\n" not in line


def test_a_policy_signed_by_another_is_refused(
    tmp_path: Path, start: Callable[[Path], Proxy], caplog: pytest.LogCaptureFixture
) -> None:
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    keys = [Ed25519PrivateKey.generate() for _ in range(2)]
    for name, key in zip(("ours", "theirs"), keys, strict=True):
        pem = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
        (tmp_path / f"{name}.pem").write_bytes(pem)
    out = exported(tmp_path)
    public = keys[0].public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
    (out / "policy_key.pem").write_bytes(public)
    sign(out / "policy", tmp_path / "ours.pem")
    proxy = start(out)
    assert proxy.send(**CHAT)["model"] == NAMES[0]
    write(out / "policy", version="v2", revision=2)
    sign(out / "policy", tmp_path / "theirs.pem")
    proxy.look_again()
    assert proxy.send(**CHAT)["metadata"]["_retroute"]["policy.version"] == "v1"
    assert "not a signature of this manifest.json" in caplog.messages[-1]


def test_without_a_good_policy_at_the_start_the_incumbent_answers_until_there_is_one(
    tmp_path: Path, start: Callable[[Path], Proxy], caplog: pytest.LogCaptureFixture
) -> None:
    out = exported(tmp_path, expires_at="2026-01-01T00:00:00Z")
    proxy = start(out)
    assert proxy.send(**CHAT)["model"] == "desk"
    assert caplog.messages == ["no policy, the incumbent answers: the policy has expired"]
    write(out / "policy")
    proxy.look_again()
    assert proxy.send(**CHAT)["model"] == NAMES[0]


def test_a_model_that_the_proxy_no_longer_serves_is_named_once(
    tmp_path: Path, start: Callable[[Path], Proxy], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = start(exported(tmp_path))
    monkeypatch.setitem(sys.modules, SERVER, serving("desk", *NAMES[1:]))
    for _ in range(3):
        proxy.look_again()
        assert proxy.send(**CHAT)["model"] == NAMES[1]
    assert caplog.messages == ["the proxy serves no model named llama-3: left out"]


def test_if_nothing_it_may_choose_is_served_the_virtual_model_answers(
    tmp_path: Path, start: Callable[[Path], Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, SERVER, serving("desk", "another"))
    assert start(exported(tmp_path)).send(**CHAT)["model"] == "desk"


def test_a_policy_of_an_earlier_release_is_served_without_a_breaker(
    tmp_path: Path, start: Callable[[Path], Proxy]
) -> None:
    out = exported(tmp_path)
    proxy = start(out)
    proxy.handler.runtime = SimpleNamespace(
        Router=SimpleNamespace(load=lambda folder: Router.load(folder)), attributes=proxy.handler.runtime.attributes
    )
    proxy.handler.breaker = None
    write(out / "policy", version="v2", revision=2)
    proxy.look_again()
    assert proxy.send(**CHAT)["metadata"]["_retroute"]["policy.version"] == "v2"
    proxy.answered(NAMES[0], 503)


def test_the_policy_folder_may_be_gone(tmp_path: Path, start: Callable[[Path], Proxy]) -> None:
    out = exported(tmp_path)
    proxy = start(out)
    shutil.rmtree(out / "policy")
    proxy.look_again()
    assert proxy.send(**CHAT)["model"] == NAMES[0]
