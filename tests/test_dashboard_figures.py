from __future__ import annotations

import pytest
from dashboard_fixture import NO_OVERLAP, RUN, verdicts

from dashboard import axes, figures, words
from dashboard.records import Figure, UnreadableError, figure, verdict

HOUR_NS = 3_600_000_000_000


def number(value: float, low: float, high: float) -> Figure:
    return Figure(value, low, high, "asymptotic")


def plain(text: str) -> str:
    """`text` with ordinary spaces: a number and its unit are held together by unbreakable ones."""
    return text.replace("\xa0", " ")


def service(name: str):
    return verdict(name, RUN, verdicts()["services"][name])


@pytest.mark.parametrize(
    ("value", "low", "high", "unit", "expected"),
    [
        (0.4125, 0.3214, 0.5036, "usd", ("$0.41", "$0.32 to $0.50")),
        (0.4125, 0.3214, 0.5036, "usd_change", ("+$0.41", "+$0.32 to +$0.50")),
        (-0.82, -1.13, -0.51, "usd_change", ("−$0.82", "−$1.13 to −$0.51")),
        (0.00412, 0.00392, 0.00432, "usd", ("$0.00412", "$0.00392 to $0.00432")),
        (1234.5, 1100.0, 1369.0, "usd", ("$1,234", "$1,100 to $1,369")),
        (0.702, 0.69, 0.714, "quality", ("70.2%", "69.0 to 71.4%")),
        (0.0131, 0.0029, 0.0233, "quality_change", ("+1.3 points", "+0.3 to +2.3 points")),
        (-0.412, -0.505, -0.319, "seconds_change", ("−0.41 s", "−0.51 to −0.32 s")),
        (0.012, 0.010, 0.014, "seconds", ("12.0 ms", "10.0 to 14.0 ms")),
        (0.0, 0.0, 0.0, "quality_change", ("0.0 points", "0.0 to 0.0 points")),
    ],
)
def test_figure_shows_as_many_digits_as_its_interval_deserves(value, low, high, unit, expected) -> None:
    said = figures.said(number(value, low, high), unit)
    assert (plain(said.value), plain(said.interval)) == expected


def test_unbounded_interval_says_so_and_never_passes_for_a_narrow_one() -> None:
    assert figures.said(Figure(0.5, None, None, "asymptotic"), "quality").interval == "no bounds"
    assert figures.said(Figure(0.5, 0.4, None, "certified"), "usd").interval == "at least $0.40"
    assert figures.said(Figure(0.5, None, 0.6, "certified"), "usd").interval == "at most $0.60"
    open_ended = verdicts()["services"]["alpha"]
    open_ended["quality_change"] |= {"low": None, "high": None}
    axis = axes.of(verdict("alpha", RUN, open_ended))[1]
    assert plain(axis.status) == "The interval reaches past the limit of −1 point."


def test_refused_figure_is_said_in_words_and_never_as_zero() -> None:
    refused = figure({"value": None, "reason": "too few"})
    assert refused.refused
    assert refused.reason == "too few"
    assert figures.said(refused, "usd").value == "Not estimated"
    assert "0" not in figures.said(refused, "usd").value
    with pytest.raises(ValueError, match="refused"):
        _ = refused.span


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (None, "unknown"),
        (0, "0%"),
        (0.0004, "<0.1%"),
        (0.034, "3.4%"),
        (0.09999, "10%"),
        (0.9, "90%"),
        (0.994, "99.4%"),
        (0.9999, ">99.9%"),
        (1, "100%"),
    ],
)
def test_share_is_never_rounded_to_nothing_or_to_all(share, text) -> None:
    assert figures.share(share) == text


def test_window_names_days_once() -> None:
    march = 1_772_323_200_000_000_000
    assert figures.window(march, march + 6 * 24 * HOUR_NS) == "1 to 7 Mar 2026"
    assert figures.window(march, march + 40 * 24 * HOUR_NS) == "1 Mar to 10 Apr 2026"
    assert figures.window(march - 90 * 24 * HOUR_NS, march) == "1 Dec 2025 to 1 Mar 2026"
    assert figures.window(march, march + HOUR_NS) == "1 Mar 2026, 00:00 to 01:00 UTC"
    assert figures.window(None, None) == "no time range"


