"""A policy as fixed rules: what they say, what they cost, and what each gateway makes of them."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import celpy
import httpx
import numpy as np
import pytest
import yaml

from ingest.errors import UsageError
from optimizer import cli
from optimizer.bundle import write_policy
from optimizer.dataset import LoggedDataset
from optimizer.evidence import Refused, cross_fitted
from optimizer.export import gateways, rules
from optimizer.gate import Estimate
from optimizer.runtime import DENSE, DIM, STOP, Model
from optimizer.static_rules import UNITS, Condition, StaticRouting, StaticRule, counted, distilled, losses

NAMES = ("gpt-4o", "gpt-4o-mini", "claude-haiku")
WORDS, UPPER = DENSE.index("words"), DENSE.index("uppercase_share")


def features(count: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Requests of 0 to 400 words, some in capitals, as float16 keeps them."""
    draw = np.random.default_rng(seed)
    rows = np.zeros((count, DIM))
    rows[:, WORDS] = np.log1p(draw.integers(0, 400, count))
    rows[:, UPPER] = draw.random(count)
    rows[:, 40:44] = draw.normal(size=(count, 4))
    return rows.astype(np.float16).astype(np.float64)


def log(count: int = 2000, seed: int = 0) -> tuple[LoggedDataset, np.ndarray[Any, Any]]:
    """Uniform choices among three models; the second fails on long requests. And the true quality (n, a)."""
    draw, rows = np.random.default_rng(seed + 1), features(count, seed)
    long = rows[:, WORDS] > np.log1p(100)
    quality = np.column_stack([np.full(count, 0.8), np.where(long, 0.3, 0.8), np.full(count, 0.5)])
    actions = draw.integers(0, 3, count)
    got = quality[np.arange(count), actions]
    data = LoggedDataset(
        features=rows,
        actions=actions,
        quality=(draw.random(count) < got) * 1.0,
        cost_usd=np.array([0.01, 0.001, 0.002])[actions] * draw.uniform(0.5, 1.5, count),
        latency_s=np.ones(count),
        behaviour=np.full((count, 3), 1 / 3),
        groups=np.arange(count),
        time_ns=np.arange(count),
        action_names=NAMES,
        propensities_logged=True,
    )
    return data, quality


def by_length(epsilon: float = 0.06) -> Model:
    """The first model for long requests, the second for others, and a little less sharply by capitals."""
    weights = np.zeros((DIM, 3))
    weights[WORDS, 0], bias = 1.0, np.array([-np.log1p(100.0), 0.0, -9.0])
    scale = {"mean": np.zeros(DIM), "scale": np.ones(DIM)}
    return Model("linear", NAMES, scale | {"weights": weights, "bias": bias}, epsilon)


@pytest.fixture(scope="module")
def routing() -> StaticRouting:
    return distilled(log()[0], by_length())


def test_a_policy_that_follows_a_threshold_becomes_its_two_sides(routing: StaticRouting) -> None:
    assert [rule.id for rule in routing.rules] == ["rule-1", "rule-2"]
    first, second = routing.rules
    assert first.conditions == (Condition("words", at_most=pytest.approx(100, abs=2)),)
    assert second.conditions == (Condition("words", above=first.conditions[0].at_most),)
    assert (first.best, second.best) == ("gpt-4o-mini", "gpt-4o")
    assert first.words.startswith("at most 100 ") or first.words.startswith("at most 99 ")
    # epsilon 0.06 of three actions: 0.96, 0.02, 0.02; the tree's rounded threshold may miss a few decisions
    assert first.weights["gpt-4o-mini"] == pytest.approx(960, abs=15)
    assert first.weights["claude-haiku"] == pytest.approx(20, abs=1)
    assert routing.features == ("words",)


def test_weights_are_thousandths_that_sum_to_one(routing: StaticRouting) -> None:
    for rule in (*routing.rules, routing.default):
        assert sum(rule.weights.values()) == UNITS
        assert min(rule.weights.values()) > 0


