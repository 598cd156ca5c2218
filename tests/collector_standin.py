"""A collector whose converter stores nothing: what was acknowledged stays in the write-ahead log for a test to read.

    python tests/collector_standin.py HOME [PORT]
"""

from __future__ import annotations

import functools
import sys
import time
from pathlib import Path

from ingest import collector
from ingest.converter_child import ConverterChild


def convert_nothing(home: str, options: object, parent) -> None:
    (Path(home) / "converter-started").touch()
    while not parent.poll():
        time.sleep(0.02)
    (Path(home) / "converter-finished").touch()


if __name__ == "__main__":
    collector.ConverterChild = functools.partial(ConverterChild, main=convert_nothing)
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    collector.run(Path(sys.argv[1]), "127.0.0.1", port, 0, None, ready=lambda host, port: print(host, port, flush=True))
