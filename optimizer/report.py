"""What a person reads in the terminal: progress, tables, verdicts. The numbers are the pipeline's.

An estimate E is the pipeline's {value, low, high, kind, reason, ...}; a refused one has a null value and a reason,
which is printed in words. The demo's estimates also carry `truth`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from ingest.errors import UsageError, WorkError

if TYPE_CHECKING:
    import polars as pl

Show = Callable[[str, float], None]
"""(what is being done, share done from 0 to 1)."""
Record = Mapping[str, Any]

VERDICTS = {
    "deploy": "Deploy",
    "promising": "Promising",
    "keep": "Keep today's routing",
    "cannot_tell": "Your logs cannot tell",
}
POLICIES = {
    "today": "today",
    "cheapest": "cheapest",
    "strongest": "strongest",
    "cost_matched_random": "cost-matched random",
    "suggested": "suggested",
}
SHOWN_ROWS = 200
REASONS = 3
"""Reasons for a missing price that are printed."""
WIDTH = 120
"""Columns where the output is not a terminal."""


def to_json(result: object) -> str:
    """JSON of a result; NaN becomes null, numpy's numbers and arrays become JSON's."""
    return orjson.dumps(
        result, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
    ).decode()


def usd(value: float, scale: float) -> str:
    return f"{'-' if value < 0 else ''}${abs(value):,.{2 if scale >= 1 else 4}f}"


def percent(value: float, _scale: float) -> str:
    return f"{100 * value:.1f} %"


def points(value: float, _scale: float) -> str:
    return f"{100 * value:+.1f} points"


def seconds(value: float, _scale: float) -> str:
    return f"{value:.2f} s"


Unit = Callable[[float, float], str]
"""(value, largest magnitude shown beside it) -> text, so that an interval has as many digits as its value."""


def estimate(record: Record | None, unit: Unit) -> str:
    """An estimate with its interval, and with the truth where it is known."""
    if record is None:
        return "none"
    value, low, high, truth = (record.get(name) for name in ("value", "low", "high", "truth"))
    scale = max((abs(number) for number in (value, low, high, truth) if number is not None), default=0.0)
    text = "refused" if value is None else unit(value, scale)
    if value is not None and low is not None and high is not None:
        text += f" [{unit(low, scale)}, {unit(high, scale)}]"
    return text if truth is None else f"{text}\ntruth {unit(truth, scale)}"


def refusals(service: Record) -> list[str]:
    """Why estimates of a service are refused, one sentence for each reason."""
    found: dict[str, list[str]] = {}
    parts = [("change", {what: service.get(key) for key, what, _ in CHANGES})]
    for row in service.get("table", ()):
        name = POLICIES.get(row["policy"], row["policy"])
        parts.append((name, {what: row.get(key) for key, what, _ in COLUMNS}))
    for name, records in parts:
        reasons: dict[str, list[str]] = {}
        for what, record in records.items():
            if record is not None and record.get("value") is None and record.get("reason"):
                reasons.setdefault(record["reason"], []).append(what)
        for reason, whats in reasons.items():
            found.setdefault(reason, []).append(name if len(whats) == len(records) else f"{name} ({', '.join(whats)})")
    return [f"{', '.join(names)}: {reason}" for reason, names in found.items()]


COLUMNS: Sequence[tuple[str, str, Unit]] = (
    ("cost_usd_per_1k", "cost per 1,000", usd),
    ("quality", "quality", percent),
    ("latency_s", "latency", seconds),
)
CHANGES: Sequence[tuple[str, str, Unit]] = (
    ("savings_usd_per_1k", "savings per 1,000", usd),
    ("quality_change", "quality", points),
    ("latency_change_s", "latency", seconds),
)


def table(name: str, service: Record) -> Table:
    """The policies of a service side by side."""
    grid = Table(title=f"{escape(name)}: {verdict(service)}", title_justify="left", title_style="bold", show_lines=True)
    grid.add_column("policy", overflow="fold")
    note = service.get("data", {}).get("latency_label")
    for key, title, _ in COLUMNS:
        grid.add_column(f"{title} ({note})" if note and key == "latency_s" else title, justify="right")
    for row in service.get("table", ()):
        label = POLICIES.get(row["policy"], row["policy"])
        if row.get("label"):
            label += f"\n{row['label']}"
        grid.add_row(escape(label), *(escape(estimate(row.get(key), unit)) for key, _, unit in COLUMNS))
    return grid


def verdict(service: Record) -> str:
    return VERDICTS.get(service["verdict"], str(service["verdict"]))


def reasons(service: Record) -> list[str]:
    """One line per condition of the gate; an unmet one also says what would help."""
    lines = []
    for reason in service.get("reasons", ()):
        met = "met" if reason["holds"] else "NOT met"
        line = f"{met}: {reason['condition']}: {reason['got']} (needed: {reason['needed']})"
        lines.append(line if reason["holds"] or not reason.get("remedy") else f"{line}; {reason['remedy']}")
    if further := service.get("earlier_looks"):
        level = f"{100 * service['limits']['confidence']:.4g} %"
        times = "once" if further == 1 else f"{further} times"
        lines.append(f"judged {times} before on some of these decisions: all intervals are {level} intervals")
    if sessions := service.get("data", {}).get("sessions"):
        from optimizer import stickiness

        lines.append(stickiness.words(sessions))
    if waiting := service.get("data", {}).get("waiting"):
        lines.append(f"{waiting:,} decisions are newer than the newest plan of scores and left for the next one")
    plan = service.get("plan")
    return [*lines, f"what would decide it: {plan['text']}"] if plan else lines


def partial_lines(service: Record) -> list[str]:
    """Where the logs cannot tell: what they say of a policy that they support in part, each number with its kind."""
    if service["verdict"] != "cannot_tell":
        return []
    lines = []
    for part in service.get("partial", ()):
        what, unit = ("quality", points) if part["metric"] == "quality_change" else ("cost per 1,000", usd)
        scale = max(abs(part["low"]), abs(part["high"]))
        segment, beyond = part["segment"], part["extrapolated"]
        known = segment["value"] is not None
        tried = f"{estimate(segment, unit)}, {segment['kind']}" if known else f"refused: {segment['reason']}"
        lines.append(
            f"{part['policy']}, {what}: where the logs tried it ({part['share']:.0%} of decisions) {tried}; over all "
            f"between {unit(part['low'], scale)} and {unit(part['high'], scale)}, whatever the rest gives; if the "
            f"model is right about it {estimate(beyond, unit)}, {beyond['kind']}"
        )
    return lines


def disagreement_lines(service: Record) -> list[str]:
    """Where the estimators differ by more than chance, which of the things they rest on is in doubt."""
    names = {"cost_usd": "cost", "quality": "quality", "latency_s": "latency"}
    return [f"estimators disagree on {names[key]}: {said}" for key, said in service.get("disagreement", {}).items()]


def control_line(service: Record) -> list[str]:
    """Whether estimated probabilities miss something that moved a choice; none where they are logged."""
    found = service.get("control")
    if not found or found["holds"] is None:
        return []
    said = "passed" if found["holds"] else "FAILED"
    return [f"negative control {said}: {found['reason']}" + (f"; {found['remedy']}" if found["remedy"] else "")]


def fault_lines(service: Record) -> list[str]:
    """Logged probabilities that cannot be, which were estimated instead."""
    return [
        f"{row['traces']:,} decisions have logged probabilities that cannot be: {row['fault']} (as in trace "
        f"{row['trace_id']}); they are estimated instead"
        for row in service.get("data", {}).get("propensity_faults", ())
    ]


def rule_lines(service: Record) -> list[str]:
    """The suggestion in words, per decision point, with how far the words are from it."""
    from optimizer import constraints
    from optimizer.rules import words

    lines = []
    if (limited := service.get("constraints")) and (said := constraints.words(limited)):
        lines.append(said)
    for point in service.get("points", ()):
        if said := point.get("rules"):
            changes = [f"{what} {estimate(said[key], unit)}" for key, what, unit in CHANGES if key in said]
            lines.append(
                f"at {point['point']}, in words (the policy chooses so in {said['fidelity']:.0%} of decisions; "
                f"followed to the letter: {', '.join(changes)}):"
            )
            lines += [
                f"  {rule['share']:.0%}: {words(rule)}: {rule['action']} "
                f"(today mostly {rule['today']}, {rule['today_share']:.0%})"
                for rule in said["rules"]
            ]
    return lines


def cost_lines(service: Record) -> list[str]:
    """At which prices the costs are, what they were as billed, and what has no price; none for a run without them."""
    from optimizer import costs, switching, unpriced

    said = service.get("costs")
    if not said:
        return []
    lines = [f"costs: at the {costs.list_words(said['price_list'])}"]
    billed, listed = said["billed_usd_per_1k"], said["one_list_usd_per_1k"]
    if billed is not None and listed is not None:
        scale = max(billed, listed)
        lines.append(
            f"today: {usd(billed, scale)} per 1,000 decisions as billed, {usd(listed, scale)} at these prices "
            f"({said['decisions']:,} decisions)"
        )
    if said["one_list_unknown"]:
        lines.append(f"without a cost at these prices: {said['one_list_unknown']:,} decisions")
    for kind, where in (("one_list", "at these prices"), ("billed", "as billed")):
        found = said["unpriced"][kind]
        if found["unpriced_calls"]:
            lines.append(f"{where}: {unpriced.sentence(found)}")
            lines += [
                f"  {row['calls']:,} {_calls(row['calls'])}: {row['reason']}" for row in found["reasons"][:REASONS]
            ]
            if (more := len(found["reasons"]) - REASONS) > 0:
                lines.append(f"  ... and {more} more reasons; --json has them")
    if switches := said.get("switching"):
        sticky = bool(service.get("data", {}).get("sessions"))
        lines += [*map(switching.words, switches), switching.avoided(sticky)]
    return lines


def _calls(count: int) -> str:
    return "call" if count == 1 else "calls"


def show(result: Record, as_json: bool) -> None:
    """Prints what nightly, evaluate or demo found."""
    if as_json:
        print(to_json(result))
        return
    from optimizer import propensity_text
    from optimizer.sequential import text

    console = _console()
    for name, service in sorted(result["services"].items()):
        console.print()
        console.print(table(name, service))
        changes = [f"{what} {estimate(service.get(key), unit)}".replace("\n", ", ") for key, what, unit in CHANGES]
        console.print(f"  change: {'; '.join(changes)}", markup=False)
        for line in cost_lines(service):
            console.print(f"  {line}", markup=False)
        for line in [*rule_lines(service), *text.lines(service, estimate)]:
            console.print(f"  {line}", markup=False)
        for line in reasons(service):
            console.print(f"  {line}", markup=False)
        estimated = propensity_text.sentences(service.get("data", {}).get("behaviour"))
        doubts = [*fault_lines(service), *disagreement_lines(service), *estimated, *control_line(service)]
        for line in [*doubts, *partial_lines(service)]:
            console.print(f"  {line}", markup=False)
        for line in refusals(service):
            console.print(f"  refused: {line}", markup=False)
        if service.get("bundle"):
            console.print(f"  bundle: {service['bundle']}", markup=False)
    if not result["services"]:
        console.print("No service has decisions to judge.")
    console.print()
    console.print(_closing(result), markup=False)


def _closing(result: Record) -> str:
    parts = []
    if "spans_sent" in result:
        parts.append(f"{result['spans_sent']:,} spans sent, {result['spans_stored']:,} stored")
    parts += [f"{result[key]:,} {key}" for key in ("calls", "decisions") if key in result]
    if "seconds" in result:
        parts.append(f"{result['seconds']:.0f} s")
    return ", ".join(parts)


def show_next(commands: Sequence[tuple[str, str]]) -> None:
    """Prints what to do next: (command, what it does)."""
    console = _console()
    console.print()
    console.print("Next:")
    for command, purpose in commands:
        console.print(f"  {command}", markup=False, highlight=False, soft_wrap=True)
        console.print(f"      {purpose}", markup=False)


def show_runs(runs: Sequence[Record], as_json: bool) -> None:
    """Prints the list of runs."""
    if as_json:
        print(to_json(list(runs)))
        return
    if not runs:
        print("No runs yet. `retroute nightly` makes one.")
        return
    grid = Table("run", "made", "service", "verdict", "active")
    for run in runs:
        for position, (name, outcome) in enumerate(sorted(run["services"].items())):
            first = (run["run_id"], str(run["created_at"])) if position == 0 else ("", "")
            active = "yes" if name in run.get("active", ()) else ""
            shown = "not judged yet" if outcome is None else VERDICTS.get(outcome, str(outcome))
            grid.add_row(*first, escape(name), shown, active)
        if not run["services"]:
            grid.add_row(run["run_id"], str(run["created_at"]), "none", "", "")
    _console().print(grid)


def price_table(found: Record) -> str:
    """What `retroute prices show` says: USD per million tokens, tools and requests each."""
    lines = [f"{found['price'] or found['model']}"]
    for row in found["rates"]:
        above = f", prompts of more than {row['above_tokens']:,} tokens" if row["above_tokens"] else ""
        lines.append(f"  {row['tier']}{above}")
        lines += [
            f"    {name:<17}{value:>14.10g}" for name, value in row.items() if name not in ("tier", "above_tokens")
        ]
    if found["history"]:
        lines.append("  history (valid from, list, input, output)")
    for row in found["history"]:
        since = "always" if row["valid_from"].startswith("0000") else row["valid_from"]
        usd = " ".join("-" if row[name] is None else f"{row[name]:.10g}" for name in ("input", "output"))
        lines.append(f"    {since:<11} {row['list']:<18} {usd if row['listed'] else 'dropped; its last price goes on'}")
    return "\n".join(lines)


def draw(grid: Table) -> None:
    """Prints a table."""
    _console().print(grid)


def write_frame(frame: pl.DataFrame, form: str, output: Path | None) -> None:
    """Writes a query's result as table, json, csv or parquet. Raises UsageError for a type the form cannot hold."""
    import polars as pl

    if form == "parquet" and output is not None:
        with _writing(output):
            frame.write_parquet(output)
        return
    if form == "csv":
        nested = [name for name, kind in frame.schema.items() if kind.is_nested()]
        if nested:
            raise UsageError(f"csv cannot hold the nested column '{nested[0]}'", "Use --format json or parquet.")
        text = frame.write_csv()
    elif form == "json":
        text = frame.with_columns(pl.col(pl.Binary).bin.encode("base64")).write_json() + "\n"
    else:
        text = _drawn(frame, sys.stdout if output is None else None)
    if output is None:
        sys.stdout.write(text)
        return
    with _writing(output):
        output.write_text(text, encoding="utf-8")


