"""What arrived but was not understood, or cannot be used: findings with a next step, from the lake's named queries."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from ingest.lake import Lake
from optimizer import config, prompts
from optimizer import unpriced as spend
from optimizer.runtime import decode_features, decode_orchestration, features_hash, opening

FEATURES_CHECKED = 2000
"""The newest decisions whose features are computed again."""

SHOWN = 10
"""Rows of a finding that are shown as text; JSON has all."""

_FEW_SCORES = 0.05
_MUCH_SKEW = 0.99
_MANY_FALLBACKS = 0.2
"""Of an action's calls."""


@dataclass(frozen=True)
class Finding:
    """One thing looked at. `attention`: someone should act. `next_step` is empty when nobody has to."""

    name: str
    says: str
    attention: bool
    next_step: str = ""
    rows: Sequence[Mapping[str, object]] = field(default=())


def examine(home: Path) -> list[Finding]:
    """All findings about a home's lake, those that ask for attention first. Raises HomeError when there is no lake."""
    settings = config.load(home)
    with Lake.open(home) as lake:
        found = [check(lake) for check in CHECKS]
        found.append(lost_scores(lake, settings))
    return sorted(found, key=lambda finding: not finding.attention)


def as_records(findings: Sequence[Finding]) -> dict[str, object]:
    """Findings for JSON: {"attention": bool, "findings": [...]}."""
    return {
        "attention": any(finding.attention for finding in findings),
        "findings": [
            {
                "name": f.name,
                "attention": f.attention,
                "says": f.says,
                "next_step": f.next_step,
                "rows": [dict(row) for row in f.rows],
            }
            for f in findings
        ],
    }


def as_text(finding: Finding) -> str:
    """A finding as lines for people."""
    lines = [f"{'!' if finding.attention else 'ok'}  {finding.name}: {finding.says}"]
    shown = [[f"{key} {value}" for key, value in row.items() if value not in (None, "")] for row in finding.rows]
    lines += ["      " + ", ".join(parts) for parts in shown[:SHOWN]]
    if len(finding.rows) > SHOWN:
        lines.append(f"      ... and {len(finding.rows) - SHOWN} more; --json shows all")
    if finding.next_step:
        lines.append(f"    next: {finding.next_step}")
    return "\n".join(lines)


def unknown_attributes(lake: Lake) -> Finding:
    rows = lake.query("unknown_attributes").to_dicts()
    if not rows:
        return Finding("unknown attributes", "every attribute is known", False)
    return Finding(
        "unknown attributes",
        f"{len(rows)} attribute keys are kept but not read",
        True,
        "If one carries a model, tokens, a session or a prompt, report it with a span; else it needs nothing.",
        rows,
    )


def unpriced(lake: Lake) -> Finding:
    rows = lake.query("unpriced").to_dicts()
    if not rows:
        return Finding("prices", "every model call has a cost", False)
    missing = sorted({str(row["model"]) for row in rows if str(row["reason"]).startswith("no price")})
    step = (
        f"Add [[prices]] to retroute.toml for {', '.join(missing[:5])}, then run `retroute prices reprice`."
        if missing
        else "Let the instrumentation report token counts (streams: ask for usage)."
    )
    return Finding("prices", spend.sentence(spend.in_all(lake.query("unpriced_shares"))), True, step, rows)


def uncounted(lake: Lake) -> Finding:
    """Calls without token counts, with estimates that go into no cost."""
    rows = lake.query("estimated_tokens").to_dicts()
    if not rows:
        return Finding("estimated tokens", "every model call has token counts", False)
    calls, known = (sum(int(row[name]) for row in rows) for name in ("calls", "estimated_calls"))
    tokens = sum(int(row[name] or 0) for row in rows for name in ("estimated_input_tokens", "estimated_output_tokens"))
    says = f"{calls:,} model calls told no tokens"
    if known:
        says += (
            f"; by their length {known:,} of them have about {tokens:,}, an estimate that is in no cost and no saving"
        )
    return Finding("estimated tokens", says, False, "", rows)


def scores(lake: Lake) -> Finding:
    health = lake.query("health_by_service").to_dicts()
    rows = [
        {"service": h["service"], "traces": h["traces"], "scored": h["scored_traces"]}
        for h in health
        if h["llm_calls"] and h["scored_traces"] < _FEW_SCORES * h["traces"]
    ]
    if not rows:
        return Finding("scores", "every service with model calls has scores", False)
    return Finding(
        "scores",
        f"{len(rows)} services have scores on less than {_FEW_SCORES:.0%} of their traces: too few to judge quality",
        True,
        "Send scores (POST /v1/scores, gen_ai.evaluation.result) or `retroute scores import FILE`.",
        rows,
    )


