"""Which traces the lake has, by 64 bits of a hash each: ten million take 80 MB.

A trace that is new to the lake can be settled from memory, without a look into the lake. Two traces with one hash only
cost such a look.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_MOST_LOOSE = 200_000
"""Keys outside the sorted array, where one takes ten times the memory."""

Keys = npt.NDArray[np.uint64]


def keys_of(trace_ids: Sequence[str]) -> Keys:
    """The keys of some traces, as DuckDB's `md5_number_upper` gives them: shape (n,)."""
    digests = b"".join(hashlib.md5(trace_id.encode(), usedforsecurity=False).digest() for trace_id in trace_ids)
    return np.frombuffer(digests, dtype="<u8")[::2].astype(np.uint64)


class KnownTraces:
    """Grows only: what retention drops stays known."""

    def __init__(self, keys: Keys) -> None:
        self._sorted = np.sort(keys)
        self._loose: set[int] = set()

    def unseen(self, trace_ids: Sequence[str]) -> list[str]:
        """Those of some traces that are not known; from now on they are."""
        if not trace_ids:
            return []
        keys = keys_of(trace_ids)
        places = np.minimum(np.searchsorted(self._sorted, keys), max(len(self._sorted) - 1, 0))
        old = self._sorted[places] == keys if len(self._sorted) else np.zeros(len(keys), dtype=bool)
        found = []
        for trace_id, key, known in zip(trace_ids, keys.tolist(), old.tolist(), strict=True):
            if not known and key not in self._loose:
                self._loose.add(key)
                found.append(trace_id)
        if len(self._loose) > _MOST_LOOSE:
            loose = np.fromiter(self._loose, dtype=np.uint64, count=len(self._loose))
            self._sorted = np.sort(np.concatenate([self._sorted, loose]), kind="stable")
            self._loose.clear()
        return found
