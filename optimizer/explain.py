"""Why a policy would choose what it chooses: every candidate of one decision with its score, its probability, and the
rule that rules it out.

The same arithmetic as `runtime.Router.decide`, from the features instead of the messages, so that a logged decision can
be explained without its prompt. What features do not tell is left out: whose signed messages a conversation holds, and
what stops a router or an action for a while (a kill switch, an expired policy, a circuit that is open).

Legend: d features, a actions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from optimizer import runtime
from optimizer.dataset import Floats
from optimizer.rules import Path, covers, in_words
from optimizer.runtime import DENSE, NEEDS, NEVER, STOP, Course, Model, Router, of_session
from optimizer.sequential.words import taken

CANNOT = {
    "tools": "tools: some are offered, and it cannot call them",
    "json_response": "JSON: it is asked for, and it cannot promise it",
    "attachments": "vision: images or files are attached, and it cannot read them",
}
"""What of `NEEDS` an action lacks -> in words."""
NOT_OFFERED = "not offered: it is not among the candidates of this decision"
NOT_LEARNED = "unsupported: the log tried it too rarely to learn from, so the policy does not know it"
NOT_ALLOWED = "allow list: retroute.toml does not name it for this point"
ONLY_SCRIPT = "unsupported: the log never tried it here, so only the script may take it"
FIRST_STEP = "first step: an episode does not end before it has begun"


@dataclass(frozen=True)
class Considered:
    """One candidate. It can be chosen where nothing rules it out."""

    action: str
    value: float | None
    """The policy's score; None: the policy does not know this action."""
    probability: float
    """With which the policy would take it, its exploration included."""
    routed: float
    """With which its router takes it over all arms of a canary: what it logs. The same where there is no canary."""
    ruled_out: tuple[str, ...] = ()
    """By which rules, in words."""


@dataclass(frozen=True)
class Explained:
    """What a policy would do at one decision, and why. `rows`: the best score first, unknown actions last."""

    rows: tuple[Considered, ...]
    action: str
    """What it would do most likely."""
    reason: str
    """policy, or why it is not the policy's choice: no_candidates, none_able, drift, budget:<what>, max_steps, loop."""
    because: str = ""
    """The rule that it follows here; "" where it has no rules in words."""


def explain(
    router: Router,
    features: runtime.Floats,
    candidates: Collection[str] | None = None,
    *,
    whole: runtime.Floats | None = None,
    in_session: bool = True,
    allowed: Collection[str] | None = None,
    history: Sequence[Mapping[str, object]] = (),
    budget: Mapping[str, float] = MappingProxyType({}),
    treated: float | None = None,
) -> Explained:
    """Of one decision. features: (d,) as the policy reads them (`runtime.decision_features`).

    candidates: those of the decision; None: all that the policy knows. whole: of a sticky policy, whose features are
    those of the opening, the ones of the whole request; in_session: whether the request has a session to keep its
    action for. allowed: the actions that retroute.toml names for the point;
    None: it names none. history, budget: of an orchestrator, as `Router.decide` reads them; treated: the probability
    that the episode is under the policy, given its steps so far (None: as at its first step).
    """
    seen: Floats = np.asarray(features, dtype=np.float64)
    if router.course is not None:
        weight = min(router.canary, 1.0) if treated is None else treated
        return _step(router, router.course, seen, candidates, allowed, history, budget, weight)
    model = router.model
    offered = [name for name in model.actions if candidates is None or name in candidates]
    rows: Floats = seen if whole is None else np.asarray(whole, dtype=np.float64)
    barred = {name: [] if name in offered else [NOT_OFFERED] for name in model.actions}
    for name, lacking in zip(model.actions, _lacking(model, rows), strict=True):
        barred[name] += lacking
    capable = [name for name in offered if not barred[name]]
    far = bool(capable) and model.far(_seen(router, seen).tolist())
    if far or not capable:
        reason = "drift" if far else "none_able" if offered else "no_candidates"
        among = capable or offered
        certain = {router.incumbent if router.incumbent in among or not among else among[0]: 1.0}
        return _sorted(router, seen, barred, certain, certain, candidates, allowed, reason)
    policy, routed = _shares(router, seen, capable, in_session)
    return _sorted(router, seen, barred, policy, routed, candidates, allowed, "policy")


def rule_at(paths: Sequence[tuple[Path, int]], features: runtime.Floats) -> tuple[str, int] | None:
    """The rule of `rules.leaves` that a decision (d,) falls under, in words, and the place of its action; None where
    there are no rules."""
    rows: Floats = np.asarray(features, dtype=np.float64)[None, :]
    for path, action in paths:
        if covers(path, rows)[0]:
            return " and ".join(in_words(path)) or "always", action
    return None


def _shares(
    router: Router, features: Floats, capable: Sequence[str], in_session: bool
) -> tuple[dict[str, float], dict[str, float]]:
    """Of each capable action, the probability under the policy and over all arms."""
    seen = _seen(router, features)
    arms = _arms(router, seen, capable)
    if router.sticky and in_session:
        can = router.model.able(features[None, :])[0]
        pool = [name for name, may in zip(router.model.actions, can, strict=True) if may or name in capable]
        arms = [_drawn_again(own, again) for own, again in zip(_arms(router, seen, pool), arms, strict=True)]
    weights = (router.canary, router.explore, 1.0 - router.canary - router.explore)
    if router.canary >= 1.0:
        return arms[0], arms[0]
    routed = {name: sum(w * arm[name] for w, arm in zip(weights, arms, strict=True)) for name in capable}
    return arms[0], routed


