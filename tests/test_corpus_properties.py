"""Real telemetry gives the same calls whatever its order, however it is split into requests, however often it is sent.

Runs on the cases in tests/golden/otlp, and on the larger collection where OTLP_CORPUS names one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import corpus
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from settled_payloads import Records, decoded, settled_calls

from ingest.spans import LogRecord, Span

CASES = corpus.cases(corpus.GOLDEN) + (corpus.cases(Path(corpus.FOLDER)) if corpus.FOLDER else [])
TOTALS = ("input_tokens", "output_tokens", "cost_usd")
LARGE = 40
"""Spans of a case from which on fewer arrangements are tried."""


@cache
def records(folder: Path) -> tuple[Records, ...]:
    found = corpus.Case(folder).records()
    return tuple(decoded((r.kind, r.encoding, r.body) for r in found if r.kind in ("traces", "logs")))


@cache
def expected(folder: Path) -> list[dict[str, Any]]:
    return settled_calls(records(folder))


def arranged(sent: Sequence[Records], draw: random.Random) -> list[Records]:
    """All records of some requests, shuffled, some of them twice, in requests of any size."""
    loose: list[Span | LogRecord] = []
    for spans, logs in sent:
        loose += [*spans, *logs]
    loose += draw.sample(loose, draw.randint(0, len(loose)))
    draw.shuffle(loose)
    requests: list[Records] = []
    while loose:
        size = draw.choice((1, 3, len(loose)))
        part, loose = loose[:size], loose[size:]
        requests.append(([r for r in part if isinstance(r, Span)], [r for r in part if isinstance(r, LogRecord)]))
    return requests


def total(calls: Sequence[dict[str, Any]], name: str) -> float:
    return math.fsum(call[name] or 0 for call in calls)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32))
def test_any_order_split_and_repetition_gives_the_same_calls(case: corpus.Case, seed: int) -> None:
    sent = records(case.folder)
    if sum(len(spans) + len(logs) for spans, logs in sent) > LARGE and seed % 3:
        return
    assert settled_calls(arranged(sent, random.Random(seed))) == expected(case.folder)


def test_totals_of_the_parts_are_the_total_of_the_whole() -> None:
    golden = [records(case.folder) for case in corpus.cases(corpus.GOLDEN)]
    parts = [call for case in golden for call in settled_calls(case)]
    whole = settled_calls([request for case in golden for request in case])
    assert len(whole) == len(parts)
    for name in TOTALS:
        assert total(whole, name) == pytest.approx(total(parts, name))