def test_monthly_saving_is_the_logged_pace_for_thirty_days() -> None:
    month = words.monthly(number(0.5, 0.4, 0.6), 7000, 7 * 24 * HOUR_NS)
    assert month is not None
    assert month.span == pytest.approx((15.0, 12.0, 18.0))  # 1,000 decisions a day, 30 days, 0.50 per 1,000


def test_monthly_saving_is_not_drawn_from_less_than_a_day() -> None:
    assert words.monthly(number(0.5, 0.4, 0.6), 7000, 23 * HOUR_NS) is None
    assert words.monthly(figure(None), 7000, 7 * 24 * HOUR_NS) is None


def test_lead_says_worth_and_safety_with_the_level_of_the_interval() -> None:
    assert plain(words.lead(service("alpha"), None)) == (
        "Saves $0.41 per 1,000 decisions (95% interval $0.32 to $0.50). "
        "Quality changes by +1.3 points (+0.3 to +2.3 points); all of that is inside the limit of −1 point."
    )


def test_lead_of_a_loss_says_what_the_best_candidate_costs() -> None:
    lead = plain(words.lead(service("gamma"), None))
    assert lead.startswith("The best candidate costs $0.82 more per 1,000 decisions (95% interval $0.51 to $1.13).")
    assert lead.endswith("all of that is past the limit of −1 point.")


def test_lead_without_evidence_gives_the_reason_once() -> None:
    lead = words.lead(service("delta"), None)
    assert lead.count(NO_OVERLAP) == 1
    assert lead.startswith("Neither a saving nor a change of quality can be estimated")


def test_axes_come_as_cost_quality_latency_and_say_where_the_interval_lies() -> None:
    for name, statuses in {
        "alpha": (
            "The whole interval is a saving.",
            "The whole interval is inside the limit of −1 point.",
            "The whole interval is inside the limit of +0.25 s.",
        ),
        "beta-agent": (
            "The whole interval is a saving.",
            "The interval reaches past the limit of −1 point.",
            "Neither clearly faster nor slower; no limit is set.",
        ),
        "gamma": (
            "The whole interval costs more.",
            "The whole interval is past the limit of −1 point.",
            "Slower; no limit is set.",
        ),
        "delta": ("", "", ""),
    }.items():
        found = axes.of(service(name))
        assert [axis.title for axis in found] == ["Cost", "Quality", "Latency"]
        assert tuple(plain(axis.status) for axis in found) == statuses


def test_services_are_ranked_by_what_can_be_done() -> None:
    found = words.ranked([service(name) for name in ("delta", "gamma", "alpha", "beta-agent")])
    assert [verdict.service for verdict in found] == ["alpha", "beta-agent", "gamma", "delta"]
    assert (
        words.tally(found)
        == "4 services: 1 ready to deploy, 1 promising, 1 best left as it is, 1 without enough evidence."
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"verdict": "maybe"}, "unknown verdict 'maybe'"),
        ({"limits": None}, "not as expected"),
        ({"table": [{"policy": "today"}]}, "lacks 'cost_usd_per_1k'"),
        ({"table": [{"policy": "yesterday"}]}, "unknown policy 'yesterday'"),
        ({"savings_usd_per_1k": {"value": "much", "kind": None}}, "not as expected"),
    ],
)
def test_unexpected_verdict_is_named_with_run_and_service(change, said) -> None:
    broken = {**verdicts()["services"]["alpha"], **change}
    with pytest.raises(UnreadableError, match=f"run {RUN}: alpha") as error:
        verdict("alpha", RUN, broken)
    assert said in error.value.message
    assert "retroute nightly" in error.value.hint


def test_missing_verdict_key_is_named() -> None:
    broken = verdicts()["services"]["alpha"]
    del broken["table"]
    with pytest.raises(UnreadableError, match="alpha lacks 'table'"):
        verdict("alpha", RUN, broken)


def test_certified_bounds_are_said_in_one_sentence_and_others_are_not() -> None:
    alpha = service("alpha")
    said = words.certified(alpha.estimators, axes.of(alpha))
    assert said.startswith("Certain at any number of decisions")
    assert "+$0.11 to +$0.73" in said
    assert "latency" not in said.lower()
    beta = service("beta-agent")
    assert words.certified(beta.estimators, axes.of(beta)) == ""
