"""Which traces and responses the lake has, by 64 bits of a hash each: ten million take 80 MB.

What is new to the lake can be settled from memory, without a look into the lake. Two ids with one hash only cost such
a look.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_MOST_LOOSE = 200_000
"""Keys outside the sorted array, where one takes ten times the memory."""

Keys = npt.NDArray[np.uint64]


def keys_of(ids: Sequence[str]) -> Keys:
    """The keys of some ids, as DuckDB's `md5_number_upper` gives them: shape (n,)."""
    digests = b"".join(hashlib.md5(name.encode(), usedforsecurity=False).digest() for name in ids)
    return np.frombuffer(digests, dtype="<u8")[::2].astype(np.uint64)


class KnownIds:
    """Grows only: what retention drops stays known."""

    def __init__(self, keys: Keys) -> None:
        self._sorted = np.sort(keys)
        self._loose: set[int] = set()

    def unseen(self, ids: Sequence[str]) -> list[str]:
        """Those of some ids that are not known; from now on they are."""
        if not ids:
            return []
        keys = keys_of(ids)
        places = np.minimum(np.searchsorted(self._sorted, keys), max(len(self._sorted) - 1, 0))
        old = self._sorted[places] == keys if len(self._sorted) else np.zeros(len(keys), dtype=bool)
        found = []
        for name, key, known in zip(ids, keys.tolist(), old.tolist(), strict=True):
            if not known and key not in self._loose:
                self._loose.add(key)
                found.append(name)
        if len(self._loose) > _MOST_LOOSE:
            loose = np.fromiter(self._loose, dtype=np.uint64, count=len(self._loose))
            self._sorted = np.sort(np.concatenate([self._sorted, loose]), kind="stable")
            self._loose.clear()
        return found
