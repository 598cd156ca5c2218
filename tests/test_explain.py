"""What an explanation of a decision says equals what the router does, and names the rule that rules a candidate out."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optimizer import explain as why
from optimizer import runtime
from optimizer.bundle import write_policy
from optimizer.decision_reasons import REASONS, in_words
from optimizer.explain import Explained, explain, rule_at
from optimizer.rules import Bound
from optimizer.runtime import (
    DENSE,
    DIM,
    NEEDS,
    NEVER,
    STEP_DENSE,
    STOP,
    Decision,
    Model,
    Router,
    featurise,
    opening,
    width,
)
from optimizer.runtime import decision_features as features_of

NAMES = ("cheap", "mid", "strong")
STEPS = ("plan", "search", "code", STOP)
CAN = [0.0, *[1.0] * len(NEEDS)]
PROMPTS: list[dict[str, Any]] = [
    {"messages": "What is the capital of France?"},
    {"messages": "Compute 17 * 23 and explain each step", "tools": [{"type": "function"}]},
    {"messages": "A list, please", "response_format": {"type": "json_object"}},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, {"type": "image_url"}]}]},
    {"messages": "word " * 400},
]

Load = Callable[..., Router]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def loader(model: Model, **settings: Any) -> Router:
        said = {"policy_id": "desk", "version": "v1", "revision": 1, "virtual_model": "desk", "evaluation": {}}
        said |= {"incumbent": model.actions[1], "created_at": "2026-11-30T00:00:00+00:00"}
        write_policy(tmp_path, model, **(said | settings))  # type: ignore[arg-type]
        return Router.load(tmp_path, draw=random.Random(1).random)

    return loader


def linear(names: tuple[str, ...] = NAMES, *, epsilon: float = 0.2, **limits: list[float]) -> Model:
    rng = np.random.default_rng(5)
    d = width(names)
    arrays = {"mean": np.zeros(d), "scale": np.ones(d), "weights": rng.normal(size=(d, len(names)))}
    arrays |= {"bias": np.zeros(len(names))}
    if limits:
        arrays["able"] = np.array([limits.get(name, CAN) for name in names])
    return Model("linear", names, arrays, epsilon)


def assert_same(found: Explained, decision: Decision) -> None:
    """The probabilities of a decision, and nothing beside them."""
    said = dict(zip(decision.candidates, decision.probabilities, strict=True))
    assert {row.action: row.routed for row in found.rows if row.routed} == pytest.approx(
        {name: share for name, share in said.items() if share}
    )
    assert sum(row.probability for row in found.rows) == pytest.approx(1.0)
    assert all(row.probability == 0.0 for row in found.rows if row.ruled_out) or found.reason != "policy"


@pytest.mark.parametrize(("canary", "explored"), [(100.0, 0.0), (30.0, 20.0)])
@pytest.mark.parametrize("candidates", [None, ("mid", "strong"), ("strong", "elsewhere"), ("elsewhere",)])
def test_probabilities_are_the_routers(
    load: Load, canary: float, explored: float, candidates: tuple[str, ...] | None
) -> None:
    model = linear(cheap=[900.0, 0.0, 1.0, 1.0], mid=[0.0, 1.0, 0.0, 1.0], strong=[0.0, 1.0, 1.0, 0.0])
    router = load(model, canary_percent=canary, explore_percent=explored)
    for prompt in PROMPTS:
        found = explain(router, featurise(prompt), candidates)
        assert_same(found, router.decide(prompt, candidates))


@pytest.mark.parametrize("epsilon", [0.0, 0.4])
def test_the_action_is_the_likeliest_and_scores_are_the_models(load: Load, epsilon: float) -> None:
    router = load(linear(epsilon=epsilon))
    for prompt in PROMPTS:
        found = explain(router, featurise(prompt))
        values = dict(zip(NAMES, router.model.values(featurise(prompt)[None, :])[0].tolist(), strict=True))
        assert {row.action: row.value for row in found.rows} == values
        assert [row.action for row in found.rows] == sorted(NAMES, key=lambda name: -values[name])
        assert found.action == max(NAMES, key=lambda name: values[name])


@pytest.mark.parametrize(
    ("prompt", "limits", "said"),
    [
        (1, [0.0, 0.0, 1.0, 1.0], why.CANNOT["tools"]),
        (2, [0.0, 1.0, 0.0, 1.0], why.CANNOT["json_response"]),
        (3, [0.0, 1.0, 1.0, 0.0], why.CANNOT["attachments"]),
        (4, [900.0, 1.0, 1.0, 1.0], "context window: about 2,0"),
    ],
)
def test_a_candidate_that_cannot_serve_names_what_it_lacks(
    load: Load, prompt: int, limits: list[float], said: str
) -> None:
    router = load(linear(cheap=limits))
    rows = {row.action: row for row in explain(router, featurise(PROMPTS[prompt])).rows}
    assert len(rows["cheap"].ruled_out) == 1
    assert rows["cheap"].ruled_out[0].startswith(said)
    assert rows["cheap"].probability == 0.0
    assert rows["mid"].ruled_out == ()
    other = {row.action: row for row in explain(router, featurise(PROMPTS[0])).rows}
    assert other["cheap"].ruled_out == ()


def test_where_none_can_serve_the_incumbent_is_taken_and_said_so(load: Load) -> None:
    router = load(linear(**{name: [0.0, 0.0, 1.0, 1.0] for name in NAMES}))
    found = explain(router, featurise(PROMPTS[1]))
    assert (found.action, found.reason) == ("mid", "none_able")
    assert_same(found, router.decide(PROMPTS[1]))


def test_a_prompt_unlike_all_that_was_seen_is_left_to_the_incumbent(load: Load) -> None:
    model = linear(cheap=[0.0, 0.0, 1.0, 1.0])
    seen = np.array([featurise(PROMPTS[0])[: len(DENSE)]] * 2)
    router = load(Model(model.kind, model.actions, {**model.arrays, "seen": seen}, model.epsilon))
    near, far = (explain(router, featurise(prompt)) for prompt in (PROMPTS[0], PROMPTS[4]))
    assert (near.reason, far.reason, far.action) == ("policy", "drift", "mid")
    for prompt, found in ((PROMPTS[0], near), (PROMPTS[4], far)):
        assert_same(found, router.decide(prompt))


def reasons_in(tree: ast.Module) -> set[str]:
    """The reasons that the runtime's source gives: what `_fixed` and `_Doubt` are called with, what `_held` and `over`
    return, and the names of the arms."""
    found: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            found += node.args[1:2] if name == "_fixed" else node.args[:1] if name == "_Doubt" else []
        elif isinstance(node, ast.FunctionDef) and node.name in ("_held", "over"):
            found += [one.value for one in ast.walk(node) if isinstance(one, ast.Return) and one.value]
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {one.id for one in targets if isinstance(one, ast.Name)}
            found += [node.value] if names & {"reason", "held", "_REASONS"} else []
    texts = [
        one.value
        for expression in found
        for one in ast.walk(expression)
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    ]
    return {text for text in texts if re.fullmatch("[a-z]+(_[a-z]+)*", text)}


def test_every_reason_of_the_runtime_is_a_sentence() -> None:
    told = reasons_in(ast.parse(Path(runtime.__file__).read_text(encoding="utf-8")))
    told -= {"treatment", "control"}  # the arms themselves
    assert told >= {"policy", "canary", "drift", "history", "none_able", "too_slow", "expired", "loop", "unknown_arm"}
    assert told <= REASONS.keys(), told - REASONS.keys()
    assert REASONS.keys() <= told, REASONS.keys() - told
    assert in_words("budget:cost_usd") == "The budget of cost_usd is spent, so the episode ends."
    assert in_words("error:ValueError") == "The policy failed (ValueError), so the incumbent is taken."


def test_candidates_that_the_policy_does_not_know_say_why(load: Load) -> None:
    router = load(linear())
    offered = ("cheap", "rare", "forbidden")
    rows = {row.action: row for row in explain(router, featurise(PROMPTS[0]), offered, allowed=("cheap", "rare")).rows}
    assert rows["rare"].ruled_out == (why.NOT_LEARNED,)
    assert rows["forbidden"].ruled_out == (why.NOT_ALLOWED,)
    assert rows["mid"].ruled_out == (why.NOT_OFFERED,)
    assert rows["rare"].value is None


@pytest.mark.parametrize("session", [None, "s1"])
@pytest.mark.parametrize("prompt", PROMPTS[:3])
def test_a_sticky_policy_is_explained_by_the_opening(load: Load, session: str | None, prompt: dict[str, Any]) -> None:
    router = load(linear(cheap=[0.0, 0.0, 1.0, 1.0], strong=[0.0, 1.0, 0.0, 1.0]), sticky=True, canary_percent=60.0)
    later = [{"role": "user", "content": prompt["messages"]}, {"role": "assistant", "content": "Yes"}]
    request = {**prompt, "messages": [*later, {"role": "user", "content": "More"}]}
    decision = router.decide({**request, "metadata": {"session": session}}, ("cheap", "mid"))
    found = explain(
        router,
        featurise(opening(request)),
        ("cheap", "mid"),
        whole=featurise(request),
        in_session=session is not None,
    )
    assert_same(found, decision)


def history(*actions: str, **more: object) -> list[dict[str, object]]:
    return [{"action": name, "status": "ok", **more} for name in actions]


ORCHESTRATED = {"incumbent": "plan", "script": ("plan", "code", STOP), "max_steps": 5}


@pytest.mark.parametrize("past", [(), ("plan",), ("plan", "search", "search"), ("plan",) * 5])
@pytest.mark.parametrize("candidates", [None, ("search", "code"), ()])
def test_steps_are_explained_as_the_orchestrator_decides_them(
    load: Load, past: tuple[str, ...], candidates: tuple[str, ...] | None
) -> None:
    router = load(linear(STEPS, search=[0.0, 0.0, 1.0, 1.0]), **ORCHESTRATED)
    for prompt in PROMPTS:
        context = {**prompt, "history": history(*past)}
        decision = router.decide(context, candidates)
        found = explain(router, features_of(context, STEPS), candidates, history=history(*past))
        assert_same(found, decision)


def test_an_episode_in_the_canary_is_explained_with_its_weight(load: Load) -> None:
    router = load(linear(STEPS), **ORCHESTRATED, canary_percent=40.0)
    for treated in (0.2, 0.9):
        past = history("plan", arm="treatment", treated=treated)
        context = {**PROMPTS[0], "history": past}
        found = explain(router, features_of(context, STEPS), history=past, treated=treated)
        assert_same(found, router.decide(context))


def test_what_was_explored_before_is_not_explored_again(load: Load) -> None:
    router = load(linear(STEPS, epsilon=0.5), **ORCHESTRATED)
    past = history("plan", explored=True)
    found = explain(router, features_of({**PROMPTS[0], "history": past}, STEPS), history=past)
    assert max(row.probability for row in found.rows) == 1.0


def test_a_spent_budget_rules_out_everything_but_stop(load: Load) -> None:
    router = load(linear(STEPS), **ORCHESTRATED, budgets={"cost_usd": 1.0})
    past = history("plan", cost_usd=1.5)
    found = explain(router, features_of({**PROMPTS[0], "history": past}, STEPS), history=past)
    assert (found.action, found.reason) == (STOP, "budget:cost_usd")
    assert all(row.ruled_out for row in found.rows if row.action != STOP)
    assert_same(found, router.decide({**PROMPTS[0], "history": past}))


def test_what_only_the_script_may_take_says_so(load: Load) -> None:
    model = linear(STEPS)
    bias = np.array([0.0, NEVER, 0.0, 0.0])
    router = load(Model("linear", STEPS, {**model.arrays, "bias": bias}, 0.2), **ORCHESTRATED)
    past = history("plan")
    found = explain(router, features_of({**PROMPTS[0], "history": past}, STEPS), history=past)
    assert {row.action: row.ruled_out for row in found.rows}["search"] == (why.ONLY_SCRIPT,)
    assert_same(found, router.decide({**PROMPTS[0], "history": past}))


def test_a_single_tree_says_the_rule_that_it_follows(load: Load) -> None:
    place = DIM + STEP_DENSE.index("steps")
    nodes = {"feature": [[place, -1, -1]], "left": [[1, 0, 0]], "right": [[2, 0, 0]]}
    arrays = {name: np.array(value, dtype=np.int64) for name, value in nodes.items()}
    value = np.zeros((1, 3, 4))
    value[0, 1, 1], value[0, 2, 3] = 1.0, 1.0
    arrays |= {"threshold": np.array([[np.log1p(1.5), 0.0, 0.0]]), "value": value}
    router = load(Model("trees", STEPS, arrays, 0.0), **ORCHESTRATED)
    for past, said in ((("plan",), "if at most 1 step so far"), (("plan", "search"), "if at least 2 steps so far")):
        context = {**PROMPTS[0], "history": history(*past)}
        found = explain(router, features_of(context, STEPS), history=history(*past))
        assert found.because == said
    assert found.action == STOP


def test_the_rule_of_thumb_is_the_one_that_covers_the_decision() -> None:
    words = DENSE.index("words")
    short, long = (Bound(words, float(np.log1p(10.5)), above) for above in (False, True))
    paths = [((short,), 0), ((long,), 1)]
    assert rule_at(paths, featurise(PROMPTS[0])) == ("at most 10 words", 0)
    assert rule_at(paths, featurise(PROMPTS[4])) == ("more than 10 words", 1)
    assert rule_at([], featurise(PROMPTS[4])) is None
    assert rule_at([((), 2)], featurise(PROMPTS[4])) == ("always", 2)
