"""Sticky policies: a session meets one model, whichever router answers, and its one draw is logged as it was drawn."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from ingest.errors import UsageError
from optimizer.bundle import write_policy
from optimizer.export import onnx
from optimizer.runtime import (
    DENSE,
    DIM,
    NEEDS,
    OPENING_SPEC,
    STOP,
    Decision,
    Model,
    PolicyError,
    Router,
    attributes,
    featurise,
    of_session,
    opening,
)

NAMES = ("cheap", "mid", "strong", "huge")
SESSIONS = 5000
FEWER = 800


def table(**limits: list[float]) -> np.ndarray:
    """What each action can do: [most characters, tools, JSON, attachments]; everything if not stated."""
    return np.array([limits.get(name, [0.0, 1.0, 1.0, 1.0]) for name in NAMES])


def linear(seed: int = 3, **limits: list[float]) -> Model:
    """Prefers by the prompt, and would by tools too if a sticky policy let it."""
    rng = np.random.default_rng(seed)
    arrays = {
        "mean": np.zeros(DIM),
        "scale": np.ones(DIM),
        "weights": rng.normal(size=(DIM, len(NAMES))),
        "bias": np.zeros(len(NAMES)),
        "able": table(**limits),
        "today": np.array([0.1, 0.2, 0.3, 0.4]),
        "share": np.array(0.5),
    }
    return Model("linear", NAMES, arrays, 0.2)


def write(folder: Path, model: Model | None = None, **changes: object) -> Path:
    said: dict[str, object] = {
        "policy_id": "support",
        "version": "v7",
        "revision": 7,
        "virtual_model": "auto",
        "incumbent": "mid",
        "evaluation": {},
        "created_at": "2026-11-30T00:00:00+00:00",
        "sticky": True,
    }
    write_policy(folder, model or linear(), **(said | changes))  # type: ignore[arg-type]
    return folder


def load(folder: Path, model: Model | None = None, **changes: object) -> Router:
    return Router.load(write(folder, model, **changes))


def request(session: str | None, turns: int = 0, text: str = "Summarise this", **more: object) -> dict[str, object]:
    """A request of a conversation after so many turns."""
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]
    for turn in range(turns):
        messages += [
            {"role": "assistant", "content": f"Answer {turn}"},
            {"role": "user", "content": f"More? {turn}" * 9},
        ]
    return {"messages": messages, "metadata": {} if session is None else {"session": session}, **more}


def assert_drawn_as_logged(decisions: list[Decision]) -> None:
    """Chi-square of the actions of independent draws with equal probabilities, at 1e-3."""
    said = decisions[0]
    assert {(d.candidates, d.probabilities) for d in decisions} == {(said.candidates, said.probabilities)}
    assert all(d.propensity == d.probabilities[d.candidates.index(d.action)] for d in decisions)
    assert sum(said.probabilities) == pytest.approx(1)
    taken = Counter(d.action for d in decisions)
    expected = {
        name: share * len(decisions) for name, share in zip(said.candidates, said.probabilities, strict=True) if share
    }
    assert set(taken) <= set(expected)
    distance = sum((taken[name] - count) ** 2 / count for name, count in expected.items())
    assert distance < chi2.ppf(0.999, max(len(expected) - 1, 1))


def test_a_session_keeps_its_action_whatever_is_said_later(tmp_path: Path) -> None:
    router = load(tmp_path)
    for number in range(300):
        session = f"s{number}"
        later = [
            request(session),
            request(session, 1),
            request(session, 8),
            request(session, 2, tools=[{"type": "function"}]),
            request(session, 3, response_format={"type": "json_object"}),
            request(session, 2, history=[{"action": "cheap"}]),
        ]
        decisions = [router.decide(one) for one in later]
        assert len({decision.action for decision in decisions}) == 1
        assert {decision.draw for decision in decisions} == {"session"}
        assert len({decision.propensity for decision in decisions}) == 1


def test_every_router_gives_a_session_the_same_action(tmp_path: Path) -> None:
    """Two routers, one that loaded the files anew, and one of another process with another hash seed."""
    first, second = load(tmp_path), Router.load(tmp_path, draw=random.Random(5).random)
    sessions = [f"s{number}" for number in range(200)]
    here = [first.decide(request(name)).action for name in sessions]
    assert [second.decide(request(name, 4)).action for name in sessions] == here
    again = load(tmp_path)
    assert [again.decide(request(name, 1)).action for name in sessions] == here
    code = (
        "import importlib.util, json, pathlib, sys\n"
        "spec = importlib.util.spec_from_file_location('policy_runtime', sys.argv[1] + '/runtime.py')\n"
        "runtime = importlib.util.module_from_spec(spec); sys.modules['policy_runtime'] = runtime\n"
        "spec.loader.exec_module(runtime)\n"
        "router = runtime.Router.load(pathlib.Path(sys.argv[1]))\n"
        "print(json.dumps([router.decide(one).action for one in json.load(sys.stdin)]))\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        input=json.dumps([request(name, 2) for name in sessions]),
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
        env={**os.environ, "PYTHONHASHSEED": "77"},
    )
    assert json.loads(told.stdout) == here
    assert len(set(here)) > 1


def test_sessions_are_drawn_as_often_as_is_logged(tmp_path: Path) -> None:
    router = load(tmp_path)
    assert_drawn_as_logged([router.decide(request(f"s{number}")) for number in range(SESSIONS)])


def test_another_version_and_another_salt_draw_anew(tmp_path: Path) -> None:
    sessions = [f"s{number}" for number in range(400)]

    def actions(**changes: object) -> list[str]:
        router = load(tmp_path, **changes)
        return [router.decide(request(name)).action for name in sessions]

    here = actions()
    for other in (actions(version="v8"), actions(policy_id="other")):
        assert 0 < sum(one != two for one, two in zip(here, other, strict=True)) < 400


def test_a_request_without_a_session_is_drawn_by_itself(tmp_path: Path) -> None:
    router = Router.load(write(tmp_path), draw=random.Random(0).random)
    decisions = [router.decide(request(None, 2)) for _ in range(FEWER)]
    assert {decision.draw for decision in decisions} == {"fresh"}
    assert_drawn_as_logged(decisions)
    assert router.decide(request("", 2)).draw == "fresh"


def test_what_cannot_serve_a_request_is_replaced_by_a_second_draw_that_repeats_itself(tmp_path: Path) -> None:
    """With tools in this request only: cheap cannot serve them. With a long conversation: strong has no room."""
    router = load(tmp_path, linear(strong=[400.0, 1.0, 1.0, 1.0]))
    opened = {f"s{n}": router.decide(request(f"s{n}")) for n in range(FEWER)}
    later = {name: router.decide(request(name, 12)) for name in opened}
    assert {d.candidates for d in later.values()} == {("cheap", "mid", "huge")}
    replaced = [name for name, d in opened.items() if d.action == "strong"]
    assert len(replaced) > 40
    for name, decision in later.items():
        kept = name not in set(replaced)
        assert decision.reason == ("policy" if kept else "not_able")
        assert decision.action == opened[name].action if kept else decision.action != "strong"
        assert decision.draw == "session"
        assert router.decide(request(name, 13)).action == decision.action
    assert_drawn_as_logged(list(later.values()))


def test_an_action_that_is_not_offered_is_replaced_and_comes_back(tmp_path: Path) -> None:
    router = load(tmp_path)
    opened = {f"s{n}": router.decide(request(f"s{n}")).action for n in range(FEWER)}
    less = {name: router.decide(request(name, 1), ["cheap", "mid"]) for name in opened}
    assert {d.reason for name, d in less.items() if opened[name] in ("cheap", "mid")} == {"policy"}
    assert {d.reason for name, d in less.items() if opened[name] not in ("cheap", "mid")} == {"not_offered"}
    assert all(d.action == opened[name] for name, d in less.items() if d.reason == "policy")
    assert_drawn_as_logged(list(less.values()))
    assert all(router.decide(request(name, 2)).action == action for name, action in list(opened.items())[:200])


def test_needs_of_all_requests_are_met_by_the_one_draw(tmp_path: Path) -> None:
    """Where all requests offer tools, the draw is the model's own among those that can serve them."""
    model = linear(cheap=[0.0, 0.0, 1.0, 1.0])
    router = load(tmp_path, model)
    asked = [request(f"s{n}", tools=[{"type": "function"}]) for n in range(FEWER)]
    decisions = [router.decide(one) for one in asked]
    assert {d.reason for d in decisions} == {"policy"}
    seen = of_session(featurise(opening(asked[0])))[None, :]
    wanted = model.probabilities(seen, np.array([[False, True, True, True]]))[0]
    assert decisions[0].probabilities == pytest.approx(tuple(wanted[1:]))
    assert_drawn_as_logged(decisions)