_LOST: Mapping[str, str] = {
    "several": "name only a session that made several decisions",
    "session": "name a session that is not here",
    "trace": "name a trace that is not here",
    "span": "name a span that is not here",
    "response": "name a response of no call, or of several",
    "no_choice": "judge traces without a model call",
}
"""Why a score reaches no decision."""


def lost_scores(lake: Lake, settings: config.Settings) -> Finding:
    """Scores that reach no decision; those of a session reach one where the settings say that it is one."""
    found = lake.query("scores_lost").to_dicts()
    rows = [row for row in found if row["why"] != "several" or not _whole(settings, row["service"])]
    if not rows:
        return Finding("lost scores", "every score reaches a decision", False)
    counts = {why: sum(int(row["scores"]) for row in rows if row["why"] == why) for why in _LOST}
    parts = [f"{count:,} {_LOST[why]}" for why, count in counts.items() if count]
    says = f"{sum(counts.values()):,} scores reach no decision: {'; '.join(parts)}"
    if counts["several"]:
        step = (
            "Name the trace in the score. Where a session is to be judged as a whole, say so under [services.NAME]: "
            'episode = "session", or sticky = true where it keeps its model.'
        )
    elif sum(counts.values()) > counts["no_choice"]:
        step = "Check that the ids in them are those of the spans, and that those are sent here."
    else:
        step = ""
    return Finding("lost scores", says, bool(step), step, rows)


def _whole(settings: config.Settings, service: str | None) -> bool:
    known = settings.service(service or "")
    return known.sticky or known.episode == "session"


def scales(lake: Lake) -> Finding:
    names = lake.query("unmapped_scores").to_dicts()
    unmapped, orphans = [n for n in names if n["unmapped"]], [n for n in names if n["orphans"]]
    if unmapped:
        shown = ", ".join(f"[scores.{json.dumps(str(n['name']))}]" for n in unmapped[:3])
        says = f"{len(unmapped)} kinds of scores have values that mean nothing on a scale from 0 to 1"
        return Finding(
            "scales", says, True, f"Declare {shown} with min and max, or labels, in retroute.toml.", unmapped
        )
    if orphans:
        says = f"{sum(int(n['orphans']) for n in orphans)} scores judge traces that are not here"
        step = "Check that the ids in them are those of the traces, and that those traces are sent here."
        return Finding("scales", says, True, step, orphans)
    return Finding("scales", "every score means something from 0 to 1", False)


def sessions(lake: Lake) -> Finding:
    health = lake.query("health_by_service").to_dicts()
    rows = [
        {"service": h["service"], "model calls": h["llm_calls"], "without session": h["no_session"]}
        for h in health
        if h["llm_calls"] and h["no_session"] >= h["llm_calls"]
    ]
    if not rows:
        return Finding("sessions", "every service names sessions", False)
    return Finding(
        "sessions",
        f"{len(rows)} services name no session: each trace counts as independent of all others",
        True,
        "If traces belong together, set gen_ai.conversation.id (or session.id) on their spans.",
        rows,
    )


def clocks(lake: Lake) -> Finding:
    rows = lake.query("clock_faults").to_dicts()
    if not rows:
        return Finding("clocks", "all times are possible", False)
    return Finding(
        "clocks",
        f"{sum(int(row['spans']) for row in rows)} spans have times that cannot be; their durations are unknown",
        True,
        "Check the clock of the hosts, and that spans are ended (a process that dies leaves them open).",
        rows,
    )


def instrumentations(lake: Lake) -> Finding:
    rows = lake.query("instrumentations").to_dicts()
    silent = [row for row in rows if row["silent"]]
    if silent:
        count = sum(int(row["silent"]) for row in silent)
        step = "Update the instrumentation, or let it report usage: streams need the option of their client."
        return Finding("instrumentations", f"{count} model calls came without token counts", True, step, rows)
    return Finding("instrumentations", f"{len(rows)} sent spans" if rows else "nothing has arrived yet", not rows,
                   "" if rows else "Point an OTLP exporter at `retroute collect`.", rows)  # fmt: skip


