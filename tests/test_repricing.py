"""Settled calls are priced again on order, once, by the lake's writer; a converter takes new price lists as it runs."""

from __future__ import annotations

import json
import time
from pathlib import Path
from urllib.request import Request, urlopen

import polars as pl
import pytest
from collector_process import CollectorProcess
from otlp_traces import SECOND, chat, span, traces_body

from ingest import repricing
from ingest.errors import HomeError, WorkError
from ingest.importers.otlp_files import import_paths
from ingest.lake import Lake
from ingest.options import ConverterOptions
from ingest.prices.shelf import home_prices
from ingest.pricing import Discount, Price
from optimizer import cli, repriced

M = 1e-6
DAY = 86_400 * SECOND
FIRST = 1_793_491_200 * SECOND  # 2026-11-01
OLD = (Price("known", 1.0, 1.0),)
NEW = (Price("known", 1.0, 1.0), Price("missing", 3.0, 3.0))


def home_of(folder: Path, *, stated=OLD) -> Path:
    """Two days of two calls each, 1,000 tokens a call; of each day one has no price. And one that failed."""
    spans = [
        span(n, chat(model, 900, 100), trace=n, start_ns=FIRST + day * DAY)
        for n, model, day in ((1, "known", 0), (2, "missing", 0), (3, "known", 1), (4, "missing", 1))
    ]
    spans.append(span(5, chat("known", None, None), trace=5, start_ns=FIRST + 5 * SECOND, status="error"))
    (folder / "log.json").write_bytes(traces_body(spans))
    import_paths(folder / "home", [folder / "log.json"], ConverterOptions(quiet_s=0.0, prices=stated))
    return folder / "home"


def costs(home: Path) -> dict[int, float | None]:
    with Lake.open(home) as lake:
        return {int(i, 16): usd for i, usd in lake.sql("select trace_id, cost_usd from calls").iter_rows()}


def orders(home: Path) -> list[dict]:
    with Lake.open(home) as lake:
        return lake.query("repricings").to_dicts()


def toml(home: Path, *models: str) -> None:
    (home / "retroute.toml").write_text(
        "\n".join(f'[[prices]]\nmodel = "{model}"\ninput = 3.0\noutput = 3.0' for model in models)
    )


