"""OTLP files of every shape, and what is said about the parts that cannot be read."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ingest import otlp
from ingest.errors import UsageError
from ingest.importers.otlp_files import files, import_paths, read_paths
from ingest.lake import Lake
from ingest.options import ConverterOptions


def line(n: int, **more: object) -> bytes:
    span = {"traceId": f"{n:032x}", "spanId": f"{n:016x}", "name": f"span {n}", "startTimeUnixNano": "1", **more}
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "files"}}]}
    return json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span]}]}]}).encode()


def names(*paths: Path) -> list[str]:
    return [
        span.name
        for item in read_paths(paths)
        if item.record
        for span in otlp.decode(item.record.body, item.record.kind, item.record.encoding).spans
    ]


def complaints(*paths: Path) -> list[str]:
    return [item.complaint().removeprefix(str(item.path)) for item in read_paths(paths) if item.problem]


def protobuf(n: int) -> bytes:
    message = ExportTraceServiceRequest()
    spans = message.resource_spans.add().scope_spans.add().spans
    spans.add(trace_id=n.to_bytes(16, "big"), span_id=n.to_bytes(8, "big"), name=f"span {n}")
    return message.SerializeToString()


SHAPES = {
    "lines.jsonl": line(1) + b"\n\n" + line(2),
    "lines.json": line(1) + b"\r\n" + line(2) + b"\n",
    "pretty.json": json.dumps(json.loads(line(1)), indent=2).encode(),
    "list.json": b"[" + line(1) + b"," + line(2) + b"]",
    "one.pb": protobuf(1),
    "framed.pb": b"".join(len(part).to_bytes(4, "big") + part for part in (protobuf(1), protobuf(2))),
    "bom.jsonl": b"\xef\xbb\xbf" + line(1),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_is_read(tmp_path, name, packed):
    body = SHAPES[name]
    path = tmp_path / (name + ".gz" if packed else name)
    path.write_bytes(gzip.compress(body) if packed else body)
    assert names(path) == (["span 1"] if name in ("pretty.json", "one.pb", "bom.jsonl") else ["span 1", "span 2"])
    assert complaints(path) == []


def test_bodies_that_a_tap_kept_compressed_are_read_by_content(tmp_path):
    path = tmp_path / "000-traces.pb"
    path.write_bytes(gzip.compress(protobuf(1)))
    assert names(path) == ["span 1"]


def test_a_protobuf_file_tells_its_signal_by_its_content(tmp_path):
    logs, metrics = ExportLogsServiceRequest(), ExportMetricsServiceRequest()
    record = logs.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=5, trace_id=b"t" * 16)
    record.body.string_value = "hello"
    metric = metrics.resource_metrics.add().scope_metrics.add().metrics.add(name="gen_ai.client.tokens")
    metric.histogram.data_points.add(count=3, sum=2.0, explicit_bounds=[1.0], bucket_counts=[1, 2])
    for name, body in [("a", protobuf(1)), ("b", logs.SerializeToString()), ("c", metrics.SerializeToString())]:
        (tmp_path / f"{name}.pb").write_bytes(body)
    assert [item.record.kind for item in read_paths([tmp_path])] == ["traces", "logs", "metrics"]


def test_broken_lines_are_named_and_the_rest_is_read(tmp_path):
    path = tmp_path / "log.jsonl"
    bad = line(4, spanId="short")
    path.write_bytes(b"\n".join([line(1), b'{"resourceSpans": [', line(2), b"[]", b'{"a": 1}', line(3), bad]))
    assert names(path) == ["span 1", "span 2", "span 3"]
    found = complaints(path)
    assert [complaint.split(" ")[0] for complaint in found] == [":2:", ":4:", ":5:", ":7:"]
    assert "not JSON" in found[0]
    assert "none of resourceSpans" in found[2]
    assert "1 records rejected: invalid span id" in found[3]


@pytest.mark.parametrize("suffix", [".pb", ".json", ".jsonl"])
def test_a_file_of_nonsense_is_a_problem_not_a_crash(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    path.write_bytes(b"\xffnonsense")
    assert names(path) == []
    assert len(complaints(path)) == 1


def test_a_damaged_gzip_file_gives_what_can_be_read_and_a_problem(tmp_path):
    random.seed(5)
    body = gzip.compress(b"\n".join(line(n, note=random.random()) for n in range(1, 2000)))
    path = tmp_path / "log.jsonl.gz"
    path.write_bytes(body[:-200])
    assert len(names(path)) > 500
    assert complaints(path) == [
        ": cannot be read to its end: Compressed file ended before the end-of-stream marker was reached"
    ]
    for _ in range(10):
        damaged = bytearray(body)
        damaged[random.randrange(20, len(body))] ^= 1 << random.randrange(8)
        path.write_bytes(damaged)
        assert complaints(path)


def test_folders_are_walked_for_otlp_files_in_order(tmp_path):
    (tmp_path / "b").mkdir()
    for name in ("z.jsonl", "b/a.json", "b/notes.txt", "a.pb.gz"):
        (tmp_path / name).write_bytes(b"")
    found = files([tmp_path, tmp_path / "z.jsonl"])
    assert [str(path.relative_to(tmp_path)) for path in found] == ["a.pb.gz", "b/a.json", "z.jsonl", "z.jsonl"]


@pytest.mark.parametrize(("name", "says"), [("missing.jsonl", "does not exist"), ("notes.txt", "not an OTLP file")])
def test_a_path_that_cannot_be_meant_is_refused_before_anything_is_imported(tmp_path, name, says):
    (tmp_path / "good.jsonl").write_bytes(line(1))
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(UsageError, match=says):
        import_paths(tmp_path / "home", [tmp_path / "good.jsonl", tmp_path / name], ConverterOptions())
    assert not (tmp_path / "home").exists()


def test_an_import_without_a_collector_ends_with_everything_in_the_lake_once(tmp_path):
    path, home = tmp_path / "log.jsonl", tmp_path / "home"
    path.write_bytes(b"\n".join([line(n) for n in range(1, 6)] + [b"{", line(1)]))
    seen: list[int] = []
    report = import_paths(home, [path], ConverterOptions(), seen.append)
    assert (report.files, report.records, report.spans) == (1, 6, 6)
    assert report.problems[0].startswith(f"{path}:6: not JSON")
    assert seen == [1, 2, 3, 4, 5, 6]
    again = import_paths(home, [path], ConverterOptions())
    assert again.spans == 6
    with Lake.open(home) as lake:
        (counts,) = lake.query("counts").to_dicts()
    assert (counts["spans"], counts["traces"], counts["unsettled_traces"]) == (5, 5, 0)


def test_a_file_with_thousands_of_bad_parts_does_not_drown_the_report(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"{\n" * 5000 + line(1))
    report = import_paths(tmp_path / "home", [path], ConverterOptions())
    assert report.spans == 1
    assert len(report.problems) == 21
    assert report.problems[-1] == f"{path}: 4980 more of its parts are bad"
