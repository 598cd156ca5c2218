"""The list of traces: what is asked of it in the URL, one page of it, and what the run would do at each. No cache."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import polars as pl

from dashboard import data
from dashboard.records import ServiceVerdict
from optimizer.explain import explain
from optimizer.runs import folder_name
from optimizer.runtime import Router
from optimizer.runtime import history_features as past

Sort = Literal["time", "cost", "duration", "quality"]
PAGE = 50
MOST_IDS = 20_000
"""Traces that a link may name."""
PROMPT = 4000
"""Characters of a prompt's messages that a list reads."""
CHANGED, KEPT = "changed", "kept"
_ID = re.compile(r"[0-9A-Za-z_.:-]{1,128}")


@dataclass(frozen=True)
class Asked:
    """What traces are asked for. None and False filter nothing."""

    service: str | None = None
    since_ns: int | None = None
    until_ns: int | None = None
    model: str | None = None
    action: str | None = None
    agent: str | None = None
    tool: str | None = None
    status: str | None = None
    """ok or error."""
    decision: str | None = None
    """changed or kept: what the run's policy would do beside what was done."""
    unpriced: bool = False
    unscored: bool = False
    ids: tuple[str, ...] | None = None
    search: str | None = None

    @property
    def narrowed(self) -> bool:
        """Whether anything but the service and the time narrows the list."""
        plain = replace(self, service=None, since_ns=None, until_ns=None)
        return plain != Asked()


@dataclass(frozen=True, eq=False)
class Page:
    """One page of traces: rows of the query `traces_found`, with `quality` (the newest of its service's score), `asked`
    (the beginning of the prompt; null where it may not be shown) and `policy` (what the run would do; null: not known)
    beside `action`, what was done."""

    found: int
    rows: pl.DataFrame


def ids(text: str) -> tuple[str, ...] | None:
    """The trace ids of a comma-separated text; what cannot be an id is left out. None for an empty one."""
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if _ID.fullmatch(part.strip())))
    return found[:MOST_IDS] if text.strip() else None


def page(
    asked: Asked,
    verdicts: Mapping[str, ServiceVerdict],
    *,
    sort: Sort,
    rising: bool,
    number: int,
    content: bool,
    size: int = PAGE,
) -> Page:
    """Page `number` (from 0) of the traces that fit. `verdicts`: of the runs to look at decisions by; `content`:
    whether prompts may be shown."""
    wanted = asked.ids if asked.decision is None else _of_decisions(asked, verdicts)
    names = {name: verdict.coverage.quality_name for name, verdict in verdicts.items()}
    rows = data.lake(
        "traces_found",
        service=asked.service,
        since_ns=asked.since_ns,
        until_ns=asked.until_ns,
        model=asked.model,
        action=asked.action,
        agent=asked.agent,
        tool=asked.tool,
        status=asked.status,
        unpriced=asked.unpriced,
        unscored=asked.unscored,
        ids=None if wanted is None else "\n".join(wanted),
        search=asked.search,
        quality_services=tuple(names),
        quality_names=tuple(names.values()),
        sort=sort,
        rising=rising,
        most=size,
        skip=number * size,
    )
    found = int(rows["found"][0]) if rows.height else 0
    return Page(found, _told(rows.drop("found"), verdicts, names, content))


def options(asked: Asked) -> dict[str, list[str]]:
    """The models, agents and tools to choose from, those of most calls first."""
    rows = data.lake("trace_options", service=asked.service, since_ns=asked.since_ns, until_ns=asked.until_ns)
    return {kind: rows.filter(pl.col("kind") == kind)["name"].to_list() for kind in ("model", "agent", "tool")}


def _told(
    rows: pl.DataFrame, verdicts: Mapping[str, ServiceVerdict], names: Mapping[str, str], content: bool
) -> pl.DataFrame:
    traces = tuple(rows["trace_id"].to_list())
    if not traces:
        none = pl.lit(None, pl.String)
        return rows.with_columns(asked=none, characters=pl.lit(None, pl.Int64), action=none, policy=none)
    scores = quality(data.lake("trace_scores", trace_ids=traces), rows, names)
    rows = rows.drop("quality").join(scores, on="trace_id", how="left", maintain_order="left")
    texts = pl.DataFrame(schema={"trace_id": pl.String, "asked": pl.String, "characters": pl.Int64})
    if content:
        prompts = data.lake("trace_prompts", trace_ids=traces, characters=PROMPT)
        told = pl.Series("asked", [opening(text) for text in prompts["text"].to_list()], dtype=pl.String)
        texts = prompts.select("trace_id", told, "characters")
    rows = rows.join(texts, on="trace_id", how="left", maintain_order="left")
    return rows.join(_decided(rows, verdicts), on="trace_id", how="left", maintain_order="left")


def quality(scores: pl.DataFrame, rows: pl.DataFrame, names: Mapping[str, str]) -> pl.DataFrame:
    """trace_id, quality: the newest score of each trace by the name that means quality for its service."""
    named = rows.select("trace_id", name=pl.col("service").replace_strict(dict(names), default="quality"))
    return (
        scores.filter(pl.col("value01").is_not_null())
        .join(named, on=["trace_id", "name"], how="inner")
        .sort("time_ns", nulls_last=False)
        .group_by("trace_id")
        .agg(quality=pl.col("value01").last())
    )


