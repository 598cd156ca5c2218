"""Rollups: at every moment they say what the settled calls add up to, whatever came late, again, dearer, or never."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
import rollup_law
from otlp_traces import SECOND, agent, chat, span, tool, traces_body

from ingest import repricing, wal
from ingest.class_costs import COST_PARTS, cost_parts
from ingest.converter import Converter
from ingest.lake import Lake
from ingest.options import ConverterOptions
from ingest.prices.rates import CLASSES
from ingest.prices.shelf import home_prices
from ingest.pricing import Price
from ingest.spans import Span
from ingest.upkeep import MINUTES_DAYS, Retention, Upkeep

DAY_NS = 86_400 * SECOND
NOW = 20_000 * DAY_NS + 11 * 3600 * SECOND
PRICES = (Price("gpt-4o-mini", 1.0, 2.0, cache_read=0.1), Price("other", 3.0, 5.0))
DEARER = (Price("gpt-4o-mini", 10.0, 20.0), Price("unheard-of", 1.0, 1.0))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("made") / "home"
    Lake.open(home, write=True).close()
    return home


class Collecting:
    """A home with a converter that comes and goes, and a clock that only a test moves."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.now = NOW
        self.prices = PRICES
        self.lake = Lake.open(home, write=True, clock=lambda: self.now)

    def take(self, *spans: Span) -> None:
        log = wal.Wal(self.home / "wal")
        log.write([wal.Record("traces", "json", self.now, traces_body(spans))])
        log.close()
        options = ConverterOptions(quiet_s=0.0, commit_s=0.0, prices=self.prices)
        Converter(self.lake, self.home / "wal", options, lambda: self.now).run(lambda: True)

    def reprice(self, prices: tuple[Price, ...]) -> None:
        self.prices = prices
        order = repricing.Order(str(self.now), None, prices, ())
        repricing.reprice(self.lake, home_prices(self.home, prices), order, lambda: self.now)

    def upkeep(self, days: float | None = None) -> Upkeep:
        return Upkeep(self.lake, Retention(days), lambda: self.now, lambda: self.now / 1e9)

    @property
    def today(self) -> date:
        return datetime.fromtimestamp(self.now / 1e9, UTC).date()


@pytest.fixture
def at_work(made: Path, tmp_path: Path) -> Iterator[Collecting]:
    found = Collecting(Path(shutil.copytree(made, tmp_path / "home")))
    yield found
    found.lake.close()


def sums(lake: Lake, columns: str, where: str = "true") -> tuple[object, ...]:
    return lake.sql(f"select {columns} from calls_by_minute where {where}").row(0)


def test_a_call_is_counted_with_all_that_it_says(at_work: Collecting) -> None:
    said = chat(gen_ai__usage__cache_read__input_tokens=40, gen_ai__conversation__id="s")
    at_work.take(
        span(1, agent(), start_ns=NOW - 90 * SECOND, end_ns=NOW - SECOND),
        span(2, said, parent=1, name="chat gpt-4o-mini", start_ns=NOW - 80 * SECOND, end_ns=NOW - 78 * SECOND),
    )
    rollup_law.check(at_work.lake)
    row = at_work.lake.sql("select * from calls_by_minute where kind = 'llm'").row(0, named=True)
    assert row["minute_ns"] == (NOW - 80 * SECOND) // (60 * SECOND) * 60 * SECOND
    assert (row["service"], row["agent"], row["model"], row["name"]) == (
        "shop",
        "planner",
        "gpt-4o-mini",
        "chat gpt-4o-mini",
    )
    assert (row["calls"], row["priced"], row["errors"], row["no_session"], row["no_user"]) == (1, 1, 0, 0, 1)
    assert (row["input_tokens"], row["cache_read_tokens"], row["output_tokens"]) == (100, 40, 20)
    assert (row["input_usd"], row["cache_read_usd"], row["output_usd"]) == pytest.approx((60e-6, 4e-6, 40e-6))
    assert row["cost_usd"] == pytest.approx(104e-6)
    assert (row["latency_s"], row["under_5s"], row["under_2s"]) == (2.0, 1, 0)


def test_what_a_late_span_changes_is_counted_anew(at_work: Collecting) -> None:
    at_work.take(span(1, chat(), start_ns=NOW))
    at_work.now += 3 * DAY_NS
    at_work.take(span(2, chat("other"), start_ns=NOW + SECOND), span(3, tool(), parent=1, start_ns=NOW))
    rollup_law.check(at_work.lake)
    assert sums(at_work.lake, "sum(calls)", "grain_ns > 60000000000") == (3,)
    assert sums(at_work.lake, "sum(calls)", "grain_ns = 60000000000") == (0,)


def test_calls_without_a_price_are_counted_apart_until_they_have_one(at_work: Collecting) -> None:
    at_work.take(span(1, chat("unheard-of"), start_ns=NOW), span(2, chat(), trace=2, start_ns=NOW))
    assert sums(at_work.lake, "sum(calls), sum(cost_usd)", "unpriced is not null") == (1, 0.0)
    at_work.reprice(DEARER)
    rollup_law.check(at_work.lake)
    assert sums(at_work.lake, "sum(calls)", "unpriced is not null") == (0,)
    assert sums(at_work.lake, "sum(cost_usd)") == pytest.approx((120e-6 + 1400e-6,))


