"""Estimators: do the methods agree, and did they predict well before?"""

from __future__ import annotations

import streamlit as st

from dashboard import axes, estimators_charts, estimators_data, estimators_sections, figures, parts, words
from dashboard.estimators_data import METRICS, POLICIES, Backtest
from dashboard.records import ServiceVerdict
from dashboard.views import frame
from dashboard.views.chosen import chosen

TITLE, QUESTION = "Estimators", "Do the methods agree, and did they predict well before?"


@frame.page
def page() -> None:
    picked = chosen("estimators", TITLE, QUESTION)
    if picked is None:
        return
    verdict = picked.verdict
    found = estimators_data.load(verdict)
    st.html(parts.lead(estimators_sections.answer(verdict, found)))
    _agreement(verdict)
    if found is None:
        text = "This run was made before runs kept a backtest. A new one will show it."
        st.html(parts.empty("No backtest kept", text, "retroute nightly"))
    else:
        _backtest(verdict, found)
    _realised(verdict, found)
    st.html(parts.heading("Kinds of interval"))
    st.html(parts.kinds())


def _agreement(verdict: ServiceVerdict) -> None:
    about = "The same change from today by different methods. Where they part, trust none of them."
    st.html(parts.heading("Do the methods agree?", about))
    if not verdict.estimators:
        reason = figures.capital(figures.sentence(verdict.savings.reason or "nothing is suggested"))
        st.html(parts.remark(f"No method was tried. {reason}"))
        return
    st.html(estimators_sections.key())
    for column, axis in zip(st.columns(3, gap="medium"), axes.of(verdict), strict=True):
        rows = [(row.estimator, row.on(axis.name)) for row in verdict.estimators]
        with column:
            st.altair_chart(estimators_charts.forest(rows, axis, frame.ink()), key=f"forest-{axis.name}")
    st.html(estimators_sections.table(verdict))
    if certified := words.certified(verdict.estimators, axes.of(verdict)):
        st.html(parts.remark(certified))
    for name, reason in words.refusals(verdict.estimators):
        st.html(parts.remark(f"{figures.estimator(name)}: {figures.sentence(reason)}"))
    frame.download(estimators_data.estimates_frame(verdict), f"{verdict.service}-estimators", "estimators")


def _backtest(verdict: ServiceVerdict, found: Backtest) -> None:
    about = (
        "The newest decisions are cut several times. The window before a cut predicts, by models of older decisions "
        "alone; the window after it shows what came."
    )
    st.html(parts.heading("Did they predict well before?", about))
    if not found.trials:
        st.html(parts.remark(f"Not tested: {figures.sentence(found.refused or 'there is nothing to test')}"))
    else:
        _trials(found)
        st.html(estimators_sections.counts(found.counts))
        frame.download(estimators_data.trials_frame(found.trials), f"{verdict.service}-backtest", "backtest")
    st.html(estimators_sections.testable())


def _trials(found: Backtest) -> None:
    tested = [policy for policy in POLICIES if any(trial.policy == policy for trial in found.trials)]
    policy = _control("Tested on", "tested", tested, tested[-1], POLICIES)
    methods = list(dict.fromkeys(trial.estimator for trial in found.trials if trial.policy == policy))
    usual = "blend" if "blend" in methods else methods[-1]
    method = _control("Method", "method", methods, usual, {})
    rows = [trial for trial in found.trials if (trial.policy, trial.estimator) == (policy, method)]
    st.html(parts.remark("Line: where it was expected, its tick the prediction. Dot: what was seen, orange outside."))
    for column, (metric, (title, _)) in zip(st.columns(3, gap="medium"), METRICS.items(), strict=True):
        own = [trial for trial in rows if trial.metric == metric]
        with column:
            st.html(estimators_sections.eyebrow(title))
            if any(trial.held is not None for trial in own):
                st.altair_chart(estimators_charts.trials(own, metric, frame.ink()), key=f"trials-{metric}")
            else:
                reason = next((one.predicted.reason or one.seen.reason for one in own), "not tested")
                st.html(parts.remark(f"Not tested: {figures.sentence(reason)}"))


def _control(label: str, name: str, options: list[str], default: str, titles: dict[str, str]) -> str:
    """A control whose value stays in the URL."""
    picked, key = frame.kept(name, default, options), f"estimators-{name}"
    st.session_state[key] = picked

    def changed() -> None:
        frame.keep(name, st.session_state.get(key))

    if len(options) > 1:
        shown = {one: parts.plain(titles.get(one, one)) for one in options}
        st.segmented_control(label, options, key=key, on_change=changed, format_func=shown.__getitem__)
    return picked


def _realised(verdict: ServiceVerdict, found: Backtest | None) -> None:
    about = "What was said of a policy before, beside what it then did."
    st.html(parts.heading("Predicted beside realised", about))
    if found is not None and found.chosen:
        st.html(
            parts.remark(
                "This suggestion: on the decisions that chose it among all candidates, and on the newer ones that "
                "judged it. The best by chance is chosen too, so a small fall is usual."
            )
        )
        st.html(estimators_sections.beside(found.chosen, "chosen"))
    pasts = [*(found.in_force if found is not None else ()), *estimators_data.rollouts(verdict.service)]
    for place, past in enumerate(pasts):
        st.html(estimators_sections.past(past))
        st.html(estimators_sections.beside(past.figures, f"past-{place}"))
    if not pasts:
        st.html(
            parts.remark(
                "No policy of an earlier run has decided anything in this log, and there was no rollout: what a "
                "policy realises shows here once one is in force."
            )
        )
