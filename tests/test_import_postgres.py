"""LiteLLM's table in a real Postgres: read once, in order, and from where the last import stopped."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ingest.dialects.registry import read
from ingest.errors import UsageError, WorkError
from ingest.importers import postgres, registry
from ingest.importers.sources import Source

TABLE = """
create table "LiteLLM_SpendLogs" (
  request_id text primary key, call_type text not null, api_key text not null default '',
  spend double precision not null default 0.0, total_tokens integer not null default 0,
  prompt_tokens integer not null default 0, completion_tokens integer not null default 0,
  "startTime" timestamp(3) not null, "endTime" timestamp(3) not null, "completionStartTime" timestamp(3),
  model text not null default '', model_group text default '', custom_llm_provider text default '',
  "user" text default '',
  metadata jsonb default '{}', cache_hit text default '', messages jsonb default '{}', response jsonb default '{}',
  session_id text, status text, end_user text, proxy_server_request jsonb default '{}'
)
"""
ROW = """
insert into "LiteLLM_SpendLogs" (request_id, call_type, spend, prompt_tokens, completion_tokens, "startTime", "endTime",
  model, model_group, custom_llm_provider, session_id, status, messages)
select 'r' || n, 'acompletion', 0.001, n, 1, timestamp '2026-11-30 08:00:00' + (n / 2) * interval '1 second',
  timestamp '2026-11-30 08:00:30', 'gpt-4o', 'cheap', 'openai', 's', 'success', '[{"role": "user", "content": "hi"}]'
from generate_series(%s::int, %s::int) n
"""


def binaries() -> Path | None:
    """The folder with the server's programs: on the path, or where Debian has them."""
    found = shutil.which("initdb") and shutil.which("pg_ctl") and shutil.which("postgres")
    if found:
        return Path(found).parent
    return next((path.parent for path in sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))), None)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server of its own on a socket; Postgres does not run as root, so it runs as nobody there."""
    pytest.importorskip("psycopg")
    folder = binaries()
    if folder is None:
        pytest.skip("no Postgres server is installed")
    data = tmp_path_factory.mktemp("pg")
    as_user: dict[str, object] = {}
    if os.geteuid() == 0:
        as_user = {"user": "nobody", "group": "nogroup", "extra_groups": []}
        for place in (data, *data.parents):
            if place.is_relative_to("/tmp") and place != Path("/tmp"):
                place.chmod(0o711)
        shutil.chown(data, "nobody")

    def run(*command: object) -> None:
        subprocess.run(
            [str(part) for part in command], check=True, capture_output=True, cwd=data, timeout=120, **as_user
        )

    run(folder / "initdb", "-D", data / "db", "-U", "reader", "--auth=trust", "--no-sync")
    log, options = data / "log", f"-k {data} -c listen_addresses='' -c fsync=off"
    run(folder / "pg_ctl", "-D", data / "db", "-l", log, "-o", options, "-w", "start")
    try:
        yield f"postgresql://reader@/postgres?host={data}"
    finally:
        run(folder / "pg_ctl", "-D", data / "db", "-m", "immediate", "stop")


@pytest.fixture
def table(server, monkeypatch):
    import psycopg

    monkeypatch.setattr(postgres, "ROWS_A_TIME", 4)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute('drop table if exists "LiteLLM_SpendLogs"')
        connection.execute(TABLE)
        connection.execute(ROW, (1, 10))
        yield connection


def test_rows_are_read_once_in_order_and_the_next_import_goes_on_after_the_last(server, table):
    ((importer, source),) = registry.find([server])
    items = list(importer.read(source))
    names = [span.attributes["gen_ai.response.id"] for item in items for span in item.spans]
    assert sorted(names) == sorted(f"r{n}" for n in range(1, 11))
    assert items[-1].share == 1.0
    facts = read(items[0].spans[0]).facts
    assert (facts.kind, facts.model_requested, facts.session_id, facts.input_tokens) == ("llm", "cheap", "s", 1)
    assert items[0].spans[0].start_ns == 1796025600 * 10**9
    table.execute(ROW, (11, 13))
    more = list(importer.read(Source(server, None, state=items[-1].state)))
    assert [span.attributes["gen_ai.response.id"] for item in more for span in item.spans] == ["r11", "r12", "r13"]


def test_a_database_without_the_table_is_named(server, table):
    table.execute('drop table "LiteLLM_SpendLogs"')
    with pytest.raises(UsageError, match="has no table"):
        list(postgres.IMPORTER.read(Source(server, None)))


def test_an_unreachable_server_is_an_error_without_the_password():
    pytest.importorskip("psycopg")
    with pytest.raises(WorkError) as gone:
        list(postgres.IMPORTER.read(Source("postgresql://u:hunter2@127.0.0.1:1/db", None)))
    assert "hunter2" not in gone.value.message
    assert "goes on from there" in gone.value.hint


def test_without_psycopg_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(postgres, "find_spec", lambda name: None)
    with pytest.raises(UsageError) as missing:
        list(postgres.IMPORTER.read(Source("postgresql://h/db", None)))
    assert missing.value.hint == "pip install 'retroute[postgres]'"
