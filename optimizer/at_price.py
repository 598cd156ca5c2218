"""What a run would have suggested at another price of quality, from the scores that it kept: nothing is fitted anew.

What a linear learner expects of quality q and cost c does not depend on the price; a unit of quality worth v only picks
the action of the largest q - c / v. So at any v the same candidates as in training can be made, chosen among by the
same function on the same decisions, and the chosen one judged by the same function on the decisions that judged the
suggestion. At the run's own price that is the suggestion itself, with the numbers of verdicts.json. Two things differ
from training at that price: nearest neighbours stay as they were learned, and weights of decisions and folds are those
of this run.

A policy that was picked by looking at the decisions which judge it has no certificate. Its intervals are therefore as
wide as those of the band of the curve (see `frontier`), which holds at all prices at once, and exploratory.

Legend: n decisions, a actions of the log, k actions that were learned.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from optimizer import kept_scores, runs
from optimizer.choosing import Choice, choose
from optimizer.choosing import score as scored
from optimizer.dataset import Bools, Floats
from optimizer.evidence import METRICS, Evaluation, Metric, Outcome, Refused, savings, scaled
from optimizer.expectations import Expected
from optimizer.gate import Limits
from optimizer.kept_scores import About
from optimizer.learners import Candidate
from optimizer.learners.candidates import LINEAR, NEAREST, PRICE_FACTORS, constant, labelled
from optimizer.rewards import RewardSpec
from optimizer.runtime import Model
from optimizer.summary import estimate_json

SAME = 1e-9
"""Prices that differ by a smaller part of themselves are the same."""


@dataclass(frozen=True, eq=False)
class AtPrice:
    """The choice at a price and what the judging decisions say of it, per decision."""

    value_usd: float
    own: bool
    """At the run's own price: these are the judged numbers, no exploration."""
    label: str
    admissible: bool
    """The choosing decisions put it inside the limits."""
    changes: Mapping[Metric, Outcome]
    """Policy minus today."""
    outcomes: Mapping[Metric, Outcome]
    shares: Mapping[str, float]
    """Of decisions, by action."""
    confidence: float
    """Pointwise, of its intervals."""


@dataclass(frozen=True, eq=False)
class Kept:
    """The scores of a service as they were read back."""

    about: Mapping[str, Any]
    """`scores` of training.json."""
    limits: Limits
    """By which it was chosen."""
    suggestion: Floats
    """(n, a) at the judging decisions."""
    label: str
    admissible: bool
    chose: Evaluation
    expected: Expected
    judged: Evaluation
    judging: Expected
    complete: bool
    """No decision was left out: at the run's own price the choice is that of the run."""

    @property
    def value_usd(self) -> float:
        """The run's own price of quality."""
        return float(self.about["value_usd"])

    def at(self, value_usd: float) -> AtPrice | Refused:
        """What would be suggested where a unit of quality is worth `value_usd`, judged."""
        if abs(value_usd - self.value_usd) <= SAME * self.value_usd:
            return self._judged(value_usd, self.label, self.suggestion, admissible=self.admissible, own=True)
        choice = self.choice(value_usd)
        if choice is None:
            return Refused("no candidate keeps to actions that the logs tried")
        one, does = choice
        return self._judged(value_usd, one.candidate.label, does, admissible=one.admissible, own=False)

    def choice(self, value_usd: float) -> tuple[Choice, Floats] | None:
        """What the choosing decisions suggest at a price, and (n, a) what it does at those that judge."""
        learned, epsilon = tuple(self.about["learned"]), float(self.about["epsilon"])
        found = []
        makers = _makers(learned, value_usd, epsilon, list(self.expected.learned))
        for label, complexity, model, seen in makers:
            one = Candidate(label, complexity, model)
            does = self._policy(model, seen(self.expected), self.expected.able, self.chose, learned)
            if (told := scored(one, self.chose, self.limits, RewardSpec(value_usd), does)) is not None:
                found.append(told)
        choice = choose(found, self.chose, self.limits, RewardSpec(value_usd))
        if choice is None:
            return None
        label = choice.candidate.label
        whole = max((name for name, *_ in makers if label.startswith(name)), key=len)
        seen = next(seen for name, _, _, seen in makers if name == whole)
        does = self._policy(choice.candidate.model, seen(self.judging), self.judging.able, self.judged, learned)
        return choice, does

    @staticmethod
    def _policy(model: Model, seen: Floats, able: Bools, evaluation: Evaluation, learned: tuple[str, ...]) -> Floats:
        """(n, a), as `policy.Learned`."""
        data = evaluation.data
        columns = [data.action_names.index(name) for name in learned]
        served = able.any(axis=1, keepdims=True)
        result = np.zeros(data.behaviour.shape)
        result[:, columns] = model.probabilities(seen, able | ~served)
        return np.where(served, result, data.behaviour)

    def _judged(self, value_usd: float, label: str, does: Floats, *, admissible: bool, own: bool) -> AtPrice:
        level = self.judged.confidence if own else max(float(self.about["level"]), self.judged.confidence)
        by = replace(self.judged, confidence=level)
        return AtPrice(
            value_usd,
            own,
            label,
            admissible,
            {metric: by.change(metric, does) for metric in METRICS},
            {metric: by.value(metric, does) for metric in METRICS},
            dict(zip(by.data.action_names, does.mean(axis=0).tolist(), strict=True)),
            level,
        )


