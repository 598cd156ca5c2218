"""Traces that wait: what is held of them in memory, when they are quiet, and that settling from memory or from the lake
is one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import corpus
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest import waiting
from ingest.dialects.facts import Kind, LlmFacts
from ingest.known_ids import KnownIds, keys_of
from ingest.lake import Lake
from ingest.logged_calls import LoggedEvent
from ingest.trace_tree import TraceSpan
from ingest.waiting import Arrival, RecordedApart, Waiting

S = 10**9
CASES = corpus.cases(corpus.GOLDEN) + (corpus.cases(Path(corpus.FOLDER)) if corpus.FOLDER else [])
SETTLED = ("settled_calls", "span_roles", "settled_traces", "content_log")


def nothing_known() -> KnownIds:
    return KnownIds(np.array([], dtype=np.uint64))


def span(number: int, *, kind: Kind = "llm", scope: str = "a", end_ns: int = 2, digest: str | None = None) -> TraceSpan:
    facts = LlmFacts(kind=kind)
    return TraceSpan(f"{number:016x}", None, "chat", "shop", 1, end_ns, None, facts, input_digest=digest, scope=scope)


def arrival(*numbers: int, at_ns: int = S) -> Arrival:
    return Arrival(at_ns, at_ns, [span(number) for number in numbers])


def held(found: Waiting, trace_id: str) -> list[str] | None:
    whole = found.whole(trace_id)
    return None if whole is None else [span.span_id[-1] for span in whole.spans]


def test_settling_from_memory_and_from_the_lake_give_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, lake = tmp_path / "memory", tmp_path / "lake"
    corpus.ingest_cases(memory, CASES)
    monkeypatch.setattr(waiting, "HELD_SPANS", 0)
    corpus.ingest_cases(lake, CASES)
    for table in SETTLED:
        columns = "* exclude (batch, day, settled_ns)" if table == "settled_traces" else "* exclude (day)"
        columns = "* exclude (batch, day)" if table == "content_log" else columns
        with Lake.open(memory) as one, Lake.open(lake) as other:
            text = f"select {columns} from {table} order by all"
            assert one.sql(text).equals(other.sql(text)), table


def test_a_new_trace_is_held_and_one_that_the_lake_has_is_not() -> None:
    known = KnownIds(keys_of(["old"]))
    found = Waiting([("unsettled", S)], known, 0.0)
    found.arrived({"new": arrival(1), "old": arrival(1), "unsettled": arrival(2)}, 1.0)
    found.arrived({"new": arrival(2)}, 1.0)
    assert held(found, "new") == ["1", "2"]
    assert held(found, "old") is None
    assert held(found, "unsettled") is None


def test_a_settled_trace_is_the_lakes_from_then_on() -> None:
    found = Waiting([], nothing_known(), 0.0)
    found.arrived({"t": arrival(1)}, 0.0)
    found.settled(["t"])
    found.arrived({"t": arrival(2)}, 0.0)
    assert held(found, "t") is None


def test_of_a_span_that_came_twice_the_lake_says_which_copy_counts() -> None:
    found = Waiting([], nothing_known(), 0.0)
    found.arrived({"t": arrival(1, 2)}, 0.0)
    found.arrived({"t": arrival(1)}, 0.0)
    assert held(found, "t") is None


def test_memory_is_bounded_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "HELD_SPANS", 3)
    found = Waiting([], nothing_known(), 0.0)
    event = LoggedEvent("e", None, "gen_ai.choice", 1, "shop", None, {})
    found.arrived({"a": Arrival(1, 1, [span(1)], [event]), "b": arrival(1)}, 0.0)
    found.arrived({"b": arrival(2), "c": arrival(1)}, 0.0)  # one too many: all of b goes
    assert [held(found, name) for name in "abc"] == [["1"], None, ["1"]]
    found.settled(["a"])
    found.arrived({"d": arrival(1, 2)}, 0.0)
    assert held(found, "d") == ["1", "2"]


def test_a_trace_is_quiet_by_the_clock_of_receipts_or_by_the_converters_own() -> None:
    found = Waiting([], nothing_known(), 0.0)
    found.arrived({"t": arrival(1, at_ns=10 * S)}, 100.0)
    assert found.quiet(12 * S - 1, 101.0, 2.0, drained=True, everything=False) == []
    assert found.quiet(12 * S, 101.0, 2.0, drained=True, everything=False) == ["t"]
    assert found.quiet(0, 102.0, 2.0, drained=False, everything=False) == []
    assert found.quiet(0, 102.0, 2.0, drained=True, everything=False) == ["t"]
    assert found.quiet(0, 0.0, 2.0, drained=True, everything=True) == ["t"]


def test_a_trace_that_took_long_rests_ten_times_as_long() -> None:
    found = Waiting([], nothing_known(), 0.0)
    found.took("giant", 3.0)
    found.arrived({"giant": arrival(1), "small": arrival(1)}, 100.0)
    assert found.quiet(99 * S, 102.0, 2.0, drained=True, everything=False) == ["small"]
    assert found.quiet(99 * S, 131.9, 2.0, drained=True, everything=False) == ["small"]
    assert found.quiet(99 * S, 132.0, 2.0, drained=True, everything=False) == ["giant", "small"]
    assert found.quiet(99 * S, 102.0, 2.0, drained=True, everything=True) == ["giant", "small"]
    found.took("giant", 0.01)
    assert found.quiet(99 * S, 102.0, 2.0, drained=True, everything=False) == ["giant", "small"]


def apart(*scopes: tuple[str, str | None, bool], echoed: Sequence[str] = ()) -> RecordedApart:
    return RecordedApart(scopes, nothing_known(), echoed)


def arrived(*spans: TraceSpan) -> dict[str, Arrival]:
    return {"t": Arrival(S, S, list(spans))}


def test_calls_are_recorded_apart_where_there_are_several_instrumentations_or_moments() -> None:
    found = apart(("crm", "a", False), ("crm", "b", False), ("mail", "a", True))
    assert not found.doubtful([span(1)])
    found.note(arrived(span(1, scope="a"), span(2, kind="tool", scope="b"), span(3, end_ns=1)))
    assert not found.doubtful([span(1)])
    found.note(arrived(span(4, scope="b")))
    assert found.doubtful([span(1)])
    assert not found.doubtful([span(2, kind="tool")])
    streamed = apart()
    streamed.note(arrived(span(1, end_ns=1, digest="d")))
    assert streamed.doubtful([span(2)])


def answered(number: int, response: str) -> TraceSpan:
    return replace(span(number), facts=LlmFacts(kind="llm", response_id=response))


def test_a_response_that_came_before_may_be_recorded_elsewhere() -> None:
    found = apart(echoed=["stored"])
    found.note({"t": Arrival(S, S, [answered(1, "a"), answered(2, "a"), answered(3, "b")])})
    assert not found.doubtful([answered(1, "a"), answered(3, "b"), span(4)])  # one trace tells of both
    assert found.doubtful([answered(5, "stored")])
    found.note({"u": Arrival(S, S, [answered(1, "b")]), "v": Arrival(S, S, [answered(1, "c")])})
    assert found.doubtful([answered(3, "b")])
    found.note({"w": Arrival(S, S, [answered(1, "d")]), "x": Arrival(S, S, [answered(1, "d")])})
    assert found.doubtful([answered(1, "d")])
    assert not found.doubtful([answered(1, "c")])


@given(st.lists(st.lists(st.text(max_size=3), max_size=8), max_size=8), st.lists(st.text(max_size=3), max_size=8))
def test_each_trace_is_unseen_once(asked: list[list[str]], stored: list[str]) -> None:
    known = KnownIds(keys_of(stored))
    seen = set(stored)
    for trace_ids in asked:
        assert known.unseen(trace_ids) == list(dict.fromkeys(t for t in trace_ids if t not in seen))
        seen.update(trace_ids)


def test_keys_stay_known_when_they_are_sorted_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingest.known_ids._MOST_LOOSE", 10)
    known, names = nothing_known(), [f"t{n}" for n in range(100)]
    assert [known.unseen([name]) for name in names] == [[name] for name in names]
    assert known.unseen(names) == []


def test_the_lake_and_python_make_the_same_keys(tmp_path: Path) -> None:
    names = [hashlib.sha256(bytes([n])).hexdigest()[:32] for n in range(20)]
    with Lake.open(tmp_path / "home", write=True) as lake:
        listed = ", ".join(f"('{name}')" for name in names)
        found = lake.sql(f"select md5_number_upper(t) as key from (values {listed}) as names(t)")
    assert found["key"].to_list() == keys_of(names).tolist()