def rejected(lake: Lake) -> Finding:
    rows = lake.query("rejections").to_dicts()
    if not rows:
        return Finding("rejected", "everything that arrived could be read", False)
    count = sum(int(row["rejected"]) for row in rows)
    step = "Mend what sends them; its own log has the collector's answers (partial_success) to each request."
    return Finding("rejected", f"{count} spans, records or scores could not be used", True, step, rows)


def features(lake: Lake) -> Finding:
    """Whether the features that the router logged are those that training computes from the recorded prompt."""
    logged = lake.query("logged_features", most=FEATURES_CHECKED)
    # An orchestrator decides by the task, which is not the prompt of the agents' calls beside its decisions.
    logged = logged.filter(~pl.col("logged").fill_null("").map_elements(_of_steps, pl.Boolean))
    if logged.is_empty():
        return Finding("features", "no decision carries logged features beside its prompt", False)
    agree = logged.with_columns(
        instrumentation=pl.concat_str(
            pl.col("scope").fill_null(""), pl.col("scope_version").fill_null(""), separator=" "
        ).str.strip_chars(),
        agrees=pl.Series([_agrees(row) for row in logged.iter_rows(named=True)], dtype=pl.Boolean),
    )
    share = float(agree["agrees"].mean() or 0.0)  # type: ignore[arg-type]
    rows = (
        agree.group_by("service", "instrumentation", "policy_id", "policy_version")
        .agg(pl.len().alias("decisions"), pl.col("agrees").mean().round(4).alias("agree"))
        .sort("service", "instrumentation", "policy_id", "policy_version")
        .to_dicts()
    )
    says = f"{share:.1%} of {len(logged)} decisions have features that agree with the logged ones"
    if share >= _MUCH_SKEW:
        return Finding("features", says, False, "", rows)
    return Finding(
        "features",
        says,
        True,
        "The recorded prompt is not the one that was routed (cut, redacted, changed on the way, or sent without its "
        "tools), or the router runs other rules: then export the policy again. Training uses the logged features "
        "meanwhile.",
        rows,
    )


def fallbacks(lake: Lake) -> Finding:
    """Calls that another model answered than the one that was chosen: for the policy's choice they count in full, with
    the quality and the cost that the two had together."""
    rows = lake.query("fallbacks").to_dicts()
    if not rows:
        return Finding("fallbacks", "every routed call was answered by the model that was chosen", False)
    calls = sum(int(row["calls"]) for row in rows)
    every = sum({row["service"]: int(row["of_service"]) for row in rows}.values())
    routed = {(row["service"], row["action"]): int(row["routed"]) for row in rows}
    share = max(
        sum(int(row["calls"]) for row in rows if (row["service"], row["action"]) == one) / count
        for one, count in routed.items()
    )
    return Finding(
        "fallbacks",
        f"{calls:,} of {every:,} routed calls ({calls / every:.1%}) were answered by another model than the chosen "
        "one; each counts as an outcome of the choice, with all it cost",
        share >= _MANY_FALLBACKS,
        "Look at why the model fails: what is learned of it is mostly what its stand-in does."
        if share >= _MANY_FALLBACKS
        else "",
        rows,
    )


def propensities(lake: Lake) -> Finding:
    rows = lake.query("propensity_faults").to_dicts()
    if not rows:
        return Finding("propensities", "all logged probabilities of choices can be", False)
    return Finding(
        "propensities",
        f"{sum(int(row['traces']) for row in rows)} traces log probabilities of a choice that cannot be",
        True,
        "Mend the router that logs policy.propensity, policy.candidates and policy.probabilities: while the newest "
        "decisions carry such, they are estimated and nothing is deployed.",
        rows,
    )


def _of_steps(vector: str) -> bool:
    try:
        return len(decode_orchestration(vector)) > 0
    except ValueError:
        return False


def _agrees(row: Mapping[str, object]) -> bool:
    try:
        wanted = row["logged_hash"] or features_hash(decode_features(str(row["logged"])))
    except ValueError:
        return False
    messages, tools = _parsed(row["input_text"]), _parsed(row["tools_offered"])
    read = (messages, opening({"messages": messages})["messages"])  # the second by a sticky policy
    return any(features_hash(prompts.features(one, tools)) == wanted for one in read)


def _parsed(value: object) -> object:
    try:
        return json.loads(str(value)) if value else None
    except ValueError:
        return None


CHECKS: tuple[Callable[[Lake], Finding], ...] = (
    rejected,
    instrumentations,
    unknown_attributes,
    unpriced,
    uncounted,
    scores,
    scales,
    sessions,
    clocks,
    propensities,
    fallbacks,
    features,
)
"""In the order in which they are shown."""
