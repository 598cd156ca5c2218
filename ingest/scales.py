"""What a score means: its number or label on a scale from 0 (bad) to 1 (good). Pure.

    [scores.stars]      min = 1, max = 5
    [scores.toxicity]   invert = true
    [scores.tone]       labels = { friendly = 1.0, neutral = 0.5, rude = 0.0 }

A label that the scale lists has its number. Else the number counts: from `min` to `max`, turned round by `invert`; one
outside of that range means nothing. Without a scale, numbers from 0 to 1 and the words true, false, pass, passed, fail
and failed mean themselves, all else nothing. The lake does the same arithmetic in its view `scores`, on all that it
ever received: a scale that is changed also changes what older scores mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

WORDS: Mapping[str, float] = MappingProxyType(
    {"true": 1.0, "pass": 1.0, "passed": 1.0, "false": 0.0, "fail": 0.0, "failed": 0.0}
)
"""Labels that mean themselves, in any case."""


@dataclass(frozen=True)
class Scale:
    """The scale of the scores called `name`. Raises ValueError for one that maps nothing."""

    name: str
    min: float = 0.0
    max: float = 1.0
    invert: bool = False
    labels: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        if not (math.isfinite(self.min) and math.isfinite(self.max) and self.min < self.max):
            raise ValueError(f"min must be below max, got {self.min} and {self.max}")
        for label, value in self.labels.items():
            if not 0 <= value <= 1:
                raise ValueError(f"the label '{label}' must be from 0 (bad) to 1 (good), got {value}")

    def value01(self, value: float | None, label: str | None) -> float | None:
        """On [0, 1]; None when the scale does not say."""
        if (
            label is not None
            and (known := {k.lower(): v for k, v in self.labels.items()}.get(label.lower())) is not None
        ):
            return known
        if value is None:
            return None if self.labels else _word(label)
        share = (value - self.min) / (self.max - self.min)
        if not 0 <= share <= 1:
            return None
        return 1 - share if self.invert else share


def value01(scale: Scale | None, value: float | None, label: str | None) -> float | None:
    """`Scale.value01`, or what is meant where no scale is declared."""
    if scale is not None:
        return scale.value01(value, label)
    if value is not None and 0 <= value <= 1:
        return value
    return _word(label)


def rows(scales: tuple[Scale, ...], version: int) -> list[tuple[object, ...]]:
    """The rows of the lake's table score_scales: one for each scale, one for each of its labels, and one that only
    says that this version is there."""
    found: list[tuple[object, ...]] = [(version, None, None, None, None, None, None)]
    for scale in sorted(scales, key=lambda scale: scale.name):
        found.append((version, scale.name, scale.min, scale.max, scale.invert, None, None))
        found += [
            (version, scale.name, None, None, None, label.lower(), float(value))
            for label, value in sorted(scale.labels.items())
        ]
    return found


COLUMNS = ("version", "name", "low", "high", "invert", "label", "label_value")
"""Of the table score_scales."""


def _word(label: str | None) -> float | None:
    return None if label is None else WORDS.get(label.lower())
