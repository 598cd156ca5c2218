"""The use cases over a home folder: train, evaluate, nightly, list runs. The only place where lake, study and run
folder meet."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import polars as pl

from ingest.errors import AppError
from ingest.lake import Lake
from ingest.prices.shelf import home_prices
from ingest.pricing import Prices
from optimizer import (
    bundle,
    checks,
    executed,
    identified,
    looks,
    one_list,
    planned_labels,
    realised,
    rollout,
    runs,
    segments,
    session_scores,
    stated_propensities,
    stickiness,
    turns,
    versions,
)
from optimizer.ability import abilities
from optimizer.config import ServiceSettings, Settings
from optimizer.costs import costs_json
from optimizer.dataset import LoggedDataset
from optimizer.decisions import find_decisions, quality_name
from optimizer.expectations import chose_frame, judging_frame, scores_json
from optimizer.export import agents as agents_export
from optimizer.export import litellm as litellm_export
from optimizer.gate import Limits
from optimizer.kept_scores import judged_frame
from optimizer.logged import to_dataset, with_behaviour
from optimizer.looks import Look
from optimizer.plan_kept import plan_json, steps_plan_json
from optimizer.planned import exploration_json, question
from optimizer.planned_text import sentence_of
from optimizer.revisions import next_revision
from optimizer.runtime import Model, of_session
from optimizer.seen_range import ranged
from optimizer.sequential.logged import NoEpisodesError
from optimizer.sequential.service import judge_service, learn_service
from optimizer.sequential.sessions import Sessions, sessions
from optimizer.sequential.steps import Steps, find_steps
from optimizer.sequential.stop_scores import StepScore
from optimizer.study import Findings, assess, learn, look_at
from optimizer.summary import Notes, estimates_frame, probabilities_frame, service_json, suggestion_of, training_json
from optimizer.threads import one_thread

Progress = Callable[[str, float], None]

SEED = 0
EPSILON = 0.05
"""Share of decisions that an exported policy draws at random among the actions it knows, so that the next night can
learn."""


class NoDecisionsError(AppError):
    """There is nothing to learn from."""

    exit_code = 3


def train(
    home: Path, settings: Settings, services: Sequence[str] | None = None, progress: Progress | None = None
) -> str:
    """Learn a policy for each service and write a run; its id.

    Raises NoDecisionsError when no service has a decision with an outcome, LockHeldError when another run is under way.
    """
    with runs.lock(home):
        return _train(home, settings, services, progress or _silent)


def evaluate(home: Path, run_id: str | None = None, progress: Progress | None = None) -> dict[str, Any]:
    """Judge the policies of a run (the newest without an id) on its certifying decisions; the contents of
    verdicts.json.

    A run is judged once: asked again, the answer that was written is returned.
    """
    with runs.lock(home):
        return _evaluate(home, runs.run_folder(home, run_id), progress or _silent)


def nightly(
    home: Path, settings: Settings, services: Sequence[str] | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Train, judge, export what may be deployed and put it in force; other services keep the policy they had. Services
    with a rollout get theirs by it only; what those that are under way show is looked at, and may send them back."""
    report, began = progress or _silent, time.monotonic()
    with runs.lock(home):
        run_id = _train(home, settings, services, lambda what, share: report(what, 0.6 * share))
        folder = home / "runs" / run_id
        judged = _evaluate(home, folder, lambda what, share: report(what, 0.6 + 0.35 * share))
        proven = [name for name, found in judged["services"].items() if found["verdict"] == "deploy"]
        deployed = {name: run_id for name in proven if not rollout.holds(home, name)}
        for name in deployed:
            out = runs.bundle_folder(home, name)
            export = litellm_export if judged["services"][name].get("orchestration") is None else agents_export
            export.export(runs.policy_folder(folder, name), out, name)
            judged["services"][name]["bundle"] = str(out)
        runs.write_json(folder / "verdicts.json", judged)
        runs.set_active(home, deployed)
        rollout.watch(home, settings)
        report("done", 1.0)
    about = runs.read_json(folder / "manifest.json")
    return {
        "calls": about["calls"],
        "decisions": about["decisions"],
        "seconds": round(time.monotonic() - began, 3),
        "services": judged["services"],
    }


