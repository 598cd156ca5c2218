"""Behaviour probabilities where the log does not carry them: estimated, or refused where the choice was a fixed rule.

Legend: n decisions, d features, a actions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from optimizer.dataset import MIN_PROPENSITY, Bools, Floats, Ints, folds
from optimizer.fixed_choice import FixedSegment, fixed_segments
from optimizer.time_blocks import time_blocks

FOLDS = 5
MARGINAL_SHARE = 0.02
DETERMINISTIC_ACCURACY = 0.99
TEMPERATURES = (1.0, 0.5, 0.6, 0.7, 0.85, 1.2, 1.5, 2.0, 3.0, 5.0)
BINS = 10
MAX_FITTED = 20_000
"""Decisions that a model is fitted on; of more, this many are drawn."""
_LEFT = 0.01
"""What a fixed segment leaves for all actions that it does not take: less than counts as tried."""


@dataclass(frozen=True, eq=False)
class Behaviour:
    """Estimated logging behaviour. `deterministic`: the features foretell the action almost always, so that no decision
    tells what another action would have given."""

    probabilities: Floats
    """(n, a) rows sum to 1."""
    accuracy: float
    """Share of decisions whose action the features foretold, on rows the model had not seen."""
    model: str
    log_loss: float
    calibration_error: float = float("nan")
    """How far probabilities are from the shares that were taken, see `calibration_error`; on rows not seen."""
    calibration_noise: float = float("nan")
    """What the same figure would be on average if every probability were right."""
    blocks: int = 1
    """Stretches of time that were estimated each by itself."""
    fixed: tuple[FixedSegment, ...] = ()
    """Segments in which one action was taken almost always, largest first."""
    floor: float = MARGINAL_SHARE
    """Every action keeps at least this part of its own share in all decisions."""
    raised_share: float = 0.0
    """Share of decisions whose action the model had put below that floor."""
    untried_share: float = 0.0
    """Share of decision-action pairs below the least probability that counts as tried."""

    @property
    def deterministic(self) -> bool:
        return self.accuracy > DETERMINISTIC_ACCURACY

    @property
    def fixed_share(self) -> float:
        """Share of decisions in fixed segments."""
        return sum(segment.share for segment in self.fixed)


@dataclass
class _Found:
    """What is filled in block by block."""

    probabilities: Floats
    raised: Bools
    foretold: Bools
    models: list[str] = field(default_factory=list)
    fixed: list[FixedSegment] = field(default_factory=list)


def estimate_behaviour(
    features: Floats, actions: Ints, groups: Ints, action_count: int, *, seed: int, time_ns: Ints | None = None
) -> Behaviour:
    """P(action | features) of whoever chose: for each stretch of time with the same shares, cross-fitted by group,
    sharpened or softened by one temperature, mixed with 2 % of the marginal shares. Where the choice was a fixed rule
    (see `fixed_choice`), what was not taken keeps too little to count as tried.

    features (n, d), actions (n,), groups (n,), time_ns (n,) or None for one stretch. Boosted trees and a multinomial
    logit compete; the smaller cross-fitted log loss wins.
    Raises ValueError when there is no decision.
    """
    n = len(actions)
    if n == 0:
        raise ValueError("no decisions to estimate a behaviour from")
    block = np.zeros(n, dtype=np.int64) if time_ns is None else time_blocks(actions, groups, time_ns)
    found = _Found(np.zeros((n, action_count)), np.zeros(n, dtype=np.bool_), np.zeros(n, dtype=np.bool_))
    for number in np.unique(block):
        rows = np.flatnonzero(block == number)
        _fill(found, rows, features[rows], actions[rows], groups[rows], seed)
    error, noise = calibration_error(found.probabilities, actions)
    return Behaviour(
        probabilities=found.probabilities,
        accuracy=float(found.foretold.mean()),
        model=", ".join(dict.fromkeys(found.models)),
        log_loss=_loss(found.probabilities, actions),
        calibration_error=error,
        calibration_noise=noise,
        blocks=len(found.models),
        fixed=tuple(sorted(found.fixed, key=lambda segment: -segment.share)),
        raised_share=float(found.raised.mean()),
        untried_share=float((found.probabilities < MIN_PROPENSITY).mean()),
    )


def calibration_error(probabilities: Floats, actions: Ints) -> tuple[float, float]:
    """The expected calibration error, and what chance alone makes of it.

    For each action the decisions are put into ten bins of equally many by its probability; |mean probability - share
    that took it| is averaged over bins and, by their shares, over actions (class-wise ECE, Kull and others 2019, arXiv
    1910.12656). Right probabilities p of m decisions in a bin differ by sqrt(2 / pi) sqrt(mean p (1 - p) / m) on
    average (normal approximation).
    """
    n, count = probabilities.shape
    share = np.bincount(actions, minlength=count) / n
    error = noise = 0.0
    for action in np.flatnonzero(share):
        chance, taken = probabilities[:, action], actions == action
        for rows in np.array_split(np.argsort(chance, kind="stable"), min(BINS, n)):
            weight = share[action] * len(rows) / n
            error += weight * abs(float(chance[rows].mean() - taken[rows].mean()))
            noise += weight * np.sqrt(2 / np.pi * float((chance[rows] * (1 - chance[rows])).mean()) / len(rows))
    return float(error), float(noise)


def _fill(found: _Found, rows: Ints, features: Floats, actions: Ints, groups: Ints, seed: int) -> None:
    """One stretch of time; features, actions and groups are those of its rows."""
    count = found.probabilities.shape[1]
    share = np.bincount(actions, minlength=count) / len(actions)
    if share.max() == 1.0:
        found.probabilities[rows] = share
        found.foretold[rows] = True
        found.models.append("one action only")
        always = FixedSegment((), int(share.argmax()), len(rows) / len(found.raised), 1.0)
        found.fixed += [always] if len(rows) < len(found.raised) else []
        return
    fold = folds(groups, FOLDS, seed)
    name, raw = _best(features, actions, fold, count, seed)
    raw = _temper(raw, actions, fold)
    mixed = (1 - MARGINAL_SHARE) * raw + MARGINAL_SHARE * share
    mixed /= mixed.sum(axis=1, keepdims=True)
    segments, member = fixed_segments(features, actions, groups, seed=seed)
    for place, segment in enumerate(segments):
        mixed[member == place] = _fixed_row(share, segment.action)
    found.probabilities[rows] = mixed
    here = np.arange(len(actions)), actions
    found.raised[rows] = raw[here] < MARGINAL_SHARE * share[actions]
    found.foretold[rows] = raw.argmax(axis=1) == actions
    found.models.append(name)
    part = len(rows) / len(found.raised)
    found.fixed += [FixedSegment(s.conditions, s.action, part * s.share, s.taken) for s in segments]


def _fixed_row(share: Floats, action: int) -> Floats:
    """(a,) all but 1 % on the action, and that spread over the others by their shares."""
    others = share.copy()
    others[action] = 0.0
    row: Floats = _LEFT * others / others.sum()
    row[action] = 1 - _LEFT
    return row


def _best(features: Floats, actions: Ints, fold: Ints, count: int, seed: int) -> tuple[str, Floats]:
    """The better of two kinds of models and its (n, a) cross-fitted probabilities. Of many decisions, those of one fold
    choose the kind."""
    names = ("trees", "logit")
    if len(actions) > MAX_FITTED:
        first = [_cross_fit(name, features, actions, fold, count, seed, range(1)) for name in names]
        test = fold == 0
        losses = [_loss(raw[test], actions[test]) for raw in first]
        name = names[int(np.argmin(losses))]
        return name, _cross_fit(name, features, actions, fold, count, seed, range(FOLDS))
    fits = [_cross_fit(name, features, actions, fold, count, seed, range(FOLDS)) for name in names]
    best = int(np.argmin([_loss(raw, actions) for raw in fits]))
    return names[best], fits[best]


def _cross_fit(
    name: str, features: Floats, actions: Ints, fold: Ints, action_count: int, seed: int, numbers: range
) -> Floats:
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    share = (np.bincount(actions, minlength=action_count) + 0.5) / (len(actions) + 0.5 * action_count)
    result = np.tile(share, (len(actions), 1))
    for number in numbers:
        train, test = np.flatnonzero(fold != number), fold == number
        if len(train) > MAX_FITTED:
            train = np.sort(np.random.default_rng(seed).choice(train, MAX_FITTED, replace=False))
        if not test.any() or len(np.unique(actions[train])) < 2:
            continue
        if name == "trees":
            model = HistGradientBoostingClassifier(
                max_iter=40, max_leaf_nodes=8, min_samples_leaf=20, early_stopping=False, random_state=seed
            )
        else:
            model = make_pipeline(StandardScaler(), LogisticRegression(C=0.05, max_iter=300))
        model.fit(features[train], actions[train])
        probabilities = np.full((int(test.sum()), action_count), 1e-6)
        probabilities[:, model.classes_] = model.predict_proba(features[test])
        result[test] = probabilities / probabilities.sum(axis=1, keepdims=True)
    return result


def _temper(probabilities: Floats, actions: Ints, fold: Ints) -> Floats:
    """p^(1/T) renormalised, with the temperature T of the smallest log loss on the other folds."""
    rows = np.arange(len(actions)), actions
    scaled = [_scaled(probabilities, temperature) for temperature in TEMPERATURES]
    losses = np.array([np.bincount(fold, -np.log(np.maximum(one[rows], 1e-12)), FOLDS) for one in scaled])
    best = (losses.sum(axis=1, keepdims=True) - losses).argmin(axis=0)
    result = probabilities.copy()
    for number in range(FOLDS):
        result[fold == number] = scaled[best[number]][fold == number]
    return result


def _scaled(probabilities: Floats, temperature: float) -> Floats:
    scaled: Floats = np.maximum(probabilities, 1e-12) ** (1 / temperature)
    return np.asarray(scaled / scaled.sum(axis=1, keepdims=True))


def _loss(probabilities: Floats, actions: Ints) -> float:
    return float(-np.mean(np.log(np.maximum(probabilities[np.arange(len(actions)), actions], 1e-12))))
