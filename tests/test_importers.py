"""Foreign records -> spans and scores, format by format. The records are as the tools document or write them, shortened."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from ingest.dialects.registry import read
from ingest.errors import UsageError
from ingest.foreign_ids import span_id, trace_id
from ingest.importers import encode, langfuse, registry
from ingest.lake import Lake
from ingest.otlp import decode
from optimizer import cli

GOLDEN = Path(__file__).parent / "golden"
PHOENIX_INPUTS = [36, 39, 53, 61, 65, 71]
TRACE, SPAN = "b9775318d22c4b106b15672db9cbff0c", "ee2316f15f39c74d"
LITELLM = {
    "request_id": "chatcmpl-1", "call_type": "acompletion", "spend": 0.0012, "total_tokens": 130, "prompt_tokens": 100,
    "completion_tokens": 30, "startTime": "2026-11-30T08:00:00.250000+00:00", "endTime": "2026-11-30T08:00:02+00:00",
    "completionStartTime": "2026-11-30T08:00:01+00:00", "model": "openai/gpt-4o-mini", "model_group": "cheap",
    "custom_llm_provider": "openai", "user": "u", "end_user": "e1", "session_id": "s1", "cache_hit": "False",
    "status": "success", "messages": [{"role": "user", "content": "hi"}], "request_tags": "[]",
    "response": {"id": "chatcmpl-1", "choices": [{"message": {"role": "assistant", "content": "hello"}}]},
    "metadata": json.dumps({
        "user_api_key_alias": "shop",
        "usage_object": {"prompt_tokens_details": {"cached_tokens": 40}, "completion_tokens_details": {"reasoning_tokens": 5}},
    }),
    "proxy_server_request": {"max_tokens": 50, "tools": [{"type": "function", "function": {"name": "look"}}]},
}  # fmt: skip
LANGFUSE = {
    "id": "obs-1", "trace_id": "my-trace", "project_id": "p", "type": "GENERATION", "parent_observation_id": "root",
    "start_time": "2026-05-29 13:46:19.963000", "end_time": "2026-05-29 13:46:21.000000", "name": "answer",
    "level": "DEFAULT", "input": '[{"role": "user", "content": "hi"}]', "output": '{"role": "assistant", "content": "yo"}',
    "provided_model_name": "gpt-4o", "model_parameters": '{"max_tokens": 9}', "total_cost": 0.01, "prompt_name": "greet",
    "prompt_version": 3, "usage_details": {"input": 60, "input_cached_tokens": 40, "output": 25, "output_reasoning_tokens": 5,
    "total": 130}, "completion_start_time": "2026-05-29 13:46:20.463000", "session_id": "s1", "user_id": "e1",
}  # fmt: skip
PHOENIX = {
    "name": "ChatCompletion", "span_kind": "LLM", "parent_id": None, "start_time": "2026-11-30T08:00:00+00:00",
    "end_time": "2026-11-30T08:00:01+00:00", "status_code": "OK", "status_message": "", "context.span_id": SPAN,
    "context.trace_id": TRACE, "attributes.llm.model_name": "gpt-4o", "attributes.llm.token_count.prompt": 100,
    "attributes.llm.token_count.completion": 30, "attributes.session.id": "s1", "attributes.user.id": "e1",
    "attributes.llm.input_messages": [{"message.role": "user", "message.content": "hi"}],
    "attributes.llm.output_messages": [{"message.role": "assistant", "message.content": "hello"}],
    "attributes.metadata": {"a": 1}, "events": [{"name": "exception", "timestamp": "2026-11-30T08:00:01Z", "attributes": {"a": "b"}}],
}  # fmt: skip
HELICONE = {
    "request_id": "6f0d1a6e-1", "response_id": "r", "request_created_at": "2026-11-30 08:00:00.000",
    "response_created_at": "2026-11-30 08:00:02.000", "response_status": 200, "request_model": "gpt-4o",
    "response_model": "gpt-4o-2026", "provider": "OPENAI", "delay_ms": 1500, "time_to_first_token": 250,
    "prompt_tokens": 60, "completion_tokens": 30, "prompt_cache_read_tokens": 40, "costUSD": 0.002, "model": "gpt-4o",
    "request_user_id": "e1", "request_properties": {"Helicone-Session-Id": "s1", "app": "shop"},
    "request_body": {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]},
    "response_body": {"choices": [{"message": {"role": "assistant", "content": "hello"}}]},
    "scores": {"accuracy": 1}, "feedback_rating": True,
}  # fmt: skip
OPENAI = {
    "request_id": "r1", "created_at": 1796025600.5, "latency_ms": 1500, "metadata": {"session_id": "s1", "user_id": "e1"},
    "request": {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9},
    "response": {"id": "chatcmpl-9", "model": "gpt-4o-2026", "object": "chat.completion",
                 "choices": [{"message": {"role": "assistant", "content": "hello"}}],
                 "usage": {"prompt_tokens": 100, "completion_tokens": 30, "prompt_tokens_details": {"cached_tokens": 40}}},
}  # fmt: skip
PROMPTLAYER = {
    "id": 12345, "engine": "gpt-4o", "provider_type": "openai", "input_tokens": 100, "output_tokens": 30, "price": 0.005,
    "request_start_time": "2026-03-15T10:30:00", "request_end_time": "2026-03-15T10:30:01", "latency": 1.234,
    "tags_array": ["production"], "metadata": [{"user_id": "e1"}, {"session_id": "s1"}], "prompt_name": "my-prompt",
    "scores": [{"name": "helpful", "score": 80}],
    "prompt_blueprint": {"prompt_template": {"messages": [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "hello"}]}]}},
}  # fmt: skip
# ruff: noqa: E501
RECORDS = {
    "litellm": LITELLM, "langfuse": LANGFUSE, "phoenix": PHOENIX, "helicone": HELICONE, "openai": OPENAI,
    "promptlayer": PROMPTLAYER,
}  # fmt: skip


def items(tmp_path, record, form="jsonl", name="auto"):
    path = tmp_path / f"export.{form}"
    if form == "jsonl":
        path.write_text(json.dumps(record) + "\n")
    elif form == "json":
        path.write_text(json.dumps([record]))
    elif form == "csv":
        cells = {k: json.dumps(v) if isinstance(v, dict | list) else v for k, v in record.items() if v is not None}
        pl.DataFrame([cells]).write_csv(path)
    else:
        pl.DataFrame([record]).write_parquet(path)
    ((importer, source),) = registry.find([str(path)], name)
    return importer.name, list(importer.read(source))


def only_span(found):
    (item,) = found
    assert item.problem is None
    (span,) = item.spans
    (again,) = decode(encode.traces_request([span]), "traces", "json").spans
    assert (again.trace_id, again.span_id, again.start_ns, again.end_ns) == (
        span.trace_id, span.span_id, span.start_ns, span.end_ns,
    )  # fmt: skip
    return again


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_becomes_a_model_call_with_its_tokens_texts_session_and_user(tmp_path, name):
    recognised, found = items(tmp_path, RECORDS[name])
    assert recognised == name
    reading = read(only_span(found))
    facts = reading.facts
    assert (facts.kind, facts.session_id, facts.user_id) == ("llm", "s1", "e1")
    assert (facts.input_tokens, facts.output_tokens) == (100, 30)
    assert json.loads(reading.content.input_text)[0]["role"] == "user"
    assert "hi" in reading.content.input_text
    assert json.loads(reading.content.output_text)[0]["role"] == "assistant"
    assert not [key for key in reading.unknown if not key.startswith(("metadata", "langfuse."))]


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_every_form_of_file_gives_the_same_span(tmp_path, name, form):
    _, lines = items(tmp_path, RECORDS[name])
    recognised, found = items(tmp_path, RECORDS[name], form)
    assert recognised == name
    one, other = read(only_span(lines)), read(only_span(found))
    assert (other.facts, other.content) == (one.facts, one.content)


def test_litellms_details(tmp_path):
    span = only_span(items(tmp_path, LITELLM)[1])
    facts = read(span).facts
    assert (facts.model_requested, facts.model_returned, facts.provider) == ("cheap", "gpt-4o-mini", "openai")
    assert (facts.cache_read_tokens, facts.reasoning_tokens, facts.max_tokens) == (40, 5, 50)
    assert (facts.ttft_s, facts.reported_cost_usd, span.service) == (0.75, 0.0012, "shop")
    assert span.end_ns - span.start_ns == 1_750_000_000


def test_what_litellms_cache_answered_is_no_model_call(tmp_path):
    facts = read(only_span(items(tmp_path, LITELLM | {"cache_hit": "True"})[1])).facts
    assert (facts.kind, facts.input_tokens) == ("chain", None)


def test_a_failed_request_of_litellm_is_an_error_without_tokens(tmp_path):
    failed = LITELLM | {
        "status": "failure", "prompt_tokens": 0, "completion_tokens": 0, "response": {},
        "metadata": {"error_information": {"error_class": "RateLimitError", "error_message": "slow down"}},
    }  # fmt: skip
    span = only_span(items(tmp_path, failed)[1])
    facts = read(span).facts
    assert (span.status, facts.error_type, facts.input_tokens) == ("error", "RateLimitError", None)


def test_a_row_as_litellms_proxy_writes_it_when_it_keeps_prompts(tmp_path):
    """Its `messages` stay empty: what was asked is in the request; what is not known is an empty text or "None"."""
    request = {"model": "cheap", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
    row = LITELLM | {
        "messages": "{}", "proxy_server_request": json.dumps(request), "response": json.dumps(LITELLM["response"]),
        "cache_hit": "None", "end_user": "", "user": "u9", "spend": None, "completionStartTime": LITELLM["endTime"],
    }  # fmt: skip
    reading = read(only_span(items(tmp_path, row)[1]))
    facts = reading.facts
    assert (facts.kind, facts.user_id, facts.max_tokens, facts.ttft_s) == ("llm", "u9", 9, None)
    assert (facts.reported_cost_usd, facts.input_tokens) == (None, 100)
    assert "hi" in reading.content.input_text
    assert "hello" in reading.content.output_text


def test_langfuses_input_is_the_sum_of_its_classes_and_ids_are_stable(tmp_path):
    span = only_span(items(tmp_path, LANGFUSE)[1])
    facts = read(span).facts
    assert (facts.input_tokens, facts.cache_read_tokens, facts.output_tokens, facts.reasoning_tokens) == (
        100,
        40,
        30,
        5,
    )
    assert (span.trace_id, span.span_id, span.parent_span_id) == (
        trace_id("my-trace"),
        span_id("obs-1"),
        span_id("root"),
    )
    assert (facts.prompt_name, facts.prompt_version, facts.ttft_s, facts.max_tokens) == ("greet", "3", 0.5, 9)


def test_a_trace_of_langfuses_api_brings_its_observations_and_scores(tmp_path):
    inner = {"id": SPAN, "type": "SPAN", "startTime": "2026-05-29T13:46:19Z", "name": "step"}
    whole = {
        "id": TRACE, "timestamp": "2026-05-29T13:46:19Z", "name": "chat", "sessionId": "s9", "projectId": "p",
        "observations": [inner], "scores": [{"id": "x", "name": "q", "value": 0.5, "dataType": "NUMERIC"}],
    }  # fmt: skip
    name, (item,) = items(tmp_path, whole)
    root, step = item.spans
    assert (name, root.trace_id, step.parent_span_id) == ("langfuse", TRACE, root.span_id)
    assert root.attributes["gen_ai.conversation.id"] == "s9"
    assert [(score["trace_id"], score["value"]) for score in item.scores] == [(TRACE, 0.5)]


def downloaded(**changed):
    """A trace as Langfuse's page of it downloads it: a trace without observations inside, and those beside it."""
    told = {
        "attributes": {"gen_ai.system": "openai", "gen_ai.request.model": "gpt-4o"},
        "resourceAttributes": {"service.name": "shop"},
    }
    call = {
        "id": SPAN, "traceId": TRACE, "type": "GENERATION", "parentObservationId": None, "name": "", "model": "gpt-4o-2026",
        "startTime": "2026-05-29T13:46:19.963Z", "endTime": "2026-05-29T13:46:21.963Z", "level": "DEFAULT",
        "latency": 2000, "usageDetails": {"input": 100, "output": 30, "total": 130}, "totalCost": 0.002,
        "inputUsage": 100, "outputUsage": 30, "input": [{"role": "user", "content": "hi"}], "output": "hello",
        "metadata": told,
    } | changed  # fmt: skip
    trace = {
        "id": TRACE, "projectId": "p", "name": "chat", "timestamp": "2026-05-29T13:46:19.728Z", "tags": ["a"],
        "bookmarked": False, "userId": "e9", "sessionId": "s9", "metadata": json.dumps(told), "latency": 2.236,
        "scores": [{"id": "x", "name": "toxicity", "value": 0, "dataType": "NUMERIC", "source": "EVAL",
                    "traceId": TRACE, "observationId": None}],
    }  # fmt: skip
    return {"trace": trace, "observations": [call]}


