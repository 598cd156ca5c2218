"""Scores from a file: CSV, JSON lines, JSON or Parquet, a score a row.

Columns are those of POST /v1/scores (see scores.py), or Langfuse's export. `id` stands for score_id, `score` for value,
`comment` for explanation, `time` or `timestamp` (ISO 8601 or since 1970) for time_ns. Other columns are left alone.
Without an id a row's is made of its target, name, source, time and value: the same file read twice is stored once.
Of rows without a time the later one counts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import orjson

from ingest import langfuse_scores
from ingest.dialects.values import boolean, number, text
from ingest.importers import tables
from ingest.importers.sources import Importer, Item, Sample, Source
from ingest.scores import KEYS, TARGETS, ScoreError, parse_scores, score_id
from ingest.timestamps import nanoseconds

_OTHER_NAMES = {"id": "score_id", "score": "value", "comment": "explanation"}
_TIMES = ("time", "timestamp", "created_at")


def score(record: Mapping[str, object], now_ns: int) -> dict[str, object]:
    """A row as an object of POST /v1/scores. Raises ScoreError."""
    if "observation_id" in record or "data_type" in record or "traceId" in record:
        return langfuse_scores.score(dict(record), now_ns)
    found: dict[str, object] = {}
    for key, value in record.items():
        name = _OTHER_NAMES.get(key, key)
        if name in KEYS and value is not None and value != "" and (name == key or name not in record):
            found[name] = value
    for key in ("name", "label", "source", "explanation", "score_id", *TARGETS):
        if key in found:
            found[key] = text(found[key])
    if "value" in found:
        found["value"] = _number(found["value"])
    if "probability" in found:
        found["probability"] = _probability(found["probability"])
    at = _time(record)
    if "score_id" not in found:
        target = "/".join(str(found.get(key) or "") for key in TARGETS)
        said = found.get("value", found.get("label"))
        named = (str(found.get("name")), str(found.get("source") or ""))
        found["score_id"] = score_id(target, *named, at or 0, said if isinstance(said, str) else repr(said))
    found["time_ns"] = now_ns if at is None else at
    try:
        parse_scores(orjson.dumps(found), now_ns)
    except ScoreError as error:
        raise ScoreError(str(error).removeprefix("score 0: ")) from None
    return found


def _number(value: object) -> float:
    if isinstance(value, bool) or boolean(value) is not None:
        return float(bool(value) if isinstance(value, bool) else bool(boolean(value)))
    found = number(value)
    if found is None:
        raise ScoreError(f"value {value!r} is not a number; words belong into a column `label`")
    return float(found)


def _probability(value: object) -> object:
    """A number, also from text; what is none as it is, for `parse_scores` to refuse."""
    found = None if isinstance(value, bool) else number(value)
    return value if found is None else found


def _time(record: Mapping[str, object]) -> int | None:
    for key in ("time_ns", *_TIMES):
        if record.get(key) not in (None, ""):
            found = nanoseconds(record[key])
            if found is None:
                raise ScoreError(f"{key} {record[key]!r} is no time; expected ISO 8601, or a number since 1970")
            return found
    return None


def _read(source: Source) -> Iterator[Item]:
    assert source.path is not None
    now_ns = time.time_ns()
    for count, row in enumerate(tables.rows(source.path)):
        if row.record is None:
            yield Item(row.number, problem=row.problem, share=row.share)
            continue
        try:
            yield Item(row.number, scores=[score(row.record, now_ns + count)], share=row.share)
        except ScoreError as error:
            yield Item(row.number, problem=f"{error}; the rest is imported", share=row.share)


def _recognises(sample: Sample) -> bool:
    return sample.has("name") and any(key in sample.first for key in TARGETS)


IMPORTER = Importer("scores", "scores: CSV, JSON lines, JSON, Parquet", _recognises, _read)
