"""The benchmark of the evidence: intervals, points, gate and learning beside the peers, on logs whose truth is known.

    python -m tests.bench.evidence --out evidence.json [--data FOLDER] [--logs 200] [--cells 'coverage/*/soft/*' ...]

Prints tables in Markdown and writes one JSON. What is measured is appended to a store of JSON lines (--store), so that
a run can be stopped, resumed and widened; --quick takes about a minute and needs no data and no peer.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

from . import cells, measure, peers  # noqa: E402 (threads are pinned before numpy loads)

QUICK = ("coverage/synthetic/soft/200", "coverage/synthetic/eps10/1000", "accuracy/synthetic/soft/3000")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.evidence", description=__doc__)
    folder = os.environ.get("EVIDENCE_DATA")
    parser.add_argument("--out", type=Path, required=True, help="the JSON to write")
    parser.add_argument("--store", type=Path, help="JSON lines of what is measured; default: beside --out")
    parser.add_argument("--data", type=Path, default=Path(folder) if folder else None)
    parser.add_argument("--cells", nargs="+", default=["*"], help="patterns: part/world/regime/n")
    parser.add_argument("--logs", type=int, default=200)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--heads", nargs="*", default=["quickstart"], help="obp's: quickstart, boosted; none: no obp")
    parser.add_argument("--resamples", type=int, default=200, help="of obp's bootstrap; 0: no intervals")
    parser.add_argument("--quick", action="store_true")
    return parser.parse_args()


def main() -> None:
    arguments = _arguments()
    patterns, logs = (QUICK, min(arguments.logs, 20)) if arguments.quick else (arguments.cells, arguments.logs)
    store = arguments.store or arguments.out.with_suffix(".jsonl")
    heads = [] if arguments.quick or peers.python("obp") is None else arguments.heads
    asked = tuple(peers.Asked(kind, arguments.resamples) for kind in heads)
    wanted = cells.cells(patterns, arguments.data)
    cells.run(wanted, logs, store, folder=arguments.data, asked=asked, processes=arguments.processes)
    records = list(cells.read(store))
    found = measure.measures(records)
    print(measure.table(found))
    arguments.out.write_text(json.dumps({"measures": measure.as_rows(found)}, indent=1))


if __name__ == "__main__":
    main()
