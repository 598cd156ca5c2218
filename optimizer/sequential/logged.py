"""Step rows of a service as episodes: actions numbered, behaviour logged or estimated, the history in the features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from optimizer.dataset import Bools, Floats, Ints, split
from optimizer.logged import OTHER, filled_behaviour, floats, logged_behaviour
from optimizer.propensity import Behaviour, estimate_behaviour
from optimizer.sequential.episodes import STOP, EpisodeLog

FEW_UNPRICED = 0.02
"""Traces with a cost that is not known are left out, and counted, as long as they are no more than this share: an
outcome of many steps is known whole or not at all."""
MAX_ACTIONS = 15
"""Besides STOP. Of more, the commonest count each by itself and the rest as `OTHER`, which is never suggested."""


class NoEpisodesError(ValueError):
    """No trace has an outcome."""


@dataclass(frozen=True, eq=False)
class Episodes:
    """Episodes with how they came about."""

    log: EpisodeLog
    estimated: Behaviour | None
    """How missing behaviour was estimated; None when every row carries one."""
    point: str
    trace_ids: tuple[str, ...]
    """Of each episode."""
    left_out: Mapping[str, int]
    """Reason -> traces that are no episodes."""
    logged: Bools
    """(n,) whether each decision's probabilities were logged; the others' were estimated."""


def to_episodes(rows: pl.DataFrame, *, seed: int) -> Episodes:
    """The episodes of the point with most traces, by time of their first decision.

    rows: with the columns `steps.COLUMNS`, of one service. Features (n, 144 + 2a): the prompt's, those of the steps so
    far, how often each action was taken before, and which was the last; what counts as `OTHER` is not among these, as
    a router does not know it either. Actions by how often they were taken, those only offered after them, STOP last. A
    row without the probabilities of its candidates is estimated, by all features; STOP then has probability 0 if no row
    chose it. A trace with neither quality nor cost is left out, and few without a whole cost
    (`FEW_UNPRICED`); one of a single decision is an episode like others.
    Raises NoEpisodesError when none is left.
    """
    of_point = _of_main_point(rows)
    kept, unpriced = _usable(of_point)
    names = _action_names(kept)
    kept = kept.sort(pl.col("time_ns").first().over("trace_id"), "trace_id", "step").with_columns(
        action=_known(pl.col("action"), names), candidates=pl.col("candidates").list.eval(_known(pl.element(), names))
    )
    place = {name: number for number, name in enumerate(names)}
    actions: Ints = np.array([place[name] for name in kept["action"].to_list()], dtype=np.int64)
    first: Bools = (kept["step"] == 0).to_numpy()
    episode: Ints = np.cumsum(first) - 1
    firsts = kept.filter(pl.Series(first))
    features = np.hstack(
        [np.asarray(kept[name].to_numpy(), dtype=np.float64) for name in ("features", "step_features")]
        + [taken_before(actions, episode, names)]
    )
    groups: Ints = firsts["group"].rank("dense").to_numpy().astype(np.int64)
    time_ns: Ints = firsts["time_ns"].to_numpy().astype(np.int64)
    behaviour, complete = logged_behaviour(kept, actions, place)
    estimated = None
    if not complete.all():
        chosen = len(names) if (actions == place[STOP]).any() else len(names) - 1
        estimated = estimate_behaviour(features, actions, groups[episode], chosen, seed=seed, time_ns=time_ns[episode])
        guess = np.pad(estimated.probabilities, ((0, 0), (0, len(names) - estimated.probabilities.shape[1])))
        behaviour = filled_behaviour(behaviour, complete, guess, kept["propensity"].to_numpy(), actions)
    log = EpisodeLog(
        features=features,
        actions=actions,
        behaviour=behaviour,
        cost_usd=floats(kept["cost_usd"]),
        latency_s=floats(kept["latency_s"]),
        stop_quality=floats(kept["stop_quality"]),
        episode=episode,
        quality=floats(firsts["quality"]),
        groups=groups,
        time_ns=time_ns,
        action_names=names,
        propensities_logged=_logged_where_judged(complete, episode, groups, time_ns),
    )
    counted = _left_out(rows, of_point, len(firsts), unpriced)
    return Episodes(log, estimated, str(firsts["point"][0]), tuple(firsts["trace_id"].to_list()), counted, complete)


def _of_main_point(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of the point with most traces."""
    traces = (
        rows.group_by("point").agg(pl.col("trace_id").n_unique()).sort("trace_id", "point", descending=[True, False])
    )
    return rows.filter(pl.col("point") == traces["point"].first())


def _usable(of_point: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """The rows of traces of which enough is known, and how many are left out for lack of a cost."""
    known = pl.col("quality").is_not_null() | pl.col("cost_usd").is_not_null()
    kept = of_point.filter(known.any().over("trace_id"))
    if kept.is_empty():
        raise NoEpisodesError("no trace with a quality or a cost")
    lacking = kept.filter(pl.col("cost_usd").is_null())["trace_id"].unique()
    if len(lacking) > FEW_UNPRICED * kept["trace_id"].n_unique():
        return kept, 0
    return kept.filter(~pl.col("trace_id").is_in(lacking.implode())), len(lacking)


def _left_out(rows: pl.DataFrame, of_point: pl.DataFrame, episodes: int, unpriced: int) -> dict[str, int]:
    """How many traces are no episodes, by reason."""
    counts = {
        "of another point than most": rows["trace_id"].n_unique() - of_point["trace_id"].n_unique(),
        "neither quality nor cost is known": of_point["trace_id"].n_unique() - episodes - unpriced,
        "a cost is not known": unpriced,
    }
    return {reason: count for reason, count in counts.items() if count}


def taken_before(actions: Ints, episode: Ints, names: Sequence[str]) -> Floats:
    """(n, 2a) of each row log1p of how often every action was taken before in its episode, then 1 for the last one; as
    `runtime.history_features` gives them."""
    taken = np.eye(len(names))[actions]
    taken[:, [number for number, name in enumerate(names) if name == OTHER]] = 0.0
    total = np.cumsum(taken, axis=0) - taken
    first = np.searchsorted(episode, episode)
    counts = np.log1p(total - total[first]).astype(np.float16)
    last = np.vstack([np.zeros((1, len(names))), taken[:-1]])
    last[np.arange(len(actions)) == first] = 0.0
    return np.hstack([counts, last]).astype(np.float64)


def _action_names(rows: pl.DataFrame) -> tuple[str, ...]:
    taken = rows["action"].value_counts().sort("count", "action", descending=[True, False])["action"].to_list()
    offered = rows["candidates"].explode().drop_nulls().unique().sort().to_list()
    names = [name for name in dict.fromkeys([*taken, *offered]) if name != STOP]
    return (*(names if len(names) <= MAX_ACTIONS else [*names[: MAX_ACTIONS - 1], OTHER]), STOP)


def _known(name: pl.Expr, names: Sequence[str]) -> pl.Expr:
    return pl.when(name.is_in(names)).then(name).otherwise(pl.lit(OTHER))


def _logged_where_judged(complete: Bools, episode: Ints, groups: Ints, time_ns: Ints) -> bool:
    """Whether every row of the episodes that choose or judge carries its probabilities (see `logged`)."""
    splits = split(groups, time_ns)
    judged = np.isin(episode, np.concatenate([splits.choose, splits.certify]))
    return bool(complete[judged].all() if len(splits.certify) else complete.all())
