"""A rollout by its commands while a real LiteLLM proxy serves: the running process takes up each stage, and every
request is answered meanwhile."""

from __future__ import annotations

import functools
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from helpdesk_world import ACTIONS, BIG, PRICES, SERVICE, SMALL, Loop, Sent, always, running_loop
from litellm_proxy import litellm_command
from rollout_world import judged_run

SETTINGS = """
[services.helpdesk.limits]
quality_margin = 0.3
""" + "".join(
    f'[[prices]]\nmodel = "{model}"\ninput = {given}\noutput = {made}\n' for model, (given, made) in PRICES.items()
)
TURNS = 2
"""Requests of a session."""


@dataclass
class Rolled:
    """A helpdesk in production and the commands of its rollout."""

    loop: Loop
    numbers: Iterator[int] = field(default_factory=itertools.count)
    others: Iterator[int] = field(default_factory=functools.partial(itertools.count, 100_000))
    """For requests beside a command: as many as it takes time for, and so no session of those that are counted."""

    def command(self, name: str, *options: str) -> tuple[dict[str, Any], list[Sent]]:
        """What `retroute rollout` says, and the requests that were answered from its start until every router must have
        seen its work."""
        words = [sys.executable, "-m", "optimizer.cli", "rollout", name, "--service", SERVICE]
        process = subprocess.Popen(
            [*words, "--home", str(self.loop.home), "--json", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        meanwhile = self.asked_while(lambda: process.poll() is None)
        said, problem = process.communicate()
        assert process.returncode == 0, problem.decode()
        until = time.monotonic() + 1.2  # the router looks once a second
        meanwhile += self.asked_while(lambda: time.monotonic() < until)
        return json.loads(said), meanwhile

    def asked_while(self, wanted: Callable[[], bool]) -> list[Sent]:
        sent = []
        while wanted():
            sent += self.loop.ask(itertools.islice(self.others, TURNS), TURNS)
            time.sleep(0.1)
        return sent

    def sessions(self, number: int) -> list[Sent]:
        """The answers to so many sessions."""
        return self.loop.ask(itertools.islice(self.numbers, TURNS * number), TURNS)

    def scored(self, sent: list[Sent], worth: Callable[[Sent], float]) -> list[Sent]:
        """Once all of them are stored and have a score."""
        self.loop.settled(sent)
        self.loop.score(sent, worth)
        return sent


@pytest.fixture(scope="module")
def rolled(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rolled]:
    with running_loop(litellm_command(pytestconfig), tmp_path_factory.mktemp("rolled"), SETTINGS, 0.0) as loop:
        yield Rolled(loop)


def judged(home: Path, run_id: str) -> None:
    """A run that suggests the small model for everything."""
    judged_run(home, run_id, service=SERVICE, models=ACTIONS, model=always(SMALL))


def arms_of(sent: list[Sent]) -> dict[str, str]:
    """The arm of each session, whose requests all have the same."""
    found = {one.session: one.arm for one in sent}
    assert all(found[one.session] == one.arm for one in sent)
    return found


def drawn_at(share: float, arms: dict[str, str]) -> bool:
    """Whether so many sessions are under the policy as a share of all says, within 3.3 standard errors: once in 1,000
    draws it is not. The names of the sessions and the salt draw, and both are the same in every run."""
    treated = sum(arm == "treatment" for arm in arms.values())
    return abs(treated - share * len(arms)) <= 3.3 * (len(arms) * share * (1 - share)) ** 0.5


def served(sent: list[Sent]) -> set[tuple[str, str, str]]:
    return {(one.version, one.arm, one.action) for one in sent}


def test_a_running_proxy_follows_every_stage_of_a_rollout(rolled: Rolled) -> None:
    judged(rolled.loop.home, "good")
    before, shadow = ("first", "treatment", BIG), ("good", "control", BIG)
    assert served(rolled.sessions(3)) == {before}

    found, meanwhile = rolled.command("start")
    assert (found["stage"], found["control"]) == ("shadow", "first")
    assert served(meanwhile) == {before, shadow}
    watched = rolled.sessions(105)
    assert served(watched) == {shadow}
    rolled.scored(watched, lambda one: 0.9)

    found, meanwhile = rolled.command("advance", "--percent", "50")
    assert (found["stage"], found["percent"], found["monitor"]["held"]) == ("canary", 50.0, 0)
    decisions = found["monitor"]["shadow"]["decisions"]
    assert decisions >= len(watched)
    assert found["monitor"]["shadow"]["actions"] == {SMALL: decisions}  # the attributes came through the collector
    canary = {("good", "treatment", SMALL), ("good", "control", BIG)}
    assert served(meanwhile) == canary
    sent = rolled.sessions(240)
    assert served(sent) == canary
    arms = arms_of(sent)
    assert drawn_at(0.5, arms)
    rolled.scored(sent, lambda one: 0.9)

    found, meanwhile = rolled.command("advance", "--percent", "100")
    assert found["stage"] == "full"
    seen = found["monitor"]
    for arm in ("treatment", "control"):
        assert seen["arms"][arm]["units"] >= sum(one == arm for one in arms.values())
    assert seen["ratio"]["ok"]
    cost, quality, _ = (one["difference"] for one in seen["metrics"])
    assert cost["high"] < 0
    assert quality["low"] <= 0 <= quality["high"]
    assert served(rolled.sessions(20)) == {("good", "treatment", SMALL)}

    found, meanwhile = rolled.command("rollback", "--why", "odd answers")
    assert (found["stage"], found["restored"], found["revision"]) == ("rolled_back", "first", 5)
    assert served(meanwhile) == {("good", "treatment", SMALL), before}
    assert served(rolled.sessions(20)) == {before}


def test_a_running_proxy_goes_back_by_itself_from_a_policy_that_does_harm(rolled: Rolled) -> None:
    judged(rolled.loop.home, "bad")
    rolled.command("start", "--run", "bad", "--percent", "50")
    sent = rolled.sessions(130)
    assert {one.version for one in sent} == {"bad"}
    rolled.scored(sent, lambda one: 0.1 if one.action == SMALL else 0.9)
    (found,), _ = rolled.command("watch")
    assert (found["stage"], found["restored"], found["steps"][-1]["by"]) == ("rolled_back", "first", "watch")
    assert "quality differs by" in found["steps"][-1]["why"]
    assert served(rolled.sessions(20)) == {("first", "treatment", BIG)}
