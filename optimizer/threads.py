"""One thread for boosting and linear algebra: contended cores make their own threads a hundred times slower."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit OpenMP and BLAS to one thread. Loads scikit-learn first: only libraries that are loaded can be limited."""
    import sklearn.ensemble
    import sklearn.linear_model  # noqa: F401
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1):
        yield
