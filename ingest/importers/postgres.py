"""The table LiteLLM_SpendLogs of a LiteLLM proxy's Postgres: read-only, in order of time, a thousand rows at a time.

Needs psycopg (`pip install 'retroute[postgres]'`). The next import of the same database goes on after the last row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ingest.errors import UsageError, WorkError
from ingest.importers import litellm, tables
from ingest.importers.sources import Importer, Item, Sample, Source

if TYPE_CHECKING:
    import psycopg

ROWS_A_TIME = 1000
_TABLE = '"LiteLLM_SpendLogs"'
_AFTER = """
select * from {table}
where %(time)s::timestamp is null or ("startTime", request_id) > (%(time)s::timestamp, %(id)s)
order by "startTime", request_id
limit %(limit)s
"""


def _read(source: Source) -> Iterator[Item]:
    if find_spec("psycopg") is None:
        raise UsageError("reading from Postgres needs psycopg", "pip install 'retroute[postgres]'")
    import psycopg
    from psycopg.rows import dict_row

    shown = hidden(source.location)
    try:
        with psycopg.connect(source.location, row_factory=dict_row, options="-c timezone=UTC") as connection:
            connection.read_only = True
            yield from _rows(connection, source)
    except psycopg.errors.UndefinedTable:
        raise UsageError(f"{shown} has no table {_TABLE}", "Name the database that the LiteLLM proxy uses.") from None
    except psycopg.errors.UndefinedColumn as error:
        raise UsageError(f"{shown}: {_TABLE} is not LiteLLM's table: {error}".strip()) from None
    except psycopg.Error as error:
        raise WorkError(
            f"{shown} cannot be read: {str(error).strip()}",
            "What was read is kept; the same command goes on from there.",
        ) from None


def _rows(connection: psycopg.Connection[dict[str, Any]], source: Source) -> Iterator[Item]:
    last = {"time": source.state.get("time"), "id": source.state.get("id", "")}
    done = 0
    (left,) = connection.execute(
        f'select count(*) as n from {_TABLE} where %(time)s::timestamp is null or "startTime" >= %(time)s::timestamp',
        last,
    )
    while True:
        found = connection.execute(_AFTER.format(table=_TABLE), last | {"limit": ROWS_A_TIME}).fetchall()
        for record in found:
            done += 1
            last = {"time": record["startTime"].isoformat(), "id": record["request_id"]}
            row = tables.Row(done, record, None, min(1.0, done / max(1, left["n"])))
            item = litellm.item(row, source.service)
            problem = item.problem and f"request_id {record['request_id']}: {item.problem}"
            yield Item(None, item.spans, problem=problem, share=row.share, state=last)
        if len(found) < ROWS_A_TIME:
            return


def hidden(location: str) -> str:
    """An address without its password."""
    return re.sub(r"(://[^:/@]*):[^@]*@", r"\1:...@", location)


def _recognises(sample: Sample) -> bool:
    return sample.kind == "url" and sample.location.startswith(("postgres://", "postgresql://"))


IMPORTER = Importer(
    "postgres",
    "the spend-log table of a LiteLLM proxy, postgresql://USER@HOST/DATABASE",
    _recognises,
    _read,
    resumes=True,
)
