"""How long a service's study takes: learn, evaluate, certify and judge, beside obp on the same log.

    OBP_VENV=/path/to/venv pytest -m bench -s tests/bench/test_evidence_speed.py

Processor seconds, ours on one thread, so that a busy machine makes little difference; and the largest resident memory.
With OBP_VENV, an environment that holds obp 0.5.7, its defaults see the same log: its reward model of gradient boosting
in three folds, and the bootstrap of SNIPW and DR with 10,000 resamples. Prints a JSON object per measurement.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from optimizer.dataset import Floats, LoggedDataset
from optimizer.gate import Limits
from optimizer.logged import Logged
from optimizer.study import Findings, Lessons, assess, learn
from optimizer.threads import one_thread

pytestmark = pytest.mark.bench

HUNDRED_THOUSAND_S, MILLION_S, MILLION_GB = 6.0, 120.0, 4.0
ACTIONS, FEATURES = 10, 20

OBP = """
import json, sys, time, warnings
import numpy as np
warnings.filterwarnings("ignore")
from obp.ope import DoublyRobust, OffPolicyEvaluation, RegressionModel, SelfNormalizedInverseProbabilityWeighting
from sklearn.ensemble import HistGradientBoostingClassifier
log = np.load(sys.argv[1])
n, actions = len(log["action"]), log["policy"].shape[1]
given = {"action": log["action"], "reward": log["reward"]}
began = time.process_time()
model = RegressionModel(n_actions=actions, base_model=HistGradientBoostingClassifier(random_state=0))
expected = model.fit_predict(context=log["context"], n_folds=3, random_state=0, **given)
fitted = time.process_time() - began
feedback = {"n_rounds": n, "n_actions": actions, "context": log["context"], "pscore": log["pscore"], **given}
feedback["position"] = np.zeros(n, dtype=int)
ope = OffPolicyEvaluation(feedback, [SelfNormalizedInverseProbabilityWeighting(), DoublyRobust()])
ope.estimate_intervals(
    action_dist=log["policy"][:, :, None],
    estimated_rewards_by_reg_model=expected,
    n_bootstrap_samples=10_000,
    random_state=0,
)
print(json.dumps({"fit_s": fitted, "all_s": time.process_time() - began}))
"""


def log(n: int) -> LoggedDataset:
    """Ten models of rising price and skill; how good each is, and how often it is chosen, depends on the prompt.
    Sessions are of two decisions."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(n, FEATURES))
    fit = features @ rng.normal(size=(FEATURES, ACTIONS)) / np.sqrt(FEATURES)
    skill = np.linspace(-0.5, 1.0, ACTIONS) + 0.5 * np.tanh(features[:, :1] * features[:, 1:2])
    quality = 1 / (1 + np.exp(-fit - skill))
    taste = np.exp(0.7 * features @ rng.normal(size=(FEATURES, ACTIONS)) / np.sqrt(FEATURES))
    behaviour = 0.7 * taste / taste.sum(axis=1, keepdims=True) + 0.3 / ACTIONS
    rows = np.arange(n)
    actions = (rng.random(n)[:, None] > np.cumsum(behaviour, axis=1)[:, :-1]).sum(axis=1)
    size = np.exp(0.5 * features[:, 2]) * rng.gamma(4, 0.25, n)
    return LoggedDataset(
        features=features,
        actions=actions,
        quality=(rng.random(n) < quality[rows, actions]) * 1.0,
        cost_usd=np.linspace(0.001, 0.01, ACTIONS)[actions] * size,
        latency_s=(1 + 0.2 * actions) * rng.gamma(4, 0.25, n),
        behaviour=behaviour,
        groups=rows // 2,
        time_ns=rows,
        action_names=tuple(f"model-{number}" for number in range(ACTIONS)),
        propensities_logged=True,
    )


def study(data: LoggedDataset) -> tuple[Lessons, Findings, dict[str, float]]:
    """What is found, with processor and wall seconds."""
    with one_thread():
        began, wall = time.process_time(), time.monotonic()
        lessons = learn(Logged(data, None, 0.0), Limits(), None, epsilon=0.05, seed=0)
        learned = time.process_time()
        findings = assess(data, lessons.suggestion, Limits(), seed=0)
        spent = {
            "learn_cpu_s": round(learned - began, 2),
            "assess_cpu_s": round(time.process_time() - learned, 2),
            "cpu_s": round(time.process_time() - began, 2),
            "wall_s": round(time.monotonic() - wall, 2),
        }
    return lessons, findings, spent


def say(what: str, **figures: object) -> None:
    print(json.dumps({"what": what, **figures}))


def peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def obp(data: LoggedDataset, policy: Floats, folder: Path) -> dict[str, float] | None:
    """obp's processor seconds on the same log and policy (n, a); None without an environment for it."""
    if (venv := os.environ.get("OBP_VENV")) is None:
        return None
    where = folder / "log.npz"
    np.savez(
        where,
        context=data.features,
        action=data.actions,
        reward=data.quality.astype(int),
        pscore=data.propensities,
        policy=policy,
    )
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    found = subprocess.run(
        [f"{venv}/bin/python", "-c", OBP, str(where)], capture_output=True, check=True, env={**os.environ, **threads}
    )
    seconds: dict[str, float] = json.loads(found.stdout.splitlines()[-1])
    return seconds


def test_a_hundred_thousand_decisions_are_judged_in_six_seconds(tmp_path: Path) -> None:
    study(log(2000))  # loads the libraries
    data = log(100_000)
    lessons, found, spent = study(data)
    assert lessons.suggestion.model is not None
    assert found.verdict.outcome == "deploy"
    policy = lessons.suggestion.model.probabilities(data.features, np.ones((len(data), ACTIONS), dtype=np.bool_))
    rival = obp(data, policy, tmp_path)
    ratio = {} if rival is None else {"obp": rival, "times_faster": round(rival["all_s"] / spent["cpu_s"], 1)}
    say("100,000 decisions", **spent, peak_gb=round(peak_gb(), 2), **ratio)
    assert spent["cpu_s"] <= HUNDRED_THOUSAND_S


def test_a_million_decisions_are_judged_in_two_minutes_and_four_gigabytes() -> None:
    _, found, spent = study(log(1_000_000))
    say("1,000,000 decisions", **spent, peak_gb=round(peak_gb(), 2))
    assert found.verdict.outcome == "deploy"
    assert spent["cpu_s"] <= MILLION_S
    assert peak_gb() <= MILLION_GB
