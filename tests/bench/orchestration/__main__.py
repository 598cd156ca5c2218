"""The benchmark of orchestration: what is learned where the optimum is known, beside d3rlpy; and how long it takes.

    python -m tests.bench.orchestration --out orchestration.json [--logs 3] [--quick]

Prints tables in Markdown, the promises first, and writes one JSON. Learned policies are evaluated exactly, by recursion
over all states of the world (`tests/mdp.py`). D3RLPY_VENV (default /tmp/d3rlpy-venv) is made by

    python3.11 -m venv $D3RLPY_VENV && $D3RLPY_VENV/bin/pip install d3rlpy==2.8.1

and left out where it is absent. Times are processor seconds of one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
sys.path.insert(0, str(Path(__file__).parents[2]))

from . import learned, speed  # noqa: E402 (threads are pinned before numpy loads)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.orchestration")
    parser.add_argument("--out", type=Path, required=True, help="the JSON to write")
    parser.add_argument("--logs", type=int, default=3, help="logs of the small world")
    parser.add_argument("--first", type=int, default=0, help="number of the first of them")
    parser.add_argument("--times", type=float, default=10.0, help="of our seconds, that each peer gets")
    parser.add_argument("--learners", nargs="+", default=[], help="of d3rlpy; default: all")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--decisions", type=int, default=100_000, help="of the log whose time is taken; 0: none")
    parser.add_argument("--quick", action="store_true", help="one log, no peer, 10,000 decisions")
    return parser.parse_args()


def main() -> None:
    arguments = _arguments()
    if arguments.quick:
        arguments.logs, arguments.no_peers, arguments.decisions = 1, True, min(arguments.decisions, 10_000)
    times = 0.0 if arguments.no_peers or learned.python() is None else arguments.times
    if not times and not arguments.no_peers:
        print("no environment for d3rlpy: left out\n")
    numbers = range(arguments.first, arguments.first + arguments.logs)
    records = [learned.run(number, times, arguments.learners) for number in numbers]
    found = learned.summary(records)
    timed = speed.run(arguments.decisions) if arguments.decisions else None
    kept = [*learned.promises(found), *(speed.promises(timed) if timed else [])]
    print(_table(["promise", "target", "found", "kept"], [[p.name, p.target, p.found, p.kept] for p in kept]))
    print()
    print(_table(["learner", "gain", "least", "seconds"], [[r.name, r.gain, r.least, r.seconds] for r in found]))
    result = {
        "promises": [vars(one) for one in kept],
        "learners": [vars(one) for one in found],
        "logs": records,
        "speed": timed,
    }
    arguments.out.write_text(json.dumps(result, indent=1))


def _table(head: list[str], rows: list[list[object]]) -> str:
    texts = [[f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *texts])


if __name__ == "__main__":
    main()
