"""The README's tables of true values, computed from the truth."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import polars as pl

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


def put_tables(readme: Path, truths: Mapping[str, pl.DataFrame]) -> None:
    """Rewrites the text between `<!-- truth SERVICE -->` and `<!-- end -->` in the README, if there is one."""
    if not readme.exists():
        return
    text = readme.read_text()
    for service, truth in truths.items():
        block = f"<!-- truth {service} -->\n{table(truth)}\n<!-- end -->"
        pattern = rf"<!-- truth {re.escape(service)} -->\n.*?<!-- end -->"
        text = re.sub(pattern, block.replace("\\", r"\\"), text, flags=re.DOTALL)
    readme.write_text(text)


def _row(name: str, probability: float, traces: int, values: list[float]) -> str:
    quality, cost, latency = values
    cells = (f"{probability:.3f}", f"{traces:,}", f"{quality:.3f}", f"{1000 * cost:.3f}", f"{latency:.2f}")
    # a pipe within a table cell must be escaped
    return f"| {name.replace('|', ESCAPED)} | " + " | ".join(cells) + " |"