def list_runs(home: Path) -> list[dict[str, Any]]:
    """Newest first: run_id, created_at, services {name: verdict, null before it is judged}, active service names."""
    active = runs.active(home)
    found = []
    for run_id in runs.run_ids(home):
        folder = home / "runs" / run_id
        about = runs.read_json(folder / "manifest.json")
        verdicts = {}
        if (folder / "verdicts.json").exists():
            verdicts = {n: s["verdict"] for n, s in runs.read_json(folder / "verdicts.json")["services"].items()}
        found.append(
            {
                "run_id": run_id,
                "created_at": about["created_at"],
                "services": {name: verdicts.get(name) for name in about["services"]},
                "active": sorted(name for name, run in active.items() if run == run_id),
            }
        )
    return found


def _train(home: Path, settings: Settings, services: Sequence[str] | None, report: Progress) -> str:
    began = time.monotonic()
    report("reading calls", 0.0)
    log = _read_log(home, settings, services)
    decisions = log.decisions
    names = decisions["service"].unique().sort().to_list()
    usable = decisions.filter(pl.col("quality").is_not_null() | pl.col("cost_usd").is_not_null())
    if usable.is_empty():
        raise NoDecisionsError(
            f"no decision with an outcome in {home}",
            "send spans of model calls and scores to `retroute collect`, and set prices for their models",
        )
    run_id = runs.new_run_id(home)
    created_at = datetime.now(UTC).isoformat(timespec="seconds")

    def fill(folder: Path) -> None:
        kept, training = [], {}
        for place, name in enumerate(names):
            report(f"learning {name}", (place + 0.5) / (len(names) + 1))
            own, service = decisions.filter(pl.col("service") == name), settings.service(name)
            steps = log.steps.rows.filter(pl.col("service") == name)
            learned = None if steps.is_empty() else _learn_steps(own, steps, service, log, folder)
            if learned is None:
                learned = _learn_service(own, service, log.notes[name])
            training[name] = learned.training
            training[name]["propensity_faults"] = _of(log.faults, name)
            training[name]["segments"] = segments.kept(service.segments)
            spent = log.spent.filter(pl.col("service") == name)
            training[name]["costs"] = costs_json(log.price_list, spent, learned.decisions, log.prices)
            kept.append(learned.decisions)
            for kind, table in learned.tables.items():
                table.write_parquet(folder / runs.kept_name(name, kind))
            if learned.model is not None:
                bundle.write_policy(
                    runs.policy_folder(folder, name),
                    learned.model,
                    policy_id=name,
                    version=run_id,
                    revision=next_revision(home, name),
                    virtual_model=name,
                    evaluation={},
                    created_at=created_at,
                    **learned.course,
                )
        pl.concat(kept).sort("time_ns", "decision_id").write_parquet(folder / "decisions.parquet")
        runs.write_json(folder / "training.json", training)
        manifest = {
            "format": runs.FORMAT,
            "run_id": run_id,
            "created_at": created_at,
            "seconds": round(time.monotonic() - began, 3),
            "services": names,
            "versions": _versions(),
            **log.about,
        }
        runs.write_json(folder / "manifest.json", manifest)

    runs.write_run(home, run_id, fill)
    return run_id


@dataclass(frozen=True, eq=False)
class _Log:
    """What a run reads of the lake."""

    decisions: pl.DataFrame
    spent: pl.DataFrame
    """Every call's service, session, model, tokens and costs."""
    prices: Prices
    price_list: one_list.PriceList
    notes: Mapping[str, Notes]
    faults: pl.DataFrame
    """Logged probabilities that cannot be; rows of the query `propensity_faults`."""
    about: Mapping[str, Any]
    steps: Steps
    calls: pl.DataFrame
    """Of orchestrated services."""
    links: pl.DataFrame
    """Rows of the query `step_links`."""
    texts: pl.DataFrame
    """Rows of the query `step_texts`, of orchestrated services."""

    def outside(self, service: str) -> dict[str, Any]:
        """Shares of tokens and costs outside the named steps of the service's orchestrated point."""
        chosen = self.steps.points.filter(pl.col("orchestrated") & (pl.col("service") == service))
        found = self.steps.outside.join(chosen, on=["service", "point"], how="semi").sort("point")
        shares = {"tokens_share": None, "cost_share": None}
        return {name: found[name][0] for name in shares} if len(found) else shares


