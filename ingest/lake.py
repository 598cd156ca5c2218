"""The lake: DuckLake with a SQLite catalogue at `<home>/lake/catalog.sqlite`, Parquet files under `<home>/lake/data`.

The only module that imports duckdb. One process writes (it holds an flock on `lake/writer.lock`), any number read at
the same time. A write is one transaction: rows of several tables and the position of the WAL appear together or not at
all, and its files are synced to disk before its commit.
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeVar

import duckdb
import polars as pl
import pyarrow as pa

from ingest import pins, queries, rollups
from ingest.errors import HomeError, UsageError, WorkError
from ingest.home import open_home
from ingest.lake_files import data_folder, day_of, registrable, sync, write_file

PATIENCE_S = 5.0
"""How long a busy catalogue or another writer is waited for."""

MIGRATION_S = 120.0
"""How long a reader waits for a writer that makes the lake or brings it to this version."""

INLINED_ROWS = 100
"""Inserts of at most so many rows go into the catalogue; `compact` moves them to files. A collector that receives a few
spans a second would otherwise leave many files a second."""

T = TypeVar("T")

_TABLES = "Tables: calls, spans, scores, contents, events, traces."
_WITH_TEXTS = ("span_log", "content_log", "event_log")
"""Tables whose rows never go into the catalogue: 100 prompts of 200 kB took 1.8 s and 500 MB there, 0.1 s in a file."""
_PER_TRACE = ("settled_calls", "span_roles", "settled_traces")
_COUNTED = "calls_by_minute"
_CALL_KEY = ("trace_id", "span_id")
_DAILY = (*_WITH_TEXTS, *_PER_TRACE, _COUNTED, "score_log", "ingest_log")
"""Tables with a folder for each day."""
_WRITER: dict[str, str | bool | int | float | list[str]] = {"threads": "1", "memory_limit": "256MB"}
"""One thread: a commit runs beside the reading of the next part as it is, and each task of DuckDB's asks for Python's
lock, which costs more than a second thread brings."""
_OPTIONS = {"parquet_compression": "zstd", "target_file_size": "256MB"}
"""zstd at its default level halves the files and costs no more than snappy."""
_MOVED = ("ducklake_inlined_data", "Failed to read inlined data", "transaction is aborted")
"""Signs in a reader's error that it asked for rows that were in the catalogue and are in files by now, as after a
migration: the writer drops a table of theirs with no regard for readers. Who asks again gets them."""
_MAINTENANCE = re.compile(r"\bducklake_(merge|rewrite|cleanup|delete|expire|flush|add|set|commit)\w*", re.IGNORECASE)
_EXPLAIN = re.compile(r"\s*explain\s+(?:analyze\s+)?(?P<inner>.*)", re.IGNORECASE | re.DOTALL)


class Lake:
    """An open lake; a context manager. Use `Lake.open`."""

    def __init__(
        self,
        folder: Path,
        connection: duckdb.DuckDBPyConnection,
        lock: int | None,
        clock: Callable[[], int],
        again: Callable[[], duckdb.DuckDBPyConnection] | None = None,
    ) -> None:
        self._clock = clock
        self._again = again
        self._folder = folder
        self._connection = connection
        self._lock = lock
        self._turn = threading.Lock()
        self._schemas: dict[str, pa.Schema] = {}
        self._joined = -1
        """What `_last_joined` said after the last query."""

    @classmethod
    def open(
        cls,
        home: Path,
        *,
        write: bool = False,
        snapshot: int | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> Self:
        """Opens the lake of a home: to read, works while the collector writes; to write, makes it if it is missing.

        `snapshot` is what a reader sees instead of the newest state. Raises HomeError when there is no lake to read,
        when a newer version made it, or when another process writes for more than `PATIENCE_S` seconds. A reader waits
        for a writer that is still making the lake. `clock` gives a writer the day, in nanoseconds UTC.
        """
        folder = home / "lake"
        if write:
            open_home(home, create=True)
            (folder / "data").mkdir(parents=True, exist_ok=True)
            return cls._open_to_write(folder, clock)
        open_home(home, create=False)
        if not (folder / "catalog.sqlite").exists() and not _is_written(folder):
            raise HomeError(
                f"there is no lake in {home}",
                "Start `retroute collect`, import files, or run `retroute demo` with the same --home first.",
            )
        return cls._open_to_read(home, folder, snapshot)

    @classmethod
    def _open_to_write(cls, folder: Path, clock: Callable[[], int]) -> Self:
        lock = _take_lock(folder / "writer.lock")
        try:
            connection = _connect(_WRITER)
            connection.execute(f"set temp_directory = {_quoted(folder / 'spill')}")
            _patiently(lambda: _attach(connection, folder, f"DATA_INLINING_ROW_LIMIT {INLINED_ROWS}"))
            _migrate(connection)
        except duckdb.Error as problem:
            os.close(lock)
            raise HomeError(f"the lake in {folder} cannot be opened: {_said(problem)}") from problem
        except BaseException:
            os.close(lock)
            raise
        return cls(folder, connection, lock, clock)

    @classmethod
    def _open_to_read(cls, home: Path, folder: Path, snapshot: int | None) -> Self:
        def connect() -> duckdb.DuckDBPyConnection:
            return cls._connect_to_read(home, folder, snapshot)

        return cls(folder, connect(), None, time.time_ns, connect)

    @classmethod
    def _connect_to_read(cls, home: Path, folder: Path, snapshot: int | None) -> duckdb.DuckDBPyConnection:
        options = "READ_ONLY" if snapshot is None else f"READ_ONLY, SNAPSHOT_VERSION {int(snapshot)}"
        started = time.monotonic()
        while True:
            connection = _connect({})
            try:
                _attach(connection, folder, options)
                schema = _schema(connection)
                if snapshot is not None or schema == queries.migrations()[-1].number:
                    break
                said = f"its schema is {schema}"
            except duckdb.Error as problem:  # busy, or its writer is just making it
                said = _said(problem)
            except BaseException:
                connection.close()
                raise
            connection.close()
            if time.monotonic() - started > (MIGRATION_S if _is_written(folder) else PATIENCE_S):
                raise HomeError(
                    f"the lake in {folder} cannot be read: {said}",
                    "If an older version made it, `retroute collect` brings it to this one.",
                )
            time.sleep(0.05)
        for setting in (
            f"set allowed_directories = [{_quoted(home.resolve())}]",
            "set enable_external_access = false",
            "set python_enable_replacements = false",
            "set lock_configuration = true",
        ):
            connection.execute(setting)
        return connection

    def close(self) -> None:
        """Ends all use; a writer's lock is free afterwards."""
        self._connection.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def query(self, name: str, /, **parameters: object) -> pl.DataFrame:
        """The rows of a named query; a parameter left out is NULL. Raises TypeError for one that it does not have."""
        query = queries.query(name)
        if surplus := parameters.keys() - set(query.parameters):
            raise TypeError(f"query {name} has no parameter {', '.join(sorted(surplus))}; it has {query.parameters}")
        values = {key: parameters.get(key) for key in query.parameters}
        try:
            return self._read(lambda: self._connection.execute(query.text, values).pl())
        except duckdb.Error as problem:
            raise WorkError(f"the lake in {self._folder} cannot be read: {_said(problem)}") from problem

    def sql(self, text: str) -> pl.DataFrame:
        """The rows of one SELECT in free SQL. Raises UsageError with DuckDB's message; nothing can be written."""
        try:
            _refuse_writing(self._connection, text)
            return self._read(lambda: self._connection.execute(text).pl())
        except duckdb.Error as problem:
            raise UsageError(_said(problem), _TABLES) from problem

    def snapshot(self) -> int:
        """The number of the newest state of the lake. Raises WorkError where it cannot be read."""
        try:
            found = self._run(
                lambda: self._connection.execute("select id from ducklake_current_snapshot('lake') as t(id)").fetchone()
            )
        except duckdb.Error as problem:
            raise WorkError(f"the lake in {self._folder} cannot be read: {_said(problem)}") from problem
        assert found is not None
        return int(found[0])

    def schema(self, table: str) -> pa.Schema:
        """Column names and types of a table, as `write` wants its rows."""
        if (known := self._schemas.get(table)) is None:
            known = self._run(lambda: self._connection.table(table).limit(0).to_arrow_table().schema)
            self._schemas[table] = known
        return known

    def pin(self, name: str) -> int:
        """Keeps what this lake sees now readable under a name until `unpin`: the snapshot, for `open`."""
        snapshot = self.snapshot()
        pins.pin(self._folder, name, snapshot)
        return snapshot

    def unpin(self, name: str) -> None:
        """Lets go of what `pin` kept."""
        pins.unpin(self._folder, name)

    def write(
        self,
        rows: Mapping[str, pa.Table],
        *,
        files: Mapping[str, Path] = {},
        replace_traces: Sequence[str] = (),
        costs: pa.Table | None = None,
    ) -> None:
        """One transaction: forgets what was settled of `replace_traces`, then appends to each table its rows, by name,
        and a file that `lake_files` wrote. `costs` (trace_id, span_id, cost_usd, unpriced, price, and the cost's parts)
        take the place of those of settled calls. The rollups follow: see `ingest.rollups`.

        The rows are noted as of the files' day, or else the clock's, which retention goes by. Raises WorkError when the
        lake cannot be written; nothing is changed then, unless the very end of the transaction failed: who goes on must
        ask the lake how far it got.
        """
        started = time.time() - 1.0
        days = {day_of(file) for file in files.values()}
        day = max(days, default=datetime.fromtimestamp(self._clock() / 1e9, UTC).date())
        if "settled_calls" in rows:
            rows = self._with_rollups(rows, day)
        apart = {table: found for table, found in rows.items() if self._has_file(table, found)}
        taken = [*files.items(), *self._files(apart, day).items()]
        self._sync({path for _, file in taken for path in (file, file.parent)})

        def transaction() -> None:
            with self._transaction():
                if replace_traces:
                    gone = {"ids": list(replace_traces)}
                    self._count(self._calls("trace_id in (select unnest($ids::varchar[]))", gone), -1)
                    for table in _PER_TRACE:
                        self._connection.execute(
                            f"delete from {table} where trace_id in (select unnest($ids::varchar[]))", gone
                        )
                if costs is not None and costs.num_rows:
                    self._reprice(costs)
                for table, file in taken:
                    self._connection.execute(
                        f"call ducklake_add_data_files('lake', '{table}', $file, hive_partitioning => true)",
                        {"file": str(file)},
                    ).fetchall()
                for table, found in rows.items():
                    if found.num_rows and table not in apart:
                        self._connection.register("incoming", found)
                        has = "day" in found.column_names
                        stamped = f"* replace (date '{day}' as day)" if has else f"*, date '{day}' as day"
                        self._connection.execute(f"insert into {table} by name select {stamped} from incoming")
                        self._connection.unregister("incoming")
                changed = (*_PER_TRACE, _COUNTED) if replace_traces or costs is not None else ()
                self._sync_files([*(rows.keys() - apart.keys()), *changed], started)

        self._work(transaction)

    def _with_rollups(self, rows: Mapping[str, pa.Table], day: date) -> dict[str, pa.Table]:
        """The rows with what their settled calls come to, by minute and by trace."""
        calls, traces = rows["settled_calls"], rows.get("settled_traces")
        known, given = self.schema("settled_calls"), set(calls.column_names)
        columns = {
            name: calls[name] if name in given else pa.nulls(calls.num_rows, known.field(name).type)
            for name in rollups.CALL_COLUMNS
        }
        days = pa.repeat(pa.scalar(day, pa.date32()), calls.num_rows)
        counted = pl.DataFrame(pa.table({**columns, "day": days}))
        found = {**rows, _COUNTED: rollups.minutes(counted).to_arrow()}
        if traces is not None:
            found["settled_traces"] = rollups.with_facts(pl.DataFrame(traces), counted).to_arrow()
        return found

    def _calls(self, test: str, values: Mapping[str, object] = {}) -> pl.DataFrame:
        """What rollups ask of some settled calls."""
        columns = ", ".join(rollups.CALL_COLUMNS)
        return self._connection.execute(f"select {columns} from settled_calls where {test}", dict(values)).pl()

    def _count(self, calls: pl.DataFrame, sign: Literal[1, -1]) -> None:
        if calls.height:
            self._connection.register("counted", rollups.minutes(calls, sign).to_arrow())
            self._connection.execute(f"insert into {_COUNTED} by name select * from counted")
            self._connection.unregister("counted")

    def _reprice(self, costs: pa.Table) -> None:
        """The part of a transaction that gives settled calls other costs."""
        mine = "(trace_id, span_id) in (select (trace_id, span_id) from incoming)"
        changes = ", ".join(f"{name} = i.{name}" for name in costs.column_names if name not in _CALL_KEY)
        same = " and ".join(f"settled_calls.{name} = i.{name}" for name in _CALL_KEY)
        self._connection.register("incoming", costs)
        self._count(self._calls(mine), -1)
        self._connection.execute(f"update settled_calls set {changes} from incoming i where {same}")
        self._count(self._calls(mine), 1)
        facts = rollups.facts(self._calls("trace_id in (select trace_id from incoming)"))
        self._connection.register("facts", facts.select("trace_id", "cost_usd", "unpriced").to_arrow())
        self._connection.execute(
            "update settled_traces set cost_usd = f.cost_usd, unpriced = f.unpriced "
            "from facts f where f.trace_id = settled_traces.trace_id"
        )
        for name in ("incoming", "facts"):
            self._connection.unregister(name)

    def _has_file(self, table: str, rows: pa.Table) -> bool:
        """Whether rows go into a file of ours."""
        many = rows.num_rows > (0 if table in _WITH_TEXTS else INLINED_ROWS)
        return many and table in _DAILY and registrable(self._folder)

    def _files(self, rows: Mapping[str, pa.Table], day: date) -> dict[str, Path]:
        """Files of the rows by table. They become part of the lake with a transaction, or are swept away later."""
        with self._writing():
            return {
                table: write_file(data_folder(self._folder) / table, found, self.schema(table), day)
                for table, found in rows.items()
            }

    def _sync(self, paths: Iterable[Path]) -> None:
        with self._writing():
            sync(paths)

    def compact(self, below_bytes: int | None = None) -> None:
        """Moves rows kept in the catalogue to files, and joins files, or only those below a size. Readers notice
        nothing. Without a size, files of which much was deleted are written anew, too."""
        started = time.time() - 1.0
        self._work(lambda: self._connection.execute("call ducklake_flush_inlined_data('lake')"))
        if below_bytes is None:
            self._work(lambda: self._connection.execute("call ducklake_rewrite_data_files('lake')"))
        limit = "" if below_bytes is None else f", max_file_size => {below_bytes}"
        self._work(lambda: self._connection.execute(f"call ducklake_merge_adjacent_files('lake'{limit})"))
        self._sync_files([path.name for path in data_folder(self._folder).glob("*")], started)

    def join_minutes(self, hours_until: date) -> None:
        """Makes one row of those of `calls_by_minute` that have one key, and hours of the minutes of the days before
        one. Sums stay."""
        unmerged = f"select distinct day from {_COUNTED} where not merged or (day < $until and grain_ns < $hour)"
        parameters = {"until": hours_until, "hour": rollups.HOUR_NS}
        days = self._work(lambda: self._connection.execute(unmerged, parameters).fetchall())
        not_summed = {*rollups.DIMENSIONS, "merged", "day"}
        measures = [name for name in self.schema(_COUNTED).names if name not in not_summed]
        started = time.time() - 1.0
        for (day,) in days:
            values = {"day": day, "hours": day is not None and day < hours_until}

            def transaction(values: dict[str, object] = values) -> None:
                with self._transaction():
                    self._connection.execute(
                        f"create or replace temp table joined as {rollups.joined(measures)}", values
                    )
                    self._connection.execute(
                        f"delete from {_COUNTED} where day is not distinct from $day", {"day": values["day"]}
                    )
                    self._connection.execute(f"insert into {_COUNTED} by name select * from joined")
                    self._connection.execute("drop table joined")
                    self._sync_files([_COUNTED], started)

            self._work(transaction)

    def expire(self, keep: int, keep_s: float, at_most: int) -> int:
        """Forgets old snapshots: the number. Those stay that are pinned, the newest `keep`, and of the newest `at_most`
        those that are younger than `keep_s` seconds by the clock."""
        kept = pins.pinned(self._folder)
        found = self._work(
            lambda: self._connection.execute(
                "select snapshot_id, snapshot_time < now() - to_seconds($keep_s) "
                "from ducklake_snapshots('lake') order by snapshot_id desc",
                {"keep_s": keep_s},
            ).fetchall()
        )
        ids = [id for place, (id, old) in enumerate(found) if place >= keep and (old or place >= at_most)]
        if ids := sorted(set(ids) - kept):
            self._call(f"ducklake_expire_snapshots('lake', versions => {ids})")
        return len(ids)

    def clean(self) -> int:
        """Deletes the files that no snapshot needs any more: the number. A reader may be in the middle of one that was
        joined with others just now, so let some minutes pass. (DuckLake's own grace fails: it compares times as text.)
        """
        return self._call("ducklake_cleanup_old_files('lake', cleanup_all => true)")

    def sweep(self, grace_s: float) -> int:
        """Deletes files that a killed writer left unregistered, once they are `grace_s` seconds old: the number."""
        return self._call(f"ducklake_delete_orphaned_files('lake', older_than => now() - to_seconds({grace_s}))")

    def drop_days(self, days: Mapping[str, Sequence[date | None]]) -> None:
        """One transaction: of each table, all that came on some days (None: before days were noted). Whole files go."""

        def transaction() -> None:
            with self._transaction():
                for table, gone in days.items():
                    listed = ", ".join(f"date '{day}'" for day in gone if day is not None)
                    tests = [f"day in ({listed})"] * bool(listed) + ["day is null"] * (None in gone)
                    if tests:
                        self._connection.execute(f"delete from {table} where {' or '.join(tests)}")

        self._work(transaction)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Commits at the end of the block; undoes all of it when the block or the commit fails."""
        self._connection.execute("begin")
        try:
            yield
            self._connection.execute("commit")
        except BaseException:
            with suppress(duckdb.Error):
                self._connection.execute("rollback")
            raise

    def files(self) -> int:
        """How many data files the newest state of the table with the most has."""
        tables = self._work(
            lambda: self._connection.execute(
                "select table_name, file_count from ducklake_table_info('lake')"
            ).fetchall()
        )
        return max(int(count) for _, count in tables)

    def _call(self, function: str) -> int:
        """Rows that a table function gives. All are fetched: what it does is committed with the last."""
        found = self._work(lambda: self._connection.execute(f"select count(*) from {function}").fetchall())
        return int(found[0][0])

    def _work(self, action: Callable[[], T]) -> T:
        with self._writing():
            return self._run(action)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """What fails inside of this is told as WorkError."""
        try:
            yield
        except (duckdb.Error, OSError) as problem:
            raise WorkError(f"the lake in {self._folder} cannot be written: {_said(problem)}") from problem

    def _read(self, action: Callable[[], T]) -> T:
        """What a query gives, asked again when a writer joined files meanwhile. DuckDB reads the catalogue in pieces: a
        query in the midst of that may find neither the old files nor the new one, and miss rows without an error."""
        if self._again is None:
            return self._run(action)
        while True:
            before = self._joined
            found = self._run(action)
            self._joined = joined = self._last_joined()
            if joined == before:  # not since the query before either
                return found

    def _last_joined(self) -> int:
        """The newest snapshot that only keeps rows in other files than the one before."""
        found = self._run(
            lambda: self._connection.execute(
                "select coalesce(max(snapshot_id), 0) from __ducklake_metadata_lake.ducklake_snapshot_changes "
                "where regexp_matches(changes_made, 'merge|flush|rewrite|compact')"
            ).fetchone()
        )
        assert found is not None
        return int(found[0])

    def _run(self, action: Callable[[], T]) -> T:
        with self._turn:
            until = time.monotonic() + PATIENCE_S
            while True:
                try:
                    return _patiently(action)
                except duckdb.Error as problem:
                    moved = any(sign in str(problem) for sign in _MOVED)
                    if self._again is None or not moved or time.monotonic() > until:
                        raise
                    self._connection.close()
                    self._connection = self._again()

    def _sync_files(self, tables: Sequence[str], since_s: float) -> None:
        for table in set(tables):
            root = data_folder(self._folder) / table
            if not root.is_dir():
                continue
            touched = False
            for folder in (*(entry.path for entry in os.scandir(root) if entry.is_dir()), str(root)):
                if not touched and Path(folder).stat().st_mtime < since_s:
                    continue
                fresh = [e.path for e in os.scandir(folder) if e.is_file() and e.stat().st_mtime >= since_s]
                touched = touched or bool(fresh)
                sync([*fresh, folder])


def _connect(config: dict[str, str | bool | int | float | list[str]]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:", config=config)
    connection.execute("set enable_progress_bar = false")  # it would be drawn into what a command prints
    for name in ("sqlite_scanner", "ducklake"):
        if file := _extension_file(name):
            connection.execute(f"load {_quoted(file)}")
        else:
            connection.execute(f"install {name}")
            connection.execute(f"load {name}")
    return connection


def _extension_file(name: str) -> Path | None:
    """The extension's file as its wheel installed it, for exactly this version of duckdb; None when there is none."""
    spec = find_spec(f"duckdb_extension_{name}")
    for root in spec.submodule_search_locations or () if spec else ():
        for file in Path(root).rglob(f"{name}.duckdb_extension"):
            if f"v{duckdb.__version__}" in file.parts:
                return file
    return None


