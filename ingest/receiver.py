"""OTLP/HTTP and scores into the write-ahead log: one ASGI application, for any ASGI server.

    POST /v1/traces  /v1/logs  /v1/metrics    protobuf or JSON; plain, gzip, deflate or zstd
         the same below /api/public/otel (Langfuse) and /otel (LangSmith)
    POST /v1/scores                           JSON, see scores.py
    POST /api/public/ingestion  /api/public/scores    scores as Langfuse's SDKs send them, see langfuse_scores.py
    GET  /healthz  /readyz  /metrics          for probes and for Prometheus

200 is sent only after the record is synced to disk. What cannot be read is refused and leaves nothing behind; what
cannot be taken now is answered 503 with Retry-After. Every 4xx and 5xx body of a POST is a google.rpc.Status in the
encoding of the request. With tokens, everything but the probes needs one, see auth.py.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import orjson

from ingest import langfuse_scores
from ingest.answers import MEDIA_TYPES, Answer, RefusalError, accepted, json_answer
from ingest.inflate import Coding, InflateError, TooLargeError, inflate
from ingest.intake import DEFAULTS, Hold, Intake, ReceiverOptions
from ingest.scores import ScoreError
from ingest.wal import Encoding, Kind, Wal

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_SIGNALS: tuple[Kind, ...] = ("traces", "logs", "metrics")
_POSTS: dict[str, Kind] = {
    **{f"/v1/{signal}": signal for signal in _SIGNALS},
    "/v1/scores": "scores",
    **dict.fromkeys(langfuse_scores.PATHS, "scores"),
    **{f"{prefix}/v1/{signal}": signal for prefix in ("/api/public/otel", "/otel") for signal in _SIGNALS},
}
_PROBES = ("/healthz", "/readyz", "/metrics")
_ENCODINGS: dict[str, Encoding] = {
    "application/x-protobuf": "protobuf",
    "application/protobuf": "protobuf",
    "application/json": "json",
}
_CODINGS: dict[str, Coding | None] = {
    "": None,
    "identity": None,
    "gzip": "gzip",
    "x-gzip": "gzip",
    "deflate": "deflate",
    "zstd": "zstd",
}


class DisconnectedError(Exception):
    """The client left in the middle of its request."""


class Receiver:
    """The ASGI application. `state` adds what the collector knows to /healthz and /readyz."""

    def __init__(
        self,
        wal: Wal,
        options: ReceiverOptions = DEFAULTS,
        *,
        now: Callable[[], int] = time.time_ns,
        state: Callable[[], Mapping[str, object]] = dict,
    ) -> None:
        self.intake = Intake(wal, options, now=now)
        self._cors = options.cors
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        encoding = _ENCODINGS.get(_media_type(headers), "json")
        try:
            answer = await self._answer(scope["method"], scope["path"], headers, receive)
        except RefusalError as refusal:
            self.intake.refused[refusal.status] += 1
            answer = refusal.answer(encoding)
        except DisconnectedError:
            return
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            self.intake.refused[500] += 1
            answer = RefusalError(500, "internal error; the collector's log says more").answer(encoding)
        fields = [("content-type", answer.media_type), ("content-length", str(len(answer.body))), *answer.headers]
        if origin := self._allowed_origin(headers):
            fields += [("access-control-allow-origin", origin), ("vary", "origin")]
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields]
        await send({"type": "http.response.start", "status": answer.status, "headers": raw})
        await send({"type": "http.response.body", "body": answer.body})

    async def _answer(self, method: str, path: str, headers: Mapping[str, str], receive: Receive) -> Answer:
        if path in _PROBES:
            if method not in ("GET", "HEAD"):
                raise RefusalError(405, f"{path} takes GET", ("allow", "GET"))
            return self._probe(path, headers)
        kind = _POSTS.get(path)
        if kind is None:
            raise RefusalError(404, f"unknown path {path}; known are {', '.join(_POSTS)}")
        if method == "OPTIONS" and self._allowed_origin(headers):
            return _preflight(headers)
        if method != "POST":
            raise RefusalError(405, f"{path} takes POST", ("allow", "POST"))
        self._authenticate(headers)
        return await self._take(path, kind, headers, receive)

    def _probe(self, path: str, headers: Mapping[str, str]) -> Answer:
        if path == "/healthz":
            return json_answer(self.health())
        if path == "/readyz":
            reasons = list(self.intake.refusing())
            content = {"ready": not reasons, "reasons": reasons, "wal": self.intake.waiting()}
            return Answer(503 if reasons else 200, orjson.dumps(content), MEDIA_TYPES["json"])
        self._authenticate(headers)
        return Answer(200, self.intake.prometheus().encode(), "text/plain; version=0.0.4; charset=utf-8")

    async def _take(self, path: str, kind: Kind, headers: Mapping[str, str], receive: Receive) -> Answer:
        media_type = _media_type(headers)
        encoding = _ENCODINGS.get(media_type)
        if encoding is None or (kind == "scores" and encoding != "json"):
            wanted = "application/json" + ("" if kind == "scores" else " or application/x-protobuf")
            raise RefusalError(415, f"content type {media_type or 'missing'}; expected {wanted}")
        named = headers.get("content-encoding", "").strip().lower()
        if named not in _CODINGS:
            raise RefusalError(400, f"unknown content encoding {named}; expected gzip, zstd, deflate or none")
        coding = _CODINGS[named]
        with self.intake.holding() as hold:
            chunks: list[bytes] = []
            async for chunk in _chunks(receive, self.intake.wire_limit(coding)):
                hold(chunk)
                chunks.append(chunk)
            wire = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            if path in langfuse_scores.PATHS:
                return await self._take_langfuse(path, coding, wire, hold)
            taken = await self.intake.take(kind, encoding, coding, wire, hold)
        return json_answer({"accepted": taken.scores}) if kind == "scores" else accepted(taken.counts, kind, encoding)

    async def _take_langfuse(self, path: str, coding: Coding | None, wire: bytes, hold: Hold) -> Answer:
        """Scores in Langfuse's form: stored as those of /v1/scores, answered as its SDK expects."""
        try:
            body = inflate(wire, self.intake.options.max_body_bytes, coding) if coding else wire
            sent = langfuse_scores.take(path, body, time.time_ns())
        except TooLargeError as error:
            raise RefusalError(413, f"the body {error}") from None
        except (InflateError, ScoreError) as error:
            self.intake.received["unreadable"] += 1
            raise RefusalError(400, str(error)) from None
        if sent.body:
            await self.intake.take("scores", "json", None, sent.body, hold)
        self.intake.received["rejected"] += sent.rejected
        return Answer(sent.status, orjson.dumps(sent.answer), MEDIA_TYPES["json"])

    def _authenticate(self, headers: Mapping[str, str]) -> None:
        sent = (headers.get(name, "").encode("latin-1") for name in ("authorization", "x-api-key"))
        self.intake.authenticate(*sent)

    def _allowed_origin(self, headers: Mapping[str, str]) -> str:
        origin = headers.get("origin", "")
        return origin if origin and ("*" in self._cors or origin in self._cors) else ""

    def health(self) -> dict[str, object]:
        """The document of /healthz."""
        waiting = self.intake.waiting()
        return {
            "status": "ok",
            "version": _version(),
            "received": {**self.intake.received, "refused": self.intake.refused.total()},
            "redacted": dict(self.intake.options.policy.redacted),
            "pending_wal_bytes": waiting["bytes"],
            "pending_wal_age_s": waiting["age_s"],
            **self._state(),
        }


async def _chunks(receive: Receive, limit: int) -> AsyncIterator[bytes]:
    """The parts of the body. Raises 413; of a body over the limit as much again is let pass unread first, because most
    clients look for an answer only after they have sent everything."""
    size, more = 0, True
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


def _preflight(headers: Mapping[str, str]) -> Answer:
    asked = headers.get("access-control-request-headers", "content-type")
    fields = (
        ("access-control-allow-methods", "POST"),
        ("access-control-allow-headers", asked),
        ("access-control-max-age", "7200"),
    )
    return Answer(200, b"", "text/plain", fields)


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        event = (await receive())["type"]
        await send({"type": f"{event}.complete"})
        if event == "lifespan.shutdown":
            return


def _media_type(headers: Mapping[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


@cache
def _version() -> str:
    try:
        return version("retroute")
    except PackageNotFoundError:
        return "unknown"
