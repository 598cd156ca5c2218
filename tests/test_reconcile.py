"""Laws of laying calls beside an invoice, and which reasons are given for what differs."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import polars as pl
import pytest
from billed_calls import CLAUDE, DAY_1, GPT, HOUR, PRICES
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest import class_costs
from ingest.invoices.records import SCHEMA, Invoice
from ingest.model_aliases import family, key, match
from ingest.pricing import Prices, Usage
from ingest.reconcile import Reconciliation, Tolerance, reconcile

ONE = date(2026, 11, 1)
LIST = Prices(PRICES, {})
TEXTS = ("service", "kind", "provider", "model_requested", "model_returned", "status", "unpriced", "attempt_of")
COUNTS = ("start_ns", "end_ns", "input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens")
COLUMNS = {
    **dict.fromkeys(TEXTS, pl.String),
    **dict.fromkeys(COUNTS, pl.Int64),
    **dict.fromkeys(("cost_usd", "reported_cost_usd"), pl.Float64),
}
LAW = settings(deadline=None, max_examples=12)
"""A busy machine takes a quarter of a second for one comparison."""


def call(
    model: str = GPT, at_ns: int = DAY_1 + HOUR, given: int | None = 1000, answered: int | None = 100, **more: Any
):
    read, written = more.get("cache_read_tokens"), more.get("cache_write_tokens")
    cost = LIST.cost(Usage(model, None, None, given, answered, read, written, at_ns))
    row = dict.fromkeys(COLUMNS) | {
        "kind": "llm",
        "provider": "anthropic" if model.startswith("claude") else "openai",
        "model_returned": model,
        "start_ns": at_ns,
        "end_ns": None if at_ns is None else at_ns + HOUR // 60,
        "status": "ok",
        "input_tokens": given,
        "output_tokens": answered,
        "cost_usd": cost.usd,
        "unpriced": cost.unpriced,
    }
    return row | more


def frame(*calls: dict[str, Any]) -> pl.DataFrame:
    return class_costs.with_parts(pl.DataFrame(list(calls), COLUMNS), LIST)


def bill(calls: pl.DataFrame, zone: str = "UTC", **more: Any) -> Invoice:
    """The invoice that a provider writes for exactly these calls: by class, in tokens and USD."""
    cached = pl.col("cache_read_tokens").fill_null(0) + pl.col("cache_write_tokens").fill_null(0)
    day = pl.from_epoch("start_ns", "ns").dt.replace_time_zone("UTC").dt.convert_time_zone(zone).dt.date().alias("day")
    parts = [
        calls.select(
            day,
            pl.col("model_returned").alias("model"),
            pl.lit(name).alias("token_class"),
            (pl.col("input_tokens") - cached if name == "input" else pl.col(f"{name}_tokens")).alias("tokens"),
            pl.col(f"{name}_usd").alias("usd"),
            pl.lit(None, pl.Int64).alias("requests"),
            pl.lit(1, pl.Int64).alias("lines"),
        )
        for name in ("input", "cache_read", "cache_write", "output")
    ]
    sums = [pl.col("tokens", "usd", "lines").sum(), pl.col("requests").first()]
    rows = pl.concat(parts).filter(pl.col("tokens") > 0).group_by("day", "model", "token_class").agg(*sums)
    first, last = rows["day"].min(), rows["day"].max()
    return Invoice("csv", rows.select(list(SCHEMA)).cast(SCHEMA), first, last, zone, **more)  # type: ignore[arg-type]


def changed(invoice: Invoice, **columns: pl.Expr) -> Invoice:
    return Invoice(
        invoice.form, invoice.rows.with_columns(**columns), invoice.first, invoice.last, invoice.zone, invoice.providers
    )


def reasons(found: Reconciliation) -> dict[str, str]:
    return {row["reason"]: row["detail"] for row in found.reasons.iter_rows(named=True)}


DAY_2 = DAY_1 + 24 * HOUR
calls_of = st.lists(
    st.builds(
        call,
        model=st.sampled_from([GPT, CLAUDE]),
        at_ns=st.integers(DAY_1, DAY_1 + 96 * HOUR),
        given=st.integers(2000, 10**6),
        answered=st.integers(1, 10**5),
        cache_read_tokens=st.one_of(st.none(), st.integers(0, 1000)),
        cache_write_tokens=st.one_of(st.none(), st.integers(0, 1000)),
        reported_cost_usd=st.one_of(st.none(), st.floats(0, 5)),
    ),
    min_size=1,
    max_size=12,
)


@LAW
@given(calls_of, st.sampled_from(["UTC", "America/Los_Angeles", "Asia/Kathmandu"]))
def test_an_invoice_made_from_our_own_calls_equals_ours(calls, zone):
    ours = frame(*calls)
    found = reconcile(ours, bill(ours, zone), Tolerance(0.0))
    assert found.within
    assert found.classes["tokens_difference"].abs().max() == 0
    assert found.totals["usd_difference"].abs().max() == pytest.approx(0, abs=1e-9)
    assert reasons(found) == {}


@LAW
@given(calls_of)
def test_totals_are_the_sums_of_models_and_models_of_classes(calls):
    ours = frame(*calls)
    found = reconcile(ours, changed(bill(ours), tokens=pl.col("tokens") * 2, usd=pl.col("usd") * 3))
    for name in ("our_usd", "their_usd", "usd_difference", "our_tokens", "their_tokens", "tokens_difference"):
        total = found.totals[name].sum()
        assert found.models[name].sum() == pytest.approx(total)
        assert found.classes[name].sum() == pytest.approx(total)
    assert found.models["reported_usd"].sum() == pytest.approx(found.totals["reported_usd"].sum())
    assert found.models["calls"].sum() == len(calls)


@LAW
@given(calls_of, st.randoms())
def test_order_of_calls_and_lines_does_not_matter(calls, random):
    ours = frame(*calls)
    invoice = bill(ours)
    mixed = calls.copy()
    random.shuffle(mixed)
    shuffled = changed(invoice)
    one, other = reconcile(ours, invoice), reconcile(frame(*mixed), shuffled)
    assert one.models.drop("our_usd", "usd_difference", "reported_usd").equals(
        other.models.drop("our_usd", "usd_difference", "reported_usd")
    )


@LAW
@given(st.integers(1, 23))
def test_a_call_moved_across_midnight_moves_its_day(hours):
    before, after = call(at_ns=DAY_2 - HOUR), call(at_ns=DAY_2 - HOUR + hours * HOUR)
    beside = call(at_ns=DAY_1), call(at_ns=DAY_2)
    invoice = bill(frame(before, *beside))
    found = reconcile(frame(after, *beside), invoice)
    assert found.models["tokens_difference"].to_list() == [-1100, 1100]
    assert found.totals["tokens_difference"].item() == 0
    assert not found.within
    assert "another time zone" in reasons(found)["another day"]


def test_the_zone_of_the_invoice_decides_on_the_day():
    evening = frame(call(at_ns=DAY_1 + 2 * HOUR))  # the evening of October 31 in New York
    assert bill(evening, "America/New_York").first == ONE - timedelta(days=1)
    assert reconcile(evening, bill(evening, "America/New_York")).within


def test_a_call_without_a_price_is_named_and_never_counts_as_nothing():
    ours = frame(call(), call("nobody-1"))
    found = reconcile(ours, changed(bill(frame(call())), tokens=pl.col("tokens")))
    assert reasons(found)["unpriced"] == "no price for nobody-1"
    row = found.models.filter(pl.col("model") == "nobody-1").to_dicts()[0]
    assert (row["our_usd"], row["unpriced_calls"]) == (None, 1)
    assert found.totals["unpriced_calls"].item() == 1


def test_days_and_models_of_one_side_only_are_named():
    ours = frame(call(), call(CLAUDE, DAY_2))
    invoice = bill(frame(call(), call(GPT, DAY_2)))
    found = reasons(reconcile(ours, invoice))
    assert "no call of this model" in found["only in the invoice"]
    assert "no such model" in found["only in our calls"]
    alone = reasons(reconcile(frame(call()), bill(frame(call(), call(GPT, DAY_2)))))
    assert "no call of this day" in alone["only in the invoice"]


def test_failed_calls_are_named_where_they_may_explain():
    failed = call(status="error")
    found = reasons(reconcile(frame(call(), failed), bill(frame(call()))))
    assert "may not have billed" in found["failed calls"]
    silent = call(given=None, answered=None, status="error")
    found = reasons(reconcile(frame(call(), silent), bill(frame(call(), call()))))
    assert "may have billed" in found["failed calls"]


def test_missing_spans_are_counted_by_requests_where_the_invoice_has_them():
    invoice = bill(frame(call(), call(), call()))
    requests = pl.when(pl.col("token_class") == "output").then(3)
    found = reconcile(frame(call()), changed(invoice, requests=requests))
    row = found.reasons.filter(pl.col("reason") == "spans not received").to_dicts()[0]
    assert (row["calls"], row["tokens"]) == (2, 2200)
    by_tokens = reconcile(frame(call()), invoice).reasons.filter(pl.col("reason") == "spans not received")
    assert by_tokens["tokens"].to_list() == [2200]


def test_equal_tokens_at_another_price_name_both_prices():
    ours = frame(call(given=10**6, answered=10**5))
    cheaper = changed(bill(ours), usd=pl.when(pl.col("token_class") == "input").then(2.0).otherwise(pl.col("usd")))
    detail = reasons(reconcile(ours, cheaper))["another price"]
    assert detail == "input: same tokens, ours at 2.5 and theirs at 2 USD per million"


def test_calls_over_midnight_are_named():
    early, late = call(at_ns=DAY_1), call(at_ns=DAY_2 - 1, end_ns=DAY_2 + 1)
    both = bill(frame(early, call(at_ns=DAY_2)))
    assert "ended on another day" in reasons(reconcile(frame(early, late), both))["over midnight"]


def test_emitted_costs_stand_beside_ours():
    ours = frame(call(reported_cost_usd=0.5), call())
    row = reconcile(ours, bill(ours)).models.to_dicts()[0]
    assert (row["reported_usd"], row["reported_calls"], row["calls"]) == (0.5, 1, 2)


def test_calls_of_other_providers_are_left_out_with_a_note():
    ours = frame(call(), call(CLAUDE), call(provider=None))
    invoice = bill(frame(call(), call()), providers=frozenset({"openai"}))
    found = reconcile(ours, invoice)
    assert found.within
    assert found.notes == ("1 calls to anthropic are left out: the invoice is not theirs",)


def test_calls_without_a_time_are_noted():
    ours = frame(call(), call(at_ns=None))
    found = reconcile(ours, bill(frame(call())))
    assert found.within
    assert "1 calls have no start time" in found.notes[0]


def test_rounded_lines_may_be_off_by_half_a_cent_each():
    ours = frame(*(call(GPT, DAY_1 + n, 1000, 1000) for n in range(20)))
    off = changed(bill(ours), usd=pl.col("usd") + 0.04, lines=pl.lit(20))
    assert not reconcile(ours, off).within
    rounded = Invoice(off.form, off.rows, off.first, off.last, off.zone, None, 0.005)
    assert reconcile(ours, rounded).within


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1])
def test_the_tolerance_is_a_share_of_the_invoice(share):
    ours = frame(call(given=10**8, answered=10**6))
    inside = changed(bill(ours), tokens=(pl.col("tokens") / (1 + 0.99 * share)).cast(pl.Int64))
    outside = changed(bill(ours), tokens=(pl.col("tokens") / (1.01 + 1.01 * share)).cast(pl.Int64))
    assert reconcile(ours, inside, Tolerance(share)).within
    assert not reconcile(ours, outside, Tolerance(share)).within


def test_parts_of_a_cost_add_up_to_the_settled_cost_also_at_other_prices():
    calls = [
        call(cache_read_tokens=500, cost_usd=7.0),
        call("nobody-1", cost_usd=3.0, unpriced=None),
        call(cost_usd=None),
    ]
    parts = frame(*calls).select(list(class_costs.PARTS))
    sums = [sum(row) if None not in row else None for row in parts.iter_rows()]
    assert sums == [pytest.approx(7.0), 3.0, None]
    assert parts["other_usd"].to_list()[1] == 3.0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Claude Sonnet 4.5", "claude-sonnet-4-5"),
        ("Claude 3.5 Sonnet 2024-10-22", "claude-3-5-sonnet-20241022"),
        ("Claude Haiku 3.5", "claude-3-5-haiku"),
        ("openai/gpt-4o", "gpt-4o"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5@20250929"),
    ],
)
def test_spellings_of_one_model_have_one_key(one, other):
    assert key(one) == key(other)


def test_an_undated_name_is_matched_when_it_can_mean_only_one():
    assert family("gpt-4o-2024-08-06") == family("gpt-4o") != family("gpt-4o-mini")
    names = match(["gpt-4o", "Other"], ["gpt-4o-2024-08-06"])
    assert names.ours == {"gpt-4o": "gpt-4o-2024-08-06", "Other": "Other"}


def test_several_snapshots_are_not_guessed_between():
    theirs = ["gpt-4o-2024-05-13", "gpt-4o-2024-08-06"]
    both = match(["gpt-4o"], theirs)
    assert set(both.theirs.values()) == {"gpt-4o"} == set(both.ours.values())
    names = match(["gpt-4o", "gpt-4o-2024-08-06"], theirs)
    assert names.ours["gpt-4o"] == "gpt-4o"
    assert names.unsure == {"gpt-4o": ("gpt-4o-2024-05-13", "gpt-4o-2024-08-06")}
    ours = frame(call(model_returned="gpt-4o"), call())
    invoice = bill(frame(call(), call(model_returned="gpt-4o-2024-05-13")))
    assert (
        "it may mean gpt-4o-2024-05-13 or gpt-4o-2024-08-06" in reasons(reconcile(ours, invoice))["only in our calls"]
    )


def test_another_name_of_a_model_is_told_and_one_given_by_hand_is_taken():
    ours = frame(call(model_returned="prod-chat"))
    invoice = bill(frame(call()))
    assert not reconcile(ours, invoice).within
    found = reconcile(ours, invoice, aliases={"prod-chat": GPT})
    assert found.within
    assert reasons(found) == {"model alias": "our calls say prod-chat"}
