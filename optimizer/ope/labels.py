"""Outcomes of which few are known: what a judge says of the others, and how likely each was to become known.

Legend: n decisions, d features, a actions, x the features. y is the outcome that counts (a person's or a program's
score), j a judge's opinion of it, r whether y is known.

Two nuisances, e = P(r = 1 | j, action, x) and s = E[y | j, action, x], give

    s + (r / e) (y - s)

in place of y: its mean is that of y if e or s is right (Robins, Rotnitzky, Zhao 1994; with a judge's scores
Angelopoulos et al. 2023, arXiv 2301.09633). e is exact where the rows to score were drawn with known probabilities
(see `label_plan`); estimated, it is right only if nothing but j, action and x moved both the score and its arrival.
What was scored for reasons that nobody logged, no arithmetic repairs: `whatever_the_rest` says how far that may reach.

A judge that is fooled by one action (one that flatters it, or that always answers the same) is calibrated for that
action by itself; with too few labels of an action there is no claim about it at all (`judged_alone`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optimizer.dataset import Bools, Floats, Ints, LoggedDataset, folds
from optimizer.ope.estimators import Evidence, direct, effective, weights
from optimizer.ope.intervals import mean_interval
from optimizer.ope.models import FOLDS, predict_labelled

MIN_LABELS = 20
"""Known outcomes of an action below which a judge's opinions of it count for nothing."""
ENOUGH_LABELS = 30
"""Known outcomes of an action that are asked for: two thirds of them suffice, as no split holds them all."""
LEAST_PROBABILITY = 0.02
"""Of an outcome to be known: none counts more than fifty times."""
MAX_JUDGED_ALONE = 0.01
"""Largest share of decisions that a policy may move to or from actions that a judge alone has judged."""
_PENALTIES = np.logspace(0, 5, 11)
_FREEDOM = 10.0
"""The judge's columns are made this much larger than the features', so that the penalty hardly shrinks them."""
_STEPS = 25


@dataclass(frozen=True, eq=False)
class Calibration:
    """A fitted s: one regression on judge and features for all actions, and what each action adds to it."""

    knots: Floats
    """(k,) where the judge's effect may bend."""
    centre: Floats
    """(k + d,)"""
    coefficients: Floats
    """(k + d,)"""
    bias: float
    middle: float
    """Mean opinion."""
    offsets: Floats
    """(a,)"""
    slopes: Floats
    """(a,) of the opinion's distance from the middle."""

    def predict(self, judge: Floats, features: Floats, actions: Ints) -> Floats:
        """(n,) in [0, 1]; NaN where the judge says nothing."""
        pooled = self.bias + (_design(judge, features, self.knots) - self.centre) @ self.coefficients
        own = self.offsets[actions] + self.slopes[actions] * (judge - self.middle)
        return np.asarray(np.clip(pooled + own, 0.0, 1.0))


def calibrate(judge: Floats, features: Floats, actions: Ints, outcome: Floats, action_count: int) -> Calibration | None:
    """s by the rows on which both the judge's opinion and the outcome are known; None with fewer than `MIN_LABELS`.

    judge (n,), features (n, d), actions (n,), outcome (n,) in [0, 1]; NaN where unknown. A ridge regression of all
    actions together, its penalty by generalised cross-validation. To it each action adds a level and a slope of its
    own, as far as they exceed their error (the positive part of 1 - error^2 / value^2): with many labels its own
    calibration, with few the common one.
    """
    both = ~(np.isnan(judge) | np.isnan(outcome))
    if both.sum() < MIN_LABELS:
        return None
    said, taken, found = judge[both], actions[both], outcome[both]
    knots = np.unique(np.quantile(said, (0.0, 0.2, 0.4, 0.6, 0.8)))
    design = _design(said, features[both], knots)
    centre, bias, middle = design.mean(axis=0), float(found.mean()), float(said.mean())
    coefficients = _ridge(design - centre, found - bias, len(knots))
    left = found - bias - (design - centre) @ coefficients
    offsets, slopes = np.zeros(action_count), np.zeros(action_count)
    for action in np.unique(taken):
        own = taken == action
        offsets[action], slopes[action] = _own(said[own] - middle, left[own])
    return Calibration(knots, centre, coefficients, bias, middle, offsets, slopes)


