"""Judgements on spans: OpenInference's evaluations and annotations, inline or afterwards, and evaluation events."""

from __future__ import annotations

import dataclasses

import pytest
from otlp_traces import START, span, span_id, trace_id

from ingest.span_scores import of_span
from ingest.spans import Event

RELEVANCE = {"name": "relevance", "score": 0.92, "annotator_kind": "LLM", "explanation": "on topic"}


def carried(fields, prefix="evaluations.0.evaluation."):
    return {prefix + key: value for key, value in fields.items()}


def judged(attributes, *, links=(), events=()):
    return list(of_span(dataclasses.replace(span(2, attributes, events=events), links=tuple(links))))


@pytest.mark.parametrize("prefix", ["evaluations.0.evaluation.", "annotations.0.annotation."])
def test_a_step_judges_itself(prefix):
    (score,) = judged({"openinference.span.kind": "LLM", **carried(RELEVANCE, prefix)})
    assert (score.trace_id, score.span_id, score.name, score.value) == (trace_id(1), span_id(2), "relevance", 0.92)
    assert (score.source, score.explanation) == ("judge", "on topic")


def test_a_carrier_judges_the_span_that_its_link_names():
    link = (trace_id(9), span_id(9))
    (score,) = judged({"openinference.span.kind": "EVALUATOR", **carried(RELEVANCE)}, links=[link])
    assert (score.trace_id, score.span_id) == link
    (score,) = judged({"openinference.span.kind": "CHAIN", **carried(RELEVANCE)}, links=[link])
    assert (score.trace_id, score.span_id) == (trace_id(1), span_id(2))


def test_a_judgement_of_a_trace_or_a_session_names_no_span():
    attributes = carried(RELEVANCE, "trace.evaluations.0.evaluation.")
    (score,) = judged(attributes, links=[(trace_id(9), span_id(9))])
    assert (score.trace_id, score.span_id, score.session_id) == (trace_id(9), None, None)
    attributes = carried({"name": "tone", "label": "pass"}, "session.annotations.0.annotation.")
    (score,) = judged(attributes | {"session.id": "s1"})
    assert (score.trace_id, score.session_id, score.label, score.value) == (None, "s1", "pass", None)
    assert judged(attributes) == [None]  # no session is named


def test_all_numbers_are_read_until_the_first_gap():
    many = {}
    for n in (0, 1, 3):
        many |= carried({"name": f"n{n}", "score": n}, f"evaluations.{n}.evaluation.")
    assert [score.name for score in judged(many)] == ["n0", "n1"]


def test_a_judgement_without_a_value_or_a_label_is_none():
    assert judged(carried({"name": "q", "explanation": "hm"})) == [None]


def test_an_identifier_makes_the_later_judgement_replace_the_earlier():
    first = span(2, carried(RELEVANCE | {"identifier": "v2"}))
    second = dataclasses.replace(
        span(2, carried(RELEVANCE | {"identifier": "v2", "score": 0.1})), end_ns=START + 10**12
    )
    (one,), (other,) = of_span(first), of_span(second)
    assert one.score_id == other.score_id
    assert other.time_ns > one.time_ns
    (plain,) = judged(carried(RELEVANCE))
    assert plain.score_id != one.score_id


def test_an_evaluation_event_on_a_carrier_judges_what_it_links_to():
    event = Event("gen_ai.evaluation.result", 5, {"gen_ai.evaluation.name": "q", "gen_ai.evaluation.score.value": 1})
    (score,) = judged({}, events=[event], links=[(trace_id(9), span_id(9))])
    assert (score.trace_id, score.span_id, score.value) == (trace_id(9), span_id(9), 1.0)
    (score,) = judged({}, events=[event])
    assert (score.trace_id, score.span_id) == (trace_id(1), span_id(2))


def test_an_evaluation_in_the_attributes_of_a_span_is_read():
    (score,) = judged({"gen_ai.evaluation.name": "q", "gen_ai.evaluation.score.label": "fail"})
    assert (score.span_id, score.name, score.label) == (span_id(2), "q", "fail")


def test_a_span_without_judgements_has_none():
    assert judged({"gen_ai.request.model": "m", "evaluations": "x"}) == []
