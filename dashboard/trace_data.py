"""One trace: its spans, calls and scores, and each of its decisions with what the run's policy would do. No cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from dashboard import data
from dashboard.records import ServiceVerdict
from dashboard.traces_data import decisions as of_run
from optimizer import decisions as logged
from optimizer import prompts
from optimizer.dataset import Floats
from optimizer.explain import Explained, explain, rule_at
from optimizer.logged import floats
from optimizer.rules import leaves, merged
from optimizer.runs import folder_name
from optimizer.runtime import DENSE, STEP_DENSE, Router, decode_features, history_features
from optimizer.similar import Expected, expected

MOST_SPANS = 2000
_SLACK_NS = 60 * 60 * 1_000_000_000
RECENT = 4000
"""Newest decisions of a run that its rules of thumb and the decisions most like one are found among."""
_READ_BACK = 40_000
"""Rows at the end of a run's decisions that these are looked for in."""


@dataclass(frozen=True)
class Thumb:
    """A rule of thumb that the decision falls under."""

    conditions: str
    action: str
    agreement: float
    """Share of the newest decisions where these rules and the policy choose the same."""


@dataclass(frozen=True, eq=False)
class Decided:
    """One decision of a trace."""

    step: int
    span_id: str | None
    """The span or call that it was made at."""
    today: str
    """What was done."""
    candidates: Mapping[str, float | None]
    """What could have been done, with its probability as logged or estimated; None: not known."""
    propensity: float | None
    origin: str | None
    """logged, or estimated from the log; None: not known."""
    arm: str | None = None
    reason: str | None = None
    draw: str | None = None
    policy_id: str | None = None
    explained: Explained | None = None
    """What the run's policy would do."""
    unexplained: str = ""
    """Why that is not known."""
    thumb: Thumb | None = None
    near: Mapping[str, Expected] = field(default_factory=dict)
    """What each action cost and gave in the decisions most like this one."""
    note: str = ""

    @property
    def changed(self) -> bool | None:
        """Whether the policy would most likely do something else; None: not known."""
        return None if self.explained is None else self.explained.action != self.today


@dataclass(frozen=True, eq=False)
class Trace:
    """What is known of a trace. `head`: its row of the query `traces_found`; None: it waits to be settled."""

    trace_id: str
    head: Mapping[str, Any] | None
    found: int
    """Spans of it; the first `MOST_SPANS` are here."""
    spans: pl.DataFrame
    calls: pl.DataFrame
    scores: pl.DataFrame
    session: pl.DataFrame
    decisions: tuple[Decided, ...]


def one(trace_id: str, verdicts: Mapping[str, ServiceVerdict]) -> Trace | None:
    """A trace with its decisions by the runs of `verdicts`; None where nothing of it has arrived."""
    heads = data.lake("traces_found", ids=trace_id, most=1)
    head = heads.row(0, named=True) if heads.height else None
    spans = _whole("trace_shown", trace_id, head, "spans", most=MOST_SPANS)
    if spans.is_empty() and head is None:
        return None
    calls = _whole("trace_calls", trace_id, head, "calls")
    scores = data.lake("trace_scores", trace_ids=(trace_id,))
    session = heads.clear()
    if head is not None and head["session_id"]:
        session = data.lake("session_traces", session_id=head["session_id"], service=head["service"])
    found = int(spans["found"][0]) if spans.height else 0
    decisions: tuple[Decided, ...] = ()
    if head is not None:
        decisions = _decisions(head, calls, spans, verdicts.get(head["service"]))
    return Trace(trace_id, head, found, spans.drop("found"), calls, scores, session, decisions)


def _whole(query: str, trace_id: str, head: Mapping[str, Any] | None, count: str, **more: object) -> pl.DataFrame:
    """Rows of a query of one trace: looked for about its time, and everywhere where these are not all of them."""
    if head is not None and head["start_ns"] and head["end_ns"]:
        since, until = head["start_ns"] - _SLACK_NS, head["end_ns"] + _SLACK_NS
        rows = data.lake(query, trace_id=trace_id, since_ns=since, until_ns=until, **more)
        found = rows["found"][0] if rows.height and "found" in rows.columns else rows.height
        if found == head[count]:
            return rows
    return data.lake(query, trace_id=trace_id, **more)


def texts(call: Mapping[str, Any]) -> Mapping[str, str | None]:
    """input_text, output_text and tools of a call (a row of `trace_calls`), as JSON."""
    none = dict.fromkeys(("input_text", "output_text", "tools"))
    if call["content_span_id"] is None:
        return none
    at = {"content_trace_id": call["content_trace_id"], "content_span_id": call["content_span_id"]}
    return data.lake("texts_of_call", **at).row(0, named=True)


