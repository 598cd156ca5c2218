"""What would decide an open verdict on an orchestrated service: how many more traces, explored one step each.

The gate looks at the newest fifth of a log. Its interval narrows with the square root of the effective episodes, and
these grow with the traces while the app goes on to explore as it did.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from optimizer.evidence import Outcome, Refused
from optimizer.gate import Limits
from optimizer.sequential.episodes import EpisodeLog
from optimizer.sequential.evaluation import MIN_EFFECTIVE
from optimizer.sizing import wanted_half_width

DAY_NS = 86_400_000_000_000
LONGEST = 100.0
"""Times the log's length beyond which more of the same is no plan."""


def in_a_sentence(
    log: EpisodeLog, quality: Outcome, effective: float | None, limits: Limits, refused: str
) -> dict[str, Any]:
    """`text`, `decisions_needed` (traces) and `days`, the latter null where no number can be given.

    quality: the change as it was judged; effective: episodes behind it, None without a suggestion; refused: why.
    """
    days = (int(log.time_ns.max()) - int(log.time_ns.min())) / DAY_NS
    per_day = len(log) / days if days > 0 else None
    draw = (
        "let the app draw one step of each trace evenly among its agents and STOP, and log policy.candidates and "
        "policy.probabilities with every step (an exported orchestrator does)"
    )
    if effective is None:
        return {"text": f"{draw}; until then: {refused}", "decisions_needed": None, "days": None}
    times = 1.25 * MIN_EFFECTIVE / max(effective, 1e-9)
    if not isinstance(quality, Refused):
        half = (quality.high - quality.low) / 2
        wanted = wanted_half_width(quality, limits)
        times = max(times, (half / wanted) ** 2 if wanted > 0 else np.inf)
    if not times < LONGEST:
        return {
            "text": f"{draw}: exploring as it does now, the log would have to be more than {LONGEST:.0f} times as long",
            "decisions_needed": None,
            "days": None,
        }
    more = int(np.ceil(max(times - 1.0, 0.1) * len(log)))
    took = None if per_day is None else more / per_day
    at_rate = "" if took is None or per_day is None else f", {max(took, 0.1):,.1f} days at {per_day:,.0f} a day"
    text = f"about {more:,} more traces that explore as these do{at_rate}; fewer if more of them explore: {draw}"
    return {"text": text, "decisions_needed": more, "days": took}
