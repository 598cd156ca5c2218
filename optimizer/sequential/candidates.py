"""Candidate policies of an orchestrated service, the simplest first, each as a model that a router carries.

Legend: n decisions, a actions of which the last is STOP.
"""

from __future__ import annotations

import numpy as np

from optimizer.dataset import Bools, Floats
from optimizer.learners import Candidate
from optimizer.ope.estimators import effective
from optimizer.rewards import RewardSpec
from optimizer.runtime import width
from optimizer.sequential import routes, students, torch_learners
from optimizer.sequential.decision_trees import Tree, always, model, rebuilt, simplified
from optimizer.sequential.episodes import EpisodeLog
from optimizer.sequential.evaluation import carried, weighted_per_decision
from optimizer.sequential.fitted_q import Reward, fitted_q, returns, stop_margins, tried, utility
from optimizer.sequential.policies import constant_route, on_log

SWEEPS, MEMBERS = 3, 3
KEPT_CASCADES = 8
"""Those that the training episodes say most of, and best."""
LEAST_EFFECTIVE = 30.0
POINTS = 3
"""Steps at which a policy that changes this one alone is a candidate."""
MOST_STEPS = 8
"""Of the routes that stop after a fixed number of steps."""
MOST_AGENTS = 6
"""That cascades are made of, the commonest."""
LEAST_ROWS = 50
"""Decisions at a step, for a policy that changes this one to be learned."""


def candidates(
    log: EpisodeLog,
    reward: RewardSpec,
    *,
    seed: int,
    taught_by: Reward | None = None,
    neural: torch_learners.Settings | None = None,
) -> list[Candidate]:
    """Routes without learning, then learned ones: when to stop, one step, every step; as a tree, then as a forest.

    taught_by: the reward that the fitted values are of; None: `reward`, which ranks cascades as well.
    neural: asks for the neural learners too, which else join beyond `torch_learners.MOST_ROWS` decisions.
    ValueError for features that are not a router's (`runtime.width`).
    """
    names, agents = log.action_names, _agents(log)
    if log.features.shape[1] != width(names):
        raise ValueError(f"candidates need the {width(names)} features of a router, got {log.features.shape[1]}")
    logged = routes.as_logged(log, seed=seed)
    may = tried(log)
    may[log.first, log.stop] = False
    found = [Candidate("the script of today", 0, model([logged], names))]
    found += [Candidate(f"always {names[agent]}", 0, constant_route(names[agent], names)) for agent in agents]
    if may[:, log.stop].any():
        found += [
            Candidate(f"the script of today, stop after {k} step{'s'[: k > 1]}", 0, routes.stop_after(logged, k, names))
            for k in range(1, min(log.horizon, MOST_STEPS + 1))
        ]
        found += _cascades(log, reward, agents)
    if np.isnan(utility(log, reward)).all() or np.isnan(log.quality).all():
        return found
    lesson = reward if taught_by is None else taught_by
    learner = fitted_q(log, lesson, may, seed=seed, ensemble=MEMBERS)
    sweeps = [next(learner) for _ in range(min(SWEEPS, max(log.horizon, 1)))]
    lower = [values.lower(log.features) for values in sweeps]
    if may[:, log.stop].any() and (stopping := _when_to_stop(log, lesson, logged, seed)) is not None:
        found.append(stopping)
    found += _at_one_step(log, logged, lower[0], may, seed)
    for number, values in enumerate(lower, start=1):
        label = "one step better" if number == 1 else f"{number} steps ahead"
        how = (log.features, values, may, names)
        found += [
            Candidate(f"{label}, a tree", 2 + number, students.shallow_tree(*how, seed=seed)),
            Candidate(f"{label}, a forest", 5 + number, students.forest(*how, seed=seed)),
        ]
    if neural is not None or len(log.actions) > torch_learners.MOST_ROWS:
        found += _neural(log, reward, lower[0], may, seed, neural)
    outcome = returns(log, utility(log, reward))
    found.append(Candidate("nearest neighbours", 10, routes.nearest(log, outcome, seed=seed)))
    return found