def test_a_trace_downloaded_from_langfuses_page_keeps_its_session_its_scores_and_who_sent_it(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(downloaded(), indent=2))
    ((importer, source),) = registry.find([str(path)])
    (item,) = importer.read(source)
    root, call = item.spans
    assert (importer.name, item.problem, call.parent_span_id) == ("langfuse", None, root.span_id)
    assert (root.attributes["gen_ai.conversation.id"], root.attributes["user.id"]) == ("s9", "e9")
    assert (root.end_ns - root.start_ns, call.end_ns - call.start_ns) == (2_236_000_000, 2_000_000_000)
    facts = read(call).facts
    assert (facts.provider, facts.model_requested, facts.model_returned) == ("openai", "gpt-4o", "gpt-4o-2026")
    assert (root.service, call.service, facts.reported_cost_usd) == ("shop", "shop", 0.002)
    assert [(score["trace_id"], score["name"], score["value"]) for score in item.scores] == [(TRACE, "toxicity", 0)]


def test_an_unnamed_sender_of_langfuse_is_no_service(tmp_path):
    unnamed = {"resourceAttributes": {"service.name": "unknown_service:python"}}
    span = langfuse.observation(downloaded(metadata=unnamed)["observations"][0], None)
    assert span.service == "langfuse"


@pytest.mark.parametrize(
    ("details", "tokens"),
    [
        ({"input": 60, "input_cache_read": 40, "output": 25, "output_reasoning": 5, "total": 130}, (100, 40, 30, 5)),
        ({"input": 60, "input_cache_read": 40, "output": 25, "output_reasoning": 5}, (100, 40, 30, 5)),
        ({"input": 100, "output": 30, "completion_details.reasoning": 5, "total": 130}, (100, None, 30, 5)),
        ({"input": 100, "prompt_details.cache_read": 40, "output": 30}, (100, 40, 30, None)),
        ({"input": 100, "output": 30, "cache_read_input_tokens": 40, "total": 130}, (100, 40, 30, None)),
    ],
)
def test_langfuses_classes_are_added_unless_its_total_says_that_they_are_parts(details, tokens):
    span = langfuse.observation(downloaded(usageDetails=details)["observations"][0], None)
    facts = read(span).facts
    assert (facts.input_tokens, facts.cache_read_tokens, facts.output_tokens, facts.reasoning_tokens) == tokens


