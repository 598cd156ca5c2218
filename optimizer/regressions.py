"""Who gains and who loses by a suggestion: its change by segment, against its previous version, and where it is
expected to do worst.

Segments are those that retroute.toml states, and simple ones that anybody can check: how long a prompt is, what it
asks for, whether a session goes on, what is done today, what is suggested. All are known before the decision; by what
was drawn no segment may be made, since that says how it ended. Legend: m judged decisions, a actions.

Of many segments some look bad by chance. All intervals together hold at the confidence of the limits (Bonferroni: each
of s segments has two, so each is at 1 - (1 - confidence) / (2 s)), and a segment counts as losing only where its whole
interval is past the limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from optimizer.dataset import Bools, Floats, Ints, LoggedDataset
from optimizer.evidence import Evaluation, Outcome, Refused, savings
from optimizer.gate import Limits
from optimizer.runtime import DENSE
from optimizer.summary import estimate_json

LEAST = 50
"""Judged decisions of a segment; smaller ones are named, and no more."""
WORST = 10
STATED = "Stated in retroute.toml"

Flag = Literal["better", "worse", "inside", "unclear", "refused"]
"""better, worse: all of the interval is above 0, or past the limit. inside: all of it keeps the limit."""


@dataclass(frozen=True, eq=False)
class Segment:
    """A part of the judged decisions. rows: (m,)."""

    dimension: str
    name: str
    rows: Bools


@dataclass(frozen=True)
class Part:
    """What the suggestion changes in a segment. saving: USD per 1,000 decisions."""

    dimension: str
    name: str
    decisions: int
    changed: float
    """Share of its decisions that are made otherwise than today."""
    saving: Outcome
    quality: Outcome

    @property
    def cost_flag(self) -> Flag:
        return flag(self.saving, 0.0)

    def quality_flag(self, margin: float) -> Flag:
        return flag(self.quality, margin)


def flag(change: Outcome, margin: float) -> Flag:
    """What the interval of a change says, of which more is better and a fall by `margin` tolerated."""
    if isinstance(change, Refused):
        return "refused"
    if change.high < -margin:
        return "worse"
    if change.low > 0:
        return "better"
    return "inside" if margin and change.low >= -margin else "unclear"


def segments(
    known: LoggedDataset, judged: LoggedDataset, policy: Floats, stated: Mapping[str, Bools]
) -> tuple[list[Segment], list[Segment]]:
    """The segments of the judged decisions that are large enough, and those that are not. known: decisions that the
    bounds of lengths come from. policy: (m, a). stated: (m,) of each segment of retroute.toml."""
    found = [Segment(STATED, name, rows) for name, rows in stated.items()]
    for dimension, parts in _dimensions(known, judged, policy).items():
        own = [Segment(dimension, name, rows) for name, rows in parts.items() if rows.any()]
        if sum(int(one.rows.sum()) >= LEAST for one in own) >= 2:  # one alone says what all decisions say
            found += own
    large = [one for one in found if one.rows.sum() >= LEAST]
    return large, [one for one in found if one.rows.sum() < LEAST]


def _dimensions(known: LoggedDataset, judged: LoggedDataset, policy: Floats) -> dict[str, dict[str, Bools]]:
    found: dict[str, dict[str, Bools]] = {}
    if judged.features.shape[1] >= len(DENSE) and len(known):
        told = {name: judged.features[:, place] for place, name in enumerate(DENSE)}
        found["Prompt length"] = _lengths(known.features[:, DENSE.index("characters")], told["characters"])
        found["Tools"] = _either(told["tools"] > 0, "tools offered", "no tools")
        found["Answer"] = _either(told["json_response"] > 0, "JSON asked for", "no JSON asked for")
        found["Code"] = _either(told["code_fences"] > 0, "with code blocks", "no code blocks")
        found["Attachments"] = _either(told["attachments"] > 0, "with attachments", "no attachments")
        found["Script"] = _either(
            told["non_ascii_share"] > 0.1, "over 10% of characters outside ASCII", "mostly ASCII characters"
        )
        found["Turn"] = _either(told["assistant_messages"] > 0, "later turns", "first turns")
    sizes = np.bincount(np.unique(judged.groups, return_inverse=True)[1])
    alone = sizes[np.unique(judged.groups, return_inverse=True)[1]] == 1
    found["Session"] = _either(alone, "one decision", "several decisions")
    found["Mostly done today"] = _by_action(judged.behaviour, judged.action_names)
    found["Suggested"] = _by_action(policy, judged.action_names)
    return found


def _lengths(known: Floats, judged: Floats) -> dict[str, Bools]:
    """Thirds of the known prompts by their characters (log1p), in words."""
    low, high = (int(np.expm1(at)) for at in np.quantile(known, (1 / 3, 2 / 3)))
    count = np.expm1(judged)
    return {
        f"up to {low:,} characters": count < low + 1,
        f"{low + 1:,} to {high:,} characters": (count >= low + 1) & (count < high + 1),
        f"over {high:,} characters": count >= high + 1,
    }


def _either(rows: Bools, holds: str, fails: str) -> dict[str, Bools]:
    return {holds: rows, fails: ~rows}


def _by_action(probabilities: Floats, names: tuple[str, ...]) -> dict[str, Bools]:
    most = probabilities.argmax(axis=1)
    return {name: most == number for number, name in enumerate(names)}


def parts(evaluation: Evaluation, policy: Floats, found: list[Segment], limits: Limits) -> list[Part]:
    """The change in each segment, at intervals that hold all together. policy: (m, a)."""
    wide = replace(evaluation, confidence=adjusted(limits.confidence, len(found)))
    return [_part(wide, policy, one) for one in found]


def adjusted(confidence: float, count: int) -> float:
    """The confidence of each of two intervals of `count` segments, so that all hold together (Bonferroni)."""
    return 1 - (1 - confidence) / (2 * max(count, 1))


def _part(wide: Evaluation, policy: Floats, one: Segment) -> Part:
    rows = np.flatnonzero(one.rows)
    own, does = wide.take(rows), policy[rows]
    changed = float(np.abs(does - own.data.behaviour).sum(axis=1).mean()) / 2
    saving, quality = savings(own.change("cost_usd", does)), own.change("quality", does)
    return Part(one.dimension, one.name, len(rows), changed, saving, quality)


@dataclass(frozen=True)
class Worst:
    """A judged decision where the outcome model expects the quality to fall, and what it expects of it."""

    row: int
    today: str
    """What is most likely done there today."""
    suggested: str
    quality_today: float
    quality: float
    saving: float
    """USD per 1,000 such decisions."""


def worst(evaluation: Evaluation, policy: Floats, count: int = WORST) -> list[Worst]:
    """The decisions whose expected quality falls most under the policy (m, a): predictions of a model, not findings."""
    quality, cost = evaluation.outcomes["quality"].model, evaluation.outcomes["cost_usd"].model
    behaviour, names = evaluation.data.behaviour, evaluation.data.action_names
    if np.isnan(quality).any() or np.isnan(cost).any():
        return []
    today, then = (behaviour * quality).sum(axis=1), (policy * quality).sum(axis=1)
    saved = 1000 * ((behaviour - policy) * cost).sum(axis=1)
    order: Ints = np.argsort(then - today, kind="stable")[:count]
    return [
        Worst(
            int(row),
            names[int(behaviour[row].argmax())],
            names[int(policy[row].argmax())],
            float(today[row]),
            float(then[row]),
            float(saved[row]),
        )
        for row in order
        if then[row] < today[row]
    ]


def to_json(
    known: LoggedDataset,
    evaluation: Evaluation,
    policy: Floats | None,
    limits: Limits,
    *,
    stated: Mapping[str, Bools],
    decisions: list[dict[str, Any]],
) -> dict[str, Any]:
    """What regressions.json keeps of a service. policy: (m, a) on the judged decisions, None where nothing is
    suggested; decisions: trace_id and time_ns of each of them."""
    if policy is None or not len(evaluation.data):
        return nothing("nothing is suggested")
    large, small = segments(known, evaluation.data, policy, stated)
    return said(parts(evaluation, policy, large, limits), small, worst(evaluation, policy), limits, decisions)


def nothing(reason: str) -> dict[str, Any]:
    """The same where there is nothing to say."""
    return {"refused": reason, "segments": [], "small": [], "worst": []}


def said(
    found: list[Part],
    small: list[Segment],
    worst_of: list[Worst],
    limits: Limits,
    decisions: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The findings as JSON. decisions: trace_id and time_ns of all that judge."""
    margin = limits.quality_margin
    return {
        "refused": None,
        "method": "Bonferroni",
        "confidence": limits.confidence,
        "each": adjusted(limits.confidence, len(found)),
        "intervals": 2 * len(found),
        "quality_margin": margin,
        "segments": [
            {
                "dimension": one.dimension,
                "segment": one.name,
                "decisions": one.decisions,
                "changed_share": one.changed,
                "savings_usd_per_1k": estimate_json(one.saving),
                "quality_change": estimate_json(one.quality),
                "cost_flag": one.cost_flag,
                "quality_flag": one.quality_flag(margin),
            }
            for one in found
        ],
        "small": [{"dimension": one.dimension, "segment": one.name, "decisions": int(one.rows.sum())} for one in small],
        "worst": [
            {
                **decisions[one.row],
                "today": one.today,
                "suggested": one.suggested,
                "quality_today": one.quality_today,
                "quality_suggested": one.quality,
                "savings_usd_per_1k": one.saving,
            }
            for one in worst_of
        ],
    }
