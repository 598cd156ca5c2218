"""`retroute plan`: what would decide the questions that the newest run leaves open, without learning anew."""

from __future__ import annotations

import csv
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ingest.errors import UsageError, WorkError
from optimizer import bundle, label_plan, report, runs
from optimizer.config import Settings, nearest
from optimizer.dataset import Floats, Ints, LoggedDataset
from optimizer.evidence import Evaluation, Outcome, Refused, cross_fitted
from optimizer.exploration import (
    CERTIFY,
    FLOOR,
    Exploration,
    cheaper,
    explore,
    wanted_half_width,
)
from optimizer.export import litellm
from optimizer.gate import MIN_LABEL_SHARE, Estimate, Limits
from optimizer.logged import OTHER, to_dataset
from optimizer.ope.estimators import weights
from optimizer.policy import Learned
from optimizer.runtime import Model
from optimizer.study import MIN_GROUPS
from optimizer.summary import estimate_json
from optimizer.threads import one_thread

SEED = 0
OPEN = ("promising", "cannot_tell")
MAX_ARMS = 5
"""Models that are drawn where nothing is suggested yet: the commonest."""
IMITATED = 0.9
"""Least share of today's choices that an exported policy must be able to repeat."""


@dataclass(frozen=True, eq=False)
class Question:
    """A service of the newest run, and what was said about it."""

    service: str
    run_id: str
    point: str
    quality_name: str | None
    verdict: str
    label: str | None
    limits: Limits
    quality: Outcome
    """The suggestion's change of quality as the run judged it."""
    data: LoggedDataset
    trace_ids: tuple[str, ...]
    model: Model | None
    refused: str

    @property
    def open(self) -> bool:
        return self.verdict in OPEN

    @property
    def arms(self) -> list[int]:
        """Columns of the actions to draw among: those of the suggestion, else the commonest."""
        names = self.data.action_names
        if self.model is not None:
            return [names.index(name) for name in self.model.actions]
        counts = np.bincount(self.data.actions, minlength=len(names))
        return [k for k, name in enumerate(names) if name != OTHER and counts[k] >= FLOOR * len(self.data)][:MAX_ARMS]

    def evaluation(self) -> Evaluation:
        with one_thread():
            return cross_fitted(self.data, confidence=self.limits.confidence, seed=SEED)

    def policy(self) -> Floats:
        """(n, a) the suggestion, or a stand-in: evenly what costs less than today's average."""
        if self.model is not None:
            return Learned(self.model, self.data.action_names).probabilities(self.data.features, self.data.behaviour)
        shares = cheaper(self.data.cost_usd, self.data.actions, self.arms, len(self.data.action_names))
        return np.tile(shares, (len(self.data), 1))

    def unplannable(self) -> Refused | None:
        """Why nothing can be planned by this log; None where something can."""
        if (sessions := len(np.unique(self.data.groups))) < MIN_GROUPS:
            return Refused(
                f"only {sessions} session{'' if sessions == 1 else 's'}, and decisions of one are not independent: "
                f"log {MIN_GROUPS} or more"
            )
        return None

    def exploration(self) -> Exploration | Refused:
        if (refused := self.unplannable()) is not None:
            return refused
        if len(self.arms) < 2:
            return Refused(
                "the log shows one model only: let the app draw a second one for a tenth of its decisions, and log "
                "policy.propensity"
            )
        return explore(self.evaluation(), self.policy(), self.limits, quality=self.quality, arms=self.arms)


def questions(home: Path, services: Sequence[str]) -> list[Question]:
    """The services of the newest run, or those named. Raises UsageError for one that it does not judge."""
    folder = runs.run_folder(home, None)
    if not (folder / "verdicts.json").is_file():
        raise UsageError(f"run {folder.name} is not judged yet", "Judge it first: retroute evaluate")
    judged = runs.read_json(folder / "verdicts.json")["services"]
    for name in services:
        if name not in judged:
            near = nearest(name, judged)
            hint = f"Did you mean '{near}'?" if near else f"Judged services: {', '.join(sorted(judged)) or 'none'}."
            raise UsageError(f"no verdict on service '{name}' in run {folder.name}", hint)
    training = runs.read_json(folder / "training.json")
    try:
        decisions = pl.read_parquet(folder / "decisions.parquet")
    except (OSError, pl.exceptions.PolarsError) as error:
        raise UsageError(
            f"cannot read {folder / 'decisions.parquet'}: {error}", "Run retroute nightly again."
        ) from error
    return [
        _question(folder, name, judged[name], training[name], decisions.filter(pl.col("service") == name))
        for name in sorted(services or judged)
    ]