def test_exactly_one_rule_covers_a_decision_and_probabilities_are_its_weights(routing: StaticRouting) -> None:
    rows = features(500, seed=9)
    found = routing.probabilities(rows, NAMES)
    assert found.sum(axis=1) == pytest.approx(1.0)
    for row, shares in zip(rows, found, strict=True):
        (rule,) = (rule for rule in routing.rules if holds(rule, row))
        assert shares.tolist() == [rule.weights.get(name, 0) / UNITS for name in NAMES]


def holds(rule: StaticRule, row: np.ndarray[Any, Any]) -> bool:
    """Whether a caller that counts would find the conditions to hold."""
    return all(
        (one.above is None or counted(one.feature, row[DENSE.index(one.feature)]) > one.above)
        and (one.at_most is None or counted(one.feature, row[DENSE.index(one.feature)]) <= one.at_most)
        for one in rule.conditions
    )


def test_a_policy_blind_to_the_request_has_no_rules_and_loses_nothing() -> None:
    data, _ = log()
    model = Model("constant", NAMES, {"values": np.array([0.0, 1.0, 0.0])}, 0.06)
    routing = distilled(data, model)
    assert routing.rules == ()
    assert routing.default.weights == {"gpt-4o": 20, "gpt-4o-mini": 960, "claude-haiku": 20}
    evaluation = cross_fitted(data, confidence=0.95, seed=0)
    for lost in losses(evaluation, model, routing.probabilities).values():
        assert isinstance(lost, Estimate)
        assert (lost.value, lost.low, lost.high) == pytest.approx((0.0, 0.0, 0.0), abs=1e-12)


def test_the_loss_is_the_difference_of_both_and_covers_the_truth(routing: StaticRouting) -> None:
    data, quality = log(seed=5)
    model = by_length()
    evaluation = cross_fitted(data, confidence=0.95, seed=0)
    full = model.probabilities(data.features, np.ones((len(data), 3), dtype=bool))
    for way in (routing.probabilities, routing.blind, routing.certain):
        static = way(data.features, NAMES)
        lost = losses(evaluation, model, way)["quality"]
        assert isinstance(lost, Estimate)
        parts = [evaluation.change("quality", policy, "DR") for policy in (static, full)]
        assert lost.value == pytest.approx(parts[0].value - parts[1].value)  # type: ignore[union-attr]
        truth = float(((static - full) * quality).sum(axis=1).mean())
        assert lost.low <= truth <= lost.high  # one draw of a 95 % interval; the seed is one of those where it covers
    blind = losses(evaluation, model, routing.blind)["quality"]
    assert isinstance(blind, Estimate)
    assert blind.high < 0.0  # drawing blindly sends long requests to the model that fails on them


def test_a_loss_that_the_log_cannot_tell_is_refused_with_the_reason(routing: StaticRouting) -> None:
    data, _ = log()
    sure = data.take(np.flatnonzero(data.actions == 0))
    behaviour = np.tile([0.99, 0.01, 0.0], (len(sure), 1))
    evaluation = cross_fitted(LoggedDataset(**{**vars(sure), "behaviour": behaviour}), confidence=0.95, seed=0)
    lost = losses(evaluation, by_length(), routing.probabilities)["quality"]
    assert isinstance(lost, Refused)
    assert "did not try" in lost.reason


def test_shares_keep_their_scale_and_bounds_of_one_feature_become_one_condition() -> None:
    data, _ = log()
    values = np.array([0.0, 0.5, 1.0])
    feature, at = np.full((1, 5), -1), np.zeros((1, 5))
    feature[0, :2], at[0, :2] = UPPER, (0.6, 0.3)
    tree = {
        "feature": feature,
        "threshold": at,
        "left": np.array([[1, 2, 0, 0, 0]]),
        "right": np.array([[4, 3, 0, 0, 0]]),
        "value": np.array([[values, values, [1, 0, 0], [0, 1, 0], [0, 0, 1]]], dtype=float),
    }
    found = distilled(data, Model("trees", NAMES, tree, 0.0)).rules
    assert [rule.best for rule in found] == ["gpt-4o", "gpt-4o-mini", "claude-haiku"]
    assert [rule.conditions for rule in found] == [
        (Condition("uppercase_share", at_most=0.3),),
        (Condition("uppercase_share", above=0.3, at_most=0.6),),
        (Condition("uppercase_share", above=0.6),),
    ]


