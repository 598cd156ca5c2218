"""Few outcomes and a judge for the others: estimates that keep their promise, and claims that are refused.

The world: prompts are easy or hard, three models answer. `null` answers always the same, which is wrong but pleases the
judge most. Legend of the arrays: see optimizer/ope/labels.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.dataset import Floats, Ints, LoggedDataset
from optimizer.evidence import Evaluation, Refused, held_out
from optimizer.gate import Estimate, Limits
from optimizer.logged import Logged
from optimizer.ope.estimators import Evidence, doubly_robust, today
from optimizer.ope.intervals import mean_interval
from optimizer.ope.labels import (
    LEAST_PROBABILITY,
    MIN_LABELS,
    calibrate,
    corrected,
    cross_fitted_guesses,
    effective_decisions,
    judged_alone,
    label_counts,
    label_probabilities,
    whatever_the_rest,
)
from optimizer.policy import Fixed
from optimizer.study import learn

NAMES = ("dear", "cheap", "null")
RIGHT = np.array([[0.75, 0.45, 0.1], [0.75, 0.70, 0.1]])
"""(prompt hard or easy, action) how often the answer is right."""
BEHAVIOUR = np.array([0.5, 0.3, 0.2])
SUGGESTED = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
NULL = np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
LOGS = 200
COVERED = 0.95 - 2 * np.sqrt(0.95 * 0.05 / LOGS)
"""Nominal less two binomial standard errors: 0.919."""

Chance = Callable[[Floats], Floats]
COMPLAINTS: Chance = lambda judge: 0.05 + 0.10 * (judge < 0.5)  # noqa: E731
PRAISE: Chance = lambda judge: 0.05 + 0.10 * (judge > 0.6)  # noqa: E731


def truth(policy: Floats) -> float:
    return float((policy * RIGHT).sum(axis=1).mean())


@dataclass(frozen=True, eq=False)
class Log:
    """n decisions; those of the first two thirds teach, the others judge."""

    features: Floats
    actions: Ints
    quality: Floats
    judge: Floats
    chance: Floats
    scored: Floats

    @property
    def outcome(self) -> Floats:
        return np.where(self.scored, self.quality, np.nan)

    @property
    def prompts(self) -> Ints:
        return self.features[:, 0].astype(np.int64)

    @property
    def judging(self) -> Ints:
        return np.arange(2 * len(self.actions) // 3, len(self.actions))

    def evidence(
        self, outcome: Floats, known: Floats, model: Floats, guess: Floats | None = None, rows: Ints | None = None
    ) -> Evidence:
        rows = self.judging if rows is None else rows
        guess = np.zeros(0) if guess is None else guess[rows]
        behaviour = np.tile(BEHAVIOUR, (len(rows), 1))
        return Evidence(outcome[rows], known[rows], self.actions[rows], behaviour, model[rows], rows, guess)

    def cells(self, outcome: Floats) -> Floats:
        """(n, a) mean outcome by prompt and action on the rows that teach: a cheap model."""
        model = np.full((len(self.actions), 3), 0.5)
        teaching = np.arange(len(self.actions)) < self.judging[0]
        for prompt in (0, 1):
            for action in range(3):
                cell = teaching & (self.prompts == prompt) & (self.actions == action) & ~np.isnan(outcome)
                model[self.prompts == prompt, action] = outcome[cell].mean() if cell.any() else 0.5
        return model


def draw(seed: int, chance: Chance = COMPLAINTS, n: int = 2400) -> Log:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, 4))
    features[:, 0] = rng.random(n) < 0.5
    actions = rng.choice(3, size=n, p=BEHAVIOUR)
    quality = (rng.random(n) < RIGHT[features[:, 0].astype(int), actions]) * 1.0
    judge = 0.3 + 0.45 * quality + 0.15 * rng.normal(size=n)
    judge[actions == 2] = 0.8 + 0.08 * rng.normal(size=(actions == 2).sum())
    judge = np.clip(judge, 0, 1)
    chances = chance(judge)
    return Log(features, actions, quality, judge, chances, rng.random(n) < chances)


def by_judge_and_labels(log: Log, known: Floats | None = None) -> Evidence:
    """Both nuisances, s from the rows that teach; `known` instead of an estimated e."""
    teach = np.arange(log.judging[0])
    found = calibrate(log.judge[teach], log.features[teach], log.actions[teach], log.outcome[teach], 3)
    assert found is not None
    guess = found.predict(log.judge, log.features, log.actions)
    taught = np.where(log.scored, log.quality, guess)
    if known is None:
        known = np.ones(len(log.actions))
        rows = log.judging
        known[rows] = label_probabilities(
            log.features[rows], log.actions[rows], log.judge[rows], log.scored[rows].astype(np.int64), rows, 3, seed=0
        )
    return log.evidence(log.outcome, known, log.cells(taught), guess)


def by_dropping(log: Log) -> Evidence:
    """What estimators do that know of no missing labels: rows without one are dropped."""
    rows = log.judging[log.scored[log.judging]]
    return log.evidence(log.outcome, np.ones(len(log.actions)), log.cells(log.outcome), rows=rows)


def by_judge_alone(log: Log) -> Evidence:
    return log.evidence(log.judge, np.ones(len(log.actions)), log.cells(log.judge))


def value(log: Log, evidence: Evidence, policy: Floats) -> Estimate:
    scores = doubly_robust(evidence, policy[log.prompts[evidence.groups]])
    return mean_interval(scores, evidence.groups, confidence=0.95, estimator="DR", effective=100.0)


def over(
    make: Callable[[Log], Evidence], policy: Floats, chance: Chance = COMPLAINTS, logs: int = LOGS, n: int = 2400
) -> tuple[Floats, float]:
    """Errors of the value over many logs, and how often the interval covers it."""
    found = [value(log, make(log), policy) for log in (draw(seed, chance, n) for seed in range(logs))]
    hits = [one.low <= truth(policy) <= one.high for one in found]
    return np.array([one.value for one in found]) - truth(policy), float(np.mean(hits))


def rms(errors: Floats) -> float:
    return float(np.sqrt(np.mean(errors**2)))


@pytest.mark.parametrize(
    ("chance", "logs"),
    [
        pytest.param(COMPLAINTS, 50, id="complaints"),
        pytest.param(COMPLAINTS, LOGS, marks=pytest.mark.slow, id="complaints, 200 logs"),
        pytest.param(PRAISE, LOGS, marks=pytest.mark.slow, id="praise, 200 logs"),
    ],
)
def test_five_to_fifteen_percent_of_labels_chosen_by_a_judge_give_the_truth(chance: Chance, logs: int) -> None:
    """Bias below 0.02, where its standard error is 0.003 (0.006 over 50 logs); dropping is off by 0.2 and 0.15."""
    errors, covered = over(by_judge_and_labels, SUGGESTED, chance, logs, 3000)
    dropped, _ = over(by_dropping, SUGGESTED, chance, logs, 3000)
    assert abs(errors.mean()) < 0.02
    assert covered >= 0.95 - 2 * np.sqrt(0.95 * 0.05 / logs)
    assert rms(dropped) >= 3 * rms(errors)


def test_a_model_that_fools_the_judge_is_seen_through() -> None:
    """`null` is right in 10 % of cases and judged at 0.8."""
    log = draw(0)
    assert value(log, by_judge_alone(log), NULL).low > 0.75
    errors, _ = over(by_judge_and_labels, NULL, logs=30)
    assert abs(errors.mean()) < 0.03
    assert (truth(NULL) + errors).max() < 0.5


def test_known_probabilities_make_a_wrong_calibration_harmless() -> None:
    """The guess is 0.9 everywhere: mean error within 4 of its standard errors (6e-5 by chance)."""

    def made(log: Log) -> Evidence:
        wrong = np.full(len(log.actions), 0.9)
        return log.evidence(log.outcome, log.chance, log.cells(log.outcome), wrong)

    errors, covered = over(made, SUGGESTED)
    assert abs(errors.mean()) < 4 * errors.std() / np.sqrt(LOGS)
    assert covered >= COVERED


def test_a_right_calibration_makes_wrong_probabilities_harmless() -> None:
    """The guess is the true mean given judge and action; the probability is taken to be 0.1 everywhere."""

    def made(log: Log) -> Evidence:
        right = RIGHT[log.prompts, log.actions]
        likely = np.exp(-((log.judge - 0.75) ** 2 - (log.judge - 0.3) ** 2) / (2 * 0.15**2))  # unclipped judge only
        guess = right * likely / (right * likely + 1 - right)
        guess[log.actions == 2] = 0.1
        return log.evidence(log.outcome, np.full(len(guess), 0.1), log.cells(guess), guess)

    errors, covered = over(made, SUGGESTED)
    assert abs(errors.mean()) < 4 * errors.std() / np.sqrt(LOGS)
    assert covered >= COVERED


def test_an_action_is_calibrated_by_itself_once_it_has_labels_and_with_the_others_before() -> None:
    rng = np.random.default_rng(3)
    n = 2000
    actions = rng.integers(0, 3, n)
    judge, features = rng.random(n), rng.normal(size=(n, 3))
    quality = np.clip(np.array([0.2, 0.2, 0.9])[actions] + np.array([0.6, 0.6, -0.8])[actions] * judge, 0, 1)
    few = np.where((actions != 2) | (np.cumsum(actions == 2) <= 2), quality, np.nan)  # two of the last action
    grid, plain = np.linspace(0.1, 0.9, 9), np.zeros((9, 3))
    own, shrunk = (calibrate(judge, features, actions, outcome, 3) for outcome in (quality, few))
    assert own is not None
    assert shrunk is not None
    last, first = np.full(9, 2), np.zeros(9, dtype=np.int64)
    assert own.predict(grid, plain, last) == pytest.approx(0.9 - 0.8 * grid, abs=0.1)
    assert own.predict(grid, plain, first) == pytest.approx(0.2 + 0.6 * grid, abs=0.1)
    assert shrunk.predict(grid, plain, last) == pytest.approx(shrunk.predict(grid, plain, first), abs=0.02)


def test_too_few_labels_calibrate_nothing() -> None:
    log = draw(1, n=60)
    outcome = np.where(np.arange(60) < MIN_LABELS - 1, log.quality, np.nan)
    assert calibrate(log.judge, log.features, log.actions, outcome, 3) is None
    guesses = cross_fitted_guesses(log.judge, log.features, log.actions, outcome, np.arange(60), 3, seed=0)
    assert np.isnan(guesses).all()


def test_where_the_judge_says_nothing_there_is_no_guess() -> None:
    log = draw(1)
    judge = np.where(np.arange(2400) % 2, log.judge, np.nan)
    guesses = cross_fitted_guesses(judge, log.features, log.actions, log.outcome, np.arange(2400), 3, seed=0)
    assert np.array_equal(np.isnan(guesses), np.isnan(judge))
    assert np.nanmin(guesses) >= 0
    assert np.nanmax(guesses) <= 1


def test_a_guess_comes_of_other_groups_only() -> None:
    log, groups = draw(1), np.arange(2400) // 10
    found = cross_fitted_guesses(log.judge, log.features, log.actions, log.outcome, groups, 3, seed=0)
    other = log.outcome.copy()
    other[groups == 7] = 1 - other[groups == 7]
    again = cross_fitted_guesses(log.judge, log.features, log.actions, other, groups, 3, seed=0)
    assert np.array_equal(found[groups == 7], again[groups == 7])
    assert not np.array_equal(found, again)


def test_label_probabilities_agree_with_the_share_of_every_action_and_of_every_judgement() -> None:
    """20,000 rows; actions are scored at 4, 10 and 20 % and twice as often below a judgement of 0.5. Four binomial
    standard errors of the smallest share are 0.012."""
    log = draw(2, n=20_000)
    rng = np.random.default_rng(9)
    chance = np.array([0.04, 0.10, 0.20])[log.actions] * np.where(log.judge < 0.5, 2.0, 1.0)
    known = (rng.random(20_000) < chance).astype(np.int64)
    found = label_probabilities(log.features, log.actions, log.judge, known, np.arange(20_000), 3, seed=0)
    for action in range(3):
        for low in (True, False):
            cell = (log.actions == action) & ((log.judge < 0.5) == low)
            if cell.sum() > 500:
                assert found[cell].mean() == pytest.approx(chance[cell].mean(), abs=0.02)
        own = log.actions == action
        assert found[own].mean() == pytest.approx(known[own].mean(), abs=0.012)
    assert found.min() >= LEAST_PROBABILITY


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_all_or_no_labels_need_no_model(share: float) -> None:
    log, known = draw(1, n=50), np.full(50, int(share))
    found = label_probabilities(log.features, log.actions, log.judge, known, np.arange(50), 3, seed=0)
    assert found == pytest.approx(max(share, 0.05))


def test_an_action_judged_by_the_judge_alone_is_refused_by_name() -> None:
    counts = np.array([300, 40, 4])
    to_null = NULL[[0, 1]] - BEHAVIOUR
    said = judged_alone(counts, NAMES, to_null)
    assert said == "judge-only claims refused: 'null' has 4 human labels, 26 more would do"
    assert judged_alone(np.array([300, 40, 0]), NAMES, to_null).endswith("'null' has no human labels, 30 would do")
    assert judged_alone(np.array([300, 40, 1]), NAMES, to_null).endswith("'null' has 1 human label, 29 more would do")
    away = np.array([[0.2, 0.0, -0.2]])
    assert "'null'" in judged_alone(counts, NAMES, away)
    assert judged_alone(counts, NAMES, np.array([[0.2, -0.2, 0.0]])) == ""
    assert judged_alone(counts, NAMES, np.array([[0.0, 0.004, -0.004]])) == ""
    assert judged_alone(np.array([300, 40, MIN_LABELS]), NAMES, to_null) == ""


def test_labels_of_every_action_are_counted() -> None:
    outcome = np.array([1.0, np.nan, 0.5, np.nan])
    assert label_counts(np.array([0, 0, 2, 2]), outcome, 4).tolist() == [1, 0, 1, 0]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_whatever_the_unknown_outcomes_are_the_change_is_within_the_bounds(seed: int) -> None:
    log = draw(seed, n=300)
    evidence = log.evidence(log.outcome, log.chance, log.cells(log.outcome))
    policy = SUGGESTED[log.prompts[log.judging]]
    low, high = whatever_the_rest(evidence, policy, confidence=0.95)
    filled = np.where(log.scored, log.quality, np.random.default_rng(seed).random(300))
    whole = log.evidence(filled, np.ones(300), log.cells(log.outcome))
    assert -1 <= low <= (doubly_robust(whole, policy) - today(whole)).mean() <= high <= 1


def test_labels_chosen_by_the_outcome_itself_mislead_and_the_bounds_say_how_far() -> None:
    """Right answers are scored four times as often and nobody logged why. The bounds cover in all of 40 logs; the
    estimate does so in fewer than half."""
    policy, off, inside = SUGGESTED, 0, 0
    change = truth(policy) - truth(np.tile(BEHAVIOUR, (2, 1)))
    for seed in range(40):
        log = draw(seed)
        rng = np.random.default_rng(seed + 1000)
        scored = rng.random(2400) < np.where(log.quality > 0, 0.4, 0.1) * np.where(log.actions == 0, 1.0, 0.5)
        hidden = Log(log.features, log.actions, log.quality, np.full(2400, np.nan), log.chance, scored)
        rows = hidden.judging
        known = np.ones(2400)
        known[rows] = label_probabilities(
            hidden.features[rows], hidden.actions[rows], hidden.judge[rows], scored[rows].astype(np.int64), rows, 3,
            seed=0,
        )  # fmt: skip
        evidence = hidden.evidence(hidden.outcome, known, hidden.cells(hidden.outcome))
        low, high = whatever_the_rest(evidence, policy[hidden.prompts[rows]], confidence=0.95)
        inside += low <= change <= high
        one = value(hidden, evidence, policy)
        off += not one.low <= truth(policy) <= one.high
    assert inside == 40
    assert off > 20


def test_without_a_judge_nothing_is_corrected() -> None:
    log = draw(1, n=300)
    evidence = log.evidence(log.outcome, log.chance, log.cells(log.outcome))
    outcome, known = corrected(evidence, 5.0)
    assert np.array_equal(outcome, evidence.outcome, equal_nan=True)
    assert np.array_equal(known, evidence.known)


def test_a_corrected_outcome_is_known_everywhere_and_right_on_average() -> None:
    """With weights up to 50 the mean over 12,000 rows is that of the outcome; four standard errors are 0.03."""
    log = draw(5, n=36_000)
    evidence = by_judge_and_labels(log, log.chance)
    outcome, known = corrected(evidence, 50.0)
    assert not np.isnan(outcome).any()
    assert (known == 1).all()
    assert outcome.mean() == pytest.approx(log.quality[log.judging].mean(), abs=0.03)


def dataset(log: Log, **changes: object) -> LoggedDataset:
    n = len(log.actions)
    data = LoggedDataset(
        features=log.features,
        actions=log.actions.astype(np.int64),
        quality=log.outcome,
        cost_usd=np.array([0.01, 0.002, 0.0005])[log.actions],
        latency_s=np.ones(n),
        behaviour=np.tile(BEHAVIOUR, (n, 1)),
        groups=np.arange(n),
        time_ns=np.arange(n),
        action_names=NAMES,
        propensities_logged=True,
        judge=log.judge,
        label_sources=("human",),
    )
    return replace(data, **changes)  # type: ignore[arg-type]


def judged(data: LoggedDataset) -> Evaluation:
    """The newest third by models of the others."""
    first = 2 * len(data) // 3
    return held_out(data, np.arange(first), np.arange(first, len(data)), confidence=0.95, seed=0)


def always(data: LoggedDataset, action: str) -> Floats:
    return Fixed.always(NAMES.index(action), 3).probabilities(data.features, data.behaviour)


@pytest.fixture(scope="module")
def plain() -> LoggedDataset:
    return dataset(draw(4, n=6000))


@pytest.fixture(scope="module")
def evaluation(plain: LoggedDataset) -> Evaluation:
    return judged(plain)


def test_a_judge_narrows_the_interval_and_keeps_the_truth(plain: LoggedDataset, evaluation: Evaluation) -> None:
    """Cheap instead of today's mixture; with the judge the interval is at most 0.8 times as wide as without."""
    cheap = always(evaluation.data, "cheap")
    with_judge = evaluation.change("quality", cheap, "DR")
    without = judged(replace(plain, judge=np.full(len(plain), np.nan))).change("quality", cheap, "DR")
    assert isinstance(with_judge, Estimate)
    assert isinstance(without, Estimate)
    change = float(RIGHT[:, 1].mean() - (BEHAVIOUR * RIGHT).sum(axis=1).mean())
    assert with_judge.low < change < with_judge.high
    assert with_judge.high - with_judge.low < 0.8 * (without.high - without.low)


