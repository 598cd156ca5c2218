"""Hardware that is paid by the hour -> USD per million tokens: GPUs of one's own, or provisioned throughput."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Hosted:
    """What runs a model. `units`: GPUs, or provisioned units, of `usd_per_hour` each. Throughput is that of all units
    together, at full load; `utilization` is the share of the paid hours in which they work.

    With one `tokens_per_second` every token costs the same. With one for input and one for output each class costs the
    time it takes. Raises ValueError when neither is given, or both.
    """

    usd_per_hour: float
    units: float = 1.0
    tokens_per_second: float | None = None
    input_tokens_per_second: float | None = None
    output_tokens_per_second: float | None = None
    utilization: float = 1.0

    def __post_init__(self) -> None:
        apart = (self.input_tokens_per_second, self.output_tokens_per_second)
        if apart != (None, None) if self.tokens_per_second is not None else None in apart:
            raise ValueError("needs tokens_per_second, or input_tokens_per_second and output_tokens_per_second")

    @property
    def input(self) -> float:
        """USD per million input tokens."""
        return self._per_million(self.tokens_per_second or self.input_tokens_per_second)

    @property
    def output(self) -> float:
        """USD per million output tokens."""
        return self._per_million(self.tokens_per_second or self.output_tokens_per_second)

    def _per_million(self, tokens_per_second: float | None) -> float:
        assert tokens_per_second is not None
        return self.usd_per_hour * self.units / 3600 / self.utilization / tokens_per_second * 1e6
