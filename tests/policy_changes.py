"""What can happen to a policy's files while a proxy runs; and whether what was drawn is what was said."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from policy_hook import NAMES, write
from scipy import stats


class Changes:
    """Random changes to one policy folder: sound ones with an ever higher revision, and all kinds of broken ones."""

    KINDS = (
        "good",
        "canary",
        "disabled",
        "killed",
        "expired",
        "schema",
        "bits",
        "cut",
        "gone",
        "nan",
        "older",
        "alien",
    )

    def __init__(self, policy: Path, draws: random.Random, **settings: Any) -> None:
        self.policy = policy
        self.random = draws
        self.settings = {"service": "desk", "actions": NAMES} | settings
        self.revision = 1
        self.made: Counter[str] = Counter()
        self.shares: dict[str, dict[str, float]] = {}
        """Of each sound version, the probability of every action over all arms."""

    def some(self) -> None:
        """One change, every other a sound one; what a change before it broke stays broken until then."""
        (self.policy / "KILL").unlink(missing_ok=True)
        kind = "good" if self.random.random() < 0.5 else self.random.choice(self.KINDS)
        self.made[kind] += 1
        getattr(self, kind)()

    def good(self, **changes: Any) -> None:
        self.revision += 1
        epsilon = self.random.choice([0.3, 0.6, 1.0])
        made = {"version": f"v{self.revision}", "revision": self.revision, "epsilon": epsilon}
        write(self.policy, **(self.settings | made | changes))
        actions = self.settings["actions"]
        treated, even = changes.get("canary_percent", 100.0) / 100, changes.get("explore_percent", 0.0) / 100
        drawn = (treated * epsilon + even) / len(actions)
        best, incumbent = treated * (1 - epsilon), 1 - treated - even  # the first action, and the second
        self.shares[f"v{self.revision}"] = {
            name: drawn + best * (place == 0) + incumbent * (place == 1) for place, name in enumerate(actions)
        }

    def canary(self) -> None:
        self.good(canary_percent=40.0, explore_percent=20.0)

    def disabled(self) -> None:
        self.good()
        self._manifest(lambda manifest: manifest | {"enabled": False})

    def killed(self) -> None:
        (self.policy / "KILL").touch()

    def expired(self) -> None:
        self.good(expires_at="2026-01-01T00:00:00Z")

    def schema(self) -> None:
        self._manifest(lambda manifest: manifest | {"schema": "policy-bundle/2"})

    def bits(self) -> None:
        path = self._one_of()
        data = bytearray(path.read_bytes() if path.is_file() else b"x" * 100)
        for _ in range(3):
            if data:
                data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
        path.write_bytes(data)

    def cut(self) -> None:
        path = self._one_of()
        data = path.read_bytes() if path.is_file() else b""
        path.write_bytes(data[: len(data) // 2])

    def gone(self) -> None:
        self._one_of().unlink(missing_ok=True)

    def nan(self) -> None:
        self.good()
        np.savez(self.policy / "weights.npz", values=np.full(len(self.settings["actions"]), np.nan))
        digest = "sha256:" + hashlib.sha256((self.policy / "weights.npz").read_bytes()).hexdigest()
        self._manifest(lambda manifest: manifest | {"files": manifest["files"] | {"weights.npz": digest}})

    def older(self) -> None:
        self.good(revision=0)

    def alien(self) -> None:
        self.good(policy_id="other", service="another model")

    def _one_of(self) -> Path:
        return self.policy / self.random.choice(["manifest.json", "weights.npz", "runtime.py"])

    def _manifest(self, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
        path = self.policy / "manifest.json"
        try:
            manifest = json.loads(path.read_bytes())
        except (OSError, ValueError):
            return
        path.write_text(json.dumps(change(manifest)), encoding="utf-8")


def as_often_as_said(said: Iterable[tuple[Mapping[str, float], Mapping[str, int]]]) -> float:
    """The chance of counts as far as these from the probabilities that were logged with them: chi-square, summed over
    pairs of what was said of all actions and how often each was taken."""
    total, freedom = 0.0, 0
    for shares, taken in said:
        count = sum(taken.values())
        assert abs(sum(shares.values()) - 1.0) < 1e-9
        assert all(shares.get(action, 0.0) > 0.0 for action in taken)
        expected = {action: share * count for action, share in shares.items() if share > 0.0}
        if len(expected) > 1 and min(expected.values()) >= 5.0:
            total += sum((taken.get(action, 0) - times) ** 2 / times for action, times in expected.items())
            freedom += len(expected) - 1
    assert freedom
    return float(stats.chi2.sf(total, freedom))
