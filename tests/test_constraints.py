"""Models that cannot serve a decision are left out before anything is scored, alike in learning and in the router."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from worlds import two_models

from ingest.errors import ConfigError
from optimizer import config
from optimizer.ability import Ability, abilities
from optimizer.bundle import read_policy, write_policy
from optimizer.constraints import CHARACTERS_PER_TOKEN, allowed, limited, table, told, words
from optimizer.gate import Limits
from optimizer.logged import Logged
from optimizer.policy import Learned
from optimizer.runtime import DENSE, DIM, Model, Router, featurise
from optimizer.study import learn

NAMES = ("dear", "cheap")
KNOWN = {"cheap": Ability(max_input_tokens=1000, tools=False, images=False, json_schema=True), "dear": Ability()}
CHEAP = Model("constant", NAMES, {"values": np.array([0.0, 1.0])}, 0.1)

PLAIN = {"messages": "What is the capital of France?"}
TOOLS = {**PLAIN, "tools": [{"type": "function"}]}
JSON = {**PLAIN, "response_format": {"type": "json_schema"}}
IMAGE = {"messages": [{"role": "user", "content": [{"type": "text", "text": "Look"}, {"type": "image_url"}]}]}
LONG = {"messages": "word " * (CHARACTERS_PER_TOKEN * 1000 // 5 + 50)}


@pytest.mark.parametrize(
    ("context", "may"),
    [
        (PLAIN, True),
        (TOOLS, False),
        (JSON, True),
        (IMAGE, False),
        (LONG, False),
        ({}, True),
        ({"messages": None}, True),
    ],
)
def test_a_model_is_left_out_where_it_lacks_what_is_needed(context: dict[str, object], may: bool) -> None:
    features = featurise(context)[None, :]
    assert allowed(features, NAMES, KNOWN).tolist() == [[True, may]]
    got = Learned(limited(CHEAP, KNOWN), NAMES).probabilities(features, np.array([[0.5, 0.5]]))
    assert got[0] == pytest.approx([0.05, 0.95] if may else [1.0, 0.0])


def test_what_is_not_known_rules_nothing_out() -> None:
    assert table(NAMES, {}) is None
    assert table(NAMES, {"cheap": Ability(tools=True, max_input_tokens=None)}) is None
    assert limited(CHEAP, {}) is CHEAP


def test_decisions_that_no_model_can_serve_stay_as_they_are() -> None:
    neither = {name: Ability(tools=False) for name in NAMES}
    features = np.vstack([featurise(TOOLS), featurise(PLAIN)]).astype(np.float64)
    behaviour = np.array([[0.7, 0.3], [0.7, 0.3]])
    got = Learned(limited(CHEAP, neither), NAMES).probabilities(features, behaviour)
    assert got == pytest.approx(np.array([[0.7, 0.3], [0.05, 0.95]]))
    assert allowed(features, NAMES, neither).all()
    found = told(features, NAMES, neither)
    assert (found.limited, found.none) == (0.5, 0.5)
    assert "50.0% allow none" in words({"limited": found.limited, "none": found.none})


def test_what_is_ruled_out_and_what_is_unknown_is_counted() -> None:
    features = np.vstack([featurise(c) for c in (PLAIN, TOOLS, JSON, LONG)])
    found = told(features, NAMES, KNOWN)
    assert (found.limited, found.none) == (0.5, 0.0)
    assert found.unknown == {"dear": ("max_input_tokens", "tools", "json_schema", "images")}
    assert words({"limited": 0.0, "none": 0.0}) == ""


def test_a_router_leaves_out_what_learning_left_out_and_logs_the_exact_probability(tmp_path: Path) -> None:
    write_policy(
        tmp_path,
        limited(CHEAP, KNOWN),
        policy_id="app",
        version="1",
        revision=1,
        virtual_model="app",
        incumbent="dear",
        evaluation={},
        created_at="2026-01-01T00:00:00+00:00",
    )
    model, manifest = read_policy(tmp_path)
    assert manifest["constraints"] == {
        "max_conversation_characters": {"cheap": 1000 * CHARACTERS_PER_TOKEN},
        "cannot": {"tools": ["cheap"], "attachments": ["cheap"]},
    }
    router = Router.load(tmp_path, draw=lambda: 0.5)
    for context in (PLAIN, TOOLS, IMAGE, JSON, LONG):
        decision = router.decide(context)
        expected = Learned(model, NAMES).probabilities(decision.features[None, :], np.array([[0.5, 0.5]]))[0]
        assert decision.propensity == pytest.approx(expected[NAMES.index(decision.action)])
        assert set(decision.candidates) == {name for name, p in zip(NAMES, expected, strict=True) if p > 0}
    alone = router.decide(TOOLS, candidates=["cheap"])
    assert (alone.action, alone.propensity, alone.reason) == ("cheap", 1.0, "none_able")


def test_learning_suggests_no_model_where_it_cannot_serve() -> None:
    """The cheap model is as good and saves, and half of the decisions offer tools that it cannot call."""
    made = two_models(3000, gap=0.0)
    features = np.zeros((3000, DIM))
    features[:, : made.features.shape[1]] = made.features
    offers = np.arange(3000) % 4 < 2
    features[:, DENSE.index("tools")] = np.where(offers, np.log1p(2), 0.0)
    equal = replace(made, features=features, quality=np.repeat(made.quality[:, :1], 2, axis=1))
    data = equal.draw(0)
    known = {"cheap": Ability(tools=False)}
    lessons = learn(Logged(data, None, 0.0), Limits(), None, epsilon=0.05, seed=0, abilities=known)
    assert lessons.suggestion.model is not None
    does = Learned(lessons.suggestion.model, NAMES).probabilities(data.features, data.behaviour)
    assert (does[offers, 1] == 0).all()
    assert does[~offers, 1].mean() > 0.9
    assert lessons.constraints is not None
    assert lessons.constraints.limited == pytest.approx(0.5)
    cheapest = min(point.cost_usd.value for point in lessons.curve)
    assert cheapest > 0.4 * 0.010  # half of the decisions can only go to the dear model


def test_what_is_stated_goes_before_what_is_listed() -> None:
    found = abilities(["gpt-4o-mini", "gpt-4o-mini:high|answer@2", "unheard-of"], {"gpt-4o-mini": Ability(tools=False)})
    assert found["gpt-4o-mini"].tools is False
    assert found["gpt-4o-mini"].images is True
    assert (found["gpt-4o-mini"].max_input_tokens or 0) >= 100_000
    assert found["gpt-4o-mini:high|answer@2"] == found["gpt-4o-mini"]
    assert found["unheard-of"] == Ability()


def test_abilities_can_be_stated_in_the_settings(tmp_path: Path) -> None:
    file = tmp_path / config.FILE_NAME
    file.write_text('[services.app.models."my model"]\nmax_input_tokens = 8000\nimages = false\n')
    assert config.load(tmp_path).service("app").models == {"my model": Ability(max_input_tokens=8000, images=False)}
    file.write_text('[services.app.models."my model"]\nvision = true\n')
    with pytest.raises(ConfigError, match="vision"):
        config.load(tmp_path)


@pytest.mark.parametrize("shape", [(2, 3), (1, 4)])
def test_a_table_of_another_shape_is_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="able"):
        Model("constant", NAMES, {"values": np.zeros(2), "able": np.ones(shape)})
