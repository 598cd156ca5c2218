"""Dated price lists: what a list said of a model on a day.

    shipped     `data/history.jsonl.gz`, about one list a month
    installed   the price file of the litellm that is installed, where it differs from the newest shipped list
    added       lists that `retroute prices update` put into the home

An entry that a list names for the first time holds from the day of the list before, where it was not yet: models
appear between two lists. A changed price holds from the day of the list that shows it. A price that only a later list
states beside the same input and output price (a cache's, a batch's) was true before: lists learn late. A model that a
list drops keeps its last price.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import orjson

from ingest import providers
from ingest.prices import names
from ingest.prices.fields import price_fields, problem
from ingest.prices.rates import Entry

INSTALLED_FILE = "model_prices_and_context_window_backup.json"
_SHIPPED = Path(__file__).parent / "data" / "history.jsonl.gz"
_ALWAYS = "0000-00-00"
_SELF_HOSTED = frozenset({"vllm", "hosted_vllm", "ollama", "ollama_chat", "llamafile", "lm_studio", "tgi", "sglang"})


@dataclass(frozen=True, slots=True)
class Version:
    """What a list says of a model from a day on. `fields` None: the list dropped it."""

    valid_from: str
    listed: str
    date: str
    provider: str | None
    fields: Mapping[str, object] | None


@dataclass(frozen=True, slots=True)
class Change:
    """One line of a history: what a list changed. `fields` None: it dropped the model."""

    model: str
    provider: str | None
    listed: str
    date: str
    fields: Mapping[str, object] | None


@dataclass(frozen=True, slots=True)
class Found:
    """An entry for a call and the way to it; else why there is none."""

    entry: Entry | None
    path: str | None
    problem: str | None = None


@dataclass(frozen=True, eq=False)
class Book:
    """All lists. `dates` are their days, ascending; `changes` by model, the oldest first."""

    dates: Sequence[str]
    changes: Mapping[str, Sequence[Change]]
    providers: frozenset[str] = frozenset()
    newest: str | None = None
    """The name of the newest list."""
    _versions: dict[str, tuple[Version, ...]] = field(default_factory=dict)
    _entries: dict[tuple[str, int], tuple[Entry, Version]] = field(default_factory=dict)

    def versions(self, model: str) -> tuple[Version, ...]:
        """All that was ever listed under exactly this name, the oldest first."""
        if (known := self._versions.get(model)) is None:
            known = self._versions[model] = _versions(self.changes.get(model, ()), self.dates)
        return known

    def entry(self, model: str, day: str | None) -> tuple[Entry, Version] | None:
        """What holds for exactly this name on a day ("YYYY-MM-DD", None: the newest); None when nothing does."""
        versions = self.versions(model)
        for place in range(len(versions) - 1, -1, -1):
            version = versions[place]
            if version.fields is not None and (day is None or version.valid_from <= day):
                if (model, place) not in self._entries:
                    self._entries[model, place] = Entry(model, version.provider, version.fields), version
                return self._entries[model, place]
        return None

    def find(self, model: str, provider: str | None, day: str | None) -> Found:
        """The entry that prices a model of a provider on a day, by the most specific name that a list has."""
        owner = provider or self._prefix(model)
        later: str | None = None
        elsewhere: str | None = None
        for name in names.candidates(model, provider):
            if name not in self.changes:
                continue
            known = self.entry(name, day)
            if known is None:
                later = later or f"no price for {model} on {day}: {name} is first listed on {self._first(name)}"
                continue
            entry, version = known
            if not entry.by_token:
                continue
            if not self._sold_by(owner, entry.provider):
                elsewhere = elsewhere or f"no price for {model} at {owner}: the list has that of {entry.provider}"
                continue
            way = name if name == model else f"{model} > {name}"
            return Found(entry, f"{way}; {version.listed}, {version.date}")
        return Found(None, None, later or elsewhere or f"no price for {model}")

    def _first(self, name: str) -> str:
        return next((v.valid_from for v in self.versions(name) if v.fields is not None), "no day")

    def _prefix(self, model: str) -> str | None:
        head, slash, _ = model.partition("/")
        return head if slash and head in self.providers else None

    def _sold_by(self, owner: str | None, lister: str | None) -> bool:
        known = providers.canonical(owner) if owner else None
        if known is not None and known not in self.providers and known not in _SELF_HOSTED:
            return True
        return names.listed_for(owner, lister)


def _versions(changes: Sequence[Change], dates: Sequence[str]) -> tuple[Version, ...]:
    found: list[Version] = []
    for change in changes:
        since = change.date
        if change.fields is not None and not found:
            earlier = [date for date in dates if date < change.date]
            since = earlier[-1] if earlier else _ALWAYS
        found.append(Version(since, change.listed, change.date, change.provider, change.fields))
    for at in range(len(found) - 2, -1, -1):
        before, after = found[at], found[at + 1]
        if before.fields is not None and after.fields is not None and _same_base(before.fields, after.fields):
            filled = {**{k: v for k, v in after.fields.items() if k not in before.fields}, **before.fields}
            found[at] = Version(before.valid_from, before.listed, before.date, before.provider, filled)
    return tuple(found)


def _same_base(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    return all(one.get(key) == other.get(key) for key in ("input_cost_per_token", "output_cost_per_token"))


@dataclass(frozen=True)
class Loaded:
    """A price file's entries, and those that were refused: name and reason."""

    entries: Mapping[str, tuple[str | None, Mapping[str, object]]]
    refused: tuple[tuple[str, str], ...]


