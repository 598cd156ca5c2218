"""Every call of real telemetry costs its usage times the list price, worked out here from what the application did.

The golden cases always run; where the environment names a larger collection (see tests/corpus.py), that runs too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import corpus
import pytest

from ingest.lake import Lake

M = 1e-6


@dataclass(frozen=True)
class ListPrice:
    """USD per million tokens, as the providers' public pages said in 2025 and 2026."""

    input: float
    output: float = 0.0
    read: float | None = None
    write: float | None = None

    def usd(self, given: int, answered: int, read: int, written: int) -> float:
        """`given` holds what was read from and written to a cache."""
        parts = [
            (given - read - written, self.input),
            (answered, self.output),
            (read, self.read),
            (written, self.write),
        ]
        return sum(count * price * M for count, price in parts if count and price is not None)


LIST_PRICES: Mapping[str, ListPrice] = {
    "gpt-4o-2024-08-06": ListPrice(2.5, 10.0, 1.25),
    "gpt-4o-mini-2024-07-18": ListPrice(0.15, 0.6, 0.075),
    "gpt-4.1-2025-04-14": ListPrice(2.0, 8.0, 0.5),
    "gpt-4.1-mini-2025-04-14": ListPrice(0.4, 1.6, 0.1),
    "gpt-4.1-nano-2025-04-14": ListPrice(0.1, 0.4, 0.025),
    "gpt-5-2025-08-07": ListPrice(1.25, 10.0, 0.125),
    "gpt-5-mini-2025-08-07": ListPrice(0.25, 2.0, 0.025),
    "text-embedding-3-small": ListPrice(0.02),
    "text-embedding-3-large": ListPrice(0.13),
    "claude-haiku-4-5-20251001": ListPrice(1.0, 5.0, 0.1, 1.25),
    "claude-sonnet-4-5-20250929": ListPrice(3.0, 15.0, 0.3, 3.75),
    "gemini-2.5-pro": ListPrice(1.25, 10.0, 0.125),
    "gemini-2.5-flash-001": ListPrice(0.3, 2.5, 0.03),
}
UNPRICED: Mapping[str, str] = {
    "prod-embed": "a deployment's own name; no list can know what is behind it",
}
"""Model that answered -> why no list prices it."""

GOLDEN = corpus.cases(corpus.GOLDEN)


def rows_of(home: Path, cases: list[corpus.Case]) -> Mapping[str, list[dict[str, Any]]]:
    Lake.open(home, write=True).close()
    corpus.ingest_cases(home, cases)
    return corpus.calls_by_trace(home)


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[dict[str, Any]]]:
    return rows_of(tmp_path_factory.mktemp("golden") / "home", GOLDEN)


def wrong_costs(case: corpus.Case, rows: Mapping[str, list[dict[str, Any]]]) -> tuple[list[str], int]:
    """What is amiss with the costs of a case's calls, and how many have no counts on the wire."""
    truth = case.truth
    own = [row for trace in truth["payload_facts"]["trace_ids"] for row in rows.get(trace, ())]
    by_counts = {
        (row["input_tokens"], row["output_tokens"] or 0): row
        for row in own
        if row["kind"] in ("llm", "embedding") and row["input_tokens"] is not None
    }
    found, missing = [], 0
    for call, seen in zip(truth["llm_calls"], truth["found"], strict=True):
        usage = call.get("usage")
        if not usage or not (seen["spans"] or seen["weaker"]):
            continue
        row = by_counts.get((usage["input_tokens"], usage["output_tokens"] or 0))
        if row is None:  # whether it should be there is the matter of tests/test_corpus.py
            missing += 1
        elif call["model_returned"] in UNPRICED:
            if row["cost_usd"] is not None or not str(row["unpriced"]).startswith("no price for"):
                found.append(f"{call['model_returned']} should have no price: {row['cost_usd']}, {row['unpriced']}")
        elif row["cost_usd"] != pytest.approx(expected := usd(call, row), rel=1e-9):
            found.append(f"{call['model_returned']} costs {row['cost_usd']}, not {expected} ({row['unpriced']})")
    return found, missing


def usd(call: Mapping[str, Any], row: Mapping[str, Any]) -> float:
    """Usage times price. What is cached counts as far as the wire tells it: some emitters leave it out."""
    usage = call["usage"]
    read, written = usage["cached_input_tokens"] or 0, usage["cache_write_tokens"] or 0
    read = 0 if row["cache_read_tokens"] is None else read
    written = 0 if row["cache_write_tokens"] is None else written
    price = LIST_PRICES[call["model_returned"]]
    return price.usd(usage["input_tokens"], usage["output_tokens"] or 0, read, written)


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case.name)
def test_a_call_costs_its_usage_times_the_list_price(
    case: corpus.Case, golden: Mapping[str, list[dict[str, Any]]]
) -> None:
    assert wrong_costs(case, golden) == ([], 0)


def test_so_does_every_call_of_the_whole_collection(tmp_path: Path) -> None:
    if not corpus.FOLDER:
        pytest.skip("the environment names no collection")
    cases = corpus.cases(Path(corpus.FOLDER))
    rows = rows_of(tmp_path / "home", cases)
    found = {case.name: wrong_costs(case, rows) for case in cases}
    assert {name: wrong for name, (wrong, _) in found.items() if wrong} == {}
    assert sum(missing for _, missing in found.values()) <= 30  # their counts are in JSON text only, or nowhere


def test_most_calls_are_looked_at(golden: Mapping[str, list[dict[str, Any]]]) -> None:
    """No case passes because nothing of it is compared."""
    priced = [row for rows in golden.values() for row in rows if row["cost_usd"]]
    assert len(priced) > 40
    assert any(row["cache_read_tokens"] for row in priced)
    assert any(row["cache_write_tokens"] for row in priced)
    assert any(row["reasoning_tokens"] for row in priced)