def test_a_categorical_score_of_langfuse_keeps_its_label_and_not_its_index(tmp_path):
    score = {"id": "s", "timestamp": "2026-05-29 13:46:19.963000", "trace_id": TRACE, "name": "tone", "value": 2,
             "data_type": "CATEGORICAL", "string_value": "good", "source": "ANNOTATION"}  # fmt: skip
    name, (item,) = items(tmp_path, score)
    assert (name, item.scores[0]["label"], item.scores[0].get("value")) == ("langfuse", "good", None)
    assert item.scores[0]["source"] == "human"


def test_phoenix_attributes_are_flat_again(tmp_path):
    span = only_span(items(tmp_path, PHOENIX)[1])
    assert (span.trace_id, span.span_id) == (TRACE, SPAN)
    assert span.attributes["llm.input_messages.0.message.content"] == "hi"
    assert json.loads(span.attributes["metadata"]) == {"a": 1}
    assert [event.name for event in span.events] == ["exception"]


def test_spans_that_phoenix_gave_back_read_as_they_were_sent():
    """The answer of Phoenix 20.26's API to spans of OpenInference's OpenAI and LangChain instrumentations."""
    ((importer, source),) = registry.find([str(GOLDEN / "phoenix_spans.json")])
    readings = [read(span) for item in importer.read(source) for span in item.spans]
    assert importer.name == "phoenix"
    assert len(readings) == 13
    calls = [reading for reading in readings if reading.facts.kind == "llm"]
    assert sorted(reading.facts.input_tokens for reading in calls) == PHOENIX_INPUTS
    assert {reading.facts.session_id for reading in readings if reading.facts.user_id} == {"lc-sess-5"}
    assert all(json.loads(reading.content.input_text) for reading in calls)


