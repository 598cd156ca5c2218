"""Four calls, imported as OTLP spans into a lake, whose invoices stand in golden/invoices; and their costs by hand.

day 1  gpt-4o   53,440 input at 2.5, 5,760 cached at 1.25, 10,646 output at 10 USD per million    0.24726
day 2  gpt-4o   100,000 input, 20,000 output                                                      0.45
day 1  claude   100,000 input at 3, 800,000 read at 0.3, 100,000 stored at 3.75, 50,000 output at 15    1.665
day 2  claude   40,000 input, 2,000 output                                                        0.15
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from otlp_traces import SECOND, chat, span, traces_body

from ingest.importers.otlp_files import import_paths
from ingest.options import ConverterOptions
from ingest.pricing import Price
from ingest.spans import Span

INVOICES = Path(__file__).parent / "golden" / "invoices"
DAY_1 = 1_793_491_200 * SECOND
"""2026-11-01T00:00:00Z"""
HOUR = 3600 * SECOND
GPT, CLAUDE = "gpt-4o-2024-08-06", "claude-sonnet-4-5-20250929"
PRICES = (
    Price(GPT, 2.5, 10.0, cache_read=1.25),
    Price(CLAUDE, 3.0, 15.0, cache_read=0.3, cache_write=3.75),
)
TOML = f"""
[[prices]]
model = "{GPT}"
input = 2.5
output = 10.0
cache_read = 1.25

[[prices]]
model = "{CLAUDE}"
input = 3.0
output = 15.0
cache_read = 0.3
cache_write = 3.75
"""
OPENAI_USD, ANTHROPIC_USD = 0.24726 + 0.45, 1.665 + 0.15


def call(number: int, model: str, at_ns: int, given: int | None, answered: int | None, **more: object) -> Span:
    """A model call as a trace of its own."""
    provider = "anthropic" if model.startswith("claude") else "openai"
    attributes = {**chat(model, given, answered, **more), "gen_ai.provider.name": provider}
    status = str(more["status"]) if "status" in more else None
    return span(number, attributes, trace=number, start_ns=at_ns, end_ns=at_ns + SECOND, status=status)


FOUR = (
    call(1, GPT, DAY_1 + HOUR, 59_200, 10_646, gen_ai__usage__cache_read__input_tokens=5_760),
    call(2, GPT, DAY_1 + 24 * HOUR + HOUR // 2, 100_000, 20_000),
    call(
        3,
        CLAUDE,
        DAY_1 + 12 * HOUR,
        1_000_000,
        50_000,
        gen_ai__usage__cache_read__input_tokens=800_000,
        gen_ai__usage__cache_creation__input_tokens=100_000,
    ),
    call(4, CLAUDE, DAY_1 + 36 * HOUR, 40_000, 2_000),
)


def lake_of(home: Path, spans: Iterable[Span]) -> Path:
    """A home whose lake holds the calls, as `retroute import` leaves it."""
    file = home.parent / f"{home.name}.json"
    file.write_bytes(traces_body(spans))
    import_paths(home, [file], ConverterOptions(quiet_s=0.0, prices=PRICES))
    (home / "retroute.toml").write_text(TOML, encoding="utf-8")
    return home
