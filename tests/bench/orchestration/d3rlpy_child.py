"""Runs in an environment of its own, where d3rlpy 2.8.1 is: an episode log from an .npz, its policies to a .json.

    python d3rlpy_child.py log.npz results.json

Every discrete learner there is, each for as many processor seconds as it is told: conservative Q-learning, batch
constrained Q-learning and behaviour cloning, with their defaults, and with what suits so small a log (learning rate
1e-3, batches of 256, a target network that is renewed every 200 updates, no discount). Observations and rewards are
standardised by d3rlpy's own scalers.
"""

import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np

warnings.filterwarnings("ignore")
STEPS = 250
"""Updates between two looks at the clock."""


def learners():
    from d3rlpy.algos import DiscreteBCConfig, DiscreteBCQConfig, DiscreteCQLConfig
    from d3rlpy.preprocessing import StandardObservationScaler, StandardRewardScaler

    looks = {"observation_scaler": StandardObservationScaler()}
    quick = {**looks, "gamma": 1.0, "batch_size": 256, "learning_rate": 1e-3}
    values = {**quick, "target_update_interval": 200, "reward_scaler": StandardRewardScaler()}
    return {
        "CQL": DiscreteCQLConfig(**looks),
        "CQL tuned": DiscreteCQLConfig(**values, alpha=0.3),
        "BCQ": DiscreteBCQConfig(**looks),
        "BCQ tuned": DiscreteBCQConfig(**values, action_flexibility=0.02),
        "BC": DiscreteBCConfig(**looks),
        "BC tuned": DiscreteBCConfig(**quick),
    }


def dataset(log):
    from d3rlpy.constants import ActionSpace
    from d3rlpy.dataset import MDPDataset

    return MDPDataset(
        observations=log["features"].astype(np.float32),
        actions=log["actions"].astype(np.int64)[:, None],
        rewards=log["rewards"].astype(np.float32)[:, None],
        terminals=log["last"].astype(np.float32),
        action_space=ActionSpace.DISCRETE,
        action_size=int(log["action_count"]),
    )


def taught(config, data, seconds):
    from d3rlpy.logging import NoopAdapterFactory

    algorithm = config.create(device="cpu:0")
    started, updates = time.process_time(), 0
    how = {"n_steps": 10**9, "n_steps_per_epoch": STEPS, "show_progress": False, "logger_adapter": NoopAdapterFactory()}
    for _ in algorithm.fitter(data, **how):
        updates += STEPS
        if time.process_time() - started >= seconds:
            break
    return algorithm, updates, time.process_time() - started


def main(source, out):
    import d3rlpy
    import torch

    torch.set_num_threads(1)
    with np.load(source) as file:
        log = {name: file[name] for name in file.files}
    data, wanted = dataset(log), json.loads(str(log["learners"]))
    found = {}
    for name, config in learners().items():
        if wanted and name not in wanted:
            continue
        d3rlpy.seed(int(log["seed"]))
        algorithm, updates, spent = taught(config, data, float(log["seconds"]))
        actions = algorithm.predict(log["states"].astype(np.float32))
        found[name] = {"actions": np.asarray(actions).tolist(), "updates": updates, "seconds": spent}
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
