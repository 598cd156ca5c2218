"""A process without pandas. DuckDB and Arrow load it wherever it is installed, only to see that no value is one of its:
half a second of a processor, and 30 MB."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Nowhere(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not needed here", name=name)
        return None


def without_pandas() -> None:
    """From here on it is as if it were not installed."""
    sys.meta_path.insert(0, _Nowhere())
