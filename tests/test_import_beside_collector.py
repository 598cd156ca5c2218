"""Files are imported while a collector serves the home: both write the log, the collector's converter stores it all."""

from __future__ import annotations

import json
import threading

import httpx
from collector_process import CollectorProcess

from ingest.importers.otlp_files import import_paths
from ingest.lake import Lake
from ingest.options import ConverterOptions


def request(number: int) -> bytes:
    span = {"traceId": f"{number:032x}", "spanId": f"{number:016x}", "name": str(number), "startTimeUnixNano": "5"}
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()


def test_an_import_beside_a_running_collector_loses_nothing_of_either(tmp_path):
    home, path = tmp_path / "home", tmp_path / "log.jsonl"
    path.write_bytes(b"\n".join(request(n) for n in range(1, 501)))
    done = threading.Event()
    sent: list[int] = []

    with CollectorProcess(home, store=True) as running:

        def send() -> None:
            with httpx.Client() as client:
                while not done.is_set():
                    number = 1000 + len(sent)
                    headers = {"content-type": "application/json"}
                    assert client.post(f"{running.url}/v1/traces", content=request(number), headers=headers).is_success
                    sent.append(number)

        sender = threading.Thread(target=send)
        sender.start()
        try:
            report = import_paths(home, [path], ConverterOptions(quiet_s=0.2, commit_s=0.2))
        finally:
            done.set()
            sender.join()
        with Lake.open(home) as lake:
            imported = lake.sql("select count(*) from spans where length(name) < 4").item()
        assert (report.spans, imported) == (500, 500)  # stored when it returns
        assert running.stop()[0] == 0
    with Lake.open(home) as lake:
        assert lake.sql("select count(*) from spans").item() == 500 + len(sent)
    assert sent
