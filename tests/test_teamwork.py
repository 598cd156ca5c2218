"""Organisation before and after, on a world small enough to list all of its episodes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import mdp
import numpy as np
import pytest

from optimizer import teamwork
from optimizer.dataset import Floats
from optimizer.evidence import Refused
from optimizer.gate import Estimate
from optimizer.organisation import Activation, organisation
from optimizer.runtime import orchestration_features
from optimizer.sequential.episodes import STOP, EpisodeLog
from optimizer.sequential.evaluation import carried
from optimizer.sequential.standing import Measured, of_policy
from optimizer.teamwork import DEFINITIONS, changes, measured

NAMES = ("write", "check", STOP)
STEPS = 4
SKILL = np.array([[0.7, 0.2], [0.3, 0.6]])
"""(kinds, helpers) chance that the answer is right after a helper acted; each step draws anew."""
KNOWN = np.array([True, False])
"""Whether it is known what stopping gives: of tasks of the first kind only."""


@cache
def logging(kind: int, actions: tuple[int, ...]) -> Floats:
    """The log's rule: write first, then what was not done last, and sometimes anything."""
    usual = 0 if not actions else 1 - actions[-1]
    stop = 0.0 if not actions else 0.15
    row = np.array([0.2, 0.2, stop])
    row[usual] += 1 - row.sum()
    return row


@cache
def eager(kind: int, actions: tuple[int, ...]) -> Floats:
    """The policy: the first kind is stopped after a step or two, the second goes on to the end."""
    if kind == 0:
        return np.array([[0.8, 0.2, 0.0], [0.2, 0.3, 0.5], [0.0, 0.0, 1.0]][min(len(actions), 2)])
    if not actions:
        return np.array([0.65, 0.35, 0.0])
    return np.array([0.6, 0.4, 0.0]) if actions[-1] else np.array([0.4, 0.6, 0.0])


METRICS = ("steps", "entropy", "revisit_rate", "density", "cycles_2", "cost_usd")
COST = np.array([3.0, 1.0])


@cache
def metrics_of(actions: tuple[int, ...]) -> dict[str, float]:
    """By hand, of one sequence of actions without STOP."""
    found = organisation([Activation(NAMES[a], (i - 1,) if i else ()) for i, a in enumerate(actions)])
    nothing = float("nan")
    return {
        "steps": len(actions),
        "entropy": found.entropy,
        "revisit_rate": nothing if found.revisit_rate is None else found.revisit_rate,
        "density": nothing if found.density is None else found.density,
        "cycles_2": found.cycles[2],
        "cost_usd": float(sum(COST[a] for a in actions)),
    }


def every_episode(rule: type(eager)) -> Iterator[tuple[float, tuple[int, ...]]]:
    """All sequences of actions of both kinds with their probability, STOP left out."""
    for kind in (0, 1):
        open_: list[tuple[float, tuple[int, ...]]] = [(0.5, ())]
        while open_:
            chance, actions = open_.pop()
            if len(actions) == STEPS:
                yield chance, actions
                continue
            row = rule(kind, actions)
            yield chance * row[2], actions
            open_ += [(chance * row[a], (*actions, a)) for a in (0, 1) if row[a]]


def truth(rule: type(eager)) -> dict[str, float]:
    weighed = [(chance, metrics_of(actions)) for chance, actions in every_episode(rule) if chance]
    found = {}
    for name in METRICS:
        known = [(chance, one[name]) for chance, one in weighed if not np.isnan(one[name])]
        found[name] = sum(c * m for c, m in known) / sum(c for c, _ in known)
    return found


