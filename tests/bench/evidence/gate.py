"""Simulated nights: a log is written, a candidate is chosen on some decisions and judged on others by the real gate.

A service of four models, five segments and known truth. Kinds of night:

mixed       twenty candidates, half of them worse than the margin allows; the best by the choosing decisions is judged
boundary    the same where every candidate is worse than allowed, but only just
confounded  as mixed, but a hidden cause moves choice and quality, and propensities are not logged
power       one candidate, two points better: `corner` at the limits of the promise (30 % of decisions move to a model
            that was taken in 10 % of them), `typical` inside them

Unsafe is a deployment whose true quality change is below the margin, or that does not save.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from optimizer.dataset import Floats
from optimizer.evidence import METRICS, Evaluation, Metric, Outcome, savings
from optimizer.gate import Case, Estimate, Limits, judge
from optimizer.ope.estimators import Evidence
from optimizer.ope.models import fit_predict
from optimizer.ope.sensitivity import change_bounds
from optimizer.threads import one_thread

from . import ours, peers
from .cells import GAMMA
from .regimes import REGIMES, Log, Scene, tilted
from .worlds import World

Kind = Literal["mixed", "boundary", "confounded", "corner", "typical"]
KINDS: tuple[Kind, ...] = get_args(Kind)
LIMITS = Limits()
SEGMENTS, ARMS, CONTEXTS = 5, 4, 20_000
GAIN = 0.02
CHUNK = 20
"""Nights that share a service and the heads of its earlier decisions."""


@dataclass(frozen=True, eq=False)
class Service:
    """A world, what runs in it today, and the candidates (N, a) that may replace it."""

    scene: Scene
    nominal: Floats
    """(N, a) the behaviour's mean over the hidden cause."""
    candidates: tuple[Floats, ...]


def service(kind: Kind, rng: np.random.Generator) -> Service:
    """A service with candidates as the kind wants them. Each takes one model in one segment, else does as today."""
    power = kind in ("corner", "typical")
    shares = np.full(ARMS, 0.1) + np.array([0.6, 0, 0, 0])
    if kind == "typical":
        shares = 0.1 + 0.6 * rng.dirichlet(np.ones(ARMS))
    place = rng.random(CONTEXTS)
    moved = 0.3 if kind != "typical" else rng.uniform(0.1, 0.3)
    size = moved / (1 - shares[1]) if power else 1 / SEGMENTS
    edges = np.array([size]) if power else np.arange(1, SEGMENTS) / SEGMENTS
    segment = np.searchsorted(edges, place)
    wanted = np.zeros((len(edges) + 1, ARMS))
    if power:
        wanted[0, 1] = GAIN
    elif kind == "boundary":
        wanted[:, 1:] = -LIMITS.quality_margin - 0.001
    else:
        wanted[:, 1:] = rng.uniform(0.0, 0.03, (SEGMENTS, ARMS - 1))
        worse = rng.random((SEGMENTS, ARMS - 1)) < 0.5
        wanted[:, 1:][worse] = rng.uniform(-0.03, -LIMITS.quality_margin - 0.0005, int(worse.sum()))
    quality, features, hidden = _quality(place, segment, wanted / size, shares, rng)
    cost = np.array([0.01, 0.004, 0.003, 0.002]) * np.exp(0.5 * features[:, [1]])
    world = World("service", features, quality, cost, hidden, tuple(f"model{k}" for k in range(ARMS)), True)
    nominal = np.tile(shares, (CONTEXTS, 1))
    behaviour = nominal
    if kind == "confounded":
        behaviour = tilted(nominal, hidden)
        nominal = (tilted(nominal, np.zeros(CONTEXTS)) + tilted(nominal, np.ones(CONTEXTS))) / 2
    scene = Scene(world, REGIMES["soft"], (behaviour,), quality)
    cells = [(0, 1)] if power else [(s, arm) for s in range(SEGMENTS) for arm in range(1, ARMS)]
    candidates = [np.where((segment == s)[:, None], np.eye(ARMS)[arm], nominal) for s, arm in cells]
    return Service(scene, nominal, tuple(candidates))