def _attach(connection: duckdb.DuckDBPyConnection, folder: Path, options: str) -> None:
    target = _quoted(f"ducklake:sqlite:{folder / 'catalog.sqlite'}")
    connection.execute(
        f"attach {target} as lake (DATA_PATH {_quoted(folder / 'data')}, OVERRIDE_DATA_PATH true, "
        f"META_JOURNAL_MODE 'WAL', META_BUSY_TIMEOUT {int(PATIENCE_S * 1000)}, {options})"
    )
    connection.execute("use lake")


def _migrate(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("create table if not exists schema_migrations (number bigint, name varchar)")
    connection.execute("begin")
    for step in queries.migrations()[_schema(connection) :]:
        for statement in connection.extract_statements(step.text):
            connection.execute(statement)
        connection.execute("insert into schema_migrations values (?, ?)", [step.number, step.name])
    connection.execute("commit")
    present = connection.execute("select option_name, scope_entry from ducklake_options('lake')").fetchall()
    for option, value in _OPTIONS.items():
        if (option, None) not in present:
            connection.execute(f"call ducklake_set_option('lake', '{option}', '{value}')")
    for table in _WITH_TEXTS:
        option = "data_inlining_row_limit"
        if (option, f"main.{table}") not in present:
            connection.execute(f"call ducklake_set_option('lake', '{option}', 0, table_name => '{table}')")


def _schema(connection: duckdb.DuckDBPyConnection) -> int:
    """The number of the last migration that was applied. Raises HomeError for one that is not known here."""
    found = connection.execute("select coalesce(max(number), 0) from schema_migrations").fetchone()
    number, known = int(found[0]) if found else 0, queries.migrations()[-1].number
    if number > known:
        raise HomeError(
            f"the lake was made by a newer version: its schema is {number}, this version knows {known}",
            "Upgrade retroute, or use another --home.",
        )
    return number


def _refuse_writing(connection: duckdb.DuckDBPyConnection, text: str) -> None:
    statements = connection.extract_statements(text)
    if len(statements) != 1:
        raise UsageError(f"expected one SQL statement, got {len(statements)}", "Send one statement at a time.")
    kind = statements[0].type
    if kind == duckdb.StatementType.EXPLAIN and (explained := _EXPLAIN.fullmatch(text)):
        kind = connection.extract_statements(explained["inner"])[0].type
    if kind != duckdb.StatementType.SELECT or _MAINTENANCE.search(text):
        raise UsageError(
            "only SELECT statements are allowed: the lake is open to read", "Tables: calls, spans, scores."
        )


def _is_written(folder: Path) -> bool:
    """Whether a writer is at work, perhaps on the lake's very first tables."""
    try:
        lock = os.open(folder / "writer.lock", os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _take_lock(path: Path) -> int:
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                os.close(lock)
                raise HomeError(
                    f"another process writes to {path.parent}",
                    "One collector serves one home: stop the other, or use another --home.",
                ) from None
            time.sleep(0.05)
        else:
            return lock


def _patiently(action: Callable[[], T]) -> T:
    """Runs `action` again while another process keeps the catalogue busy, for at most `PATIENCE_S` seconds."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return action()
        except duckdb.Error as problem:
            busy = "database is locked" in str(problem) or "database is busy" in str(problem)
            if not busy or time.monotonic() > until:
                raise
            time.sleep(0.02)


def _said(problem: Exception) -> str:
    return str(problem).strip()


def _quoted(value: object) -> str:
    return "'" + str(value).replace("'", "''") + "'"
