"""Learning what to do next, and when to stop, from logged episodes.

A member of the ensemble is fitted on groups drawn with replacement, in this order:

    S(s)      = E[what the episode is worth | it stops at s]         by the episodes that did, or where it is known
    V_0(s)    = E[what comes from s on | s]                          of all logged decisions, whatever was done at s
    Q_1(s, a) = E[r + V_0(s') | s, a]                                one decision changed, all later ones as logged
    Q_j(s, a) = E[r + max_a' L_(j-1)(s', a') | s, a]                 over the supported a' at the next decision

with r what the decision adds, and S(s) in the place of what was seen where the episode stopped: an outcome of 0 or 1
says little, the mean at such states much. Q(s, STOP) is S(s). Q_1 is fitted on V_0, of which every decision tells,
not on what came later in the few episodes that tried a. L is the lower quantile over the members, so that an action
that few episodes tried has to be better by more than they disagree (pessimism: Kidambi et al. 2020, arXiv 2005.05951).
Fitted Q-iteration: Ernst, Geurts, Wehenkel 2005; episodes of H decisions need at most H sweeps.

Legend: N episodes, n decisions, m new ones, d features, a actions, b what features tell of each action.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from optimizer.dataset import MIN_PROPENSITY, Bools, Floats, Ints
from optimizer.ope.trees import predict_all
from optimizer.rewards import PuppeteerReward, RewardSpec
from optimizer.runtime import DIM, width
from optimizer.sequential.episodes import EpisodeLog

ENSEMBLE = 5
LOWER = 0.4
"""Quantile of the ensemble that stands for an action. On a world with a known optimum 0.25 gains 3 points less: there,
members that agree are all the evidence of two steps changed at once."""
MOST_WEIGHT = 10.0
"""A decision taken with a small probability counts as much as this many others, so that actions are told apart where
one of them was nearly always taken."""
MOST_ROWS = 20_000
"""Decisions that trees are fitted on; of more, so many are drawn, the rare ones first."""
PROMPT_COLUMNS = 24
"""Features of the prompt that are looked at; those of the steps are all."""
BINS = 64
"""Values of a feature that are told apart."""


Reward = RewardSpec | PuppeteerReward


@dataclass(frozen=True, eq=False)
class ActionValues:
    """What each action is worth from a state on, as an ensemble of models."""

    members: tuple[_Member, ...]

    def every(self, features: Floats) -> Floats:
        """features (m, d) -> (members, m, a)."""
        return np.array([one.predict(features) for one in self.members])

    def lower(self, features: Floats) -> Floats:
        """features (m, d) -> (m, a): the lower quantile of the ensemble."""
        result: Floats = np.quantile(self.every(features), LOWER, axis=0)
        return result


def returns(log: EpisodeLog, rewards: Floats) -> Floats:
    """(n,) sum of the rewards (n,) from each decision to the end of its episode."""
    known = np.isnan(rewards)
    total, unknown = np.cumsum(np.where(known, 0.0, rewards)), np.cumsum(known)
    ends = np.flatnonzero(log.last)[log.episode]
    result: Floats = total[ends] - total + np.where(known, 0.0, rewards)
    return np.where(unknown[ends] - unknown + known > 0, np.nan, result)


def utility(log: EpisodeLog, reward: Reward) -> Floats:
    """(n,) what each decision adds to the utility of its episode; NaN where unknown."""
    quality, cost, _ = log.rewards()
    return _added(log, reward, quality, cost)


def _added(log: EpisodeLog, reward: Reward, quality: Floats, cost: Floats) -> Floats:
    if isinstance(reward, PuppeteerReward):
        return reward.added(quality, cost, log.step.astype(np.float64))
    result: Floats = reward.utility(quality, cost)
    return result


def own_columns(log: EpisodeLog) -> Ints:
    """(b, a) places of the features that tell something of each action: how often it was taken, and whether it was the
    last one. None (b = 0) of a log whose features are not a router's."""
    a, d = len(log.action_names), log.features.shape[1]
    if width(log.action_names) != d:
        return np.zeros((0, a), dtype=np.int64)
    places: Ints = d - 2 * a + np.arange(2 * a).reshape(2, a)
    return places


