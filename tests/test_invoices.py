"""Invoices of each known format, made by hand, and what is said of files that cannot be laid beside our calls."""

from __future__ import annotations

import gzip
import json
from datetime import date
from pathlib import Path
from zoneinfo import ZoneInfo

import polars as pl
import pytest
from billed_calls import ANTHROPIC_USD, CLAUDE, GPT, INVOICES, OPENAI_USD

from ingest.errors import UsageError
from ingest.invoices import columns, openai, registry
from ingest.invoices.records import Invoice, Terms

MAP = ("Date=day", "Model=model", "Prompt=input_total", "Cached=cache_read", "Stored=cache_write")
FINANCE = columns.parse_map((*MAP, "Completion=output", "Amount=usd"))
ONE, TWO = date(2026, 11, 1), date(2026, 11, 2)


def read(path: Path, form: str = "auto", terms: Terms | None = None) -> Invoice:
    return registry.read(path, form, terms or Terms())


def written(tmp_path: Path, text: str, name: str = "invoice.csv") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def refusal(path: Path, form: str = "auto", terms: Terms | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        read(path, form, terms)
    return f"{caught.value.message} {caught.value.hint}"


def tokens(invoice: Invoice) -> dict[tuple[date, str | None, str], int]:
    rows = invoice.rows.filter(pl.col("tokens").is_not_null()).select("day", "model", "token_class", "tokens")
    return {(day, model, name): count for day, model, name, count in rows.iter_rows()}


GPT_TOKENS = {
    (ONE, GPT, "input"): 53_440,
    (ONE, GPT, "cache_read"): 5_760,
    (ONE, GPT, "output"): 10_646,
    (TWO, GPT, "input"): 100_000,
    (TWO, GPT, "output"): 20_000,
}
CLAUDE_TOKENS = {
    (ONE, CLAUDE, "input"): 100_000,
    (ONE, CLAUDE, "cache_read"): 800_000,
    (ONE, CLAUDE, "cache_write"): 100_000,
    (ONE, CLAUDE, "output"): 50_000,
    (TWO, CLAUDE, "input"): 40_000,
    (TWO, CLAUDE, "output"): 2_000,
}


@pytest.mark.parametrize(
    ("name", "form", "expected"),
    [
        ("openai_usage.json", "openai", GPT_TOKENS),
        ("openai_usage.csv", "openai", GPT_TOKENS),
        ("anthropic_usage.json", "anthropic", CLAUDE_TOKENS),
        ("console_tokens.csv", "anthropic", CLAUDE_TOKENS),
        ("litellm_activity.json", "litellm", {**GPT_TOKENS, **CLAUDE_TOKENS}),
    ],
)
def test_tokens_come_by_day_model_and_class(name, form, expected):
    invoice = read(INVOICES / name)
    assert (invoice.form, tokens(invoice)) == (form, expected)


@pytest.mark.parametrize(
    ("name", "usd", "split"),
    [
        ("openai_costs.json", OPENAI_USD, True),
        ("openai_costs.csv", OPENAI_USD, False),
        ("anthropic_cost.json", ANTHROPIC_USD, True),
        ("console_cost.csv", 0.30 + 0.24 + 0.38 + 0.75 + 0.12 + 0.03, True),
        ("litellm_spend.jsonl", OPENAI_USD + ANTHROPIC_USD, False),
        ("litellm_activity.json", OPENAI_USD + ANTHROPIC_USD, False),
    ],
)
def test_money_adds_up_in_usd(name, usd, split):
    invoice = read(INVOICES / name)
    assert invoice.rows["usd"].sum() == pytest.approx(usd, abs=1e-12)
    assert invoice.splits_usd is split


def test_spend_logs_are_told_by_request():
    invoice = read(INVOICES / "litellm_spend.jsonl")
    assert set(tokens(invoice).values()) == set({**GPT_TOKENS, **CLAUDE_TOKENS}.values())
    assert invoice.rows["requests"].sum() == 4
    assert invoice.providers is None


def test_a_day_without_use_belongs_to_the_period():
    assert read(INVOICES / "openai_usage.csv").last == date(2026, 11, 3)


def test_costs_without_line_items_are_not_by_model():
    assert not read(INVOICES / "openai_costs.csv").by_model


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpt-4o-2024-08-06, input", ("gpt-4o-2024-08-06", "input")),
        ("gpt-4o-mini-2024-07-18, cached input", ("gpt-4o-mini-2024-07-18", "cache_read")),
        ("priority | gpt-5, output, long context", ("gpt-5", "output")),
        ("gpt-audio-mini-2025-12-15 audio, input", ("gpt-audio-mini-2025-12-15", "input")),
        ("ft-gpt-4o-2024-08-06, output", ("ft-gpt-4o-2024-08-06", "output")),
        ("gpt-4o", ("gpt-4o", "total")),
        ("whisper-1, audio", ("whisper-1", "other")),
        ("web search tool calls", (None, "tools")),
        ("assistants api | file search", (None, "tools")),
        (None, (None, "total")),
    ],
)
def test_line_items_name_a_model_and_a_class(text, expected):
    assert openai.line_item(text) == expected