def opening(text: str | None) -> str | None:
    """What the first message of a user says, of the beginning of some messages as JSON."""
    if not text:
        return None
    try:
        messages = json.loads(text)
    except ValueError:
        return _cut_opening(text)
    users = [one for one in messages if isinstance(one, Mapping) and one.get("role") in ("user", "human")]
    for message in [*users, *[one for one in messages if isinstance(one, Mapping)]]:
        if said := plain(message.get("content")):
            return said
    return None


def plain(content: object) -> str:
    """The text of a message's content, without what is no text; "" for a sketch."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, Mapping)]
    return "\n".join(text for text in texts if isinstance(text, str))


def _cut_opening(text: str) -> str | None:
    """The same of JSON that is cut off in the middle: the text after the first content of a user, as far as it goes."""
    start = re.search(r'"role":\s*"(?:user|human)".*?"(?:content|text)":\s*"', text, re.DOTALL)
    start = start or re.search(r'"(?:content|text)":\s*"', text)
    if start is None:
        return None
    rest = re.match(r'(?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*', text[start.end() :])
    said = rest.group() if rest else ""
    try:
        return str(json.loads(f'"{said}"', strict=False))
    except ValueError:
        return said


# ---- what the run says of them


def _of_decisions(asked: Asked, verdicts: Mapping[str, ServiceVerdict]) -> pl.Series:
    """Ids of the traces at whose decision the runs' policies would change, or keep, what was done."""
    frames = [
        changed(name, verdict.run_id).filter(pl.col("changed") == (asked.decision == CHANGED))
        for name, verdict in verdicts.items()
        if asked.service in (None, name)
    ]
    every = pl.concat(frames)["trace_id"] if frames else pl.Series(dtype=pl.String)
    return every if asked.ids is None else every.filter(every.is_in(list(asked.ids)))


def changed(service: str, run_id: str) -> pl.DataFrame:
    """trace_id, time_ns, action, policy, changed of the decisions that judged a run's policy; empty without any."""
    schema = {"trace_id": pl.String, "time_ns": pl.Int64, "action": pl.String, "policy": pl.String}
    does = data.run_rows(run_id, f"policy_probabilities-{folder_name(service)}.parquet")
    done = data.run_rows(run_id, "decisions.parquet")
    if does is None or done is None:
        return pl.DataFrame(schema={**schema, "changed": pl.Boolean})
    would = (
        does.filter(pl.col("policy") == "suggested")
        .group_by("trace_id")
        .agg(policy=pl.col("action").sort_by("probability").last())
    )
    own = done.filter(pl.col("service") == service).select("trace_id", "time_ns", "action")
    try:
        found = own.join(would, on="trace_id", how="inner").collect()
    except (OSError, pl.exceptions.PolarsError):
        return pl.DataFrame(schema={**schema, "changed": pl.Boolean})
    return found.select(*schema, changed=pl.col("action") != pl.col("policy"))


def _decided(rows: pl.DataFrame, verdicts: Mapping[str, ServiceVerdict]) -> pl.DataFrame:
    """trace_id, action, policy of the traces that the runs know; of a trace of several decisions its first one."""
    found = []
    for name, verdict in verdicts.items():
        own = rows.filter(pl.col("service") == name)
        router = data.router(verdict.run_id, name) if own.height else ""
        known = decisions(verdict.run_id, name, own["trace_id"].to_list(), own["start_ns"].to_list())
        for row in known.iter_rows(named=True):
            policy = None if isinstance(router, str) else would(router, row["features"])
            found.append((row["trace_id"], row["action"], policy))
    schema = {"trace_id": pl.String, "action": pl.String, "policy": pl.String}
    return pl.DataFrame(found, schema=schema, orient="row").unique("trace_id", maintain_order=True)


def would(router: Router, features: Sequence[float]) -> str | None:
    """What a router would do first at these features of a prompt; None where it cannot read them."""
    import numpy as np

    row = np.asarray(features, dtype=np.float64)
    if router.course is not None:
        row = np.concatenate([row, past([], router.model.actions)])
    try:
        return explain(router, row).action
    except (ValueError, IndexError):
        return None


def decisions(
    run_id: str, service: str, traces: Sequence[str], starts: Sequence[int | None], *columns: str
) -> pl.DataFrame:
    """The decisions of a run in some traces: trace_id, action, features and more columns. `starts`, of the traces,
    spare reading the rest of the run; empty where the run cannot be read."""
    empty = pl.DataFrame(schema={"trace_id": pl.String, "action": pl.String, "features": pl.List(pl.Float32)})
    rows = data.run_rows(run_id, "decisions.parquet")
    times = [start for start in starts if start is not None]
    if rows is None or not times:
        return empty
    near = pl.col("time_ns").is_between(min(times) - _SLACK_NS, max(times) + _SLACK_NS)
    wanted = rows.filter(near & (pl.col("service") == service) & pl.col("trace_id").is_in(list(traces)))
    try:
        return wanted.select("trace_id", "action", "features", *columns).collect()
    except (OSError, pl.exceptions.PolarsError):
        return empty


_SLACK_NS = 60 * 60 * 1_000_000_000
"""The first call of a trace may start later than its first span."""