def _question(run: Path, name: str, said: Mapping[str, Any], learned: Mapping[str, Any], own: pl.DataFrame) -> Question:
    has_policy = learned["label"] is not None
    return Question(
        service=name,
        run_id=run.name,
        point=learned["point"],
        quality_name=learned["quality_name"],
        verdict=said["verdict"],
        label=learned["label"],
        limits=Limits(**said["limits"]),
        quality=_estimate(said["quality_change"]),
        data=to_dataset(own, seed=SEED).data,
        trace_ids=tuple(own["trace_id"].to_list()),
        model=bundle.read_policy(runs.policy_folder(run, name))[0] if has_policy else None,
        refused=learned["refused"],
    )


def _estimate(said: Mapping[str, Any]) -> Outcome:
    if said["value"] is None:
        return Refused(str(said["reason"]))
    low, high = said["low"], said["high"]
    return Estimate(
        said["estimator"],
        said["value"],
        -np.inf if low is None else low,
        np.inf if high is None else high,
        said["episodes"],
        said["effective"],
        said["kind"],
    )


# ------------------------------------------------------------------------------------------------------- exploration


def exploration_json(question: Question) -> dict[str, Any]:
    """What `retroute plan --json` says of a service."""
    said: dict[str, Any] = {
        "verdict": question.verdict,
        "run_id": question.run_id,
        "point": question.point,
        "policy_label": question.label,
        "decided": not question.open,
        "plan": None,
        "refused": None,
    }
    if not question.open:
        return said
    found = question.exploration()
    if isinstance(found, Refused):
        return {**said, "refused": found.reason}
    return {
        **said,
        "plan": {
            "arms": list(found.arms),
            "base": found.base,
            "randomised_share": found.randomised,
            "segments": [
                {
                    "chosen": segment.chosen,
                    "share": segment.share,
                    "randomised": segment.randomised,
                    "today": dict(zip(found.arms, segment.today.tolist(), strict=True)),
                    "draw": dict(zip(found.arms, segment.draw.tolist(), strict=True)),
                }
                for segment in found.segments
            ],
            "cost_usd_per_day": estimate_json(found.cost_per_day),
            "quality_per_day": estimate_json(found.quality_per_day),
            "quality_at_risk": found.quality_at_risk,
            "within_margin": found.within_margin,
            "half_width": found.half_width,
            "binding": found.binding,
            "decisions": found.decisions,
            "decisions_per_day": found.per_day,
            "days": found.days,
            "estimated": isinstance(question.quality, Estimate),
            "label_share": found.label_share,
            "labelled_now": float(np.mean(~np.isnan(question.data.quality))),
            "propensities_logged": question.data.propensities_logged,
            "why_open": question.refused,
        },
    }


BINDING = {
    "quality": "quality is known to within {0:.1f} points, enough to decide",
    "saving": "the saving is certain",
    "effective": "the models to judge were taken often enough",
}