def test_usage_and_costs_in_one_file_complete_each_other(tmp_path):
    pages = [json.loads((INVOICES / name).read_text()) for name in ("openai_usage.json", "openai_costs.json")]
    invoice = read(written(tmp_path, "\n".join(map(json.dumps, pages)), "both.jsonl"))
    assert tokens(invoice) == GPT_TOKENS
    assert invoice.rows["usd"].sum() == pytest.approx(OPENAI_USD)


def test_an_export_that_stops_short_says_so(tmp_path):
    page = {**json.loads((INVOICES / "openai_usage.json").read_text()), "has_more": True}
    assert "not whole" in read(written(tmp_path, json.dumps(page), "page.json")).notes[0]


def test_requests_that_a_gateway_answered_from_its_cache_are_left_out_with_a_note(tmp_path):
    line = json.loads((INVOICES / "litellm_spend.jsonl").read_text().splitlines()[0])
    hit = {**line, "cache_hit": "True", "spend": 0.0, "startTime": "2026-11-05T00:00:00Z"}
    invoice = read(written(tmp_path, json.dumps([line, hit]), "logs.json"))
    assert invoice.notes == ("requests answered from the proxy's cache are left out: 1",)
    assert (invoice.rows["requests"].sum(), invoice.last) == (1, date(2026, 11, 5))


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "jsonl", "parquet"])
def test_a_table_is_read_by_its_map_whatever_it_is_written_in(tmp_path, kind):
    frame = pl.read_csv(INVOICES / "finance.csv", separator=";")
    path = tmp_path / f"finance.{kind}"
    if kind == "parquet":
        frame.with_columns(pl.col("Date").str.to_date()).write_parquet(path)
    elif kind == "jsonl":
        frame.write_ndjson(path)
    elif kind == "csv.gz":
        path.write_bytes(gzip.compress((INVOICES / "finance.csv").read_bytes()))
    else:
        frame.write_csv(path, separator="\t")
    invoice = read(path, terms=Terms(columns=FINANCE))
    assert tokens(invoice) == {**GPT_TOKENS, **CLAUDE_TOKENS}
    assert invoice.rows["usd"].sum() == pytest.approx(OPENAI_USD + ANTHROPIC_USD)
    assert invoice.notes == ("columns not used: Invoice no.",)


def test_our_own_column_names_need_no_map(tmp_path):
    text = 'day,model,token_class,tokens,usd\n2026-11-01,m1,cached input,"1,200",$0.10\n2026-11-01,m1,output,5,\n'
    invoice = read(written(tmp_path, text))
    assert tokens(invoice) == {(ONE, "m1", "cache_read"): 1200, (ONE, "m1", "output"): 5}
    assert invoice.rows["usd"].sum() == pytest.approx(0.1)


def test_unknown_columns_are_named_with_a_map_to_try(tmp_path):
    said = refusal(written(tmp_path, "Datum,Modell,Betrag\n2026-11-01,m,1\n"))
    assert "unknown columns Datum, Modell, Betrag" in said
    assert "--map Datum=day --map Modell=model --map Betrag=usd" in said


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ("Date", "is not COLUMN=FIELD"),
        ("Date=modle", "Did you mean model?"),
    ],
)
def test_a_wrong_map_is_refused_with_the_fields(pair, said):
    with pytest.raises(UsageError) as caught:
        columns.parse_map((pair,))
    assert said in f"{caught.value.message} {caught.value.hint}"
    assert "input_total" in caught.value.hint


