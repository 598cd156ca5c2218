"""Evidence about policies: estimates of cost, quality and latency on rows that no model has seen, or the reason why
there are none.

Legend: n decisions, a actions.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from optimizer.dataset import MIN_PROPENSITY, Floats, Ints, LoggedDataset
from optimizer.gate import MIN_LABEL_SHARE, Estimate, Kind, Segment
from optimizer.ope import labels
from optimizer.ope.blend import blend, blend_change
from optimizer.ope.bootstrap import bootstrap_interval
from optimizer.ope.bounds import smoothed_change
from optimizer.ope.certificate import certified_change, plan_bets
from optimizer.ope.estimators import ESTIMATORS, Evidence, doubly_robust, snips, today, weights
from optimizer.ope.intervals import mean_interval
from optimizer.ope.models import cross_fit, fit_heads, fit_predict

Metric = Literal["cost_usd", "quality", "latency_s"]
METRICS: tuple[Metric, ...] = ("cost_usd", "quality", "latency_s")

BLEND = "blend"

MIN_EFFECTIVE = 20.0
"""Below this many effective decisions there is no number at all: every interval tried undercovers there."""
MAX_UNSUPPORTED = 0.01
"""Largest share of a policy's decisions that may fall on actions the log did not try there."""


@dataclass(frozen=True)
class Refused:
    """Why there is no estimate."""

    reason: str


Outcome = Estimate | Refused


def segment(name: str, decisions: int, change: Outcome, quality_margin: float) -> Segment:
    """A protected segment as the gate wants it, from the change of quality there."""
    if isinstance(change, Refused):
        return Segment(name, decisions, None, change.reason, quality_margin)
    return Segment(name, decisions, change, "", quality_margin)


def savings(change: Outcome) -> Outcome:
    """USD saved per 1,000 decisions from a change of cost per decision."""
    if isinstance(change, Refused):
        return change
    return scaled(change, -1000.0)


