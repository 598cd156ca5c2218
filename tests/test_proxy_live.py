"""A proxy with LiteLLM's newer telemetry and virtual keys, and requests to it while its policy changes."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from litellm_proxy import ACTIONS, MID, MODEL_OF, SERVICE, SMALL, Stack, litellm_command, settled_sessions, stacked
from policy_changes import Changes, as_often_as_said

KEYS = """
from litellm.proxy._types import UserAPIKeyAuth

MODELS = {"sk-some": ["helpdesk", "mid-7b|plan", "big.3"], "sk-alias": ["helpdesk"]}

async def check(request, api_key):
    return UserAPIKeyAuth(api_key=api_key, models=MODELS.get(api_key, []))
"""


def with_keys(out: Path) -> None:
    (out / "custom_keys.py").write_text(KEYS, encoding="utf-8")
    with (out / "config.yaml").open("a", encoding="utf-8") as config:
        config.write("  custom_auth: custom_keys.check\n")


@pytest.fixture(scope="module")
def stack(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    newer = {"LITELLM_OTEL_V2": "true", "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "span_only"}
    with stacked(litellm_command(pytestconfig), tmp_path_factory.mktemp("live"), with_keys, **newer) as stack:
        yield stack


def test_the_newer_telemetry_brings_the_decision_back_into_calls(stack: Stack) -> None:
    sent = []
    for number in range(4):
        metadata = {"session_id": "session-1", "policy.id": "spoof", "policy": {"action": "spoof"}}
        headers = stack.ask(f"Hello {number}", metadata=metadata)
        sent.append((headers["x-policy-action"], float(headers["x-policy-propensity"])))
    stack.ask("Straight to the model", model=MID, metadata={"policy.id": "spoof", "session_id": "session-2"})
    calls = settled_sessions(stack.home, {"session-1": len(sent), "session-2": 1})
    rows = list(calls.filter(pl.col("session_id") == "session-1").sort("start_ns").iter_rows(named=True))
    assert [(row["policy_action"], row["policy_propensity"]) for row in rows] == sent
    assert {row["policy_id"] for row in rows} == {"helpdesk-policy"}
    assert calls.filter(pl.col("session_id") == "session-2")["policy_id"].to_list() == [None]
    assert "policy" not in repr(stack.upstream.asked)


def test_a_virtual_key_gets_only_models_that_it_may_have(stack: Stack) -> None:
    body = {"model": SERVICE, "messages": [{"role": "user", "content": "Hello"}]}
    for key, names in (("sk-some", set(ACTIONS) - {SMALL}), ("sk-alias", set(ACTIONS))):
        answers = [stack.post("/v1/chat/completions", body, key) for _ in range(24)]
        assert {answer.status_code for answer in answers} == {200}
        taken = Counter(answer.headers["x-policy-action"] for answer in answers)
        assert set(taken) <= names
        if len(names) == 3:
            assert taken[SMALL] >= 8  # 0.8 each: fewer once in 10^7


def asked_among_changes(stack: Stack, requests: int, every: int, seed: int) -> tuple[float, Changes, Counter[str]]:
    """Whether the models met the probabilities said, the changes, and the reasons, after so many requests."""
    changes = Changes(
        stack.out / "policy", random.Random(seed), service=SERVICE, actions=ACTIONS, policy_id="helpdesk-policy"
    )
    changes.revision = 1000 * seed  # past whatever the proxy has
    changes.good()
    time.sleep(1.1)
    taken: dict[str, Counter[str]] = defaultdict(Counter)
    reasons: Counter[str] = Counter()
    for number in range(requests):
        if number % every == 0:
            changes.some()
        headers = stack.ask("Hello")  # which checks the answer
        action, version, reason = (headers[f"x-policy-{name}"] for name in ("action", "version", "reason"))
        assert stack.upstream.model == MODEL_OF[action]
        reasons[reason] += 1
        if reason in ("kill_switch", "disabled"):
            assert (action, headers["x-policy-propensity"]) == (MID, "1.0")
        else:
            assert float(headers["x-policy-propensity"]) == pytest.approx(changes.shares[version][action])
            taken[version][action] += 1
    (stack.out / "policy" / "KILL").unlink(missing_ok=True)
    return as_often_as_said((changes.shares[version], counts) for version, counts in taken.items()), changes, reasons


def test_hundreds_of_requests_are_answered_while_the_policy_changes(stack: Stack) -> None:
    likely, changes, reasons = asked_among_changes(stack, requests=300, every=12, seed=2)
    assert likely > 1e-6  # the proxy draws anew each time, so a healthy one may fail once in a million runs
    assert len(changes.made) >= 6
    assert reasons["policy"] > 100


@pytest.mark.slow
def test_ten_thousand_requests_are_answered_while_the_policy_changes(stack: Stack) -> None:
    likely, changes, reasons = asked_among_changes(stack, requests=10_000, every=60, seed=3)
    assert likely > 1e-3
    assert set(changes.made) == set(Changes.KINDS)
    assert reasons["policy"] > 5000