def exploration_lines(name: str, said: Mapping[str, Any]) -> list[str]:
    """What `retroute plan` prints of a service."""
    head = f"{name}: {report.verdict(said)}"
    if said["decided"]:
        return [head, "  Decided: nothing to find out."]
    plan = said["plan"]
    if plan is None:
        return [head, f"  No experiment: {said['refused']}"]
    goal = (
        f"tell '{said['policy_label']}' from today's routing" if said["policy_label"] else "find what may be suggested"
    )
    lines = [head, f"  To {goal} at '{said['point']}', randomise {plan['randomised_share']:.0%} of decisions:"]
    who = "the suggestion takes" if plan["base"] == "suggestion" else "today's routing takes"
    for part in plan["segments"]:
        shares = ", ".join(
            f"{arm} {share:.0%} (today {part['today'][arm]:.0%})"
            for arm, share in sorted(part["draw"].items(), key=lambda pair: -pair[1])
        )
        agreed = "" if part["randomised"] else "; nothing to find out there"
        lines.append(f"    where {who} {part['chosen']} ({part['share']:.0%} of decisions{agreed}): {shares}")
    lines += [f"  {line}" for line in (_cost(plan), _risk(plan), _duration(plan))]
    if plan["labelled_now"] < plan["label_share"]:
        lines.append(
            f"  Scores: {plan['labelled_now']:.0%} of decisions carry one, the gate needs {plan['label_share']:.0%}; "
            "`retroute plan --labels` says which to add."
        )
    if not plan["propensities_logged"]:
        lines.append(
            "  Log policy.propensity with each decision: the exported router does; estimated ones decide nothing."
        )
    return lines


def _cost(plan: Mapping[str, Any]) -> str:
    cost = plan["cost_usd_per_day"]
    if cost["value"] is None:
        return f"Cost: not known, {cost['reason']}."
    saves = cost["value"] <= 0
    value, low, high = (-cost[name] if saves else cost[name] for name in ("value", "low", "high"))
    ends = sorted((low, high))
    scale = max(abs(value), *map(abs, ends))
    shown = ", ".join(report.usd(end, scale) for end in ends)
    return f"{'Saves' if saves else 'Costs'} {report.usd(value, scale)} a day [{shown}], {_kind(cost['kind'])}."


def _risk(plan: Mapping[str, Any]) -> str:
    quality, risk = plan["quality_per_day"], 100 * plan["quality_at_risk"]
    if quality["value"] is None:
        return f"Quality at risk: not known, {quality['reason']}."
    lost = max(-quality["low"], 0.0)
    more = "" if plan["within_margin"] else " That is more than the margin: leave a model out, or widen the margin."
    return (
        f"Quality at risk: {risk:.1f} points, {lost:,.1f} good answers of {plan['decisions_per_day']:,.0f} a day "
        f"({_kind(quality['kind'])}).{more}"
    )


def _duration(plan: Mapping[str, Any]) -> str:
    days = plan["days"]
    pace = "" if days is None else f", {days:,.1f} days at {plan['decisions_per_day']:,.0f} a day"
    until = BINDING[plan["binding"]].format(100 * plan["half_width"])
    if_so = "If the estimates stand, about" if plan["estimated"] else "About"
    return f"{if_so} {plan['decisions']:,} decisions{pace}, {plan['label_share']:.0%} of them scored, until {until}."


def _kind(kind: str) -> str:
    return "an assumption: the log never tried it there" if kind == "assumption" else f"{kind} interval"


# ------------------------------------------------------------------------------------------------------------ labels