def _quality(
    place: Floats, segment: np.ndarray, gains: Floats, shares: Floats, rng: np.random.Generator
) -> tuple[Floats, Floats, np.ndarray]:
    """(N, a) chance of success such that taking an arm in a segment changes its mean from today's by `gains`; today's
    dear model is as good everywhere. With m the mean of what the arms add, an arm adds gain + m."""
    noise = rng.normal(size=(len(place), 3))
    hidden = rng.integers(0, 2, len(place))
    mean = (gains[:, 1:] @ shares[1:]) / shares[0]
    added = np.column_stack([np.zeros(len(gains)), gains[:, 1:] + mean[:, None]])
    base = 0.58 + 0.1 * np.tanh(noise[:, 0]) + 0.08 * (2 * hidden - 1)
    quality = base[:, None] + added[segment]
    return np.clip(quality, 0, 1), np.column_stack([place, noise]), hidden


def nights(kind: Kind, judged: int, chunk: int, foil: bool, count: int = CHUNK) -> list[dict[str, Any]]:
    """A chunk of nights of one kind with `judged` decisions to judge and as many to choose by. With the foil each also
    asks obp's tuned estimator."""
    rng = np.random.default_rng([KINDS.index(kind), judged, chunk])
    one = service(kind, rng)
    with one_thread():
        models = _heads(one.scene, rng)
        done = [_night(kind, one, models, judged, rng) for _ in range(count)]
    results = [record for record, _ in done]
    if foil:
        asked = peers.Asked(resamples=300, names=("DRos",))
        for record, answer in zip(results, peers.ask([given for _, given in done], asked), strict=True):
            low = answer["policies"][0]["DRos"][1] - answer["mean"]
            record["foil"] = bool(low >= -LIMITS.quality_margin)
    for number, record in enumerate(results):
        record |= {"cell": f"gate/{kind}/{judged}", "log": chunk * CHUNK + number}
    return results


def _heads(scene: Scene, rng: np.random.Generator) -> dict[Metric, Floats]:
    """(N, a) of each metric, by heads of earlier decisions."""
    earlier = scene.draw(ours.TEACHING, rng)
    features, cost = scene.world.features, scene.world.cost_usd[earlier.contexts, earlier.actions]
    rows = features[earlier.contexts]
    quality = fit_predict(rows, earlier.actions, earlier.outcome, features, ARMS, seed=0)
    costs = fit_predict(rows, earlier.actions, cost, features, ARMS, seed=0)
    return {"quality": quality, "cost_usd": costs, "latency_s": np.zeros_like(costs)}


def _night(
    kind: Kind, one: Service, models: dict[Metric, Floats], judged: int, rng: np.random.Generator
) -> tuple[dict[str, Any], peers.Handed]:
    """The gate's verdict on the candidate that the choosing decisions favour, and the log for a peer."""
    chooser, log = one.scene.draw(judged, rng), one.scene.draw(judged, rng)
    before, now = (_evaluation(kind, one, draw, models) for draw in (chooser, log))
    scores = [
        [float(np.mean(before.shrunk_change(metric, c[chooser.contexts]))) for metric in ("quality", "cost_usd")]
        for c in one.candidates
    ]
    inside = [k for k, (quality, cost) in enumerate(scores) if cost < 0 and quality >= -LIMITS.quality_margin]
    pick = max(inside or range(len(scores)), key=lambda k: scores[k][0])
    policy = one.candidates[pick]
    mine, earlier = policy[log.contexts], policy[chooser.contexts]
    changes = {metric: now.change(metric, mine) for metric in METRICS}
    certified = {metric: now.certified_change(metric, mine, before, earlier) for metric in METRICS}
    today = one.scene.value(one.scene.behaviours[0])
    change = one.scene.value(policy) - today
    cost = float(((policy - one.scene.behaviours[0]) * one.scene.world.cost_usd).sum(axis=1).mean())
    record = {
        "verdict": judge(_case(now, mine, changes, bool(inside)), LIMITS).outcome,
        "certified": judge(_case(now, mine, {**changes, **certified}, bool(inside)), LIMITS).outcome,
        "change": change,
        "worse": bool(change < -LIMITS.quality_margin or cost >= 0),
    }
    if kind == "confounded":
        bounds = change_bounds(now.outcomes["quality"], mine, GAMMA, confidence=LIMITS.confidence)
        record["holds_at_gamma"] = bool(bounds.low_limit >= -LIMITS.quality_margin)
    return record, peers.handed(one.scene, log, [policy])