def draw(episodes: int, seed: int, size: int = 3) -> tuple[EpisodeLog, Floats]:
    """A log, and the policy on it. The episodes of a group share their kind of task: they are not independent."""
    rng = np.random.default_rng(seed)
    rows, quality, policy = [], [], []
    kinds = rng.integers(2, size=-(-episodes // size)).repeat(size)[:episodes]
    for episode, kind in enumerate(kinds):
        actions: tuple[int, ...] = ()
        right = 0.0
        while len(actions) < STEPS:
            row = logging(kind, actions)
            action = int((rng.random() > row.cumsum()).sum())
            known = right if KNOWN[kind] and actions else np.nan
            rows.append((kind, len(actions), action, row, COST[action] if action < 2 else 0.0, known, episode))
            policy.append(eager(kind, actions))
            if action == 2:
                break
            actions = (*actions, action)
            right = float(rng.random() < SKILL[kind, action])
        quality.append(right)
    x, step, action, behaviour, cost, known, episode = zip(*rows, strict=True)
    log = EpisodeLog(
        features=np.column_stack([x, step]).astype(np.float64),
        actions=np.array(action),
        behaviour=np.array(behaviour),
        cost_usd=np.array(cost),
        latency_s=np.ones(len(rows)),
        stop_quality=np.array(known),
        episode=np.array(episode),
        quality=np.array(quality),
        groups=np.arange(episodes) // size,
        time_ns=np.arange(episodes),
        action_names=NAMES,
        propensities_logged=True,
    )
    return log, np.array(policy)


def table(log: EpisodeLog) -> dict[str, Measured]:
    """The metrics of `METRICS` by looking sequences up: faster than folding each of 60,000 episodes."""
    sequences: dict[tuple[int, ...], int] = {}
    before = np.empty(len(log.actions), dtype=int)
    whole = np.empty(len(log), dtype=int)
    actions: tuple[int, ...] = ()
    for row, (step, action, last) in enumerate(zip(log.step, log.actions, log.last, strict=True)):
        actions = () if step == 0 else actions
        before[row] = sequences.setdefault(actions, len(sequences))
        actions = actions if action == log.stop else (*actions, int(action))
        if last:
            whole[log.episode[row]] = sequences.setdefault(actions, len(sequences))
    values = [metrics_of(sequence) for sequence in sequences]
    columns = {name: np.array([one[name] for one in values]) for name in METRICS}
    return {name: Measured(column[before], column[whole]) for name, column in columns.items()}


def test_intervals_hold_what_the_policy_would_do() -> None:
    """Of 150 logs 95 %, less three binomial standard errors of 1.8 points, as there are 18 means of six metrics."""
    logs = 150
    was, will = truth(logging), truth(eager)
    hits = {(name, what): 0 for name in METRICS for what in ("today", "policy", "change")}
    for seed in range(logs):
        log, policy = draw(600, seed)
        for one in changes(log, policy, table(log), confidence=0.95):
            exact = {"today": was[one.metric], "policy": will[one.metric]}
            for what, value in (exact | {"change": exact["policy"] - exact["today"]}).items():
                found = getattr(one, what)
                assert isinstance(found, Estimate)
                assert found.kind == "asymptotic"
                hits[one.metric, what] += found.low <= value <= found.high
    shares = {name: count / logs for name, count in hits.items()}
    assert min(shares.values()) >= 0.897, shares
    assert np.mean(list(shares.values())) == pytest.approx(0.95, abs=0.015)


def test_an_interval_a_third_narrower_would_not_hold() -> None:
    """The test above can fail: cut to two thirds, 95 % become 81 % for a normal error; 87 % allows for 30 logs."""
    will, hits = truth(eager), []
    for seed in range(30):
        log, policy = draw(600, seed)
        for one in changes(log, policy, table(log), confidence=0.95):
            assert isinstance(one.policy, Estimate)
            hits.append(abs(one.policy.value - will[one.metric]) <= (one.policy.high - one.policy.low) / 3)
    assert np.mean(hits) < 0.87


def test_an_episode_stands_for_as_many_as_it_is_said_to_carry() -> None:
    log, policy = draw(300, 0)
    standing = of_policy(log, policy)
    weight = np.bincount(log.episode, weights=standing.stopped) + standing.finished
    assert weight == pytest.approx(carried(log, policy))
    assert weight.mean() == pytest.approx(1.0, abs=0.2)  # its spread over such logs is 0.06


def test_todays_own_change_is_nothing_and_its_mean_that_of_the_log() -> None:
    log, _ = draw(300, 0)
    metrics = {name: found for name, found in measured(log).items() if not np.isnan(found.whole).mean() > 0.5}
    assert len(metrics) > 12
    for one in changes(log, log.behaviour, metrics, confidence=0.95):
        assert isinstance(one.today, Estimate)
        assert one.today == one.policy
        assert one.today.value == pytest.approx(np.nanmean(metrics[one.metric].whole))
        assert isinstance(one.change, Estimate)
        assert (one.change.low, one.change.value, one.change.high) == (0.0, 0.0, 0.0)


def test_stopping_earlier_is_replayed_without_any_weight() -> None:
    """A script that never varies: what it would be after two steps is what it was after two steps."""
    n, steps = 120, 4
    rng = np.random.default_rng(0)
    log = EpisodeLog(
        features=np.zeros((n * steps, 1)),
        actions=np.tile([0, 1, 0, 1], n),
        behaviour=np.tile(np.eye(3)[[0, 1, 0, 1]], (n, 1)),
        cost_usd=np.ones(n * steps),
        latency_s=np.ones(n * steps),
        stop_quality=rng.random(n * steps),
        episode=np.repeat(np.arange(n), steps),
        quality=rng.random(n),
        groups=np.arange(n),
        time_ns=np.arange(n),
        action_names=NAMES,
        propensities_logged=True,
    )
    policy = np.where((log.step == 2)[:, None], [0.0, 0.0, 1.0], log.behaviour)
    found = {one.metric: one.policy for one in changes(log, policy, measured(log), confidence=0.95)}
    for metric, value in {"steps": 2.0, "cost_usd": 2.0, "latency_s": 2.0, "cycles_2": 0.0, "density": 0.5}.items():
        estimate = found[metric]
        assert isinstance(estimate, Estimate)
        assert (estimate.low, estimate.value, estimate.high) == pytest.approx((value, value, value))
    second, third = (log.stop_quality[log.step == step] for step in (1, 2))
    gap = found["oracle_stop_gap"]
    assert isinstance(gap, Estimate)
    assert gap.value == pytest.approx((np.maximum(second, third) - third).mean())


def test_a_mixture_changes_its_share_of_what_the_policy_changes() -> None:
    """Of metrics that every trace has; and it needs fewer effective episodes of the policy itself."""
    log, policy = draw(600, 0)
    metrics = {name: measured(log)[name] for name in ("steps", "cost_usd", "entropy")}
    whole, part = (changes(log, policy, metrics, confidence=0.95, share=share) for share in (1.0, 0.4))
    for one, some in zip(whole, part, strict=True):
        assert one.today == some.today
        assert isinstance(one.change, Estimate)
        assert isinstance(some.change, Estimate)
        assert some.change.value == pytest.approx(0.4 * one.change.value, rel=0.1)  # weights are 1 only on average
        assert some.change.effective > one.change.effective
    few, policy = draw(150, 1)
    metrics = {"steps": measured(few)["steps"]}
    (alone,), (mixed,) = (changes(few, policy, metrics, confidence=0.95, share=share) for share in (1.0, 0.4))
    assert isinstance(alone.policy, Refused)
    assert isinstance(mixed.policy, Estimate)


def test_few_effective_episodes_get_no_number() -> None:
    log, policy = draw(120, 0)
    for one in changes(log, policy, measured(log), confidence=0.95):
        assert isinstance(one.today, Refused) == (
            one.metric in ("density", "density_multi", "abandoned", "oracle_stop_gap")
        )
        for refused in (one.policy, one.change):
            assert isinstance(refused, Refused)
            assert re.search("below 100 no interval can be trusted|known of", refused.reason)
    few = log.take(np.arange(99))
    assert all(isinstance(one.today, Refused) for one in changes(few, few.behaviour, measured(few), confidence=0.95))


def test_actions_that_were_not_tried_get_no_number() -> None:
    log = mdp.draw(300, 0)
    behaviour = np.where(np.arange(mdp.ACTIONS) == log.actions[:, None], 1.0, 0.0)
    policy = np.tile(np.eye(mdp.ACTIONS)[0], (len(log.actions), 1))
    for one in changes(replace(log, behaviour=behaviour), policy, measured(log), confidence=0.95):
        assert isinstance(one.change, Refused)
        assert "take actions that were not tried there" in one.change.reason


def test_estimated_probabilities_are_assumptions() -> None:
    log, policy = draw(600, 0)
    metrics = {"steps": measured(log)["steps"]}
    for logged, kind in ((True, "asymptotic"), (False, "assumption")):
        (one,) = changes(replace(log, propensities_logged=logged), policy, metrics, confidence=0.95)
        for found, wanted in ((one.today, "asymptotic"), (one.policy, kind), (one.change, kind)):
            assert isinstance(found, Estimate)
            assert found.kind == wanted


@pytest.mark.parametrize(("hidden", "kind"), [(0, "asymptotic"), (100, "assumption"), (400, "")])
def test_what_few_traces_know_is_no_number_and_what_some_lack_an_assumption(hidden: int, kind: str) -> None:
    log, policy = draw(600, 0)
    seen = np.where(np.isnan(log.stop_quality), 0.5, log.stop_quality)
    log = replace(log, stop_quality=np.where(log.episode < hidden, np.nan, seen))
    metrics = {name: measured(log)[name] for name in ("abandoned", "oracle_stop_gap")}
    for one in changes(log, policy, metrics, confidence=0.95):
        if kind:
            assert isinstance(one.today, Estimate)
            assert one.today.kind == kind
        else:
            assert isinstance(one.today, Refused)
            assert re.fullmatch(r"known of \d+% of the traces only", one.today.reason)


def test_every_metric_has_a_definition_and_none_without_one_is_taken() -> None:
    log, policy = draw(300, 0)
    assert set(measured(log)) == set(DEFINITIONS) - {"tokens", "wasted_suffix"}
    assert all(text.endswith(".") and text.count(". ") == 0 for text in DEFINITIONS.values())
    with pytest.raises(ValueError, match="no definition of mood"):
        changes(log, policy, {"mood": measured(log)["steps"]}, confidence=0.95)


def test_a_missing_price_leaves_its_own_episode_without_a_cost() -> None:
    log, _ = draw(300, 0)
    cost = log.cost_usd.copy()
    row = int(log.first[7]) + 1
    cost[row] = np.nan
    found = measured(replace(log, cost_usd=cost))["cost_usd"]
    assert np.flatnonzero(np.isnan(found.whole)).tolist() == [7]
    assert np.isnan(found.before[log.episode == 7]).tolist() == [False, False] + [True] * (
        int((log.episode == 7).sum()) - 2
    )
    known = measured(log)["cost_usd"]
    others = np.arange(300) != 7
    assert found.whole[others] == pytest.approx(known.whole[others])


def test_answers_that_stopped_changing_are_read_from_the_features_of_steps() -> None:
    """Two episodes of three steps and STOP: both end with the same answer twice; the second is cut by a limit."""
    outputs = [["a", "b", "b"], ["a", "b", "b"]]
    history = [[{"output": text} for text in given[:step]] for given in outputs for step in range(4)]
    rows = np.array([orchestration_features({"history": entries}, NAMES) for entries in history])
    log = EpisodeLog(
        features=rows,
        actions=np.array([0, 0, 0, 2, 0, 0, 0, 0]),
        behaviour=np.full((8, 3), 1 / 3),
        cost_usd=np.ones(8),
        latency_s=np.ones(8),
        stop_quality=np.full(8, np.nan),
        episode=np.repeat([0, 1], 4),
        quality=np.ones(2),
        groups=np.arange(2),
        time_ns=np.arange(2),
        action_names=NAMES,
        propensities_logged=True,
    )
    found = measured(log)["wasted_suffix"]
    assert found.before.tolist() == [0, 0, 0, 1] * 2
    assert found.whole.tolist() == pytest.approx([1.0, np.nan], nan_ok=True)
    assert "wasted_suffix" not in measured(replace(log, features=np.zeros_like(rows)))


def test_turns_finer_than_decisions_are_counted_where_they_began() -> None:
    """Two decisions; the first led to two agents at once, whose work a third one merged after the second."""
    log, _ = draw(1, 0)
    log = replace(
        log.take(np.array([0])),
        features=np.zeros((2, 1)),
        actions=np.array([0, 1]),
        behaviour=np.full((2, 3), 1 / 3),
        cost_usd=np.ones(2),
        latency_s=np.ones(2),
        stop_quality=np.full(2, np.nan),
        episode=np.zeros(2, dtype=np.int64),
    )
    agents = [Activation("search"), Activation("code"), Activation("merge", (0, 1)), Activation("check", (2,))]
    turns = teamwork.Turns([agents], np.array([0, 2]), np.array([0.0, 50.0]), np.array([90.0]), [["a", "a"]])
    found = measured(log, turns)
    assert found["steps"].before.tolist() == [0, 2]
    assert found["branches"].before.tolist() == [0, 2]
    assert (found["steps"].whole[0], found["branches"].whole[0]) == (4, 1)
    assert (found["tokens"].before.tolist(), found["tokens"].whole.tolist()) == ([0.0, 50.0], [90.0])
    assert (found["wasted_suffix"].before.tolist(), found["wasted_suffix"].whole.tolist()) == ([0, 0], [1])
