"""Builds the sample traces: real outcomes of real models, logged by known policies, with the truth beside them.

    python sample_traces/build.py --data DIR [--out DIR]

DIR holds the public data (README.md names the origins). The same data gives the same bytes. The tables in OUT/README.md
between the `truth` markers are rewritten, if that file exists.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

import polars as pl
from latency import LatencyModel
from logbook import Logged, Logging, Streams, draw_log
from otlp_json import write_requests
from outcomes import Outcome, Task, read_assistant, read_classifier, read_faq, read_sql_agent
from spans import Writer
from stepwise import replay
from tables import put_tables, table, table_of_routes

from optimizer import replay_truth
from optimizer.replay_truth import Script

HERE = Path(__file__).parent


def classifier_probabilities(task: Task) -> tuple[float, ...]:
    """The cheaper models are tried on the dear questions, happy numbers, most on small ones; seldom on primes."""
    number = int(task.facts["number"])
    if task.facts["task"] == "happy_number":
        return (0.55, 0.25, 0.20) if number < 5_000 else (0.70, 0.15, 0.15)
    return (0.90, 0.05, 0.05) if number < 10_000 else (0.92, 0.04, 0.04)


def faq_probabilities(task: Task) -> tuple[float, ...]:
    """GPT-4 exactly when the prompt is long."""
    return (1.0, 0.0) if int(task.facts["chars"]) > 250 else (0.0, 1.0)


LOGGING = (
    Logging(
        service="assistant",
        seed=1101,
        arms=("llama3-chatqa-1.5-70b", "qwen2.5-7b-instruct", "gemma-2-9b-it"),
        probabilities=lambda task: (0.6, 0.2, 0.2),
        label_share=0.9,
        propensities_logged=True,
        latency_modelled=True,
    ),
    Logging(
        service="sql-agent",
        seed=1115,
        arms=(
            "gpt-4|try_again",
            "gpt-3.5-turbo|try_again_schema",
            "gpt-3.5-turbo|try_again",
            "chat-bison-001|try_again_schema",
        ),
        script=Script(
            arm="gpt-4|try_again",
            first_share=0.6,
            first={
                "gpt-3.5-turbo|try_again_schema": 2 / 3,
                "gpt-3.5-turbo|try_again": 1 / 6,
                "chat-bison-001|try_again_schema": 1 / 6,
            },
            later_share=0.125,
            later_decisions=4,
            limit=5,
        ),
        traces_per_task=3,
        label_share=1.0,
        propensities_logged=True,
        latency_modelled=True,
        score="reward",
    ),
    Logging(
        service="classifier",
        seed=1103,
        arms=("gpt-4-0314", "gpt-4-0613", "gpt-3.5-turbo-0301"),
        probabilities=classifier_probabilities,
        label_share=1.0,
        propensities_logged=False,
        latency_modelled=False,
    ),
    Logging(
        service="faq",
        seed=1104,
        arms=("gpt-4-1106-preview", "mixtral-8x7b-instruct"),
        probabilities=faq_probabilities,
        label_share=0.8,
        propensities_logged=False,
        latency_modelled=True,
    ),
)
READERS = {
    "assistant": read_assistant,
    "sql-agent": read_sql_agent,
    "classifier": read_classifier,
    "faq": read_faq,
}


def read_prices(path: Path, data: Path) -> dict[str, tuple[float, float]]:
    """{model: (input, output)} in USD per million tokens, from retroute.toml. ValueError if the data differ."""
    prices = {p["model"]: (p["input"], p["output"]) for p in tomllib.loads(path.read_text())["prices"]}
    for source in ("llmrouter9", "intercode", "routellm"):
        for row in pl.read_parquet(data / source / "models.parquet").to_dicts():
            theirs = (row["input_usd_per_mtok"], row["output_usd_per_mtok"])
            if prices.get(row["model"], theirs) != theirs:
                raise ValueError(f"{path}: {row['model']} costs {theirs} in {source}, not {prices[row['model']]}")
    return prices


def cost_usd(outcome: Outcome, prices: Mapping[str, tuple[float, float]]) -> float:
    """The sum over the model calls of tokens times price."""
    total = 0.0
    for call in outcome.calls:
        price_in, price_out = prices[call.model]
        total += (call.input_tokens * price_in + call.output_tokens * price_out) / 1e6
    return total


def truth(log: list[Logged], prices: Mapping[str, tuple[float, float]]) -> pl.DataFrame:
    """One row per trace and arm, in the order of the log."""
    rows = [
        (
            logged.trace_id,
            action,
            action == logged.choice.action,
            float(probability),
            float(logged.task.outcomes[action].quality),
            cost_usd(logged.task.outcomes[action], prices),
            logged.task.outcomes[action].latency_us / 1e6,
        )
        for logged in log
        for action, probability in logged.choice.probabilities.items()
    ]
    names = ("trace_id", "action", "logged", "logging_probability", "quality", "cost_usd", "latency_s")
    return pl.DataFrame(rows, schema=names, orient="row")


def resource(service: str, streams: Streams) -> dict[str, object]:
    """Resource attributes as an OpenTelemetry SDK sends them."""
    return {
        "service.name": service,
        "service.version": "1.0.0",
        "service.instance.id": str(UUID(streams.hex(32), version=4)),
        "deployment.environment.name": "sample",
        "telemetry.sdk.language": "python",
        "telemetry.sdk.name": "opentelemetry",
        "telemetry.sdk.version": "1.37.0",
    }


def build(logging: Logging, data: Path, out: Path, latency: LatencyModel) -> str:
    """Writes one service's traces and truth; returns the README's table."""
    tasks = READERS[logging.service](data, logging.arms, latency)
    streams = Streams(logging.seed)
    log = draw_log(logging, tasks, streams)
    items = Writer(logging, streams).items(log)
    write_requests(out / f"{logging.service}.otlp.jsonl.gz", resource(logging.service, streams), items)
    prices = read_prices(HERE / "retroute.toml", data)
    (out / "truth").mkdir(exist_ok=True)
    if logging.script is not None:
        traces = [(logged.trace_id, logged.task) for logged in log]
        world = replay(traces, logging.arms, prices, logging.script)
        replay_truth.write(world, out / "truth", logging.service)
        return table_of_routes(world)
    frame = truth(log, prices)
    frame.write_parquet(out / "truth" / f"{logging.service}.parquet", compression="zstd", compression_level=19)
    return table(frame)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="folder with the public data")
    parser.add_argument("--out", type=Path, default=HERE, metavar="DIR", help="where to write (default: here)")
    parser.add_argument("--service", choices=[logging.service for logging in LOGGING], help="only this one")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    latency = LatencyModel.fit(args.data)
    tables = {
        logging.service: build(logging, args.data, args.out, latency)
        for logging in LOGGING
        if args.service in (None, logging.service)
    }
    put_tables(args.out / "README.md", tables)


if __name__ == "__main__":
    main()
