"""The sample's orchestrated service logged anew: other chances, the same tasks, their steps and the same script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from optimizer import replay_truth, runs
from optimizer.dataset import Floats
from optimizer.replay_truth import Replay
from optimizer.sequential.episodes import STOP, EpisodeLog
from optimizer.step_truth import features_at, prompts_of


@dataclass(frozen=True, eq=False)
class StepRedraw:
    """What stays the same in every redraw."""

    replay: Replay
    traces: Sequence[str]
    prompts: Mapping[str, Floats]
    """(DIM,) of each trace."""
    groups: Mapping[str, int]
    time_ns: Mapping[str, int]

    @classmethod
    def of(cls, run: Path, truth: Path, service: str) -> StepRedraw:
        """From the run that the sample led to, and the truth beside the sample."""
        replay = replay_truth.read(truth, service)
        assert replay is not None
        firsts = pl.read_parquet(runs.steps_file(run, service)).filter(pl.col("step") == 0).sort("time_ns", "trace_id")
        traces = firsts["trace_id"].to_list()
        return cls(
            replay,
            traces,
            prompts_of(firsts, traces),
            dict(zip(traces, firsts["group"].rank("dense").to_list(), strict=True)),
            dict(zip(traces, firsts["time_ns"].to_list(), strict=True)),
        )

    def draw(self, seed: int) -> EpisodeLog:
        """A log of all traces, each decision drawn by the script's probabilities."""
        rng = np.random.default_rng(seed)
        rows: dict[str, list[Any]] = {
            name: [] for name in ("features", "action", "behaviour", "cost", "latency", "stop", "episode")
        }
        quality = []
        for number, trace in enumerate(self.traces):
            moment = self.replay.begin(trace)
            while not moment.over:
                taken = [self.replay.arms[arm] for arm in moment.taken]
                may = [name for name, can in zip(self.replay.actions, moment.candidates, strict=True) if can]
                chances = self.replay.script.probabilities(taken, may)
                behaviour = np.array([chances.get(name, 0.0) for name in self.replay.actions])
                action = int(rng.choice(len(behaviour), p=behaviour / behaviour.sum()))
                rows["features"].append(features_at(self.prompts[trace], moment.history, self.replay.actions))
                rows["behaviour"].append(behaviour / behaviour.sum())
                rows["action"].append(action)
                rows["episode"].append(number)
                rows["stop"].append(moment.quality if taken else np.nan)
                before = moment
                if self.replay.actions[action] == STOP:
                    rows["cost"].append(0.0)
                    rows["latency"].append(self.replay.stop_s)
                    break
                moment = self.replay.after(moment, action)
                rows["cost"].append(moment.cost_usd - before.cost_usd)
                rows["latency"].append(moment.latency_s - before.latency_s)
            quality.append(moment.quality)
        return EpisodeLog(
            features=np.array(rows["features"]),
            actions=np.array(rows["action"]),
            behaviour=np.array(rows["behaviour"]),
            cost_usd=np.array(rows["cost"]),
            latency_s=np.array(rows["latency"]),
            stop_quality=np.array(rows["stop"]),
            episode=np.array(rows["episode"]),
            quality=np.array(quality),
            groups=np.array([int(self.groups[trace]) for trace in self.traces]),
            time_ns=np.array([self.time_ns[trace] for trace in self.traces]),
            action_names=self.replay.actions,
            propensities_logged=True,
            label_sources=("",),
        )
