"""What learners expect at single decisions, kept so that any price of quality can be tried on it: see `at_price`.

Legend: n decisions, a actions of the log, k actions that were learned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from optimizer import kept_scores
from optimizer.dataset import Bools, Floats, Ints, LoggedDataset
from optimizer.evidence import Evaluation
from optimizer.frontier import PRICES, PricePoint
from optimizer.kept_scores import About
from optimizer.learners import Candidate, Lesson
from optimizer.learners.candidates import LINEAR, NEAREST


@dataclass(frozen=True, eq=False)
class Expected:
    """What the learners expect at some decisions."""

    able: Bools
    """(n, k) actions that can serve each; where none can, it stays as it is today."""
    quality: Mapping[str, Floats]
    """Of each linear learner (n, k)."""
    cost_usd: Mapping[str, Floats]
    learned: Mapping[str, Floats]
    """Label of a candidate that stays as it was learned -> (n, k) what it does."""

    def take(self, rows: Ints) -> Expected:
        """The same of these rows only."""
        parts = ({name: one[rows] for name, one in of.items()} for of in (self.quality, self.cost_usd, self.learned))
        return Expected(self.able[rows], *parts)

    def columns(self) -> dict[str, pl.Series]:
        """As columns of a table."""
        found = {"able": pl.Series(self.able.astype(np.int8))}
        for name in self.quality:
            found |= {
                f"{name}: quality": pl.Series(self.quality[name]),
                f"{name}: cost_usd": pl.Series(self.cost_usd[name]),
            }
        return found | {f"does: {label}": pl.Series(does) for label, does in self.learned.items()}

    @classmethod
    def read(cls, frame: pl.DataFrame, k: int) -> Expected:
        """What `columns` made."""

        def of(name: str) -> Floats:
            return kept_scores.matrix(frame, name, k)

        return cls(
            of("able") > 0,
            {name: of(f"{name}: quality") for name in LINEAR},
            {name: of(f"{name}: cost_usd") for name in LINEAR},
            {name[6:]: of(name) for name in frame.columns if name.startswith("does: ")},
        )


def expected(
    lesson: Lesson, tried: Sequence[Candidate], data: LoggedDataset, does: Mapping[str, Floats] | None = None
) -> Expected:
    """What was learned in `lesson` expects of `data`. tried: the candidates, with what their actions cannot serve.
    does: (n, a) of each by its label where that is known already."""
    heads = {"plug-in": lesson.plugin, "doubly robust": lesson.robust}
    predicted = {name: heads[name].predict(data.features) for name in LINEAR}
    able = tried[0].model.able(data.features)
    columns = [data.action_names.index(name) for name in lesson.action_names]
    nearest = [one for one in tried if one.label.startswith(NEAREST)]
    learned = {
        one.label: one.model.probabilities(data.features, able | ~able.any(axis=1, keepdims=True))
        if does is None
        else does[one.label][:, columns]
        for one in nearest
    }
    return Expected(
        able, {name: q for name, (q, _) in predicted.items()}, {name: c for name, (_, c) in predicted.items()}, learned
    )


def joined(parts: Sequence[Expected], order: Ints) -> Expected:
    """One of several; order: (n,) the place of each decision in the parts one after another."""

    def together(of: Sequence[Mapping[str, Floats]]) -> dict[str, Floats]:
        names = [name for name in of[0] if all(name in one for one in of)]
        return {name: np.concatenate([one[name] for one in of])[order] for name in names}

    return Expected(
        np.concatenate([one.able for one in parts])[order],
        together([one.quality for one in parts]),
        together([one.cost_usd for one in parts]),
        together([one.learned for one in parts]),
    )


@dataclass(frozen=True, eq=False)
class PriceScores:
    """What `train` keeps: both kinds of decisions, and how the price was set."""

    value_usd: float
    epsilon: float
    learned: tuple[str, ...]
    """(k,) names."""
    chose: Evaluation
    """Of the decisions that chose."""
    chose_rows: Ints
    """(n,) their places in the log."""
    expected: Expected
    """At them."""
    judging: Expected
    """At the decisions that will judge, of many the newest."""
    judging_rows: Ints
    """(m,) their places in the log."""
    level: float
    """Pointwise level of the curve's band."""


def level_of(curve: Sequence[PricePoint], confidence: float) -> float:
    """The pointwise level at which intervals hold at all prices at once: that of the curve, else by Bonferroni."""
    return curve[0].level if curve else 1 - (1 - confidence) / len(PRICES)


def scores_json(kept: PriceScores) -> dict[str, Any]:
    """What training.json says of the kept scores under `scores`."""
    return {
        "value_usd": kept.value_usd,
        "epsilon": kept.epsilon,
        "learned": list(kept.learned),
        "level": kept.level,
        **asdict(About.of(kept.chose)),
    }


def chose_frame(kept: PriceScores, ids: pl.Series) -> pl.DataFrame:
    """The table of the decisions that chose; ids: of all decisions of the log."""
    newest = kept_scores.newest(kept.chose.data.time_ns)
    frame = kept_scores.frame_of(kept.chose.take(newest), ids.gather(kept.chose_rows[newest]))
    return frame.with_columns(**kept.expected.take(newest).columns())


def judging_frame(kept: PriceScores, ids: pl.Series) -> pl.DataFrame:
    """What the learners expect at the decisions that will judge: `decision_id` and the columns of `Expected`."""
    return pl.DataFrame({"decision_id": ids.gather(kept.judging_rows), **kept.judging.columns()})