# ---------------------------------------------------------------------------------------------------------- gateways


def test_bifrosts_expressions_choose_the_rule_that_holds(routing: StaticRouting) -> None:
    config = json.loads(gateways.bifrost("helpdesk", routing))
    written = config["governance"]["routing_rules"]
    assert [rule["priority"] for rule in written] == [0, 1, 2]
    assert {tuple(sorted(target)) for rule in written for target in rule["targets"]} == {
        ("model", "provider", "weight")
    }
    assert all(sum(target["weight"] for target in rule["targets"]) == pytest.approx(1.0) for rule in written)
    programs = [expression(rule["cel_expression"]) for rule in written]

    def first(model: str, headers: dict[str, str]) -> str:
        context = celpy.json_to_cel({"model": model, "headers": headers})
        return next((rule["id"] for rule, holds in zip(written, programs, strict=True) if holds(context)), "none")

    for words, number in ((0, 1), (50, 1), (150, 2), (399, 2)):
        assert first("helpdesk", {"x-retroute-words": str(words)}) == f"retroute-helpdesk-rule-{number}"
    assert first("helpdesk", {}) == "retroute-helpdesk-default"
    assert first("helpdesk", {"x-retroute-words": "many"}) == "retroute-helpdesk-default"
    assert first("other", {"x-retroute-words": "5"}) == "none"


def expression(text: str):
    """A CEL expression; an error counts as false, as Bifrost says it does."""
    environment = celpy.Environment()
    program = environment.program(environment.compile(text))

    def holds(context: Any) -> bool:
        try:
            return bool(program.evaluate(context))
        except celpy.CELEvalError:
            return False

    return holds


def test_envoy_gets_a_route_of_weights_and_a_backend_for_each_model(routing: StaticRouting) -> None:
    route, *backends = yaml.safe_load_all(gateways.envoy("Help desk", routing))
    assert (route["kind"], route["metadata"]["name"]) == ("AIGatewayRoute", "help-desk")
    names = {backend["metadata"]["name"] for backend in backends}
    assert len(names) == 3
    assert [rule["name"] for rule in route["spec"]["rules"]] == ["rule-1", "rule-2", "default"]
    for rule, written in zip((*routing.rules, routing.default), route["spec"]["rules"], strict=True):
        (match,) = written["matches"]
        headers = {one["name"]: one["value"] for one in match["headers"]}
        named = {} if rule.id == "default" else {"x-retroute-rule": rule.id}
        assert headers == {"x-ai-eg-model": "Help desk"} | named
        assert {one["modelNameOverride"]: one["weight"] for one in written["backendRefs"]} == dict(rule.weights)
        assert {one["name"] for one in written["backendRefs"]} <= names


@pytest.mark.parametrize("names", [("a.b", "a-b"), ("日本", "語")])
def test_envoys_backends_have_names_of_their_own(names: tuple[str, str]) -> None:
    weights = dict.fromkeys(names, 500)
    _, *backends = yaml.safe_load_all(
        gateways.envoy("s", StaticRouting(names, (), StaticRule("default", (), "always", 1.0, weights)))
    )
    assert len({backend["metadata"]["name"] for backend in backends}) == 2


