"""What `retroute plan` prints. The numbers are those of `planned`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from optimizer import planned_labels, report
from optimizer.exploration import UNTRIED_LOSS
from optimizer.planned import Question, exploration_json, labels_of, write_labels


def show(found: Sequence[Question], as_json: bool) -> None:
    """Prints the experiments."""
    said = {question.service: exploration_json(question) for question in found}
    _print(said, [exploration_lines(name, one) for name, one in said.items()], as_json)


def show_labels(found: Sequence[Question], home: Path, budget: int | None, output: Path | None, as_json: bool) -> None:
    """Prints how many decisions to have scored, and writes the list of their traces; the home then remembers how likely
    each was to be on it."""
    plans = {question.service: labels_of(question, budget) for question in found}
    said = {name: plan.said for name, plan in plans.items()}
    lines = [label_lines(name, one) for name, one in said.items()]
    if output is not None:
        lines.append([f"{write_labels(output, said):,} traces in {output}: fill in value, then retroute scores import"])
        if plans:
            planned_labels.keep(home, pl.concat(plan.plan for plan in plans.values()))
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
    if said["steps"] is not None:
        return [head, f"  At '{said['point']}', step by step: {said['steps']['text']}"]
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


def in_a_sentence(question: Question) -> dict[str, Any] | None:
    """What verdicts.json keeps of the experiment: `text`, `decisions_needed` and `days`, null where no number can be
    given; None for a decided question."""
    return sentence_of(exploration_json(question))


def sentence_of(said: Mapping[str, Any]) -> dict[str, Any] | None:
    """The same of what `exploration_json` says."""
    if said["decided"]:
        return None
    plan = said["plan"]
    if plan is None:
        return {"text": said["refused"], "decisions_needed": None, "days": None}
    drawn = [part for part in plan["segments"] if part["randomised"]] or plan["segments"]
    arms = sorted({arm for part in drawn for arm, share in part["draw"].items() if share > 0})
    draws = (
        f"draw among {', '.join(arms)} for {plan['randomised_share']:.0%} of decisions and log policy.propensity "
        "(`retroute plan` gives the shares, and with --export a router that draws so)."
    )
    text = " ".join([draws, _duration(plan), _cost(plan), _risk(plan)])
    return {"text": text, "decisions_needed": plan["decisions"], "days": plan["days"]}


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
    said = _kind(quality["kind"])
    if quality["kind"] == "assumption":
        said = f"an assumption: up to {100 * UNTRIED_LOSS:.0f} points are lost where the log never tried a model"
    more = "" if plan["within_margin"] else " That is more than the margin: leave a model out, or widen the margin."
    return (
        f"Quality at risk: {risk:.1f} points, {lost:,.1f} good answers of {plan['decisions_per_day']:,.0f} a day "
        f"({said}).{more}"
    )


def _duration(plan: Mapping[str, Any]) -> str:
    days = plan["days"]
    pace = "" if days is None else f", {days:,.1f} days at {plan['decisions_per_day']:,.0f} a day"
    until = BINDING[plan["binding"]].format(100 * plan["half_width"])
    if_so = "If the estimates stand, about" if plan["estimated"] else "About"
    return f"{if_so} {plan['decisions']:,} decisions{pace}, {plan['label_share']:.0%} of them scored, until {until}."


def _kind(kind: str) -> str:
    return "an assumption: the log never tried it there" if kind == "assumption" else f"{kind} interval"


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