def _read_log(home: Path, settings: Settings, services: Sequence[str] | None) -> _Log:
    prices = home_prices(home, settings.prices, settings.discounts)
    price_list = one_list.newest(prices)
    with Lake.open(home) as lake:
        snapshot = lake.snapshot()
        calls, scores = lake.query("decision_calls"), lake.query("scores")
        labels = dict(lake.query("modelled_latency").iter_rows())
        faults = lake.query("propensity_faults")
        carried = segments.carriers(lake, {name: one.segments for name, one in settings.services.items()})
        if services:
            calls = calls.filter(pl.col("service").is_in(list(services)))
        calls = one_list.with_one_list(calls, prices, price_list.at)
        told = calls["policy_propensity"].is_not_null()
        calls = stated_propensities.filled(calls, stated_propensities.read(home))
        stated = calls.filter(calls["policy_propensity"].is_not_null() & ~told)["trace_id"].unique()
        names = calls["service"].drop_nulls().unique().sort().to_list()
        spent = calls.select(
            *("service", "kind", "session_id", "model_requested", "model_returned", "provider", "start_ns"),
            *("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"),
            *("cost_usd", "unpriced", "billed_usd", "billed_unpriced"),
        )
        count = len(calls)
        sticky = [name for name in names if settings.service(name).sticky]
        whole = [name for name in names if settings.service(name).episode == "session"]
        alone = calls.filter(~pl.col("service").is_in(whole).fill_null(False))
        scores, episodes = session_scores.placed(scores, alone, sticky), sessions(calls, whole)
        calls, scores, carried = episodes.joined(calls), episodes.judged(scores), episodes.joined(carried).unique()
        quality_names = {
            name: quality_name(
                scores.filter(pl.col("service") == name), settings.service(name).quality, settings.service(name).judge
            )
            for name in names
        }
        judge_names = {name: settings.service(name).judge for name in names}
        steps = _steps(lake, settings, calls, scores, quality_names, judge_names, episodes)
        links = episodes.joined(lake.query("step_links"))
        acting = steps.rows["trace_id"].unique(maintain_order=True).to_list()
        texts = episodes.joined(lake.query("step_texts", trace_ids=episodes.traces(acting)))
        inherited, fell_back = lake.query("session_draws")["trace_id"], lake.query("fallbacks")
        decided_by = realised.by_episode(episodes.joined(lake.query("policy_versions")))
    decisions = segments.marked(find_decisions(calls, scores, quality_names, judge_names, sticky), carried)
    decisions = executed.marked(decisions, calls, fell_back)
    decisions = stickiness.once_a_session(decisions, sticky, inherited)
    decisions = planned_labels.with_probabilities(decisions, planned_labels.read(home))
    decisions = realised.marked(decisions, decided_by)
    known = (pl.col("propensity_origin") == "logged").fill_null(False)
    decisions = decisions.with_columns(stated=known & pl.col("trace_id").is_in(stated.implode()))
    about = {
        "snapshot": snapshot,
        "calls": count,
        "decisions": len(decisions),
        "from_ns": decisions["time_ns"].min(),
        "to_ns": decisions["time_ns"].max(),
        "price_list": asdict(price_list),
    }
    notes = {name: Notes(quality, labels.get(name)) for name, quality in quality_names.items()}
    steps = replace(steps, rows=segments.marked(steps.rows, carried))
    calls = calls.join(steps.rows.select("trace_id").unique(), on="trace_id", how="semi", maintain_order="left")
    return _Log(decisions, spent, prices, price_list, notes, faults, about, steps, calls, links, texts)


def _steps(
    lake: Lake,
    settings: Settings,
    calls: pl.DataFrame,
    scores: pl.DataFrame,
    quality_names: Mapping[str, str | None],
    judge_names: Mapping[str, str | None],
    episodes: Sessions,
) -> Steps:
    services = {name: settings.service(name) for name in quality_names}
    return find_steps(
        calls,
        episodes.joined(lake.query("decision_spans")),
        scores,
        quality_names,
        judge_names,
        scored_spans=episodes.joined(lake.query("scored_spans")),
        texts=lambda traces: episodes.joined(lake.query("step_texts", trace_ids=episodes.traces(traces))),
        step_scores={name: StepScore(one.step_quality, one.step_quality_of) for name, one in services.items()},
        orchestrate={name: False if one.sticky else one.orchestrate for name, one in services.items()},
    )


@dataclass(frozen=True, eq=False)
class _Learned:
    """What was learned of a service."""

    decisions: pl.DataFrame
    """Those of the main point, with their behaviour filled in."""
    training: dict[str, Any]
    """What training.json keeps."""
    model: Model | None
    course: Mapping[str, Any]
    """What the policy folder says beside the model: its incumbent, and an orchestrator's script and length."""
    tables: Mapping[runs.Kept, pl.DataFrame] = field(default_factory=dict)
    """What the run keeps for later looks."""