def read_list(document: object) -> Loaded:
    """The sound entries of a list in litellm's form. Raises ValueError when it is no table of models."""
    if not isinstance(document, dict):
        raise ValueError("a price file is a JSON object: model name -> prices")
    entries: dict[str, tuple[str | None, Mapping[str, object]]] = {}
    refused: list[tuple[str, str]] = []
    for name, entry in document.items():
        if name == "sample_spec":
            continue
        if why := problem(entry):
            refused.append((name, why))
        elif fields := price_fields(entry):
            provider = entry.get("litellm_provider")
            entries[name] = (provider if isinstance(provider, str) else None, fields)
    return Loaded(entries, tuple(refused))


def differences(book: Book, loaded: Loaded, listed: str, date: str, *, drop: bool = False) -> list[Change]:
    """What a list says otherwise than the newest of the book. `drop`: also what it no longer names."""
    found = []
    for name, (provider, fields) in loaded.entries.items():
        last = book.changes.get(name, ())
        if not last or last[-1].fields != fields or last[-1].provider != provider:
            found.append(Change(name, provider, listed, date, fields))
    if drop:
        for name, changes in book.changes.items():
            if changes[-1].fields is not None and name not in loaded.entries:
                found.append(Change(name, changes[-1].provider, listed, date, None))
    return found


def with_changes(book: Book, changes: Iterable[Change], dates: Iterable[str]) -> Book:
    """A book that knows more lists; a list may be older than others that are known."""
    merged: dict[str, Sequence[Change]] = dict(book.changes)
    sellers = set(book.providers)
    for change in changes:
        merged[change.model] = sorted((*merged.get(change.model, ()), change), key=lambda c: c.date)
        if change.provider:
            sellers.add(change.provider)
    return Book(sorted({*book.dates, *dates}), merged, frozenset(sellers), book.newest)


def read_history(text: bytes) -> tuple[list[str], list[str], list[Change]]:
    """The names and the days of the lists, and the changes, of a history file, in its order."""
    lists: list[tuple[str, str]] = []
    changes: list[Change] = []
    for line in text.splitlines():
        row = orjson.loads(line)
        if "list" in row:
            lists.append((row["list"], row["date"]))
        else:
            name, date = lists[row["l"]]
            changes.append(Change(row["m"], row["p"], name, date, row["f"]))
    return [name for name, _ in lists], [date for _, date in lists], changes


@cache
def shipped() -> Book:
    """The lists that come with retroute."""
    lists, dates, changes = read_history(gzip.decompress(_SHIPPED.read_bytes()))
    by_name: dict[str, list[Change]] = {}
    for change in changes:
        by_name.setdefault(change.model, []).append(change)
    sellers = frozenset(change.provider for change in changes if change.provider)
    return Book(dates, by_name, sellers, lists[-1])


@cache
def installed_document() -> Mapping[str, object]:
    """The price file of the installed litellm, read as data; empty when litellm is not installed."""
    spec = find_spec("litellm")
    for root in spec.submodule_search_locations or () if spec else ():
        file = Path(root) / INSTALLED_FILE
        if file.is_file():
            found: Mapping[str, object] = orjson.loads(file.read_bytes())
            return found
    return {}


@cache
def current() -> Book:
    """The shipped lists and the installed one. Its own day is unknown: it holds from the newest shipped list's on."""
    from importlib.metadata import version

    book = shipped()
    if find_spec("litellm") is None:
        return book
    name = f"litellm {version('litellm')}"
    if name == book.newest:
        return book
    document = installed_document()
    return with_changes(book, differences(book, read_list(document), name, book.dates[-1]), ())