def test_litellm_draws_by_the_weights(routing: StaticRouting) -> None:
    """LiteLLM's own router, in a process of its own: its import takes seconds and warns."""
    script = """
import collections, json, sys, yaml
from litellm import Router
config = yaml.safe_load(sys.stdin)
for one in config["model_list"]:
    one["litellm_params"].update(api_base="http://127.0.0.1:9", api_key="k")
router = Router(model_list=config["model_list"], **config["router_settings"])
drawn = (router.get_available_deployment("helpdesk", messages=[{"role": "user", "content": "x"}]) for _ in range(3000))
print(json.dumps(collections.Counter(one["litellm_params"]["model"] for one in drawn)))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        input=gateways.litellm("helpdesk", routing),
        env={"PATH": "", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    drawn = json.loads(done.stdout)
    for action, weight in routing.default.weights.items():
        share = weight / UNITS  # four standard errors of a share over 3000 draws
        assert drawn[f"openai/{action}"] / 3000 == pytest.approx(share, abs=4 * (share * (1 - share) / 3000) ** 0.5)


def test_openrouters_fields_are_of_its_own_schema(routing: StaticRouting, node_modules: Path, tmp_path: Path) -> None:
    (tmp_path / "node_modules").symlink_to(node_modules)
    found = json.loads(gateways.openrouter("helpdesk", routing))
    assert [one["request"]["model"] for one in found["rules"]] == [
        "openai/gpt-4o-mini",
        "openai/gpt-4o",
        f"openai/{routing.default.best}",
    ]
    assert found["rules"][1]["request"]["models"] == ["openai/gpt-4o-mini", "anthropic/claude-haiku"]
    script = """