def _learn_service(decisions: pl.DataFrame, service: ServiceSettings, notes: Notes) -> _Learned:
    """From single decisions."""
    point = _main_point(decisions)
    seen = decisions.filter(pl.col("point") == point)
    at_point = planned_labels.settled(seen)
    with one_thread():
        logged = to_dataset(at_point, seed=SEED)
        lessons = learn(
            logged,
            service.limits,
            service.value_usd,
            epsilon=EPSILON,
            seed=SEED,
            actions=_may_suggest(service, point),
            abilities=abilities(logged.data.action_names, service.models),
            sticky=service.sticky,
        )
    training = training_json(logged, lessons, service.limits, point=point, notes=notes)
    training["waiting"] = len(seen) - len(at_point)
    training["sessions"] = stickiness.sessions_json(at_point) if service.sticky else None
    filled, model = with_behaviour(at_point, logged.data), lessons.suggestion.model
    course: dict[str, Any] = {"sticky": service.sticky}
    if model is not None:
        course["incumbent"] = _incumbent(filled, service, model.actions)
        features = logged.data.features
        model = ranged(model, of_session(features) if service.sticky else features)
    tables: dict[runs.Kept, pl.DataFrame] = {}
    if (scores := lessons.scores) is not None:
        training["scores"], ids = scores_json(scores), filled["decision_id"]
        tables = {"price_scores": chose_frame(scores, ids), "judging_expected": judging_frame(scores, ids)}
    return _Learned(filled, training, model, course, tables)


def _learn_steps(
    decisions: pl.DataFrame, steps: pl.DataFrame, service: ServiceSettings, log: _Log, folder: Path
) -> _Learned | None:
    """From decisions that follow each other; each trace's first one stands among the single decisions. The run keeps
    the steps and who acted in them. None where no trace of the point has an outcome."""
    name = str(steps["service"][0])
    at_point = decisions.filter(pl.col("point") == _main_point(decisions))
    calls = log.calls.join(steps.select("trace_id").unique(), on="trace_id", how="semi", maintain_order="left")
    with one_thread():
        filled = with_behaviour(at_point, to_dataset(at_point, seed=SEED).data)
        acted = turns.acted(calls, log.links, log.texts)
        try:
            learned = learn_service(steps, calls, acted, service, log.notes[name], log.outside(name))
        except NoEpisodesError:
            return None
    steps.write_parquet(runs.steps_file(folder, name))
    acted.turns.write_parquet(runs.steps_file(folder, name, "turns"))
    acted.calls.write_parquet(runs.steps_file(folder, name, "turn_calls"))
    script, most = learned.script, learned.max_steps
    course: dict[str, Any] = {"incumbent": script[0], "script": script, "max_steps": most, "loop": most + 1}
    course["canary_percent"] = 100.0 * learned.training["share"]
    return _Learned(filled, learned.training, learned.model, course)


def _evaluate(home: Path, folder: Path, report: Progress) -> dict[str, Any]:
    if (folder / "verdicts.json").exists():
        return runs.read_json(folder / "verdicts.json")
    training = runs.read_json(folder / "training.json")
    decisions = pl.read_parquet(folder / "decisions.parquet")
    judged: dict[str, Any] = {}
    frames = []
    for place, (name, learned) in enumerate(training.items()):
        report(f"judging {name}", place / len(training))
        own = decisions.filter(pl.col("service") == name)
        model = bundle.read_policy(runs.policy_folder(folder, name))[0] if learned["label"] is not None else None
        if learned.get("orchestrated"):
            judged[name], frame = _judge_steps(home, folder, name, learned, model)
            checks.keep_steps(home, folder, name, own, judged[name])
            frames.append(frame)
            runs.write_json(folder / runs.kept_name(name, "evidence"), judged[name].pop("evidence"))
            among, point = learned["actions"], learned["point"]
            kept = steps_plan_json(judged[name], run_id=folder.name, point=point, actions=among)
            runs.write_json(folder / runs.kept_name(name, "plan"), kept)
            continue
        with one_thread():
            data = to_dataset(own, seed=SEED).data
            suggestion = suggestion_of(learned, model)
            further = _look(home, look_at(data, suggestion, name, learned["point"]))
            limits = Limits(**learned["limits"])
            limits = replace(limits, confidence=looks.charged(limits.confidence, further))
            guarded = segments.protected(own, learned.get("segments", {}), limits.quality_margin)
            findings = assess(data, suggestion, limits, seed=SEED, segments=guarded)
        judged[name] = {
            **service_json(data, findings, learned, _origins(own)),
            "orchestration": None,
            "limits": asdict(limits),
            "earlier_looks": further,
            "run_id": folder.name,
            "policy_id": None if model is None else f"{name}@{folder.name}",
            "bundle": None,
        }
        traces = own["trace_id"].to_list()
        asked = question(name, judged[name], learned, data, traces, model, run_id=folder.name)
        experiment = exploration_json(asked)
        judged[name]["plan"] = sentence_of(experiment)
        runs.write_json(folder / runs.kept_name(name, "plan"), plan_json(asked, experiment))
        _keep_evidence(folder, name, own, data, findings, limits, learned, guarded)
        checks.keep(home, folder, name, own, data, findings, judged[name], guarded, model)
        frames.append(estimates_frame(name, findings))
        probabilities = probabilities_frame(traces, data.action_names, findings)
        probabilities.write_parquet(runs.probabilities_file(folder, name))
    pl.concat(frames).write_parquet(folder / "estimates.parquet")
    verdicts = {"services": judged}
    runs.write_json(folder / "verdicts.json", verdicts)
    return verdicts


