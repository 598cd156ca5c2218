"""What privacy costs an acceptor, per span. `pytest -m bench -s tests/bench/test_privacy_cost.py` prints it."""

from __future__ import annotations

import time

import pytest
from otlp_load import bodies

from ingest import otlp
from ingest.privacy import OFF, Policy
from ingest.redact import KINDS
from optimizer import prompts

pytestmark = pytest.mark.bench

SPANS = 4096
POLICIES = {
    "off": OFF,
    "deny": Policy(deny=("app.",)),
    "redact": Policy(redact=KINDS),
    "content off": Policy(content=False, vector=prompts.vector),
    "both": Policy(content=False, redact=KINDS, vector=prompts.vector),
}


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("text_chars", [200, 1500])
def test_cost_of_a_span(name: str, text_chars: int) -> None:
    sent = list(bodies(SPANS, text_chars))
    policy = POLICIES[name]
    best = min(_seconds(policy, sent) for _ in range(3))
    size = sum(map(len, sent)) / SPANS
    print(f"\n{name}, {size:.0f} bytes a span: {best / SPANS * 1e6:.1f} us a span")
    if name == "off":
        assert best / SPANS < 1e-6  # nothing is read: measured 0.0 us


def _seconds(policy: Policy, sent: list[bytes]) -> float:
    began = time.process_time()
    for body in sent:
        kept = policy.apply(body, "traces", "protobuf")
    spent = time.process_time() - began
    assert otlp.inspect(kept, "traces", "protobuf").spans
    return spent