def test_a_mapped_column_that_is_not_there_is_named():
    said = refusal(INVOICES / "finance.csv", terms=Terms(columns={"Dates": "day"}))
    assert "no column Dates" in said
    assert "Did you mean Date?" in said


def test_another_currency_wants_a_rate(tmp_path):
    path = written(tmp_path, "day,model,usd,currency\n2026-11-01,m,2.0,EUR\n")
    assert "in EUR, and our costs are in USD" in refusal(path)
    assert "--currency EUR=1.08" in refusal(path)
    assert read(path, terms=Terms(currency="EUR", usd_per_unit=1.5)).rows["usd"].sum() == pytest.approx(3.0)
    assert "in EUR, but --currency says GBP" in refusal(path, terms=Terms(currency="GBP", usd_per_unit=1.3))


def test_days_of_another_zone_want_the_zone(tmp_path):
    page = json.loads((INVOICES / "openai_usage.json").read_text())
    for bucket in page["data"]:
        bucket["start_time"] += 7 * 3600
        bucket["end_time"] += 7 * 3600
    path = written(tmp_path, json.dumps(page), "page.json")
    assert "begins at 07:00 UTC" in refusal(path)
    assert "--time-zone" in refusal(path)
    assert read(path, terms=Terms(ZoneInfo("Etc/GMT+7"))).first == ONE


def test_days_in_utc_are_not_those_of_another_zone():
    berlin = Terms(ZoneInfo("Europe/Berlin"))
    for name in ("openai_usage.csv", "anthropic_cost.json", "litellm_activity.json", "console_cost.csv"):
        assert "Leave --time-zone out" in refusal(INVOICES / name, terms=berlin) or "01:00" in refusal(
            INVOICES / name, terms=berlin
        )


def test_moments_of_another_zone_want_the_zone(tmp_path):
    path = written(tmp_path, "day,model,usd\n2026-11-02T00:30:00+02:00,m,1\n")
    assert "--time-zone Europe/Berlin" in refusal(path)
    assert read(path, terms=Terms(ZoneInfo("UTC"))).first == ONE
    assert read(path, terms=Terms(ZoneInfo("Europe/Helsinki"))).first == TWO


def test_hourly_buckets_fall_on_the_days_of_any_zone():
    assert read(INVOICES / "litellm_spend.jsonl", terms=Terms(ZoneInfo("America/New_York"))).last == TWO
    shifted = read(INVOICES / "litellm_spend.jsonl", terms=Terms(ZoneInfo("America/New_York")))
    assert shifted.first == date(2026, 10, 31)


def test_a_file_of_two_formats_is_refused_with_places(tmp_path):
    both = [json.loads((INVOICES / name).read_text()) for name in ("openai_usage.json", "anthropic_cost.json")]
    said = refusal(written(tmp_path, "\n".join(map(json.dumps, both)), "both.jsonl"))
    assert "both.jsonl:1 is openai" in said
    assert "both.jsonl:2 is anthropic" in said


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "", "is empty"),
        ("a.csv", "day,usd\n", "no rows"),
        ("a.csv", "day,usd\n2026-11-01,\n", "no line with tokens or costs"),
        ("a.csv", "day,usd\n2026-11-01,1,2\n", "more cells"),
        ("a.csv", "day,usd\nfirst,1\n", "a.csv:2: day is 'first'"),
        ("a.csv", "day;usd\n2026-11-01;0,25\n", "Decimals are written with a point"),
        ("a.csv", "day,output\n2026-11-01,-3\n", "at least 0"),
        ("a.csv", "day,input_total,cache_read\n2026-11-01,5,8\n", "map it to input"),
        ("a.csv", "day,token_class,tokens\n2026-11-01,thoughts,8\n", "token_class is thoughts"),
        ("a.csv", "hello\n", "neither JSON nor a table"),
        ("a.json", "[1, 2]", "expected a JSON object"),
        ("a.json", "{", "is not JSON"),
        ("a.jsonl", '{"day":"2026-11-01","usd":1}\nnot json\n', "a.jsonl:2 is not JSON"),
        ("a.json", '{"object":"page","data":[]}', "unknown columns object, data"),
    ],
)
def test_bad_files_are_refused_with_the_place(tmp_path, name, text, said):
    assert said in refusal(written(tmp_path, text, name))


def test_a_format_that_the_file_has_not_is_refused():
    assert "is not Anthropic's" in refusal(INVOICES / "openai_costs.csv", "anthropic")
