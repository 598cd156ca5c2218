"""PromptLayer's API: search -> detail -> trace, at the pace that it allows (10 searches a minute, 25 requests each).

100,000 requests take at least 6.7 hours that way: for what is to come, a Collector that sends to both is better.
The key is in the environment variable PROMPTLAYER_API_KEY. Requests are read from the oldest to the newest; after each
page the place is noted, and the next import of the same address goes on there.
"""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ingest.dialects.values import number, text
from ingest.errors import UsageError, WorkError
from ingest.importers import promptlayer
from ingest.importers.sources import Importer, Item, Sample, Source

SEARCH_EVERY_S = 6.0
PER_PAGE = 25
TIMEOUT_S = 30.0
_KEY = "PROMPTLAYER_API_KEY"
_PATIENCE = 5  # answers of 429 or 5xx in a row
_GOES_ON = "What was read is kept; the same command goes on from there."

Record = Mapping[str, object]


@dataclass
class Client:
    """The three calls, paced. `sleep` and `clock` are for tests."""

    address: str
    key: str = field(repr=False)
    search_every_s: float = SEARCH_EVERY_S
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    _next_search: float = 0.0

    def search(self, page: int) -> Record:
        """A page of requests, oldest first."""
        self.sleep(max(0.0, self._next_search - self.clock()))
        self._next_search = self.clock() + self.search_every_s
        body = {
            "page": page,
            "per_page": PER_PAGE,
            "sort_by": "request_start_time",
            "sort_order": "asc",
            "include_prompt_name": True,
        }
        return self._call("/api/public/v2/requests/search", body)

    def detail(self, request_id: str) -> Record:
        return self._call(f"/api/public/v2/requests/{urllib.parse.quote(request_id, safe='')}")

    def trace(self, trace_id: str) -> Record:
        return self._call(f"/api/public/v2/traces/{urllib.parse.quote(trace_id, safe='')}")

    def _call(self, path: str, body: Record | None = None) -> Record:
        data = None if body is None else json.dumps(body).encode()
        headers = {"X-API-KEY": self.key, "Content-Type": "application/json", "User-Agent": "retroute"}
        for attempt in range(_PATIENCE):
            call = urllib.request.Request(self.address + path, data, headers)
            try:
                with urllib.request.urlopen(call, timeout=TIMEOUT_S) as answer:
                    found = json.loads(answer.read())
                return found if isinstance(found, dict) else {}
            except urllib.error.HTTPError as error:
                with error:
                    if error.code in (401, 403):
                        raise UsageError(
                            f"{self.address} refuses the key in {_KEY} ({error.code})", "Set a valid key."
                        ) from None
                    if error.code == 404:
                        return {}
                    if error.code != 429 and error.code < 500:
                        raise WorkError(f"{self.address}{path} answered {error.code}", _GOES_ON) from None
                    wait_s = number(error.headers.get("Retry-After"))
                said = f"answered {error.code} {_PATIENCE} times"
                self.sleep(float(wait_s) if wait_s is not None else min(60.0, 2.0**attempt))
            except (OSError, ValueError) as error:
                said = f"cannot be read: {getattr(error, 'reason', error)}"
                if attempt + 1 < _PATIENCE:
                    self.sleep(min(60.0, 2.0**attempt))
        raise WorkError(f"{self.address}{path} {said}", _GOES_ON)


def read(client: Client, source: Source) -> Iterator[Item]:
    """All requests from the page in the source's state on, with their traces, a page at a time."""
    page = int(number(source.state.get("page")) or 1)
    while True:
        answer = client.search(page)
        listed = answer.get("items")
        items = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
        pages = max(page, int(number(answer.get("pages")) or page))
        found = list(_page(client, source, items))
        more = bool(answer.get("has_next"))
        state = {"page": page + 1 if more else page}
        for number_, item in enumerate(found, 1):
            last = number_ == len(found)
            yield Item(
                None, item.spans, item.scores, problem=item.problem, share=page / pages, state=state if last else None
            )
        if not more:
            return
        page += 1


def _page(client: Client, source: Source, items: Sequence[Record]) -> Iterator[Item]:
    """The requests of a page: those with a trace as the traces, each once, the others by themselves."""
    by_trace: dict[str, dict[str, Record]] = {}
    for item in items:
        own = text(item.get("id"))
        if own is None:
            yield Item(problem="a request without an id; the rest is imported")
            continue
        whole = {**client.detail(own), **{key: value for key, value in item.items() if value is not None}}
        if trace := text(whole.get("trace_id")):
            by_trace.setdefault(trace, {})[own] = whole
        else:
            yield _one(own, whole, source)
    for trace, requests in by_trace.items():
        yield from _traced(client, source, trace, requests)


def _traced(client: Client, source: Source, trace: str, requests: Mapping[str, Record]) -> Iterator[Item]:
    listed = client.trace(trace).get("spans")
    spans = [span for span in listed if isinstance(span, dict)] if isinstance(listed, list) else []
    told = {}
    for own, whole in requests.items():
        try:
            told[own] = promptlayer.request(whole, source.service)
        except ValueError as error:
            yield Item(problem=f"request {own}: {error}; the rest is imported")
    try:
        found, judged = promptlayer.trace_spans(trace, spans, told, source.service)
    except ValueError as error:
        yield Item(problem=f"trace {trace}: {error}; its requests are imported alone")
        found, judged = [], []
    named = {text(span.get("request_log_id")) for span in spans} if found else set()
    for own, (span, scores) in told.items():
        if own not in named:
            found.append(span)
            judged += scores
    yield Item(spans=found, scores=judged)


def _one(own: str, whole: Record, source: Source) -> Item:
    try:
        span, scores = promptlayer.request(whole, source.service)
    except ValueError as error:
        return Item(problem=f"request {own}: {error}; the rest is imported")
    return Item(spans=[span], scores=scores)


def _read(source: Source) -> Iterator[Item]:
    key = os.environ.get(_KEY)
    if not key:
        raise UsageError(f"{source.location} needs a key", f"Set the environment variable {_KEY}.")
    yield from read(Client(source.location.rstrip("/"), key), source)


def _recognises(sample: Sample) -> bool:
    return sample.kind == "url" and "promptlayer" in (urllib.parse.urlsplit(sample.location).hostname or "")


IMPORTER = Importer(
    "promptlayer-api", "PromptLayer's API, https://api.promptlayer.com", _recognises, _read, resumes=True
)
