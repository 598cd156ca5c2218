"""Routes, students and candidates: each ends as a model that a router carries, and says in words what it does."""

from __future__ import annotations

import math

import numpy as np
import pytest

from optimizer.dataset import Floats
from optimizer.rewards import PuppeteerReward, RewardSpec
from optimizer.runtime import DIM, STEP_DENSE, STOP, Model, history_features, width
from optimizer.sequential import routes, students
from optimizer.sequential.candidates import candidates
from optimizer.sequential.decision_trees import always, leaf, model, simplified, split, trees_of
from optimizer.sequential.episodes import EpisodeLog
from optimizer.sequential.policies import on_log
from optimizer.sequential.torch_learners import Settings

NAMES = ("write", "check", STOP)
COUNT = DIM + len(STEP_DENSE)
SIGNAL = routes.SIGNAL


def row(*actions: str, signal: float | None = None, characters: int = 0) -> Floats:
    """(1, d) what a router sees after these actions."""
    history = [{"action": action, "status": "ok"} for action in actions]
    if signal is not None:
        history[-1]["signal"] = signal  # type: ignore[assignment]
    prompt = np.zeros(DIM)
    prompt[0] = math.log1p(characters)
    return np.concatenate([prompt, history_features(history, NAMES)])[None, :]


def does(policy: Model, *actions: str, **known: float) -> str:
    return policy.actions[int(policy.values(row(*actions, **known)).argmax())]  # type: ignore[arg-type]


def scripted(episodes: int = 300, seed: int = 0) -> EpisodeLog:
    """write, check, write, check, STOP, but for one evenly drawn action at one step of half of the episodes. Long
    prompts (column 0) are answered by check alone, short ones by write alone; a check's score tells whether they are.
    """
    rng = np.random.default_rng(seed)
    script, horizon = (0, 1, 0, 1, 2), 5
    rows: list[Floats] = []
    actions, behaviour, episode, quality = [], [], [], []
    for number in range(episodes):
        long = int(rng.integers(2))
        at = int(rng.integers(horizon)) if rng.random() < 0.5 else -1
        done, taken, free = False, [], True
        for step in range(horizon):
            rows.append(row(*taken, signal=float(done) if taken else None, characters=long * 50))
            offered = [0, 1, 2] if step else [0, 1]
            share = 0.5 / (horizon - 0.5 * step) if free else 0.0
            shares = np.zeros(3)
            shares[offered] = share / len(offered)
            shares[script[step]] += 1 - share
            action = int(rng.choice(offered)) if step == at else script[step]
            free = free and step != at
            actions.append(action)
            behaviour.append(shares)
            episode.append(number)
            if action == 2:
                break
            done = done or (action == long and rng.random() < 0.8)
            taken.append(NAMES[action])
        quality.append(float(done))
    n = len(actions)
    return EpisodeLog(
        features=np.concatenate(rows).astype(np.float32),
        actions=np.array(actions),
        behaviour=np.array(behaviour),
        cost_usd=np.where(np.array(actions) < 2, 0.05, 0.0),
        latency_s=np.zeros(n),
        stop_quality=np.full(n, np.nan),
        episode=np.array(episode),
        quality=np.array(quality),
        groups=np.arange(episodes),
        time_ns=np.arange(episodes),
        action_names=NAMES,
        propensities_logged=True,
    )


def test_a_cascade_goes_on_until_a_check_is_passed() -> None:
    cascade = routes.Cascade((0, 1), (2, 1))
    policy = model([cascade.tree(3)], NAMES)
    assert does(policy) == "write"
    assert does(policy, "write", signal=0.5) == "write"
    assert does(policy, "write", "write") == "check"
    assert does(policy, "write", "write", "check") == STOP
    assert does(policy, "write", signal=1.0) == STOP
    assert cascade.label(NAMES) == "write up to 2 times, then check, until a check is passed"
    assert students.stop_rule(policy)[0].startswith("stop if")


def test_all_cascades_of_two_agents() -> None:
    assert len(list(routes.cascades([0, 1], (1, 2)))) == 2 * 4
    assert len(list(routes.single_agents([0, 1], (1, 2, 3)))) == 6


