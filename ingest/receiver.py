"""OTLP/HTTP and scores into the write-ahead log: one ASGI application, for any ASGI server.

    POST /v1/traces  /v1/logs  /v1/metrics    protobuf or JSON, plain or gzip
    POST /v1/scores                           JSON, see scores.py
    GET  /healthz  /metrics                   for probes and for Prometheus

200 is sent only after the record is synced to disk. What cannot be read is refused and leaves nothing behind; what
cannot be taken now is answered 503 with Retry-After. Every 4xx and 5xx body is a google.rpc.Status in the encoding of
the request. With tokens, everything but /healthz needs `Authorization: Bearer TOKEN`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ingest import otlp
from ingest.answers import Answer, RefusalError, accepted, json_answer, overloaded
from ingest.inflate import InflateError, TooLargeError, inflate
from ingest.scores import ScoreError, parse_scores
from ingest.wal import Encoding, Kind, Record, Wal

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_POSTS: dict[str, Kind] = {"/v1/traces": "traces", "/v1/logs": "logs", "/v1/metrics": "metrics", "/v1/scores": "scores"}
_ENCODINGS: dict[str, Encoding] = {
    "application/x-protobuf": "protobuf",
    "application/protobuf": "protobuf",
    "application/json": "json",
}
_IN_THREAD_BYTES = 1 << 20  # larger bodies are read in a thread, so that probes and small requests are still answered


@dataclass(frozen=True, slots=True)
class ReceiverOptions:
    """Limits and rights."""

    tokens: tuple[str, ...] = ()
    """Bearer tokens of which a request must carry one; empty: none needed."""
    cors: tuple[str, ...] = ()
    """Origins whose pages may send from a browser; "*" is any."""
    max_body_bytes: int = 64 << 20
    """Of a request, before and after inflating."""
    max_in_flight_bytes: int = 256 << 20
    """Of all bodies in memory together."""
    max_backlog_bytes: int = 1 << 30
    """Acknowledged and not yet in the lake."""


class DisconnectedError(Exception):
    """The client left in the middle of its request."""


class Receiver:
    """The ASGI application. `state` adds what the collector knows to /healthz."""

    def __init__(
        self,
        wal: Wal,
        options: ReceiverOptions = ReceiverOptions(),
        *,
        now: Callable[[], int] = time.time_ns,
        state: Callable[[], Mapping[str, object]] = dict,
    ) -> None:
        self._wal = wal
        self._options = options
        self._tokens = [token.encode() for token in options.tokens]
        self._now = now
        self._state = state
        self._in_flight = 0
        names = ("requests", "spans", "logs", "metric_points", "scores", "rejected", "unreadable")
        self.received: Counter[str] = Counter(dict.fromkeys(names, 0))
        self.refused: Counter[int] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        encoding = _ENCODINGS.get(_media_type(headers), "json")
        try:
            answer = await self._answer(scope["method"], scope["path"], headers, receive)
        except RefusalError as refusal:
            answer = refusal.answer(encoding)
        except DisconnectedError:
            return
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            answer = RefusalError(500, "internal error; the collector's log says more").answer(encoding)
        if answer.status >= 400:
            self.refused[answer.status] += 1
        fields = [("content-type", answer.media_type), ("content-length", str(len(answer.body))), *answer.headers]
        if origin := self._allowed_origin(headers):
            fields += [("access-control-allow-origin", origin), ("vary", "origin")]
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields]
        await send({"type": "http.response.start", "status": answer.status, "headers": raw})
        await send({"type": "http.response.body", "body": answer.body})

    async def _answer(self, method: str, path: str, headers: Mapping[str, str], receive: Receive) -> Answer:
        if path in ("/healthz", "/metrics"):
            if method not in ("GET", "HEAD"):
                raise RefusalError(405, f"{path} takes GET", ("allow", "GET"))
            if path == "/healthz":
                return json_answer(self.health())
            self._check_token(headers)
            return Answer(200, self._prometheus().encode(), "text/plain; version=0.0.4; charset=utf-8")
        kind = _POSTS.get(path)
        if kind is None:
            raise RefusalError(404, f"unknown path {path}; known are {', '.join(_POSTS)}")
        if method == "OPTIONS" and self._allowed_origin(headers):
            asked = headers.get("access-control-request-headers", "content-type")
            allow = [("methods", "POST"), ("headers", asked), ("max-age", "7200")]
            fields = tuple(
                (f"access-control-{'' if name == 'max-age' else 'allow-'}{name}", text) for name, text in allow
            )
            return Answer(200, b"", "text/plain", fields)
        if method != "POST":
            raise RefusalError(405, f"{path} takes POST", ("allow", "POST"))
        self._check_token(headers)
        return await self._take(kind, headers, receive)

    async def _take(self, kind: Kind, headers: Mapping[str, str], receive: Receive) -> Answer:
        media_type = _media_type(headers)
        encoding = _ENCODINGS.get(media_type)
        if encoding is None or (kind == "scores" and encoding != "json"):
            wanted = "application/json" + ("" if kind == "scores" else " or application/x-protobuf")
            raise RefusalError(415, f"content type {media_type or 'missing'}; expected {wanted}")
        coding = headers.get("content-encoding", "").strip().lower()
        if coding not in ("", "identity", "gzip", "x-gzip"):
            raise RefusalError(400, f"unknown content encoding {coding}; expected gzip or none")
        packed = coding in ("gzip", "x-gzip")
        with self._holding() as hold:
            chunks: list[bytes] = []
            async for chunk in self._chunks(receive):
                hold(chunk)
                chunks.append(chunk)
            if self._wal.backlog_bytes() > self._options.max_backlog_bytes:
                raise overloaded("the lake is behind: too much is waiting in the write-ahead log")
            wire = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            received_ns = self._now()
            read = partial(self._read, kind, encoding, wire, received_ns, packed)
            try:
                body, counts, scores = await asyncio.to_thread(read) if len(wire) > _IN_THREAD_BYTES else read()
            except TooLargeError as error:
                raise RefusalError(413, f"the body {error}") from None
            except (InflateError, otlp.DecodeError, ScoreError) as error:
                self.received["unreadable"] += 1
                raise RefusalError(400, str(error)) from None
            if packed:
                hold(body)
            if scores or counts != otlp.Counts():
                await self._store(Record(kind, encoding, received_ns, body), wire if packed else None)
        self.received["requests"] += 1
        self.received["scores"] += scores
        for name in ("spans", "logs", "metric_points", "rejected"):
            self.received[name] += getattr(counts, name)
        return json_answer({"accepted": scores}) if kind == "scores" else accepted(counts, kind, encoding)

    def _read(
        self, kind: Kind, encoding: Encoding, wire: bytes, received_ns: int, packed: bool
    ) -> tuple[bytes, otlp.Counts, int]:
        """The plain body, what it counts as, and the number of scores."""
        body = inflate(wire, self._options.max_body_bytes) if packed else wire
        if kind == "scores":
            return body, otlp.Counts(), len(parse_scores(body, received_ns))
        return body, otlp.inspect(body, kind, encoding), 0

    async def _store(self, record: Record, packed: bytes | None) -> None:
        try:
            await self._wal.append(record, packed=packed)
        except OSError as error:
            log.error("the write-ahead log cannot be written: %s", error)
            raise overloaded(f"the write-ahead log cannot be written: {error.strerror}") from None

    @contextlib.contextmanager
    def _holding(self) -> Iterator[Callable[[bytes], None]]:
        """Counts bytes as in memory until the end of the block. Its function raises 503 when that is too much."""
        held = 0

        def hold(data: bytes) -> None:
            nonlocal held
            held += len(data)
            self._in_flight += len(data)
            if self._in_flight > self._options.max_in_flight_bytes:
                raise overloaded("too many requests at once")

        try:
            yield hold
        finally:
            self._in_flight -= held

    async def _chunks(self, receive: Receive) -> AsyncIterator[bytes]:
        """The parts of the body. Raises 413; of a body over the limit as much again is let pass unread first, because
        most clients look for an answer only after they have sent everything."""
        limit, size, more = self._options.max_body_bytes, 0, True
        while more:
            event = await receive()
            if event["type"] == "http.disconnect":
                raise DisconnectedError
            chunk = event.get("body", b"")
            more = event.get("more_body", False)
            size += len(chunk)
            if size > 2 * limit:
                break
            if size <= limit:
                yield chunk
        if size > limit:
            raise RefusalError(413, f"the body is larger than {limit} bytes", ("connection", "close"))

    def _check_token(self, headers: Mapping[str, str]) -> None:
        if not self._tokens:
            return
        scheme, _, token = headers.get("authorization", "").partition(" ")
        sent = token.strip().encode("latin-1")
        if scheme.lower() != "bearer" or not any(hmac.compare_digest(sent, known) for known in self._tokens):
            raise RefusalError(401, "a valid bearer token is needed", ("www-authenticate", "Bearer"))

    def _allowed_origin(self, headers: Mapping[str, str]) -> str:
        origin = headers.get("origin", "")
        return origin if origin and ("*" in self._options.cors or origin in self._options.cors) else ""

    def health(self) -> dict[str, object]:
        """The document of /healthz."""
        return {
            "status": "ok",
            "version": _version(),
            "received": {**self.received, "refused": self.refused.total()},
            "pending_wal_bytes": self._wal.backlog_bytes(),
            **self._state(),
        }

    def _prometheus(self) -> str:
        lines = []
        for name, count in self.received.items():
            lines += [f"# TYPE retroute_received_{name}_total counter", f"retroute_received_{name}_total {count}"]
        lines.append("# TYPE retroute_refused_requests_total counter")
        lines += [f'retroute_refused_requests_total{{status="{status}"}} {n}' for status, n in self.refused.items()]
        lines += ["# TYPE retroute_pending_wal_bytes gauge", f"retroute_pending_wal_bytes {self._wal.backlog_bytes()}"]
        return "\n".join(lines) + "\n"


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        event = (await receive())["type"]
        await send({"type": f"{event}.complete"})
        if event == "lifespan.shutdown":
            return


def _media_type(headers: Mapping[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _version() -> str:
    try:
        return version("retroute")
    except PackageNotFoundError:
        return "unknown"
