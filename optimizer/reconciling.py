"""Our costs beside an invoice: reads the file and the lake, and prints what differs and why."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from ingest.errors import UsageError
from ingest.home import replace_file

if TYPE_CHECKING:
    import polars as pl
    from rich.table import Table

    from ingest.invoices.records import Invoice, Terms
    from ingest.pricing import Prices
    from ingest.reconcile import Reconciliation

FORMATS = ("auto", "openai", "anthropic", "litellm", "csv")
SHOWN_ROWS = 200
KEPT = "reconciled.json"
"""The newest comparison, in the home."""


@dataclass(frozen=True)
class Request:
    """What is to be reconciled. `first` and `last` are days, both included; None: all of the file's."""

    file: Path
    form: str = "auto"
    first: date | None = None
    last: date | None = None
    tolerance: float = 0.01
    zone: str | None = None
    currency: str = "USD"
    columns: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    services: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reconciled:
    """What came out, with the invoice's own description."""

    invoice: Invoice
    found: Reconciliation
    tolerance: float

    @property
    def within(self) -> bool:
        return self.found.within

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON can hold it."""
        return {
            "within": self.within,
            "format": self.invoice.form,
            "from": str(self.invoice.first),
            "to": str(self.invoice.last),
            "time_zone": self.invoice.zone,
            "tolerance": self.tolerance,
            "totals": self.found.totals.to_dicts()[0],
            "models": self.found.models.to_dicts(),
            "classes": self.found.classes.to_dicts(),
            "reasons": self.found.reasons.to_dicts(),
            "notes": list(self.found.notes),
        }


def share(text: str) -> float:
    """A tolerance: "1%" or "0.01". Raises UsageError for what is neither."""
    plain = text.strip()
    try:
        value = float(plain.removesuffix("%")) / (100 if plain.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise UsageError(f"--tolerance {text} is not a share below 100 %", "Write 1% or 0.01.")
    return value


def reconcile(home: Path, prices: Prices, request: Request) -> Reconciled:
    """Lays the calls of a home beside a file. Raises UsageError, with how to map it, for a file that cannot be."""
    from ingest import class_costs
    from ingest.invoices import registry
    from ingest.lake import Lake
    from ingest.reconcile import Tolerance
    from ingest.reconcile import reconcile as beside

    invoice = registry.read(request.file, request.form, _terms(request)).between(request.first, request.last)
    since_ns, until_ns = _bounds(invoice)
    with Lake.open(home) as lake:
        calls = lake.query("calls_billable", since_ns=since_ns, until_ns=until_ns)
    if request.services:
        calls = calls.filter(calls["service"].is_in(list(request.services)))
    if invoice.splits_usd:
        calls = class_costs.with_parts(calls, prices)
    found = beside(calls, invoice, Tolerance(request.tolerance), _aliases(request.aliases))
    return Reconciled(invoice, found, request.tolerance)


def keep(home: Path, done: Reconciled, file: Path) -> None:
    """Leaves the comparison in the home for the dashboard, in place of the one before."""
    from optimizer import report

    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    replace_file(home / KEPT, report.to_json({"file": file.name, "made_at": made_at, **done.to_dict()}))


def show(done: Reconciled, as_json: bool) -> None:
    """Prints the comparison: models, token classes, reasons, then the total."""
    from optimizer import report

    if as_json:
        print(report.to_json(done.to_dict()))
        return
    found, invoice = done.found, done.invoice
    print(f"{invoice.form} invoice, {invoice.first} to {invoice.last} ({invoice.zone}), ours minus theirs")
    report.draw(_table(found.models, _MODELS if invoice.has_usd else _MODELS_IN_TOKENS))
    shown = found.classes if found.classes.height <= SHOWN_ROWS else found.classes.filter(~found.classes["within"])
    if shown.height:
        report.draw(_table(shown, _CLASSES))
    if hidden := found.classes.height - shown.height:
        print(f"Token classes within the tolerance are not shown: {hidden:,}; --json has them.")
    if found.reasons.height:
        report.draw(_table(found.reasons, _REASONS))
    for note in found.notes:
        print(f"Note: {note}.")
    print(_total(found.totals.to_dicts()[0], done))


def _terms(request: Request) -> Terms:
    from ingest.invoices import columns
    from ingest.invoices.records import Terms

    currency, rate = _currency(request.currency)
    return Terms(_zone(request.zone), currency, rate, columns.parse_map(request.columns))


def _zone(name: str | None) -> ZoneInfo | None:
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UsageError(
            f"--time-zone {name} is no time zone that this machine knows",
            "Names are those of the tz database, such as UTC, Europe/Berlin or America/Los_Angeles.",
        ) from None


def _currency(text: str) -> tuple[str, float]:
    found = re.fullmatch(r"([A-Za-z]{3})(?:=(\d+(?:\.\d+)?))?", text.strip())
    if found is None or (found[2] is not None and float(found[2]) == 0):
        raise UsageError(f"--currency {text} is not CODE=RATE", "Write USD, or the USD for one unit, as in EUR=1.08.")
    code = found[1].upper()
    if code != "USD" and found[2] is None:
        raise UsageError(f"--currency {code} lacks a rate", f"Write the USD for one {code}, as in {code}=1.08.")
    if code == "USD" and found[2] is not None and float(found[2]) != 1:
        raise UsageError(f"--currency {text}: one USD is one USD")
    return code, float(found[2] or 1)


def _aliases(pairs: Sequence[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        ours, mark, theirs = pair.partition("=")
        if not (mark and ours and theirs):
            raise UsageError(f"--alias {pair} is not OURS=THEIRS", "Write our model name, =, and the invoice's.")
        found[ours] = theirs
    return found


def _bounds(invoice: Invoice) -> tuple[int, int]:
    zone = ZoneInfo(invoice.zone)
    days = (invoice.first, invoice.last + timedelta(days=1))
    since, until = (int(datetime.combine(day, time(), zone).timestamp()) * 10**9 for day in days)
    return since, until


_MODELS = {
    "day": "day",
    "model": "model",
    "our_usd": "our USD",
    "their_usd": "their USD",
    "usd_difference": "difference",
    "usd_tolerance": "tolerance",
    "reported_usd": "emitted USD",
    "within": "",
}
_MODELS_IN_TOKENS = {
    "day": "day",
    "model": "model",
    "our_tokens": "our tokens",
    "their_tokens": "their tokens",
    "tokens_difference": "difference",
    "our_usd": "our USD",
    "reported_usd": "emitted USD",
    "within": "",
}
_CLASSES = {
    "day": "day",
    "model": "model",
    "token_class": "class",
    "our_tokens": "our tokens",
    "their_tokens": "their tokens",
    "tokens_difference": "difference",
    "our_usd": "our USD",
    "their_usd": "their USD",
    "usd_difference": "difference",
    "within": "",
}
_REASONS = {
    "day": "day",
    "model": "model",
    "reason": "why",
    "calls": "calls",
    "tokens": "tokens",
    "usd": "USD",
    "detail": "",
}


def _table(frame: pl.DataFrame, titles: Mapping[str, str]) -> Table:
    """The columns that say something, numbers flush right. A day or model that repeats the one above is left empty."""
    from rich.markup import escape
    from rich.table import Table

    named = {name: title for name, title in titles.items() if frame[name].is_not_null().any()}
    grid = Table()
    for name, title in named.items():
        grid.add_column(title, justify="right" if frame[name].dtype.is_numeric() else "left", overflow="fold")
    above: tuple[object, ...] = ()
    for record in frame.iter_rows(named=True):
        row = tuple(record[name] for name in named)
        cells = [_verdict(record) if name == "within" else _text(record[name], name) for name in named]
        if row[:1] == above[:1]:
            cells[:2] = ["", "" if row[1] == above[1] else cells[1]]
        above = row
        grid.add_row(*map(escape, cells))
    return grid


def _verdict(row: Mapping[str, Any]) -> str:
    """Empty where there was nothing to compare."""
    compared = row["tokens_difference"] is not None or row["usd_difference"] is not None
    return ("ok" if compared else "") if row["within"] else "OUTSIDE"


def _text(value: object, name: str) -> str:
    if value is None:
        return "all" if name == "day" else ""
    if isinstance(value, float):
        return f"{value:,.4f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _total(total: Mapping[str, Any], done: Reconciled) -> str:
    parts = []
    if total["usd_difference"] is not None:
        parts.append(f"ours {_usd(total['our_usd'])}, theirs {_usd(total['their_usd'])}")
        parts.append(f"difference {_usd(total['usd_difference'], '+')}")
    if total["tokens_difference"] is not None:
        ours, theirs = total["our_tokens"] or 0, total["their_tokens"] or 0
        parts.append(f"{ours:,} of {theirs:,} tokens")
    if total["reported_usd"] is not None:
        parts.append(
            f"emitted by {total['reported_calls']:,} of {total['calls']:,} calls {_usd(total['reported_usd'])}"
        )
    if total["unpriced_calls"]:
        parts.append(f"unpriced {total['unpriced_calls']:,} of {total['calls']:,} calls")
    verdict = "Within" if done.within else "OUTSIDE"
    return f"Total: {'; '.join(parts)}. {verdict} the tolerance of {100 * done.tolerance:g} %."


def _usd(value: float | None, sign: str = "") -> str:
    return "no cost" if value is None else f"{value:{sign},.4f} USD"