def test_the_logged_script_is_found_and_stopped() -> None:
    log = scripted()
    logged = routes.as_logged(log)
    policy = model([logged], NAMES)
    assert [does(policy, *("write", "check", "write", "check")[:k]) for k in range(5)] == [
        "write", "check", "write", "check", STOP
    ]  # fmt: skip
    stopped = routes.stop_after(logged, 2, NAMES)
    assert students.in_words(stopped) == [
        "if at least 2 steps so far: STOP",
        "otherwise, if no step so far: write",
        "otherwise, if at least 1 step so far: check",
    ]
    assert students.stop_rule(stopped) == ["stop if at least 2 steps so far"]
    on_the_log, whole = on_log(stopped, log), on_log(policy, log)
    assert (on_the_log[log.step >= 2, 2] == 1).all()
    assert (on_the_log[log.step < 2] == whole[log.step < 2]).all()


def test_one_step_is_changed_and_no_other() -> None:
    logged = routes.as_logged(scripted())
    for t in range(4):
        policy = model([routes.at_step(logged, t, always(2, 3))], NAMES)
        found = [does(policy, *("write", "check", "write", "check")[:k]) for k in range(5)]
        assert found == [STOP if k == t else name for k, name in enumerate(("write", "check", "write", "check", STOP))]


def test_trees_say_what_scikit_learns_trees_say() -> None:
    rng = np.random.default_rng(0)
    x = rng.random((400, width(NAMES))).astype(np.float16).astype(np.float32)
    values = np.column_stack([x[:, 0], 1 - x[:, 0], np.full(400, 0.2)])
    every = np.ones((400, 3), dtype=bool)
    policy = students.shallow_tree(x, values, every, NAMES, seed=0)
    assert policy.arrays["feature"].shape[0] == 1
    best = policy.values(x).argmax(axis=1)
    assert (best == values.argmax(axis=1)).mean() > 0.95
    forest = students.forest(x, values, every, NAMES, seed=0)
    assert (forest.values(x).argmax(axis=1) == values.argmax(axis=1)).mean() > 0.9
    assert "20 decision trees" in students.in_words(forest)[0]


def test_students_do_not_learn_what_is_not_supported() -> None:
    rng = np.random.default_rng(0)
    x = rng.random((200, width(NAMES))).astype(np.float32)
    values = np.tile([1.0, 5.0, 0.5], (200, 1))
    supported = np.tile([True, False, True], (200, 1))
    assert (students.shallow_tree(x, values, supported, NAMES, seed=0).values(x).argmax(axis=1) == 0).all()
    assert (students.forest(x, values, supported, NAMES, seed=0).values(x).argmax(axis=1) == 0).all()
    nothing = np.zeros((2, 3), dtype=bool)
    assert (students.shortfalls(values[:2], nothing) == 0).all()


def test_simplified_trees_do_the_same() -> None:
    rng = np.random.default_rng(4)
    x = rng.random((500, width(NAMES)))
    tree = leaf(rng.random(3))
    for _ in range(12):
        other = leaf(rng.random(3))
        tree = split(
            int(rng.integers(3)), float(rng.random()), *((tree, other) if rng.random() < 0.5 else (other, tree))
        )
    small = simplified(tree)
    assert len(small.feature) <= len(tree.feature)
    before, after = (model([one], NAMES).values(x).argmax(axis=1) for one in (tree, small))
    near = (np.abs(x[:, :3, None] - tree.threshold[None, None, :]) < 0.005).any(axis=(1, 2))
    assert (before == after)[~near].all()
    assert trees_of(model([tree], NAMES))[0].feature.tolist() == tree.feature.tolist()


