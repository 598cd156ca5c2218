"""Requests go on while the policy in use is replaced, corrupted, deleted, expires or is killed."""

from __future__ import annotations

import functools
import json
import os
import random
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from policy_changes import Changes, as_often_as_said
from policy_hook import NAMES, SERVER, Proxy, exported, serving, stand_in

HELLO = {"messages": [{"role": "user", "content": "Hello"}]}


@pytest.fixture
def started(tmp_path: Path) -> Iterator[tuple[Proxy, Changes]]:
    with stand_in():
        sys.modules[SERVER] = serving("desk", *NAMES)
        out = exported(tmp_path, epsilon=0.5)
        yield Proxy(out), Changes(out / "policy", random.Random(3))


def test_ten_thousand_requests_among_changes_are_answered_as_the_policy_says(
    started: tuple[Proxy, Changes], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, changes = started
    loads = proxy.handler.runtime.Router.load
    seeded = functools.partial(loads, draw=random.Random(5).random)
    monkeypatch.setattr(proxy.handler.runtime.Router, "load", seeded)
    changes.good()
    proxy.look_again()
    taken: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    reasons: Counter[str] = Counter()
    for number in range(10_000):
        if number % 25 == 0:
            changes.some()
            proxy.look_again()
        data = proxy.send(model="desk", **HELLO)
        decided = data["metadata"]["_retroute"]  # there was a good policy, so there always is one
        assert data["model"] in NAMES
        assert data["model"] == decided["policy.action"]
        said = (decided["policy.version"], decided["policy.candidates"], decided["policy.probabilities"])
        taken[said][data["model"]] += 1
        reasons[decided["policy.reason"]] += 1
    pairs = [
        (dict(zip(json.loads(names), json.loads(shares), strict=True)), counts)
        for (_, names, shares), counts in taken.items()
    ]
    assert as_often_as_said(pairs) > 1e-3
    assert set(reasons) == {"policy", "canary", "explore", "kill_switch", "disabled"}
    assert len({version for version, *_ in taken}) > 20
    assert set(changes.made) == set(Changes.KINDS)


def test_threads_of_one_process_share_a_handler(started: tuple[Proxy, Changes]) -> None:
    """As litellm's own `Router` may be used: the files change under four threads, and every decision is whole."""
    proxy, changes = started
    wrong: list[object] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            proxy.handler.checked_s = float("-inf")
            data = proxy.handler.routed(None, model="desk", **HELLO)
            decided = data["metadata"].get("_retroute")
            if decided is None or data["model"] != decided["policy.action"] or data["model"] not in NAMES:
                wrong.append(data)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(40):
        changes.some()
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_forked_workers_draw_for_themselves(started: tuple[Proxy, Changes]) -> None:
    """A server that forks after loading must not give all workers the same stream of draws."""
    proxy, _ = started
    routed = proxy.handler.routed
    taken = []
    for _ in range(2):
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            drawn = [NAMES.index(routed(None, model="desk", **HELLO)["model"]) for _ in range(400)]
            os.write(writing, bytes(drawn))
            os._exit(0)
        os.waitpid(child, 0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            taken.append(pipe.read())
    assert [len(one) for one in taken] == [400, 400]
    assert taken[0] != taken[1]  # equal by chance once in (1 / 0.5)^400