import { ChatRequest$outboundSchema as Request } from "@openrouter/sdk/models/chatrequest.js";
import { readFileSync } from "node:fs";
for (const one of JSON.parse(readFileSync(0, "utf8")).rules) {
  const { allow_fallbacks, ...other } = one.request.provider;
  const provider = { allowFallbacks: allow_fallbacks, ...other };
  const said = Request.parse({ ...one.request, provider, messages: [{ role: "user", content: "x" }] });
  const { messages, stream, ...fields } = said;
  if (JSON.stringify(Object.entries(fields).sort()) !== JSON.stringify(Object.entries(one.request).sort()))
    throw new Error(JSON.stringify(fields));
}
"""
    done = subprocess.run(
        ["node", "--input-type=module", "-e", script],
        input=json.dumps(found),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


class Upstream(BaseHTTPRequestHandler):
    """Answers as OpenAI does and remembers which model was asked for."""

    protocol_version = "HTTP/1.1"
    asked: list[str]

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        model = json.loads(self.rfile.read(int(self.headers["content-length"])))["model"]
        type(self).asked.append(model)
        choice = {"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}
        body = json.dumps({"id": "c", "object": "chat.completion", "model": model, "choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def portkey(node_modules: Path, tmp_path: Path) -> Iterator[tuple[str, str, list[str]]]:
    """A running Portkey gateway and what an upstream was asked for: (gateway URL, upstream URL, models)."""
    asked: list[str] = []
    upstream = ThreadingHTTPServer(("127.0.0.1", 0), type("Asked", (Upstream,), {"asked": asked}))
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = node_modules / "@portkey-ai" / "gateway" / "build" / "start-server.js"
    with (tmp_path / "log").open("w") as output:
        process = subprocess.Popen(["node", str(start), f"--port={port}", "--headless"], stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                httpx.get(f"http://127.0.0.1:{port}/", trust_env=False)
                break
            except httpx.TransportError:
                assert time.monotonic() < deadline, (tmp_path / "log").read_text()
                assert process.poll() is None, (tmp_path / "log").read_text()
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/v1", f"http://127.0.0.1:{upstream.server_port}/v1", asked
    finally:
        process.terminate()
        process.wait(30)
        upstream.shutdown()
        upstream.server_close()


def test_portkey_follows_the_rules_and_draws_by_their_weights(
    routing: StaticRouting, portkey: tuple[str, str, list[str]]
) -> None:
    url, upstream, asked = portkey
    config = json.loads(gateways.portkey("helpdesk", routing))
    for balancer in config["targets"]:
        for target in balancer["targets"]:
            target["custom_host"] = upstream
            if target["provider"] == "anthropic":  # whose requests have another form
                target["provider"] = "openai"
    body = {"model": "helpdesk", "messages": [{"role": "user", "content": "x"}]}
    cases = [({"words": "7"}, routing.rules[0]), ({"words": "300.5"}, routing.rules[1]), ({}, routing.default)]
    with httpx.Client(trust_env=False) as client:
        for metadata, rule in cases:
            asked.clear()
            headers = {"x-portkey-config": json.dumps(config), "x-portkey-metadata": json.dumps(metadata)}
            for _ in range(40):
                assert client.post(f"{url}/chat/completions", json=body, headers=headers).status_code == 200
            drawn = Counter(asked)
            for action, weight in rule.weights.items():
                share = weight / UNITS  # four and a half standard errors of a share over 40 draws
                room = 4.5 * (share * (1 - share) / 40) ** 0.5
                assert drawn[action.removeprefix("anthropic/")] / 40 == pytest.approx(share, abs=room)


def test_what_is_not_known_is_served_as_openais() -> None:
    assert gateways._provider("llama-3", 0) == ("openai", "llama-3")
    assert gateways._provider("meta-llama/Llama-3", 1) == ("openai", "meta-llama/Llama-3")
    assert gateways._provider("google/gemini-2", 1) == ("google", "gemini-2")
    assert gateways._provider("gemini-2", 0) == ("gemini", "gemini-2")
    assert gateways._openrouter("meta-llama/Llama-3") == "meta-llama/Llama-3"


# ------------------------------------------------------------------------------------------------------------ export


def test_export_of_a_judged_run_writes_every_file_and_says_what_is_lost(
    finished_demo: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    command = ["export", "--home", str(finished_demo.home), "--target", "rules", "--service", "assistant"]
    assert cli.run([*command, "--out", str(out), "--unproven"]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{out}\n"
    files = {gateway.file for gateway in gateways.GATEWAYS} | {"rules.json", "loss.json", "propensities.json"}
    assert {path.name for path in out.iterdir()} == files
    lost = json.loads((out / "loss.json").read_text())
    assert set(lost["gateways"]) == {"litellm", "bifrost", "portkey", "envoy", "openrouter"}
    for routing in lost["routings"].values():
        cost = routing["cost_change_usd_per_1k"]
        assert cost["low"] <= cost["value"] <= cost["high"]
    assert "by fixed weights, blind to the request: litellm" in printed.err
    assert "quality" in printed.err
    said = json.loads((out / "propensities.json").read_text())
    assert (said["schema"], said["virtual_model"], said["to"]) == ("retroute-propensities/1", "assistant", None)
    for name, found in said["gateways"].items():
        assert found[-1]["rule"] == "default"
        assert found[-1]["when"] == []
        for rule in found:
            assert sum(rule["weights"].values()) == pytest.approx(1.0)
        assert len(found) == 1 if name == "litellm" else len(found) >= 1
    assert {tuple(one["weights"].values()) for one in said["gateways"]["openrouter"]} == {(1.0,)}
    written = yaml.safe_load((out / "litellm.yaml").read_text())["model_list"]
    drawn = {one["litellm_params"]["model"].removeprefix("openai/"): one["litellm_params"]["weight"] for one in written}
    assert {name: weight / UNITS for name, weight in drawn.items()} == said["gateways"]["litellm"][0]["weights"]


def write(folder: Path, model: Model, **more: Any) -> Path:
    write_policy(
        folder / "policy" / "agent",
        model,
        policy_id="agent",
        version="v1",
        revision=1,
        virtual_model="agent",
        incumbent=model.actions[0],
        evaluation={},
        created_at="2026-11-30T00:00:00+00:00",
        **more,
    )
    return folder / "policy" / "agent"


@pytest.mark.parametrize(
    ("actions", "more", "message", "hint"),
    [
        (("plan", STOP), {"script": ["plan"]}, "which agent acts next", "--target agents"),
        (("gpt-4o|short", "gpt-4o"), {}, "not the strategy of gpt-4o|short", "--target litellm"),
    ],
)
def test_what_rules_cannot_say_at_all_is_refused_with_where_it_goes(
    actions: tuple[str, ...], more: dict[str, Any], message: str, hint: str, tmp_path: Path
) -> None:
    folder = write(tmp_path, Model("constant", actions, {"values": np.zeros(len(actions))}), **more)
    with pytest.raises(UsageError) as caught:
        rules.export(folder, tmp_path / "out", "agent")
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert not (tmp_path / "out").exists()
