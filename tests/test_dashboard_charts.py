from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest
from dashboard_fixture import RUN, START_NS, verdicts

from dashboard import axes, bars, charts, figures, theme
from dashboard.records import ServiceVerdict, verdict


def service(name: str) -> ServiceVerdict:
    return verdict(name, RUN, verdicts()["services"][name])


def spec(chart: Any) -> dict[str, Any]:
    return json.loads(chart.to_json())


def rows(chart: Any) -> list[dict[str, Any]]:
    return [row for rows in spec(chart)["datasets"].values() for row in rows]


def marks(chart: Any) -> list[str]:
    return [layer["mark"]["type"] for layer in spec(chart)["layer"]]


def forest(of: str | ServiceVerdict, place: int) -> Any:
    """The forest of the axis at `place` of cost, quality, latency."""
    said = service(of) if isinstance(of, str) else of
    axis = axes.of(said)[place]
    found = [(figures.estimator(row.estimator), row.on(axis.name)) for row in said.estimators]
    return charts.forest(found, axis, theme.LIGHT)


def test_interval_bar_draws_interval_zero_and_the_limit_with_its_forbidden_side() -> None:
    quality = axes.of(service("alpha"))[1]
    chart = charts.interval_bar(quality, theme.LIGHT)
    found = rows(chart)
    assert {
        "low": pytest.approx(0.29),
        "high": pytest.approx(2.33),
        "value": pytest.approx(1.31),
        "text": "+1.3\xa0points (+0.3 to +2.3\xa0points)",
    } in found
    assert {"low": 0.0, "text": "no change"} in found
    assert {"low": -1.0, "text": "limit"} in found
    domain = spec(chart)["layer"][0]["encoding"]["x"]["scale"]["domain"]
    assert {"low": domain[0], "high": -1.0} in found  # shaded from the edge to the limit
    assert domain[0] < -1.0 < 2.33 < domain[1]


def test_latency_is_forbidden_above_its_limit() -> None:
    chart = charts.interval_bar(axes.of(service("alpha"))[2], theme.LIGHT)
    domain = spec(chart)["layer"][0]["encoding"]["x"]["scale"]["domain"]
    assert {"low": 0.25, "high": domain[1]} in rows(chart)


def test_axis_without_a_limit_draws_none() -> None:
    chart = charts.interval_bar(axes.of(service("beta-agent"))[2], theme.LIGHT)
    assert "rect" not in marks(chart)
    assert "limit" not in [row.get("text") for row in rows(chart)]


def test_frontier_tells_the_baselines_by_shape_and_gives_only_the_suggestion_a_colour() -> None:
    alpha = service("alpha")
    colour = theme.VERDICT_COLOURS["deploy"]
    chart = charts.frontier(alpha.frontier, alpha.table, colour, theme.LIGHT)
    found = rows(chart)
    assert {row["role"] for row in found} == set(charts.SHAPES)
    assert {row["name"] for row in found} == {"", "Today", "Suggested"}
    assert [row["name"] for row in found if row["suggested"]] == ["Suggested"]
    assert sum(row["role"] == "other" for row in found) == 5  # six tried, the chosen one is the suggestion
    suggested = next(row for row in found if row["suggested"])
    assert (suggested["cost"], suggested["quality"]) == pytest.approx((0.6375, 71.51))
    hues = {hue for hue in theme.VERDICT_COLOURS.values() if hue in chart.to_json()}
    assert hues == {colour}


def test_frontier_draws_the_curve_of_prices_as_a_line_in_its_band() -> None:
    alpha = service("alpha")
    chart = charts.frontier(alpha.frontier, alpha.table, "#000000", theme.LIGHT, alpha.curve)
    kinds = [layer["mark"]["type"] for layer in spec(chart)["layer"]]
    assert kinds[:2] == ["area", "line"]
    drawn = [row for row in rows(chart) if set(row) == {"cost", "quality", "quality_low", "quality_high"}]
    assert [row["quality"] for row in drawn] == pytest.approx([65, 69, 71, 72])
    assert (drawn[0]["quality_low"], drawn[0]["quality_high"]) == pytest.approx((62, 68))
    bare = charts.frontier(alpha.frontier, alpha.table, "#000000", theme.LIGHT)
    assert "area" not in marks(bare)