def _seen(router: Router, features: Floats) -> Floats:
    """What the policy reads of the features."""
    return np.asarray(of_session(features), dtype=np.float64) if router.sticky else features


def _arms(router: Router, features: Floats, pool: Sequence[str]) -> list[dict[str, float]]:
    """The shares of each action of the pool: under the policy, explored evenly, and as a control."""
    mask = np.array([[name in pool for name in router.model.actions]])
    row = router.model.probabilities(features[None, :], mask)[0]
    fallback = router.incumbent if router.incumbent in pool else pool[0]
    policy = {name: float(share) for name, share in zip(router.model.actions, row, strict=True) if name in pool}
    return [policy, dict.fromkeys(pool, 1.0 / len(pool)), {name: float(name == fallback) for name in pool}]


def _drawn_again(own: Mapping[str, float], again: Mapping[str, float]) -> dict[str, float]:
    """A session's action that cannot serve this request is drawn a second time, among those that can."""
    left = sum(share for name, share in own.items() if name not in again)
    return {name: own[name] + left * share for name, share in again.items()}


def _step(
    router: Router,
    course: Course,
    features: Floats,
    candidates: Collection[str] | None,
    allowed: Collection[str] | None,
    history: Sequence[Mapping[str, object]],
    budget: Mapping[str, float],
    weight: float,
) -> Explained:
    """Of one step of an orchestrator."""
    model = router.model
    agents = [name for name in model.actions[:-1] if candidates is None or name in candidates]
    barred = {name: [] if name in agents or name == STOP else [NOT_OFFERED] for name in model.actions}
    over = course.over(history, dict(budget), False)
    if not over and not agents and (history or (candidates is not None and STOP in candidates)):
        over = "no_candidates"
    if over:
        for name in model.actions[:-1]:
            barred[name].append(f"{over}: the episode ends here")
        return _sorted(router, features, barred, {STOP: 1.0}, {STOP: 1.0}, candidates, allowed, over)
    for name, lacking in zip(model.actions, _lacking(model, features), strict=True):
        barred[name] += lacking if name != STOP else []
    if not history:
        barred[STOP].append(FIRST_STEP)
    able = [name for name in agents if not barred[name]]
    may = [*able, STOP] if history else able
    if not able:
        steps = [*agents, STOP] if history else agents
        fixed = {course.action(len(history), steps): 1.0}
        reason = "none_able" if agents else "no_candidates"
        return _sorted(router, features, barred, fixed, fixed, candidates, allowed, reason)
    values = dict(zip(model.actions, model.values(features[None, :])[0].tolist(), strict=True))
    pool = [name for name in may if values[name] > NEVER / 2]
    scripted = course.action(len(history), may)
    if not pool:
        return _sorted(router, features, barred, {scripted: 1.0}, {scripted: 1.0}, candidates, allowed, "none_able")
    for name in may:
        if name not in pool:
            barred[name].append(ONLY_SCRIPT)
    best = max(may, key=lambda name: values[name])
    others = [name for name in pool if name != best]
    rate = 0.0 if not others or any(entry.get("explored") for entry in history) else model.epsilon
    policy = {name: rate / len(others) for name in others} | {best: 1.0 - rate}
    routed = {name: weight * policy.get(name, 0.0) + (1.0 - weight) * (name == scripted) for name in may}
    return _sorted(router, features, barred, policy, routed, candidates, allowed, "policy")


def _sorted(
    router: Router,
    features: Floats,
    barred: Mapping[str, Sequence[str]],
    policy: Mapping[str, float],
    routed: Mapping[str, float],
    candidates: Collection[str] | None,
    allowed: Collection[str] | None,
    reason: str,
) -> Explained:
    model = router.model
    seen = _seen(router, features)
    values = model.values(seen[None, :])[0].tolist()
    rows = [
        Considered(name, value, policy.get(name, 0.0), routed.get(name, 0.0), tuple(barred[name]))
        for name, value in zip(model.actions, values, strict=True)
    ]
    rows.sort(key=lambda row: -(row.value or 0.0))
    for name in candidates or ():
        if name not in model.actions:
            banned = allowed is not None and name not in allowed
            chance = policy.get(name, 0.0), routed.get(name, 0.0)
            rows.append(Considered(name, None, *chance, (NOT_ALLOWED if banned else NOT_LEARNED,)))
    because = (taken(model, seen) or "") if reason == "policy" else ""
    return Explained(tuple(rows), max(policy, key=lambda name: policy[name]), reason, because)


def _lacking(model: Model, features: Floats) -> list[list[str]]:
    """Of each action, what it cannot do that this decision needs."""
    table = model.arrays.get("able")
    if table is None:
        return [[] for _ in model.actions]
    characters = float(features[DENSE.index("conversation_characters")])
    found = []
    for most, *can in table.tolist():
        lacking = []
        if most > 0 and characters > np.log1p(most):
            size = f"{np.expm1(characters):,.0f}"
            lacking.append(f"context window: about {size} characters, and it takes {most:,.0f}")
        needed = zip(NEEDS, can, strict=True)
        lacking += [CANNOT[need] for need, able in needed if not able and features[DENSE.index(need)] > 0]
        found.append(lacking)
    return found