def _evaluation(kind: Kind, one: Service, log: Log, models: dict[Metric, Floats]) -> Evaluation:
    told = replace(log, behaviour=one.nominal[log.contexts])
    cost = one.scene.world.cost_usd[log.contexts, log.actions]
    data = replace(ours.dataset(one.scene, told), cost_usd=cost, propensities_logged=kind != "confounded")
    known = np.ones(len(data))
    outcomes = {
        metric: Evidence(getattr(data, metric), known, data.actions, data.behaviour, model[log.contexts], data.groups)
        for metric, model in models.items()
    }
    return Evaluation(data, outcomes, LIMITS.confidence)


def _case(evaluation: Evaluation, policy: Floats, changes: dict[Metric, Outcome], admissible: bool) -> Case:
    """As the study makes it; drift and control checks, which can only forbid, are left out."""
    saving, quality, latency = savings(changes["cost_usd"]), changes["quality"], changes["latency_s"]
    return Case(
        saving=saving if isinstance(saving, Estimate) else None,
        quality_change=quality if isinstance(quality, Estimate) else None,
        latency_change_s=latency if isinstance(latency, Estimate) else None,
        refused="refused",
        top_share=evaluation.top_share(policy),
        unsupported=evaluation.unsupported(policy),
        propensities_logged=evaluation.data.propensities_logged,
        label_share=1.0,
        admissible=admissible,
    )


@dataclass(frozen=True)
class Rates:
    """Of the nights of one kind and size."""

    cell: str
    nights: int
    deployed: float
    unsafe: float
    """Share of all nights that deploy what is truly worse than allowed."""
    certified: float
    """Share that would be deployed by the certificate."""
    certified_unsafe: float
    foil: float | None
    """Share that obp's tuned estimator with its bootstrap would deploy."""
    foil_unsafe: float | None
    misled_at_gamma: float | None
    """Share where the sensitivity bound at the declared gamma holds though the candidate is worse."""


def rates(records: Iterable[dict[str, Any]]) -> list[Rates]:
    """By kind and size, in order of their names."""
    gathered: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        if record["cell"].startswith("gate/"):
            gathered.setdefault(record["cell"], []).append(record)
    return [_rates(cell, seen) for cell, seen in sorted(gathered.items())]


def _rates(cell: str, seen: Sequence[dict[str, Any]]) -> Rates:
    def share(flags: Iterable[bool]) -> float:
        return float(np.mean(list(flags)))

    foiled = [record for record in seen if "foil" in record]
    bounded = [record for record in seen if "holds_at_gamma" in record]
    return Rates(
        cell=cell,
        nights=len(seen),
        deployed=share(r["verdict"] == "deploy" for r in seen),
        unsafe=share(r["verdict"] == "deploy" and r["worse"] for r in seen),
        certified=share(r["certified"] == "deploy" for r in seen),
        certified_unsafe=share(r["certified"] == "deploy" and r["worse"] for r in seen),
        foil=share(r["foil"] for r in foiled) if foiled else None,
        foil_unsafe=share(r["foil"] and r["worse"] for r in foiled) if foiled else None,
        misled_at_gamma=share(r["holds_at_gamma"] and r["worse"] for r in bounded) if bounded else None,
    )


def table(found: Sequence[Rates]) -> str:
    """Markdown."""
    names = list(Rates.__dataclass_fields__)
    lines = ["| " + " | ".join(names) + " |", "| " + " | ".join(["---"] * len(names)) + " |"]
    for one in found:
        cells = [one.cell, str(one.nights)]
        cells += ["" if (value := getattr(one, name)) is None else f"{value:.3f}" for name in names[2:]]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
