"""PromptLayer's API against a local stand-in: search -> detail -> trace, paced, resumed, and honest about failures."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ingest.errors import UsageError, WorkError
from ingest.importers import promptlayer_api, registry
from ingest.importers.promptlayer_api import Client, read
from ingest.importers.sources import Source

TRACE = "b9775318d22c4b106b15672db9cbff0c"
ITEMS = [
    {"id": n, "engine": "gpt-4o", "provider_type": "openai", "input_tokens": 10 * n, "output_tokens": n, "price": 0.01,
     "request_start_time": f"2026-03-15T10:30:0{n}", "request_end_time": f"2026-03-15T10:30:0{n}.500", "latency": 0.5,
     "metadata": [{"user_id": "e1"}], "scores": [{"name": "ok", "score": 50}] if n == 1 else []}
    for n in range(1, 6)
]  # fmt: skip
SPANS = [
    {"id": 1, "name": "run", "span_id": "0000000000000001", "parent_id": None, "start_time": "2026-03-15T10:30:01",
     "end_time": "2026-03-15T10:30:03", "request_log_id": None},
    {"id": 2, "name": "llm", "span_id": "0000000000000002", "parent_id": "0000000000000001",
     "start_time": "2026-03-15T10:30:01", "end_time": "2026-03-15T10:30:02", "request_log_id": 1},
]  # fmt: skip


class StandIn(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.seen.append(("search", body["page"]))
        first = (body["page"] - 1) * self.server.per_page
        listed = ITEMS[first : first + self.server.per_page]
        more = first + self.server.per_page < len(ITEMS)
        self.answer({"items": listed, "page": body["page"], "pages": 3, "has_next": more})

    def do_GET(self):
        kind, own = self.path.split("/")[-2:]
        self.server.seen.append((kind, own))
        if kind == "traces":
            return self.answer({"spans": SPANS})
        return self.answer(
            {"request_id": int(own), "model": "gpt-4o", "trace_id": TRACE if own in ("1", "2") else None}
        )

    def answer(self, content):
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        if self.headers["x-api-key"] != "secret":
            status = 401
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        if status == 429:
            self.send_header("retry-after", "7")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), StandIn) as running:
        running.seen, running.statuses, running.per_page = [], [], 2
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self):
        self.now, self.slept = 100.0, []

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


def client(server, clock, key="secret"):
    address = f"http://127.0.0.1:{server.server_address[1]}"
    return Client(address, key, sleep=clock.sleep, clock=lambda: clock.now)


def source(**state):
    return Source("https://api.promptlayer.com", None, state=state)


def test_requests_become_the_model_calls_of_their_traces(server):
    found = list(read(client(server, Clock()), source()))
    spans = [span for item in found for span in item.spans]
    assert len(spans) == 6  # two of the trace, one of request 2 beside it, three alone
    call = next(span for span in spans if span.name == "llm")
    assert (call.trace_id, call.parent_span_id) == (TRACE, "0000000000000001")
    assert (call.attributes["gen_ai.request.model"], call.attributes["gen_ai.usage.input_tokens"]) == ("gpt-4o", 10)
    (score,) = [score for item in found for score in item.scores]
    assert (score["span_id"], score["value"]) == (call.span_id, 0.5)
    assert [kind for kind, _ in server.seen].count("traces") == 1


def test_searches_keep_the_pace_that_the_api_allows(server):
    clock = Clock()
    list(read(client(server, clock), source()))
    assert clock.now - 100 >= 2 * promptlayer_api.SEARCH_EVERY_S


def test_an_import_goes_on_at_the_page_where_it_stopped(server):
    items = read(client(server, Clock()), source())
    states = [item.state for item in items if item.state]
    assert states == [{"page": 2}, {"page": 3}, {"page": 3}]
    server.seen.clear()
    list(read(client(server, Clock()), source(page=3)))
    assert [page for kind, page in server.seen if kind == "search"] == [3]


def test_a_busy_server_is_asked_again_when_it_says(server):
    clock = Clock()
    server.statuses = [429, 503]
    assert sum(len(item.spans) for item in read(client(server, clock), source())) == 6
    assert 7.0 in clock.slept


def test_a_server_that_stays_away_is_an_error_that_says_how_to_go_on(server):
    server.statuses = [503] * 5
    with pytest.raises(WorkError, match="answered 503 5 times") as gone:
        list(read(client(server, Clock()), source()))
    assert "goes on from there" in gone.value.hint
    nobody = Client("http://127.0.0.1:1", "secret", sleep=lambda _: None)
    with pytest.raises(WorkError, match="cannot be read"):
        list(read(nobody, source()))


def test_a_wrong_key_and_no_key_are_named(server, monkeypatch):
    with pytest.raises(UsageError, match="refuses the key"):
        list(read(client(server, Clock(), "wrong"), source()))
    monkeypatch.delenv("PROMPTLAYER_API_KEY", raising=False)
    ((importer, found),) = registry.find(["https://api.promptlayer.com"])
    with pytest.raises(UsageError, match="needs a key"):
        next(iter(importer.read(found)))
