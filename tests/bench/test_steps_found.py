"""What finding 100,000 decisions of many steps takes, in processor time. `pytest -m bench -s` prints it.

20,000 traces of five logged decisions, each with a model call and a tool that gives 300 characters, scored by step.
"""

from __future__ import annotations

import json
import time

import polars as pl
import pytest
import test_steps as small

from optimizer.sequential.logged import to_episodes
from optimizer.sequential.steps import find_steps

pytestmark = pytest.mark.bench

TRACES, EACH = 20_000, 5
SECONDS = 15.0
"""Measured 8.5 s with two cores under load and one polars thread; more than this is another algorithm."""


def copies(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame of one trace for all of them."""
    numbers = pl.DataFrame({"number": range(TRACES)})
    return numbers.join(frame, how="cross").with_columns(trace_id=pl.format("t{}", "number")).drop("number")


def test_100_000_decisions_are_found_in_seconds() -> None:
    calls, spans, scores, texts = [small.root()], [], [], []
    for step in range(EACH):
        at = 1.0 + 3 * step
        calls.append(small.model(f"m{step}", at, parent_call_id="root", agent="boss"))
        calls.append(small.plain("tool", f"t{step}", at + 1, parent_call_id="root", agent="boss", tool="search"))
        spans.append(small.route(at - 0.1, "search" if step % 2 else "small"))
        scores.append(small.step_score(f"t{step}", step / EACH, at=at + 1.5))
        said = json.dumps([{"role": "tool", "content": f"row {step}\n" * 50}])
        texts.append({"trace_id": "t1", "span_id": f"t{step}", "output_text": said})
    frames = {
        "calls": copies(small.billed(calls)),
        "spans": copies(pl.DataFrame(spans, schema=small.SPANS)),
        "scores": copies(pl.DataFrame(scores, schema=small.STEP_SCORES)),
    }
    told = copies(pl.DataFrame(texts, schema=small.TEXTS))
    began = time.process_time()
    found = find_steps(**frames, quality_names={"app": "quality"}, texts=lambda _: told)
    found_s = time.process_time() - began
    assert len(found.rows) == TRACES * EACH
    began = time.process_time()
    assert len(to_episodes(found.rows, seed=0).log) == TRACES
    print(f"\n{len(found.rows):,} decisions: {found_s:.1f} s, as episodes {time.process_time() - began:.1f} s more")
    assert found_s < SECONDS
