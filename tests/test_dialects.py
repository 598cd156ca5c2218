"""What is read from spans: kinds, fields, token rules, messages; and from real requests of a LiteLLM proxy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from otlp_traces import chat, span

from ingest import otlp, providers
from ingest.dialects import messages, values
from ingest.dialects.facts import LlmFacts
from ingest.dialects.registry import read
from ingest.spans import Event

GOLDEN = Path(__file__).parent / "golden"
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
anything = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)
KEYS = [
    "gen_ai.operation.name",
    "gen_ai.cost.total_cost",
    "policy.propensity",
    "gen_ai.request.model",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.tool.definitions",
    "gen_ai.system_instructions",
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.provider.name",
    "server.address",
    "policy.candidates",
    "litellm.provider.model",
    "litellm.model_group",
    "metadata.requester_metadata",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.name",
    "openinference.span.kind",
    "llm.input_messages.0.message.content",
    "llm.input_messages.0.message.tool_calls.0.tool_call.function.name",
    "llm.output_messages.1.message.contents.0.message_content",
    "llm.invocation_parameters",
    "input.value",
    "output.value",
    "metadata",
    "langfuse.observation.usage_details",
    "langfuse.observation.input",
    "langfuse.observation.type",
    "mlflow.chat.tokenUsage",
    "mlflow.spanOutputs",
    "mlflow.spanType",
    "ai.operationId",
    "ai.response.toolCalls",
    "ai.response.reasoning",
    "ai.prompt.tools",
    "traceloop.span.kind",
    "traceloop.entity.name",
    "events",
    "model",
]


def facts(**attributes: object) -> LlmFacts:
    return read(span(1, {key.replace("__", "."): value for key, value in attributes.items()})).facts


def prompt(value: object) -> list[dict[str, object]]:
    text = read(span(1, chat(gen_ai__input__messages=value))).content.input_text
    return [] if text is None else json.loads(text)  # type: ignore[no-any-return]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(KEYS), anything))
def test_reading_never_fails_and_keeps_types(attributes: dict[str, object]) -> None:
    found = read(span(1, attributes)).facts
    for name in ("input_tokens", "output_tokens", "cache_read_tokens"):
        value = getattr(found, name)
        assert value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)
    for name in ("model_requested", "tool", "provider", "policy_candidates"):
        assert isinstance(getattr(found, name), str | None)


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        *((name, "llm") for name in ("chat", "text_completion", "generate_content", "completion", "responses", "CHAT")),
        ("embeddings", "embedding"),
        ("invoke_agent", "agent"),
        ("create_agent", "agent"),
        ("execute_tool", "tool"),
        ("retrieval", "retrieval"),
        *((name, "chain") for name in ("invoke_workflow", "plan", "search_memory", "agent_step", "something_new")),
    ],
)
def test_operation_names_the_kind(operation: str, kind: str) -> None:
    found = facts(gen_ai__operation__name=operation)
    assert (found.kind, found.dialect) == (kind, "otel_genai")


def test_span_names_decide_nothing() -> None:
    assert read(span(1, name="chat gpt-4o")).facts.kind == "other"
    assert read(span(1, chat(), name="invoke_agent planner")).facts.kind == "llm"


def test_a_model_with_tokens_is_a_call_without_an_operation() -> None:
    assert facts(gen_ai__request__model="m", gen_ai__usage__input_tokens=1).kind == "llm"
    assert facts(gen_ai__request__model="m").kind == "other"


@pytest.mark.parametrize(
    ("old", "new", "field", "value"),
    [
        ("gen_ai.system", "gen_ai.provider.name", "provider", "openai"),
        ("gen_ai.usage.prompt_tokens", "gen_ai.usage.input_tokens", "input_tokens", 7),
        ("gen_ai.usage.completion_tokens", "gen_ai.usage.output_tokens", "output_tokens", 7),
        ("gen_ai.usage.cache_read_input_tokens", "gen_ai.usage.cache_read.input_tokens", "cache_read_tokens", 7),
        ("gen_ai.usage.cache_creation.input_tokens", "gen_ai.usage.cache_write.input_tokens", "cache_write_tokens", 7),
        ("gen_ai.usage.reasoning_tokens", "gen_ai.usage.reasoning.output_tokens", "reasoning_tokens", 7),
        ("gen_ai.is_streaming", "gen_ai.request.stream", "stream", True),
        ("session.id", "gen_ai.conversation.id", "session_id", "s"),
        ("enduser.id", "user.id", "user_id", "u"),
    ],
)
def test_old_names_are_read_and_new_ones_win(old: str, new: str, field: str, value: object) -> None:
    other = {bool: False, int: 3, str: "azure" if field == "provider" else "other"}[type(value)]
    assert getattr(read(span(1, {old: value})).facts, field) == value
    assert getattr(read(span(1, {old: other, new: value})).facts, field) == value
    assert getattr(read(span(1, {new: value, old: other})).facts, field) == value


def test_missing_counts_are_none_and_an_input_of_zero_is_unknown() -> None:
    assert facts(gen_ai__operation__name="chat").input_tokens is None
    assert facts(gen_ai__operation__name="chat", gen_ai__usage__input_tokens=0).input_tokens is None
    assert facts(gen_ai__operation__name="chat", gen_ai__usage__output_tokens=0).output_tokens == 0


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_cached_tokens_are_inside_the_input(given: int, cached: int, written: int) -> None:
    found = facts(
        gen_ai__usage__input_tokens=given,
        gen_ai__usage__cache_read__input_tokens=cached,
        gen_ai__usage__cache_write__input_tokens=written,
    )
    total = given if cached + written <= given else given + cached + written
    assert found.input_tokens == (total or None)
    assert (found.input_tokens or 0) >= cached + written


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_reasoning_is_inside_the_output(answered: int, reasoning: int) -> None:
    found = facts(gen_ai__usage__output_tokens=answered, gen_ai__usage__reasoning__output_tokens=reasoning)
    assert found.output_tokens == (answered if reasoning <= answered else answered + reasoning)


@pytest.mark.parametrize(("sent", "count"), [("12", 12), (12.0, 12), ("None", None), (-1, None), (True, None)])
def test_counts_come_in_many_types(sent: object, count: int | None) -> None:
    assert facts(gen_ai__usage__output_tokens=sent).output_tokens == count


@pytest.mark.parametrize(
    ("said", "host", "name"),
    [
        ("OpenAI", "", "openai"),
        ("openai.chat", "", "openai"),
        ("openai", "acme.openai.azure.com", "azure"),
        ("az.ai.openai", "", "azure"),
        ("gcp.vertex_ai", "", "vertex_ai"),
        ("google", "", "gemini"),
        ("langgraph", "", None),
        ("microsoft.agent_framework", "", None),
        (" ", "", None),
        ("acme", "", "acme"),
    ],
)
def test_providers_have_one_spelling(said: str, host: str, name: str | None) -> None:
    assert providers.canonical(said, host) == name


OTEL = [{"role": "user", "parts": [{"type": "text", "content": "Hi"}]}]
OPENAI = [{"role": "user", "content": "Hi"}]
BLOCKS = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]


@pytest.mark.parametrize(
    "schema", [OTEL, OPENAI, BLOCKS, "Hi", {"messages": OPENAI}, OPENAI[0], {"role": "user", **OTEL[0]}]
)
@pytest.mark.parametrize("packed", [0, 1, 2])
def test_one_prompt_in_many_schemas_is_one_canonical_message(schema: object, packed: int) -> None:
    value = schema
    for _ in range(packed if not isinstance(schema, str) else 0):
        value = json.dumps(value)
    assert prompt(value) == [{"role": "user", "content": "Hi"}]


def test_pythons_repr_is_read_and_cut_json_kept_as_text() -> None:
    assert prompt("[{'role': 'user', 'content': 'Hi', 'name': None}]") == [{"role": "user", "content": "Hi"}]
    cut = '[{"role":"user","parts":[{"type":"te'
    assert prompt(cut) == [{"role": "user", "content": cut}]


def test_tool_calls_and_their_answers_have_one_shape() -> None:
    openai = [
        {"role": "assistant", "content": None, "tool_calls": [_function("c1", "search", '{"q": 1}')]},
        {"role": "tool", "tool_call_id": "c1", "content": "found"},
    ]
    otel = [
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "search", "arguments": {"q": 1}}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "found"}]},
    ]
    anthropic = [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "search", "input": {"q": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "found"}]},
    ]
    expected = [
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "name": "search", "arguments": {"q": 1}}]},
        {"role": "tool", "content": "found", "tool_call_id": "c1"},
    ]
    assert prompt(openai) == prompt(otel) == prompt(anthropic) == expected


def test_system_instructions_come_first_and_once() -> None:
    instructions = '[{"type":"text","content":"Be brief."}]'
    attributes = chat(gen_ai__input__messages=OPENAI, gen_ai__system_instructions=instructions)
    system = {"role": "system", "content": "Be brief."}
    assert json.loads(read(span(1, attributes)).content.input_text or "") == [system, *OPENAI]
    repeated = {**attributes, "gen_ai.input.messages": [system, *OPENAI]}
    assert json.loads(read(span(1, repeated)).content.input_text or "") == [system, *OPENAI]


def test_images_stay_beside_the_text() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    found = prompt([{"role": "user", "content": [{"type": "text", "text": "What is this?"}, image]}])
    assert found == [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, image]}]


@given(anything)
def test_no_text_that_was_sent_is_lost(value: object) -> None:
    found = messages.canonical(value, "user")
    assert all(isinstance(message["role"], str) for message in found)
    json.loads(values.dumps(found))
    if isinstance(value, str) and value and values.structure(value) is None:
        assert found == [{"role": "user", "content": value}]


def test_choices_are_answers() -> None:
    choices = [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Paris"}}]
    text = read(span(1, chat(gen_ai__output__messages=json.dumps(choices)))).content.output_text
    assert json.loads(text or "") == [{"role": "assistant", "content": "Paris", "finish_reason": "stop"}]


def test_tool_definitions_give_the_names_offered() -> None:
    definitions = [{"type": "function", "function": {"name": "search"}}, {"name": "book", "type": "function"}]
    assert facts(gen_ai__tool__definitions=json.dumps(definitions)).tools_offered == '["search","book"]'


def test_a_tools_arguments_and_result_become_messages() -> None:
    found = read(
        span(
            1,
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "search",
                "gen_ai.tool.call.id": "c1",
                "gen_ai.tool.call.arguments": '{"q":1}',
                "gen_ai.tool.call.result": "found",
            },
        )
    ).content
    call = {"id": "c1", "name": "search", "arguments": {"q": 1}}
    assert json.loads(found.input_text or "") == [{"role": "assistant", "content": "", "tool_calls": [call]}]
    assert json.loads(found.output_text or "") == [{"role": "tool", "content": "found"}]


def test_span_events_carry_texts_too() -> None:
    events = [
        Event("gen_ai.user.message", 1, {"content": "Hi"}),
        Event("gen_ai.choice", 2, {"message": '{"role":"assistant","content":"Hello"}', "finish_reason": "stop"}),
    ]
    found = read(span(1, chat(), events=events)).content
    assert json.loads(found.input_text or "") == [{"role": "user", "content": "Hi"}]
    assert json.loads(found.output_text or "")[0]["content"] == "Hello"


def test_an_exception_names_the_error_of_a_failed_span_only() -> None:
    event = Event("exception", 1, {"exception.type": "TimeoutError"})
    assert read(span(1, chat(), status="error", events=[event])).facts.error_type == "TimeoutError"
    assert read(span(1, chat(), events=[event])).facts.error_type is None


@pytest.mark.parametrize(
    "prefix", ["policy.", "litellm.metadata.policy.", "litellm.metadata.requester_metadata.policy."]
)
def test_policy_attributes_are_read_as_numbers_and_arrays_also_from_texts(prefix: str) -> None:
    found = read(
        span(
            1,
            {
                prefix + "id": "p",
                prefix + "action": "small",
                prefix + "propensity": "0.25",
                prefix + "candidates": '["small","big"]',
                prefix + "probabilities": [0.25, 0.75],
            },
        )
    ).facts
    assert (found.policy_id, found.policy_action, found.policy_propensity) == ("p", "small", 0.25)
    assert (found.policy_candidates, found.policy_probabilities) == ('["small","big"]', "[0.25,0.75]")


def test_keys_that_nobody_reads_are_counted_and_general_ones_are_not() -> None:
    attributes = {**chat(), "gen_ai.brand_new": 1, "acme.thing": 2, "http.route": "/", "server.port": 1}
    assert read(span(1, attributes)).unknown == ("gen_ai.brand_new", "acme.thing")


def test_a_proxied_call_of_litellm_has_the_real_model_and_its_session() -> None:
    batch = otlp.decode((GOLDEN / "litellm_proxy.traces.pb").read_bytes(), "traces", "protobuf")
    calls = [found for s in batch.spans if (found := read(s).facts).kind != "other"]
    assert [(c.model_requested, c.model_returned, c.provider, c.input_tokens, c.output_tokens) for c in calls] == [
        ("gpt-4o", "gpt-4o", "openai", 18, 16)
    ]
    assert [(c.dialect, c.session_id, c.user_id, c.stream) for c in calls] == [("litellm", "px-sess", "px-user", False)]


def test_a_routed_request_shows_the_model_it_was_routed_to_not_the_virtual_one() -> None:
    found = facts(
        gen_ai__operation__name="acompletion",
        gen_ai__system="openai",
        gen_ai__request__model="small-1",
        gen_ai__response__model="helpdesk",
        litellm__call_id="1",
        litellm__model_group="small-1",
        litellm__provider__model="openai/small-1",
        metadata__user_api_key_hash="abc",
    )
    assert (found.model_requested, found.model_returned) == ("small-1", "small-1")


def test_litellms_sdk_keeps_the_model_that_answered() -> None:
    found = facts(
        gen_ai__operation__name="completion",
        gen_ai__system="openai",
        gen_ai__request__model="gpt-4o-mini",
        gen_ai__response__model="gpt-4o-mini-2024-07-18",
        litellm__call_id="1",
        litellm__provider__model="openai/gpt-4o-mini",
        metadata__user_api_key_hash="",
    )
    assert found.model_returned == "gpt-4o-mini-2024-07-18"


def _function(identity: str, name: str, arguments: str) -> dict[str, object]:
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}