def test_refused_policy_is_not_drawn_as_a_point() -> None:
    delta = service("delta")
    chart = charts.frontier(delta.frontier, delta.table, theme.VERDICT_COLOURS["cannot_tell"], theme.LIGHT)
    assert "Suggested" not in {row["name"] for row in rows(chart)}


def test_frontier_of_refusals_only_is_an_empty_chart() -> None:
    delta = service("delta")
    assert charts.frontier([], delta.table[-1:], "#000000", theme.LIGHT).to_json()


def test_forest_has_a_line_per_estimator_and_words_for_a_refused_one() -> None:
    found = rows(forest("beta-agent", 0))
    drawn = {row["estimator"]: row["value"] for row in found if "value_low" in row}
    assert drawn == {"Outcome model (DM)": 5.9, "Doubly robust (DR)": 6.21}
    assert {"estimator": "Reweighted log (SNIPS)", "text": "not estimated", "value": 0.0} in found


def test_unbounded_interval_runs_off_the_axis_and_draws_no_bar_elsewhere() -> None:
    open_ended = verdicts()["services"]["alpha"]
    open_ended["quality_change"] |= {"low": None, "high": None}
    for row in open_ended["estimators"]:
        row["quality_change"] |= {"low": None, "high": None}
    alpha = verdict("alpha", RUN, open_ended)
    chart = charts.interval_bar(axes.of(alpha)[1], theme.LIGHT)
    domain = spec(chart)["layer"][0]["encoding"]["x"]["scale"]["domain"]
    assert [(row["low"], row["high"]) for row in rows(chart) if "value" in row] == [tuple(domain)]
    drawn = rows(forest(alpha, 1))
    assert {row["value_low"] for row in drawn if "value_low" in row} == {None}


def test_forest_of_quality_draws_the_limit_in_points() -> None:
    found = rows(forest("alpha", 1))
    assert {"value": -1.0} in found


def test_shares_pair_today_and_suggestion_in_the_order_of_today() -> None:
    chart = bars.shares(service("alpha").points[0].actions, theme.LIGHT)
    found = rows(chart)
    assert [(row["who"], row["share"]) for row in found if row["action"] == "big-model"] == [
        ("Today", 0.6),
        ("Suggested", 0.18),
    ]
    order = spec(chart)["layer"][0]["encoding"]["y"]["sort"]
    assert order[0] == "big-model"
    assert len(order) == 3


def test_unknown_share_has_no_bar() -> None:
    found = rows(bars.shares(service("delta").points[0].actions, theme.LIGHT))
    assert {row["who"] for row in found} == {"Today"}


def test_timeline_draws_rejected_below_zero() -> None:
    data = pl.DataFrame({"received_ns": [START_NS, START_NS + 60 * 10**9], "spans": [5, 7], "rejected": [0, 2]})
    found = rows(bars.timeline(data, "received_ns", "spans", theme.LIGHT, rejected="rejected"))
    assert [row["count"] for row in found][:2] == [5.0, 7.0]
    assert {row["lost"] for row in found} == {0.0, -2.0}


def test_timeline_of_one_bucket_is_drawn() -> None:
    data = pl.DataFrame({"start_ns": [START_NS], "calls": [5]})
    assert rows(bars.timeline(data, "start_ns", "calls", theme.DARK))


def test_coverage_is_a_share_with_its_count() -> None:
    data = pl.DataFrame({"action": ["a", "b"], "decisions": [200, 10], "labelled": [100, 0]})
    found = rows(bars.coverage(data, theme.LIGHT))
    assert [(row["action"], row["share"], row["text"]) for row in found] == [
        ("a", 0.5, "50% of 200"),
        ("b", 0.0, "0% of 10"),
    ]


@pytest.mark.parametrize("ink", [theme.LIGHT, theme.DARK])
def test_charts_use_the_ink_of_the_mode(ink: theme.Ink) -> None:
    text = charts.interval_bar(axes.of(service("alpha"))[0], ink).to_json()
    other = theme.DARK if ink is theme.LIGHT else theme.LIGHT
    assert ink.text in text
    assert other.text not in text
