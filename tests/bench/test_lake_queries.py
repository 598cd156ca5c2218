"""A lake of 1,000,000 spans: how long the questions of a dashboard take, beside DuckDB on one plain Parquet file.

    pytest -m bench -s tests/bench/test_lake_queries.py

Prints a JSON object per question: seconds of work (CPU, all threads) and by the wall clock, best of three.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import duckdb
import lake_load
import pytest

from ingest.lake import Lake

pytestmark = pytest.mark.bench

SPANS = 1_000_000
COMMIT = 50_000
DAY = lake_load.DAY_NS
TRACE = lake_load.trace_id(SPANS // lake_load.TRACE // 2)
LIMIT_S = 1.0

QUESTIONS = {
    "by model": "select model_requested, count(*), sum(cost_usd), sum(input_tokens) from calls group by all",
    "by day": f"select start_ns // {DAY} as day, count(*), sum(cost_usd) from calls group by all",
    "by service": "select service, count(*), sum(cost_usd) from calls group by all",
    "by all three": f"""
        select service, model_requested, start_ns // {DAY} as day, sum(cost_usd) from calls group by all""",
    "p95 latency by hour": """
        select start_ns // 3600000000000 as hour, quantile_cont(end_ns - start_ns, 0.95) from calls group by all""",
    "calls of a trace, with texts": f"select * from calls where trace_id = '{TRACE}'",
    "spans of a trace": f"select * from spans where trace_id = '{TRACE}'",
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    home = tmp_path_factory.mktemp("million") / "home"
    with Lake.open(home, write=True) as writer:
        for rows in lake_load.commits(writer, SPANS, COMMIT):
            writer.write(rows)
    with Lake.open(home) as lake:
        yield lake


@pytest.fixture(scope="module")
def plain(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], int]]:
    """Asks one Parquet file with all that the views show; the number of rows."""
    folder = tmp_path_factory.mktemp("plain")
    with duckdb.connect() as connection:
        for view in ("calls", "spans"):
            path = folder / f"{view}.parquet"
            lake.sql(f"select * from {view} order by start_ns").write_parquet(path)
            connection.execute(f"create view {view} as select * from read_parquet('{path}')")
        yield lambda question: len(connection.execute(question).pl())


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_is_answered_within_a_second(lake: Lake, plain: Callable[[str], int], name: str) -> None:
    question = QUESTIONS[name]
    rows, work_s, wall_s = best(lambda: len(lake.sql(question)))
    plain_rows, plain_work_s, plain_wall_s = best(lambda: plain(question))
    print(
        json.dumps(
            {
                "what": name,
                "work_s": round(work_s, 3),
                "wall_s": round(wall_s, 3),
                "plain_work_s": round(plain_work_s, 3),
                "plain_wall_s": round(plain_wall_s, 3),
                "ratio": round(work_s / plain_work_s, 1),
            }
        )
    )
    assert rows == plain_rows > 0
    assert work_s < LIMIT_S


def best(action: Callable[[], int]) -> tuple[int, float, float]:
    """What it gives; least seconds of work and of the wall clock of three runs."""
    times = []
    for _ in range(3):
        began, worked = time.perf_counter(), time.process_time()
        found = action()
        times.append((time.process_time() - worked, time.perf_counter() - began))
    return found, min(work for work, _ in times), min(wall for _, wall in times)