def _decisions(
    head: Mapping[str, Any], calls: pl.DataFrame, spans: pl.DataFrame, verdict: ServiceVerdict | None
) -> tuple[Decided, ...]:
    service, trace_id = head["service"], head["trace_id"]
    router = "no run has looked at this service yet" if verdict is None else data.router(verdict.run_id, service)
    told = _Told(_carried(trace_id, spans, calls), spans, calls)
    if verdict is not None:
        steps = _steps(verdict.run_id, service, trace_id)
        if steps is not None and steps.height:
            known = _recent(verdict.run_id, service, steps=True)
            return _of_steps(steps, router, told, known, _allowed(service, steps["point"][0]))
        columns = ("point", "candidates", "probabilities", "propensity", "propensity_origin", "span_id")
        row = of_run(verdict.run_id, service, [trace_id], [head["start_ns"]], *columns)
        if row.height:
            known = _recent(verdict.run_id, service)
            return (_single(row.row(0, named=True), router, told, known, _allowed(service, row["point"][0])),)
    rebuilt = _rebuilt(calls, told)
    if rebuilt is None:
        return ()
    known = None if verdict is None else _recent(verdict.run_id, service)
    return (_single(rebuilt, router, told, known, _allowed(service, rebuilt["point"]), rebuilt=True),)


