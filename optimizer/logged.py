"""Decision rows of one point as a dataset: actions numbered, behaviour logged or estimated, outcomes as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from optimizer.dataset import Floats, Ints, LoggedDataset, split
from optimizer.propensity import Behaviour, estimate_behaviour

MAX_ACTIONS = 16
OTHER = "other"
"""Actions beyond the commonest sixteen, together. They count in today's value and are never suggested."""
LATENCY_QUANTILE = 0.999


@dataclass(frozen=True, eq=False)
class Logged:
    """A dataset with how it came about."""

    data: LoggedDataset
    estimated: Behaviour | None
    """How missing behaviour was estimated; None when every row carries one."""
    latency_cut_share: float
    """Share of all seconds cut away by limiting each duration to the 99.9 % quantile."""

    @property
    def deterministic(self) -> bool:
        """The choice was a fixed rule: no counterfactual information."""
        return self.estimated is not None and self.estimated.deterministic


def to_dataset(decisions: pl.DataFrame, *, seed: int) -> Logged:
    """The dataset of the decisions of one point, in their order.

    Raises ValueError when there is no decision.
    """
    if decisions.is_empty():
        raise ValueError("no decisions")
    names = _action_names(decisions)
    place = {name: number for number, name in enumerate(names)}
    last = len(names) - 1
    actions: Ints = np.array([place.get(a, last) for a in decisions["action"].to_list()], dtype=np.int64)
    features = np.asarray(decisions["features"].to_numpy(), dtype=np.float64)
    time_ns = decisions["time_ns"].to_numpy().astype(np.int64)
    groups: Ints = decisions["group"].rank("dense").to_numpy().astype(np.int64)
    behaviour, complete = logged_behaviour(decisions, actions, place)
    estimated = None
    if not complete.all():
        estimated = estimate_behaviour(features, actions, groups, len(names), seed=seed, time_ns=time_ns)
        behaviour = filled_behaviour(
            behaviour, complete, estimated.probabilities, decisions["propensity"].to_numpy(), actions
        )
    latency, cut = _winsorised(floats(decisions["latency_s"]))
    data = LoggedDataset(
        features=features,
        actions=actions,
        quality=floats(decisions["quality"]),
        cost_usd=floats(decisions["cost_usd"]),
        latency_s=latency,
        behaviour=behaviour,
        groups=groups,
        time_ns=time_ns,
        action_names=names,
        propensities_logged=_logged_where_judged(decisions["propensity_origin"], groups, time_ns),
        judge=_optional(decisions, "judge"),
        label_probability=_optional(decisions, "label_probability"),
        label_sources=_label_sources(decisions),
    )
    return Logged(data, estimated, cut)


def with_behaviour(decisions: pl.DataFrame, data: LoggedDataset) -> pl.DataFrame:
    """The decisions with the dataset's behaviour in place of what was not logged, marked "estimated"."""
    names = list(data.action_names)
    return decisions.with_columns(
        candidates=pl.Series([names] * len(data), dtype=pl.List(pl.String)),
        probabilities=pl.Series(data.behaviour.tolist(), dtype=pl.List(pl.Float64)),
        propensity=pl.Series(data.propensities),
        propensity_origin=pl.col("propensity_origin").fill_null("estimated"),
    )


def _optional(decisions: pl.DataFrame, name: str) -> Floats:
    """A column that runs of earlier versions lack."""
    return floats(decisions[name]) if name in decisions.columns else np.zeros(0)


def _label_sources(decisions: pl.DataFrame) -> tuple[str, ...]:
    """What gave the qualities, the commonest first."""
    if "label_source" not in decisions.columns:
        return ()
    named = decisions.filter(pl.col("quality").is_not_null())["label_source"].fill_null("")
    counts = named.value_counts().sort("count", "label_source", descending=[True, False])
    return tuple(counts["label_source"].to_list())


def _logged_where_judged(origin: pl.Series, groups: Ints, time_ns: Ints) -> bool:
    """Whether every row that chooses or judges carries its probabilities; those that only teach may have estimates, so
    that a service which begins to log them need not wait until all its earlier decisions are gone."""
    logged = (origin == "logged").fill_null(False).to_numpy()
    splits = split(groups, time_ns)
    judged = np.concatenate([splits.choose, splits.certify])
    return bool(logged[judged].all() if len(splits.certify) else logged.all())


def _action_names(decisions: pl.DataFrame) -> tuple[str, ...]:
    """The commonest actions first; candidates that were never taken after them; beyond sixteen, `OTHER`."""
    taken = decisions["action"].value_counts().sort("count", "action", descending=[True, False])["action"].to_list()
    offered = decisions["candidates"].explode().drop_nulls().unique().sort().to_list()
    names = list(dict.fromkeys([*taken, *offered]))
    if len(names) <= MAX_ACTIONS:
        return tuple(names)
    return (*[name for name in names if name != OTHER][: MAX_ACTIONS - 1], OTHER)


def logged_behaviour(decisions: pl.DataFrame, actions: Ints, place: dict[str, int]) -> tuple[Floats, np.ndarray]:
    """(n, a) probabilities as logged, and (n,) whether the row is whole: sums to 1 and gives the taken action its
    chance."""
    count = len(place)
    behaviour = np.zeros((len(decisions), count))
    rows = zip(decisions["candidates"].to_list(), decisions["probabilities"].to_list(), strict=True)
    for row, (candidates, probabilities) in enumerate(rows):
        if candidates and probabilities and len(candidates) == len(probabilities):
            _fill_row(behaviour[row], candidates, probabilities, place)
    total = behaviour.sum(axis=1)
    taken = behaviour[np.arange(len(actions)), actions]
    complete = (np.abs(total - 1) < 1e-3) & (taken > 0)
    behaviour[complete] /= total[complete, None]
    return behaviour, complete


def _fill_row(
    row: Floats, candidates: Sequence[str], probabilities: Sequence[float | None], place: dict[str, int]
) -> None:
    for name, probability in zip(candidates, probabilities, strict=True):
        row[place.get(name, len(place) - 1)] += probability or 0.0


def filled_behaviour(
    behaviour: Floats, complete: np.ndarray, estimate: Floats, propensity: Floats, actions: Ints
) -> Floats:
    """Rows that were not logged whole: the estimate, its other actions rescaled where the taken one's probability is
    known."""
    result = np.where(complete[:, None], behaviour, estimate)
    rows = np.arange(len(actions))
    known = ~complete & np.isfinite(propensity) & (propensity > 0) & (propensity <= 1)
    rest = 1 - result[rows, actions]
    usable = known & ((rest > 0) | (propensity == 1))
    scale = np.where(usable & (rest > 0), (1 - propensity) / np.where(rest > 0, rest, 1), 1.0)
    result[usable] *= scale[usable, None]
    result[rows[usable], actions[usable]] = propensity[usable]
    filled: Floats = result / result.sum(axis=1, keepdims=True)
    return filled


def floats(column: pl.Series) -> Floats:
    """(n,) NaN where null."""
    values: Floats = column.cast(pl.Float64).fill_null(float("nan")).to_numpy().astype(np.float64)
    return values


def _winsorised(values: Floats) -> tuple[Floats, float]:
    known = values[~np.isnan(values)]
    if known.size == 0 or known.sum() == 0:
        return values, 0.0
    cut = np.minimum(values, np.quantile(known, LATENCY_QUANTILE))
    return cut, float(1 - np.nansum(cut) / known.sum())
