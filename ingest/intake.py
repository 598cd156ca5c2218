"""What HTTP and gRPC have in common: rights, limits, reading, the write-ahead log, counters.

`take` returns once the record is synced to disk. What cannot be read is refused and leaves nothing behind; what cannot
be taken now is refused as overload, and the client sends it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from ingest import auth, otlp
from ingest.answers import RefusalError, overloaded
from ingest.auth import Token
from ingest.inflate import Coding, InflateError, TooLargeError, inflate
from ingest.otlp_weight import weight
from ingest.privacy import OFF, Policy
from ingest.scores import ScoreError, parse_scores
from ingest.wal import MAX_AGE_S, Encoding, Kind, Record, Wal

log = logging.getLogger(__name__)

Hold = Callable[[bytes], None]

_IN_THREAD_BYTES = 1 << 20  # larger bodies are read in a thread, so that probes and small requests are still answered
_PLAIN_IN_THREAD_BYTES = 4 << 20  # of protobuf as it is: 2 MB take less than 1 ms, to which a thread adds a tenth
_EDITED_IN_THREAD_BYTES = 64 << 10  # of bodies that a privacy policy edits, which takes longer
_READERS = 2  # such threads; what they parse is in memory several times over
_WEIGHED_BYTES = 4 << 20  # larger bodies are weighed before they are parsed
_MAX_WEIGHT = 256 << 20
_WRITE_FAILED_S = 5.0  # not ready for so long: then the next request may try again


@dataclass(frozen=True, slots=True)
class ReceiverOptions:
    """Limits and rights."""

    tokens: tuple[Token, ...] = ()
    """Of which a request must carry one; empty: none needed."""
    cors: tuple[str, ...] = ()
    """Origins whose pages may send from a browser; "*" is any."""
    max_wire_bytes: int = 64 << 20
    """Of a request as it is sent."""
    max_body_bytes: int = 64 << 20
    """Of a request once inflated."""
    max_in_flight_bytes: int = 256 << 20
    """Of all bodies in memory together."""
    max_backlog_bytes: int = 1 << 30
    """Acknowledged and not yet in the lake."""
    policy: Policy = OFF
    """What is kept of a request."""


DEFAULTS = ReceiverOptions()


@dataclass(frozen=True, slots=True)
class Taken:
    """What an acknowledged request held."""

    counts: otlp.Counts = field(default_factory=otlp.Counts)
    scores: int = 0


class Intake:
    """The way into the write-ahead log. Lives in one event loop."""

    def __init__(self, wal: Wal, options: ReceiverOptions, *, now: Callable[[], int] = time.time_ns) -> None:
        self._wal = wal
        self.options = options
        self._now = now
        self._in_flight = 0
        self._write_failed: tuple[float, str] | None = None
        self._readers = ThreadPoolExecutor(_READERS, "intake")
        names = ("requests", "spans", "logs", "metric_points", "scores", "rejected", "unreadable")
        self.received: Counter[str] = Counter(dict.fromkeys(names, 0))
        self.refused: Counter[int] = Counter()
        """By HTTP status, also what gRPC refused."""
        self.by_token: Counter[str] = Counter()

    def authenticate(self, authorization: bytes, api_key: bytes) -> None:
        """Raises 401 unless the request carries a token, or none is needed."""
        if not self.options.tokens:
            return
        name = auth.find(self.options.tokens, authorization, api_key)
        if name is None:
            raise RefusalError(401, "a valid token is needed", ("www-authenticate", "Bearer"))
        self.by_token[name] += 1

    def wire_limit(self, coding: Coding | None) -> int:
        """Bytes that a request may have as it is sent; a plain one is its own inflated body."""
        o = self.options
        return o.max_wire_bytes if coding else min(o.max_wire_bytes, o.max_body_bytes)

    @contextlib.contextmanager
    def holding(self) -> Iterator[Hold]:
        """Counts bytes as in memory until the end of the block. Its function raises 503 when that is too much."""
        held = 0

        def hold(data: bytes) -> None:
            nonlocal held
            held += len(data)
            self._in_flight += len(data)
            if self._in_flight > self.options.max_in_flight_bytes:
                raise overloaded("too many requests at once")

        try:
            yield hold
        finally:
            self._in_flight -= held

    async def take(self, kind: Kind, encoding: Encoding, coding: Coding | None, wire: bytes, hold: Hold) -> Taken:
        """Read and store a request. `hold` counts its body already, and is told of what that is inflated to.

        Raises RefusalError: 413, 400 or 503.
        """
        if len(wire) > (limit := self.wire_limit(coding)):
            raise RefusalError(413, f"the body is larger than {limit} bytes")
        if self._behind():
            raise overloaded("the lake is behind: too much is waiting in the write-ahead log")
        received_ns = self._now()
        read = partial(self._read, kind, encoding, coding, wire, received_ns)
        try:
            if len(wire) > self._read_at_once(encoding, coding):
                body, taken = await asyncio.get_running_loop().run_in_executor(self._readers, read)
            else:
                body, taken = read()
        except TooLargeError as error:
            raise RefusalError(413, f"the body {error}") from None
        except (InflateError, otlp.DecodeError, ScoreError) as error:
            self.received["unreadable"] += 1
            raise RefusalError(400, str(error)) from None
        if coding:
            hold(body)
        if taken != Taken():
            as_sent = coding == "gzip" and not self.options.policy.active
            await self._store(Record(kind, encoding, received_ns, body), wire if as_sent else None)
        self.received["requests"] += 1
        self.received["scores"] += taken.scores
        for name in ("spans", "logs", "metric_points", "rejected"):
            self.received[name] += getattr(taken.counts, name)
        return taken

    def _read_at_once(self, encoding: Encoding, coding: Coding | None) -> int:
        """Bytes of the largest body that is read without a thread."""
        if self.options.policy.active:
            return _EDITED_IN_THREAD_BYTES
        return _PLAIN_IN_THREAD_BYTES if encoding == "protobuf" and coding is None else _IN_THREAD_BYTES

    def _read(
        self, kind: Kind, encoding: Encoding, coding: Coding | None, wire: bytes, received_ns: int
    ) -> tuple[bytes, Taken]:
        """What is stored of a request, and what is in it."""
        body, taken = self._inspected(kind, encoding, coding, wire, received_ns)
        return self.options.policy.apply(body, kind, encoding), taken

    def _inspected(
        self, kind: Kind, encoding: Encoding, coding: Coding | None, wire: bytes, received_ns: int
    ) -> tuple[bytes, Taken]:
        """The plain body and what is in it."""
        body = inflate(wire, self.options.max_body_bytes, coding) if coding else wire
        if kind == "scores":
            return body, Taken(scores=len(parse_scores(body, received_ns)))
        if len(body) > _WEIGHED_BYTES and weight(body, kind, encoding, _MAX_WEIGHT) > _MAX_WEIGHT:
            raise TooLargeError("holds too many parts for its size")
        return body, Taken(otlp.inspect(body, kind, encoding))

    async def _store(self, record: Record, packed: bytes | None) -> None:
        try:
            await self._wal.append(record, packed=packed)
        except OSError as error:
            log.error("the write-ahead log cannot be written: %s", error)
            said = f"the write-ahead log cannot be written: {error.strerror}"
            self._write_failed = time.monotonic(), said
            raise overloaded(said) from None
        self._write_failed = None

    def _behind(self) -> bool:
        return self._wal.backlog_bytes() > self.options.max_backlog_bytes or self._wal.age_s() > MAX_AGE_S

    def refusing(self) -> Sequence[str]:
        """Why good requests are answered 503 at the moment; empty when they are taken."""
        reasons = ["too much is waiting in the write-ahead log, or for too long"] if self._behind() else []
        if self._write_failed and time.monotonic() - self._write_failed[0] < _WRITE_FAILED_S:
            reasons.append(self._write_failed[1])
        return reasons

    def waiting(self) -> dict[str, float]:
        """What is acknowledged and not yet in the lake: its bytes, and how long ago (s) the oldest of it came."""
        return {"bytes": self._wal.backlog_bytes(), "age_s": round(self._wal.age_s(), 3)}

    def prometheus(self) -> str:
        """The counters as Prometheus text."""
        lines = []
        for name, count in self.received.items():
            lines += [f"# TYPE retroute_received_{name}_total counter", f"retroute_received_{name}_total {count}"]
        lines.append("# TYPE retroute_refused_requests_total counter")
        lines += [f'retroute_refused_requests_total{{status="{status}"}} {n}' for status, n in self.refused.items()]
        lines.append("# TYPE retroute_token_requests_total counter")
        lines += [f'retroute_token_requests_total{{token="{name}"}} {n}' for name, n in self.by_token.items()]
        lines.append("# TYPE retroute_redacted_total counter")
        lines += [f'retroute_redacted_total{{kind="{kind}"}} {n}' for kind, n in self.options.policy.redacted.items()]
        waiting = self.waiting()
        lines += ["# TYPE retroute_pending_wal_bytes gauge", f"retroute_pending_wal_bytes {waiting['bytes']}"]
        lines += [
            "# TYPE retroute_pending_wal_age_seconds gauge",
            f"retroute_pending_wal_age_seconds {waiting['age_s']}",
        ]
        return "\n".join(lines) + "\n"
