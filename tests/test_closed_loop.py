"""The whole loop with real programs: a LiteLLM proxy routes and explores, its telemetry goes to `retroute collect`,
scores come late, a night learns from the probabilities that were logged and puts a new policy into the running proxy's
folder, and what the next requests save is what was predicted.

The model server's answers cost and are worth what a table and the request's own text say, so every outcome is known.
The proxy's draws are seeded, so that the whole run repeats itself.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from helpdesk_world import SEED, SERVICE, Sent, cost, quality, running_loop
from litellm_proxy import litellm_command

from ingest.lake import Lake
from optimizer import config, doctor, pipeline, runs
from optimizer.prediction import forecast_of
from optimizer.runtime import Router


def test_a_policy_learned_from_its_own_exploration_saves_what_was_predicted(
    pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    closes(litellm_command(pytestconfig), tmp_path, 1050, 300)


@pytest.mark.slow
def test_the_loop_closes_over_two_thousand_requests(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    closes(litellm_command(pytestconfig), tmp_path, 2000, 2000)


def closes(command: Path, root: Path, count: int, more: int) -> None:
    with running_loop(command, root) as loop:
        sent = loop.ask(range(count))
        seen = loop.settled(sent)
        as_the_router_drew(root / "first", sent)
        as_in_the_world(sent, seen)
        loop.score(sent, lambda one: quality(one.text, one.action))

        found = pipeline.nightly(loop.home, config.load(loop.home))["services"][SERVICE]
        assert found["data"]["propensity_origin"] == {"logged": count, "stated": 0, "estimated": 0}
        assert (found["verdict"], found["data"]["labelled"]) == ("deploy", count), found["reasons"]
        manifest = json.loads((runs.bundle_folder(loop.home, SERVICE) / "policy" / "manifest.json").read_text())
        assert (manifest["revision"], manifest["version"]) == (2, found["run_id"])

        time.sleep(1.2)  # the router looks once a second
        later = loop.ask(range(count, count + more))
        assert {one.version for one in later} == {found["run_id"]}
        after = loop.settled(later)
        as_in_the_world(later, after)
        with Lake.open(loop.home) as lake:
            assert all(row["agree"] == 1.0 for row in doctor.features(lake).rows)
    today = next(row for row in found["table"] if row["policy"] == "today")
    cheap = 1000 * np.mean([cost(one.text, one.action) for one in later])
    good = np.mean([quality(one.text, one.action) for one in later])
    realised = {
        "savings_usd_per_1k": today["cost_usd_per_1k"]["value"] - cheap,
        "quality_change": good - today["quality"]["value"],
    }
    for name, value in realised.items():
        predicted = forecast_of(found["predicted"][name])
        assert predicted is not None
        soon = predicted.after(more)
        assert soon.low <= value <= soon.high, (name, value, soon)
        print(f"{name}: {value:.4g} realised, {soon.value:.4g} predicted, {soon.low:.4g} to {soon.high:.4g}")
        if name == "savings_usd_per_1k":
            assert soon.low > 0  # an interval that says something


def as_the_router_drew(policy: Path, sent: Sequence[Sent]) -> None:
    """The proxy's draws are the seeded ones, so the run repeats itself."""
    router = Router.load(policy, draw=random.Random(SEED).random)
    drawn = [router.decide({"messages": [{"role": "user", "content": one.text}]}).action for one in sent]
    assert [one.action for one in sent] == drawn


def as_in_the_world(sent: Sequence[Sent], calls: pl.DataFrame) -> None:
    """Every call is stored once, with the action and its chance, the model that answered, and its cost."""
    assert len(calls) == len(sent)
    rows: Mapping[str, dict[str, Any]] = {row["trace_id"]: row for row in calls.to_dicts()}
    for one in sent:
        row = rows[one.trace_id]
        assert (row["policy_action"], row["model_returned"]) == (one.action, one.action)
        assert row["response_id"] == one.response_id
        assert row["cost_usd"] == pytest.approx(cost(one.text, one.action))
        assert 0 < row["policy_propensity"] <= 1
        assert row["session_id"] == f"session-{one.number:05d}"
