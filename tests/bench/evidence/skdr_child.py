"""Runs in an environment of its own, where skdr-eval 0.12.0 is: logs from an .npz, its estimates to a .json.

    python skdr_child.py logs.npz results.json

Its pipeline's steps for a policy given as probabilities: propensities estimated (it does not use logged ones), outcome
model cross-fitted, clipped DR and SNDR, block bootstrap of the contributions with those held fixed. Unlabelled rows are
dropped.
"""

import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np

warnings.filterwarnings("ignore")


def run(log, resamples):
    from skdr_eval import block_bootstrap_ci, dr_value_with_clip, fit_outcome_crossfit, fit_propensity_timecal
    from skdr_eval.core import _clip_weights, _dr_weight_components, _sndr_bootstrap_values

    known = ~np.isnan(log["reward"])
    context, action, reward = log["context"][known], log["action"][known].astype(int), log["reward"][known]
    count = log["policies"].shape[2]
    started = time.process_time()
    propensities, _ = fit_propensity_timecal(context, action, np.arange(len(action)))
    observed = np.column_stack([context, np.eye(count)[action]])
    guess, _ = fit_outcome_crossfit(observed, reward)
    allowed = np.ones((len(action), count))
    results = []
    for policy in log["policies"][:, known]:
        found = {}
        for name, result in dr_value_with_clip(propensities, policy, reward, guess, action, allowed).items():
            low = high = float("nan")
            if resamples:
                _, weight, matched = _dr_weight_components(propensities, policy, action, allowed)
                weight = _clip_weights(weight, matched, result.clip)
                values = guess + weight * (reward - guess)
                if name == "SNDR":
                    values = _sndr_bootstrap_values(guess, weight, reward, guess)
                low, high = block_bootstrap_ci(values, None, np.array([result.V_hat]), n_boot=resamples)
            found[name] = [float(result.V_hat), low, high]
        results.append(found)
    return {"policies": results, "seconds": time.process_time() - started, "mean": float(reward.mean())}


def main(source, out):
    with np.load(source) as file:
        settings = json.loads(str(file["settings"]))
        logs = [
            {name: file[f"{number}/{name}"] for name in ("context", "action", "reward", "policies")}
            for number in range(settings["logs"])
        ]
    Path(out).write_text(json.dumps([run(log, settings["resamples"]) for log in logs]))


if __name__ == "__main__":
    main(*sys.argv[1:])