@dataclass(frozen=True, eq=False)
class Guesses:
    """s of rows that teach, each by a calibration that never saw its group, and of rows that judge, by all that teach.
    NaN where there is no opinion, and everywhere with too few labels."""

    teaching: Floats
    """(n,)"""
    judging: Floats
    """(m,)"""


def guesses(teaching: LoggedDataset, judging: LoggedDataset, *, seed: int) -> Guesses:
    """What the judge's opinions are worth, by the rows that teach."""
    t, a = teaching, len(teaching.action_names)
    if not judged(t):
        return Guesses(np.full(len(t), np.nan), np.full(len(judging), np.nan))
    own = cross_fitted_guesses(t.judge, t.features, t.actions, t.quality, t.groups, a, seed=seed)
    found = calibrate(t.judge, t.features, t.actions, t.quality, a)
    if found is None:
        return Guesses(own, np.full(len(judging), np.nan))
    return Guesses(own, found.predict(judging.judge, judging.features, judging.actions))


def judged(data: LoggedDataset) -> bool:
    """A judge has an opinion of some rows beside what people and programs say."""
    return not np.isnan(data.judge).all()


def told(data: LoggedDataset) -> Bools:
    """(a,) actions of whose quality more is known than a judge's opinion; all where no judge has one."""
    a = len(data.action_names)
    if not judged(data):
        return np.ones(a, dtype=np.bool_)
    return label_counts(data.actions, data.quality, a) >= MIN_LABELS


def refusal(data: LoggedDataset) -> str:
    """Which of today's actions a judge alone has judged, and how many labels would do; "" where that is none."""
    counts = label_counts(data.actions, data.quality, len(data.action_names))
    return judged_alone(counts, data.action_names, data.behaviour) if judged(data) else ""


def known_qualities(data: LoggedDataset) -> Floats:
    """(n,) qualities that may judge: those found out without having been drawn, where others were drawn, are NaN."""
    return np.where(data.label_probability == 0, np.nan, data.quality)


def quality_probabilities(data: LoggedDataset, *, seed: int) -> Floats:
    """(n,) e of the qualities: as drawn where that is known, else estimated from the other rows."""
    e = data.label_probability.copy()
    e[e == 0] = 1.0  # not known, by `known_qualities`: it counts nowhere
    rest = np.flatnonzero(np.isnan(e))
    if len(rest):
        part, a = data.take(rest), len(data.action_names)
        known = (~np.isnan(part.quality)).astype(np.int64)
        e[rest] = label_probabilities(part.features, part.actions, part.judge, known, part.groups, a, seed=seed)
    return e


def labels_drawn(data: LoggedDataset) -> bool:
    """Every quality is known, or was to be found out with a known probability."""
    return not (np.isnan(data.label_probability) & np.isnan(data.quality)).any()


def cross_fitted_guesses(
    judge: Floats, features: Floats, actions: Ints, outcome: Floats, groups: Ints, action_count: int, *, seed: int
) -> Floats:
    """(n,) s of each row by a calibration that never saw its group; NaN where there is none."""
    fold = folds(groups, FOLDS, seed)
    guesses = np.full(len(actions), np.nan)
    for number in range(FOLDS):
        train, test = fold != number, fold == number
        found = calibrate(judge[train], features[train], actions[train], outcome[train], action_count)
        if found is not None:
            guesses[test] = found.predict(judge[test], features[test], actions[test])
    return guesses


