"""Files of records: JSON lines, JSON, CSV, Parquet -> mappings, each with its place.

A JSON file holds one record, a list of records, or an object with such a list under one of `_LISTS`. In CSV an empty
cell is a value that is missing, and a cell that holds JSON stays text.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from ingest.importers.opened import opened, suffix
from ingest.importers.sources import Item, Source
from ingest.inflate import BROKEN
from ingest.spans import Span

SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".parquet")
_LISTS = ("data", "items", "spans", "observations", "traces", "scores", "requests", "logs", "batch")
_OPEN_END = re.compile(rb",\s*\]\s*\Z")
"""A list that was written record by record, each with a comma after it, as Helicone's tool does."""
_ROWS_A_TIME = 500  # of a Parquet file, whose rows may hold long texts

Record = Mapping[str, object]
Become = tuple[Sequence[Span], Sequence[Record]]
"""The spans and the scores that one record holds."""


@dataclass(frozen=True, slots=True)
class Row:
    """A record, or why it is none. `number` counts lines, else records, from 1; `share` is how much has been read."""

    number: int
    record: Record | None
    problem: str | None = None
    share: float = 0.0


def rows(path: Path) -> Iterator[Row]:
    """The records of a file. What cannot be read is a row with a problem; the rest is given."""
    number = 0
    try:
        for row in _READERS[suffix(path)](path):
            number = row.number
            yield row
    except (OSError, EOFError, BROKEN) as error:
        yield Row(number + 1, None, f"cannot be read to its end: {error}; what came before is imported", 1.0)


def items(source: Source, become: Callable[[Record], Become]) -> Iterator[Item]:
    """What each record of a source's file becomes. A record that `become` refuses with a ValueError is a problem at its
    place; the others go on."""
    assert source.path is not None
    for row in rows(source.path):
        if row.record is None:
            yield Item(row.number, problem=row.problem, share=row.share)
            continue
        try:
            spans, scores = become(row.record)
        except ValueError as error:
            yield Item(row.number, problem=f"{error}; the rest is imported", share=row.share)
        else:
            yield Item(row.number, spans, scores, share=row.share)


def first(path: Path) -> Record:
    """The first record of a file that is one; empty when there is none near its beginning."""
    for row in itertools.islice(rows(path), 20):
        if row.record:
            return row.record
    return {}


def _lines(path: Path) -> Iterator[Row]:
    with opened(path) as (file, share):
        for number, line in enumerate(file, 1):
            if line.strip():
                yield _parsed(number, line, share())


def _parsed(number: int, text: bytes, share: float) -> Row:
    try:
        found = orjson.loads(text.removeprefix(b"\xef\xbb\xbf") if number == 1 else text)
    except orjson.JSONDecodeError as error:
        return Row(number, None, f"not JSON: {error}", share)
    if not isinstance(found, dict):
        return Row(number, None, "not a JSON object", share)
    return Row(number, found, None, share)


def _json(path: Path) -> Iterator[Row]:
    with opened(path) as (file, _):
        body = file.read().removeprefix(b"\xef\xbb\xbf")
    if left_open := _OPEN_END.search(body, max(0, len(body) - 64)):
        body = body[: left_open.start()] + b"]"
    try:
        whole = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if body.strip().count(b"\n"):  # named .json, but one record a line
            parsed = [_parsed(n, line, 1.0) for n, line in enumerate(body.splitlines(), 1) if line.strip()]
            if any(row.record for row in parsed):
                yield from parsed
                return
        yield Row(1, None, f"not JSON: {error}", 1.0)
        return
    if isinstance(whole, dict):
        inside = next((whole[key] for key in _LISTS if isinstance(whole.get(key), list)), None)
        listed = [whole] if inside is None or _is_record(whole) else inside
    else:
        listed = whole if isinstance(whole, list) else [whole]
    for number, item in enumerate(listed, 1):
        problem = None if isinstance(item, dict) else "not a JSON object"
        yield Row(number, None if problem else item, problem, number / len(listed))


def _is_record(whole: Record) -> bool:
    """Whether an object is itself a record that holds others, as a Langfuse trace with its observations."""
    return ("id" in whole or isinstance(whole.get("trace"), dict)) and ("observations" in whole or "scores" in whole)


def _csv(path: Path) -> Iterator[Row]:
    csv.field_size_limit(min(sys.maxsize, 1 << 30))
    with opened(path) as (file, share):
        text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")
        reader = csv.DictReader(text, strict=True)
        try:
            for record in reader:
                if None in record:
                    yield Row(reader.line_num, None, "more cells than the header has columns", share())
                else:
                    filled = {key: value for key, value in record.items() if value not in (None, "")}
                    yield Row(reader.line_num, filled, None, share())
        except csv.Error as error:
            yield Row(reader.line_num, None, f"not CSV: {error}; the rest of the file is not read", 1.0)


def _parquet(path: Path) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        total = max(1, file.metadata.num_rows)
        number = 0
        for batch in file.iter_batches(batch_size=_ROWS_A_TIME):
            for record in batch.to_pylist(maps_as_pydicts="lossy"):
                number += 1
                yield Row(number, {k: v for k, v in record.items() if v is not None}, None, number / total)
    except pa.ArrowException as error:
        yield Row(1, None, f"not Parquet: {error}", 1.0)


_READERS = {".jsonl": _lines, ".ndjson": _lines, ".json": _json, ".csv": _csv, ".parquet": _parquet}