@contextmanager
def _writing(output: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WorkError(f"cannot write {output}: {error.strerror or error}") from None


def _drawn(frame: pl.DataFrame, stream: Any) -> str:
    grid = Table(*(escape(name) for name in frame.columns))
    for row in frame.head(SHOWN_ROWS).iter_rows():
        grid.add_row(*("" if value is None else escape(str(value)) for value in row))
    console = _console(stream)
    with console.capture() as drawn:
        console.print(grid)
        if frame.height > SHOWN_ROWS:
            console.print(
                f"{SHOWN_ROWS} of {frame.height:,} rows; --format csv or json gives all of them", markup=False
            )
    return drawn.get()


def _console(stream: Any = None) -> Console:
    stream = sys.stdout if stream is None else stream
    return Console(file=stream, width=None if stream.isatty() else WIDTH, highlight=False)


@contextmanager
def progress() -> Iterator[Show]:
    """A bar per piece of work on stderr; where that is no terminal, a line when a piece begins and one when it ends.

    Pieces follow each other: one that begins ends the one before it."""
    console = Console(stderr=True)
    if not console.is_terminal:
        lines = _Lines()
        yield lines
        lines.end()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as bars:
        current: dict[str, TaskID] = {}

        def show_bar(what: str, share: float) -> None:
            if what not in current:
                end()
                current[what] = bars.add_task(escape(what), total=1.0)
            bars.update(current[what], completed=min(max(share, 0.0), 1.0))

        def end() -> None:
            for task in current.values():
                bars.update(task, completed=1.0)
            current.clear()

        yield show_bar
        end()


class _Lines:
    """Progress as lines of text."""

    def __init__(self) -> None:
        self._what = ""
        self._began = 0.0

    def __call__(self, what: str, share: float) -> None:
        if what != self._what:
            self.end()
            self._what, self._began = what, time.monotonic()
            print(f"{what} ...", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._what:
            print(f"{self._what}: {time.monotonic() - self._began:.1f} s", file=sys.stderr, flush=True)
        self._what = ""