_Maker = tuple[str, int, Model, Callable[[Expected], Floats]]


def _makers(learned: tuple[str, ...], value_usd: float, epsilon: float, nearest: Sequence[str]) -> list[_Maker]:
    """The candidates of `learners.candidates` in their order: label, complexity, a model, and what of `Expected` the
    model reads as its features."""
    k = len(learned)
    found: list[_Maker] = [
        (f"always {name}", 0, constant(learned, column, epsilon), functools.partial(_both, LINEAR[0]))
        for column, name in enumerate(learned)
    ]
    for factor in PRICE_FACTORS:
        worth = value_usd * factor
        for name in LINEAR:
            weights = np.vstack([np.eye(k), -np.eye(k) / worth])
            model = _linear(learned, weights, epsilon)
            found.append((labelled(name, factor), 1, model, functools.partial(_both, name)))
        if (label := labelled(NEAREST, factor)) in nearest:
            found.append((label, 2, _linear(learned, np.eye(k), epsilon), functools.partial(_learned, label)))
    return found


def _both(name: str, at: Expected) -> Floats:
    return np.hstack([at.quality[name], at.cost_usd[name]])


def _learned(label: str, at: Expected) -> Floats:
    return at.learned[label]


def _linear(names: tuple[str, ...], weights: Floats, epsilon: float) -> Model:
    width = len(weights)
    arrays = {"mean": np.zeros(width), "scale": np.ones(width), "weights": weights, "bias": np.zeros(len(names))}
    return Model("linear", names, arrays, epsilon)


def read(
    chose: pl.DataFrame,
    judged: pl.DataFrame,
    judging_expected: pl.DataFrame,
    training: Mapping[str, Any],
    judging: Mapping[str, Any],
    limits: Limits,
) -> Kept:
    """From the three tables, what training.json says of the service, the `scores` of evidence-SERVICE.json, and the
    limits of verdicts.json."""
    about = training["scores"]
    k = len(about["learned"])
    first, second = About.read(about), About.read(judging)
    chosen_by = Limits(**training["limits"])
    order = judged.select("decision_id")
    judging_expected = order.join(judging_expected, on="decision_id", how="left", maintain_order="left")
    if judging_expected["able"].null_count():
        raise ValueError("the tables are not about the same decisions")
    return Kept(
        about,
        chosen_by,
        kept_scores.matrix(judged, "suggested", len(second.actions)),
        str(training["label"]),
        bool(training["admissible"]),
        kept_scores.evaluation_of(chose, first, chosen_by.confidence),
        Expected.read(chose, k),
        kept_scores.evaluation_of(judged, second, limits.confidence),
        Expected.read(judging_expected, k),
        first.decisions == len(chose) and second.decisions == len(judged),
    )


def at_price_json(found: AtPrice) -> dict[str, Any]:
    """The figures in the units of verdicts.json."""
    return {
        "value_usd": found.value_usd,
        "own": found.own,
        "label": found.label,
        "admissible": found.admissible,
        "savings_usd_per_1k": estimate_json(savings(found.changes["cost_usd"])),
        "quality_change": estimate_json(found.changes["quality"]),
        "latency_change_s": estimate_json(found.changes["latency_s"]),
        "cost_usd_per_1k": estimate_json(scaled(found.outcomes["cost_usd"], 1000)),
        "quality": estimate_json(found.outcomes["quality"]),
        "latency_s": estimate_json(found.outcomes["latency_s"]),
        "shares": dict(found.shares),
        "confidence": found.confidence,
    }


def grid(value_usd: float) -> tuple[float, ...]:
    """Prices to choose among, around the run's own: from a thirtieth to thirty times, eight a decade."""
    return tuple(value_usd * 10 ** (step / 8) for step in range(-12, 13)) if math.isfinite(value_usd) else ()


def toml_key(service: str) -> str:
    """A service's name as a key of retroute.toml, quoted where it must be."""
    if service and all(character.isascii() and (character.isalnum() or character in "-_") for character in service):
        return service
    return json.dumps(service, ensure_ascii=False)


def kept_in(run: Path, service: str) -> Kept | None:
    """The scores that a run folder keeps of a service; None where it keeps none.

    Raises ValueError, KeyError, OSError or PolarsError for files that are not as expected.
    """
    kinds: tuple[runs.Kept, ...] = ("price_scores", "judged_scores", "judging_expected")
    files = [run / runs.kept_name(service, kind) for kind in kinds]
    if not all(file.is_file() for file in files):
        return None
    training, verdicts, evidence = (
        json.loads((run / name).read_text(encoding="utf-8"))
        for name in ("training.json", "verdicts.json", runs.kept_name(service, "evidence"))
    )
    limits = Limits(**verdicts["services"][service]["limits"])
    chose, judged, expected = (pl.read_parquet(file) for file in files)
    return read(chose, judged, expected, training[service], evidence["scores"], limits)