def scaled(estimate: Outcome, factor: float) -> Outcome:
    """The estimate in other units; a negative factor swaps its bounds."""
    if isinstance(estimate, Refused):
        return estimate
    low, high = sorted((factor * estimate.low, factor * estimate.high))
    return Estimate(
        estimate.estimator,
        factor * estimate.value,
        low,
        high,
        estimate.episodes,
        estimate.effective,
        estimate.kind,
    )


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Everything needed to judge any policy on these rows.

    An estimate is an "assumption" where it rests on a model that no chance backs: the direct method, any other policy
    than today's where the behaviour was estimated, since hidden causes of a choice bias it, and quality of which a
    judge alone speaks or few decisions have a score that nobody drew, since hidden causes of a score bias it as well.
    """

    data: LoggedDataset
    outcomes: Mapping[Metric, Evidence]
    confidence: float
    label_counts: Ints | None = None
    """(a,) decisions of each action with a score that is no judge's, where a judge speaks of the others."""

    def take(self, rows: Ints) -> Evaluation:
        """The same of these rows only."""
        outcomes = {metric: evidence.take(rows) for metric, evidence in self.outcomes.items()}
        return replace(self, data=self.data.take(rows), outcomes=outcomes)

    def value(self, metric: Metric, policy: Floats, estimator: str = BLEND) -> Outcome:
        """Mean outcome per decision under `policy` (n, a); for what the blend is, see `change`."""
        if (refused := self._refusal(metric, policy)) is not None:
            return refused
        evidence = self.outcomes[metric]
        scores = ESTIMATORS.get(estimator, doubly_robust)(evidence, policy)
        found = self._interval(scores, metric, policy, estimator)
        return _around(found, blend(evidence, policy).value) if estimator == BLEND else found

    def change(self, metric: Metric, policy: Floats, estimator: str = BLEND) -> Outcome:
        """Mean outcome under `policy` minus today's, on the same rows: the noise that both share cancels.

        The blend is the point of the least estimated error (see `ope.blend`) within the doubly robust interval, which
        alone makes a promise: the blend's own error is not that of a mean.
        """
        if (refused := self._refusal(metric, policy)) is not None:
            return refused
        evidence = self.outcomes[metric]
        scores = ESTIMATORS.get(estimator, doubly_robust)(evidence, policy) - today(evidence)
        found = self._interval(scores, metric, policy, estimator)
        return _around(found, blend_change(evidence, policy).value) if estimator == BLEND else found

    def difference(self, metric: Metric, policy: Floats, other: Floats) -> Outcome:
        """Mean outcome under `policy` minus that under `other`, doubly robust on the same rows."""
        for one in (policy, other):
            if (refused := self._refusal(metric, one)) is not None:
                return refused
        evidence = self.outcomes[metric]
        return self._interval(doubly_robust(evidence, policy) - doubly_robust(evidence, other), metric, policy, "DR")

    def resampled_change(self, metric: Metric, policy: Floats) -> Outcome:
        """The doubly robust change with an interval by drawing sessions anew: see `ope.bootstrap`."""
        found = self.change(metric, policy, "DR")
        if isinstance(found, Refused):
            return found
        low, high = bootstrap_interval(self.outcomes[metric], policy, change=True, confidence=self.confidence)
        return replace(found, estimator="bootstrap", low=low, high=high)

    def smoothed_change(self, metric: Metric, policy: Floats, earlier: Evaluation) -> Outcome:
        """The change by SNIPS with an interval that holds at any number of decisions and knows no model: see
        `ope.bounds`. `earlier` judges other rows; they say how large an outcome may be. Refused as a certificate is."""
        evidence = self.outcomes[metric]
        most = self._refusal(metric, policy) or self._most(metric, earlier)
        if isinstance(most, Refused):
            return most
        low, high = smoothed_change(_divided(evidence, most), policy, confidence=self.confidence)
        value = float((snips(evidence, policy) - today(evidence)).mean())
        size, rows = self.effective(policy, metric), len(evidence.outcome)
        return _around(Estimate("LS", value, most * low, most * high, rows, size, "certified"), value)

    def certified_change(self, metric: Metric, policy: Floats, earlier: Evaluation, earlier_policy: Floats) -> Outcome:
        """As `change`, with an interval that holds at any number of decisions, by betting: see `ope.certificate`.

        `earlier` judges other, earlier rows, on which the policy is `earlier_policy`; they say how to bet. An outcome
        counts up to one and a half times the largest of those rows. Refused where the guarantee would not hold.
        """
        evidence, before = self.outcomes[metric], earlier.outcomes[metric]
        most = self._refusal(metric, policy) or self._most(metric, earlier)
        if isinstance(most, Refused):
            return most
        bets = plan_bets(_divided(before, most), earlier_policy, confidence=self.confidence)
        low, high = certified_change(_divided(evidence, most), policy, bets, confidence=self.confidence)
        value = float((doubly_robust(evidence, policy) - today(evidence)).mean())
        size, rows = self.effective(policy, metric), len(evidence.outcome)
        return Estimate("betting", value, most * low, most * high, rows, size, "certified")

    def _most(self, metric: Metric, earlier: Evaluation) -> float | Refused:
        """The largest outcome that counts for a certificate, or why there can be none."""
        evidence, before = self.outcomes[metric], earlier.outcomes[metric]
        if not self.data.propensities_logged:
            return Refused("a certificate needs logged probabilities, and some are estimated")
        missing = float(np.isnan(np.concatenate([evidence.outcome, before.outcome])).mean())
        if missing or not len(before.outcome):
            return Refused(f"a certificate needs the outcome of every decision, and {missing:.1%} are missing")
        most = 1.0 if metric == "quality" else 1.5 * float(before.outcome.max())
        if most <= 0 or evidence.outcome.max() > most or min(evidence.outcome.min(), before.outcome.min()) < 0:
            return Refused("an outcome is outside the range that earlier decisions showed")
        return most

    def effective(self, policy: Floats, metric: Metric = "quality") -> float:
        """Effective decisions behind the policy's value: those whose outcome is known, by the weight they carry; where
        a judge guesses the others, see `ope.labels.effective_decisions`."""
        return labels.effective_decisions(self.outcomes[metric], policy)

    def top_share(self, policy: Floats) -> float:
        """Share of all weight on the heaviest 1 % of decisions."""
        weight = np.sort(weights(self.outcomes["cost_usd"], policy))[::-1]
        total = float(weight.sum())
        return float(weight[: max(1, len(weight) // 100)].sum()) / total if total else 1.0

    def unsupported(self, policy: Floats) -> float:
        """Share of the policy's decisions on actions that the log took there with probability below 0.02."""
        return float(np.where(self.data.behaviour < MIN_PROPENSITY, policy, 0.0).sum(axis=1).mean())

    @property
    def label_share(self) -> float:
        """Share of these decisions with a score."""
        return float(np.mean(~np.isnan(self.outcomes["quality"].outcome))) if len(self.data) else 0.0

    @property
    def labels_drawn(self) -> bool:
        """No decision is without a score for a reason that nobody knows."""
        return labels.labels_drawn(self.data)

    def _judged_alone(self, policy: Floats) -> str:
        counts, names = self.label_counts, self.data.action_names
        return "" if counts is None else labels.judged_alone(counts, names, policy - self.data.behaviour)

    def shrunk_change(self, metric: Metric, policy: Floats) -> float:
        """The blended change from today, for choosing, however few decisions it rests on. NaN without an outcome model,
        and of quality where a judge alone would speak."""
        return float(self.shrunk_scores(metric, policy).mean())

    def shrunk_scores(self, metric: Metric, policy: Floats) -> Floats:
        """(n,) what `shrunk_change` is the mean of."""
        if metric == "quality" and self._judged_alone(policy):
            return np.full(len(self.data), np.nan)
        return blend_change(self.outcomes[metric], policy).scores

    def _interval(self, scores: Floats, metric: Metric, policy: Floats, estimator: str) -> Estimate:
        on_policy = policy is self.data.behaviour
        sound = estimator != "DM" and (self.data.propensities_logged or on_policy)
        if metric == "quality":
            sound = sound and not self.data.judge_only and (self.labels_drawn or self.label_share >= MIN_LABEL_SHARE)
        kind: Kind = "asymptotic" if sound else "assumption"
        return mean_interval(
            scores,
            self.data.groups,
            confidence=self.confidence,
            estimator=estimator,
            effective=self.effective(policy, metric),
            kind=kind,
        )

    def _refusal(self, metric: Metric, policy: Floats) -> Refused | None:
        evidence = self.outcomes[metric]
        known = int((~np.isnan(evidence.outcome)).sum())
        what = {"cost_usd": "a known cost", "quality": "a quality score", "latency_s": "a known duration"}[metric]
        if metric == "quality" and (alone := self._judged_alone(policy)):
            return Refused(alone)
        if known < MIN_EFFECTIVE:
            return Refused(f"only {known} of {len(evidence.outcome)} decisions have {what}")
        if np.isnan(evidence.model).any():
            return Refused(f"too few decisions with {what} to learn from")
        if (share := self.unsupported(policy)) > MAX_UNSUPPORTED:
            return Refused(f"{share:.0%} of its decisions take actions that the logs did not try there")
        if (size := self.effective(policy, metric)) < MIN_EFFECTIVE:
            return Refused(f"only {size:.0f} effective decisions; below {MIN_EFFECTIVE:.0f} no interval can be trusted")
        return None


def cross_fitted(data: LoggedDataset, *, confidence: float, seed: int) -> Evaluation:
    """An evaluation of all rows by models that saw the other groups."""
    return taught(data, np.arange(len(data)), np.arange(0), confidence=confidence, seed=seed)[0]


def taught(
    data: LoggedDataset, learn: Ints, judge: Ints, *, confidence: float, seed: int
) -> tuple[Evaluation, Evaluation]:
    """The rows `learn` as `cross_fitted` sees them, and the rows `judge` by the mean of the same models."""
    known, judged = data.take(learn), data.take(judge)
    a = len(data.action_names)
    guesses = labels.guesses(known, judged, seed=seed)
    fit = cross_fit(known.features, known.actions, _taught(known, guesses.teaching), known.groups, a, seed=seed)
    counts = _label_counts(data, np.concatenate([learn, judge]))
    first = _evaluation(known, fit.predictions, guesses.teaching, counts, confidence, seed)
    second = _evaluation(judged, fit.heads.predict(judged.features), guesses.judging, counts, confidence, seed)
    return first, second


def held_out(data: LoggedDataset, learn: Ints, judge: Ints, *, confidence: float, seed: int) -> Evaluation:
    """An evaluation of the rows `judge` by models fitted on the rows `learn` alone."""
    known, judged = data.take(learn), data.take(judge)
    a = len(data.action_names)
    guesses = labels.guesses(known, judged, seed=seed)
    outcomes = _taught(known, guesses.teaching)
    models = fit_predict(known.features, known.actions, outcomes, judged.features, a, seed=seed)
    counts = _label_counts(data, np.concatenate([learn, judge]))
    return _evaluation(judged, models, guesses.judging, counts, confidence, seed)


def by_parts(
    data: LoggedDataset, part: Ints, count: int, *, confidence: float, seed: int
) -> list[tuple[Evaluation, Evaluation]]:
    """For each part of the rows: the other rows, and its own, both by models that saw neither it nor the row's part.

    part: (n,) of 0 to `count` - 1, at least three; no group in two. A model is fitted without each pair of parts. A row
    of part j beside part k has that of the pair; its own part's evaluation has the mean over all pairs that j is in.
    """
    a = len(data.action_names)
    guess = labels.guesses(data, data.take(np.arange(0)), seed=seed).teaching
    outcomes = _taught(data, guess)
    beside = np.full((count, len(METRICS), len(data), a), np.nan)
    for one, other in itertools.combinations(range(count), 2):
        rest = (part != one) & (part != other)
        heads = fit_heads(data.features[rest], data.actions[rest], outcomes[:, rest], a, seed=seed)
        for unseen, left in ((one, other), (other, one)):
            beside[left][:, part == unseen] = heads.predict(data.features[part == unseen])
    counts = _label_counts(data, np.arange(len(data)))
    found = []
    for number in range(count):
        rest, here = np.flatnonzero(part != number), np.flatnonzero(part == number)
        others = [one for one in range(count) if one != number]
        known, own = beside[number][:, rest], beside[others][:, :, here].mean(axis=0)
        found.append(
            (
                _evaluation(data.take(rest), known, guess[rest], counts, confidence, seed),
                _evaluation(data.take(here), own, guess[here], counts, confidence, seed),
            )
        )
    return found


def joined(parts: Sequence[Evaluation], data: LoggedDataset, part: Ints) -> Evaluation:
    """One evaluation of `data` from those of its parts; part: (n,) as for `by_parts`."""
    order = np.argsort(np.argsort(part, kind="stable"), kind="stable")
    outcomes = {
        metric: Evidence(
            *(
                np.concatenate([getattr(one.outcomes[metric], name) for one in parts])[order]
                for name in Evidence.__dataclass_fields__
            )
        )
        for metric in METRICS
    }
    return replace(parts[0], data=data, outcomes=outcomes)


def _around(estimate: Estimate, value: float) -> Estimate:
    """The estimate with another point, moved into its interval."""
    return replace(estimate, value=min(max(value, estimate.low), estimate.high))


def _divided(evidence: Evidence, by: float) -> Evidence:
    return replace(
        evidence, outcome=evidence.outcome / by, model=evidence.model / by, surrogate=evidence.surrogate / by
    )


def _taught(data: LoggedDataset, guess: Floats) -> Floats:
    """(k, n) outcomes to fit models on, in the order of `METRICS`; an unknown quality as the judge's calibrated `guess`
    (n,), so that the models are not those of the rows that happen to be scored."""
    quality = np.where(np.isnan(data.quality), guess, data.quality)
    return np.array([quality if metric == "quality" else getattr(data, metric) for metric in METRICS])


def _label_counts(data: LoggedDataset, rows: Ints) -> Ints | None:
    if not labels.judged(data):
        return None
    return labels.label_counts(data.actions[rows], data.quality[rows], len(data.action_names))


def _evaluation(
    data: LoggedDataset, models: Floats, guess: Floats, counts: Ints | None, confidence: float, seed: int
) -> Evaluation:
    """models (k, n, a) in the order of `METRICS`; guess (n,) of quality."""
    nothing = np.full(len(data), np.nan)
    outcomes: dict[Metric, Evidence] = {}
    for metric, model in zip(METRICS, models, strict=True):
        if metric == "quality":
            outcome, known = labels.known_qualities(data), labels.quality_probabilities(data, seed=seed)
        else:
            outcome = getattr(data, metric)
            known = labels.label_probabilities(
                data.features,
                data.actions,
                nothing,
                (~np.isnan(outcome)).astype(np.int64),
                data.groups,
                len(data.action_names),
                seed=seed,
            )
        surrogate = guess if metric == "quality" else nothing
        outcomes[metric] = Evidence(outcome, known, data.actions, data.behaviour, model, data.groups, surrogate)
    return Evaluation(data, outcomes, confidence, counts)
