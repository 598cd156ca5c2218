"""The committed sample of an agent that is routed step by step: its spans are what its script and the truth say."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from test_sample_traces import FOLDER, sent, settings

from optimizer import replay_truth
from optimizer.replay_truth import Replay
from optimizer.sequential.episodes import STOP

SERVICE = "sql-agent"


@cache
def world() -> Replay:
    found = replay_truth.read(FOLDER / "truth", SERVICE)
    assert found is not None
    return found


@dataclass(frozen=True)
class Told:
    """One trace as its spans tell it."""

    root: dict[str, Any]
    routes: list[dict[str, Any]]
    below: list[list[dict[str, Any]]]
    """The spans after each route, until the next one."""

    @property
    def taken(self) -> list[str]:
        return [route["attributes"]["policy.action"] for route in self.routes]


@cache
def told() -> dict[str, Told]:
    result = {}
    for trace, spans in sent(SERVICE).traces.items():
        root = next(span for span in spans if "parentSpanId" not in span)
        children = sorted((s for s in spans if s is not root), key=lambda s: int(s["startTimeUnixNano"]))
        routes = [span for span in children if span["name"] == "route"]
        places = [children.index(route) for route in routes]
        below = [children[a + 1 : b] for a, b in zip(places, [*places[1:], None], strict=True)]
        assert places[0] == 0
        assert {child["parentSpanId"] for child in children} == {root["spanId"]}
        result[trace] = Told(root, routes, below)
    return result


@cache
def moments() -> list[tuple[Told, replay_truth.Moment, dict[str, Any], list[dict[str, Any]]]]:
    """Of each decision its trace, where the truth says that it stands then, its span, and the spans that follow."""
    found = []
    for trace, one in told().items():
        moment = world().begin(trace)
        for route, below in zip(one.routes, one.below, strict=True):
            found.append((one, moment, route, below))
            if (action := route["attributes"]["policy.action"]) != STOP:
                moment = world().after(moment, world().arms.index(action))
    return found


def test_probabilities_are_those_of_the_script() -> None:
    actions = world().actions
    for _, moment, route, _ in moments():
        attributes = route["attributes"]
        candidates = [actions[place] for place in np.flatnonzero(moment.candidates)]
        taken = [actions[arm] for arm in moment.taken]
        expected = world().script.probabilities(taken, candidates)
        written = json.loads(attributes["policy.probabilities"])
        assert json.loads(attributes["policy.candidates"]) == candidates == list(expected)
        assert written == list(expected.values())
        assert math.isclose(sum(written), 1.0)
        assert attributes["policy.propensity"] == expected[attributes["policy.action"]] > 0
        drawn = attributes["policy.reason"] == "explore"
        assert attributes["policy.arm"] == ("explore" if drawn else "control")
        assert "policy.features" not in attributes
        if not drawn:
            assert attributes["policy.action"] == world().script.usual(taken, candidates)
    assert sum("policy.action" in span["attributes"] for span in sent(SERVICE).spans) == len(moments())


def test_it_explores_as_often_as_the_script_says() -> None:
    """Within four standard errors of a sum of independent draws: of exploring, and of each action."""
    found, expected, variance = np.zeros(6), np.zeros(6), np.zeros(6)
    actions = world().actions
    for _, moment, route, _ in moments():
        attributes = route["attributes"]
        shares = np.zeros(6)
        shares[-1] = world().script.share([actions[arm] for arm in moment.taken])
        for name, share in zip(
            *map(json.loads, (attributes["policy.candidates"], attributes["policy.probabilities"])), strict=True
        ):
            shares[actions.index(name)] = share
        found[actions.index(attributes["policy.action"])] += 1
        found[-1] += attributes["policy.reason"] == "explore"
        expected += shares
        variance += shares * (1 - shares)
    assert (np.abs(found - expected) <= 4 * np.sqrt(variance)).all()
    assert (found > 30).all()


def test_a_step_is_a_model_call_and_its_tool_as_the_truth_says() -> None:
    prices = {price["model"]: price for price in settings()["prices"]}
    arms = world().arms
    for one, moment, route, below in moments():
        action = route["attributes"]["policy.action"]
        if action == STOP:
            assert below == []
            continue
        arm = arms.index(action)
        steps, place = world().tasks[moment.task][arm], moment.taken.count(arm)
        chat, tool = (span["attributes"] for span in below)
        assert [chat["gen_ai.operation.name"], tool["gen_ai.operation.name"]] == ["chat", "execute_tool"]
        assert f"{chat['gen_ai.request.model']}|{chat['gen_ai.prompt.name']}" == action
        price, tokens = (
            prices[chat["gen_ai.response.model"]],
            (chat["gen_ai.usage.input_tokens"], chat["gen_ai.usage.output_tokens"]),
        )
        assert math.isclose(
            (tokens[0] * price["input"] + tokens[1] * price["output"]) / 1e6, steps.cost_usd[place], rel_tol=1e-12
        )
        assert sum(tokens) == steps.tokens[place]
        assert tool["gen_ai.tool.call.result"] == steps.output[place]
        assert (below[1]["status"] == {"code": 2}) == steps.failed[place]
        # its own conversation: the question, and two messages for each of its earlier steps
        assert len(json.loads(chat["gen_ai.input.messages"])) == 2 + 2 * place
        times = [int(span[key]) for span in (route, *below) for key in ("startTimeUnixNano", "endTimeUnixNano")]
        assert times == sorted(times)
        following = one.routes[len(moment.taken) + 1 :]
        end = int(following[0]["startTimeUnixNano"] if following else one.root["endTimeUnixNano"])
        assert end - times[0] == round(steps.latency_s[place] * 1e6) * 1000


def test_an_episode_ends_where_the_rules_say() -> None:
    arms = world().arms
    stopped = 0
    for trace, one in told().items():
        arms_taken = tuple(arms.index(name) for name in one.taken if name != STOP)
        stopped += one.taken[-1] == STOP
        assert STOP not in one.taken[:-1]
        assert not world().moment(trace, arms_taken[:-1]).over
        assert world().moment(trace, arms_taken).over or one.taken[-1] == STOP
        assert int(one.routes[0]["startTimeUnixNano"]) == int(one.root["startTimeUnixNano"])
    assert stopped > 50


def test_rewards_are_the_best_so_far_and_the_last_is_the_quality() -> None:
    by_span = {}
    for event in sent(SERVICE).events:
        key = event["spanId"], event["attributes"]["gen_ai.evaluation.name"]
        assert key not in by_span
        by_span[key] = event
    for one, moment, route, below in moments():
        if not below:
            continue
        after = world().moment(moment.task, (*moment.taken, world().arms.index(route["attributes"]["policy.action"])))
        event = by_span.pop((below[1]["spanId"], "step_reward"))
        assert event["attributes"]["gen_ai.evaluation.score.value"] == after.quality
        assert 60 <= (int(event["timeUnixNano"]) - int(one.root["endTimeUnixNano"])) / 1e9 <= 600
        if len(moment.taken) + 1 == sum(name != STOP for name in one.taken):
            event = by_span.pop((one.root["spanId"], "reward"))
            assert event["attributes"]["gen_ai.evaluation.score.value"] == after.quality
            assert 60 <= (int(event["timeUnixNano"]) - int(one.root["endTimeUnixNano"])) / 1e9 <= 600
    assert not by_span
    assert settings()["services"][SERVICE]["quality"] == "reward"


def test_the_log_is_worth_what_the_script_is() -> None:
    """On some traces: four standard errors of the mean over sessions, which hold all traces of a query."""
    asked = sorted(world().tasks)[::6]
    script = replay_truth.value(world(), replay_truth.of_script(world()), asked)
    by_session: dict[str, list[tuple[float, float]]] = {}
    for trace in asked:
        one = told()[trace]
        done = world().moment(trace, [world().arms.index(name) for name in one.taken if name != STOP])
        of_session = by_session.setdefault(one.root["attributes"]["gen_ai.conversation.id"], [])
        of_session.append((done.quality - script.quality, done.cost_usd - script.cost_usd))
    sums = np.array([np.sum(apart, axis=0) for apart in by_session.values()])
    assert (np.abs(sums.sum(axis=0)) <= 4 * np.sqrt((sums**2).sum(axis=0))).all()


def test_an_episode_begins_with_the_question_alone() -> None:
    seen = {span["attributes"]["gen_ai.input.messages"] for span in sent(SERVICE).roots.values()}
    assert len(seen) > 700
    for messages in map(json.loads, seen):
        assert [message["role"] for message in messages] == ["system", "user"]


def test_the_script_is_the_incumbent() -> None:
    assert settings()["services"][SERVICE]["incumbent"] == world().script.arm


def test_readme_table_is_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    from tables import table_of_routes

    assert f"<!-- truth {SERVICE} -->\n{table_of_routes(world())}\n<!-- end -->" in (FOLDER / "README.md").read_text()
