"""Parquet files for the lake to take over: Arrow writes them in a third of the time that DuckDB takes."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_TEXTS = frozenset(
    {"input_text", "output_text", "tools", "attributes", "resource", "events", "links", "unknown_keys", "body"}
)
"""Columns that nobody asks for by value: least and greatest of them would only swell the catalogue."""

_DAY = "day="


def data_folder(lake: Path) -> Path:
    """Where the files of a lake are, in a folder for each table."""
    return lake / "data" / "main"


def write_file(folder: Path, rows: pa.Table, schema: pa.Schema, day: date) -> Path:
    """A new file, not synced, with a day's rows of the table that has this folder and schema; columns that the rows
    lack are null. Nothing knows of it yet. Raises OSError."""
    of_day = folder / f"{_DAY}{day}"
    if not of_day.is_dir():
        of_day.mkdir(parents=True, exist_ok=True)
        sync([folder.parent, folder])
    file = of_day / f"{uuid.uuid4()}.parquet"
    columns = [_column(field, rows, day) for field in schema]
    told = [name for name in schema.names if name not in _TEXTS]
    whole = pa.Table.from_arrays(columns, schema=schema)
    pq.write_table(whole, file, compression="zstd", compression_level=3, write_statistics=told)
    return file


def day_of(file: Path) -> date:
    """The day whose rows are in a file."""
    return date.fromisoformat(file.parent.name.removeprefix(_DAY))


def registrable(folder: Path) -> bool:
    """Whether the lake can take over files in a folder. It reads their day from the path, and would read more from one
    with an equals sign in the home's."""
    return "=" not in str(folder)


def sync(paths: Iterable[Path | str]) -> None:
    """Files and folders are on the disk afterwards."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _column(field: pa.Field, rows: pa.Table, day: date) -> pa.Array | pa.ChunkedArray:
    if field.name == "day":
        return pa.repeat(pa.scalar(day, pa.date32()), rows.num_rows)
    if field.name not in rows.column_names:
        return pa.nulls(rows.num_rows, field.type)
    return rows.column(field.name).cast(field.type)
