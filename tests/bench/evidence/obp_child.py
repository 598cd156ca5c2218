"""Runs in an environment of its own, where obp 0.5.7 is: logs from an .npz, its estimates to a .json.

    python obp_child.py logs.npz results.json

As obp's quickstart does it: one reward model on (context, one-hot action), cross-fitted in three folds, then its
estimators with percentile bootstrap intervals. Unlabelled rows are dropped, which is all that obp lets one do;
propensities that were not logged come of a multinomial logit, at least 0.001.
"""

import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np

warnings.filterwarnings("ignore")
LAMBDAS = [0.1, 0.5, 1.0, 5.0, 10.0, 50.0, 100.0, 500.0, 1000.0, 1e6]
LEAST = 1e-3


def reward_model(reward, kind):
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.linear_model import LogisticRegression, Ridge

    binary = set(np.unique(reward)) <= {0.0, 1.0}
    if kind == "boosted":
        return (
            HistGradientBoostingClassifier(random_state=0) if binary else HistGradientBoostingRegressor(random_state=0)
        )
    return LogisticRegression(max_iter=1000, random_state=0) if binary else Ridge()


def estimators():
    from obp.ope import (
        DirectMethod,
        DoublyRobust,
        DoublyRobustWithShrinkageTuning,
        InverseProbabilityWeighting,
        SelfNormalizedDoublyRobust,
        SelfNormalizedInverseProbabilityWeighting,
        SwitchDoublyRobustTuning,
    )

    return {
        "IPW": InverseProbabilityWeighting(),
        "SNIPW": SelfNormalizedInverseProbabilityWeighting(),
        "DM": DirectMethod(),
        "DR": DoublyRobust(),
        "SNDR": SelfNormalizedDoublyRobust(),
        "DRos": DoublyRobustWithShrinkageTuning(lambdas=LAMBDAS),
        "Switch": SwitchDoublyRobustTuning(lambdas=LAMBDAS),
    }


def propensities(context, action, count):
    from sklearn.linear_model import LogisticRegression

    found = np.full((len(action), count), LEAST)
    model = LogisticRegression(max_iter=1000).fit(context, action)
    found[:, model.classes_] = model.predict_proba(context)
    return np.maximum(found[np.arange(len(action)), action], LEAST)


def run(log, kind, resamples, names):
    from obp.ope import RegressionModel

    known = ~np.isnan(log["reward"])
    context, action = log["context"][known], log["action"][known].astype(int)
    reward, policies = log["reward"][known], log["policies"][:, known]
    count = policies.shape[2]
    pscore = log["behaviour"][known][np.arange(len(action)), action]
    if np.isnan(pscore).any():
        pscore = propensities(context, action, count)
    started = time.process_time()
    model = RegressionModel(n_actions=count, base_model=reward_model(reward, kind))
    expected = model.fit_predict(context=context, action=action, reward=reward, n_folds=3, random_state=0)
    results = []
    for policy in policies:
        found = {}
        for name, estimator in estimators().items():
            if names and name not in names:
                continue
            given = {
                "reward": reward,
                "action": action,
                "pscore": pscore,
                "action_dist": policy[:, :, None],
                "estimated_rewards_by_reg_model": expected,
            }
            low = high = float("nan")
            value = float(estimator.estimate_policy_value(**given))
            if resamples:
                bounds = estimator.estimate_interval(**given, n_bootstrap_samples=resamples, random_state=0)
                low, high = (float(bounds[f"95.0% CI ({side})"]) for side in ("lower", "upper"))
            found[name] = [value, low, high]
        results.append(found)
    return {"policies": results, "seconds": time.process_time() - started, "mean": float(reward.mean())}


def main(source, out):
    with np.load(source) as file:
        settings = json.loads(str(file["settings"]))
        logs = [
            {name: file[f"{number}/{name}"] for name in ("context", "action", "reward", "behaviour", "policies")}
            for number in range(settings["logs"])
        ]
    done = [run(log, settings["heads"], settings["resamples"], settings["names"]) for log in logs]
    Path(out).write_text(json.dumps(done))


if __name__ == "__main__":
    main(*sys.argv[1:])
