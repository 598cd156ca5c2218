"""What calls cost -> what the page on spend shows: windows, groups, the cache's part.

Shapes frames of the lake's rollups: sums of what has a cost, with what has none counted beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from dashboard import data

MINUTE_NS, HOUR_NS, DAY_NS = 60 * 10**9, 3600 * 10**9, 86_400 * 10**9
STEPS_NS = (5 * MINUTE_NS, HOUR_NS, 6 * HOUR_NS, DAY_NS, 7 * DAY_NS, 28 * DAY_NS)
MOST_STEPS = 90
OTHER, UNNAMED = "other", "not named"
SHOWN = 12
"""Groups that are shown by themselves."""

PARTS: Mapping[str, str] = {
    "input_usd": "Input",
    "cache_read_usd": "Cache reads",
    "cache_write_usd": "Cache writes",
    "output_usd": "Output",
    "reasoning_usd": "Reasoning",
    "tools_usd": "Tools and fees",
}
UNDIVIDED = "Not divided"

GROUPS: Mapping[str, str] = {
    "step": "Step",
    "agent": "Agent",
    "model": "Model",
    "tool": "Tool",
    "service": "Service",
    "provider": "Provider",
    "session": "Session",
    "user": "User",
}
PER: Mapping[str, str] = {"total": "Total", "task": "Per task", "call": "Per call"}
"""What the cost over time is divided by; calls are those with a price."""
BY_TASK = ("session", "user")
"""Groups that traces have, not calls."""


@dataclass(frozen=True)
class Window:
    """What time is looked at: nanoseconds, the second one not any more; and the steps to draw it in."""

    since_ns: int
    until_ns: int
    step_ns: int


@dataclass(frozen=True)
class Totals:
    """Sums over a window. USD are of the `priced` calls; `unpriced` ones should have a cost and have none."""

    cost_usd: float
    calls: int
    priced: int
    unpriced: int
    tasks: int
    cost_before_retry: float
    cost_of_errors: float

    @property
    def per_task(self) -> float | None:
        return self.cost_usd / self.tasks if self.tasks else None


@dataclass(frozen=True)
class Cache:
    """What caches of providers did. `hit_share` is of input tokens; `saved_usd` against the mean price that the same
    model's uncached input had, less what writing cost beyond it. None: nothing to say it of. `unknown_tokens` were read
    from caches of models without uncached input, and are in no saving."""

    hit_share: float | None
    saved_usd: float | None
    read_tokens: int
    unknown_tokens: int


@dataclass(frozen=True)
class Spend:
    """All that the page shows. `over_time` at_ns, part, usd; `steps` rows of the query spend_by_step."""

    window: Window
    totals: Totals
    before: Totals | None
    """Of a window as long right before; None without all of it."""
    over_time: pl.DataFrame
    steps: pl.DataFrame
    cache: Cache
    counts: pl.DataFrame
    """at_ns, task, call: tasks, and calls with a price, of each step of time that has any."""


def window(
    seen: pl.DataFrame, service: str | None, since_ns: int | None, until_ns: int | None, now_ns: int
) -> Window | None:
    """The window asked for, closed by what the services made; None where they made nothing in it. A clock in the future
    does not stretch it: it ends a day from now at the latest. seen: rows of the query services_seen."""
    own = seen.filter((pl.col("service") == service) if service is not None else True)
    first, last = own["first_ns"].min(), own["last_ns"].max()
    if not isinstance(first, int) or not isinstance(last, int):
        return None
    since = max(first, since_ns) if since_ns is not None else first
    until = min(last + HOUR_NS, now_ns + DAY_NS, until_ns or last + HOUR_NS)
    if until <= since:
        return None
    return Window(since_ns or first, until_ns or until, step(until - since))


def step(length_ns: int) -> int:
    """The smallest step that cuts a window into few enough pieces."""
    return next((found for found in STEPS_NS if length_ns / found <= MOST_STEPS), STEPS_NS[-1])


def load(asked: Window, service: str | None) -> Spend:
    """What a window cost."""
    bounds = {"service": service, "since_ns": asked.since_ns, "until_ns": asked.until_ns}
    times = data.lake("spend_by_time", step_ns=asked.step_ns, **bounds)
    tasks = data.lake("tasks_by_time", step_ns=asked.step_ns, **bounds)
    steps = data.lake("spend_by_step", **bounds)
    counts = (
        times.select("at_ns", call="priced")
        .join(tasks.select("at_ns", task="tasks"), on="at_ns", how="full", coalesce=True)
        .filter(pl.col("at_ns").is_not_null())
    )
    over_time = divided(times, asked.step_ns)
    return Spend(asked, totals(times, tasks), _before(asked, service), over_time, steps, cache(steps), counts)


def over_time(spend: Spend, per: str) -> pl.DataFrame:
    """at_ns, part, usd: the cost over time, by task or by call where `per` says so; nothing in steps without any."""
    if per == "total":
        return spend.over_time
    found = spend.over_time.join(spend.counts.select("at_ns", of=per), on="at_ns", how="left", maintain_order="left")
    by = pl.when(pl.col("of") > 0).then(pl.col("usd") / pl.col("of")).otherwise(0.0)
    return found.select("at_ns", "part", usd=by)


def _before(asked: Window, service: str | None) -> Totals | None:
    length = asked.until_ns - asked.since_ns
    seen = data.lake("services_seen").filter((pl.col("service") == service) if service is not None else True)
    first = seen["first_ns"].min()
    if not isinstance(first, int) or first > asked.since_ns - length:
        return None
    bounds = {"service": service, "since_ns": asked.since_ns - length, "until_ns": asked.since_ns}
    times = data.lake("spend_by_time", step_ns=length, **bounds)
    return totals(times, data.lake("tasks_by_time", step_ns=length, **bounds))


def totals(times: pl.DataFrame, tasks: pl.DataFrame) -> Totals:
    """Sums of rows of the queries spend_by_time and tasks_by_time."""
    return Totals(
        float(times["cost_usd"].sum()),
        int(times["calls"].sum()),
        int(times["priced"].sum()),
        int(times["unpriced"].sum()),
        int(tasks["tasks"].sum()),
        float(times["cost_before_retry"].sum()),
        float(times["cost_of_errors"].sum()),
    )


def divided(times: pl.DataFrame, step_ns: int) -> pl.DataFrame:
    """at_ns, part, usd: the cost of each step of time by token class; what was not divided is a part of its own. Every
    step between the first and the last is there."""
    known = [name for name in PARTS if float(times[name].sum()) > 0]
    rest = pl.col("cost_usd") - pl.sum_horizontal(*PARTS)
    wide = times.filter(pl.col("at_ns").is_not_null()).select(
        "at_ns", *(pl.col(name).alias(PARTS[name]) for name in known), rest.alias(UNDIVIDED)
    )
    if float(wide[UNDIVIDED].sum()) <= 1e-6 * float(times["cost_usd"].sum()):
        wide = wide.drop(UNDIVIDED)
    if wide.height:
        whole = pl.int_range(wide["at_ns"][0], wide["at_ns"][-1] + 1, step_ns, dtype=pl.Int64, eager=True).alias(
            "at_ns"
        )
        wide = whole.to_frame().join(wide, on="at_ns", how="left").with_columns(pl.exclude("at_ns").fill_null(0.0))
    return wide.unpivot(index="at_ns", variable_name="part", value_name="usd").sort("at_ns", maintain_order=True)


def cache(steps: pl.DataFrame) -> Cache:
    """What caching did, from rows of the query spend_by_step."""
    read, written = pl.col("cache_read_tokens"), pl.col("cache_write_tokens")
    by_model = (
        steps.group_by("provider", "model")
        .agg(
            pl.col(
                "input_tokens",
                "cache_read_tokens",
                "cache_write_tokens",
                "input_usd",
                "cache_read_usd",
                "cache_write_usd",
            ).sum()
        )
        .with_columns(uncached=pl.col("input_tokens") - read - written)
        .with_columns(
            price=pl.when((pl.col("uncached") > 0) & (pl.col("input_usd") > 0)).then(
                pl.col("input_usd") / pl.col("uncached")
            )
        )
        .with_columns(
            saved=read * pl.col("price")
            - pl.col("cache_read_usd")
            + written * pl.col("price")
            - pl.col("cache_write_usd")
        )
    )
    used = by_model.filter(read + written > 0)
    tokens, total = int(used["cache_read_tokens"].sum()), int(by_model["input_tokens"].sum())
    known = used.filter(pl.col("price").is_not_null())
    return Cache(
        tokens / total if total else None,
        float(known["saved"].sum()) if known.height else None,
        tokens,
        tokens - int(known["cache_read_tokens"].sum()),
    )


def grouped(spend: Spend, by: str, service: str | None) -> pl.DataFrame:
    """The dearest `SHOWN` groups, and all others, `rest` of them, as one; a name of None: names none.

    name, tasks (null for groups of calls), calls, errors, priced (null for groups of traces), unpriced, cost_usd,
    cost_before_retry (0 for groups of traces), rest.
    """
    if by in BY_TASK:
        found = data.lake(
            "spend_by_task", who=by, service=service, since_ns=spend.window.since_ns, until_ns=spend.window.until_ns
        ).with_columns(cost_before_retry=pl.lit(0.0), priced=pl.lit(None, pl.Int64))
    else:
        counted = spend.steps if by != "tool" else spend.steps.filter(pl.col("kind") == "tool")
        found = counted.group_by(pl.col(by).alias("name")).agg(
            pl.col("calls", "errors", "priced", "unpriced", "cost_usd", "cost_before_retry").sum(),
            tasks=pl.lit(None, pl.Int64),
            others=pl.lit(0, pl.Int64),
        )
    sums = ("tasks", "calls", "errors", "priced", "unpriced", "cost_usd", "cost_before_retry")
    ranked = found.select("name", *sums, rest="others").sort(
        ["rest", "cost_usd", "calls", "name"], descending=[False, True, True, False], nulls_last=True
    )
    if ranked.height <= SHOWN + 1 and not ranked["rest"].sum():
        return ranked
    rest = ranked[SHOWN:]
    alone = rest["rest"].replace(0, 1).sum()  # a row of several groups says how many
    return ranked[:SHOWN].vstack(
        rest.select(pl.lit(OTHER).alias("name"), pl.col(sums).sum(), rest=pl.lit(alone, pl.Int64))
    )


LEVELS = ("service", "agent", "step", "model")


def icicle(steps: pl.DataFrame, least: float = 0.004) -> pl.DataFrame:
    """level (0 is the outermost), name, x0, x1 (shares of the whole), usd, calls, and the four names as far as they are
    given: the boxes of an icicle of cost. Boxes of less than `least` of the whole are one in the box around them."""
    named = steps.filter(pl.col("cost_usd") > 0).with_columns(pl.col(LEVELS).fill_null(UNNAMED).replace("", UNNAMED))
    total = float(named["cost_usd"].sum())
    boxes: list[dict[str, object]] = []

    def divide(rows: pl.DataFrame, level: int, left: float, above: dict[str, str]) -> None:
        if level == len(LEVELS):
            return
        column = LEVELS[level]
        sums = (
            rows.group_by(column)
            .agg(pl.col("cost_usd", "calls").sum())
            .sort(["cost_usd", column], descending=[True, False])
        )
        small = sums.filter(pl.col("cost_usd") < least * total)
        for name, usd, calls in sums.filter(pl.col("cost_usd") >= least * total).iter_rows():
            own = {**above, column: name}
            boxes.append(
                {"level": level, "name": name, "x0": left, "x1": left + usd / total, "usd": usd, "calls": calls, **own}
            )
            divide(rows.filter(pl.col(column) == name), level + 1, left, own)
            left += usd / total
        if small.height:
            usd = float(small["cost_usd"].sum())
            what = {"level": level, "name": f"{small.height} {OTHER}", "x0": left, "x1": left + usd / total, "usd": usd}
            boxes.append({**what, "calls": int(small["calls"].sum()), **above})

    if total > 0:
        divide(named, 0, 0.0, {})
    texts = dict.fromkeys(("name", *LEVELS), pl.String)
    schema = {"level": pl.Int64, "x0": pl.Float64, "x1": pl.Float64, "usd": pl.Float64, "calls": pl.Int64, **texts}
    return pl.DataFrame(boxes, schema=schema)
