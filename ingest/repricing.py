"""Settled calls are priced again, when prices were learned or corrected after they were settled.

`retroute prices reprice` leaves an order in the home, with the prices that hold by then. The lake's writer carries it
out: the collector that runs, between two commits, or the command itself. An order changes each call at most once,
however often its writer dies: what is changed already is not changed again, and the table `repricings` knows the orders
that are done.

What a call cost before is nowhere kept but in the sums of that table; `calls.price` names the list it is priced by now.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import orjson
import polars as pl
import pyarrow as pa

from ingest.class_costs import COST_PARTS
from ingest.errors import WorkError
from ingest.home import collector_runs, replace_file
from ingest.lake import Lake
from ingest.prices import frames
from ingest.prices.newest import newest_list
from ingest.prices.shelf import PriceRecord, home_prices
from ingest.pricing import Discount, Price, Prices

log = logging.getLogger(__name__)

CALLS_AT_ONCE = 50_000
_KEYS = ("trace_id", "span_id")
_SAME = 1e-9
"""Relative difference of two costs that is only arithmetic."""


@dataclass(frozen=True)
class Order:
    """What is to be done: calls that started at `since_ns` or later (None: all) get these prices."""

    request: str
    since_ns: int | None
    prices: tuple[Price, ...]
    discounts: tuple[Discount, ...]


@dataclass(frozen=True)
class Repriced:
    """What an order did. `changed` calls have another cost now, `priced` of them had none before, `unpriced` have none
    now. USD are sums over the calls that have a cost."""

    calls: int = 0
    changed: int = 0
    priced: int = 0
    unpriced: int = 0
    usd_before: float = 0.0
    usd_after: float = 0.0

    def __add__(self, other: Repriced) -> Repriced:
        mine, its = asdict(self), asdict(other)
        return Repriced(**{name: mine[name] + its[name] for name in mine})


def order(home: Path, since_ns: int | None, prices: Sequence[Price], discounts: Sequence[Discount]) -> Order:
    """Leaves an order in the home for the lake's writer; one that was not carried out yet is replaced."""
    placed = Order(uuid.uuid4().hex, since_ns, tuple(prices), tuple(discounts))
    (home / "prices").mkdir(exist_ok=True)
    replace_file(_file(home), orjson.dumps(asdict(placed)).decode())
    return placed


def ordered(home: Path) -> Order | None:
    """The order that waits in the home. Raises WorkError for one that cannot be read."""
    return _read(_file(home))


def withdraw(home: Path, placed: Order) -> None:
    """Takes an order out of the home, if it is still the one that waits."""
    waiting = ordered(home)
    if waiting is not None and waiting.request == placed.request:
        _file(home).unlink(missing_ok=True)


def outcome(lake: Lake, request: str) -> Repriced | None:
    """What an order did; None before it is carried out."""
    done = lake.query("repricings", request=request)
    return Repriced(*done.select(list(Repriced.__dataclass_fields__)).row(0)) if done.height else None


def carry_out(
    lake: Lake, home: Path, order: Order, prices: Prices, clock: Callable[[], int] = time.time_ns
) -> Repriced:
    """Prices again what the order asks for, in a lake that is open to write, and takes the order out of the home."""
    done = outcome(lake, order.request)
    if done is None:
        done = reprice(lake, prices, order, clock)
    waiting = ordered(home)
    if waiting is not None and waiting.request == order.request:
        _file(home).replace(_file(home, done=True))
    return done


def reprice(lake: Lake, prices: Prices, order: Order, clock: Callable[[], int] = time.time_ns) -> Repriced:
    """See `carry_out`. The calls of one day after the other are changed; the last transaction notes the order."""
    total = Repriced()
    for calls in _portions(lake, order.since_ns):
        rows, found = changes(calls, prices)
        total += found
        if rows.height:
            lake.write({}, costs=rows.to_arrow())
    now = clock()
    listed = newest_list(prices.book, datetime.fromtimestamp(now / 1e9, UTC).strftime("%Y-%m-%d"))
    row = {
        "request": order.request,
        "at_ns": now,
        "since_ns": order.since_ns,
        "price_list": f"{listed[0]}, {listed[1]}" if listed else None,
        **asdict(total),
    }
    types = lake.schema("repricings")
    lake.write({"repricings": pa.Table.from_pylist([row], schema=pa.schema([types.field(name) for name in row]))})
    PriceRecord(lake, prices).keep()
    return total