def test_phoenix_annotations_are_scores(tmp_path):
    row = {
        "span_id": SPAN,
        "annotation_name": "correct",
        "annotator_kind": "HUMAN",
        "result.score": 1.0,
        "result.label": "ok",
    }
    name, (item,) = items(tmp_path, row)
    (score,) = item.scores
    assert name == "phoenix"
    assert (score["span_id"], score["name"], score["value"], score["source"]) == (SPAN, "correct", 1.0, "human")


def test_helicones_units_and_scores(tmp_path):
    _, (item,) = items(tmp_path, HELICONE)
    (span,) = item.spans
    facts = read(span).facts
    assert (facts.ttft_s, span.end_ns - span.start_ns, facts.reported_cost_usd) == (0.25, 1_500_000_000, 0.002)
    assert [(score["name"], score["value"]) for score in item.scores] == [("accuracy", 1.0), ("feedback", 1.0)]


def test_helicones_counts_leave_out_cached_input_and_reasoning(tmp_path):
    counted = {"prompt_tokens": 50, "completion_tokens": 25, "reasoning_tokens": 5, "prompt_cache_write_tokens": 10}
    facts = read(only_span(items(tmp_path, HELICONE | counted)[1])).facts
    assert (facts.input_tokens, facts.cache_read_tokens, facts.cache_write_tokens) == (100, 40, 10)
    assert (facts.output_tokens, facts.reasoning_tokens) == (30, 5)