def _carried(trace_id: str, spans: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """What spans say of the decisions that they carry; not looked for where none carries one."""
    logs = any(frame["policy_action"].drop_nulls().len() for frame in (spans, calls))
    if logs:
        return data.lake("decision_spans", trace_id=trace_id)
    return pl.DataFrame(
        schema=dict.fromkeys(("span_id", "call_id", "policy_arm", "policy_reason", "policy_id"), pl.String)
    )


@dataclass(frozen=True, eq=False)
class _Told:
    """What the trace itself says of its decisions."""

    carried: pl.DataFrame
    """Rows of the query `decision_spans`."""
    spans: pl.DataFrame
    calls: pl.DataFrame

    def at(self, span_id: str | None) -> dict[str, Any]:
        """arm, reason, draw and policy_id as logged at a decision; the first one of the trace where none is named."""
        own = self.carried.filter((pl.col("span_id") == span_id) | (pl.col("call_id") == span_id))
        rows = own if own.height else self.carried.head(0 if span_id is None else 1)
        if rows.is_empty():
            return {}
        row = rows.row(0, named=True)
        draws = self.spans.filter(pl.col("span_id") == row["span_id"])["draw"].to_list()
        told = {"arm": "policy_arm", "reason": "policy_reason", "policy_id": "policy_id"}
        return {name: row[column] for name, column in told.items()} | {"draw": draws[0] if draws else None}


@dataclass(frozen=True, eq=False)
class _Like:
    """Recent decisions to find those like one among."""

    rows: Floats
    actions: Sequence[str]
    cost_usd: Floats
    quality: Floats

    @classmethod
    def of(cls, known: pl.DataFrame) -> _Like:
        blocks = [np.asarray(known[name].to_numpy(), dtype=np.float64) for name in _FEATURES if name in known.columns]
        return cls(np.hstack(blocks), known["action"].to_list(), floats(known["cost_usd"]), floats(known["quality"]))

    def near(self, features: Sequence[float]) -> dict[str, Expected]:
        at = np.asarray(features, dtype=np.float64)
        return expected(at, self.rows, self.actions, self.cost_usd, self.quality)


_FEATURES = ("features", "step_features")


def _single(
    row: Mapping[str, Any],
    router: Router | str,
    told: _Told,
    known: pl.DataFrame | None,
    allowed: Sequence[str] | None,
    *,
    rebuilt: bool = False,
) -> Decided:
    features = np.asarray(row["features"], dtype=np.float64)
    candidates = _candidates(row)
    offered = candidates if row["propensity_origin"] == "logged" else None
    found, why = None, router if isinstance(router, str) else ""
    thumb, near = None, {}
    if not isinstance(router, str):
        try:
            if router.course is not None:
                features = np.concatenate([features, history_features([], router.model.actions)])
            found = explain(router, features, offered, allowed=allowed)
        except (ValueError, IndexError) as error:
            why = f"the policy cannot read its features: {error}"
    if known is not None and known.height:
        like = _Like.of(known)
        near = like.near(row["features"])
        if not isinstance(router, str) and router.course is None and not (found and found.because):
            thumb = _thumb(router, like.rows, features)
    note = "Not in the run: rebuilt from its messages." if rebuilt else ""
    return Decided(
        step=0,
        span_id=row["span_id"],
        today=_known_as(row, router),
        candidates=candidates,
        propensity=row["propensity"],
        origin=row["propensity_origin"],
        explained=found,
        unexplained=why,
        thumb=thumb,
        near=near,
        note=note,
        **told.at(row["span_id"]),
    )


def _of_steps(
    steps: pl.DataFrame, router: Router | str, told: _Told, known: pl.DataFrame | None, allowed: Sequence[str] | None
) -> tuple[Decided, ...]:
    """Each decision of an episode, by what was known before it."""
    history: list[dict[str, object]] = []
    like = None if known is None or known.is_empty() else _Like.of(known)
    found = []
    for row in steps.iter_rows(named=True):
        candidates = _candidates(row)
        explained, why = None, router if isinstance(router, str) else ""
        if not isinstance(router, str):
            try:
                features = np.concatenate([row["features"], row["step_features"]])
                if router.course is not None:
                    taken = history_features(history, router.model.actions)[len(STEP_DENSE) :]
                    features = np.concatenate([features, taken])
                offered = candidates if row["propensity_origin"] == "logged" else None
                explained = explain(router, features, offered, allowed=allowed, history=history)
            except (ValueError, IndexError) as error:
                why = f"the policy cannot read its features: {error}"
        found.append(
            Decided(
                step=row["step"],
                span_id=row["span_id"],
                today=row["action"],
                candidates=candidates,
                propensity=row["propensity"],
                origin=row["propensity_origin"],
                explained=explained,
                unexplained=why,
                near={} if like is None else like.near([*row["features"], *row["step_features"]]),
                **told.at(row["span_id"]),
            )
        )
        spent = {"cost_usd": row["cost_usd"], "seconds": row["latency_s"]}
        history.append({"action": row["action"], "explored": row["explored"], **spent})
    return tuple(found)


def _candidates(row: Mapping[str, Any]) -> dict[str, float | None]:
    names, shares = row["candidates"] or [], row["probabilities"] or []
    if len(names) == len(shares):
        return dict(zip(names, shares, strict=True))
    return dict.fromkeys(names)


def _known_as(row: Mapping[str, Any], router: Router | str) -> str:
    """The action, by the name that the policy has for it where its prompt is a part of that."""
    action = str(row["action"])
    if isinstance(router, str) or action in router.model.actions:
        return action
    full = f"{action}|{row.get('prompt') or ''}"
    return full if full in router.model.actions else action


def _thumb(router: Router, rows: Floats, features: Floats) -> Thumb | None:
    names = router.model.actions
    chosen = router.model.probabilities(rows, np.ones((len(rows), len(names)), dtype=np.bool_)).argmax(axis=1)
    paths = merged(leaves(rows[:, : len(DENSE)], chosen))
    rule = rule_at(paths, features)
    if rule is None:
        return None
    said = [rule_at(paths, one) for one in rows[-500:]]
    agree = np.mean([found is not None and found[1] == own for found, own in zip(said, chosen[-500:], strict=True)])
    return Thumb(rule[0], names[rule[1]], float(agree))


def _rebuilt(calls: pl.DataFrame, told: _Told) -> dict[str, Any] | None:
    """The first decision of a trace that no run holds, as far as its calls tell."""
    models = calls.filter(pl.col("kind").is_in(logged.MODEL_KINDS))
    if models.is_empty():
        return None
    text = texts(models.row(0, named=True))["input_text"]
    first = logged.first_calls(calls.with_columns(input_text=pl.lit(text, pl.String)))
    row = logged.with_propensities(first.with_columns(action=logged.action())).row(0, named=True)
    features = prompts.features(logged.parsed(text), logged.parsed(row["tools_offered"]))
    if row["policy_features"]:
        with suppress(ValueError):  # of other rules: the rebuilt ones stand
            features = decode_features(row["policy_features"])
    prompt = f"{row['prompt_name'] or ''}@{row['prompt_version'] or ''}".strip("@")
    own = told.carried["span_id"][0] if told.carried.height else models["span_id"][0]
    return {**row, "features": features, "prompt": prompt, "span_id": own, "point": row["point"] or ""}


# ---- what the run holds


def _steps(run_id: str, service: str, trace_id: str) -> pl.DataFrame | None:
    rows = data.run_rows(run_id, f"steps-{folder_name(service)}.parquet")
    if rows is None:
        return None
    try:
        return rows.filter(pl.col("trace_id") == trace_id).sort("step").collect()
    except (OSError, pl.exceptions.PolarsError):
        return None


def _recent(run_id: str, service: str, *, steps: bool = False) -> pl.DataFrame | None:
    rows = data.run_rows(run_id, f"steps-{folder_name(service)}.parquet" if steps else "decisions.parquet")
    if rows is None:
        return None
    wanted = rows.tail(_READ_BACK).filter(pl.col("service") == service).tail(RECENT)
    try:
        return wanted.select(*_FEATURES[: 1 + steps], "action", "cost_usd", "quality").collect()
    except (OSError, pl.exceptions.PolarsError):
        return None


def _allowed(service: str, point: str | None) -> Sequence[str] | None:
    """The actions that retroute.toml names for a point."""
    settings = data.services_settings().get(service)
    named = None if settings is None or point is None else settings.points.get(point)
    return None if named is None else named.actions