def labels_json(question: Question, budget: int | None) -> dict[str, Any]:
    """What `retroute plan --labels --json` says of a service. Raises UsageError for a budget below the floors."""
    unscored = np.flatnonzero(np.isnan(question.data.quality))
    said: dict[str, Any] = {
        "verdict": question.verdict,
        "run_id": question.run_id,
        "decided": not question.open,
        "unscored": len(unscored),
        "name": question.quality_name,
        "budget": 0,
        "half_width": None,
        "wanted_half_width": None,
        "traces": [],
        "refused": None,
    }
    if not question.open or not len(unscored):
        return said
    if (refused := question.unplannable()) is not None:
        return {**said, "refused": refused.reason}
    evidence = question.evaluation().outcomes["quality"]
    spread = label_plan.spreads(evidence)
    policy = question.policy()
    known = question.model is not None
    ratio = weights(evidence, policy) if known else np.full(len(spread), 2.0)  # without a candidate all weigh alike
    needs = label_plan.importance(ratio, spread)
    moved = np.where(np.isnan(evidence.model), 0.0, evidence.model) * (policy - evidence.behaviour)
    settled = float(np.mean(needs**2) + (moved.sum(axis=1).var() if known else 0.0))
    z = _normal(question.limits.confidence)
    rows, judged = len(question.data), max(int(CERTIFY * len(question.data)), 1)
    actions: Ints = question.data.actions[unscored]
    wanted = wanted_half_width(question.quality, question.limits)
    if budget is None:
        least = MIN_LABEL_SHARE * rows - (rows - len(unscored))  # what the gate asks for
        budget = max(int(np.ceil(least)), label_plan.smallest_budget(actions))
        if known:
            enough = label_plan.smallest_sufficient(needs[unscored], actions, wanted, settled, rows, judged, z)
            budget = max(budget, enough)
    budget = min(budget, len(unscored))
    try:
        plan = label_plan.plan(
            needs[unscored], actions, budget, settled=settled, rows=rows, judged=judged, z=z, seed=SEED
        )
    except ValueError as error:
        raise UsageError(f"{question.service}: {error}", "Give a larger --budget, or none.") from None
    return {
        **said,
        "budget": len(plan.picked),
        "half_width": plan.half_width if known else None,
        "wanted_half_width": wanted if known else None,
        "traces": [
            {"trace_id": question.trace_ids[unscored[row]], "probability": float(plan.probabilities[row])}
            for row in plan.picked
        ],
    }


def _normal(confidence: float) -> float:
    from scipy.stats import norm

    return float(norm.ppf(0.5 + confidence / 2))


def label_lines(name: str, said: Mapping[str, Any]) -> list[str]:
    """What `retroute plan --labels` prints of a service."""
    head = f"{name}: {report.verdict(said)}"
    if said["decided"]:
        return [head, "  Decided: no further scores are needed."]
    if not said["unscored"]:
        return [head, "  Every decision has a score."]
    if said["refused"]:
        return [head, f"  No scores to plan: {said['refused']}"]
    lines = [head, f"  Have {said['budget']:,} of {said['unscored']:,} decisions without a score scored."]
    if said["half_width"] is None:
        lines.append("  Nothing is suggested yet, so scores alone decide nothing: `retroute plan` says what does.")
    else:
        width, wanted = 100 * said["half_width"], 100 * said["wanted_half_width"]
        lines.append(
            f"  Quality is then known to within {width:.1f} points; {wanted:.1f} would decide it."
            + ("" if width <= wanted else " Scores alone do not: `retroute plan` says what does.")
        )
    return lines


def write_labels(file: Path, services: Mapping[str, Mapping[str, Any]]) -> int:
    """The traces to score as CSV that `retroute scores import` reads once `value` is filled in; how many."""
    rows = [
        (name, trace["trace_id"], said["name"] or "quality", "", f"{trace['probability']:.6f}")
        for name, said in services.items()
        for trace in said["traces"]
    ]
    try:
        with file.open("w", newline="", encoding="utf-8") as handle:
            csv.writer(handle).writerows([("service", "trace_id", "name", "value", "probability"), *rows])
    except OSError as error:
        raise WorkError(f"cannot write {file}: {error.strerror or error}") from None
    return len(rows)


# ------------------------------------------------------------------------------------------------------------ export