def test_helicones_cost_is_usd_under_any_of_its_names_and_0_where_it_has_no_price(tmp_path):
    for name, cost, expected in (("cost", 0.002, 0.002), ("cost_usd", 0.002, 0.002), ("cost", 0, None)):
        record = {key: value for key, value in HELICONE.items() if key != "costUSD"} | {name: cost}
        assert read(only_span(items(tmp_path, record)[1])).facts.reported_cost_usd == expected


def test_helicones_scores_with_their_type_and_a_users_feedback_among_them(tmp_path):
    said = {"accuracy": {"value": 1, "valueType": "number"}, "helicone-score-feedback": 0}
    _, (item,) = items(tmp_path, HELICONE | {"scores": said, "feedback_rating": None})
    assert [(score["name"], score["value"], score["source"]) for score in item.scores] == [
        ("accuracy", 1.0, ""),
        ("feedback", 0.0, "user"),
    ]


def test_files_as_helicones_export_tool_writes_them(tmp_path):
    """A comma after the last record of a JSON list; quotes of a CSV's bodies doubled twice."""
    listed, table = tmp_path / "output.json", tmp_path / "output.csv"
    listed.write_text("[\n" + "".join(json.dumps(HELICONE | {"request_id": own}) + ",\n" for own in "ab") + "]\n")
    row = {
        key: json.dumps(value).replace('"', '""') if isinstance(value, dict) else value
        for key, value in HELICONE.items()
        if key not in ("request_id", "response_body", "request_model", "scores", "feedback_rating")
    }
    pl.DataFrame([row]).write_csv(table)
    for path, records in ((listed, 2), (table, 1)):
        ((importer, source),) = registry.find([str(path)])
        found = [(item.problem, read(item.spans[0])) for item in importer.read(source)]
        assert (importer.name, len(found), {problem for problem, _ in found}) == ("helicone", records, {None})
        for _, reading in found:
            assert (reading.facts.model_requested, reading.facts.session_id) == ("gpt-4o", "s1")
            assert "hi" in reading.content.input_text


