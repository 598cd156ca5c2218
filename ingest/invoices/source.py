"""A file's records, whatever it is written in. A JSON document is one record, a table's row is one."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from isal import igzip

from ingest.errors import UsageError
from ingest.inflate import BROKEN

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Source:
    """`records` with `places`, which say where each stands. `table`: rows under column names, not JSON documents."""

    path: Path
    records: tuple[Record, ...]
    places: tuple[str, ...]
    table: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """Names used in any record, in order of appearance."""
        return tuple(dict.fromkeys(name for record in self.records for name in record))


def load(path: Path) -> Source:
    """The records of a file. Raises UsageError when it cannot be read or holds none."""
    name = path.with_suffix("").name if path.suffix == ".gz" else path.name
    suffix = Path(name).suffix.lower()
    try:
        body = path.read_bytes()
        if body[:2] == b"\x1f\x8b":
            body = igzip.decompress(body)  # type: ignore[no-untyped-call]
    except (OSError, EOFError, BROKEN) as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not body.strip():
        raise UsageError(f"{path} is empty", "Export the invoice again.")
    if suffix == ".parquet" or body[:4] == b"PAR1":
        return _parquet(path, body)
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from None
    if text.lstrip()[0] in "{[":
        return _json(path, text)
    if suffix in (".json", ".jsonl", ".ndjson"):
        raise UsageError(f"{path} is not JSON: it begins with {text.lstrip()[:20]!r}")
    return _table(path, text)


def _json(path: Path, text: str) -> Source:
    try:
        whole = orjson.loads(text)
        found = [(f"{path}: record {n}", item) for n, item in enumerate(whole, 1)] if isinstance(whole, list) else None
        return _source(path, found or [(str(path), whole)])
    except orjson.JSONDecodeError as problem:
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        if len(lines) == 1:
            raise UsageError(f"{path} is not JSON: {problem}") from None
    found = []
    for number, line in lines:
        try:
            found.append((f"{path}:{number}", orjson.loads(line)))
        except orjson.JSONDecodeError as problem:
            raise UsageError(f"{path}:{number} is not JSON: {problem}") from None
    return _source(path, found)


def _source(path: Path, found: list[tuple[str, Any]]) -> Source:
    for place, item in found:
        if not isinstance(item, dict):
            raise UsageError(f"{place} is {type(item).__name__}, expected a JSON object")
    return Source(path, tuple(item for _, item in found), tuple(place for place, _ in found), table=False)


def _table(path: Path, text: str) -> Source:
    head = text.partition("\n")[0]
    mark = max(",\t;|", key=head.count)
    if mark not in head:
        raise UsageError(f"{path} is neither JSON nor a table: its first line is {head[:60]!r}")
    reader = csv.DictReader(io.StringIO(text), delimiter=mark)
    records, places = [], []
    try:
        for row in reader:
            if None in row:
                raise UsageError(f"{path}:{reader.line_num} has more cells than the {len(row) - 1} columns")
            if any(row.values()):
                records.append({(name or "").strip(): value for name, value in row.items()})
                places.append(f"{path}:{reader.line_num}")
    except csv.Error as problem:
        raise UsageError(f"{path}:{reader.line_num} is not a row of a table: {problem}") from None
    if not records:
        raise UsageError(f"{path} has column names but no rows", "Export a period in which there was use.")
    return Source(path, tuple(records), tuple(places), table=True)


def _parquet(path: Path, body: bytes) -> Source:
    import polars as pl

    try:
        records = pl.read_parquet(io.BytesIO(body)).to_dicts()
    except pl.exceptions.PolarsError as problem:
        raise UsageError(f"{path} is not Parquet: {problem}") from None
    if not records:
        raise UsageError(f"{path} has column names but no rows", "Export a period in which there was use.")
    return Source(path, tuple(records), tuple(f"{path}: row {n}" for n in range(1, len(records) + 1)), table=True)
