"""Cases of real telemetry: the request bodies that instrumentations sent, and beside them what the applications did.

A case is a folder with `truth.json` and `payloads/`, as in tests/golden/otlp. The environment variable
OTLP_CORPUS can name a larger collection of the same layout.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from ingest import converter, wal
from ingest.lake import Lake
from ingest.options import ConverterOptions

GOLDEN = Path(__file__).parent / "golden" / "otlp"
FOLDER = os.environ.get("OTLP_CORPUS")
"""The larger collection, where there is one."""

_SIGNALS = ("traces", "logs", "metrics")


@dataclass(frozen=True)
class Case:
    """One case. `name` is INSTRUMENTATION/CASE."""

    folder: Path

    @property
    def name(self) -> str:
        return f"{self.folder.parent.name}/{self.folder.name}"

    @property
    def truth(self) -> dict[str, Any]:
        return cast("dict[str, Any]", json.loads((self.folder / "truth.json").read_text(encoding="utf-8")))

    def records(self, received_ns: int = 1) -> list[wal.Record]:
        """The bodies of traces, logs and metrics in the order of their arrival, one nanosecond apart."""
        payloads = self.folder / "payloads"
        found = []
        for row in json.loads((payloads / "index.json").read_text(encoding="utf-8")):
            if row["signal"] not in _SIGNALS:
                continue
            body = (payloads / row["file"]).read_bytes()
            if row["headers"].get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            encoding: Literal["json", "protobuf"] = "json" if row["file"].endswith(".json") else "protobuf"
            found.append(wal.Record(row["signal"], encoding, received_ns + len(found), body))
        return found


def cases(folder: Path) -> list[Case]:
    """The cases in a folder, by name."""
    return [Case(found.parent) for found in sorted(folder.glob("*/*/truth.json"))]


def ingest_cases(home: Path, found: Iterable[Case]) -> None:
    """Converts and settles all bodies of some cases in a home, as a collector that received them would."""
    log = wal.Wal(home / "wal")
    log.write([record for case in found for record in case.records()])
    log.close()
    converter.run(home, ConverterOptions(quiet_s=0.0, commit_s=0.0), lambda: True)


def calls_by_trace(home: Path) -> Mapping[str, list[dict[str, Any]]]:
    """The rows of `calls`, in order of their start."""
    grouped: dict[str, list[dict[str, Any]]] = {}
    with Lake.open(home) as lake:
        for row in lake.sql("select * from calls order by start_ns, span_id").to_dicts():
            grouped.setdefault(row["trace_id"], []).append(row)
    return grouped