def test_nothing_able_leaves_the_incumbent(tmp_path: Path) -> None:
    router = load(tmp_path, linear(**{name: [1.0, 1.0, 1.0, 1.0] for name in NAMES}))
    decision = router.decide(request("s"))
    assert (decision.action, decision.propensity, decision.reason, decision.draw) == ("mid", 1.0, "none_able", "fresh")


def test_the_arms_of_a_canary_stay_as_they_were(tmp_path: Path) -> None:
    """Their shares and members are those without stickiness; the logged probabilities are those over all arms."""
    shares = {"canary_percent": 40.0, "explore_percent": 20.0}
    sticky, loose = load(tmp_path / "a", **shares), load(tmp_path / "b", sticky=False, **shares)
    decisions = [sticky.decide(request(f"s{n}")) for n in range(FEWER)]
    assert [d.arm for d in decisions] == [loose.decide(request(f"s{n}")).arm for n in range(FEWER)]
    assert_drawn_as_logged(decisions)
    assert {(d.action, d.reason) for d in decisions if d.arm == "control"} == {("mid", "canary")}
    explored = Counter(d.action for d in decisions if d.arm == "explore")
    # Drawn evenly: the standard error of a share of a quarter of 200 is 0.031.
    assert {name: explored[name] / sum(explored.values()) for name in NAMES} == pytest.approx(
        dict.fromkeys(NAMES, 0.25), abs=0.125
    )


