"""The converter's processes do their work without loading pandas, installed or not."""

from __future__ import annotations

import subprocess
import sys

WORK = """
import sys
from ingest.without_pandas import without_pandas
without_pandas()
import duckdb, pyarrow as pa
connection = duckdb.connect()
assert connection.execute("select $name", {"name": "Ann"}).fetchall() == [("Ann",)]
assert connection.execute("select unnest($ids::varchar[]) as id", {"ids": ["a"]}).pl()["id"].to_list() == ["a"]
assert pa.array(["a", None], type=pa.string()).null_count == 1
print("pandas" in sys.modules)
"""


def test_neither_duckdb_nor_arrow_needs_it() -> None:
    found = subprocess.run([sys.executable, "-c", WORK], check=True, timeout=120, capture_output=True, text=True)
    assert found.stdout == "False\n"
