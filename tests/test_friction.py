"""Prompts, handoffs and steps: figures by hand, intervals that hold together, and no number from few traces."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import polars as pl
import pytest

from optimizer.evidence import Refused
from optimizer.friction import MIN_GROUPS, Friction, friction, to_json
from optimizer.gate import Estimate
from optimizer.turns import COLUMNS

CALLS: dict[str, Any] = {
    **dict.fromkeys(("trace_id", "kind", "prompt_name", "prompt_version", "attempt_of", "unpriced"), pl.String),
    "cost_usd": pl.Float64,
}
OUTCOMES: dict[str, Any] = {**dict.fromkeys(("trace_id", "point", "group"), pl.String), "quality": pl.Float64}


def calls(*rows: tuple[str, str | None, str | None, float | None]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {"trace_id": trace, "kind": "llm", "prompt_name": name, "prompt_version": version, "cost_usd": usd}
            | {"unpriced": None if usd is not None else "no price"}
            for trace, name, version, usd in rows
        ],
        schema=CALLS,
    )


def outcomes(*rows: tuple[str, str, float | None]) -> pl.DataFrame:
    return pl.DataFrame([(t, "ask", g, q) for t, g, q in rows], schema=OUTCOMES, orient="row")


def chain(trace: str, *agents: str, failed: str = "", usd: float = 0.01) -> list[tuple[Any, ...]]:
    return [
        (trace, n, agent, [n - 1] if n else [], n, 2.0, usd, 10, agent == failed, None)
        for n, agent in enumerate(agents)
    ]


def turns(*rows: tuple[Any, ...]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=dict(COLUMNS), orient="row")


NO_CALLS, NO_TURNS = calls(), turns()


def estimate(outcome: object) -> Estimate:
    assert isinstance(outcome, Estimate)
    return outcome


def test_a_prompts_traces_are_compared_with_the_others_of_its_point() -> None:
    n = 2 * MIN_GROUPS
    with_it = [f"a{i}" for i in range(n)]
    without = [f"b{i}" for i in range(n)]
    found = friction(
        calls(
            *((t, "fix", "2", 0.02) for t in with_it for _ in range(2)),
            *((t, "ask", None, 0.01) for t in with_it + without),
            ("elsewhere", "fix", "2", 9.0),
        ),
        NO_TURNS,
        outcomes(*((t, t, 0.4) for t in with_it), *((t, t, 0.9) for t in without)),
        confidence=0.95,
    )
    by_name = {one.prompt: one for one in found.prompts}
    fix = by_name["fix"]
    assert (fix.version, fix.calls, fix.traces, fix.scored) == ("2", 2 * n, n, n)
    assert estimate(fix.quality).value == pytest.approx(0.4)
    assert estimate(fix.difference).value == pytest.approx(-0.5)
    assert estimate(fix.cost_usd_per_1k).value == pytest.approx(40.0)
    assert by_name["ask"].version is None
    assert isinstance(by_name["ask"].difference, Refused)  # every trace used it
    assert "0 sessions without it" in by_name["ask"].difference.reason
    assert [one.prompt for one in found.prompts] == ["ask", "fix"]


def test_few_traces_get_no_number() -> None:
    few = [f"t{i}" for i in range(MIN_GROUPS - 1)]
    found = friction(
        calls(*((t, "fix", "1", None) for t in few)),
        turns(*(row for t in few for row in chain(t, "plan", "code"))),
        outcomes(*((t, t, 0.5) for t in few), *((f"o{i}", f"o{i}", None) for i in range(99))),
        confidence=0.95,
    )
    (prompt,), (handoff,) = found.prompts, found.handoffs
    figures = [prompt.quality, prompt.difference, prompt.cost_usd_per_1k]
    figures += [handoff.failed, handoff.seconds, handoff.quality, handoff.quality_without, handoff.difference]
    for figure in figures:
        assert isinstance(figure, Refused)
        assert "below 30 no interval can be trusted" in figure.reason
    assert (prompt.traces, handoff.count) == (MIN_GROUPS - 1, MIN_GROUPS - 1)


def test_traces_of_one_session_count_as_one() -> None:
    """A hundred traces of a session are no hundred sessions, and of two sessions no interval."""
    found = friction(
        calls(*((f"t{i}", "fix", "1", 0.1) for i in range(100))),
        NO_TURNS,
        outcomes(*((f"t{i}", "s", 0.5) for i in range(100))),
        confidence=0.95,
    )
    assert isinstance(found.prompts[0].quality, Refused)
    assert "only 1 session " in found.prompts[0].quality.reason


def test_handoffs_say_how_often_the_second_one_failed_and_what_it_cost() -> None:
    n = 3 * MIN_GROUPS
    rows = [
        row
        for i in range(n)
        for row in chain(f"t{i}", "plan", "code", "code", "STOP", failed="code" if i % 3 == 0 else "")
    ]
    rows += [row for i in range(n) for row in chain(f"u{i}", "plan", "check", usd=0.5)]
    found = friction(
        NO_CALLS,
        turns(*rows),
        outcomes(*((f"t{i}", f"t{i}", 0.25) for i in range(n)), *((f"u{i}", f"u{i}", 0.75) for i in range(n))),
        confidence=0.95,
    )
    by_pair = {(one.source, one.target): one for one in found.handoffs}
    assert set(by_pair) == {("plan", "code"), ("code", "code"), ("plan", "check")}
    code, check = by_pair["plan", "code"], by_pair["plan", "check"]
    assert (code.count, code.traces) == (n, n)
    assert estimate(code.failed).value == pytest.approx(1 / 3)
    assert estimate(check.failed).value == 0.0
    assert estimate(code.cost_usd_per_1k).value == pytest.approx(10.0)
    assert estimate(check.cost_usd_per_1k).value == pytest.approx(500.0)
    assert estimate(code.seconds).value == 2.0
    assert estimate(code.difference).value == pytest.approx(-0.5)
    assert estimate(check.quality).value == pytest.approx(0.75)
    assert estimate(check.quality_without).value == pytest.approx(0.25)


def test_steps_share_what_all_turns_took() -> None:
    found = friction(
        NO_CALLS,
        turns(*chain("t", "plan", "code", "code", "STOP", failed="code"), *chain("u", "plan")),
        outcomes(("t", "t", None), ("u", "u", None)),
        confidence=0.95,
    )
    code, plan = found.steps
    assert (code.agent, code.turns, code.traces, code.failed_share) == ("code", 2, 1, 1.0)
    assert (code.cost_share, code.seconds_share, code.tokens_share) == (0.5, 0.5, 0.5)
    assert (plan.agent, plan.turns, plan.failed_share) == ("plan", 2, 0.0)


def test_nothing_to_compare_is_empty() -> None:
    assert friction(NO_CALLS, NO_TURNS, outcomes(), confidence=0.95) == Friction((), (), (), 0.95)


def test_a_branch_point_and_a_join_are_handoffs_along_each_edge() -> None:
    rows = [
        ("t", 0, "plan", [], 0, 1.0, 0.1, 1, False, None),
        ("t", 1, "x", [0], 1, 1.0, 0.1, 1, False, None),
        ("t", 2, "y", [0], 1, 1.0, 0.1, 1, False, None),
        ("t", 3, "z", [1, 2], 2, 1.0, None, None, False, None),
    ]
    found = friction(NO_CALLS, turns(*rows), outcomes(("t", "t", 1.0)), confidence=0.95)
    assert {(one.source, one.target) for one in found.handoffs} == {
        ("plan", "x"),
        ("plan", "y"),
        ("x", "z"),
        ("y", "z"),
    }


def test_of_prompts_that_are_all_alike_none_is_found_worse_too_often() -> None:
    """Eight versions without a difference, 100 logs: in 5 % of them one of the intervals misses 0, plus three binomial
    standard errors of 2.2 points. At 95 % each, one would in a third of the logs."""
    rng, missed, alone = np.random.default_rng(0), 0, 0
    n = 480
    for _ in range(100):
        quality = (rng.random(n) < 0.7).astype(float) * rng.random(n)
        traces = [f"t{i}" for i in range(n)]
        found = friction(
            calls(*((t, "p", str(i % 8), 0.1) for i, t in enumerate(traces))),
            NO_TURNS,
            outcomes(*((t, t, q) for t, q in zip(traces, quality, strict=True))),
            confidence=0.95,
        )
        spans = [estimate(one.difference) for one in found.prompts]
        missed += any(not one.low <= 0 <= one.high for one in spans)
        alone += any(abs(one.value) > 0.72 * (one.high - one.low) / 2 for one in spans)  # 1.96 / 2.74
    assert missed / 100 <= 0.05 + 3 * 0.022
    assert alone / 100 > 0.2


def test_what_a_page_reads_is_json_with_fixed_keys() -> None:
    n = MIN_GROUPS
    said = to_json(
        friction(
            calls(*((f"t{i}", "fix", "1", 0.1) for i in range(n))),
            turns(*(row for i in range(n) for row in chain(f"t{i}", "plan", "code"))),
            outcomes(*((f"t{i}", f"t{i}", 0.5) for i in range(n))),
            confidence=0.9,
        )
    )
    assert json.loads(json.dumps(said)) == said
    assert (said["reading"], said["confidence"]) == ("association", 0.9)
    names = {"point", "prompt", "version", "calls", "traces", "scored", "cost_usd_per_1k", "quality", "difference"}
    assert set(said["prompts"][0]) == names
    names = {"from", "to", "count", "traces", "failed", "cost_usd_per_1k", "seconds", "quality", "quality_without"}
    assert set(said["handoffs"][0]) == names | {"difference"}
    names = {"agent", "turns", "traces", "cost_share", "seconds_share", "tokens_share", "failed_share"}
    assert set(said["steps"][0]) == names
    assert said["prompts"][0]["quality"]["value"] == 0.5
    assert said["prompts"][0]["difference"]["value"] is None