def test_few_scores_that_nobody_drew_make_an_assumption_and_drawn_ones_do_not(plain: LoggedDataset) -> None:
    cheap = always(judged(plain).data, "cheap")

    def kind(data: LoggedDataset) -> str:
        found = judged(data).change("quality", cheap, "DR")
        assert isinstance(found, Estimate)
        return found.kind

    drawn = replace(plain, label_probability=COMPLAINTS(plain.judge))
    assert kind(plain) == "assumption"
    assert kind(drawn) == "asymptotic"
    assert kind(replace(drawn, label_probability=np.where(plain.time_ns % 9, drawn.label_probability, np.nan))) == (
        "assumption"
    )
    by_judge = replace(plain, quality=plain.judge, judge=np.full(len(plain), np.nan), label_sources=("judge",))
    assert kind(by_judge) == "assumption"


def test_logged_probabilities_are_used_as_they_are_and_undrawn_scores_do_not_judge(plain: LoggedDataset) -> None:
    chance = COMPLAINTS(plain.judge)
    undrawn = ~np.isnan(plain.quality) & (plain.time_ns % 5 == 0)
    found = judged(replace(plain, label_probability=np.where(undrawn, 0.0, chance))).outcomes["quality"]
    rows = np.arange(4000, 6000)
    assert found.known[~undrawn[rows]] == pytest.approx(chance[rows][~undrawn[rows]])
    assert np.isnan(found.outcome[undrawn[rows]]).all()
    assert np.array_equal(np.isnan(found.outcome), np.isnan(plain.quality[rows]) | undrawn[rows])


