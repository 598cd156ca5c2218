"""The benchmark of the evidence: intervals, points, gate and learning beside the peers, on logs whose truth is known.

    python -m tests.bench.evidence --out evidence.json [--data FOLDER] [--logs 200] [--cells 'coverage/*/soft/*' ...]

Cells are named part/world/regime/n (`coverage`, `accuracy`, `learning`) or gate/kind/n; --list prints those there are.
Prints tables in Markdown, promises first, and writes one JSON. What is measured is appended to a store of JSON lines
(--store), so that a run can be stopped, resumed and widened. --quick takes about a minute and needs no data and no
peer. Logs of a folder of graded answers (--data, or EVIDENCE_DATA) and peers (see `peers`) join where they are present.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

from . import gate, learning, measure, peers, promises, speed, work  # noqa: E402 (threads are pinned before numpy loads)

PEERS = ("quickstart", "boosted", "skdr")
"""obp with its quickstart's reward model, obp with gradient boosting, skdr-eval."""
QUICK = (
    "coverage/synthetic/soft/1000",
    "coverage/synthetic/eps10/200",
    "accuracy/synthetic/soft/3000",
    "gate/mixed/1000",
    "learning/synthetic/soft/3000",
)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.evidence")
    folder = os.environ.get("EVIDENCE_DATA")
    parser.add_argument("--out", type=Path, required=True, help="the JSON to write")
    parser.add_argument("--store", type=Path, help="JSON lines of what is measured; default: beside --out")
    parser.add_argument("--data", type=Path, default=Path(folder) if folder else None)
    parser.add_argument("--cells", nargs="+", help="patterns of names; default: all")
    parser.add_argument("--logs", type=int, default=200, help="logs, or nights, of each cell")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=["quickstart", "skdr"], help="none: no peer")
    parser.add_argument("--resamples", type=int, default=200, help="of obp's bootstrap; 0: no intervals")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--list", action="store_true")
    return parser.parse_args()


def _asked(name: str, resamples: int) -> peers.Asked:
    if name == "skdr":
        return peers.Asked("skdr", resamples=resamples)
    return peers.Asked("obp", "boosted" if name == "boosted" else "quickstart", resamples)


def main() -> None:
    arguments = _arguments()
    patterns = arguments.cells or (QUICK if arguments.quick else ("*",))
    logs = min(arguments.logs, 20) if arguments.quick else arguments.logs
    store = arguments.store or arguments.out.with_suffix(".jsonl")
    wanted = work.cells(patterns, arguments.data)
    if arguments.list:
        print("\n".join(cell.name for cell in wanted))
        return
    asked = () if arguments.quick else tuple(_asked(name, arguments.resamples) for name in arguments.peers)
    for absent in {one.peer for one in asked if peers.python(one.peer) is None}:
        print(f"no environment for {absent}: left out\n")
    asked = tuple(one for one in asked if peers.python(one.peer) is not None)
    work.run(wanted, logs, store, folder=arguments.data, asked=asked, processes=arguments.processes)
    records = list(work.read(store))
    found, gates, lessons = measure.measures(records), gate.rates(records), learning.lessons(records)
    speeds = speed.speeds(records)
    kept = promises.promises(records, gates, lessons, speeds)
    tables = [promises.table(kept), gate.table(gates), learning.table(lessons), measure.table(found)]
    print("\n\n".join(text for text in tables if text))
    result = {
        "promises": [vars(one) for one in kept],
        "gate": [vars(one) for one in gates],
        "learning": [{**vars(one), "values": {k: vars(v) for k, v in one.values.items()}} for one in lessons],
        "speed": [vars(one) for one in speeds],
        "measures": measure.as_rows(found),
    }
    arguments.out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
