"""Settled calls priced again from the command line: by this process, or by the collector that holds the lake."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ingest import repricing
from ingest.errors import HomeError, WorkError
from ingest.home import collector_runs, running_collector
from ingest.lake import Lake
from ingest.prices.shelf import home_prices
from ingest.pricing import Discount, Price
from ingest.repricing import Order, Repriced

PATIENCE_S = 600.0
POLL_S = 0.2


def reprice(
    home: Path,
    prices: Sequence[Price],
    discounts: Sequence[Discount],
    since_ns: int | None,
    say: Callable[[str], None],
    patience_s: float = PATIENCE_S,
) -> Repriced:
    """Gives settled calls the prices that hold now. Raises HomeError without a lake, or when an import writes to it;
    WorkError when a running collector has not done it after a while."""
    Lake.open(home).close()
    placed = repricing.order(home, since_ns, prices, discounts)
    if not collector_runs(home):
        try:
            with Lake.open(home, write=True) as lake:
                return repricing.carry_out(lake, home, placed, home_prices(home, prices, discounts))
        except HomeError:
            if not collector_runs(home):  # one may have started just now: then the order is in good hands
                repricing.withdraw(home, placed)
                raise
    say(f"A collector runs on this home ({running_collector(home) or 'it does not say where'}); it prices the calls.")
    return _wait(home, placed, patience_s)


def as_json(done: Repriced) -> dict[str, Any]:
    return asdict(done)


def as_text(done: Repriced) -> str:
    """What was done, in a sentence or two."""
    if not done.changed:
        return f"{done.calls:,} calls looked at: all have the cost that today's lists and retroute.toml give them."
    said = f"{done.changed:,} of {done.calls:,} calls have another cost now"
    parts = [f"{done.priced:,} had none before"] * bool(done.priced)
    parts += [f"{done.unpriced:,} have none any more"] * bool(done.unpriced)
    told = f" ({', '.join(parts)})" if parts else ""
    return f"{said}{told}: {done.usd_after:,.4f} USD in all, {done.usd_before:,.4f} USD before."


def _wait(home: Path, placed: Order, patience_s: float) -> Repriced:
    until = time.monotonic() + patience_s
    with Lake.open(home) as lake:
        while True:
            if (done := repricing.outcome(lake, placed.request)) is not None:
                return done
            if time.monotonic() > until:
                raise WorkError(
                    f"the collector has not priced the calls after {patience_s:.0f} s",
                    "The order stays in the home: it is carried out as soon as the collector can write to the lake.",
                )
            time.sleep(POLL_S)