def _origins(own: pl.DataFrame) -> list[str]:
    """Of each decision, where its probability is from: logged, stated (by a file of the home), or estimated."""
    origin = pl.when("stated").then(pl.lit("stated")).otherwise("propensity_origin")
    return own.select(origin if "stated" in own.columns else "propensity_origin").to_series().to_list()


def _keep_evidence(
    folder: Path,
    name: str,
    own: pl.DataFrame,
    data: LoggedDataset,
    findings: Findings,
    limits: Limits,
    learned: Mapping[str, Any],
    guarded: Mapping[str, segments.Protected],
) -> None:
    """Writes how far the logs identify an answer, and the scores by which other prices can be tried."""
    said = identified.evidence_json(
        data,
        findings,
        limits,
        origin=_origins(own),
        trace_ids=own["trace_id"].to_list(),
        fixed=(learned.get("behaviour") or {}).get("fixed", []),
        protected=guarded,
    )
    runs.write_json(folder / runs.kept_name(name, "evidence"), said)
    if "suggested" in findings.probabilities:
        ids = own["decision_id"].gather(findings.splits.certify)
        table = judged_frame(findings.evaluation, findings.probabilities["suggested"], ids)
        table.write_parquet(folder / runs.kept_name(name, "judged_scores"))


def _judge_steps(
    home: Path, folder: Path, name: str, learned: Mapping[str, Any], model: Model | None
) -> tuple[dict[str, Any], pl.DataFrame]:
    """What is found of an orchestrated service, with its evidence, as JSON and as rows of estimates.parquet."""
    rows, acting, calls = (
        pl.read_parquet(runs.steps_file(folder, name, kind)) for kind in ("steps", "turns", "turn_calls")
    )
    with one_thread():
        said, frame = judge_service(
            name,
            rows,
            turns.Acted(acting, calls),
            learned,
            model,
            lambda look: _look(home, look),
            before=versions.previous(home, name, folder.name),
        )
    policy_id = None if model is None else f"{name}@{folder.name}"
    return {**said, "run_id": folder.name, "policy_id": policy_id, "bundle": None}, frame


def _look(home: Path, look: Look | None) -> int:
    """Notes a look at the judging decisions; how many there were before."""
    if look is None:
        return 0
    looks.record(home, [look])
    return looks.earlier(home, look)


def _of(faults: pl.DataFrame, service: str) -> list[dict[str, Any]]:
    """A service's rows, without its name."""
    return faults.filter(pl.col("service") == service).drop("service").to_dicts()


def _may_suggest(service: ServiceSettings, point: str) -> tuple[str, ...] | None:
    """The actions that retroute.toml allows at a point; None when it says nothing."""
    return service.points[point].actions if point in service.points else None


def _main_point(decisions: pl.DataFrame) -> str:
    """The decision point with most decisions; the first by name among equals."""
    counts = decisions["point"].value_counts().sort(["count", "point"], descending=[True, False])
    return str(counts["point"][0])


def _incumbent(decisions: pl.DataFrame, service: ServiceSettings, actions: tuple[str, ...]) -> str:
    """The configured incumbent, else the action that was taken most, among those that the policy knows."""
    if service.incumbent in actions:
        return str(service.incumbent)
    known = decisions.filter(pl.col("action").is_in(list(actions)))["action"].value_counts()
    return str(known.sort(["count", "action"], descending=[True, False])["action"][0])


def _versions() -> Mapping[str, str]:
    names = ("retroute", "numpy", "scikit-learn", "polars", "duckdb")
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in names}}


def _silent(what: str, share: float) -> None:
    return None
