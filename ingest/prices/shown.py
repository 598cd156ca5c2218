"""What a model costs, for people: the way to its entry, prices by service tier and prompt length, and its history."""

from __future__ import annotations

from ingest.prices.fields import TIERS
from ingest.prices.rates import CLASSES, STANDARD
from ingest.pricing import Key, Prices


def shown(prices: Prices, model: str, provider: str | None, day: str | None) -> dict[str, object]:
    """{model, provider, at, price, problem, rates, history}. `rates` are rows {tier, above_tokens, <class>: USD}: per
    million tokens, or each for requests and tools. `history` rows say what each list changed under the entry's name."""
    key = Key((model,), provider, STANDARD, day)
    quote = prices.quote(key, 0, 0)
    rows: list[dict[str, object]] = []
    for tier in (STANDARD, *TIERS.values()):
        tiered = Key((model,), provider, tier, day)
        for above in (0, *prices.thresholds(tiered)):
            rates = prices.quote(tiered, above + 1 if above else 0, 0).rates
            if rates.missing is None:
                usd = zip(CLASSES, rates.usd, strict=True)
                told = {c: _told(c, value) for c, value in usd if value is not None and (value or c != "request")}
                rows.append({"tier": tier, "above_tokens": above, **told})
    found = prices.book.find(model, provider, day)
    name = found.entry.name if found.entry else model
    history = [
        {
            "valid_from": version.valid_from,
            "list": version.listed,
            "input": _per_million(version.fields, "input_cost_per_token"),
            "output": _per_million(version.fields, "output_cost_per_token"),
            "listed": version.fields is not None,
        }
        for version in prices.book.versions(name)
    ]
    return {
        "model": model,
        "provider": provider,
        "at": day,
        "price": quote.price,
        "problem": quote.rates.missing,
        "rates": rows,
        "history": history,
    }


def _told(name: str, usd: float) -> float:
    return round(usd * 1e6, 9) if name in CLASSES[:10] else usd


def _per_million(fields: object, name: str) -> float | None:
    value = fields.get(name) if isinstance(fields, dict) else None
    return round(float(value) * 1e6, 9) if isinstance(value, int | float) else None
