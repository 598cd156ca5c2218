"""Scores that a run keeps of single decisions, so that policies can be judged later without fitting anything.

price_scores-SERVICE.parquet    written by `train`: the decisions on which the suggestion was chosen
judged_scores-SERVICE.parquet   written by `evaluate`: the decisions that judged it, with `suggested` (a), what it does

Both have a row per decision (of more than `MOST_KEPT` the newest) with: decision_id, action, group, time_ns,
behaviour (a); of each outcome `OUTCOME`, `OUTCOME_known` (probability that it is known), `OUTCOME_model` (a) by models
that did not see the decision, and `OUTCOME_guess` of a judge; label_probability. They hold all that the doubly robust
score of any policy is made of.

What each learner expects of the k actions that it knows (see `expectations`) stands beside the first, and of the
decisions that judge, in the order of the second, in judging_expected-SERVICE.parquet, which `train` writes. All a and k
numbers stand in the order of the names `actions` and `learned` under `scores` in training.json.

Legend: n decisions, a actions of the log, k actions that were learned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from optimizer.dataset import Floats, Ints, LoggedDataset
from optimizer.evidence import METRICS, Evaluation, Metric
from optimizer.ope.estimators import Evidence

MOST_KEPT = 20_000
"""Decisions of each kind that are kept: an estimate of more would keep a reader waiting."""


@dataclass(frozen=True)
class About:
    """What is the same for all rows of a kept evaluation."""

    actions: tuple[str, ...]
    propensities_logged: bool
    label_sources: tuple[str, ...]
    label_counts: tuple[int, ...] | None
    decisions: int
    """That the evaluation had; more than are kept where it was cut."""

    @classmethod
    def of(cls, evaluation: Evaluation) -> About:
        data, counts = evaluation.data, evaluation.label_counts
        return cls(
            data.action_names,
            data.propensities_logged,
            data.label_sources,
            None if counts is None else tuple(counts.tolist()),
            len(data),
        )

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> About:
        """From what `asdict` made of it, through JSON."""
        counts = said["label_counts"]
        return cls(
            tuple(said["actions"]),
            bool(said["propensities_logged"]),
            tuple(said["label_sources"]),
            None if counts is None else tuple(counts),
            int(said["decisions"]),
        )


def newest(time_ns: Ints) -> Ints:
    """The rows that are kept, in their order."""
    return np.sort(np.argsort(time_ns, kind="stable")[-MOST_KEPT:])


def frame_of(evaluation: Evaluation, ids: pl.Series) -> pl.DataFrame:
    """The evaluation as a table; ids: (n,) of its decisions."""
    data = evaluation.data
    columns: dict[str, Any] = {
        "decision_id": ids,
        "action": data.actions,
        "group": data.groups,
        "time_ns": data.time_ns,
        "behaviour": data.behaviour,
        "label_probability": data.label_probability,
    }
    for metric in METRICS:
        one = evaluation.outcomes[metric]
        columns |= {
            metric: one.outcome,
            f"{metric}_known": one.known,
            f"{metric}_model": one.model,
            f"{metric}_guess": one.surrogate,
        }
    return pl.DataFrame({name: pl.Series(values) for name, values in columns.items()})


def judged_frame(evaluation: Evaluation, suggested: Floats, ids: pl.Series) -> pl.DataFrame:
    """judged_scores-SERVICE.parquet. suggested (n, a): the suggestion; ids (n,) of the decisions."""
    kept = newest(evaluation.data.time_ns)
    return frame_of(evaluation.take(kept), ids.gather(kept)).with_columns(suggested=pl.Series(suggested[kept]))


def evaluation_of(frame: pl.DataFrame, about: About, confidence: float) -> Evaluation:
    """What `frame_of` made a table of."""
    actions, groups = integers(frame, "action"), integers(frame, "group")
    behaviour = matrix(frame, "behaviour", len(about.actions))
    outcomes: dict[Metric, Evidence] = {}
    for metric in METRICS:
        outcomes[metric] = Evidence(
            numbers(frame, metric),
            numbers(frame, f"{metric}_known"),
            actions,
            behaviour,
            matrix(frame, f"{metric}_model", len(about.actions)),
            groups,
            numbers(frame, f"{metric}_guess"),
        )
    data = LoggedDataset(
        features=np.zeros((len(frame), 0)),
        actions=actions,
        quality=outcomes["quality"].outcome,
        cost_usd=outcomes["cost_usd"].outcome,
        latency_s=outcomes["latency_s"].outcome,
        behaviour=behaviour,
        groups=groups,
        time_ns=integers(frame, "time_ns"),
        action_names=about.actions,
        propensities_logged=about.propensities_logged,
        label_probability=numbers(frame, "label_probability"),
        label_sources=about.label_sources,
    )
    counts = None if about.label_counts is None else np.array(about.label_counts, dtype=np.int64)
    return Evaluation(data, outcomes, confidence, counts)


def numbers(frame: pl.DataFrame, name: str) -> Floats:
    """(n,)"""
    return np.array(frame[name].to_numpy(), dtype=np.float64)


def integers(frame: pl.DataFrame, name: str) -> Ints:
    """(n,)"""
    return np.array(frame[name].to_numpy(), dtype=np.int64)


def matrix(frame: pl.DataFrame, name: str, width: int) -> Floats:
    """(n, width)"""
    return np.array(frame[name].to_numpy(), dtype=np.float64).reshape(len(frame), width)
