"""The README's tables of true values, computed from the truth."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from optimizer import replay_truth
from optimizer.replay_truth import Replay

ESCAPED = "\\|"
VALUES = ("quality", "cost_usd", "latency_s")


def table(truth: pl.DataFrame) -> str:
    """A Markdown table: the true mean of every single arm over all prompts, and of the logging policy."""
    arms = truth.group_by("action", maintain_order=True).agg(
        pl.col("logging_probability").mean(),
        pl.col("logged").sum(),
        *(pl.col(name).mean() for name in VALUES),
    )
    n = truth["trace_id"].n_unique()
    expected = [float((truth[name] * truth["logging_probability"]).sum()) / n for name in VALUES]
    rows = [
        _row(f"`{r['action']}`", r["logging_probability"], r["logged"], [r[v] for v in VALUES]) for r in arms.to_dicts()
    ]
    head = ["| arm | probability | traces | quality | USD per 1,000 | latency s |", "|---|---|---|---|---|---|"]
    return "\n".join([*head, *rows, _row("logging policy", 1.0, n, expected)])


def table_of_routes(world: Replay) -> str:
    """A Markdown table: the true mean of fixed routes over all traces, and of the logging policy."""
    strong, cheap, *others = world.arms
    limit = world.script.limit
    routes = [
        [(strong, limit)],
        [(strong, 3)],
        [(cheap, limit)],
        [(cheap, 1)],
        [(cheap, 3)],
        *([(other, limit)] for other in others),
        [(cheap, 2), (strong, limit)],
        [(cheap, 1), (strong, 3)],
    ]
    rows = [(_words(route, limit), replay_truth.of_route(world, route)) for route in routes]
    lines = ["| route | quality | USD per 1,000 | latency s |", "|---|---|---|---|"]
    once = list({repr(steps): task for task, steps in world.tasks.items()}.values())  # all are asked equally often
    for name, policy in [*rows, ("logging policy", replay_truth.of_script(world))]:
        true = replay_truth.value(world, policy, once)
        cells = (f"{true.quality:.3f}", f"{1000 * true.cost_usd:.3f}", f"{true.latency_s:.2f}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def put_tables(readme: Path, tables: Mapping[str, str]) -> None:
    """Rewrites the text between `<!-- truth SERVICE -->` and `<!-- end -->` in the README, if there is one."""
    if not readme.exists():
        return
    text = readme.read_text()
    for service, lines in tables.items():
        block = f"<!-- truth {service} -->\n{lines}\n<!-- end -->"
        pattern = rf"<!-- truth {re.escape(service)} -->\n.*?<!-- end -->"
        text = re.sub(pattern, block.replace("\\", r"\\"), text, flags=re.DOTALL)
    readme.write_text(text)


def _words(route: list[tuple[str, int]], limit: int) -> str:
    parts = [
        f"`{arm.replace('|', ESCAPED)}`" + (" to the end" if steps == limit else f", {steps} step{'s'[: steps > 1]}")
        for arm, steps in route
    ]
    return ", then ".join(parts)


def _row(name: str, probability: float, traces: int, values: list[float]) -> str:
    quality, cost, latency = values
    cells = (f"{probability:.3f}", f"{traces:,}", f"{quality:.3f}", f"{1000 * cost:.3f}", f"{latency:.2f}")
    # a pipe within a table cell must be escaped
    return f"| {name.replace('|', ESCAPED)} | " + " | ".join(cells) + " |"
