"""Dated lists: what holds on a day, by which name a model is found, what is refused; cached prefixes; settings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ingest.errors import ConfigError, UsageError
from ingest.home import open_home
from ingest.lake import Lake
from ingest.prices.book import Book, Change, current, differences, read_list, shipped, with_changes
from ingest.prices.hosted import Hosted
from ingest.prices.prefix import SwitchCost, Turn, learn, switch_cost
from ingest.prices.rates import slot_of
from ingest.prices.shelf import PriceRecord, add_list, home_book, home_prices
from ingest.pricing import Discount, Key, Price, Prices, Usage, price_list
from optimizer import cli, config

ONE = {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6}
TWO = {"input_cost_per_token": 3e-6, "output_cost_per_token": 4e-6}
CACHED = {**ONE, "cache_read_input_token_cost": 1e-7}
DAYS = ("2025-01-01", "2025-02-01", "2025-03-01", "2025-04-01")


def book(*changes: tuple[str, str, dict[str, object] | None], provider: str | None = None) -> Book:
    listed = [Change(model, provider, f"list of {day}", day, fields) for model, day, fields in changes]
    return with_changes(Book(DAYS, {}), listed, DAYS)


def price_on(lists: Book, model: str, day: str | None) -> object:
    found = lists.entry(model, day)
    return None if found is None else found[0].fields["input_cost_per_token"]


def test_a_new_model_holds_from_the_list_before_a_changed_price_from_its_own() -> None:
    lists = book(("m", "2025-02-01", ONE), ("m", "2025-04-01", TWO))
    found = {day: price_on(lists, "m", day) for day in ("2024-12-31", "2025-01-01", "2025-03-31", "2025-04-01", None)}
    assert list(found.values()) == [None, 1e-6, 1e-6, 3e-6, 3e-6]


def test_a_dropped_model_keeps_its_last_price() -> None:
    lists = book(("m", "2025-02-01", ONE), ("m", "2025-03-01", None))
    assert price_on(lists, "m", "2025-05-01") == 1e-6


def test_a_field_that_a_list_learns_late_was_true_before() -> None:
    lists = book(
        ("m", "2025-02-01", ONE), ("m", "2025-03-01", CACHED), ("n", "2025-02-01", TWO), ("n", "2025-03-01", CACHED)
    )
    early, other = lists.entry("m", "2025-02-15"), lists.entry("n", "2025-02-15")
    assert early is not None
    assert early[0].fields["cache_read_input_token_cost"] == 1e-7
    assert other is not None
    assert "cache_read_input_token_cost" not in other[0].fields  # the price changed with it


def test_a_call_before_the_first_list_that_knows_its_model_is_unpriced() -> None:
    usage = Usage("gpt-5", None, "openai", 1, 1, at_ns=1_735_689_600 * 10**9)  # 2025-01-01
    assert price_list().cost(usage).unpriced == "no price for gpt-5 on 2025-01-01: gpt-5 is first listed on 2025-08-02"


@pytest.mark.parametrize(
    ("model", "provider", "entry"),
    [
        ("gpt-4o", "azure.ai.openai", "azure/gpt-4o"),
        ("models/gemini-2.5-pro", "gcp.gemini", "gemini/gemini-2.5-pro"),
        ("publishers/google/models/gemini-2.5-pro", "vertex_ai", "gemini-2.5-pro"),
        ("claude-haiku-4-5@20251001", "vertex_ai", "vertex_ai/claude-haiku-4-5@20251001"),
        ("us.anthropic.claude-haiku-4-5-20251001-v1:0", "aws.bedrock", "us.anthropic.claude-haiku-4-5-20251001-v1:0"),
        (
            "arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-haiku-4-5-20251001-v1:0",
            "aws.bedrock",
            "us.anthropic.claude-haiku-4-5-20251001-v1:0",
        ),
        ("ft:gpt-4o-2024-08-06:acme::abc", "openai", "ft:gpt-4o-2024-08-06"),
        ("gpt-4o-2031-01-01", "openai", "gpt-4o"),
        ("openai/gpt-4o", None, "gpt-4o"),
        ("deepseek/deepseek-chat:nitro", None, "deepseek/deepseek-chat"),
    ],
)
def test_a_name_finds_its_entry_and_shows_the_way(model: str, provider: str | None, entry: str) -> None:
    found = current().find(model, provider, None)
    assert found.entry is not None
    assert found.entry.name == entry
    assert found.path is not None
    assert found.path.startswith(entry if entry == model else f"{model} > {entry}; ")


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("deepseek-chat", "together_ai"),
        ("gpt-4o", "vllm"),
        ("deepseek/deepseek-chat:free", None),
        ("groq/gpt-4o", None),
    ],
)
def test_another_sellers_price_is_no_price(model: str, provider: str | None) -> None:
    assert current().find(model, provider, None).entry is None


def test_the_shipped_history_covers_three_years_and_names_its_lists() -> None:
    lists = shipped()
    assert lists.dates[0] < "2024"
    assert lists.dates[-1] > "2026-11"
    assert len(lists.dates) > 30
    assert all(len(found) == 10 for found in lists.dates)
    names = {change.listed.split()[0] for changes in lists.changes.values() for change in changes}
    assert names == {"litellm", "tokencost"}


@pytest.mark.bench
def test_the_lists_are_read_in_less_than_300_ms() -> None:
    code = (
        "import time\nfrom ingest.prices import book\n"
        "t = time.process_time()\nbook.current()\nprint(time.process_time() - t)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert float(done.stdout) < 0.3


BAD = {
    "negative": {"input_cost_per_token": -1e-6, "output_cost_per_token": 1e-6},
    "text": {"input_cost_per_token": "cheap", "output_cost_per_token": 1e-6},
    "switch": {"input_cost_per_token": True, "output_cost_per_token": 1e-6},
    "millions": {"input_cost_per_token": 2500, "output_cost_per_token": 1e-6},
    "half": {"output_cost_per_token": 1e-6},
    "contrary": {**ONE, "cache_read_input_token_cost": 1e-5},
    "range": {"tiered_pricing": [{"range": [5, 1], "input_cost_per_token": 1e-6}]},
    "searches": {**ONE, "search_context_cost_per_query": {"search_context_size_low": "x"}},
    "list": [1, 2],
}


def test_bad_entries_are_refused_by_name_and_reason_and_the_rest_is_read() -> None:
    loaded = read_list({**BAD, "good": ONE, "sample_spec": {"input_cost_per_token": "text"}})
    assert loaded.entries == {"good": (None, ONE)}
    refused = dict(loaded.refused)
    assert refused.keys() == BAD.keys()
    assert refused["text"] == "input_cost_per_token is the str 'cheap', expected USD per unit"
    assert refused["half"] == "has a price of output and none of input"


def test_no_entry_of_the_installed_list_is_refused() -> None:
    from ingest.prices.book import installed_document

    assert read_list(installed_document()).refused == ()


def test_differences_are_what_a_list_says_otherwise() -> None:
    lists = book(("m", "2025-02-01", ONE), ("n", "2025-02-01", ONE))
    loaded = read_list({"m": ONE, "n": TWO, "o": ONE})
    assert [change.model for change in differences(lists, loaded, "new", "2025-05-01")] == ["n", "o"]


def test_an_added_list_holds_from_its_day(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = open_home(tmp_path / "home", create=True)
    file = tmp_path / "list.json"
    file.write_text(json.dumps({"gpt-4o": {**TWO, "litellm_provider": "openai"}, "brand-new": ONE, "bad": BAD["text"]}))
    assert cli.run(["prices", "update", str(file), "--home", str(home), "--from", "2027-01-15"]) == 1
    shown = capsys.readouterr()
    assert "2 prices changed from 2027-01-15 on" in shown.out
    assert "bad: input_cost_per_token is the str 'cheap'" in shown.err
    lists = home_book(home)
    assert price_on(lists, "gpt-4o", "2027-01-14") == 2.5e-6
    assert price_on(lists, "gpt-4o", "2027-01-15") == 3e-6
    assert add_list(home, file, "2027-02-01").changed == 0
    assert cli.run(["prices", "show", "gpt-4o", "--home", str(home), "--at", "2027-01-20", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rates"][0]["input"] == 3
    assert cli.run(["prices", "show", "unheard-of", "--home", str(home)]) == 1


def test_a_file_that_is_no_price_list_is_refused(tmp_path: Path) -> None:
    home = open_home(tmp_path / "home", create=True)
    for text in ("[]", "no json", json.dumps({"bad": BAD["text"]})):
        file = tmp_path / "list.json"
        file.write_text(text)
        with pytest.raises(UsageError):
            add_list(home, file)
    assert not (home / "prices").exists()


def test_the_lake_has_what_lists_say_of_the_models_that_were_priced(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with Lake.open(home, write=True) as lake:
        prices = home_prices(home)
        record = PriceRecord(lake, prices)
        prices.cost(Usage("gpt-4o", None, "openai", 1, 1, at_ns=1_717_400_000 * 10**9))
        record.keep()
        record.keep()
        PriceRecord(lake, prices).keep()
        rows = lake.sql("select valid_from, input, output from prices where model = 'gpt-4o' order by valid_from")
    assert rows.row(0) == ("2024-03-26", 5.0, 15.0)
    assert rows.height == len(home_book(home).changes["gpt-4o"])


def test_prices_of_an_hour_need_the_hour() -> None:
    """deepseek-v4-pro: half by night and on Sundays (0.66); Wednesday 02:30 UTC is dear, 04:30 cheap, Sunday cheap."""
    usage = Usage("deepseek-v4-pro", None, "deepseek", 1_000_000, 0)
    wednesday = 1_795_564_800 * 10**9  # 2026-11-25 00:00
    entry = current().entry("deepseek-v4-pro", None)
    assert entry is not None
    by_day = float(str(entry[0].fields["input_cost_per_token"])) * 1e6
    costs = [
        price_list()
        .cost(Usage(*("deepseek-v4-pro", None, "deepseek", 1_000_000, 0), at_ns=wednesday + minutes * 60 * 10**9))
        .usd
        for minutes in (150, 270, 4 * 1440 + 150)
    ]
    assert costs == pytest.approx([by_day, 0.66, 0.66])
    assert "depends on the hour" in str(price_list().cost(usage).unpriced)
    assert slot_of(wednesday) == 2 * 48


def test_a_discount_takes_its_share_off_the_lists_and_not_off_ones_own_price() -> None:
    off = (Discount(50), Discount(20, "openai", "gpt-4*"), Discount(90, "openai", valid_until="2024-01-01"))
    prices = price_list((Price("own", 1.0, 1.0),), off)
    day = 1_761_000_000 * 10**9
    assert prices.cost(Usage("gpt-4o", None, "openai", 1_000_000, 0, at_ns=day)).usd == pytest.approx(2.5 * 0.8)
    assert prices.cost(Usage("gpt-5", None, "openai", 1_000_000, 0, at_ns=day)).usd == pytest.approx(1.25 * 0.5)
    assert prices.cost(Usage("own", None, "openai", 1_000_000, 0, at_ns=day)).usd == pytest.approx(1.0)


def test_hardware_by_the_hour_becomes_a_price_by_the_token() -> None:
    """4 GPUs of 2.50 an hour at 60 %: 0.00463 USD a second; at 9,000 tokens a second 0.5144 USD a million."""
    one = Hosted(2.5, 4, 9_000, utilization=0.6)
    assert one.input == one.output == pytest.approx(10 / 3600 / 0.6 / 9_000 * 1e6)
    apart = Hosted(3.6, input_tokens_per_second=10_000, output_tokens_per_second=1_000)
    assert (apart.input, apart.output) == pytest.approx((0.1, 1.0))
    for wrong in ({}, {"input_tokens_per_second": 1.0}, {"tokens_per_second": 1.0, "output_tokens_per_second": 1.0}):
        with pytest.raises(ValueError, match="needs tokens_per_second"):
            Hosted(1.0, **wrong)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[prices]]\nmodel = "m"\nusd_per_hour = 2', "needs usd_per_hour"),
        ('[[prices]]\nmodel = "m"\nusd_per_hour = 2\ntokens_per_second = 9\ninput = 1', "input beside usd_per_hour"),
        ('[[prices]]\nmodel = "m"\ninput = 1\noutput = 1\ntier = "slow"', "one of standard, batch"),
        ('[[prices]]\nmodel = "m"\ninput = 1\noutput = 1\nabove = -5', "a number of tokens"),
        ("[[discounts]]\npercent = 120", "percent from 0 to 100"),
        ('[[discounts]]\nprovider = "openai"', "lacks percent"),
        ("[[discounts]]\npercent = 1\nmodle = 2", "unknown key 'modle'"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "retroute.toml").write_text(text)
    with pytest.raises(ConfigError, match=said):
        config.load(tmp_path, {}, {})


RATES = Prices((Price("b", 3.0, 15.0, cache_read=0.3, cache_write=3.75),), {})
SESSION = [Turn("b", at * 30 * 10**9, 1_000 * (at + 1), 100, 900 * at, 100) for at in range(4)]


def test_a_switch_costs_the_reads_lost_and_the_writes_made_anew() -> None:
    """Prefixes of 1,100, 2,100 and 3,100 tokens, 900, 1,800 and 2,700 of them read: 5,400 of 6,300. Of 4,600 tokens not
    read 400 were written. A prefix of 2,100: 1,800 would have been read; 2.70 USD a million is lost on each, and 0.75
    more on the share that is written."""
    habits = learn([SESSION])
    assert habits["b"].read_share == (pytest.approx(5_400 / 6_300), None, None, None)
    assert habits["b"].written_share == pytest.approx(400 / 4_600)
    rates = RATES.quote(Key(("b",), None), 0).rates
    found = switch_cost(Turn("a", 0, 2_000, 100), Turn("a", 10**9, 9_000, 10), "b", rates, habits)
    assert found is not None
    assert found.lost_reads_usd == pytest.approx(1_800 * 2.7e-6)
    assert found.new_writes_usd == pytest.approx(1_800 * 400 / 4_600 * 0.75e-6)
    assert found.usd == pytest.approx(found.lost_reads_usd + found.new_writes_usd)


def test_no_switch_costs_nothing_and_an_unseen_gap_is_unknown() -> None:
    habits, rates = learn([SESSION]), RATES.quote(Key(("b",), None), 0).rates
    assert switch_cost(SESSION[0], SESSION[1], "b", rates, habits) == SwitchCost(0.0, 0.0)
    hour_later = Turn("a", 7_000 * 10**9, 2_000, 10)
    assert switch_cost(Turn("a", 0, 1_000, 10), hour_later, "b", rates, habits) is None
    assert switch_cost(Turn("a", 0, 1_000, 10), hour_later, "never-seen", rates, habits) is None
    assert learn([SESSION[::-1]]) == habits