def tried(log: EpisodeLog) -> Bools:
    """(n, a) actions that a policy may take at each logged decision: those supported there.

    An app that explores one step of an episode is bound to its script after it, which says nothing of the state. There,
    what counts is how it behaved at the same step of all episodes.
    """
    rows = np.arange(len(log.actions))
    found = log.supported.copy()
    unusual = log.actions != log.behaviour.argmax(axis=1)
    before = np.cumsum(unusual) - unusual
    bound = (before > before[log.first][log.episode]) & (log.behaviour.max(axis=1) >= 1.0)
    for t in range(log.horizon):
        now = rows[log.step == t]
        usual = log.behaviour[now].mean(axis=0) >= MIN_PROPENSITY / 2
        found[now[bound[now]]] |= usual
    return found


def fitted_q(
    log: EpisodeLog,
    reward: Reward,
    supported: Bools,
    *,
    seed: int,
    own: Ints | None = None,
    ensemble: int = ENSEMBLE,
) -> Iterator[ActionValues]:
    """Action values after one sweep, two, and so on; the caller takes as many as it wants.

    supported: (n, a) actions that may be chosen next. own: (b, a), `own_columns` if None: what is learned of an action
    taken twice in a row, say, then serves for all. Episodes without a known quality teach where they lead to, not what
    that is worth.
    """
    lessons = _lessons(log, reward, own_columns(log) if own is None else own, seed, ensemble)
    following = np.where(log.last, 0, np.arange(len(log.actions)) + 1)
    needed = np.unique(np.concatenate([following[one.rows] for one in lessons]))
    ahead = [one.later.predict(one.codes) for one in lessons]
    while True:
        values = ActionValues(
            tuple(
                one.fitted(log, np.where(log.last, 0.0, later[following]))
                for one, later in zip(lessons, ahead, strict=True)
            )
        )
        yield values
        best = np.full(len(log.actions), np.nan)
        lower = values.lower(log.features[needed])
        best[needed] = np.where(supported[needed], lower, -np.inf).max(axis=1)
        ahead = [best] * len(lessons)


def stop_margins(log: EpisodeLog, reward: Reward, *, seed: int, sweeps: int = 3, ensemble: int = ENSEMBLE) -> Floats:
    """(n,) by how much stopping is worth more than going on as logged and stopping later where that is better; NaN
    where nothing is known of stopping.

    Optimal stopping by regression (Longstaff, Schwartz 2001): C_0 = V_0, C_j(s) = E[r + max(S, C_(j-1))(s') | s] by the
    decisions that did as usual. No action has to be explored for it.
    """
    usual = log.actions == log.behaviour.argmax(axis=1)
    following = np.where(log.last, 0, np.arange(len(log.actions)) + 1)
    margins = []
    for one in _lessons(log, reward, np.zeros((0, len(log.action_names)), dtype=np.int64), seed, ensemble):
        if one.stop is None:
            return np.full(len(log.actions), np.nan)
        stop, on = one.stop.predict(one.codes), one.later.predict(one.codes)
        kept = usual[one.rows]
        rows, weight = one.rows[kept], one.weight[kept]
        for _ in range(sweeps):
            target = one.rewards + np.where(log.last, 0.0, np.maximum(stop, on)[following])
            on = _Trees.fit(one.codes[rows], target[rows], weight, seed).predict(one.codes)
        margins.append(stop - on)
    result: Floats = np.mean(margins, axis=0)
    return result


@dataclass(frozen=True, eq=False)
class _Bins:
    """Which of at most `BINS` intervals a feature is in: trees are fitted on that, several times over."""

    columns: Ints
    """Those features that are looked at."""
    edges: tuple[Floats, ...]

    @classmethod
    def of(cls, features: Floats, columns: Ints) -> _Bins:
        edges = []
        for column in features[:, columns].T:
            values = np.unique(column)
            if len(values) > BINS:
                values = np.unique(np.quantile(column, np.linspace(0, 1, BINS)))
            edges.append((values[1:] + values[:-1]) / 2)
        return cls(columns, tuple(edges))

    def codes(self, features: Floats) -> Floats:
        """features (m, d) -> (m, columns)."""
        result = np.empty((len(features), len(self.columns)))
        for place, (column, edges) in enumerate(zip(self.columns, self.edges, strict=True)):
            result[:, place] = np.searchsorted(edges, features[:, column])
        return result