def test_without_human_labels_of_an_action_nothing_is_claimed_of_it(plain: LoggedDataset) -> None:
    data = replace(plain, quality=np.where(plain.actions == 2, np.nan, plain.quality))
    found = judged(data)
    refused = found.change("quality", always(found.data, "null"))
    assert isinstance(refused, Refused)
    assert refused.reason == "judge-only claims refused: 'null' has no human labels, 30 would do"
    assert np.isnan(found.shrunk_change("quality", always(found.data, "null")))
    assert isinstance(found.change("cost_usd", always(found.data, "null")), Estimate)


@pytest.mark.parametrize(("scored", "missing"), [((0, 1), "'null' has no"), ((0,), "'cheap' has no")])
def test_a_study_whose_judge_nobody_checked_on_an_action_says_what_is_missing(
    plain: LoggedDataset, scored: tuple[int, ...], missing: str
) -> None:
    data = replace(plain, quality=np.where(np.isin(plain.actions, scored), plain.quality, np.nan)).take(np.arange(2000))
    lessons = learn(Logged(data, None, 0.0), Limits(), None, epsilon=0.05, seed=0)
    assert lessons.suggestion.model is None
    assert lessons.suggestion.refused.startswith(f"judge-only claims refused: {missing} human labels, 30 would do")


def test_effective_decisions_lie_between_the_labels_and_the_opinions(evaluation: Evaluation) -> None:
    evidence = evaluation.outcomes["quality"]
    cheap = always(evaluation.data, "cheap")
    labels_alone = effective_decisions(replace(evidence, surrogate=np.zeros(0)), cheap)
    opinions = float((evaluation.data.actions == 1).sum())
    assert labels_alone < effective_decisions(evidence, cheap) < opinions
    exact = replace(evidence, surrogate=np.where(np.isnan(evidence.outcome), evidence.surrogate, evidence.outcome))
    assert effective_decisions(exact, cheap) == pytest.approx(opinions)
