"""The lake's views: which copy of a span counts, and whose texts a call shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from ingest.lake import Lake

COPIES = [
    {"end_ns": 0, "output_tokens": 99, "batch": 9},
    {"end_ns": 20, "output_tokens": 5, "batch": 1},
    {"end_ns": 20, "output_tokens": 7, "batch": 1},
    {"end_ns": 20, "output_tokens": 7, "batch": 2, "scope": "counts"},
    {"end_ns": 10, "output_tokens": 50, "batch": 8},
]
"""Of one span; the one with the scope counts: ended last, says most, came last."""


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with Lake.open(tmp_path / "home", write=True) as lake:
        yield lake


def write(lake: Lake, table: str, *rows: dict[str, object]) -> None:
    lake.write({table: pa.Table.from_pylist(list(rows), schema=lake.schema(table))})


@pytest.mark.parametrize("first", range(len(COPIES)))
def test_one_copy_of_a_span_counts_for_all_who_ask(lake: Lake, first: int) -> None:
    common = {"trace_id": "t", "span_id": "s", "kind": "llm", "service": "shop", "start_ns": 5, "attributes": "{}"}
    copies = [{"scope": "other", **common, **copy} for copy in (*COPIES[first:], *COPIES[:first])]
    write(lake, "span_log", *({**copy, "line": line} for line, copy in enumerate(copies)))
    asked = {"services": ["shop"], "starts": [0], "ends": [100], "response_ids": [], "from_ns": 0, "to_ns": 100}
    assert lake.sql("select scope from spans")["scope"].to_list() == ["counts"]
    assert lake.query("trace_spans", trace_ids=["t"])["scope"].to_list() == ["counts"]
    assert lake.query("calls_within", **asked)["scope"].to_list() == ["counts"]


def test_a_call_shows_its_own_texts_or_those_it_is_told_to(lake: Lake) -> None:
    write(
        lake,
        "content_log",
        {"trace_id": "a", "span_id": "1", "input_text": "own", "output_text": "early", "batch": 1},
        {"trace_id": "a", "span_id": "1", "input_text": "own", "output_text": "late", "batch": 2},
        {"trace_id": "b", "span_id": "1", "input_text": "lent", "batch": 1},
        {"trace_id": "c", "span_id": "2", "input_text": "nobody's", "batch": 1},
    )
    write(
        lake,
        "settled_calls",
        {"trace_id": "a", "span_id": "1", "content_span_id": "1"},
        {"trace_id": "a", "span_id": "2", "content_span_id": "1", "content_trace_id": "b"},
        {"trace_id": "c", "span_id": "1"},
    )
    shown = lake.sql("select trace_id, span_id, input_text, output_text from calls order by all").rows()
    assert shown == [("a", "1", "own", "late"), ("a", "2", "lent", None), ("c", "1", None, None)]
    assert lake.sql("select count(*) from calls").item() == 3