def export(home: Path, question: Question, settings: Settings, out: Path) -> list[str]:
    """Write the experiment as a LiteLLM bundle; returns notes for the user.

    Raises WorkError where there is nothing to explore, or where today's choices cannot be repeated by a router.
    """
    if not question.open:
        raise WorkError(
            f"{question.service} is decided ('{question.verdict}'): there is nothing to explore",
            f"Export its policy: retroute export --target litellm --service {question.service} --out {out}",
        )
    found = question.exploration()
    if isinstance(found, Refused):
        raise WorkError(f"no experiment for {question.service}: {found.reason}")
    model, notes = router_model(question, found)
    count = sum(runs.policy_folder(home / "runs" / run_id, question.service).is_dir() for run_id in runs.run_ids(home))
    configured = settings.service(question.service).incumbent
    today = dict(zip(found.arms, np.sum([s.share * s.today for s in found.segments], axis=0), strict=True))
    incumbent = configured if configured in found.arms else max(found.arms, key=lambda arm: float(today[arm]))
    with tempfile.TemporaryDirectory() as folder:
        bundle.write_policy(
            Path(folder),
            model,
            policy_id=question.service,
            version=f"{question.run_id}-explore",
            revision=count + 1,
            virtual_model=question.service,
            incumbent=str(incumbent),
            evaluation={"explores": True, "decisions": found.decisions},
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        return [*notes, *litellm.export(Path(folder), out, question.service)]


def router_model(question: Question, found: Exploration) -> tuple[Model, list[str]]:
    """The model that draws by the experiment's table, and how well it repeats today's choices where it has to."""
    draws = {"draws": found.table}
    if found.base == "suggestion" and question.model is not None:
        model = question.model
        return Model(model.kind, model.actions, {**model.arrays, **draws}, model.epsilon), []
    names = question.data.action_names
    columns = [names.index(arm) for arm in found.arms]
    source = question.policy() if found.base == "suggestion" else question.data.behaviour
    chosen = source[:, columns].argmax(axis=1)
    if len(np.unique(chosen)) == 1:
        return Model("constant", found.arms, {"values": np.eye(len(columns))[chosen[0]], **draws}), []
    model = imitation(question.data.features, chosen, found.arms, draws)
    greedy = model.values(question.data.features).argmax(axis=1)
    share = float(np.mean(greedy == chosen))
    if share < IMITATED:
        raise WorkError(
            f"a router can repeat only {share:.0%} of today's choices of {question.service}",
            "Let the app itself draw by the shares that `retroute plan` prints, and log policy.propensity.",
        )
    return model, [f"the router repeats {share:.1%} of today's choices; the rest go where similar prompts went"]


def imitation(features: Floats, chosen: Ints, arms: tuple[str, ...], more: Mapping[str, Floats]) -> Model:
    """A linear model whose best action is today's choice (n,): multinomial logit on standardised features."""
    from sklearn.linear_model import LogisticRegression

    mean, spread = features.mean(axis=0), features.std(axis=0)
    scale = np.where(spread > 1e-9, spread, 1.0)
    with one_thread():
        fitted = LogisticRegression(C=1.0, max_iter=1000).fit((features - mean) / scale, chosen)
    weights_, bias = np.zeros((features.shape[1], len(arms))), np.full(len(arms), -1e6)
    binary = len(fitted.classes_) == 2
    bias[fitted.classes_] = [0.0, float(fitted.intercept_[0])] if binary else fitted.intercept_
    weights_[:, fitted.classes_] = (
        np.column_stack([np.zeros(features.shape[1]), fitted.coef_[0]]) if binary else fitted.coef_.T
    )
    return Model("linear", arms, {"mean": mean, "scale": scale, "weights": weights_, "bias": bias, **more})


# ---------------------------------------------------------------------------------------------------------- printing


def show(found: Sequence[Question], as_json: bool) -> None:
    """Prints the experiments."""
    said = {question.service: exploration_json(question) for question in found}
    _print(said, [exploration_lines(name, one) for name, one in said.items()], as_json)


def show_labels(found: Sequence[Question], budget: int | None, output: Path | None, as_json: bool) -> None:
    """Prints how many decisions to have scored, and writes the list of their traces."""
    said = {question.service: labels_json(question, budget) for question in found}
    lines = [label_lines(name, one) for name, one in said.items()]
    if output is not None:
        lines.append([f"{write_labels(output, said):,} traces in {output}: fill in value, then retroute scores import"])
    elif any(one["traces"] for one in said.values()):
        lines.append(["-o FILE.csv writes the list of their traces."])
    _print(said, lines, as_json)


def show_export(notes: Sequence[str], out: Path) -> None:
    """Prints the folder, and notes on stderr."""
    for note in notes:
        print(note, file=sys.stderr)
    print(out)


def _print(said: Mapping[str, Any], lines: Sequence[Sequence[str]], as_json: bool) -> None:
    if as_json:
        print(report.to_json({"services": said}))
    else:
        print("\n\n".join("\n".join(part) for part in lines) or "No service has decisions to judge.")