def test_the_kill_switch_still_takes_everything(tmp_path: Path) -> None:
    router = load(tmp_path)
    (tmp_path / "KILL").touch()
    decision = router.decide(request("s1"))
    assert (decision.action, decision.reason, decision.draw) == ("mid", "kill_switch", "fresh")


def test_the_draw_and_the_rules_of_the_features_are_logged(tmp_path: Path) -> None:
    router = load(tmp_path)
    flat = attributes(router.decide(request("s1", 3)))
    assert flat["policy.draw"] == "session"
    assert flat["policy.features.spec"] == OPENING_SPEC
    assert flat["policy.features"] == attributes(router.decide(request("s1")))["policy.features"]
    assert attributes(load(tmp_path, sticky=False).decide(request("s1")))["policy.draw"] == "fresh"


def test_an_opening_ends_with_the_first_message_of_a_user() -> None:
    whole = request("s", 4, tools=[1], history=[{}])
    assert opening(whole) == {**opening(request("s")), "tools": [1]}
    assert opening({"messages": "Hi"})["messages"] == "Hi"
    only = [{"role": "system", "content": "x"}, {"role": ["user"], "content": "y"}, "no message"]
    assert opening({"messages": only})["messages"] == only
    assert opening(None) == {}  # type: ignore[arg-type]
    needs = [DENSE.index(name) for name in NEEDS[:2]]
    assert featurise(opening(whole))[needs[0]] > 0
    assert not of_session(featurise(opening(whole)))[needs].any()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=80)
@given(messages=JSON, metadata=JSON, tools=JSON)
def test_odd_requests_never_raise(
    tmp_path_factory: pytest.TempPathFactory, messages: object, metadata: object, tools: object
) -> None:
    router = _odd(tmp_path_factory)
    session = {"session": messages}
    for asked in ({"messages": messages, "metadata": metadata, "tools": tools}, {"metadata": session}, messages):
        decision = router.decide(asked)  # type: ignore[arg-type]
        assert decision.action in NAMES
        assert sum(decision.probabilities) == pytest.approx(1)
        assert 0 < decision.propensity <= 1


_ROUTERS: dict[str, Router] = {}


def _odd(folders: pytest.TempPathFactory) -> Router:
    if "odd" not in _ROUTERS:
        _ROUTERS["odd"] = load(folders.mktemp("odd"), linear(cheap=[50.0, 0.0, 0.0, 0.0]))
    return _ROUTERS["odd"]


def test_who_does_not_know_the_rules_of_sticky_policies_refuses_them(tmp_path: Path) -> None:
    """Routers and runtimes that read whole conversations compare the rules' name; so does this one."""
    write(tmp_path)
    path = tmp_path / "manifest.json"
    manifest = json.loads(path.read_text())
    assert manifest["features"]["spec"] == OPENING_SPEC
    path.write_text(json.dumps(manifest | {"sticky": False}))
    with pytest.raises(PolicyError, match="made for feature rules"):
        Router.load(tmp_path)
    with pytest.raises(UsageError, match="keeps a session's action"):
        onnx.export(write(tmp_path), tmp_path / "out", "auto")


def test_an_orchestrator_cannot_be_sticky(tmp_path: Path) -> None:
    steps = Model("constant", ("search", STOP), {"values": np.array([1.0, 0.0])}, 0.0)
    said: Mapping[str, object] = {"script": ["search"], "incumbent": "search"}
    with pytest.raises(ValueError, match="cannot be sticky"):
        write(tmp_path, steps, **said)
    write(tmp_path, steps, sticky=False, **said)
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"sticky": True}))
    with pytest.raises(PolicyError, match="cannot be sticky"):
        Router.load(tmp_path)