def _telling(log: EpisodeLog, outcome: Floats) -> Ints:
    """Places of the features to look at: of a prompt's those `PROMPT_COLUMNS` that, with some action, go most with what
    came of it, and all that tell of the steps."""
    d = log.features.shape[1]
    places = np.arange(d)
    if width(log.action_names) != d:
        return places
    known = ~np.isnan(outcome)
    most = np.zeros(DIM)
    for action in range(len(log.action_names)):
        rows = np.flatnonzero(known & (log.actions == action))
        if len(rows) > PROMPT_COLUMNS:
            x = log.features[rows, :DIM].astype(np.float64)
            x -= x.mean(axis=0)
            y = outcome[rows] - outcome[rows].mean()
            size = np.sqrt((x**2).sum(axis=0) * (y @ y))
            most = np.maximum(most, np.sqrt(len(rows)) * np.abs(y @ x) / np.where(size > 0, size, np.inf))
    return np.sort(np.concatenate([np.argsort(-most, kind="stable")[:PROMPT_COLUMNS], places[DIM:]]))


@dataclass(frozen=True, eq=False)
class _Trees:
    """Boosted trees, within what was seen; a constant without any."""

    low: float
    high: float
    model: Any = None

    @classmethod
    def fit(cls, x: Floats, y: Floats, weight: Floats, seed: int, **how: Any) -> _Trees:
        known = ~np.isnan(y)
        x, y, weight = x[known], y[known], weight[known]
        if not len(y):
            return cls(np.nan, np.nan)
        low, high = float(y.min()), float(y.max())
        if low == high:
            return cls(low, high)
        from sklearn.ensemble import HistGradientBoostingRegressor

        scale = max(abs(low), abs(high))
        model = HistGradientBoostingRegressor(
            **{"max_iter": 60, "max_leaf_nodes": 12, "learning_rate": 0.1, **how},
            min_samples_leaf=max(10, min(40, len(y) // 40)),
            l2_regularization=1.0,
            random_state=seed,
            early_stopping=False,
        )
        model.fit(x, y / scale, sample_weight=weight / weight.mean())
        return cls(low, high, (model, scale))

    def predict(self, x: Floats) -> Floats:
        """x (m, d) -> (m,)."""
        if self.model is None:
            return np.full(len(x), self.low)
        model, scale = self.model
        clipped: Floats = np.clip(model.predict(x) * scale, self.low, self.high)
        return clipped

    def predict_all(self, x: Floats, own: Floats, seen: Ints) -> Floats:
        """x (m, d), own (m, b, a) -> (m, a) of trees fitted on `_design`; the lowest of all for actions not seen."""
        result = np.full((len(x), own.shape[2]), self.low)
        if self.model is not None:
            model, scale = self.model
            every = np.clip(predict_all(model, x, seen, own.shape[2], own) * scale, self.low, self.high)
            result[:, seen] = every[:, seen]
        return result


@dataclass(frozen=True, eq=False)
class _Member:
    """What one model of the ensemble says of every action."""

    going: _Trees
    stop: _Trees | None
    bins: _Bins
    own: Ints
    seen: Ints
    """Actions that it was fitted on; what is not known of the others counts as the lowest of all."""

    def predict(self, features: Floats) -> Floats:
        """features (m, d) -> (m, a)."""
        codes = self.bins.codes(features)
        result = self.going.predict_all(codes, features[:, self.own], self.seen)
        if self.stop is not None:
            result[:, -1] = self.stop.predict(codes)
        return result


@dataclass(frozen=True, eq=False)
class _Lesson:
    """What a member learns from, and what it knows before the first sweep."""

    rows: Ints
    """Decisions that it fits actions on, STOP aside where that is learned by itself."""
    weight: Floats
    """(rows,)"""
    rewards: Floats
    """(n,)"""
    later: _Trees
    stop: _Trees | None
    bins: _Bins
    codes: Floats
    """(n, d)"""
    own: Ints
    seed: int

    @classmethod
    def of(
        cls, log: EpisodeLog, rewards: Floats, told: Floats, bins: _Bins, codes: Floats, own: Ints, seed: int
    ) -> _Lesson:
        """rewards, told: (n,) what each decision adds, and what stopping there would."""
        rng = np.random.default_rng(seed)
        names, inverse = np.unique(log.groups, return_inverse=True)
        counts = rng.multinomial(len(names), np.full(len(names), 1 / len(names)))[inverse[log.episode]]
        stops = log.actions == log.stop
        stop = _stop_model(log, codes, rewards, told, counts, seed)
        if stop is not None:
            rewards = rewards.copy()
            rewards[stops] = stop.predict(codes[stops])
        drawn = np.flatnonzero(counts)
        usual = drawn if len(drawn) <= MOST_ROWS else rng.choice(drawn, MOST_ROWS, replace=False)
        later = _Trees.fit(codes[usual], returns(log, rewards)[usual], counts[usual].astype(float), seed)
        taken = log.behaviour[np.arange(len(log.actions)), log.actions]
        rows, weight = _rare_first(drawn if stop is None else drawn[~stops[drawn]], taken, rng)
        weight = weight * counts[rows] * np.minimum(1 / taken[rows], MOST_WEIGHT)
        return cls(rows, weight, rewards, later, stop, bins, codes, own, seed)

    def fitted(self, log: EpisodeLog, ahead: Floats) -> _Member:
        """ahead: (n,) what is to come after each decision."""
        rows = self.rows
        design = _design(self.codes[rows], log.actions[rows], log.features[rows], self.own)
        going = _Trees.fit(
            *(design, (self.rewards + ahead)[rows], self.weight, self.seed),
            max_iter=100,
            max_leaf_nodes=8,
            categorical_features=[0],
        )
        return _Member(going, self.stop, self.bins, self.own, np.unique(log.actions[rows]))


def _lessons(log: EpisodeLog, reward: Reward, own: Ints, seed: int, count: int) -> list[_Lesson]:
    rewards = utility(log, reward)
    bins = _Bins.of(log.features, _telling(log, returns(log, rewards)))
    codes = bins.codes(log.features)
    cost = log.cost_usd[(log.actions == log.stop) & ~np.isnan(log.cost_usd)]
    told = _added(log, reward, log.stop_quality, np.full(len(rewards), cost.mean() if len(cost) else 0.0))
    return [_Lesson.of(log, rewards, told, bins, codes, own, seed + number) for number in range(count)]


def _stop_model(
    log: EpisodeLog, codes: Floats, rewards: Floats, told: Floats, counts: Ints, seed: int
) -> _Trees | None:
    """What an episode is worth that stops; None where none ever did and nobody knows. Small trees: that an answer gets
    better as the work proceeds is much the same whatever was done."""
    stops = log.actions == log.stop
    worth = np.where(stops, rewards, told)
    rows = np.flatnonzero((counts > 0) & ~np.isnan(worth))
    if not len(rows):
        return None
    if len(rows) > MOST_ROWS:
        rows = np.random.default_rng(seed).choice(rows, MOST_ROWS, replace=False)
    how = {"max_iter": 40, "max_leaf_nodes": 4}
    return _Trees.fit(codes[rows], worth[rows], counts[rows].astype(float), seed, **how)


def _rare_first(rows: Ints, taken: Floats, rng: np.random.Generator) -> tuple[Ints, Floats]:
    """At most `MOST_ROWS` of the rows, and for how many of them each stands: those of a rare action are kept before the
    others. taken: (n,) probability of what was done."""
    if len(rows) <= MOST_ROWS:
        return rows, np.ones(len(rows))
    rare, usual = rows[taken[rows] < 0.5], rows[taken[rows] >= 0.5]
    room = MOST_ROWS // 2
    found = []
    for some, others in ((rare, usual), (usual, rare)):
        most = max(room, MOST_ROWS - len(others))
        kept = some if len(some) <= most else np.sort(rng.choice(some, most, replace=False))
        found.append((kept, np.full(len(kept), len(some) / max(len(kept), 1))))
    return np.concatenate([found[0][0], found[1][0]]), np.concatenate([found[0][1], found[1][1]])


def _design(codes: Floats, actions: Ints, features: Floats, own: Ints) -> Floats:
    """(m, 1 + d + b): the action, the features' codes, and those features that tell something of this action."""
    rows = np.arange(len(actions))
    return np.column_stack([actions, codes, *(features[rows, one[actions]] for one in own)])


def greedy(values: Floats, supported: Bools, behaviour: Floats) -> Floats:
    """(n, a) the best supported action; the logged behaviour where none is supported."""
    masked = np.where(supported, values, -np.inf)
    chosen = np.eye(values.shape[1])[masked.argmax(axis=1)]
    return np.where(supported.any(axis=1, keepdims=True), chosen, behaviour)
