"""Episodes of an agent that is routed step by step, played from the arms' own logged episodes.

The rules are those of `optimizer.replay_truth`: an arm gives its next logged step on the task, sees only what it did
itself, as in its log, and the best reward so far is the quality.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from outcomes import STEP_GAP_US, Call, Task, Tool

from optimizer.replay_truth import Replay, Script, Steps
from optimizer.sequential.episodes import STOP

ROUTE_US = 300  # what a decision takes, an assumption
DRAWS = 2  # uniform numbers per decision: whether to explore, and what


@dataclass(frozen=True)
class Decision:
    """One decision. `call` is what the arm did next; None for STOP."""

    action: str
    probabilities: Mapping[str, float]
    """Of every candidate, given all that came before."""
    explored: bool
    call: Call | None

    @property
    def latency_us(self) -> int:
        """Until the next decision, or the end of the trace."""
        return ROUTE_US + STEP_GAP_US + (0 if self.call is None else step_us(self.call))


def step_us(call: Call) -> int:
    """Of a step's model call and its tool, with the agent's own work after each."""
    return call.latency_us + _tool(call).latency_us + 2 * STEP_GAP_US


@dataclass(frozen=True)
class Episode:
    """All decisions of one trace."""

    decisions: tuple[Decision, ...]

    @property
    def quality(self) -> float:
        """The best reward."""
        return max(_tool(decision.call).reward for decision in self.decisions if decision.call)

    @property
    def calls(self) -> tuple[Call, ...]:
        """All model calls, in order."""
        return tuple(decision.call for decision in self.decisions if decision.call)

    @property
    def latency_us(self) -> int:
        """From the first to the last moment of the trace."""
        return sum(decision.latency_us for decision in self.decisions)


def draw(task: Task, script: Script, uniforms: np.ndarray) -> Episode:
    """One episode of the script on a task. uniforms: (limit * `DRAWS`,) in [0, 1)."""
    used: Counter[str] = Counter()
    taken: list[str] = []
    decisions: list[Decision] = []
    best = 0.0
    while best < 1 and len(taken) < script.limit:
        candidates = [arm for arm, outcome in task.outcomes.items() if used[arm] < len(outcome.calls)]
        candidates += [STOP] if taken else []
        coin, which = uniforms[DRAWS * len(taken) : DRAWS * (len(taken) + 1)]
        explored = bool(coin < script.share(taken))
        action = _pick(script.drawn(taken, candidates), which) if explored else script.usual(taken, candidates)
        call = None if action == STOP else task.outcomes[action].calls[used[action]]
        decisions.append(Decision(action, script.probabilities(taken, candidates), explored, call))
        if call is None:
            break
        used[action] += 1
        taken.append(action)
        best = max(best, _tool(call).reward)
    return Episode(tuple(decisions))


def replay(
    traces: Iterable[tuple[str, Task]],
    arms: tuple[str, ...],
    prices: Mapping[str, tuple[float, float]],
    script: Script,
) -> Replay:
    """Everything that could have happened in the traces."""
    every = {trace: tuple(_steps(task.outcomes[arm].calls, arm, prices) for arm in arms) for trace, task in traces}
    return Replay(arms, every, script, (ROUTE_US + STEP_GAP_US) / 1e6)


def _steps(calls: Iterable[Call], arm: str, prices: Mapping[str, tuple[float, float]]) -> Steps:
    price_in, price_out = prices[arm.split("|")[0]]
    calls = list(calls)
    return Steps(
        reward=[_tool(call).reward for call in calls],
        cost_usd=[(call.input_tokens * price_in + call.output_tokens * price_out) / 1e6 for call in calls],
        latency_s=[(ROUTE_US + STEP_GAP_US + step_us(call)) / 1e6 for call in calls],
        tokens=[call.input_tokens + call.output_tokens for call in calls],
        failed=[_tool(call).failed for call in calls],
        output=[_tool(call).result for call in calls],
    )


def _tool(call: Call) -> Tool:
    if call.tool is None:
        raise ValueError(f"a step of {call.model} without its tool")
    return call.tool


def _pick(probabilities: Mapping[str, float], uniform: float) -> str:
    place = int(np.searchsorted(np.cumsum(list(probabilities.values())), uniform, side="right"))
    return list(probabilities)[min(place, len(probabilities) - 1)]
