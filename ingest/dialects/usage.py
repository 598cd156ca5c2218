"""How an emitter counts its input: with the cached tokens inside, as OpenTelemetry's convention has it, or beside them.

Emitters of different age and provider disagree, so it is decided call by call, and the rule that decided is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

EXCLUSIVE_SCOPES = ("openlit.instrumentation.anthropic",)
"""Instrumentations that pass on Anthropic's own count, which leaves the cached tokens out, without saying so."""

CONVENTION = "inclusive: convention"
NOTHING_CACHED = "nothing cached"


@dataclass(frozen=True, slots=True)
class Input:
    """All input tokens of a call, the cached ones inside, and how that was found."""

    tokens: int
    rule: str


def all_input(
    given: int, read: int, written: int, *, output: int = 0, total: int | None = None, scope: str = ""
) -> Input:
    """All input of a call. `total` is the emitter's own sum with the output, if it sent one.

    A total that holds the cached tokens twice over the input shows that the input is without them; one that equals
    input and output shows nothing, since some add up what they subtracted from.
    """
    cached = read + written
    if not cached:
        return Input(given, NOTHING_CACHED)
    if cached > given:
        return Input(given + cached, "exclusive: more cached than input")
    if total is not None and total == given + cached + output:
        return Input(given + cached, "exclusive: the total adds the cached tokens")
    if scope.startswith(EXCLUSIVE_SCOPES):
        return Input(given + cached, f"exclusive: {scope} leaves them out")
    return Input(given, CONVENTION)
