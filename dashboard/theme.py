"""The look: one neutral scale, and colour for verdicts only, colour-blind safe (after Okabe and Ito), beside a word.

Streamlit itself reads the same tones from .streamlit/config.toml.
"""

from __future__ import annotations

from dataclasses import dataclass

VERDICT_COLOURS = {"deploy": "#009e73", "promising": "#2b83c6", "keep": "#7d8896", "cannot_tell": "#d08700"}
"""Mid-tones: at least 3:1 against both backgrounds, for marks; text stays in ink."""

HOLDS, FAILS = VERDICT_COLOURS["deploy"], "#d55e00"


@dataclass(frozen=True)
class Ink:
    """Neutral tones of one mode, from the page to the text."""

    page: str
    panel: str
    line: str
    faint: str
    """Grid lines and forbidden zones."""
    quiet: str
    """Bars of what is so today."""
    muted: str
    """Secondary text; at least 4.5:1 against the page."""
    text: str


LIGHT = Ink(
    page="#ffffff", panel="#f6f7f8", line="#e2e5e9", faint="#eceef1", quiet="#aab3be", muted="#5c6673", text="#1b2129"
)
DARK = Ink(
    page="#14171b", panel="#1d2126", line="#30363e", faint="#262b32", quiet="#66717d", muted="#9aa5b1", text="#e9ecef"
)


def ink(mode: str | None) -> Ink:
    """The tones of Streamlit's theme type; light where it is not known."""
    return DARK if mode == "dark" else LIGHT
