"""The converter: exactly once, deduplicated, settled when quiet and again when more arrives."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import rollup_law
from otlp_traces import SECOND, START, agent, chat, log, logs_body, span, span_id, tool, trace_id, traces_body

from ingest import converter, portions, settler, upkeep, wal
from ingest.converter import Converter
from ingest.lake import Lake
from ingest.options import ConverterOptions
from ingest.pricing import Price
from ingest.spans import Event, Scope, Span
from ingest.trace_tree import TraceSpan

OPTIONS = ConverterOptions(quiet_s=0.0, commit_s=0.0, prices=(Price("gpt-4o-mini", 1.0, 2.0),))
GOLDEN = Path(__file__).parent / "golden"
PROMPT = '[{"role":"user","content":"Hi"}]'
ANSWER = '[{"role":"assistant","content":"Hello"}]'


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("empty") / "home"
    Lake.open(home, write=True).close()
    return home


_LAKES: dict[Path, Lake] = {}


@pytest.fixture
def home(empty: Path, tmp_path: Path) -> Iterator[Path]:
    yield Path(shutil.copytree(empty, tmp_path / "home"))
    while _LAKES:
        _LAKES.popitem()[1].close()


def reader(home: Path) -> Lake:
    """One lake a home, open while converters come and go: opening costs more than what most tests do."""
    if home not in _LAKES:
        _LAKES[home] = Lake.open(home, write=True)
    return _LAKES[home]


def append(home: Path, *records: wal.Record) -> None:
    log = wal.Wal(home / "wal")
    log.write(records)
    log.close()


def traces(*spans: Span) -> wal.Record:
    return wal.Record("traces", "json", time.time_ns(), traces_body(spans))


def logs(*records: dict[str, object]) -> wal.Record:
    return wal.Record("logs", "json", time.time_ns(), logs_body(records))


def scores(*sent: dict[str, object], received_ns: int = START) -> wal.Record:
    return wal.Record("scores", "json", received_ns, json.dumps(sent).encode())


def drain(home: Path, *records: wal.Record, options: ConverterOptions = OPTIONS) -> None:
    """Appends, and converts and settles everything, as a process of its own would."""
    if records:
        append(home, *records)
    Converter(reader(home), home / "wal", options).run(lambda: True)


def rows(home: Path, text: str) -> list[tuple[object, ...]]:
    return reader(home).sql(text).rows()


def counts(home: Path) -> dict[str, int]:
    return reader(home).query("counts").row(0, named=True)


def test_a_trace_becomes_priced_calls_with_their_texts(home: Path) -> None:
    texts = {"gen_ai.input.messages": PROMPT, "gen_ai.output.messages": ANSWER}
    drain(
        home,
        traces(
            span(1, agent(session__id="s", gen_ai__usage__input_tokens=100)),
            span(2, {**chat(), **texts}, parent=1),
            span(3, tool(), parent=1),
        ),
    )
    calls = reader(home).query("calls", service="shop")
    assert calls["kind"].to_list() == ["agent", "llm", "tool"]
    call = calls.row(1, named=True)
    assert call["cost_usd"] == pytest.approx(140e-6)
    assert (call["input_text"], call["output_text"]) == (PROMPT, ANSWER)
    assert (call["session_id"], call["agent"], call["parent_call_id"]) == ("s", "planner", span_id(1))
    assert (call["start_ns"], call["end_ns"]) == (START + 2 * SECOND, START + 3 * SECOND)
    assert calls.row(0, named=True)["input_tokens"] is None
    assert counts(home) == {"spans": 3, "calls": 3, "scores": 0, "traces": 1, "unsettled_traces": 0}
    assert rows(home, "select role, call_id from spans order by span_id") == [
        ("roll-up", span_id(1)),
        ("own", span_id(2)),
        ("own", span_id(3)),
    ]


def test_a_span_sent_again_is_one_row_in_the_same_batch_and_after_a_restart(home: Path) -> None:
    record = traces(span(1, chat()))
    drain(home, record, record)
    drain(home, record)
    assert counts(home)["spans"] == 1
    assert rows(home, "select count(*), sum(input_tokens) from calls") == [(1, 100)]


def test_an_ended_copy_wins_over_one_in_progress_then_the_later_one(home: Path) -> None:
    ended = span(1, chat(input_tokens=100))
    pending = replace(ended, end_ns=0, attributes=chat(input_tokens=50))
    drain(home, traces(ended), traces(pending))
    assert rows(home, "select input_tokens from spans") == [(100,)]
    drain(home, traces(replace(ended, attributes=chat(input_tokens=120))))
    assert rows(home, "select input_tokens from spans") == rows(home, "select input_tokens from calls") == [(120,)]


def test_a_late_span_settles_its_trace_again(home: Path) -> None:
    drain(home, traces(span(2, chat(), parent=1), span(3, chat(input_tokens=7), parent=1)))
    assert rows(home, "select session_id from calls") == [(None,), (None,)]
    drain(home, traces(span(1, agent(session__id="s"))))
    assert rows(home, "select kind, session_id from calls order by start_ns") == [
        ("agent", "s"),
        ("llm", "s"),
        ("llm", "s"),
    ]
    assert counts(home)["unsettled_traces"] == 0


def test_the_same_spans_in_any_order_and_batches_give_the_same_calls(home: Path, tmp_path: Path) -> None:
    spans = [
        span(1, agent(session__id="s")),
        span(2, chat(gen_ai__input__messages=PROMPT), parent=1),
        span(3, chat(), parent=2),
        span(4, tool(), parent=1),
    ]
    other = Path(shutil.copytree(home, tmp_path / "other"))
    drain(home, traces(*spans))
    for one in reversed(spans):
        drain(other, traces(one))
    query = "select * from calls order by span_id"
    assert rows(home, query) == rows(other, query)
    assert len(rows(home, query)) == 3


def test_a_trace_waits_until_it_is_quiet(home: Path) -> None:
    append(home, wal.Record("traces", "json", START, traces_body([span(1, chat())])))
    clock = [START, START + 2 * SECOND - 1, START + 2 * SECOND, START + 3 * SECOND]
    waiting: list[int] = []
    with Lake.open(home, write=True) as lake:
        worker = Converter(
            lake, home / "wal", replace(OPTIONS, quiet_s=2.0), lambda: clock[len(waiting) - 1], lambda: 0.0
        )

        def stop() -> bool:
            waiting.append(lake.query("counts").row(0, named=True)["unsettled_traces"])
            return len(waiting) == 4

        worker.run(stop)
    assert waiting == [0, 1, 1, 0]


def test_much_that_waits_is_not_left_until_the_next_commit_is_due(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(converter, "PORTION_BYTES", 4)
    monkeypatch.setattr(portions, "PORTION_BYTES", 4)
    asked = itertools.count()

    def stop() -> bool:
        number = next(asked)
        if number == 1:  # in the pause after the first, empty round
            append(home, traces(span(1, chat())))
        assert number < 250, "the converter still waits for its next commit"
        return bool(counts(home)["spans"])

    Converter(reader(home), home / "wal", replace(OPTIONS, commit_s=3600.0)).run(stop)
    assert counts(home)["calls"] == 1


def test_stopping_settles_what_waits(home: Path) -> None:
    drain(home, traces(span(1, chat())), options=replace(OPTIONS, quiet_s=3600.0))
    assert counts(home)["unsettled_traces"] == 0


def test_traces_left_unsettled_are_settled_by_the_next_converter(home: Path) -> None:
    append(home, traces(span(1, chat())))
    rounds = iter(range(2))

    def killed_in_the_second_round() -> bool:
        if next(rounds):
            raise RuntimeError("killed")
        return False

    with pytest.raises(RuntimeError, match="killed"):
        Converter(reader(home), home / "wal", replace(OPTIONS, quiet_s=3600.0)).run(killed_in_the_second_round)
    assert counts(home) == {"spans": 1, "calls": 0, "scores": 0, "traces": 1, "unsettled_traces": 1}
    drain(home)
    assert counts(home) == {"spans": 1, "calls": 1, "scores": 0, "traces": 1, "unsettled_traces": 0}


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("gateway_first", [True, False])
def test_a_gateway_that_records_the_call_in_a_trace_of_its_own_adds_none(
    home: Path, together: bool, gateway_first: bool
) -> None:
    """Two services, two traces, one response: one call, with its cost once, whichever arrives first."""
    told = chat(gen_ai__response__id="r1")
    asked = span(2, told, parent=1, trace=1, start_ns=START, end_ns=START + SECOND)
    app = [span(1, agent(), trace=1), replace(asked, scope=Scope("framework"))]
    inside = {"trace": 2, "service": "gateway", "start_ns": START + SECOND // 4, "end_ns": START + SECOND // 2}
    gateway = [replace(span(3, told, parent=9, **inside), scope=Scope("gateway"))]
    sent = [gateway, app] if gateway_first else [app, gateway]
    if together:
        drain(home, *(traces(*spans) for spans in sent))
    else:
        for spans in sent:
            drain(home, traces(*spans))
    assert rows(home, "select count(*), count(cost_usd) from calls where kind = 'llm'") == [(1, 1)]
    assert counts(home)["unsettled_traces"] == 0


def test_a_trace_that_cannot_be_settled_keeps_no_other_waiting(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle = settler.settle

    def fail_for_one(spans: Iterable[TraceSpan], *more: object) -> object:
        found = list(spans)
        if found[0].trace_id == trace_id(1):
            raise RuntimeError("a fault of ours")
        return settle(found, *more)

    with monkeypatch.context() as patched:
        patched.setattr(settler, "settle", fail_for_one)
        drain(home, traces(span(1, chat(), trace=1)), traces(span(2, chat(), trace=2)))
    assert counts(home) == {"spans": 2, "calls": 1, "scores": 0, "traces": 2, "unsettled_traces": 1}
    drain(home)
    assert counts(home) == {"spans": 2, "calls": 2, "scores": 0, "traces": 2, "unsettled_traces": 0}


def test_texts_in_log_events_join_their_call_before_or_after_it(home: Path) -> None:
    def told(trace: int) -> wal.Record:
        return logs(
            log("gen_ai.user.message", {}, body={"content": "Hi"}, trace=trace, span=1, time_ns=START),
            log("gen_ai.choice", {}, body={"message": {"content": "Hello"}}, trace=trace, span=1, time_ns=START + 1),
            log("unrelated", {}, body="noise", trace=trace, span=1),
        )

    drain(home, told(1))
    drain(home, traces(span(1, chat(), trace=1), span(1, chat(), trace=2)))
    drain(home, told(2), told(2))
    assert rows(home, "select input_text, output_text from calls") == [(PROMPT, ANSWER)] * 2
    assert rows(home, "select count(*) from events") == [(4,)]


def test_one_full_account_in_a_log_event_is_read(home: Path) -> None:
    account = {
        "gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": "Hi"}]}],
        "gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "text", "content": "Hello"}]}],
        "gen_ai.tool.definitions": [{"type": "function", "name": "search"}],
    }
    event = log("gen_ai.client.inference.operation.details", account, trace=1, span=1)
    drain(home, traces(span(1, chat())), logs(event))
    assert rows(home, "select input_text, output_text, tools_offered from calls") == [(PROMPT, ANSWER, '["search"]')]


def evaluation(value: object = 0.5, **more: object) -> dict[str, object]:
    named = {key.replace("__", "."): said for key, said in more.items()}
    return {"gen_ai.evaluation.name": "quality", "gen_ai.evaluation.score.value": value, **named}


def test_evaluation_events_become_scores_from_logs_and_from_spans(home: Path) -> None:
    event = Event("gen_ai.evaluation.result", START + 5, evaluation(3.0, gen_ai__evaluation__score__label="good"))
    judged = log("gen_ai.evaluation.result", evaluation(), trace=1, span=1, time_ns=START + 4)
    drain(home, traces(span(1, chat(), events=[event])), logs(judged))
    found = reader(home).query("scores", service="shop")
    assert found.select("name", "value", "value01", "label", "time_ns").rows() == [
        ("quality", 0.5, 0.5, None, START + 4),
        ("quality", 3.0, None, "good", START + 5),
    ]
    assert set(found["trace_id"]) == {trace_id(1)}
    assert found["source"].to_list() == [None, None]


def test_a_score_for_a_response_finds_its_call_if_there_is_only_one(home: Path) -> None:
    def feedback(response: str) -> dict[str, object]:
        return log("gen_ai.evaluation.result", evaluation(gen_ai__response__id=response))

    drain(home, logs(feedback("r1"), feedback("r2"), feedback("never seen")))
    response = [chat(gen_ai__response__id=name) for name in ("r1", "r2", "r2")]
    drain(home, traces(*(span(n, attributes, trace=n) for n, attributes in enumerate(response, 1))))
    found = rows(home, "select response_id, trace_id, span_id from scores order by response_id")
    assert found == [("never seen", None, None), ("r1", trace_id(1), span_id(1)), ("r2", None, None)]


def test_a_score_sent_again_is_one_row_and_a_changed_one_a_second(home: Path) -> None:
    sent = {"name": "thumbs", "value": 1.0, "trace_id": trace_id(1), "source": "user", "time_ns": START}
    drain(home, scores(sent), scores(sent))
    drain(home, scores(sent))
    assert rows(home, "select value, source from scores") == [(1.0, "user")]
    drain(home, scores({**sent, "value": 0.0, "time_ns": START + 1}))
    assert rows(home, "select value from scores order by time_ns") == [(1.0,), (0.0,)]


def test_a_score_with_an_id_keeps_its_latest_version(home: Path) -> None:
    sent = {"score_id": "mine", "name": "thumbs", "value": 1.0, "trace_id": trace_id(1)}
    drain(home, scores(sent), scores({**sent, "value": 0.25}))
    assert rows(home, "select score_id, value, value01 from scores") == [("mine", 0.25, 0.25)]


def test_what_cannot_be_read_is_counted_and_the_rest_stored(home: Path) -> None:
    broken = wal.Record("traces", "json", START, b'{"resourceSpans": 7')
    nameless = logs(log("gen_ai.evaluation.result", {"gen_ai.evaluation.score.value": 1.0}, trace=1))
    drain(home, broken, scores({"name": "x"}), nameless, traces(span(1, chat())))
    minutes = reader(home).query("health_batches")
    assert minutes.select(pl.col("requests", "spans", "rejected").sum()).row(0) == (4, 1, 3)
    assert rows(home, "select count(*) from ingest_log where problem is not null") != [(0,)]


@pytest.mark.parametrize("copies", [1, 120])
def test_odd_texts_and_numbers_do_not_stop_it(home: Path, copies: int) -> None:
    odd = "it's\x00 \\ \" 😀 \ufffd"
    attributes = {
        **chat(odd, gen_ai__conversation__id=odd, user__id="", gen_ai__response__id=odd, gen_ai__tool__definitions=odd),
        odd: odd,
        "gen_ai.input.messages": odd,
        "gen_ai.usage.output_tokens": 2**62,
        "gen_ai.cost.total_cost": "1e999",
        "policy.propensity": "half",
        "policy.candidates": "{}",
    }
    body = traces_body(span(n, attributes, name=odd, service=odd, status="error") for n in range(1, copies + 1))
    late = body.replace(str(START + SECOND).encode(), str(2**64 - 1).encode())
    surrogate = traces_body([span(1, {"x": "SPLIT"}, trace=2)]).replace(b"SPLIT", b"\\ud83d cut")
    judged = log("gen_ai.evaluation.result", evaluation(gen_ai__evaluation__explanation=odd), trace=1, span=1)
    drain(home, *(wal.Record("traces", "json", START, sent) for sent in (body, late, surrogate)), logs(judged))
    assert counts(home)["unsettled_traces"] == 0
    assert rows(home, "select distinct session_id, model_requested, service from calls") == [(odd, odd, odd)]
    assert rows(home, "select explanation from scores") == [(odd,)]


def test_health_names_what_is_missing(home: Path) -> None:
    drain(
        home,
        traces(
            span(1, chat(session__id="s"), trace=1),
            span(1, chat(model="unheard-of"), trace=2, status="error"),
            span(1, {"http.route": "/", "acme.secret": 1}, trace=3),
        ),
        scores({"name": "q", "value": 1, "trace_id": trace_id(1)}),
    )
    health = reader(home).query("health_by_service").row(0, named=True)
    assert health == {
        "service": "shop",
        "spans": 3,
        "calls": 2,
        "llm_calls": 2,
        "unpriced": 1,
        "scored_traces": 1,
        "traces": 3,
        "errors": 1,
        "no_session": 1,
    }
    assert reader(home).query("unpriced").rows() == [("shop", "unheard-of", "no price for unheard-of", 1, 120, 0)]
    assert reader(home).query("unknown_attributes").rows() == [("acme.secret", 1)]
    assert reader(home).query("services").rows() == [("shop", 2, START + SECOND, START + SECOND)]


def test_windows_cut_calls_and_scores_by_the_start_of_what_they_are_about(home: Path) -> None:
    late = {"name": "q", "value": 1, "trace_id": trace_id(1), "time_ns": START + 900 * SECOND}
    drain(home, traces(span(1, chat(), trace=1), span(50, chat(), trace=2)), scores(late))
    window = {"service": None, "since_ns": START, "until_ns": START + 10 * SECOND}
    assert reader(home).query("calls", **window)["trace_id"].to_list() == [trace_id(1)]
    assert reader(home).query("scores", **window)["trace_id"].to_list() == [trace_id(1)]
    assert reader(home).query("scores", since_ns=START + 10 * SECOND).is_empty()


def test_a_proxied_call_of_litellm_is_one_row(home: Path) -> None:
    body = (GOLDEN / "litellm_proxy.traces.pb").read_bytes()
    drain(home, wal.Record("traces", "protobuf", START, body))
    call = reader(home).query("calls").row(0, named=True)
    assert reader(home).query("counts").row(0, named=True)["calls"] == 1
    assert (call["kind"], call["model_returned"], call["input_tokens"], call["output_tokens"]) == (
        "llm",
        "gpt-4o",
        18,
        16,
    )
    assert (call["session_id"], call["user_id"], call["status"]) == ("px-sess", "px-user", "ok")
    assert "capital of France" in call["input_text"]
    assert call["cost_usd"] == pytest.approx(call["reported_cost_usd"])


def test_consumed_segments_of_the_wal_are_released(home: Path) -> None:
    log = wal.Wal(home / "wal", segment_bytes=1)
    for number in range(5):
        log.write([traces(span(1, chat(), trace=number + 1))])
    log.close()
    drain(home)
    assert len(wal.segments(home / "wal")) == 1
    assert wal.backlog_bytes(home / "wal") == 0


def test_compaction_in_the_middle_changes_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "ROUND_S", 0.0)
    for number in range(1, 4):
        drain(home, traces(*(span(i, chat(), trace=number) for i in range(1, 61))))
    assert counts(home) == {"spans": 180, "calls": 180, "scores": 0, "traces": 3, "unsettled_traces": 0}


def convert(home: str) -> None:
    converter.run(Path(home), replace(OPTIONS, commit_s=0.01), lambda: False)


def test_killed_converters_store_every_span_once(home: Path) -> None:
    """Killed at arbitrary moments while requests keep coming, some of them twice."""
    requests = [traces(*(span(i, chat(), trace=n) for i in range(1, 11))) for n in range(1, 121)]
    feed = iter(requests)
    log = wal.Wal(home / "wal")
    spawn = multiprocessing.get_context("spawn")
    for kill in range(3):
        process = spawn.Process(target=convert, args=(str(home),), daemon=True)
        process.start()
        before = wal.consumed(home / "wal")
        for record in take(feed, 30):
            log.write([record, record] if kill else [record])
        wait(lambda before=before: wal.consumed(home / "wal") > before)  # type: ignore[misc]
        log.write(list(take(feed, 5)))
        time.sleep(0.013 * kill)
        process.kill()
        process.join()
    log.write(list(feed))
    log.close()
    drain(home)
    assert counts(home) == {"spans": 1200, "calls": 1200, "scores": 0, "traces": 120, "unsettled_traces": 0}
    received = sum(n for (n,) in rows(home, "select requests from ingest_log"))  # type: ignore[misc]
    assert received == 120 + 2 * 30
    rollup_law.check(reader(home))


def take(feed: Iterable[wal.Record], count: int) -> list[wal.Record]:
    return list(itertools.islice(feed, count))


def wait(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)