def _agents(log: EpisodeLog) -> list[int]:
    """Columns of the actions besides STOP that the log tried anywhere."""
    return [int(agent) for agent in np.flatnonzero(log.supported.any(axis=0)) if agent != log.stop]


def _cascades(log: EpisodeLog, reward: RewardSpec, agents: list[int]) -> list[Candidate]:
    """Single agents and cascades of two, those with the best weighted estimate among those that the log can follow."""
    names = log.action_names
    often = log.behaviour[:, agents].sum(axis=0)
    agents = sorted(agents[place] for place in np.argsort(-often, kind="stable")[:MOST_AGENTS])
    labelled = np.flatnonzero(~np.isnan(log.quality))
    part = log.take(labelled)
    ranked = []
    for cascade in [*routes.single_agents(agents), *routes.cascades(agents)]:
        route = model([cascade.tree(len(names))], names)
        policy = on_log(route, part)
        if effective(carried(part, policy)) < LEAST_EFFECTIVE:
            continue
        quality, cost, _ = weighted_per_decision(part, policy)
        worth = float(reward.utility(np.array(quality), np.array(cost)))
        if np.isfinite(worth):
            ranked.append((worth, len(cascade.agents), cascade.label(names), route))
    ranked.sort(key=lambda one: -one[0])
    return [Candidate(label, size - 1, route) for _, size, label, route in ranked[:KEPT_CASCADES]]


def _when_to_stop(log: EpisodeLog, reward: Reward, logged: Tree, seed: int) -> Candidate | None:
    """As logged, and STOP where that is worth more."""
    margins = stop_margins(log, reward, seed=seed, ensemble=MEMBERS)
    rows = np.flatnonzero((log.step > 0) & ~np.isnan(margins))
    if not len(rows) or margins[rows].max() <= 0:
        return None
    targets = np.column_stack([np.zeros(len(rows)), margins[rows]])
    rule = students.small_tree(log.features[rows], targets, seed=seed)
    stops = always(log.stop, len(log.action_names))
    found = simplified(rebuilt(rule, lambda value: stops if value[1] > 0 else logged))
    return Candidate("the script of today, stop when it pays", 1, model([found], log.action_names))


def _at_one_step(log: EpisodeLog, logged: Tree, values: Floats, may: Bools, seed: int) -> list[Candidate]:
    """Policies that change one step alone, at the steps where that promises most. They overlap best with a log that
    explores one step of an episode."""
    usual = log.behaviour.argmax(axis=1)
    promising = []
    for t in range(log.horizon):
        rows = np.flatnonzero((log.step == t) & may.any(axis=1))
        if len(rows) < LEAST_ROWS:
            continue
        targets = students.shortfalls(values[rows], may[rows])
        tree = students.small_tree(log.features[rows], targets, seed=seed)
        place = np.arange(len(rows))
        chosen = model([tree], log.action_names).values(log.features[rows]).argmax(axis=1)
        gain = float((values[rows][place, chosen] - values[rows][place, usual[rows]]).sum()) / len(log)
        if gain > 0:
            promising.append((gain, t, tree))
    promising.sort(key=lambda one: -one[0])
    return [
        Candidate(
            f"the script of today but for step {t + 1}", 2, model([routes.at_step(logged, t, tree)], log.action_names)
        )
        for _, t, tree in promising[:POINTS]
    ]


def _neural(
    log: EpisodeLog, reward: RewardSpec, values: Floats, may: Bools, seed: int, settings: torch_learners.Settings | None
) -> list[Candidate]:
    """The neural learners' policies, told by forests of how likely they make each action."""
    learned = {
        "implicit Q-learning": torch_learners.implicit_q(log, reward, seed=seed, settings=settings),
        "policy gradient": torch_learners.policy_gradient(log, reward, values, seed=seed, settings=settings),
    }
    return [
        Candidate(
            f"{label}, a forest",
            9,
            students.forest(log.features, policy.probabilities(log.features, may), may, log.action_names, seed=seed),
        )
        for label, policy in learned.items()
    ]
