"""How often the decisions that judge a policy were looked at before, and what another look costs.

A policy that is made anew each night and judged on the same decisions will pass by luck some night. The first look at
decisions has the whole error alpha that the limits allow; the k-th further one has alpha / 2^k, so that all further
looks at them together add no more than another alpha. To judge the same once more is no further look.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

_FILE = "looks.jsonl"


@dataclass(frozen=True)
class Look:
    """A policy of a service at a decision point, judged on the decisions between two times (ns)."""

    service: str
    point: str
    from_ns: int
    to_ns: int
    judged: str
    """Fingerprint of what the policy does at these decisions."""

    def overlaps(self, other: Look) -> bool:
        """Whether both may have looked at the same decision."""
        same = (self.service, self.point) == (other.service, other.point)
        return same and self.from_ns <= other.to_ns and other.from_ns <= self.to_ns


def earlier(home: Path, look: Look) -> int:
    """How many other looks at some of the same decisions came before this one."""
    before = 0
    for known in _read(home):
        if known == look:
            break
        before += known.overlaps(look)
    return before


def record(home: Path, looks: Sequence[Look]) -> None:
    """Note looks, each once. They stay when the folder of their run is deleted."""
    known = set(_read(home))
    fresh = ["\n" + json.dumps(asdict(look)) for look in looks if look not in known]  # after a line cut short, too
    if fresh:
        with (home / "runs" / _FILE).open("a", encoding="utf-8") as file:
            file.writelines(fresh)


def charged(confidence: float, further: int) -> float:
    """The confidence of the intervals at the `further`-th look after the first: 1 - (1 - confidence) / 2^further."""
    return 1 - (1 - confidence) / 2.0**further


def _read(home: Path) -> list[Look]:
    path = home / "runs" / _FILE
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(Look(**json.loads(line)))
        except (ValueError, TypeError):  # empty, or cut short by a full disk
            continue
    return found
