"""The truth beside findings on an orchestrated service of the sample: policies replayed on the judging traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from optimizer import bundle, replay_truth, runs
from optimizer.dataset import Floats, split
from optimizer.replay_truth import Policy, Replay
from optimizer.runtime import DENSE, DIM, Model, history_features
from optimizer.sequential.logged import to_episodes
from optimizer.sequential.service import SEED
from optimizer.truth import OUTCOMES, TODAY, Truth

_HISTORY = DENSE.index("history")


def values(folder: Path, run: Path, service: str, training: Mapping[str, Any]) -> dict[str, Truth | None]:
    """The truth per policy, over the traces that judged it. folder: of the truth's files; training: what training.json
    keeps of the service. Empty where nothing is known."""
    replay, steps = replay_truth.read(folder, service), runs.steps_file(run, service)
    if replay is None or not steps.is_file():
        return {}
    rows = pl.read_parquet(steps)
    episodes = to_episodes(rows, seed=SEED)
    judged = split(episodes.log.groups, episodes.log.time_ns).certify
    tasks = [episodes.trace_ids[place] for place in judged]
    found: dict[str, Truth | None] = {TODAY: replay_truth.value(replay, replay_truth.of_script(replay), tasks)}
    for name in ("cheapest", "strongest"):
        if training[name] is not None:
            route = replay_truth.of_route(replay, [(training[name], replay.script.limit)])
            found[name] = replay_truth.value(replay, route, tasks)
    if training["label"] is not None:
        model = bundle.read_policy(runs.policy_folder(run, service))[0]
        policy = of_prompts(model, replay, prompts_of(rows, episodes.trace_ids))
        whole, share = replay_truth.value(replay, policy, tasks), training["share"]
        now = found[TODAY]
        assert now is not None
        mixed = {name: share * getattr(whole, name) + (1 - share) * getattr(now, name) for name in OUTCOMES}
        found["suggested"] = Truth(**mixed)
    return found


def of_prompts(model: Model, replay: Replay, prompts: Mapping[str, Floats]) -> Policy:
    """The model by the features (DIM,) of each task's prompt."""
    return replay_truth.of_model(
        model, replay, lambda moment: features_at(prompts[moment.task], moment.history, model.actions)
    )


def features_at(prompt: Floats, history: Sequence[Mapping[str, object]], actions: Sequence[str]) -> Floats:
    """(144 + 2a,) what an orchestrator with these actions reads after the steps of the history."""
    known = prompt.copy()
    known[_HISTORY] = np.float16(np.log1p(len(history)))
    return np.concatenate([known, history_features(history, actions)])


def prompts_of(rows: pl.DataFrame, trace_ids: Sequence[str]) -> dict[str, Floats]:
    """(DIM,) features of the prompt of each trace, from its step rows."""
    firsts = rows.filter((pl.col("step") == 0) & pl.col("trace_id").is_in(list(trace_ids)))
    features = firsts["features"].to_numpy().astype(np.float64).reshape(-1, DIM)
    return dict(zip(firsts["trace_id"].to_list(), features, strict=True))
