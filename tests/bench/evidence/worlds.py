"""Worlds: a population of contexts with the outcome of every action, so that the value of any policy is known.

Legend: N contexts, d features, a actions. A log draws contexts with replacement; the truth is about the population.

synthetic    20,000 contexts, 10 actions, a nonlinear chance of success, partly by a cause that is no feature
digits       1,797 handwritten digits of scikit-learn, 10 classes as actions: right or wrong
llmrouter9   3,519 prompts, 9 models } graded answers, read from the folder given by --data or EVIDENCE_DATA; left out
routellm     10,797 prompts, 2 models } where it is absent
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from optimizer.dataset import Floats, Ints


@dataclass(frozen=True, eq=False)
class World:
    """One population."""

    name: str
    features: Floats
    """(N, d)"""
    quality: Floats
    """(N, a) mean outcome, in [0, 1]."""
    cost_usd: Floats
    """(N, a) mean cost of a decision."""
    hidden: Ints
    """(N,) 0 or 1: a cause of outcomes that no feature tells."""
    names: tuple[str, ...]
    chance: bool
    """Outcomes are drawn with `quality` as the chance of 1; else they are `quality` itself."""

    def __len__(self) -> int:
        return len(self.features)


def _synthetic(folder: Path | None, size: int = 20_000, arms: int = 10) -> World:
    """Chance of success: a logistic of two bends and a product of features per action. Dearer actions are better on the
    whole; no action is the best everywhere."""
    rng = np.random.default_rng(20_000)
    features = rng.normal(size=(size, 8))
    hidden = rng.integers(0, 2, size)
    one, two, three = (rng.normal(size=(8, arms)) for _ in range(3))
    bends = np.sin(features @ one / 2) + 0.5 * np.abs(features @ two) - 0.7 * (features @ three > 1)
    rank = np.linspace(-1, 1, arms)
    logit = 0.4 + 0.9 * bends + 0.8 * rank + 0.5 * (2 * hidden[:, None] - 1)
    cost = np.geomspace(0.0005, 0.02, arms) * np.exp(0.4 * features[:, :1])
    names = tuple(f"arm{number}" for number in range(arms))
    return World("synthetic", features, 1 / (1 + np.exp(-logit)), cost, hidden, names, True)


def _digits(folder: Path | None) -> World:
    """The right class gives 1, any other 0."""
    from sklearn.datasets import load_digits

    data = load_digits()
    quality = np.eye(10)[data.target]
    names = tuple(f"class{number}" for number in range(10))
    cost = np.tile(np.geomspace(0.001, 0.01, 10), (len(quality), 1))
    hidden = (np.asarray(data.data).sum(axis=1) > np.median(np.asarray(data.data).sum(axis=1))).astype(np.int64)
    return World("digits", np.asarray(data.data, dtype=np.float64) / 16, quality, cost, hidden, names, False)


def _graded(folder: Path, name: str) -> World | None:
    """A matrix of graded answers: prompts.parquet and outcomes.parquet."""
    import polars as pl

    from optimizer.runtime import featurise_many

    if not (folder / name / "outcomes.parquet").is_file():
        return None
    prompts = pl.read_parquet(folder / name / "prompts.parquet").sort("prompt_id")
    outcomes = pl.read_parquet(folder / name / "outcomes.parquet")
    wide = {
        column: outcomes.pivot(on="model", index="prompt_id", values=column).sort("prompt_id")
        for column in ("quality", "cost_usd")
    }
    names = tuple(sorted(outcomes["model"].unique()))
    matrices = {column: frame.select(names).to_numpy().astype(np.float64) for column, frame in wide.items()}
    assert wide["quality"]["prompt_id"].to_list() == prompts["prompt_id"].to_list()
    features = featurise_many([{"messages": text} for text in prompts["prompt"]]).astype(np.float64)
    ease = matrices["quality"].mean(axis=1)
    hidden = (ease > np.median(ease)).astype(np.int64)
    return World(name, features, matrices["quality"], matrices["cost_usd"], hidden, names, False)


_READ: Mapping[str, Callable[[Path | None], World | None]] = {
    "synthetic": _synthetic,
    "digits": _digits,
    "llmrouter9": lambda folder: None if folder is None else _graded(folder, "llmrouter9"),
    "routellm": lambda folder: None if folder is None else _graded(folder, "routellm"),
}
NAMES = tuple(_READ)


@cache
def world(name: str, folder: Path | None) -> World | None:
    """The world of this name; None where its data is absent."""
    return _READ[name](folder)
