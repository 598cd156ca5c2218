"""What a run says about a service, as records: checked once when read, never again by a page.

Units: costs and savings in USD per 1,000 decisions, quality in [0, 1], latency in seconds, shares in [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from ingest.errors import WorkError
from optimizer import costs, rules, switching, unpriced
from optimizer.gate import Limits, Outcome, Reason
from optimizer.propensity_text import sentences

Json = Mapping[str, Any]
Role = Literal["today", "cheapest", "strongest", "cost_matched_random", "suggested"]


AGAIN = "Make a new run with `retroute nightly`; this one is left as it is."


class UnreadableError(WorkError):
    """A file of a run that is missing or does not hold what it should; the message says which and what."""


@dataclass(frozen=True)
class Figure:
    """A number with its interval and the kind of interval. A refused figure has a reason and no number."""

    value: float | None
    low: float | None
    high: float | None
    kind: str | None
    estimator: str = ""
    reason: str = ""
    effective: float | None = None
    truth: float | None = None
    """Known for sample data only."""

    @property
    def refused(self) -> bool:
        return self.value is None

    @property
    def span(self) -> tuple[float, float, float]:
        """Value, low and high of a figure that is not refused; a missing bound is infinite."""
        if self.value is None:
            raise ValueError("a refused figure has no number")
        low, high = self.low, self.high
        return self.value, -math.inf if low is None else low, math.inf if high is None else high


_UNKNOWN = Figure(None, None, None, None, reason="the run does not say")


@dataclass(frozen=True)
class PolicyRow:
    policy: Role
    label: str
    cost: Figure
    quality: Figure
    latency: Figure


@dataclass(frozen=True)
class ActionShare:
    """`today` and `policy` are shares of decisions (None: not known); `logged` counts decisions in the log."""

    action: str
    today: float | None
    policy: float | None
    logged: int | None


@dataclass(frozen=True)
class RuleRow:
    """A rule of the suggestion in words, and what is done there today. Shares are of decisions."""

    said: str
    action: str
    share: float
    today: str
    today_share: float
    agreement: float


@dataclass(frozen=True)
class RulesOfThumb:
    """The suggestion in words; `fidelity` is the share of decisions where it chooses as they say."""

    rows: tuple[RuleRow, ...]
    fidelity: float
    savings: Figure
    quality: Figure


@dataclass(frozen=True)
class Point:
    name: str
    decisions: int
    actions: tuple[ActionShare, ...]
    savings: Figure
    rules: RulesOfThumb | None = None
    """None: nothing is suggested, or a run from before there were rules."""


@dataclass(frozen=True)
class FrontierPoint:
    label: str
    cost: Figure
    quality: Figure
    chosen: bool
    latency: Figure = _UNKNOWN
    """Unknown in runs from before it was kept."""


@dataclass(frozen=True)
class CurvePoint:
    """What a unit of quality worth `value_usd` would buy; the bounds are those of a band around all points at once."""

    value_usd: float
    cost: Figure
    quality: Figure


@dataclass(frozen=True)
class EstimatorRow:
    estimator: str
    savings: Figure
    quality: Figure
    latency: Figure

    def on(self, axis: str) -> Figure:
        """The figure of an axis, by its key in verdicts.json."""
        return {"savings_usd_per_1k": self.savings, "quality_change": self.quality, "latency_change_s": self.latency}[
            axis
        ]


@dataclass(frozen=True)
class Support:
    """How much of the log speaks for the suggestion. `effective` counts decisions after weighting."""

    effective: float | None
    top1_share: float | None
    unsupported_share: float | None
    decisions: int | None
    certify_decisions: int | None


@dataclass(frozen=True)
class Coverage:
    """What the estimates rest on."""

    decisions: int
    labelled: int | None
    label_share: float | None
    quality_name: str
    logged_share: float | None
    """Of decisions whose probability the router logged. What is neither logged nor stated had to be estimated."""
    stated_share: float | None
    """Of decisions whose probability a file of the home states: of those of a gateway with fixed weights."""
    latency_note: str
    latency_cut_share: float | None
    unpriced: int | None

    @property
    def estimated(self) -> bool:
        """Whether any probability had to be estimated."""
        return self.logged_share is not None and self.logged_share + (self.stated_share or 0.0) < 1 - 1e-9


@dataclass(frozen=True)
class Costs:
    """At which prices the costs are, in words; today's, USD per 1,000 of the `decisions` that have both, as billed and
    at those prices (None: no decision has both); and how much has no price there, in words."""

    prices: str
    billed: float | None
    one_list: float | None
    decisions: int
    unpriced: str
    switching: tuple[str, ...] = ()
    """What switches of models inside a session cost, in words."""


@dataclass(frozen=True)
class PartRow:
    """What the log says of a policy that it supports in part: a change per decision, of cost per 1,000."""

    policy: str
    outcome: Literal["quality_change", "usd_change"]
    share: float
    """Of decisions where the policy keeps to what was tried."""
    tried: Figure
    """The change there."""
    bounds: tuple[float, float]
    """Of the change over all, whatever the rest gives."""
    modelled: Figure
    """The change over all if the model is right about the rest."""


@dataclass(frozen=True)
class ServiceVerdict:
    service: str
    run_id: str
    outcome: Outcome
    reasons: tuple[Reason, ...]
    policy_id: str
    policy_label: str
    savings: Figure
    quality: Figure
    latency: Figure
    table: tuple[PolicyRow, ...]
    points: tuple[Point, ...]
    frontier: tuple[FrontierPoint, ...]
    estimators: tuple[EstimatorRow, ...]
    support: Support
    coverage: Coverage
    limits: Limits
    plan: str
    costs: Costs | None = None
    """None: a run from before costs were at one price list."""
    curve: tuple[CurvePoint, ...] = ()
    parts: tuple[PartRow, ...] = ()
    doubts: tuple[str, ...] = ()
    """What was checked of the probabilities and estimators, in sentences."""


@dataclass(frozen=True)
class Line:
    """Of an invoice, a day and model: USD or, where it tells none, tokens. None: that side has nothing."""

    day: str
    model: str
    ours: float | None
    theirs: float | None
    difference: float | None
    tolerance: float | None
    within: bool


@dataclass(frozen=True)
class Reconciled:
    """Our costs beside an invoice. `in_usd` False: figures are tokens. `reasons`: (day, model, why, calls)."""

    file: str
    form: str
    made_at: str
    first: str
    last: str
    within: bool
    in_usd: bool
    tolerance: float
    total: Line
    lines: tuple[Line, ...]
    reasons: tuple[tuple[str, str, str, int | None], ...]


def reconciled(data: Json) -> Reconciled:
    """The record of a kept comparison; UnreadableError says what is missing."""
    try:
        what = "usd" if data["totals"]["their_usd"] is not None else "tokens"
        return Reconciled(
            str(data["file"]),
            str(data["format"]),
            str(data["made_at"]),
            str(data["from"]),
            str(data["to"]),
            bool(data["within"]),
            what == "usd",
            float(data["tolerance"]),
            _line(data["totals"], what),
            tuple(_line(row, what) for row in data["models"]),
            tuple(
                (str(row["day"] or "all"), str(row["model"] or ""), str(row["reason"]), _count(row["calls"]))
                for row in data["reasons"]
            ),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableError(
            f"the kept comparison is not as expected ({error})", "Run `retroute reconcile` again."
        ) from error


def _line(row: Json, what: str) -> Line:
    return Line(
        str(row.get("day") or "all"),
        str(row.get("model") or "all"),
        _number(row[f"our_{what}"]),
        _number(row[f"their_{what}"]),
        _number(row[f"{what}_difference"]),
        _number(row[f"{what}_tolerance"]),
        bool(row["within"]),
    )


def figure(data: Json | None) -> Figure:
    """A figure of verdicts.json; nothing at all is a refusal without a stated reason."""
    if data is None or data.get("value") is None:
        reason = str((data or {}).get("reason") or "the run gives no reason")
        return Figure(None, None, None, None, str((data or {}).get("estimator") or ""), reason)
    return Figure(
        float(data["value"]),
        _number(data.get("low")),
        _number(data.get("high")),
        None if data.get("kind") is None else str(data["kind"]),
        str(data.get("estimator") or ""),
        effective=_number(data.get("effective")),
        truth=_number(data.get("truth")),
    )


def verdict(service: str, run_id: str, data: Json) -> ServiceVerdict:
    """The record of one service in verdicts.json; UnreadableError names what is missing or of the wrong kind."""
    try:
        return _verdict(service, run_id, data)
    except KeyError as error:
        raise UnreadableError(f"verdicts.json of run {run_id}: {service} lacks {error}", AGAIN) from error
    except (TypeError, ValueError, AttributeError) as error:
        raise UnreadableError(
            f"verdicts.json of run {run_id}: {service} is not as expected ({error})", AGAIN
        ) from error


def _verdict(service: str, run_id: str, data: Json) -> ServiceVerdict:
    if data["verdict"] not in get_args(Outcome):
        raise ValueError(f"unknown verdict {data['verdict']!r}")
    limits = data["limits"]
    return ServiceVerdict(
        service=service,
        run_id=str(data.get("run_id") or run_id),
        outcome=cast(Outcome, data["verdict"]),
        reasons=tuple(_reason(reason) for reason in data["reasons"]),
        policy_id=str(data.get("policy_id") or ""),
        policy_label=str(data.get("policy_label") or data.get("policy_id") or ""),
        savings=figure(data["savings_usd_per_1k"]),
        quality=figure(data["quality_change"]),
        latency=figure(data["latency_change_s"]),
        table=tuple(_policy(row) for row in data["table"]),
        points=tuple(_point(point) for point in data["points"]),
        frontier=tuple(
            FrontierPoint(
                str(row["label"]),
                figure(row["cost_usd_per_1k"]),
                figure(row["quality"]),
                bool(row.get("chosen")),
                figure(row.get("latency_s")),
            )
            for row in data.get("frontier") or ()
        ),
        estimators=tuple(
            EstimatorRow(
                str(row["estimator"]),
                figure(row["savings_usd_per_1k"]),
                figure(row["quality_change"]),
                figure(row.get("latency_change_s")),
            )
            for row in data.get("estimators") or ()
        ),
        support=_support(data.get("support") or {}),
        coverage=_coverage(data["data"]),
        limits=Limits(float(limits["quality_margin"]), float(limits["confidence"]), _number(limits.get("latency_s"))),
        plan=str((data.get("plan") or {}).get("text") or ""),
        costs=_costs(data["costs"]) if data.get("costs") else None,
        curve=tuple(
            CurvePoint(float(row["value_usd"]), figure(row["cost_usd_per_1k"]), figure(row["quality"]))
            for row in data.get("curve") or ()
        ),
        parts=tuple(_part(row) for row in data.get("partial") or ()),
        doubts=_doubts(data),
    )


def _part(data: Json) -> PartRow:
    return PartRow(
        str(data["policy"]),
        "quality_change" if data["metric"] == "quality_change" else "usd_change",
        float(data["share"]),
        figure(data["segment"]),
        (float(data["low"]), float(data["high"])),
        figure(data["extrapolated"]),
    )


def _doubts(data: Json) -> tuple[str, ...]:
    control = data.get("control") or {}
    checked = [str(control["reason"])] if control.get("holds") is not None else []
    names = {"cost_usd": "cost", "quality": "quality", "latency_s": "latency"}
    parted = (f"of {names.get(metric, metric)}, {said}" for metric, said in (data.get("disagreement") or {}).items())
    return (*parted, *sentences(data["data"].get("behaviour")), *checked)


def _costs(data: Json) -> Costs:
    return Costs(
        costs.list_words(data["price_list"]),
        _number(data["billed_usd_per_1k"]),
        _number(data["one_list_usd_per_1k"]),
        int(data["decisions"]),
        unpriced.sentence(data["unpriced"]["one_list"]),
        tuple(switching.words(row) for row in data.get("switching") or ()),
    )


def _reason(data: Json) -> Reason:
    condition, got, needed, remedy = (str(data.get(key) or "") for key in ("condition", "got", "needed", "remedy"))
    return Reason(condition, got, needed, remedy, bool(data["holds"]))


def _policy(data: Json) -> PolicyRow:
    if data["policy"] not in get_args(Role):
        raise ValueError(f"unknown policy {data['policy']!r}")
    figures = (figure(data[key]) for key in ("cost_usd_per_1k", "quality", "latency_s"))
    return PolicyRow(cast(Role, data["policy"]), str(data.get("label") or ""), *figures)


def _point(data: Json) -> Point:
    actions = tuple(
        ActionShare(
            str(row["action"]),
            _number(row.get("today_share")),
            _number(row.get("policy_share")),
            _count(row.get("logged")),
        )
        for row in data["actions"]
    )
    said = _rules(data["rules"]) if data.get("rules") else None
    return Point(str(data["point"]), int(data["decisions"]), actions, figure(data.get("savings_usd_per_1k")), said)


def _rules(data: Json) -> RulesOfThumb:
    rows = tuple(rule(row) for row in data["rules"])
    return RulesOfThumb(
        rows, float(data["fidelity"]), figure(data["savings_usd_per_1k"]), figure(data["quality_change"])
    )


def rule(row: Json) -> RuleRow:
    """The record of one rule of a suggestion."""
    return RuleRow(
        rules.words(row),
        str(row["action"]),
        float(row["share"]),
        str(row["today"]),
        float(row["today_share"]),
        float(row["agreement"]),
    )


def _support(data: Json) -> Support:
    return Support(
        _number(data.get("effective")),
        _number(data.get("top1_share")),
        _number(data.get("unsupported_share")),
        _count(data.get("decisions")),
        _count(data.get("certify_decisions")),
    )


def _coverage(data: Json) -> Coverage:
    origin = data.get("propensity_origin") or {}
    return Coverage(
        decisions=int(data["decisions"]),
        labelled=_count(data.get("labelled")),
        label_share=_number(data.get("label_share")),
        quality_name=str(data.get("quality_name") or ""),
        logged_share=_share_of(origin, "logged"),
        stated_share=_share_of(origin, "stated"),
        latency_note=str(data.get("latency_label") or ""),
        latency_cut_share=_number(data.get("latency_cut_share")),
        unpriced=_count(data.get("unpriced")),
    )


def _number(value: object) -> float | None:
    return None if value is None else float(cast(float, value))


def _count(value: object) -> int | None:
    return None if value is None else int(cast(int, value))


def _share_of(origin: Json, name: str) -> float | None:
    whole = sum(float(count or 0) for count in origin.values())
    return float(origin.get(name) or 0) / whole if whole else None
