"""The page about agents: its numbers are those of the run, what was not estimated has none, names are escaped."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from dashboard_fixture import Json, verdicts, write_run
from flow_fixture import AGENTS, FEW, UNTRIED, flow, silent, with_flows
from pages_shown import html, text
from pages_shown import show as show_page
from streamlit.testing.v1 import AppTest

from dashboard import figures, flow_charts, flows, theme
from dashboard.records import UnreadableError, figure
from optimizer.teamwork import DEFINITIONS

PATIENCE_S = 30


show = partial(show_page, "orchestration")


def shown(at: AppTest, metric: str) -> list[tuple[float, float, float]]:
    found = re.findall(r'data-metric="(\w+)" data-value="([^"]+)" data-low="([^"]+)" data-high="([^"]+)"', html(at))
    return [(float(value), float(low), float(high)) for name, value, low, high in found if name == metric]


def ends(said: Json) -> tuple[float, float, float]:
    return said["value"], said["low"], said["high"]


def marks(chart: Any) -> list[dict[str, Any]]:
    """All rows of data in a chart's JSON."""
    return [row for rows in chart.to_dict()["datasets"].values() for row in rows]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RETROUTE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def full(home: Path) -> Path:
    write_run(home, content=with_flows())
    return home


def test_an_empty_home_says_what_to_do(home: Path) -> None:
    at = show()
    assert not at.exception
    assert "Nothing has arrived yet" in text(at)


def test_services_of_single_decisions_have_no_flow(home: Path) -> None:
    write_run(home, content=verdicts())
    at = show(service="alpha")
    assert not at.exception
    assert "No service of several steps" in text(at)
    assert "retroute points" in text(at)


def test_a_service_without_a_flow_says_so_beside_those_that_have_one(full: Path) -> None:
    at = show(service="gamma")
    assert not at.exception
    assert "No flow to show" in text(at)
    assert not at.get("vega_lite_chart")


def test_a_service_with_a_flow_comes_first(full: Path) -> None:
    assert "The route, step by step" in text(show())


def test_every_figure_of_the_run_is_on_the_page(full: Path) -> None:
    at, said = show(service="alpha"), flow()
    assert not at.exception
    for row in said["organisation"]:
        for what in ("today", "policy", "change"):
            if row[what]["value"] is not None:
                assert shown(at, f"{row['metric']}_{what}") == [ends(row[what])]
    friction = said["friction"]
    for key, metric in (("cost_usd_per_1k", "cost"), ("quality", "quality"), ("difference", "difference")):
        for table, name in (("prompts", "prompt"), ("handoffs", "handoff")):
            estimated = [ends(row[key]) for row in friction[table] if row[key]["value"] is not None]
            assert shown(at, f"{name}_{metric}") == estimated
    assert shown(at, "baseline_latency") == [ends(row["latency_s"]) for row in said["baselines"]]
    page = text(at)
    for told in ("1,840", "63%", "19%", "12%", *said["stop_rule"]):
        assert told in page
    assert "Association, not effect" in page
    assert "hold together at 95%" in page


def test_what_was_not_estimated_comes_with_its_reason_and_no_number(full: Path) -> None:
    at = show(service="alpha")
    assert shown(at, "cycles_2_policy") == []
    assert text(at).count(UNTRIED) == 1  # two cells of one reason are one
    assert text(at).count(FEW) == 1
    assert "And 1 handoff too rare for a number." in text(at)


def test_only_whole_intervals_are_called_better_or_worse(full: Path) -> None:
    words = re.findall(r'data-metric="(\w+)_difference".*?(?:rr-kind">(\w+)<|</td>)', html(show(service="alpha")))
    assert words == [
        ("prompt", "better"),
        ("prompt", "worse"),
        ("handoff", ""),
        ("handoff", "worse"),
        ("handoff", "better"),
        ("handoff", "worse"),
    ]


def test_names_from_outside_are_escaped(full: Path) -> None:
    source = html(show(service="alpha"))
    assert "<script>" not in source
    assert "<b>code" not in source
    assert "&lt;b&gt;code&lt;/b&gt; → check" in source
    assert "if &lt;steps&gt; is 0: plan" in source


