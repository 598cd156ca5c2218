"""Keeps the lake small while a converter writes to it: files joined, old snapshots and unneeded files gone, old days
dropped.

    every 5 minutes    counts of one key and small files are joined, snapshots that are an hour old forgotten, files
                       that nothing needed since the last time deleted
    every hour         all files of a day are joined, days out of retention dropped, orphans of killed writers deleted

All of it is the writer's own work between two commits, so nothing is in flight. A query of a reader has five minutes
for the files it began with.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from ingest.errors import WorkError
from ingest.lake import Lake

log = logging.getLogger(__name__)

ROUND_S = 300.0
MANY_FILES = 300
"""Of a table: that many are joined at once when a converter starts, as short imports leave them."""
SMALL_BYTES = 4 << 20
HOUR_S = 3600.0
MINUTES_DAYS = 7
"""So long calls are counted by the minute, then by the hour."""
_FIRST_S = 60.0  # from the start to the first hourly round
SNAPSHOTS, MOST_SNAPSHOTS = 100, 20_000
"""Snapshots that are kept however old, and however young."""
_DOUBT_S = 24 * HOUR_S
_FIRST = date(2024, 1, 1)  # before this software was: a clock that says so is wrong

FACTS = ("span_log", "score_log", "settled_calls", "span_roles", "settled_traces", "calls_by_minute", "ingest_log")
TEXTS = ("content_log", "event_log")


@dataclass(frozen=True)
class Retention:
    """How many days facts and texts are kept after their receipt; None: for ever. Texts never outlive their facts."""

    facts_days: float | None = None
    texts_days: float | None = None


@dataclass(frozen=True, slots=True)
class StoredDay:
    """A day of the lake and the commits that have rows of it. `day` None: from before days were noted."""

    day: date | None
    first_batch: int
    last_batch: int


def expired(days: Sequence[StoredDay], today: date, keep_days: float) -> list[date | None]:
    """The days that are out of retention. One that was noted by a wrong clock counts as the day before it in the order
    of commits, so that it goes with its neighbours: neither at once nor never."""
    sound = sorted(
        (found.first_batch, found.day) for found in days if found.day and _FIRST <= found.day <= today + timedelta(1)
    )
    gone: list[date | None] = []
    for found in days:
        earlier = [day for first, day in sound if first <= found.last_batch]
        known = found.day if any(day == found.day for _, day in sound) else max(earlier, default=None)
        counted = known or min((day for _, day in sound), default=None)
        if counted is not None and (today - counted).days > keep_days:
            gone.append(found.day)
    return gone


class Calendar:
    """The day to reckon retention with: the clock's, unless it leaps. A leap is believed after it has lasted a day."""

    def __init__(self, newest: date | None) -> None:
        self._believed = newest
        self._doubted_since: float | None = None

    def today(self, clock_says: date, monotonic_s: float) -> date | None:
        """The day, or None while there is doubt about it."""
        if self._believed is None or self._believed <= clock_says <= self._believed + timedelta(2):
            self._believed, self._doubted_since = clock_says, None
        elif self._doubted_since is None:
            self._doubted_since = monotonic_s
        elif monotonic_s - self._doubted_since >= _DOUBT_S:
            self._believed, self._doubted_since = clock_says, None
        return None if self._doubted_since is not None else self._believed


class Upkeep:
    """The upkeep of one open lake. `clock` gives nanoseconds UTC, `monotonic` seconds of any origin."""

    def __init__(
        self,
        lake: Lake,
        retention: Retention,
        clock: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lake = lake
        self._retention = retention
        self._clock = clock
        self._monotonic = monotonic
        self._round_s = monotonic() - (ROUND_S if lake.files() >= MANY_FILES else 0.0)
        self._cleaned_s = monotonic()
        self._hourly_s = monotonic() + _FIRST_S - HOUR_S
        self._fresh = True
        clock_says = self._date()
        known = [found.day for found in self._days() if found.day is not None and found.day <= clock_says]
        self._calendar = Calendar(max(known, default=None))

    def committed(self) -> None:
        """Note a commit."""
        self._fresh = True

    def work(self) -> None:
        """Do what is due, if anything is. What fails is logged, and tried again when it is due again: nothing depends
        on it but size."""
        now_s = self._monotonic()
        hourly = now_s - self._hourly_s >= HOUR_S
        if not hourly and not (self._fresh and now_s - self._round_s >= ROUND_S):
            return
        self._fresh, self._round_s = False, now_s
        self._hourly_s = now_s if hourly else self._hourly_s
        try:
            if now_s - self._cleaned_s >= ROUND_S:
                self._lake.clean()
            self._cleaned_s = now_s  # what is joined from here on has until the next round
            if hourly:
                self.drop_old_days()
            self._lake.join_minutes(self._date() - timedelta(MINUTES_DAYS))
            self._lake.compact(None if hourly else SMALL_BYTES)
            self._lake.expire(SNAPSHOTS, HOUR_S, MOST_SNAPSHOTS)
            if hourly:
                self._lake.sweep(HOUR_S)
        except (WorkError, OSError, ValueError) as problem:
            log.warning("upkeep of the lake: %s", problem)

    def drop_old_days(self) -> None:
        """Drop the days beyond retention, unless the clock is in doubt."""
        facts, texts = self._retention.facts_days, self._retention.texts_days
        today = self._calendar.today(self._date(), self._monotonic())
        if today is None:
            log.warning("the clock leapt: retention waits for a day or for the clock to come back")
            return
        if facts is None and texts is None:
            return
        days = self._days()
        newest = max(days, key=lambda found: found.last_batch, default=None)
        old = [] if facts is None else expired(days, today, facts)
        spoken = min(n for n in (facts, texts) if n is not None)
        silent = expired(days, today, spoken)
        gone: dict[str, Sequence[date | None]] = {**dict.fromkeys(FACTS, old), **dict.fromkeys(TEXTS, silent)}
        if newest is not None:  # the converter's place in the log is in its newest commit
            gone["ingest_log"] = [day for day in old if day != newest.day]
        if old or silent:
            self._lake.drop_days(gone)

    def _date(self) -> date:
        return datetime.fromtimestamp(self._clock() / 1e9, UTC).date()

    def _days(self) -> list[StoredDay]:
        return [StoredDay(*row) for row in self._lake.query("stored_days").iter_rows()]
