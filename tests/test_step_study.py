"""The study of an orchestrated service: what is suggested, what is judged, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mdp
import numpy as np
import pytest

from optimizer.ability import Ability
from optimizer.constraints import limited
from optimizer.dataset import split
from optimizer.evidence import Refused
from optimizer.gate import Estimate, Limits
from optimizer.runtime import DENSE, DIM, STEP_DENSE, Model
from optimizer.segments import Protected
from optimizer.sequential import identified, summary
from optimizer.sequential.episodes import STOP, EpisodeLog
from optimizer.sequential.plan import in_a_sentence
from optimizer.sequential.policies import barred, constant_route, features_for, on_log, script_of
from optimizer.sequential.study import Findings, Lessons, Suggestion, assess, beginnings, learn, per_episode

NAMES = ("good", "cheap", STOP)
A, STEPS = len(NAMES), 2
COST = np.array([0.02, 0.005, 0.0])
LATER = np.array([0.45, 0.45, 0.1])


def play(episodes: int, seed: int, policy: Model | None) -> EpisodeLog:
    """Episodes of at most two steps: each good one makes the answer right for a fifth of the tasks more, and how
    right the answer is is known after each step. Played by a model, or by chance."""
    rng = np.random.default_rng(seed)
    luck, good, alive = rng.random(episodes), np.zeros(episodes), np.ones(episodes, dtype=bool)
    counts, last = np.zeros((episodes, A)), np.full(episodes, A)
    rows: dict[str, list[np.ndarray]] = {name: [] for name in ("x", "a", "b", "q", "episode", "stage")}
    for stage in range(STEPS):
        now = np.flatnonzero(alive)
        prompt = np.zeros((len(now), DIM + len(STEP_DENSE)))
        prompt[:, 0] = stage
        x = np.hstack([prompt, np.log1p(counts[now]), np.eye(A + 1)[last[now]][:, :A]])
        chances = np.tile([0.5, 0.5, 0.0] if stage == 0 else LATER, (len(now), 1))
        if policy is not None:
            may = np.ones((len(now), A), dtype=bool)
            may[:, -1] = stage > 0
            chances = replace(policy, epsilon=0.0).probabilities(x, may)
        action = (rng.random((len(now), 1)) > np.cumsum(chances, axis=1)).sum(axis=1).clip(max=A - 1)
        right = (luck[now] < 0.3 + 0.2 * good[now]).astype(np.float64)
        for name, value in {
            "x": x,
            "a": action,
            "b": chances,
            "q": right if stage else np.full(len(now), np.nan),
            "episode": now,
            "stage": np.full(len(now), stage),
        }.items():
            rows[name].append(value)
        good[now] += action == 0
        counts[now, action] += 1
        last[now] = action
        alive[now] = action < A - 1
    every = {name: np.concatenate(parts) for name, parts in rows.items()}
    order = np.lexsort((every["stage"], every["episode"]))
    return EpisodeLog(
        features=every["x"][order],
        actions=every["a"][order],
        behaviour=every["b"][order],
        cost_usd=COST[every["a"][order]],
        latency_s=np.ones(len(order)),
        stop_quality=every["q"][order],
        episode=every["episode"][order],
        quality=(luck < 0.3 + 0.2 * good).astype(np.float64),
        groups=np.arange(episodes),
        time_ns=np.arange(episodes),
        action_names=NAMES,
        propensities_logged=True,
    )


LOG = play(3_000, 3, None)
LIMITS = Limits(quality_margin=0.05)


@pytest.fixture(scope="module")
def lessons() -> Lessons:
    return learn(LOG, LIMITS, 1.0, seed=0)


@pytest.fixture(scope="module")
def findings(lessons: Lessons) -> Findings:
    return assess(LOG, lessons.suggestion, LIMITS, seed=0)


def test_something_is_suggested_that_a_router_can_carry(lessons: Lessons) -> None:
    assert lessons.suggestion.refused == ""
    model = lessons.suggestion.model
    assert model is not None
    assert model.actions[-1] == STOP


def test_the_change_covers_the_truth(lessons: Lessons, findings: Findings) -> None:
    """Of 20,000 episodes played by the model, whose means err by less than 0.01 and 0.0002 (three standard errors)."""
    assert lessons.suggestion.model is not None
    truth, today = (per_episode(play(20_000, 77, model)).mean(axis=1) for model in (lessons.suggestion.model, None))
    for place, (metric, slack) in enumerate((("quality", 0.01), ("cost_usd", 0.0002))):
        change = findings.changes[metric]  # type: ignore[index]
        assert isinstance(change, Estimate)
        by = lessons.suggestion.share * (truth[place] - today[place])
        assert change.low - slack <= by <= change.high + slack


def test_a_row_for_today_and_each_route(findings: Findings) -> None:
    assert [row.policy for row in findings.rows] == ["today", "cheapest", "strongest", "suggested"]
    known = per_episode(findings.judged)[0].mean()
    today = findings.rows[0].outcomes["quality"]
    assert isinstance(today, Estimate)
    assert today.low <= known <= today.high


def test_what_may_not_be_suggested_is_never_taken() -> None:
    suggestion = learn(LOG, LIMITS, 1.0, seed=0, may={"cheap"}).suggestion
    assert suggestion.model is not None
    does = on_log(suggestion.model, LOG)
    assert does[:, NAMES.index("good")].max() == 0.0
    assert {suggestion.cheapest, suggestion.strongest} == {"cheap"}


def test_the_papers_reward_teaches_and_real_units_judge() -> None:
    lessons = learn(LOG, LIMITS, 1.0, seed=0, preset="puppeteer")
    assert lessons.suggestion.model is not None
    assert {scored.candidate.label for scored in lessons.scored} >= {"always good", "always cheap"}


def test_stop_is_never_the_first_step() -> None:
    stops = constant_route(STOP, LOG.action_names)
    does = on_log(stops, LOG)
    assert does[LOG.first, -1].max() == 0.0
    later = np.setdiff1d(np.arange(len(LOG.actions)), LOG.first)
    assert does[later, -1].min() == 1.0


def test_a_model_of_fewer_actions_reads_what_concerns_them() -> None:
    features = features_for(LOG, [2, 0])
    assert features.shape[1] == DIM + len(STEP_DENSE) + 4
    whole = LOG.features[:, DIM + len(STEP_DENSE) :]
    assert np.array_equal(features[:, -4:], whole[:, [2, 0, A + 2, A]])


def test_an_unknown_action_is_refused() -> None:
    with pytest.raises(ValueError, match="juggle"):
        on_log(constant_route("juggle", ("juggle", STOP)), LOG)


@pytest.mark.parametrize("action", NAMES[:-1])
def test_a_barred_action_is_the_last_resort(action: str) -> None:
    model = barred(constant_route(action, LOG.action_names), {action})
    assert on_log(model, LOG)[:, LOG.action_names.index(action)].max() == 0.0


def test_the_script_is_what_the_log_mostly_does() -> None:
    log = mdp.draw(500, 0)
    assert script_of(log) == tuple(mdp.NAMES[action] for action in mdp.SCRIPT)
    assert script_of(log, "code") == ("code",)
    assert script_of(log, "nobody") == script_of(log)
    alike = np.tile([0.9, 0.1, 0.0], (len(LOG.actions), 1))
    assert script_of(replace(LOG, behaviour=alike, actions=LOG.actions.clip(max=1))) == ("good",)


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (LOG.take(np.arange(60)), "only 60 traces"),
        (replace(LOG, groups=np.arange(len(LOG)) % 4), "only 4 sessions"),
        (replace(LOG, quality=np.full(len(LOG), np.nan)), "no trace has a quality score"),
        (replace(LOG, cost_usd=np.full(len(LOG.actions), np.nan)), "no trace has a known cost"),
        (
            replace(LOG, cost_usd=np.where(LOG.episode < 7, np.nan, LOG.cost_usd)),
            "7 of 3,000 traces have no known cost; set prices",
        ),
        (
            replace(LOG, behaviour=np.eye(A)[LOG.actions], stop_quality=np.full(len(LOG.actions), np.nan)),
            "a fixed rule",
        ),
    ],
    ids=["few", "sessions", "scores", "costs", "some costs", "fixed"],
)
def test_what_cannot_be_learned_is_refused_with_the_reason(log: EpisodeLog, said: str) -> None:
    suggestion = learn(log, LIMITS, None, seed=0).suggestion
    assert suggestion.model is None
    assert said in suggestion.refused


def unlabelled(log: EpisodeLog) -> EpisodeLog:
    return replace(log, quality=np.full(len(log), np.nan))


def unpriced(log: EpisodeLog) -> EpisodeLog:
    return replace(log, cost_usd=np.full(len(log.actions), np.nan))


def of_one_session(log: EpisodeLog) -> EpisodeLog:
    return replace(log, groups=np.zeros(len(log), dtype=np.int64))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("change", [lambda log: log, unlabelled, unpriced, of_one_session])
@pytest.mark.parametrize("episodes", [1, 2, 5, 110])
def test_the_smallest_logs_end_in_a_reason(episodes: int, change: Callable[[EpisodeLog], EpisodeLog]) -> None:
    log = change(LOG.take(np.arange(episodes)))
    found = assess(log, learn(log, LIMITS, None, seed=0).suggestion, LIMITS, seed=0)
    assert found.verdict.outcome == "cannot_tell"
    assert found.verdict.reasons[0].got


def test_without_a_suggestion_today_alone_has_numbers() -> None:
    found = assess(LOG, Suggestion(refused="nothing to learn from"), LIMITS, seed=0)
    assert found.verdict.outcome == "cannot_tell"
    assert isinstance(found.rows[0].outcomes["quality"], Estimate)
    assert found.rows[-1].policy == "suggested"
    assert all(outcome == Refused("nothing to learn from") for outcome in found.rows[-1].outcomes.values())


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_a_protected_segment_that_loses_blocks_it(share: float) -> None:
    log, model = LOG, constant_route("cheap", NAMES)
    suggestion = Suggestion("always cheap", model, admissible=True, share=share)
    segments = {"everyone": Protected(np.ones(len(log), dtype=np.bool_), 0.0)}
    found = assess(log, suggestion, LIMITS, seed=0, segments=segments)
    (reason,) = [one for one in found.verdict.reasons if "everyone" in one.condition]
    assert not reason.holds
    assert found.verdict.outcome == "keep"


def test_half_of_the_episodes_change_half_as_much() -> None:
    log, model = LOG, constant_route("cheap", NAMES)
    whole, half = (
        assess(log, Suggestion("always cheap", model, share=share), LIMITS, seed=0).changes["quality"]
        for share in (1.0, 0.5)
    )
    assert isinstance(whole, Estimate)
    assert isinstance(half, Estimate)
    assert half.value == pytest.approx(whole.value / 2)
    assert half.high - half.low == pytest.approx((whole.high - whole.low) / 2)
    assert half.effective > whole.effective


def test_beginnings_are_one_decision_an_episode() -> None:
    data = beginnings(LOG)
    assert len(data) == len(LOG)
    assert np.array_equal(data.quality, LOG.quality)
    assert data.cost_usd.sum() == pytest.approx(LOG.cost_usd.sum())


def test_routes_of_todays_policy_are_todays(findings: Findings) -> None:
    log = findings.judged
    for step in summary.route_json(log, log.behaviour):
        assert step["policy_reach"] == pytest.approx(step["today_reach"], abs=1e-9)
        assert sum(step["today"].values()) == pytest.approx(1.0)
    assert summary.changed_routes(log, np.eye(A)[log.actions]) == 0.0
    assert summary.changed_routes(log, constant_route_of(log)) == 1.0


def constant_route_of(log: EpisodeLog) -> np.ndarray:
    """Always an action that no episode takes throughout."""
    does = np.zeros((len(log.actions), A))
    does[np.arange(len(does)), (log.actions + 1) % A] = 1.0
    return does


@pytest.mark.parametrize("share", [0.5, 2.0])
def test_a_plan_asks_for_more_the_less_is_known(share: float) -> None:
    quality = Estimate("sequential DR", 0.02, 0.02 - 0.05 * share, 0.02 + 0.05 * share, 300, 150.0, "asymptotic")
    said = in_a_sentence(LOG, quality, 150.0, Limits(), "")
    if share < 1:
        assert said["decisions_needed"] < 3 * len(LOG)
    else:
        assert said["decisions_needed"] > 3 * len(LOG)
    assert "policy.probabilities" in said["text"]


def test_a_plan_without_a_suggestion_says_why() -> None:
    said = in_a_sentence(LOG, Refused("x"), None, Limits(), "no step has a score")
    assert said["decisions_needed"] is None
    assert said["text"].endswith("no step has a score")


def test_the_judging_episodes_are_the_newest_and_unseen(findings: Findings) -> None:
    splits = split(LOG.groups, LOG.time_ns)
    assert np.array_equal(findings.splits.certify, splits.certify)
    assert findings.judged.time_ns.min() > LOG.time_ns[np.concatenate([splits.train, splits.choose])].max()


def needing(log: EpisodeLog) -> EpisodeLog:
    """The log, in which every second episode needs tools."""
    features = log.features.copy()
    features[:, DENSE.index("tools")] = log.episode % 2
    return replace(log, features=features)


def test_no_agent_is_asked_for_what_it_cannot_do() -> None:
    log, without = needing(LOG), {"good": Ability(tools=False)}
    lessons = learn(log, LIMITS, 1.0, seed=0, abilities=without)
    chooser = log.take(split(log.groups, log.time_ns).choose)
    asked, good = chooser.features[:, DENSE.index("tools")] > 0, NAMES.index("good")
    assert max(scored.policy[asked, good].max() for scored in lessons.scored) == 0.0
    assert max(scored.policy[~asked, good].max() for scored in lessons.scored) == 1.0


def test_what_no_agent_can_serve_stays_as_logged() -> None:
    log, nobody = needing(LOG), dict.fromkeys(NAMES[:-1], Ability(tools=False))
    asked = log.features[:, DENSE.index("tools")] > 0
    does = on_log(limited(constant_route("good", NAMES), nobody), log)
    assert np.array_equal(does[asked], log.behaviour[asked])
    assert does[~asked, NAMES.index("good")].min() == 1.0


def in_sessions(log: EpisodeLog) -> EpisodeLog:
    return replace(log, groups=np.arange(len(log)) // 6, propensities_logged=False)


def test_what_moved_choices_unseen_fails_the_control_of_estimated_probabilities(findings: Findings) -> None:
    """Whoever had a bad answer before gets the other agent: the features do not say so."""
    assert findings.control is None  # logged
    log, rng = in_sessions(LOG), np.random.default_rng(3)
    fair = assess(log, Suggestion(refused="none"), LIMITS, seed=0).control
    assert fair is not None
    assert fair.holds
    before = np.roll(log.quality, 1)[log.episode[log.first]]
    pushed = log.actions.copy()
    pushed[log.first] = np.where(rng.random(len(log)) < 0.6, before < 0.5, log.actions[log.first]).astype(int)
    found = assess(replace(log, actions=pushed), Suggestion(refused="none"), LIMITS, seed=0)
    assert found.control is not None
    assert found.control.holds is False


def doubted(findings: Findings, limits: Limits, *, logged: bool) -> dict[str, Any]:
    judged = replace(findings.judged, propensities_logged=logged)
    names = [str(k) for k in range(len(LOG))]
    origin = ["logged" if logged else "estimated"] * len(LOG.actions)
    kept = identified.evidence_json(
        LOG, replace(findings, judged=judged), limits, origin=origin, trace_ids=names, fixed=[], share=1.0
    )
    found: dict[str, Any] = kept["sensitivity"]
    return found


def test_estimated_probabilities_say_how_wrong_they_may_be(findings: Findings) -> None:
    """At a margin that holds where nothing is hidden, the tipping point is the last that clears it; logged
    probabilities need none, and a margin that fails anyway has none."""
    change = findings.changes["quality"]
    assert isinstance(change, Estimate)
    wide = replace(LIMITS, quality_margin=0.1 - change.low)
    assert "logged" in doubted(findings, wide, logged=True)["why"]
    said = doubted(findings, wide, logged=False)
    assert said["why"] is None
    assert said["at"][0]["low_limit"] == pytest.approx(change.low, abs=0.01)
    clear = [one["gamma"] for one in said["at"] if one["low_limit"] >= -wide.quality_margin]
    unclear = [one["gamma"] for one in said["at"] if one["low_limit"] < -wide.quality_margin]
    assert 1.0 in clear
    assert max(clear) - 0.01 <= said["tipping"] <= min(unclear)
    narrow = replace(LIMITS, quality_margin=-change.low - 0.1)
    assert doubted(findings, narrow, logged=False)["tipping"] is None