@pytest.mark.parametrize(
    ("place", "threshold", "left", "right"),
    [
        (0, math.log1p(100.5), "at most 100 characters in the prompt", "at least 101 characters in the prompt"),
        (DIM + 1, 0.5, "the last step did not fail", "the last step failed"),
        (DIM, routes.below(3), "at most 2 steps so far", "at least 3 steps so far"),
        (DIM + 13, math.log1p(1e4 * 0.02), "the cost so far is at most 0.02 USD", "the cost so far is above 0.02 USD"),
        (SIGNAL, 0.5, "the last check's score is at most 0.5", "the last check's score is above 0.5"),
        (COUNT, routes.below(1), "no step of write", "at least 1 step of write"),
        (COUNT + 3 + 1, 0.5, "the last step was not check", "the last step was check"),
        (DIM - 1, 0.1, "the prompt's word pattern 96 is at most 0.1", "the prompt's word pattern 96 is above 0.1"),
    ],
)
def test_conditions_are_said_in_natural_units(place: int, threshold: float, left: str, right: str) -> None:
    policy = model([split(place, threshold, always(0, 3), always(1, 3))], NAMES)
    assert students.in_words(policy) == [f"if {left}: write", f"if {right}: check"]


def test_every_feature_has_words() -> None:
    for place in range(width(NAMES)):
        for line in students.in_words(model([split(place, 0.3, always(0, 3), always(1, 3))], NAMES)):
            assert "_" not in line


def test_long_rules_are_cut_and_other_models_say_that_they_have_none() -> None:
    tree = always(0, 3)
    for k in range(12):
        tree = split(DIM, routes.below(k + 1), always(k % 2, 3), tree)
    assert len(students.in_words(model([tree], NAMES))) <= 8
    constant = Model("constant", NAMES, {"values": np.array([0.0, 1.0, 0.0])}, 0.0)
    assert students.in_words(constant) == ["always check"]
    assert students.stop_rule(constant) == ["never stops by itself"]
    log = scripted(20)
    nearest = routes.nearest(log, log.quality[log.episode], seed=0)
    assert "similar logged steps" in students.in_words(nearest)[0]


def test_candidates_are_models_from_the_simplest_on() -> None:
    log = scripted(400)
    found = candidates(log, RewardSpec(1.0), seed=0)
    labels = [one.label for one in found]
    for label in (
        "the script of today",
        "always write",
        "the script of today, stop after 2 steps",
        "one step better, a tree",
    ):
        assert label in labels
    assert len(set(labels)) == len(labels)
    assert "nearest neighbours" in labels
    assert found[0].complexity == min(one.complexity for one in found)
    for one in found:
        assert one.model.values(log.features).shape == (len(log.actions), 3)
        assert one.model.actions == NAMES
    learned = next(one.model for one in found if one.label == "3 steps ahead, a forest")
    assert does(learned, characters=50) == "check"
    assert does(learned, characters=0) == "write"


@pytest.mark.slow
def test_neural_learners_are_candidates_on_request() -> None:
    found = candidates(scripted(400), RewardSpec(1.0), seed=0, neural=Settings(steps=400))
    learned = {one.label: one.model for one in found}
    assert does(learned["implicit Q-learning, a forest"], characters=50) == "check"
    assert does(learned["implicit Q-learning, a forest"], characters=0) == "write"
    short, long = (learned["policy gradient, a forest"].values(row(characters=size))[0] for size in (0, 50))
    assert long[1] - long[0] > short[1] - short[0]  # it keeps close to the script, which writes first


def test_candidates_without_a_score_are_the_fixed_ones() -> None:
    log = scripted(60)
    unscored = EpisodeLog(**{**vars_of(log), "quality": np.full(60, np.nan)})
    assert {one.complexity for one in candidates(unscored, RewardSpec(1.0), seed=0)} == {0}


def vars_of(log: EpisodeLog) -> dict:
    return {name: getattr(log, name) for name in log.__dataclass_fields__}


def test_candidates_need_a_routers_features() -> None:
    log = scripted(5)
    narrow = EpisodeLog(**{**vars_of(log), "features": log.features[:, :9]})
    with pytest.raises(ValueError, match="candidates need the 150 features"):
        candidates(narrow, RewardSpec(1.0), seed=0)


def test_puppeteers_reward_is_discounted_and_charges_later_steps_more() -> None:
    reward = PuppeteerReward(2.0, budget=2.0)
    found = reward.added(np.array([0.0, 1.0]), np.array([2.0, 2.0]), np.array([0.0, 1.0]))
    assert found == pytest.approx([-0.1 * math.log(1.5), 0.99 * (1 - 0.1 * math.log(2.0))])
    with pytest.raises(ValueError, match="must be above 0"):
        PuppeteerReward(0.0)
