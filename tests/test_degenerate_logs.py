"""Logs that hold almost nothing end in a verdict, not in a traceback or a NaN."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from worlds import two_models

from optimizer.dataset import LoggedDataset
from optimizer.gate import Limits
from optimizer.logged import Logged
from optimizer.study import assess, learn
from optimizer.summary import Notes, estimates_frame, probabilities_frame, service_json, training_json


def log(n: int = 400, **changes: object) -> LoggedDataset:
    return replace(two_models(n).draw(0), **changes)


def some(n: int, share: float, value: float = np.nan) -> np.ndarray:
    """Ones, but for a share of rows."""
    result = np.ones(n)
    result[np.random.default_rng(1).random(n) < share] = value
    return result


N = 400
LOGS = {
    "one session": log(groups=np.zeros(N, dtype=np.int64)),
    "two sessions": log(groups=np.repeat([0, 1], N // 2)),
    "three sessions": log(groups=np.repeat([0, 1, 2, 2], N // 4)),
    "one decision": log(1),
    "no spread in features": log(features=np.zeros((N, 4))),
    "one feature": log(features=np.ones((N, 1))),
    "all right": log(quality=np.ones(N)),
    "all wrong": log(quality=np.zeros(N)),
    "free": log(cost_usd=np.zeros(N)),
    "no cost known": log(cost_usd=np.full(N, np.nan)),
    "few costs known": log(cost_usd=some(N, 0.95)),
    "no duration known": log(latency_s=np.full(N, np.nan)),
    "few scores": log(quality=some(N, 0.97)),
    "scores of the oldest only": log(quality=np.where(np.arange(N) < 100, 1.0, np.nan)),
    "scores of the newest only": log(quality=np.where(np.arange(N) > 350, 1.0, np.nan)),
    "scores of one action only": replace(log(), quality=np.where(log().actions == 0, 1.0, np.nan)),
    "one time": log(time_ns=np.zeros(N, dtype=np.int64)),
    "fewer than fifty decisions": log(49),
    "one action only": replace(log(), actions=np.zeros(N, dtype=np.int64)),
    "constant outcomes": log(quality=np.full(N, 0.5), cost_usd=np.full(N, 0.01), latency_s=np.ones(N)),
    "huge costs": log(cost_usd=np.where(np.arange(N) == 7, 1e9, 1e-9)),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", LOGS)
def test_a_verdict_is_reached_and_every_number_is_a_number(name: str) -> None:
    data = LOGS[name]
    logged = Logged(data, None, 0.0)
    limits = Limits(latency_s=1.0)
    lessons = learn(logged, limits, None, epsilon=0.05, seed=0)
    found = assess(data, lessons.suggestion, limits, seed=0)
    assert found.verdict.outcome in ("deploy", "promising", "keep", "cannot_tell")
    assert found.verdict.reasons
    training = training_json(logged, lessons, limits, point="chat", notes=Notes("quality", None))
    said = service_json(data, found, training, ["logged"] * len(data))
    json.dumps([training, said], allow_nan=False)
    for row in estimates_frame("app", found).to_dicts():
        assert (row["value"] is None) == (row["reason"] is not None), row
    shares = probabilities_frame([str(i) for i in range(len(data))], data.action_names, found)
    assert shares["probability"].is_finite().all()
