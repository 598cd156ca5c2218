"""Outcome models for more rows than boosted trees can use: a neural network that is shared by all outcomes.

A trunk reads the features; for each outcome it gives a base and a vector, and an action's outcome is the base plus the
vector's product with the action's embedding plus a constant. So one pass gives every action, and a rare action borrows
the base and the directions that others taught.

Legend: n decisions, m new ones, d features, a actions, k outcomes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from optimizer.dataset import Floats, Ints

if TYPE_CHECKING:
    import torch

MEMBERS = 3
"""Networks whose mean is taken: on small worlds three err 15 to 29 % less than one. Cross-fitting averages three times
as many, so that more would cost time and give little."""
WIDTH, EMBEDDING = 96, 12
BATCH, STEPS, EPOCHS = 1024, 500, 3
"""A network sees its rows `EPOCHS` times, or `STEPS` batches if that is more."""
CHECKS, JUDGED, MOST_JUDGED = 20, 0.15, 20_000
"""So many times on the way, a share of the rows that is kept aside says how good it is; the best is kept."""
LEARNING_RATE, WEIGHT_DECAY = 3e-3, 1e-2
_ROWS = 65_536
"""New rows at a time."""


@dataclass(frozen=True, eq=False)
class TorchHeads:
    """Predictions lie within the outcomes seen; NaN for an outcome that was never known."""

    mean: Floats
    """(d,)"""
    scale: Floats
    """(d,)"""
    low: Floats
    """(k,)"""
    high: Floats
    """(k,)"""
    centre: Floats
    """(k,)"""
    spread: Floats
    """(k,)"""
    members: tuple[Sequence[torch.Tensor], ...]

    def predict(self, features: Floats) -> Floats:
        """features (m, d) -> (k, m, a)."""
        import torch

        parts = []
        with one_torch_thread(), torch.no_grad():
            for start in range(0, max(len(features), 1), _ROWS):
                x = _tensor((features[start : start + _ROWS] - self.mean) / self.scale)
                parts.append(torch.stack([_forward(member, x) for member in self.members]).mean(dim=0).numpy())
        raw = np.moveaxis(np.concatenate(parts).astype(np.float64), 0, 1)
        values = raw * self.spread[:, None, None] + self.centre[:, None, None]
        clipped: Floats = np.clip(values, self.low[:, None, None], self.high[:, None, None])
        return clipped


def fit_torch_heads(
    features: Floats, actions: Ints, outcomes: Floats, action_count: int, *, seed: int, members: int = MEMBERS
) -> TorchHeads:
    """Networks of outcomes (k, n), NaN where unknown; the same for the same seed. Least squares by AdamW."""
    spread = features.std(axis=0)
    mean, scale = features.mean(axis=0), np.where(spread > 1e-9, spread, 1.0)
    known = ~np.isnan(outcomes)
    ever = known.any(axis=1)
    filled = np.where(known, outcomes, 0.0)
    low, high, centre = (np.full(len(outcomes), np.nan) for _ in range(3))
    width = np.ones(len(outcomes))
    for k in np.flatnonzero(ever):
        own = outcomes[k][known[k]]
        low[k], high[k], centre[k] = own.min(), own.max(), own.mean()
        width[k] = own.std() or 1.0
    targets = np.where(known, (filled - np.nan_to_num(centre)[:, None]) / width[:, None], 0.0)
    x = ((features - mean) / scale).astype(np.float32)
    with one_torch_thread():
        fitted = [
            _trained(x, actions, targets.T.astype(np.float32), known.T.astype(np.float32), action_count, place, seed)
            for place in range(members)
        ]
    return TorchHeads(mean, scale, low, high, centre, width, tuple(fitted))


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Sums in one order, whatever the number of cores; the former number of threads comes back."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _trained(
    x: Floats, actions: Ints, targets: Floats, known: Floats, action_count: int, place: int, seed: int
) -> Sequence[torch.Tensor]:
    """One network; targets and known (n, k)."""
    import torch

    n, k = targets.shape
    chance = torch.Generator().manual_seed(1_000_003 * place + seed)
    weights = _fresh(x.shape[1], k, action_count, chance)
    matrices = [weight for weight in weights if weight.ndim > 1]
    vectors = [weight for weight in weights if weight.ndim == 1]
    optimiser = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}], lr=LEARNING_RATE
    )
    judged = min(int(JUDGED * n), MOST_JUDGED)
    batch = min(BATCH, n // 4 + 1)
    steps = max(STEPS, EPOCHS * n // batch)
    pace = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=LEARNING_RATE, total_steps=steps)
    inputs, taken, wanted, weight = (torch.from_numpy(one) for one in (x, actions, targets, known))

    def loss_of(rows: torch.Tensor) -> torch.Tensor:
        found = _forward(weights, inputs[rows])[torch.arange(len(rows)), :, taken[rows]]
        return (weight[rows] * (found - wanted[rows]) ** 2).sum() / weight[rows].sum().clamp(min=1.0)

    order = torch.randperm(n, generator=chance)
    aside, taught = order[:judged], order[judged:]
    best, least = weights, float("inf")
    for step in range(1, steps + 1):
        loss = loss_of(taught[torch.randint(len(taught), (batch,), generator=chance)])
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        pace.step()
        if step % (steps // CHECKS) == 0:
            with torch.no_grad():
                found = float(loss_of(aside))
            if found < least:
                best, least = [one.detach().clone() for one in weights], found
    return best


def _fresh(d: int, k: int, action_count: int, chance: torch.Generator) -> list[torch.Tensor]:
    """Two layers of the trunk; from it to base and vector of each outcome; the embeddings; a constant per outcome and
    action."""
    import torch

    def layer(inputs: int, outputs: int, gain: float) -> torch.Tensor:
        fresh: torch.Tensor = torch.randn(inputs, outputs, generator=chance) * (gain / inputs) ** 0.5
        fresh.requires_grad_()
        return fresh

    def bias(*shape: int) -> torch.Tensor:
        return torch.zeros(*shape, requires_grad=True)

    return [
        *(layer(d, WIDTH, 2.0), bias(WIDTH), layer(WIDTH, WIDTH, 2.0), bias(WIDTH)),
        *(layer(WIDTH, k * (1 + EMBEDDING), 0.1), bias(k * (1 + EMBEDDING))),
        layer(action_count, EMBEDDING, float(action_count)),
        bias(k * action_count),
    ]


def _forward(weights: Sequence[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """x (m, d) -> (m, k, a)."""
    first, first_bias, second, second_bias, last, last_bias, embedding, constant = weights
    hidden = (x @ first + first_bias).relu()
    hidden = (hidden @ second + second_bias).relu()
    parts = (hidden @ last + last_bias).reshape(len(x), -1, 1 + EMBEDDING)
    found: torch.Tensor = parts[..., :1] + parts[..., 1:] @ embedding.T + constant.reshape(parts.shape[1], -1)
    return found


def _tensor(values: Floats) -> torch.Tensor:
    import torch

    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