def label_probabilities(
    features: Floats, actions: Ints, judge: Floats, known: Ints, groups: Ints, action_count: int, *, seed: int
) -> Floats:
    """(n,) estimated e, each at least `LEAST_PROBABILITY`.

    known (n,) is 0 or 1. The cross-fitted estimate by features and action, calibrated: a logistic regression with its
    logit as offset gives each action a level and the judge's opinion an effect, lightly shrunk.
    """
    estimate = predict_labelled(features, actions, known, groups, action_count, seed=seed)
    if len(known) == 0 or known.min() == known.max():
        return estimate
    said = ~np.isnan(judge)
    columns = [np.eye(action_count)[actions]]
    if said.any():
        knots = np.unique(np.quantile(judge[said], (0.0, 0.2, 0.4, 0.6, 0.8)))
        bends = _bends(np.where(said, judge, 0.0), knots)
        bends = np.where(said[:, None], bends - bends[said].mean(axis=0), 0.0)
        columns += [bends / max(float(bends.std()), 1e-12), (~said).astype(np.float64)[:, None]]
    limited = np.clip(estimate, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
    logit = _logistic(np.column_stack(columns), known, np.log(limited / (1 - limited)))
    return np.asarray(np.clip(1 / (1 + np.exp(-logit)), LEAST_PROBABILITY, 1.0))


def corrected(evidence: Evidence, most: float) -> tuple[Floats, Floats]:
    """(n,) s + (r / e) (y - s) with weights r / e up to `most`, and (n,) how likely each was to be there: 1. Rows
    without a surrogate keep their outcome and its probability."""
    guess, weight = evidence.surrogate, np.minimum(1 / evidence.known, most)
    left = np.where(np.isnan(evidence.outcome), 0.0, weight * (evidence.outcome - guess))
    bare = np.isnan(guess)
    return np.where(bare, evidence.outcome, guess + left), np.where(bare, evidence.known, 1.0)


def label_counts(actions: Ints, outcome: Floats, action_count: int) -> Ints:
    """(a,) how many outcomes of each action are known."""
    return np.bincount(actions[~np.isnan(outcome)], minlength=action_count).astype(np.int64)


def judged_alone(labels: Ints, names: Sequence[str], shift: Floats, most: float = MAX_JUDGED_ALONE) -> str:
    """Why nothing is claimed of a policy: it moves more than `most` of the decisions to or from actions that a judge
    alone has judged. "" where it does not.

    labels (a,) known outcomes of each action; shift (n, a): by how much the policy takes an action more or less often
    than what it is compared with.
    """
    alone: Bools = labels < MIN_LABELS
    if not len(shift) or np.abs(shift[:, alone]).sum(axis=1).mean() <= most:
        return ""
    said = [
        f"'{names[k]}' has {labels[k] or 'no'} human label{'' if labels[k] == 1 else 's'}, {ENOUGH_LABELS - labels[k]} "
        f"{'more ' if labels[k] else ''}would do"
        for k in np.argsort(-np.abs(shift).mean(axis=0), kind="stable")
        if alone[k] and np.abs(shift[:, k]).any()
    ]
    more = f", and {len(said) - 3} more actions" if len(said) > 3 else ""
    return f"judge-only claims refused: {'; '.join(said[:3])}{more}"


def effective_decisions(evidence: Evidence, policy: Floats) -> float:
    """How many decisions carry the value of `policy` (n, a): Kish's size of the weights w r / e of known outcomes.

    With a judge the value is carried by two sums, w (s - m) over all its opinions and w (r / e) (y - s) over the known
    outcomes. Their sizes n1 and n2 count by the shares v1 and v2 of the variance, as Satterthwaite adds degrees of
    freedom: 1 / (v1^2 / n1 + v2^2 / n2), and no more than n1. A perfect judge gives n1, a useless one n2.
    """
    weight = weights(evidence, policy)
    labelled = np.where(np.isnan(evidence.outcome), 0.0, weight / evidence.known)
    size = effective(labelled)
    told = ~np.isnan(evidence.surrogate)
    if not told.any() or size == 0:
        return size
    model = evidence.model[evidence.rows, evidence.actions]
    guess = np.where(told, evidence.surrogate, model)
    judged = float(np.sum((weight * (guess - model)) ** 2))
    left = float(np.sum((labelled * np.where(labelled > 0, evidence.outcome - guess, 0.0)) ** 2))
    opinions = effective(np.where(told, weight, 0.0))
    if not (judged + left > 0 and opinions > size):
        return size
    share = left / (judged + left)
    return min(1 / ((1 - share) ** 2 / opinions + share**2 / size), opinions)


def whatever_the_rest(evidence: Evidence, policy: Floats, *, confidence: float) -> tuple[float, float]:
    """The change that `policy` (n, a) makes, whatever outcomes in [0, 1] the unknown ones are: its least and its most,
    with the sampling error of each.

    The doubly robust score of the change with the worst and the best y for the policy where y is unknown (Manski 1990).
    It needs no e and no judge, and no more labels of the same kind narrow it than their share says.
    """
    taken = evidence.rows, evidence.actions
    stake = weights(evidence, policy) - 1
    modelled = direct(evidence, policy) - direct(evidence, evidence.behaviour)
    unknown = np.isnan(evidence.outcome)
    ends = []
    for worst in (stake > 0, stake < 0):  # where a 0 is the end that is sought
        outcome = np.where(unknown, np.where(worst, 0.0, 1.0), evidence.outcome)
        scores = modelled + stake * (outcome - evidence.model[taken])
        ends.append(
            mean_interval(
                scores, evidence.groups, confidence=confidence, estimator="worst case", effective=0.0, kind="assumption"
            )
        )
    return max(ends[0].low, -1.0), min(ends[1].high, 1.0)


def _bends(judge: Floats, knots: Floats) -> Floats:
    """(n, k) piecewise linear in the opinion: how far it is above each knot."""
    return np.asarray(np.maximum(judge[:, None] - knots, 0.0))


def _design(judge: Floats, features: Floats, knots: Floats) -> Floats:
    return np.column_stack([_bends(judge, knots), features])


def _ridge(design: Floats, outcome: Floats, free: int) -> Floats:
    """Ridge coefficients of centred columns in units of their spread, hardly shrunk for the first `free` of them; the
    penalty by generalised cross-validation."""
    n = len(outcome)
    spread = design.std(axis=0)
    spread[spread < 1e-9] = 1.0
    spread[:free] /= _FREEDOM
    scaled = design / spread
    values, vectors = np.linalg.eigh(scaled.T @ scaled)
    values = np.maximum(values, 0.0)
    product = vectors.T @ (scaled.T @ outcome)
    total = float(outcome @ outcome)
    best, chosen = np.inf, np.zeros(len(values))
    for penalty in _PENALTIES:
        found = product / (values + penalty)
        lost = total - float((2 * product - values * found) @ found)
        freedom = 1 + float((values / (values + penalty)).sum())
        score = lost / max(1 - freedom / n, 1e-3) ** 2
        if score < best:
            best, chosen = score, found
    return np.asarray(vectors @ chosen / spread)


def _own(judge: Floats, left: Floats) -> tuple[float, float]:
    """Level and slope of an action's residuals, each without what may be its error."""
    n = len(left)
    if n < 3:
        return 0.0, 0.0
    level = float(left.mean())
    level *= _positive_part(level, float(left.var(ddof=1)) / n)
    spread = float(((judge - judge.mean()) ** 2).sum())
    if spread < 1e-9:
        return level, 0.0
    slope = float((judge - judge.mean()) @ (left - left.mean())) / spread
    rest = left - left.mean() - slope * (judge - judge.mean())
    slope *= _positive_part(slope, float(rest @ rest) / (n - 2) / spread)
    return level - slope * float(judge.mean()), slope


def _positive_part(value: float, error_squared: float) -> float:
    return max(0.0, 1 - error_squared / value**2) if value else 0.0


def _logistic(design: Floats, known: Ints, offset: Floats) -> Floats:
    """(n,) the logits of a logistic regression with an offset and a penalty of half the squared coefficients."""
    coefficients = np.zeros(design.shape[1])
    for _ in range(_STEPS):
        chance = 1 / (1 + np.exp(-(offset + design @ coefficients)))
        slope = design.T @ (known - chance) - coefficients
        curve = (design * (chance * (1 - chance))[:, None]).T @ design + np.eye(len(coefficients))
        step = np.linalg.solve(curve, slope)
        coefficients = coefficients + step * min(1.0, 5.0 / max(float(np.abs(step).max()), 1e-12))
        if np.abs(step).max() < 1e-8:
            break
    return np.asarray(offset + design @ coefficients)
