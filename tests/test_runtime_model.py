"""Laws of the policy models: rows sum to 1, nothing forbidden is chosen, order of actions does not matter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from optimizer.runtime import STOP, Model, width

D = 5
NAMES = ("a", "b", "c", "d")


def forest(random: np.random.Generator, actions: int, trees: int = 3, depth: int = 3, d: int = D) -> dict[str, Any]:
    """Whole trees in the order of a heap: the children of node i are 2i + 1 and 2i + 2."""
    inner, nodes = 2**depth - 1, 2 ** (depth + 1) - 1
    place = np.arange(nodes)
    return {
        "feature": np.where(place < inner, random.integers(d, size=(trees, nodes)), -1),
        "threshold": random.normal(size=(trees, nodes)),
        "left": np.tile(2 * place + 1, (trees, 1)),
        "right": np.tile(2 * place + 2, (trees, 1)),
        "value": random.normal(size=(trees, nodes, actions)),
    }


def model(kind: str, seed: int, actions: int = 4, epsilon: float = 0.1) -> Model:
    random = np.random.default_rng(seed)
    standard = {"mean": random.normal(size=D), "scale": random.uniform(0.5, 2.0, D)}
    arrays: dict[str, dict[str, NDArray[Any]]] = {
        "constant": {"values": random.normal(size=actions)},
        "linear": standard | {"weights": random.normal(size=(D, actions)), "bias": random.normal(size=actions)},
        "knn": standard
        | {"points": random.normal(size=(20, D)), "targets": random.normal(size=(20, actions)), "k": np.array(3)},
        "trees": forest(random, actions),
    }
    return Model(kind, NAMES[:actions], arrays[kind], epsilon)  # type: ignore[arg-type]


kinds = st.sampled_from(["constant", "linear", "knn", "trees"])
seeds = st.integers(0, 10_000)
masks = st.lists(st.lists(st.booleans(), min_size=4, max_size=4).filter(any), min_size=1, max_size=6)


@settings(deadline=None)
@given(kinds, seeds, masks, st.floats(0.0, 1.0))
def test_rows_sum_to_one_and_nothing_forbidden_is_chosen(
    kind: str, seed: int, mask: list[list[bool]], epsilon: float
) -> None:
    allowed = np.array(mask)
    features = np.random.default_rng(seed + 1).normal(size=(len(mask), D))
    got = model(kind, seed, epsilon=epsilon).probabilities(features, allowed)
    assert got.sum(axis=1) == pytest.approx(1.0)
    assert not got[~allowed].any()
    floor = np.broadcast_to(epsilon / allowed.sum(axis=1, keepdims=True), got.shape)
    assert (got[allowed] >= floor[allowed] - 1e-12).all()


TABLE = np.array([[0.7, 0.2, 0.1, 0.0], [0.5, 0.5, 0.0, 0.0], [0.1, 0.2, 0.3, 0.4], [0.0, 0.0, 0.0, 1.0]])


@settings(deadline=None)
@given(kinds, seeds, masks)
def test_draws_are_the_row_of_the_best_allowed_action_among_the_allowed(
    kind: str, seed: int, mask: list[list[bool]]
) -> None:
    allowed = np.array(mask)
    features = np.random.default_rng(seed + 1).normal(size=(len(mask), D))
    greedy = model(kind, seed, epsilon=0.0)
    exploring = Model(greedy.kind, greedy.actions, {**greedy.arrays, "draws": TABLE})
    got = exploring.probabilities(features, allowed)
    rows = np.where(allowed, TABLE[greedy.probabilities(features, allowed).argmax(axis=1)], 0.0)
    assert got == pytest.approx(rows / rows.sum(axis=1, keepdims=True))
    assert not got[~allowed].any()


@pytest.mark.parametrize(
    "draws",
    [TABLE[:3], TABLE * 0.9, np.where(TABLE > 0.5, -TABLE, TABLE), np.full((4, 4), np.nan), TABLE[[1, 0, 3, 2]]],
    ids=["shape", "sum", "negative", "not finite", "best action never"],
)
def test_draws_that_are_no_probabilities_are_refused(draws: NDArray[Any]) -> None:
    with pytest.raises(ValueError, match="draws"):
        Model("constant", NAMES, {"values": np.zeros(4), "draws": draws})


TODAY = np.array([0.6, 0.4, 0.0, 0.0])


@settings(deadline=None)
@given(kinds, seeds, masks, st.floats(0.0, 1.0), st.booleans())
def test_a_mixture_is_so_much_of_the_policy_and_the_rest_of_today(
    kind: str, seed: int, mask: list[list[bool]], share: float, table: bool
) -> None:
    allowed = np.array(mask)
    features = np.random.default_rng(seed + 1).normal(size=(len(mask), D))
    plain = model(kind, seed)
    arrays = {**plain.arrays, **({"draws": TABLE} if table else {})}
    plain = Model(plain.kind, plain.actions, arrays, plain.epsilon)
    mixture = Model(plain.kind, plain.actions, {**arrays, "today": TODAY, "share": np.array(share)}, plain.epsilon)
    got, whole = mixture.probabilities(features, allowed), plain.probabilities(features, allowed)
    today = np.where(allowed, TODAY, 0.0)
    none = ~today.any(axis=1)  # today takes none of the allowed actions: the policy decides alone
    assert got.sum(axis=1) == pytest.approx(1.0)
    assert not got[~allowed].any()
    assert got[none] == pytest.approx(whole[none])
    rest = today[~none] / today[~none].sum(axis=1, keepdims=True)
    assert got[~none] == pytest.approx(share * whole[~none] + (1 - share) * rest)


@pytest.mark.parametrize(
    ("today", "share"),
    [(TODAY * 0.9, 0.5), (TODAY, 1.1), (TODAY, -0.1), (TODAY[:3], 0.5), (np.array([1.5, -0.5, 0.0, 0.0]), 0.5)],
    ids=["sum", "share above 1", "share below 0", "shape", "negative"],
)
def test_a_mixture_that_is_none_is_refused(today: NDArray[Any], share: float) -> None:
    with pytest.raises(ValueError, match="today"):
        Model("constant", NAMES, {"values": np.zeros(4), "today": today, "share": np.array(share)})


def test_half_a_mixture_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a numeric array share"):
        Model("constant", NAMES, {"values": np.zeros(4), "today": TODAY})


@settings(deadline=None)
@given(kinds, seeds, st.permutations(range(4)))
def test_permuting_the_actions_permutes_the_probabilities(kind: str, seed: int, order: list[int]) -> None:
    original = model(kind, seed)
    per_action = {"values", "weights", "bias", "targets", "value"}
    arrays = {k: v[..., order] if k in per_action else v for k, v in original.arrays.items()}
    permuted = Model(original.kind, tuple(NAMES[i] for i in order), arrays, original.epsilon)
    features = np.random.default_rng(seed + 1).normal(size=(6, D))
    everything = np.ones((6, 4), dtype=bool)
    assert permuted.probabilities(features, everything) == pytest.approx(
        original.probabilities(features, everything)[:, order]
    )


@settings(deadline=None)
@given(kinds, seeds)
def test_one_row_gives_what_the_batch_gives(kind: str, seed: int) -> None:
    features = np.random.default_rng(seed).normal(size=(300, D))
    policy = model(kind, seed)
    alone = np.vstack([policy.values(row[None, :]) for row in features[250:]])
    assert policy.values(features)[250:] == pytest.approx(alone)


@settings(deadline=None)
@given(seeds)
def test_neighbours_at_equal_distance_all_count_in_any_order(seed: int) -> None:
    random = np.random.default_rng(seed)
    points = np.repeat(random.normal(size=(5, D)), 4, axis=0)
    targets = random.normal(size=(20, 4))
    order = random.permutation(20)
    arrays: dict[str, NDArray[Any]] = {"mean": np.zeros(D), "scale": np.ones(D), "k": np.array(3)}
    one = Model("knn", NAMES, arrays | {"points": points, "targets": targets})
    other = Model("knn", NAMES, arrays | {"points": points[order], "targets": targets[order]})
    features = points[:1] + 1e-3
    assert one.values(features)[0] == pytest.approx(targets[:4].mean(axis=0))
    assert other.values(features) == pytest.approx(one.values(features))


def test_the_first_of_equals_wins() -> None:
    policy = Model("constant", ("a", "b", "c"), {"values": np.array([0.0, 1.0, 1.0])}, epsilon=0.3)
    got = policy.probabilities(np.zeros((2, D)), np.array([[True, True, True], [True, False, True]]))
    assert got == pytest.approx(np.array([[0.1, 0.8, 0.1], [0.15, 0.0, 0.85]]))


def test_linear_values_are_the_formula() -> None:
    policy = model("linear", 7)
    x = np.random.default_rng(1).normal(size=(3, D))
    expected = (x - policy.arrays["mean"]) / policy.arrays["scale"] @ policy.arrays["weights"] + policy.arrays["bias"]
    assert policy.values(x) == pytest.approx(expected)


def test_no_decisions_give_no_rows() -> None:
    for kind in ("constant", "linear", "knn", "trees"):
        assert model(kind, 1).probabilities(np.zeros((0, D)), np.zeros((0, 4), dtype=bool)).shape == (0, 4)


def test_a_row_that_allows_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one allowed"):
        model("linear", 1).probabilities(np.zeros((1, D)), np.zeros((1, 4), dtype=bool))


def test_features_that_are_not_finite_are_an_error() -> None:
    with pytest.raises(ValueError, match="not finite"):
        model("linear", 1).probabilities(np.full((1, D), np.nan), np.ones((1, 4), dtype=bool))
    with pytest.raises(ValueError, match="not finite"):
        model("trees", 1).probabilities(np.array([[0.0, 0.0, 0.0, 0.0, np.inf]]), np.ones((1, 4), dtype=bool))


def walk(arrays: Mapping[str, NDArray[Any]], row: NDArray[Any]) -> NDArray[Any]:
    """What the trees give one row, node by node."""
    total = np.zeros(arrays["value"].shape[2])
    for tree in range(len(arrays["feature"])):
        node = 0
        while (place := arrays["feature"][tree, node]) >= 0:
            side = "left" if row[place] <= arrays["threshold"][tree, node] else "right"
            node = arrays[side][tree, node]
        total += arrays["value"][tree, node]
    return total


@settings(deadline=None)
@given(seeds, st.integers(0, 4))
def test_trees_give_the_sum_of_the_leaves_that_a_row_ends_in(seed: int, depth: int) -> None:
    random = np.random.default_rng(seed)
    arrays = forest(random, 3, depth=depth)
    features = random.normal(size=(8, D))
    features[0, arrays["feature"][0, 0]] = arrays["threshold"][0, 0]  # exactly at a threshold: left
    expected = np.array([walk(arrays, row) for row in features])
    assert Model("trees", NAMES[:3], arrays).values(features) == pytest.approx(expected)


def test_unequal_trees_are_filled_up_and_their_filling_is_never_read() -> None:
    """A tree of one split beside one that is a leaf; -1 as children, as other libraries write leaves."""
    arrays = {
        "feature": np.array([[2, -1, -1], [-1, -1, -1]]),
        "threshold": np.array([[0.5, 0.0, 0.0], [0.0, 0.0, 0.0]]),
        "left": np.array([[1, -1, -1], [-1, -1, -1]]),
        "right": np.array([[2, -1, -1], [-1, -1, -1]]),
        "value": np.array([[[9, 9], [1, 0], [0, 1]], [[0.1, 0.2], [7, 7], [7, 7]]]),
    }
    features = np.zeros((2, D))
    features[1, 2] = 1.0
    assert Model("trees", ("a", "b"), arrays).values(features) == pytest.approx(np.array([[1.1, 0.2], [0.1, 1.2]]))


def test_a_batch_of_any_size_gives_what_its_rows_give() -> None:
    policy = model("trees", 3)
    features = np.random.default_rng(1).normal(size=(5000, D))
    some = [0, 4095, 4096, 4999]
    assert np.array_equal(policy.values(features)[some], policy.values(features[some]))


def broken(**changes: Any) -> dict[str, Any]:
    leaf = {"feature": [[0, -1, -1]], "threshold": [[0.0, 0, 0]], "left": [[1, 0, 0]], "right": [[2, 0, 0]]}
    arrays = {name: np.array(value) for name, value in leaf.items()} | {"value": np.zeros((1, 3, 2))}
    return arrays | {name: np.array(value) for name, value in changes.items()}


def deep(depth: int) -> dict[str, Any]:
    """A chain: every left child is a leaf, every right one asks on."""
    nodes, place = 2 * depth + 1, np.arange(2 * depth + 1)
    asks = place % 2 == 0
    asks[-1] = False
    row = {"feature": np.where(asks, 0, -1), "threshold": place * 1.0, "left": place + 1, "right": place + 2}
    return {name: value[None, :] for name, value in row.items()} | {"value": np.zeros((1, nodes, 2))}


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({}, "needs a numeric array feature"),
        (broken(feature=[[0.0, -1, -1]]), "integers"),
        (broken(left=[[1.0, 0, 0]]), "integers"),
        (broken(feature=[[-2, -1, -1]]), "a place among the 128"),
        (broken(feature=[[128, -1, -1]]), "a place among the 128"),
        (broken(left=[[0, 0, 0]]), "after it"),
        (broken(right=[[-1, 0, 0]]), "after it"),
        (broken(right=[[3, 0, 0]]), "after it"),
        (broken(feature=[[0, 0, -1]], left=[[1, 1, 0]], right=[[2, 2, 0]]), "after it"),
        (broken(threshold=[[np.nan, 0, 0]]), "not finite"),
        (broken(value=[[[0, 0], [0, np.inf], [0, 0]]]), "not finite"),
        (broken(value=np.zeros((1, 3, 3))), r"value must have shape \(1, 3, 2\)"),
        (broken(left=[[1, 0]]), r"left must have shape \(1, 3\)"),
        (broken(feature=[0, -1, -1]), "feature must have shape"),
        (broken(feature=np.zeros((1, 0), int)), "shape"),
        ({name: array[:0] for name, array in broken().items()}, "a node each"),
        (deep(65), "at most 64 decisions deep"),
    ],
)
def test_trees_that_cannot_be_walked_are_refused(arrays: Mapping[str, NDArray[Any]], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Model("trees", ("a", "b"), arrays)


def test_the_deepest_trees_allowed_are_walked_to_their_end() -> None:
    arrays = deep(64)
    arrays["value"][0, -1] = [0.0, 1.0]
    assert Model("trees", ("a", "b"), arrays).values(np.full((1, D), 1e9))[0, 1] == 1.0


def test_nodes_with_several_parents_do_not_multiply() -> None:
    """2^60 ways to the leaf; seconds or no end if they were counted one by one."""
    place = np.arange(62)
    row = {"feature": np.where(place < 60, 0, -1), "threshold": place * 0.0, "left": place + 1, "right": place + 1}
    arrays = {name: value[None, :] for name, value in row.items()} | {"value": np.ones((1, 62, 2))}
    assert Model("trees", ("a", "b"), arrays).values(np.zeros((1, D))) == pytest.approx(np.ones((1, 2)))


STANDARD = {"mean": np.zeros(D), "scale": np.ones(D)}


@pytest.mark.parametrize(
    ("kind", "arrays", "problem"),
    [
        ("constant", {}, "needs a numeric array values"),
        ("constant", {"values": np.zeros(3)}, r"must have shape \(2,\), got \(3,\)"),
        ("constant", {"values": np.array([0.0, np.inf])}, "not finite"),
        ("constant", {"values": np.array(["a", "b"])}, "numeric"),
        ("linear", STANDARD | {"bias": np.zeros(2)}, "weights"),
        ("linear", STANDARD | {"scale": np.zeros(D), "bias": np.zeros(2), "weights": np.zeros((D, 2))}, "scale"),
        ("knn", STANDARD | {"points": np.zeros((3, D)), "targets": np.zeros((3, 2)), "k": np.array(4)}, "k must lie"),
        ("tree", {}, "model kind"),
    ],
)
def test_a_model_that_cannot_decide_is_refused(kind: str, arrays: Mapping[str, NDArray[Any]], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Model(kind, ("a", "b"), arrays)  # type: ignore[arg-type]


@pytest.mark.parametrize("actions", [(), ("a", "a"), ("a", "")])
def test_actions_must_be_distinct_names(actions: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="distinct names"):
        Model("constant", actions, {"values": np.zeros(len(actions))})


def orchestrator(kind: str, d: int, **more: Any) -> Model:
    random = np.random.default_rng(2)
    standard = {"mean": np.zeros(d), "scale": np.ones(d)}
    arrays: dict[str, dict[str, Any]] = {
        "constant": {"values": np.zeros(3)},
        "linear": standard | {"weights": np.zeros((d, 3)), "bias": np.zeros(3)},
        "knn": standard | {"points": np.zeros((2, d)), "targets": np.zeros((2, 3)), "k": np.array(1)},
        "trees": forest(random, 3, d=d),
    }
    return Model(kind, ("search", "code", STOP), arrays[kind] | more)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["constant", "linear", "knn", "trees"])
def test_a_policy_whose_last_action_is_stop_reads_the_wide_row(kind: str) -> None:
    assert width(("search", "code", STOP)) == 128 + 16 + 2 * 3
    assert width((STOP, "search")) == 128
    assert orchestrator(kind, 150).steps
    assert not model(kind, 1).steps


def test_an_orchestrator_of_another_width_is_refused() -> None:
    for kind in ("linear", "knn"):
        with pytest.raises(ValueError, match=r"mean must have shape \(150,\), got \(128,\)"):
            orchestrator(kind, 128)
    with pytest.raises(ValueError, match="a place among the 150 features"):
        orchestrator("trees", 500)


@pytest.mark.parametrize("more", [{"draws": np.full((3, 3), 1 / 3)}, {"today": np.eye(3)[0], "share": np.array(0.5)}])
def test_an_orchestrator_neither_draws_at_every_step_nor_mixes_step_by_step(more: Mapping[str, Any]) -> None:
    with pytest.raises(ValueError, match="explores one step"):
        orchestrator("constant", 150, **more)