def test_joining_leaves_one_row_of_a_key_and_every_sum(at_work: Collecting) -> None:
    for number in range(4):
        at_work.take(*(span(i, chat(), trace=number * 10 + i, start_ns=NOW + i * 30 * SECOND) for i in range(1, 5)))
    at_work.take(span(9, tool(), trace=1, parent=1, start_ns=NOW))  # the trace of before is settled again
    before = at_work.lake.sql("select count(*) from calls_by_minute").item()
    at_work.lake.join_minutes(at_work.today - timedelta(MINUTES_DAYS))
    rollup_law.check(at_work.lake)
    joined = at_work.lake.sql("select count(*) from calls_by_minute").item()
    assert joined < before
    assert (
        joined
        == at_work.lake.sql("select count(*) from (select minute_ns, kind from calls_by_minute group by all)").item()
    )
    snapshot = at_work.lake.snapshot()
    at_work.lake.join_minutes(at_work.today - timedelta(MINUTES_DAYS))
    assert at_work.lake.snapshot() == snapshot  # nothing is left to do


def test_minutes_become_hours_after_a_week(at_work: Collecting) -> None:
    at_work.take(*(span(i, chat(), trace=i, start_ns=NOW + i * 60 * SECOND) for i in range(1, 31)))
    keeper = at_work.upkeep()
    at_work.now += (MINUTES_DAYS + 1) * DAY_NS
    keeper.work()
    rollup_law.check(at_work.lake, hours=True)
    assert at_work.lake.sql("select count(*), any_value(grain_ns) from calls_by_minute").row(0) == (1, 3600 * SECOND)


def test_a_home_made_before_is_counted_once(at_work: Collecting, monkeypatch: pytest.MonkeyPatch) -> None:
    at_work.take(span(1, agent(), start_ns=NOW), *(span(i, chat(), parent=1, start_ns=NOW) for i in range(2, 5)))
    at_work.take(span(1, chat("unheard-of"), trace=2, start_ns=NOW - 9 * DAY_NS))
    lake, text = at_work.lake, _migration()
    for statement in ("delete from calls_by_minute", "update settled_traces set calls = null, models = null"):
        lake._connection.execute(statement)
    for statement in lake._connection.extract_statements(text):
        lake._connection.execute(statement)
    rollup_law.check(lake)


def _migration() -> str:
    """The statements of the migration that count what there is."""
    from ingest import queries

    (step,) = (step for step in queries.migrations() if step.name == "rollups")
    return step.text[step.text.index("insert into calls_by_minute") : step.text.index("drop view traces")]


@pytest.mark.parametrize("seed", range(4))
def test_the_law_holds_after_any_sequence(at_work: Collecting, seed: int) -> None:
    """Arrivals of new and of old traces, copies, prices that change, joins, days that pass and are dropped."""
    rng = random.Random(seed)
    keeper = at_work.upkeep(days=4)
    sent: list[Span] = []
    hours = False
    for _ in range(7):
        match rng.choice(("new", "new", "late", "copies", "reprice", "join", "hours", "files", "retention", "time")):
            case "new":
                sent += (
                    found := [
                        _span(rng, at_work.now, len(sent) + i, rng.randrange(4)) for i in range(rng.randrange(1, 9))
                    ]
                )
                at_work.take(*found)
            case "late" if sent:
                trace = int(rng.choice(sent).trace_id, 16)
                sent.append(_span(rng, at_work.now, len(sent), trace))
                at_work.take(sent[-1])
            case "copies" if sent:
                at_work.take(*rng.sample(sent, min(3, len(sent))))
            case "reprice":
                at_work.reprice(rng.choice((PRICES, DEARER)))
            case "join":
                at_work.lake.join_minutes(at_work.today - timedelta(MINUTES_DAYS))
            case "hours":
                at_work.lake.join_minutes(at_work.today + timedelta(1))
                hours = True
            case "files":
                at_work.lake.compact()
            case "retention":
                keeper.drop_old_days()
            case "time":
                at_work.now += rng.randrange(3 * DAY_NS)
        rollup_law.check(at_work.lake, hours=hours)


def _span(rng: random.Random, now: int, number: int, trace: int) -> Span:
    model = rng.choice(("gpt-4o-mini", "other", "unheard-of"))
    tokens = rng.choice((None, 100, 2**50))
    kind = rng.choice(
        (
            agent(rng.choice("ab")),
            tool(),
            chat(model, tokens, 7, gen_ai__usage__cache_read__input_tokens=rng.choice((None, 9))),
        )
    )
    start = now - rng.choice((0, 59, 3600, 86_400, 9 * 86_400)) * SECOND
    return span(
        number + 1,
        {name: value for name, value in kind.items() if value is not None},
        trace=trace + 1,
        parent=rng.choice((None, max(number, 1))),
        name=rng.choice(("step", "job 1234567890", "run 3f2504e0-4f89-11d3-9a0c-0305e82c3301")),
        start_ns=start,
        end_ns=rng.choice((0, start, start + rng.randrange(500 * SECOND))),
        status=rng.choice((None, "error")),
        service=rng.choice(("shop", "search")),
    )


def test_a_commit_that_fails_leaves_no_count_behind(at_work: Collecting, monkeypatch: pytest.MonkeyPatch) -> None:
    at_work.take(span(1, chat(), start_ns=NOW))
    sync, calls = Lake._sync_files, at_work.lake.sql("select sum(calls) from calls_by_minute").item()

    def fails(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(Lake, "_sync_files", fails)
    with pytest.raises(Exception, match="no space left"):
        at_work.take(span(2, tool(), parent=1, start_ns=NOW))
    monkeypatch.setattr(Lake, "_sync_files", sync)
    assert at_work.lake.sql("select sum(calls) from calls_by_minute").item() == calls
    rollup_law.check(at_work.lake)


def test_the_parts_of_a_cost_are_the_classes_they_say() -> None:
    for place, name in enumerate(CLASSES):
        parts = tuple(float(at == place) for at in range(len(CLASSES)))
        named = dict(zip(COST_PARTS, cost_parts(parts), strict=True))
        assert named == {part: float(name in classes) for part, classes in COST_PARTS.items()}
    assert set(cost_parts(None)) == {None}
