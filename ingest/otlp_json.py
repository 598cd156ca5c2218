"""The JSON encoding of OTLP, read as it is met in the wild and not only as the specification writes it.

Names in camelCase or snake_case, ids as hex of any case or base64, 64-bit integers as text or number, enums as number
or name, NaN as text or literal, half surrogate pairs. Unknown fields are ignored.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import orjson

from ingest import redactions
from ingest.otlp_problems import INVALID_SPAN_ID, INVALID_TRACE_ID, DecodeError, Problems
from ingest.otlp_protobuf import KINDS, STATUSES
from ingest.spans import Event, LogRecord, Scope, Span

_Object = Mapping[str, Any]
_DEPTH = 100  # of nested values, as in protobuf


def parse(body: bytes, signal: str, problems: Problems) -> _Object:
    """The request object. Any object is a request of any signal, an empty one at worst."""
    request = _load(body, problems)
    if not isinstance(request, dict):
        raise DecodeError("not an OTLP/JSON request: the body is not an object")
    return request


def spans(request: _Object, problems: Problems) -> Iterator[Span]:
    """The spans that can be read and whose ids are valid."""
    for resource, scope, span in _records(request, ("resourceSpans", "scopeSpans", "spans"), problems):
        trace_id, span_id = _id(_get(span, "traceId"), 16), _id(_get(span, "spanId"), 8)
        if not (trace_id and span_id):
            problems.reject(INVALID_SPAN_ID if trace_id else INVALID_TRACE_ID)
            continue
        try:
            record = _span(trace_id, span_id, span, resource, scope, problems)
        except _MalformedError as error:
            problems.reject(f"malformed span: {error}")
        else:
            yield record


def logs(request: _Object, problems: Problems) -> Iterator[LogRecord]:
    """The log records that can be read; the observed time where there is no other."""
    for resource, scope, record in _records(request, ("resourceLogs", "scopeLogs", "logRecords"), problems):
        try:
            attributes = _attributes(_get(record, "attributes"))
            time_ns = _int(_get(record, "timeUnixNano")) or _int(_get(record, "observedTimeUnixNano"))
            log = LogRecord(
                problems.time(time_ns),
                _text(_get(record, "eventName")) or str(attributes.get("event.name") or ""),
                _value(_get(record, "body")),
                attributes,
                resource,
                _id(_get(record, "traceId"), 16) or None,
                _id(_get(record, "spanId"), 8) or None,
                scope,
            )
        except _MalformedError as error:
            problems.reject(f"malformed log record: {error}")
        else:
            yield log


def metric_points(request: _Object) -> int:
    """The number of data points."""
    points = 0
    for _, _, metric in _records(request, ("resourceMetrics", "scopeMetrics", "metrics"), Problems()):
        for kind in ("gauge", "sum", "histogram", "exponentialHistogram", "summary"):
            data = _get(metric, kind)
            if isinstance(data, dict) and isinstance(data_points := _get(data, "dataPoints"), list):
                points += len(data_points)
    return points


def groups(request: _Object, name: str) -> list[object]:
    """What a request lists under a name in either spelling; what is no object among it is malformed. Raises DecodeError
    when it is no list, or lists no object at all."""
    try:
        found = list(_entries(request, name))
    except _MalformedError as error:
        raise DecodeError(f"not an OTLP/JSON request: {error}") from None
    if found and not any(isinstance(entry, dict) for entry in found):
        raise DecodeError(f"not an OTLP/JSON request: {name} is not a list of objects")
    return found


def redacted(group: object, scopes: str) -> dict[str, int]:
    """The counts in a resource group that tells of redactions (see redactions.py); empty for any other."""
    if not isinstance(group, dict):
        return {}
    resource = group.get("resource")
    try:
        found = _attributes(_get(resource, "attributes")) if isinstance(resource, dict) else {}
    except _MalformedError:
        return {}
    return {} if _get(group, scopes) else redactions.counts(found)


def redactions_in(request: _Object, signal: str) -> dict[str, int]:
    """What the last resource group of a request tells of redactions."""
    frames = ("resourceSpans", "scopeSpans") if signal == "traces" else ("resourceLogs", "scopeLogs")
    found = groups(request, frames[0])
    return redacted(found[-1], frames[1]) if found else {}


def from_base64(text: str) -> bytes:
    """Base64 in either alphabet, padded or not. Raises ValueError."""
    return _bytes(text)


class _MalformedError(ValueError):
    """A record that cannot be read."""


def _load(body: bytes, problems: Problems) -> object:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        reason = str(error)
    # Rare: bytes that are not UTF-8, halves of surrogate pairs, literal NaN. The standard library reads the latter two.
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = body.decode("utf-8-sig", errors="replace")
        problems.note("text that is not UTF-8, repaired")
    try:
        return _mend(json.loads(text), problems)
    except (ValueError, RecursionError):
        raise DecodeError(f"not JSON: {reason}") from None


def _mend(value: object, problems: Problems) -> object:
    if isinstance(value, dict):
        return {_mend(key, problems): _mend(item, problems) for key, item in value.items()}
    if isinstance(value, list):
        return [_mend(item, problems) for item in value]
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            problems.note("text that is not UTF-8, repaired")
            return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return value


def _records(
    request: _Object, names: tuple[str, str, str], problems: Problems
) -> Iterator[tuple[dict[str, object], Scope, _Object]]:
    """Each record with its resource's attributes and its scope. A malformed group costs only its own records.

    Raises DecodeError when the groups of resources are no list.
    """
    for by_resource in _good(groups(request, names[0]), names[0], problems):
        try:
            resource = _attributes(_get(_object(by_resource, "resource"), "attributes"))
            scopes = _entries(by_resource, names[1])
        except _MalformedError as error:
            _reject(_records_in(_get(by_resource, names[1]), names[2]), f"malformed resource: {error}", problems)
            continue
        for by_scope in _good(scopes, names[1], problems):
            try:
                scope = _object(by_scope, "scope")
                named = Scope(_text(scope.get("name")), _text(scope.get("version")))
            except _MalformedError as error:
                _reject(_records_in([by_scope], names[2]), f"malformed scope: {error}", problems)
                continue
            records = _get(by_scope, names[2])
            entries = records if isinstance(records, list) else [] if records is None else [records]
            for record in _good(entries, names[2], problems):
                yield resource, named, record


def _good(entries: Sequence[object], name: str, problems: Problems) -> Iterator[_Object]:
    """The objects; anything else is rejected."""
    for entry in entries:
        if isinstance(entry, dict):
            yield entry
        else:
            problems.reject(f"malformed: {name} is not a list of objects")


def _records_in(scopes: object, name: str) -> int:
    """How many records a malformed group seems to hold."""
    groups = scopes if isinstance(scopes, list) else []
    lists = [_get(group, name) for group in groups if isinstance(group, dict)]
    return sum(len(entries) for entries in lists if isinstance(entries, list))


def _reject(count: int, text: str, problems: Problems) -> None:
    for _ in range(max(count, 1)):
        problems.reject(text)


def _span(
    trace_id: str, span_id: str, span: _Object, resource: dict[str, object], scope: Scope, problems: Problems
) -> Span:
    status, events, links = _object(span, "status"), _objects(span, "events"), _objects(span, "links")
    code = _enum(status.get("code"), "STATUS_CODE_", ("unset", "ok", "error"))
    return Span(
        trace_id,
        span_id,
        _id(_get(span, "parentSpanId"), 8) or None,
        _text(span.get("name")),
        KINDS[_enum(span.get("kind"), "SPAN_KIND_", KINDS)],
        problems.time(_int(_get(span, "startTimeUnixNano"))),
        problems.time(_int(_get(span, "endTimeUnixNano"))),
        STATUSES[code],
        _text(status.get("message")),
        _attributes(span.get("attributes")),
        resource,
        scope,
        tuple([_event(event, problems) for event in events]) if events else (),
        tuple([ids for link in links if (ids := _linked(link))]) if links else (),
    )


def _event(event: _Object, problems: Problems) -> Event:
    time_ns = problems.time(_int(_get(event, "timeUnixNano")))
    return Event(_text(event.get("name")), time_ns, _attributes(event.get("attributes")))


def _linked(link: _Object) -> tuple[str, str] | None:
    trace_id, span_id = _id(_get(link, "traceId"), 16, zero=True), _id(_get(link, "spanId"), 8, zero=True)
    return (trace_id, span_id) if trace_id and span_id else None


def _get(item: _Object, name: str) -> Any:
    value = item.get(name)
    return item.get(_snake(name)) if value is None else value


@cache
def _snake(name: str) -> str:
    return re.sub("[A-Z]", lambda letter: "_" + letter[0].lower(), name)


def _objects(item: _Object, name: str) -> Sequence[_Object]:
    value = _entries(item, name)
    if not all(isinstance(entry, dict) for entry in value):
        raise _MalformedError(f"{name} is not a list of objects")
    return value  # type: ignore[return-value]  # checked


def _entries(item: _Object, name: str) -> Sequence[object]:
    value = _get(item, name)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise _MalformedError(f"{name} is not a list of objects")
    return value


def _object(item: _Object, name: str) -> _Object:
    value = item.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _MalformedError(f"{name} is not an object")
    return value


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    raise _MalformedError("a text is not a string")


def _int(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if value is None or value == "":
        return 0
    try:
        if isinstance(value, str):
            return int(value)
        if isinstance(value, float) and value.is_integer():
            return int(value)
    except ValueError:
        pass
    raise _MalformedError("an integer is not a whole number")


def _enum(value: object, prefix: str, names: Sequence[str]) -> int:
    """The index into `names`; 0 for what is unknown."""
    if isinstance(value, str) and not value.isdigit():
        name = value.upper().removeprefix(prefix).lower()
        return names.index(name) if name in names else 0
    number = _int(value)
    return number if 0 <= number < len(names) else 0


def _id(value: object, size: int, *, zero: bool = False) -> str:
    """An id as lower-case hex; "" when it is missing, zero or invalid."""
    if not isinstance(value, str):
        return ""
    try:
        raw = bytes.fromhex(value) if len(value) == 2 * size else _bytes(value)
    except ValueError:
        return ""
    return raw.hex() if len(raw) == size and (zero or any(raw)) else ""


def _bytes(text: str) -> bytes:
    """Base64 in either alphabet, padded or not. Raises ValueError."""
    plain = text.rstrip("=").translate({ord("-"): "+", ord("_"): "/"})
    return b64decode(plain + "=" * (-len(plain) % 4), validate=True)


def _attributes(pairs: object, depth: int = 0) -> dict[str, object]:
    if pairs is None:
        return {}
    if not isinstance(pairs, list):
        raise _MalformedError("attributes are not a list")
    found: dict[str, object] = {}
    for pair in pairs:
        if not isinstance(pair, dict):
            raise _MalformedError("an attribute is not an object")
        value = pair.get("value")
        if isinstance(value, dict) and len(value) == 1 and isinstance(said := value.get("stringValue"), str):
            found[_text(pair.get("key"))] = said  # as most are
        else:
            found[_text(pair.get("key"))] = _value(value, depth)
    return found


def _value(value: object, depth: int = 0) -> object:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise _MalformedError("a value is not an object")
    for name, inner in value.items():
        if inner is not None and (reader := _READERS.get(name)):
            return reader(inner, depth)
    return None


def _whole(inner: object, _: int) -> int:
    number = _int(inner)
    if not -(2**63) <= number < 2**63:
        raise _MalformedError("an intValue does not fit 64 bits")
    return number


def _float(inner: object, _: int) -> float:
    if isinstance(inner, (int, float, str)) and not isinstance(inner, bool):
        try:
            return float(inner)
        except (ValueError, OverflowError):
            pass
    raise _MalformedError("a doubleValue is not a number")


def _bool(inner: object, _: int) -> bool:
    if isinstance(inner, bool):
        return inner
    if inner in ("true", "false"):
        return inner == "true"
    raise _MalformedError("a boolValue is not true or false")


def _array(inner: object, depth: int) -> list[object]:
    return [_value(item, depth + 1) for item in _nested(inner, depth)]


def _kvlist(inner: object, depth: int) -> dict[str, object]:
    return _attributes(_nested(inner, depth), depth + 1)


def _nested(inner: object, depth: int) -> list[object]:
    if depth >= _DEPTH:
        raise _MalformedError(f"a value is nested more than {_DEPTH} deep")
    values = inner.get("values") if isinstance(inner, dict) else inner
    if values is None:
        return []
    if not isinstance(values, list):
        raise _MalformedError("the values of a list are not a list")
    return values


def _base64(inner: object, _: int) -> str:
    try:
        return b64encode(_bytes(_text(inner))).decode()
    except ValueError:
        raise _MalformedError("a bytesValue is not base64") from None


_READERS: dict[str, Callable[[object, int], object]] = {
    "stringValue": lambda inner, _: _text(inner),
    "boolValue": _bool,
    "intValue": _whole,
    "doubleValue": _float,
    "arrayValue": _array,
    "kvlistValue": _kvlist,
    "bytesValue": _base64,
}
_READERS |= {_snake(name): read for name, read in _READERS.items()}