def test_a_price_that_was_missing_is_given_to_settled_calls(tmp_path, capsys) -> None:
    home = home_of(tmp_path)
    assert costs(home) == {1: pytest.approx(1000 * M), 2: None, 3: pytest.approx(1000 * M), 4: None, 5: None}
    toml(home, "missing")
    assert cli.run(["prices", "reprice", "--home", str(home), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert costs(home)[2] == costs(home)[4] == pytest.approx(3000 * M)
    assert (told["calls"], told["priced"], told["unpriced"]) == (4, 2, 2)  # `known` is not stated any more
    assert costs(home)[1] is None
    (note,) = orders(home)
    assert (note["changed"], note["usd_after"]) == (4, pytest.approx(6000 * M))
    assert note["price_list"].startswith("litellm")
    with Lake.open(home) as lake:
        rows = lake.sql("select unpriced, price from calls where trace_id like '%2' or trace_id like '%5' order by 1")
    assert rows.rows() == [("failed without usage", None), (None, "missing; retroute.toml")]


def test_a_second_time_nothing_is_left_to_do(tmp_path, capsys) -> None:
    home = home_of(tmp_path)
    toml(home, "missing", "known")
    for _ in range(2):
        assert cli.run(["prices", "reprice", "--home", str(home)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("4 of 4 calls have another cost now (2 had none before)")
    assert second.startswith("4 calls looked at: all have the cost")
    with Lake.open(home) as lake:
        counts = lake.sql("select count(*) as rows, count(distinct trace_id) as ids from settled_calls").row(0)
    assert counts == (5, 5)


def test_only_calls_since_a_day_are_priced_again(tmp_path, capsys) -> None:
    home = home_of(tmp_path)
    toml(home, "missing", "known")
    assert cli.run(["prices", "reprice", "--home", str(home), "--since", "2026-11-02"]) == 0
    assert costs(home) == {
        1: pytest.approx(1000 * M),
        2: None,
        3: pytest.approx(3000 * M),
        4: pytest.approx(3000 * M),
        5: None,
    }


def test_an_order_is_carried_out_once_however_often_it_is_found(tmp_path) -> None:
    home = home_of(tmp_path)
    placed = repricing.order(home, None, NEW, ())
    with Lake.open(home, write=True) as lake:
        first = repricing.carry_out(lake, home, placed, home_prices(home, NEW))
        again = repricing.carry_out(lake, home, placed, home_prices(home, OLD))  # it died before it took the order out
    assert first == again
    assert len(orders(home)) == 1
    assert costs(home)[2] is not None
    assert repricing.ordered(home) is None


def test_an_order_of_a_writer_that_died_halfway_is_finished(tmp_path, monkeypatch) -> None:
    home = home_of(tmp_path)
    placed = repricing.order(home, None, NEW, ())
    with Lake.open(home, write=True) as lake:
        write, written = lake.write, []

        def once(*rows, **more):
            if written:
                raise WorkError("killed")
            written.append(write(*rows, **more))

        monkeypatch.setattr(lake, "write", once)
        with pytest.raises(WorkError):
            repricing.carry_out(lake, home, placed, home_prices(home, NEW))
    assert (orders(home), repricing.ordered(home)) == ([], placed)
    with Lake.open(home, write=True) as lake:
        tariff = repricing.Tariff(lake, home, OLD)
        assert tariff.changed()
        tariff.take()
        assert not tariff.changed()
    assert costs(home)[2] == costs(home)[4] == pytest.approx(3000 * M)
    assert len(orders(home)) == 1


def test_a_converter_takes_new_lists_and_stated_prices_as_it_runs(tmp_path) -> None:
    home = home_of(tmp_path)
    file = tmp_path / "list.json"
    file.write_text(json.dumps({"missing": {"input_cost_per_token": 2 * M, "output_cost_per_token": 2 * M}}))
    with Lake.open(home, write=True) as lake:
        tariff = repricing.Tariff(lake, home, OLD)
        assert not tariff.changed()
        before = tariff.prices
        assert cli.run(["prices", "update", "--home", str(home), "--from", "2026-10-01", str(file)]) == 0
        assert tariff.changed()
        tariff.take()
        assert tariff.prices is not before
        assert tariff.prices.overrides == OLD
        assert "missing" in tariff.prices.book.changes
        assert costs(home)[2] is None  # settled calls wait for an order
        repricing.order(home, None, OLD, (Discount(50.0),))
        tariff.take()
        assert (tariff.prices.discounts, costs(home)[2]) == ((Discount(50.0),), pytest.approx(1000 * M))


def test_a_running_collector_prices_the_calls_and_goes_on_with_these_prices(tmp_path, capsys) -> None:
    home = home_of(tmp_path)
    toml(home, "missing", "known")
    with CollectorProcess(home, store=True) as collector:
        assert cli.run(["prices", "reprice", "--home", str(home), "--json"]) == 0
        printed = capsys.readouterr()
        assert f"A collector runs on this home (pid {collector.process.pid}" in printed.err
        assert json.loads(printed.out)["changed"] == 4
        assert costs(home)[2] == pytest.approx(3000 * M)
        body = traces_body([span(7, chat("missing", 900, 100), trace=7, start_ns=FIRST)])
        request = Request(f"{collector.url}/v1/traces", body, {"content-type": "application/json"})
        with urlopen(request) as answer:
            assert answer.status == 200
        until = time.monotonic() + 60
        while 7 not in costs(home):
            assert time.monotonic() < until
            time.sleep(0.2)
        with Lake.open(home) as lake:  # a converter that the collector has to start again is given what it began with
            assert repricing.Tariff(lake, home, OLD).prices.overrides[0].input == 3.0
    assert costs(home)[7] == pytest.approx(3000 * M)
    assert repricing.ordered(home) is None
    with Lake.open(home) as lake:  # a collector that starts reads retroute.toml itself
        assert repricing.Tariff(lake, home, OLD).prices.overrides == OLD


def test_a_damaged_order_stops_nobody(tmp_path) -> None:
    home = home_of(tmp_path)
    repricing.order(home, None, NEW, ())
    (home / "prices" / "reprice.order").write_text("{")
    with pytest.raises(WorkError, match=r"reprice\.order cannot be read"):
        repricing.ordered(home)
    with Lake.open(home, write=True) as lake:
        tariff = repricing.Tariff(lake, home, OLD)
        tariff.take()
        assert not tariff.changed()
    assert orders(home) == []


def test_another_writer_is_told_and_no_order_stays_behind(tmp_path, monkeypatch) -> None:
    home = home_of(tmp_path)
    monkeypatch.setattr("ingest.lake.PATIENCE_S", 0.1)
    with Lake.open(home, write=True), pytest.raises(HomeError, match="another process writes"):
        repriced.reprice(home, NEW, (), None, print)
    assert repricing.ordered(home) is None


def test_a_home_without_a_lake_is_told(tmp_path, capsys) -> None:
    assert cli.run(["prices", "reprice", "--home", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_many_calls_are_priced_in_portions_and_only_the_changed_ones_written(tmp_path, monkeypatch) -> None:
    home = home_of(tmp_path)
    monkeypatch.setattr(repricing, "CALLS_AT_ONCE", 1)
    placed = repricing.order(home, None, NEW, ())
    with Lake.open(home, write=True) as lake:
        write, rows = lake.write, []

        def counting(tables, costs=None):
            rows.append(0 if costs is None else costs.num_rows)
            write(tables, costs=costs)

        monkeypatch.setattr(lake, "write", counting)
        done = repricing.carry_out(lake, home, placed, home_prices(home, NEW))
    assert (done.calls, done.changed, sum(rows)) == (4, 2, 2)


def test_a_cost_that_differs_by_arithmetic_alone_is_left() -> None:
    calls = pl.DataFrame(
        {
            "trace_id": ["a", "b"],
            "span_id": ["a", "b"],
            "kind": ["llm", "llm"],
            "model_requested": ["known", "known"],
            "input_tokens": [900, 900],
            "output_tokens": [100, 100],
            "cost_usd": [1000 * M * (1 + 1e-12), 2000 * M],
            "input_usd": [900 * M, 1800 * M],
            "unpriced": pl.Series([None, None], dtype=pl.String),
            "price": ["known; retroute.toml"] * 2,
        }
    )
    rows, done = repricing.changes(calls, home_prices(Path("none"), OLD))
    assert rows["trace_id"].to_list() == ["b"]
    assert (done.changed, done.usd_before, done.usd_after) == (1, pytest.approx(3000 * M), pytest.approx(2000 * M))