def test_nothing_suggested_shows_today_alone(full: Path) -> None:
    at = show(service="delta")
    assert not at.exception
    page = text(at)
    assert "Today's route; nothing is suggested." in page
    assert "There is no suggested rule for stopping" in page
    assert "Not estimated, too few effective episodes; below 100 no interval can be trusted: as logged." in page
    assert "Prompts" not in page  # the run did not look
    assert shown(at, "steps_today") == [ends(flow()["organisation"][0]["today"])]
    assert shown(at, "steps_policy") == []


def test_the_matrix_of_handoffs_shows_what_is_asked_for(full: Path) -> None:
    at = show(service="alpha")
    control = next(one for one in at.get("button_group") if one.key == "shown")
    assert "1,303" in str(at.get("vega_lite_chart")[-1].proto)
    control.set_value("The second one fails")
    at.run()
    assert not at.exception
    assert "1,303" not in str(at.get("vega_lite_chart")[-1].proto)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"route": [{"step": "one", "today": {}}]}, "the flow of alpha is not as expected"),
        ({"organisation": [{"metric": "steps"}]}, "the flow of alpha lacks 'today'"),
        ({"friction": {"handoffs": [{"from": "a"}]}}, "the flow of alpha lacks 'to'"),
    ],
)
def test_a_run_whose_flow_cannot_be_read_is_named(home: Path, change: Json, says: str) -> None:
    content = with_flows()
    content["services"]["alpha"]["orchestration"] |= change
    write_run(home, content=content)
    at = show()
    assert not at.exception
    assert says in text(at)


def read(said: Json) -> flows.Flow:
    found = flows.flow("alpha", "run", said)
    assert found is not None
    return found


def test_the_route_has_a_bar_for_each_share() -> None:
    found = read(flow())
    chart = flow_charts.route(found.route, found.actions, theme.LIGHT)
    rows = [row for row in marks(chart) if row["action"] != flow_charts.REACHED]
    said = [
        (step["step"], action, who, share)
        for step in flow()["route"]
        for who, key in (("Today", "today"), ("Suggested", "policy"))
        for action, share in step[key].items()
    ]
    assert len(rows) == len(said)
    for step, action, who, share in said:
        (row,) = [r for r in rows if (r["column"], r["action"], r["who"]) == (step, action, who)]
        assert (row["end"] - row["step"]) / 0.8 == pytest.approx(share)
        assert row["text"] == figures.share(share)


def test_a_route_without_reach_or_suggestion_is_drawn_too() -> None:
    said = silent()
    for step in said["route"]:
        del step["today_reach"], step["policy_reach"]
    found = read(said)
    rows = marks(flow_charts.route(found.route, found.actions, theme.DARK))
    assert {row["who"] for row in rows} == {"Today"}
    assert flow_charts.REACHED not in {row["action"] for row in rows}
    flow_charts.route((), AGENTS, theme.DARK).to_dict()


@pytest.mark.parametrize("what", flow_charts.WORDS)
def test_each_handoff_is_a_cell_with_its_number(what: flow_charts.Shown) -> None:
    rows = read(flow()).handoffs
    cells = {(row["source"], row["target"]): row for row in marks(flow_charts.handoffs(rows, what, theme.LIGHT))}
    assert len(cells) == len(rows)
    rare = cells["check", "search"]
    assert rare["text"] == ("19" if what == "count" else "–")
    wanted = {"count": "980", "failed": "3.1%", "cost": "$2.20", "seconds": "1.10\xa0s"}
    assert cells["plan", "search"]["text"] == wanted[what]


def test_every_metric_that_is_computed_has_a_name_and_a_unit() -> None:
    assert set(flows.METRICS) == set(DEFINITIONS)


def test_a_flow_that_is_no_object_is_refused() -> None:
    assert flows.flow("alpha", "run", None) is None
    with pytest.raises(UnreadableError, match="the flow of alpha lacks 'episodes'"):
        flows.flow("alpha", "run", {})


def test_numbers_without_a_unit_have_as_many_digits_as_their_interval_deserves() -> None:
    def said(value: float, half: float, unit: figures.Unit) -> str:
        data = {"value": value, "low": value - half, "high": value + half, "kind": "asymptotic"}
        return figures.said(figure(data), unit).value

    assert said(4.4612, 0.061, "number") == "4.46"
    assert said(5929.3, 210.0, "number") == "5,929"
    assert said(-1.5, 0.13, "number_change") == "−1.50"
    assert said(0.0123, 0.0021, "number") == "0.0123"