def test_a_request_as_promptlayer_answers_when_it_is_logged(tmp_path):
    """Its template stands under the version's name, and the score of 0 that its SDK sends is nobody's judgement."""
    logged = {key: value for key, value in PROMPTLAYER.items() if key not in ("prompt_blueprint", "scores", "latency")}
    model = {"provider": "openai", "name": "gpt-4o", "parameters": {"max_tokens": 9}}
    version = PROMPTLAYER["prompt_blueprint"] | {"metadata": {"model": model}}
    logged |= {"prompt_version": version, "score": 0, "scores": [], "span_id": None, "type": "request"}
    name, (item,) = items(tmp_path, logged)
    reading = read(item.spans[0])
    assert (name, item.problem, item.scores) == ("promptlayer", None, [])
    assert (reading.facts.input_tokens, reading.facts.max_tokens) == (100, 9)
    assert "hi" in reading.content.input_text
    assert "hello" in reading.content.output_text
    _, (item,) = items(tmp_path, logged | {"input_tokens": 0, "output_tokens": 0, "price": 0.0})
    facts = read(item.spans[0]).facts
    assert (facts.input_tokens, facts.output_tokens, facts.reported_cost_usd) == (None, None, None)


def test_anthropics_cached_input_is_added(tmp_path):
    usage = {"input_tokens": 10, "output_tokens": 30, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 10}
    record = OPENAI | {"response": OPENAI["response"] | {"usage": usage}}
    facts = read(only_span(items(tmp_path, record)[1])).facts
    assert (facts.input_tokens, facts.cache_read_tokens, facts.cache_write_tokens) == (100, 80, 10)


def test_output_of_the_batch_api_is_read(tmp_path):
    body = OPENAI["response"] | {"created": 1796025600}
    name, found = items(
        tmp_path, {"id": "b", "custom_id": "c1", "response": {"status_code": 200, "body": body}, "error": None}
    )
    assert (name, read(only_span(found)).facts.input_tokens) == ("openai", 100)


def test_promptlayers_scores_are_shares_and_its_latency_seconds(tmp_path):
    without_end = {key: value for key, value in PROMPTLAYER.items() if key != "request_end_time"}
    _, (item,) = items(tmp_path, without_end)
    (span,), (score,) = item.spans, item.scores
    assert (score["name"], score["value"], score["span_id"]) == ("helpful", 0.8, span.span_id)
    assert span.end_ns - span.start_ns == 1_234_000_000


@pytest.mark.parametrize("name", RECORDS)
def test_what_is_missing_is_said_with_its_line(tmp_path, name):
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(RECORDS[name]) + '\n{"nothing": 1}\n{broken\n')
    ((importer, source),) = registry.find([str(path)], name)
    good, empty, broken = importer.read(source)
    assert len(good.spans) == 1
    assert (empty.line, broken.line) == (2, 3)
    assert "the rest is imported" in empty.problem
    assert "not JSON" in broken.problem


def test_a_file_of_no_known_format_is_refused_with_the_names_of_those_known(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"nothing": 1}\n')
    with pytest.raises(UsageError, match="of no format that is known") as refused:
        registry.find([str(tmp_path / "x.jsonl")])
    assert "litellm" in refused.value.hint


def test_a_folder_of_all_formats_is_imported_once(tmp_path, capsys):
    folder, home = tmp_path / "exports", tmp_path / "home"
    folder.mkdir()
    for name, record in RECORDS.items():
        (folder / f"{name}.jsonl").write_text(json.dumps(record) + "\n")
    arguments = ["import", "--home", str(home), "--json", str(folder)]
    assert cli.run(arguments) == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["spans"], first["scores"], first["unchanged"]) == (6, 3, 0)
    assert cli.run(arguments) == 0
    assert json.loads(capsys.readouterr().out)["unchanged"] == 6
    assert cli.run([*arguments, "--again"]) == 0
    capsys.readouterr()
    with Lake.open(home) as lake:
        assert lake.sql("select count(*) from calls where input_tokens = 100 and output_tokens = 30").item() == 6
        assert lake.sql("select count(*) from scores").item() == 3
        assert lake.sql("select count(distinct scope) from spans where scope like 'retroute.import.%'").item() == 6
