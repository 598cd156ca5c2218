"""Which of our model names and an invoice's mean the same model: prefixes, snapshot dates and display names. Pure.

    key      the name without the provider's prefix, in one spelling: "Claude Sonnet 4.5" is claude-sonnet-4-5
    family   the key without its snapshot's date: gpt-4o-2024-08-06 is of gpt-4o

Equal keys are the same model. Names of one family are, when one of the sides has only one of them; which of several
snapshots an undated name meant is not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

_REGION = re.compile(r"^(us|eu|apac|global|au|jp|us-gov)\.")
_VENDOR = re.compile(r"^(anthropic|meta|amazon|mistral|cohere|openai|deepseek|ai21|qwen)\.")
_REVISION = re.compile(r"(-v\d+)?(:\d+)?$|-latest$|:latest$")
_DATE = re.compile(r"-(20\d{2}-\d{2}-\d{2}|20\d{6}|\d{4})$")


@dataclass(frozen=True)
class Names:
    """Name -> the name that both sides are shown under. `unsure`: a name of one side -> names it may mean."""

    ours: Mapping[str, str]
    theirs: Mapping[str, str]
    unsure: Mapping[str, tuple[str, ...]]


@lru_cache(maxsize=4096)
def key(name: str) -> str:
    """A model's name without its provider's prefix, in one spelling."""
    plain = re.sub(r"[\s_]+", "-", name.strip().lower()).rpartition("/")[2].replace("@", "-")
    plain = _VENDOR.sub("", _REGION.sub("", plain))
    plain = _REVISION.sub("", plain)
    if plain.startswith("claude"):
        plain = _claude(plain.replace(".", "-"))
    return plain


@lru_cache(maxsize=4096)
def family(name: str) -> str:
    """The key without the date of its snapshot."""
    return _DATE.sub("", key(name))


def match(ours: Iterable[str], theirs: Iterable[str], given: Mapping[str, str] | None = None) -> Names:
    """Pairs the names of both sides. `given`: one of ours -> theirs, said by hand."""
    billed = sorted(set(theirs))
    found: dict[str, str] = {name: (given or {}).get(name, "") for name in sorted(set(ours))}
    by_key = {key(name): name for name in reversed(billed)}
    for name, label in found.items():
        found[name] = label or (name if name in billed else by_key.get(key(name), ""))
    shown = {name: by_key[key(name)] for name in billed}  # two spellings of one key are one model
    unsure: dict[str, tuple[str, ...]] = {}
    for name in [name for name, label in found.items() if not label]:
        kin = sorted({shown[other] for other in billed if family(other) == family(name)})
        mine = [other for other in found if family(other) == family(name)]
        if len(kin) == 1:
            found[name] = kin[0]
        elif kin and len(mine) == 1:
            found[name] = family(name)
            shown.update({other: family(name) for other in billed if family(other) == family(name)})
        else:
            found[name] = name
            if kin:
                unsure[name] = tuple(kin)
    return Names(found, shown, unsure)


def _claude(name: str) -> str:
    """claude-3-5-haiku and "Claude Haiku 3.5" alike: words before numbers, the date last."""
    dated = re.fullmatch(r"(.+?)-?((?:20\d{2}-\d{2}-\d{2})|(?:20\d{6}))?", name)
    assert dated is not None
    parts = dated[1].split("-")
    words = [part for part in parts if not part.isdigit()]
    numbers = [part for part in parts if part.isdigit()]
    return "-".join([*words, *numbers, *([dated[2].replace("-", "")] if dated[2] else [])])
