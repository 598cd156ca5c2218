"""An experiment as a LiteLLM bundle: the router chooses as it would without it, and draws by the row of that choice."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from ingest.errors import WorkError
from optimizer import bundle
from optimizer.config import Settings
from optimizer.dataset import Floats, Ints
from optimizer.evidence import Refused
from optimizer.exploration import Exploration
from optimizer.export import agents, litellm
from optimizer.logged import OTHER
from optimizer.planned import Question, StepsExperiment
from optimizer.revisions import next_revision
from optimizer.runtime import Model, of_session
from optimizer.sequential.policies import script_route
from optimizer.threads import one_thread

DRAWN = 0.2
"""Chance of a step of an orchestrated trace to be drawn, as long as none was."""
IMITATED = 0.9
"""Least share of today's choices that an exported policy must be able to repeat."""


def export(home: Path, question: Question, settings: Settings, out: Path) -> list[str]:
    """Write the experiment as a LiteLLM bundle; returns notes for the user.

    Raises WorkError where there is nothing to explore, or where today's choices cannot be repeated by a router.
    """
    if not question.open:
        raise WorkError(
            f"{question.service} is decided ('{question.verdict}'): there is nothing to explore",
            f"Export its policy: retroute export --target litellm --service {question.service} --out {out}",
        )
    if question.steps is not None:
        return _export_steps(home, question, question.steps, out)
    found = question.exploration()
    if isinstance(found, Refused):
        raise WorkError(f"no experiment for {question.service}: {found.reason}")
    sticky = settings.service(question.service).sticky
    model, notes = router_model(question, found, sticky=sticky)
    configured = settings.service(question.service).incumbent
    today = dict(zip(found.arms, np.sum([s.share * s.today for s in found.segments], axis=0), strict=True))
    incumbent = configured if configured in found.arms else max(found.arms, key=lambda arm: float(today[arm]))
    with tempfile.TemporaryDirectory() as folder:
        bundle.write_policy(
            Path(folder),
            model,
            policy_id=question.service,
            version=f"{question.run_id}-explore",
            revision=next_revision(home, question.service),
            virtual_model=question.service,
            incumbent=str(incumbent),
            evaluation={"explores": True, "decisions": found.decisions},
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            sticky=sticky,
        )
        return [*notes, *litellm.export(Path(folder), out, question.service)]


def _export_steps(home: Path, question: Question, steps: StepsExperiment, out: Path) -> list[str]:
    """The app's own script as a bundle for it, which draws a step of a trace with probability `DRAWN` until it has."""
    agents_only = [name for name in steps.actions if name != OTHER]
    with tempfile.TemporaryDirectory() as folder:
        bundle.write_policy(
            Path(folder),
            script_route(steps.script, tuple(agents_only), epsilon=DRAWN),
            policy_id=question.service,
            version=f"{question.run_id}-explore",
            revision=next_revision(home, question.service),
            virtual_model=question.service,
            incumbent=steps.script[0],
            evaluation={"explores": True},
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            script=steps.script,
        )
        return agents.export(Path(folder), out, question.service)


def router_model(question: Question, found: Exploration, *, sticky: bool = False) -> tuple[Model, list[str]]:
    """The model that draws by the experiment's table, and how well it repeats today's choices where it has to. A sticky
    router sees what all requests of a session share."""
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
    features = question.data.features
    if sticky:
        features = np.asarray(of_session(features), dtype=np.float64)
    model = imitation(features, chosen, found.arms, draws)
    greedy = model.values(features).argmax(axis=1)
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
