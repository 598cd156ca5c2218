"""A latency model: time to first token + output tokens x time per token, fitted to measured requests.

Both parts are log-normal, one fit per model size class, over the good requests of llmperf (550 tokens in, 150 out).
Replicate's requests are left out: their seconds are mostly container starts. Input length does not enter, since llmperf
has one only. A draw is fixed by its key, so the truth and the spans tell the same story.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from statistics import NormalDist

import polars as pl

SIZE_CLASS = {  # sizes of the closed models are not public: their class is an assumption
    "llama3-chatqa-1.5-70b": "70b",
    "qwen2.5-7b-instruct": "7b",
    "gemma-2-9b-it": "7b",
    "gpt-4": "70b",
    "gpt-4-1106-preview": "70b",
    "gpt-3.5-turbo": "13b",
    "chat-bison-001": "13b",
    "mixtral-8x7b-instruct": "13b",  # 12.9 billion parameters are active per token
}
SQL_MEDIAN_S, SQL_SIGMA = 0.012, 0.6  # a query on a small database, an assumption


@dataclass(frozen=True)
class LogNormal:
    """exp(mu + sigma z), in seconds."""

    mu: float
    sigma: float

    def draw(self, key: str) -> float:
        """The draw that belongs to this key."""
        uniform = (int.from_bytes(sha256(key.encode()).digest()[:6], "big") + 0.5) / 2**48
        return math.exp(self.mu + self.sigma * NormalDist().inv_cdf(uniform))


@dataclass(frozen=True)
class LatencyModel:
    """Times per size class: `first` token and each further `token`."""

    first: Mapping[str, LogNormal]
    token: Mapping[str, LogNormal]

    @classmethod
    def fit(cls, data: Path) -> LatencyModel:
        """From serving_traces/llmperf_requests.parquet."""
        good = pl.read_parquet(data / "serving_traces/llmperf_requests.parquet").filter(
            ~pl.col("error"), pl.col("provider") != "replicate"
        )
        good = good.with_columns(
            pl.col("model").str.extract(r"(\d+b)").alias("size"),
            ((pl.col("latency_s") - pl.col("ttft_s")) / (pl.col("output_tokens") - 1)).alias("per_token_s"),
        )
        sizes = {key[0]: frame for key, frame in good.group_by(["size"])}
        return cls(
            {size: _fit(frame["ttft_s"]) for size, frame in sizes.items()},
            {size: _fit(frame["per_token_s"]) for size, frame in sizes.items()},
        )

    def call_us(self, model: str, output_tokens: int, key: str) -> int:
        """Duration of one model call in microseconds."""
        size = SIZE_CLASS[model]
        first, token = self.first[size].draw(f"first|{key}"), self.token[size].draw(f"token|{key}")
        return microseconds(first + max(output_tokens - 1, 0) * token)

    def tool_us(self, key: str) -> int:
        """Duration of one SQL query in microseconds."""
        return microseconds(LogNormal(math.log(SQL_MEDIAN_S), SQL_SIGMA).draw(f"sql|{key}"))


def microseconds(seconds: float) -> int:
    """Rounded, at least one."""
    return max(1, round(seconds * 1e6))


def _fit(values: pl.Series) -> LogNormal:
    logs = [math.log(value) for value in values.sort().to_list()]
    mean = math.fsum(logs) / len(logs)
    variance = math.fsum((value - mean) ** 2 for value in logs) / (len(logs) - 1)
    return LogNormal(mean, math.sqrt(variance))