def changes(calls: pl.DataFrame, prices: Prices) -> tuple[pl.DataFrame, Repriced]:
    """The rows (trace_id, span_id, cost_usd, unpriced, price, and the cost's parts) that are otherwise at these prices,
    or whose parts were not noted; and how many. Pure.

    calls: rows of the query `calls_to_reprice`.
    """
    sums = {name: pl.sum_horizontal(*(f"usd_{kind}" for kind in kinds)) for name, kinds in COST_PARTS.items()}
    parts = [pl.when(pl.col("cost_usd").is_not_null()).then(usd).alias(f"{name}_now") for name, usd in sums.items()]
    now = frames.priced(calls, prices).select(pl.col("cost_usd", "unpriced", "price").name.suffix("_now"), *parts)
    both = pl.concat([calls, now], how="horizontal")
    was, new = pl.col("cost_usd"), pl.col("cost_usd_now")
    apart = (was.is_null() != new.is_null()) | ((new - was).abs() > _SAME * was.abs()).fill_null(False)
    undivided = pl.col("input_usd").is_null() & new.is_not_null()
    other = (
        apart
        | undivided
        | pl.col("unpriced").ne_missing(pl.col("unpriced_now"))
        | pl.col("price").ne_missing(pl.col("price_now"))
    )
    count = both.select(
        calls=pl.len(),
        changed=apart.sum(),
        priced=(was.is_null() & new.is_not_null()).sum(),
        unpriced=(was.is_not_null() & new.is_null()).sum(),
        usd_before=was.sum(),
        usd_after=new.sum(),
    ).row(0, named=True)
    rows = both.filter(other).select(*_KEYS, pl.col("^.*_now$").name.map(lambda name: name.removesuffix("_now")))
    return rows, Repriced(**count)


class Tariff:
    """The prices that a converter settles by, and keeps in the lake. When they have `changed` it should `take` them."""

    def __init__(
        self, lake: Lake, home: Path, overrides: Sequence[Price] = (), discounts: Sequence[Discount] = ()
    ) -> None:
        self._lake = lake
        self._home = home
        handed = _handed(home)
        self._stated = (handed.prices, handed.discounts) if handed else (tuple(overrides), tuple(discounts))
        self._seen: tuple[tuple[str, int], ...] = ()
        self._load()

    def changed(self) -> bool:
        """Whether there are lists or an order that were not taken yet: one look at the folder."""
        return _lists(self._home) != self._seen

    def take(self, clock: Callable[[], int] = time.time_ns) -> None:
        """Goes on with the lists of now, and carries out the order that waits. Whatever was settled by the prices of
        before should be in the lake by then. Raises WorkError as the lake does, and does it the next time then."""
        seen = _lists(self._home)
        try:
            waiting = ordered(self._home)
        except WorkError as problem:  # nobody should wait for telemetry because of it
            log.warning("%s", problem)
            waiting = None
        if waiting is not None:
            self._stated = (waiting.prices, waiting.discounts)
        self._load()
        if waiting is not None:
            carry_out(self._lake, self._home, waiting, self.prices, clock)
            seen = tuple(entry for entry in seen if entry[0] != _file(self._home).name)
        self._seen = seen

    def keep(self) -> None:
        """Appends to the table `prices` what the lists say of the models that were priced."""
        self._record.keep()

    def _load(self) -> None:
        self.prices = home_prices(self._home, *self._stated)
        self._record = PriceRecord(self._lake, self.prices)


def _portions(lake: Lake, since_ns: int | None) -> Iterator[pl.DataFrame]:
    """The calls to price again, at most about `CALLS_AT_ONCE` at once."""
    for day, calls in lake.query("priced_days", since_ns=since_ns).iter_rows():
        parts = calls // CALLS_AT_ONCE + 1
        for part in range(parts):
            yield lake.query("calls_to_reprice", day=day, since_ns=since_ns, parts=parts, part=part)


def _handed(home: Path) -> Order | None:
    """The order that the running collector has carried out since it started: its prices are newer than those that the
    collector gives to a converter which it has to start again."""
    try:
        started_ns = int(orjson.loads((home / "collector.json").read_bytes())["started_ns"])
        if _file(home, done=True).stat().st_mtime_ns > started_ns and collector_runs(home):
            return _read(_file(home, done=True))
    except (OSError, ValueError, TypeError, KeyError, WorkError):
        pass  # nothing was handed over
    return None


def _read(file: Path) -> Order | None:
    try:
        said = orjson.loads(file.read_bytes())
        prices = tuple(Price(**price) for price in said["prices"])
        discounts = tuple(Discount(**discount) for discount in said["discounts"])
        return Order(said["request"], said["since_ns"], prices, discounts)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise WorkError(
            f"{file} cannot be read: {error}", "Remove it and run `retroute prices reprice` again."
        ) from None


def _file(home: Path, *, done: bool = False) -> Path:
    return home / "prices" / ("reprice.done" if done else "reprice.order")


def _lists(home: Path) -> tuple[tuple[str, int], ...]:
    """The price lists of a home, and its order, with the times of their last change."""
    try:
        found = [(file.name, file.stat().st_mtime_ns) for file in (home / "prices").iterdir()]
    except FileNotFoundError:  # no folder, or a file that went meanwhile
        return ()
    told = (entry for entry in found if entry[0].endswith((".json", ".order")))
    return tuple(sorted(told))
