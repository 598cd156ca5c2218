"""End to end: the exported bundle in the real LiteLLM proxy, its telemetry back in our own `calls`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from litellm_proxy import (
    ACTIONS,
    BIG,
    CODE,
    MID,
    MODEL_OF,
    SERVICE,
    SHARES,
    SMALL,
    Stack,
    litellm_command,
    policy,
    settled_sessions,
    stacked,
)

from optimizer.export.litellm import export
from optimizer.runtime import decode_features, featurise


@pytest.fixture(scope="module")
def stack(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with stacked(litellm_command(pytestconfig), tmp_path_factory.mktemp("litellm")) as stack:
        yield stack


def test_the_upstream_gets_the_model_that_the_headers_name(stack: Stack) -> None:
    actions: dict[str, list[str]] = {"Hi": [], CODE: []}
    for text, taken in actions.items():
        for _ in range(12):
            headers = stack.ask(text)
            assert stack.upstream.model == MODEL_OF[headers["x-policy-action"]]
            assert round(float(headers["x-policy-propensity"]), 9) in SHARES
            assert (headers["x-policy-arm"], headers["x-policy-id"]) == ("treatment", "helpdesk-policy")
            taken.append(headers["x-policy-action"])
    # Each is preferred with probability 0.8; fewer than 4 of 12 happen once in 17,000 runs.
    assert actions["Hi"].count(SMALL) >= 4
    assert actions[CODE].count(BIG) >= 4


def test_streams_are_routed_too(stack: Stack) -> None:
    answer = stack.client.chat.completions.with_raw_response.create(
        model=SERVICE, messages=[{"role": "user", "content": "Hi"}], stream=True
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in answer.parse() if chunk.choices)
    assert text == "Hello."
    assert stack.upstream.model == MODEL_OF[answer.headers["x-policy-action"]]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages", {"max_tokens": 16, "messages": [{"role": "user", "content": "Hi"}]}),
        ("/v1/responses", {"input": "Hi"}),
    ],
)
def test_the_other_endpoints_are_routed_too(path: str, body: dict[str, Any], streamed: bool, stack: Stack) -> None:
    answer = stack.post(path, {"model": SERVICE, **body, "stream": streamed})
    assert answer.status_code == 200
    assert "Hello." in answer.text
    assert stack.upstream.model == MODEL_OF[answer.headers["x-policy-action"]]


def test_turns_with_tools_are_routed_and_reach_the_provider_whole(stack: Stack) -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
    messages: list[Any] = [{"role": "user", "content": "Look it up"}]
    for _ in range(2):
        answer = stack.post("/v1/chat/completions", {"model": SERVICE, "messages": messages, "tools": tools})
        assert stack.upstream.model == MODEL_OF[answer.headers["x-policy-action"]]
        assert stack.upstream.asked[-1][1]["tools"] == tools
        message = answer.json()["choices"][0]["message"]
        messages += [message, {"role": "tool", "tool_call_id": "t1", "content": "It is 4."}]
    assert message["content"] == "Hello."
    assert [message["role"] for message in stack.upstream.asked[-1][1]["messages"]] == ["user", "assistant", "tool"]


def test_embeddings_are_left_alone(stack: Stack) -> None:
    answer = stack.post("/v1/embeddings", {"model": SERVICE, "input": "a text"})
    assert answer.status_code == 200
    assert stack.upstream.model == MODEL_OF[MID]  # the virtual model's own deployment
    assert not [name for name in answer.headers if name.startswith("x-policy")]


def test_an_action_that_fails_is_answered_by_the_incumbent_and_set_aside(stack: Stack) -> None:
    """The provider is down for one model: LiteLLM falls back by the action's name, and the policy leaves it out after
    a few failures, with the probabilities of what is left."""
    stack.upstream.failing = {MODEL_OF[BIG]}
    fell_back = 0
    for _ in range(20):
        headers = stack.ask(CODE)
        if headers["x-policy-action"] == BIG:
            fell_back += 1
            assert stack.upstream.model == MODEL_OF[MID]
    assert fell_back >= 1
    later = [stack.ask(CODE) for _ in range(10)]
    assert {headers["x-policy-action"] for headers in later} <= {SMALL, MID}
    assert {round(float(headers["x-policy-propensity"]), 9) for headers in later} <= {0.15, 0.85}
    stack.upstream.failing = set()
    stack.ask("Are you back?", model=BIG)  # asked for by name; its answer counts
    time.sleep(1.0)  # LiteLLM tells of answers a moment later
    assert BIG in {stack.ask(CODE)["x-policy-action"] for _ in range(12)}  # 0.8 each


def test_other_models_are_left_alone(stack: Stack) -> None:
    headers = stack.ask("Hi", model=BIG, metadata={"policy.id": "spoof"})
    assert stack.upstream.model == "big.3"
    assert not [name for name in headers if name.startswith("x-policy")]


def test_a_policy_is_renewed_kept_and_killed_while_the_proxy_runs(stack: Stack, tmp_path: Path) -> None:
    folder = stack.out / "policy"
    export(policy(tmp_path / "policy", "v2"), stack.out, SERVICE)
    time.sleep(1.1)  # the hook looks once a second
    assert stack.ask("Hi")["x-policy-version"] == "v2"
    weights = (folder / "weights.npz").read_bytes()
    (folder / "weights.npz").write_bytes(weights[:-1])
    time.sleep(1.1)
    assert stack.ask("Hi")["x-policy-version"] == "v2"
    (folder / "weights.npz").write_bytes(weights)
    (folder / "KILL").touch()
    headers = stack.ask("Hi")
    assert (headers["x-policy-reason"], headers["x-policy-action"]) == ("kill_switch", MID)
    assert headers["x-policy-propensity"] == "1.0"
    (folder / "KILL").unlink()
    assert stack.ask("Hi")["x-policy-reason"] == "policy"


def test_action_propensity_and_features_come_back_in_calls(stack: Stack) -> None:
    sent: list[tuple[str, float]] = []
    for number in range(6):
        metadata = {"session_id": "session-7", "policy.id": "spoof", "policy": {"action": "spoof"}}
        headers = stack.ask(CODE if number % 2 else f"Back again {number}", metadata=metadata)
        sent.append((headers["x-policy-action"], float(headers["x-policy-propensity"])))
    stack.ask("Straight to the model", model=BIG, metadata={"policy.id": "spoof", "session_id": "session-8"})

    calls = settled_sessions(stack.home, {"session-7": len(sent), "session-8": 1})
    ours = calls.filter(pl.col("session_id") == "session-7")
    rows = list(ours.sort("start_ns").iter_rows(named=True))
    assert [(row["policy_action"], row["policy_propensity"]) for row in rows] == sent
    for number, row in enumerate(rows):
        assert row["policy_id"] == "helpdesk-policy"
        assert row["policy_arm"] == "treatment"
        assert json.loads(row["policy_candidates"]) == list(ACTIONS)
        shares = json.loads(row["policy_probabilities"])
        assert shares[ACTIONS.index(row["policy_action"])] == row["policy_propensity"]
        assert row["model_requested"] == row["model_returned"] == MODEL_OF[row["policy_action"]]
        assert (row["input_tokens"], row["output_tokens"]) == (30, 12)
        text = CODE if number % 2 else f"Back again {number}"
        used = featurise({"messages": [{"role": "user", "content": text}]})
        assert np.array_equal(decode_features(row["policy_features"]), used)
        assert np.array_equal(featurise({"messages": json.loads(row["input_text"])}), used)
    direct = calls.filter(pl.col("session_id") == "session-8")
    assert direct["policy_id"].to_list() == [None]
    assert "spoof" not in json.dumps(calls["policy_id"].to_list())
    assert "policy" not in json.dumps(stack.upstream.asked)  # providers see nothing of it
