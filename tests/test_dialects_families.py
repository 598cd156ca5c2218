"""Each convention by its own names: kinds, fields, and the rules that a table of keys cannot say."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping

import corpus
import pytest
from hypothesis import given
from hypothesis import strategies as st
from otlp_traces import span

from ingest import otlp
from ingest.dialects import flattened, langfuse
from ingest.dialects.facts import Content, LlmFacts
from ingest.dialects.registry import DIALECTS, holds_text, read
from ingest.spans import Event, Span

Attributes = Mapping[str, object]


def facts(attributes: Attributes, name: str = "span") -> LlmFacts:
    return read(span(1, attributes, name=name)).facts


def texts(attributes: Attributes, **more: object) -> tuple[object, object]:
    content: Content = read(span(1, attributes, **more)).content  # type: ignore[arg-type]
    return tuple(None if text is None else json.loads(text) for text in (content.input_text, content.output_text))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("attributes", "kind", "dialect"),
    [
        ({"openinference.span.kind": "LLM"}, "llm", "openinference"),
        ({"openinference.span.kind": "llm"}, "llm", "openinference"),
        ({"openinference.span.kind": "RERANKER"}, "retrieval", "openinference"),
        ({"openinference.span.kind": "EMBEDDING"}, "embedding", "openinference"),
        ({"openinference.span.kind": "PROMPT"}, "other", "openinference"),
        ({"openinference.span.kind": "SOMETHING_NEW"}, "chain", "openinference"),
        ({"langfuse.observation.type": "generation"}, "llm", "langfuse"),
        ({"langfuse.observation.type": "span", "gen_ai.operation.name": "chat"}, "llm", "otel_genai"),
        ({"langsmith.span.kind": "llm"}, "llm", "langsmith"),
        ({"langsmith.span.kind": "prompt", "gen_ai.operation.name": "chat"}, "other", "langsmith"),
        ({"traceloop.span.kind": "workflow"}, "chain", "openllmetry"),
        ({"traceloop.span.kind": "agent"}, "agent", "openllmetry"),
        ({"gen_ai.operation.name": "execute_task", "traceloop.span.kind": "tool"}, "tool", "openllmetry"),
        ({"llm.request.type": "chat"}, "llm", "openllmetry"),
        ({"llm.request.type": "embedding"}, "embedding", "openllmetry"),
        ({"ai.operationId": "ai.streamText.doStream"}, "llm", "vercel"),
        ({"ai.operationId": "ai.embedMany.doEmbed"}, "embedding", "vercel"),
        ({"ai.operationId": "ai.toolCall"}, "tool", "vercel"),
        ({"ai.operationId": "ai.generateText"}, "chain", "vercel"),
        ({"mlflow.spanType": '"CHAT_MODEL"'}, "llm", "mlflow"),
        ({"mlflow.spanType": '"RETRIEVER"'}, "retrieval", "mlflow"),
        ({"mlflow.spanType": '"PARSER"'}, "other", "mlflow"),
        ({"span.type": "llm_request"}, "llm", "claude_code"),
        ({"span.type": "interaction"}, "agent", "claude_code"),
        ({"lmnr.span.type": "LLM"}, "llm", "laminar"),
        ({"lmnr.span.type": "TOOL"}, "tool", "laminar"),
        ({"agent_name": "a", "model_name": "m"}, "agent", "pydantic_ai"),
        ({"agent_name": "a"}, "other", None),
        ({"node_type": "LLM_CALL"}, "llm", "promptlayer"),
        ({"node_type": "CODE_EXECUTION", "tool_name": "t"}, "tool", "promptlayer"),
        ({"node_type": "CODE_EXECUTION"}, "chain", "promptlayer"),
        ({"openai_agents.span_type": "agent", "node_type": "CODE_EXECUTION"}, "agent", "promptlayer"),
    ],
)
def test_each_convention_names_its_kinds(attributes: Attributes, kind: str, dialect: str | None) -> None:
    found = facts(attributes)
    assert (found.kind, found.dialect) == (kind, dialect)


@pytest.mark.parametrize(
    ("key", "sent", "field", "value"),
    [
        ("llm.provider", "OpenAI", "provider", "openai"),
        ("llm.system", "anthropic", "provider", "anthropic"),
        ("llm.model_name", "m", "model_returned", "m"),
        ("llm.request.model_name", "m", "model_requested", "m"),
        ("embedding.model_name", "m", "model_returned", "m"),
        ("llm.token_count.prompt", 7, "input_tokens", 7),
        ("llm.token_count.completion", 7, "output_tokens", 7),
        ("llm.token_count.prompt_details.cache_read", 7, "cache_read_tokens", 7),
        ("llm.token_count.completion_details.reasoning", 7, "reasoning_tokens", 7),
        ("llm.cost.total", 0.5, "reported_cost_usd", 0.5),
        ("llm.invocation_parameters", '{"model": "m", "stream": true}', "model_requested", "m"),
        ("llm.invocation_parameters", '{"model": "m", "stream": true}', "stream", True),
        ("llm.invocation_parameters", '{"max_completion_tokens": 9}', "max_tokens", 9),
        ("metadata", '{"session_id": "s"}', "session_id", "s"),
        ("metadata", '{"thread_id": "t", "user_id": "u"}', "user_id", "u"),
        ("metadata", '{"thread_id": "t", "user_id": "u"}', "session_id", "t"),
        ("langfuse.observation.model.name", "m", "model_returned", "m"),
        ("langfuse.observation.metadata.ls_provider", '"openai"', "provider", "openai"),
        ("langfuse.observation.metadata.ls_model_name", '"m"', "model_requested", "m"),
        ("langfuse.observation.cost_details", '{"total": 0.25}', "reported_cost_usd", 0.25),
        ("langfuse.session.id", "s", "session_id", "s"),
        ("langfuse.observation.prompt.version", 3, "prompt_version", "3"),
        ("langsmith.metadata.session_id", "s", "session_id", "s"),
        ("langsmith.metadata.usage_metadata", '{"input_tokens": 7}', "input_tokens", 7),
        ("gen_ai.usage.input_token_details", "{'cache_read': 0}", "cache_read_tokens", 0),
        ("gen_ai.usage.output_token_details", "{'reasoning': 7}", "reasoning_tokens", 7),
        ("traceloop.association.properties.session_id", "s", "session_id", "s"),
        ("traceloop.association.properties.user_id", "u", "user_id", "u"),
        ("traceloop.workflow.name", "w", "workflow", "w"),
        ("traceloop.prompt.key", "p", "prompt_name", "p"),
        ("llm.is_streaming", "True", "stream", True),
        ("llm.usage.prompt_tokens", 7, "input_tokens", 7),
        ("ai.model.id", "m", "model_requested", "m"),
        ("ai.model.provider", "openai.chat", "provider", "openai"),
        ("ai.usage.inputTokens", 7, "input_tokens", 7),
        ("ai.usage.promptTokens", 7, "input_tokens", 7),
        ("ai.usage.tokens", 7, "input_tokens", 7),
        ("ai.usage.completionTokens", 7, "output_tokens", 7),
        ("ai.usage.cachedInputTokens", 0, "cache_read_tokens", 0),
        ("ai.response.msToFirstChunk", 250.0, "ttft_s", 0.25),
        ("ai.telemetry.metadata.sessionId", "s", "session_id", "s"),
        ("ai.telemetry.functionId", "f", "agent", "f"),
        ("mlflow.llm.model", '"m"', "model_returned", "m"),
        ("model", '"m"', "model_requested", "m"),
        ("mlflow.chat.tokenUsage", '{"input_tokens": 7, "output_tokens": 8}', "output_tokens", 8),
        ("mlflow.trace.session", '"s"', "session_id", "s"),
        ("ttft_ms", 54, "ttft_s", 0.054),
        ("cost_usd", 0.5, "reported_cost_usd", 0.5),
        ("lmnr.association.properties.session_id", "s", "session_id", "s"),
        ("agent_name", "a", "agent", "a"),
        ("gen_ai.usage.raw", '{"completion_tokens_details": {"reasoning_tokens": 7}}', "reasoning_tokens", 7),
        ("promptlayer.prompt.name", "p", "prompt_name", "p"),
        ("promptlayer.prompt.version", 2, "prompt_version", "2"),
        ("openai_agents.agent.name", "a", "agent", "a"),
    ],
)
def test_each_convention_has_its_names(key: str, sent: object, field: str, value: object) -> None:
    assert getattr(facts({key: sent}), field) == value


def test_a_key_of_its_own_wins_over_what_is_inside_an_object() -> None:
    found = facts({"metadata": '{"session_id": "inside"}', "session.id": "outside"})
    assert found.session_id == "outside"


@pytest.mark.parametrize(
    "broken", ["", "{", "null", "[]", "nothing", '{"model": ', "{'model': {'a': 1}}", 5, None, ["a"]]
)
def test_a_broken_object_says_nothing(broken: object) -> None:
    found = facts({"llm.invocation_parameters": broken, "metadata": broken, "mlflow.chat.tokenUsage": broken})
    assert (found.session_id, found.input_tokens) == (None, None)


def test_the_span_names_agent_and_tool_only_where_the_convention_says_so() -> None:
    assert facts({"langfuse.observation.type": "agent"}, "planner").agent == "planner"
    assert facts({"openinference.span.kind": "TOOL"}, "search").tool == "search"
    assert facts({"openinference.span.kind": "TOOL", "tool.name": "find"}, "search").tool == "find"
    assert facts({"gen_ai.operation.name": "invoke_agent"}, "invoke_agent planner").agent is None
    assert facts({"langfuse.observation.type": "generation"}, "planner").agent is None


def test_an_entitys_name_is_that_of_its_kind() -> None:
    assert facts({"traceloop.span.kind": "agent", "traceloop.entity.name": "planner"}).agent == "planner"
    assert facts({"traceloop.span.kind": "tool", "traceloop.entity.name": "search"}).tool == "search"
    task = facts({"traceloop.span.kind": "task", "traceloop.entity.name": "merge"})
    assert (task.agent, task.tool) == (None, None)


@pytest.mark.parametrize(
    ("metadata", "agent"),
    [
        ({"lc_agent_name": "helper", "langgraph_node": "model"}, "helper"),
        ({"langgraph_node": "researcher"}, "researcher"),
        ({"langgraph_node": "model"}, None),
        ({"langgraph_node": "agent", "langgraph_checkpoint_ns": "writer:1f|agent:2e"}, "writer"),
        ({"langgraph_node": "tools", "langgraph_checkpoint_ns": "tools:2e"}, None),
        ({"lc_agent_name": "", "langgraph_node": None}, None),
    ],
)
def test_langgraphs_metadata_names_agents_in_every_convention(metadata: Attributes, agent: str | None) -> None:
    openinference = {"openinference.span.kind": "LLM", "metadata": json.dumps(metadata)}
    langfuse_ = {f"langfuse.observation.metadata.{key}": json.dumps(value) for key, value in metadata.items()}
    traceloop = {f"traceloop.association.properties.{key}": value for key, value in metadata.items()}
    langsmith = {f"langsmith.metadata.{key}": value for key, value in metadata.items()}
    assert facts(openinference).agent == agent
    assert facts({"langfuse.observation.type": "generation", **langfuse_}).agent == agent
    assert facts({"llm.request.type": "chat", **traceloop}).agent == agent
    assert facts({"langsmith.span.kind": "llm", **langsmith}).agent == agent


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ({"input": 37, "input_cache_read": 32, "output": 15, "output_reasoning": 4}, (69, 19, 32, None, 4)),
        ({"input": 10, "input_cached_tokens": 5, "input_audio": 1, "output": 3}, (16, 3, 5, None, None)),
        ({"input": 901, "output": 77, "cache_read_input_tokens": 300}, (901, 77, 300, None, None)),
        ({"input_tokens": 4, "output_tokens": 2, "cache_creation_input_tokens": 3}, (4, 2, None, 3, None)),
        (
            {
                "prompt_tokens": 25,
                "completion_tokens": 16,
                "prompt_tokens_details": {"cached_tokens": 8},
                "completion_tokens_details": {"reasoning_tokens": 6},
            },
            (25, 16, 8, None, 6),
        ),
        ({"total": 9}, (None, None, None, None, None)),
    ],
)
def test_langfuses_usage_is_summed_where_it_is_split(
    details: dict[str, object], expected: tuple[int | None, ...]
) -> None:
    found = langfuse.usage(details)
    names = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
    assert tuple(found.get(name) for name in names) == expected


def test_langfuses_level_tells_an_error() -> None:
    assert facts({"langfuse.observation.type": "generation", "langfuse.observation.level": "ERROR"}).error_type
    assert (
        facts({"langfuse.observation.type": "generation", "langfuse.observation.level": "WARNING"}).error_type is None
    )


def test_langfuses_tools_among_the_messages_are_the_tools_offered() -> None:
    tool = {"type": "function", "function": {"name": "search"}}
    sent = [{"role": "user", "content": "Hi"}, {"role": "tool", "content": tool}, {"role": "tool", "content": "found"}]
    reading = read(span(1, {"langfuse.observation.type": "generation", "langfuse.observation.input": json.dumps(sent)}))
    assert reading.facts.tools_offered == '["search"]'
    assert [message["role"] for message in json.loads(reading.content.input_text or "")] == ["user", "tool"]


def test_claude_codes_fresh_tokens_are_not_all_its_input() -> None:
    own = {"span.type": "llm_request", "input_tokens": 10, "cache_read_tokens": 5, "cache_creation_tokens": 2}
    assert facts(own).input_tokens == 17
    assert facts({**own, "gen_ai.usage.input_tokens": 17}).input_tokens == 17


def test_the_time_to_the_first_token_is_in_seconds() -> None:
    waited = {"gen_ai.operation.name": "chat", "gen_ai.server.time_to_first_token": 72}
    assert facts({**waited, "gen_ai.system": "openai"}).ttft_s == 72.0
    assert facts({**waited, "gen_ai.system": "strands-agents"}).ttft_s == 0.072
    assert facts({**waited, "gen_ai.system": "strands-agents"}).provider is None


def test_a_raw_answer_gives_the_responses_id() -> None:
    answer = '{"id":"chatcmpl-1","choices":[]}'
    assert facts({"openinference.span.kind": "LLM", "output.value": answer}).response_id == "chatcmpl-1"
    assert facts({"openinference.span.kind": "CHAIN", "output.value": '{"id":"order-1"}'}).response_id is None
    assert facts({"mlflow.spanType": '"LLM"', "mlflow.spanOutputs": '{"id": "msg_1"}'}).response_id == "msg_1"


QUESTION = {"role": "user", "content": "Hi"}
ANSWER = {"role": "assistant", "content": "Hello"}


@pytest.mark.parametrize(
    "attributes",
    [
        {
            "openinference.span.kind": "LLM",
            "llm.input_messages.0.message.role": "user",
            "llm.input_messages.0.message.content": "Hi",
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.contents.0.message_content.type": "text",
            "llm.output_messages.0.message.contents.0.message_content.text": "Hello",
            "input.value": "ignored",
            "output.value": "ignored",
        },
        {
            "openinference.span.kind": "LLM",
            "input.value": '{"model": "m", "input": "Hi"}',
            "output.value": json.dumps(
                {"output": [{"type": "message", **ANSWER, "content": [{"type": "output_text", "text": "Hello"}]}]}
            ),
        },
        {
            "gen_ai.prompt.0.role": "user",
            "gen_ai.prompt.0.content": "Hi",
            "gen_ai.completion.0.role": "assistant",
            "gen_ai.completion.0.content": "Hello",
        },
        {
            "SpanAttributes.LLM_PROMPTS.0.role": "user",
            "SpanAttributes.LLM_PROMPTS.0.content": "Hi",
            "SpanAttributes.LLM_COMPLETIONS.0.role": "assistant",
            "SpanAttributes.LLM_COMPLETIONS.0.content": "Hello",
        },
        {"langfuse.observation.input": json.dumps([QUESTION]), "langfuse.observation.output": json.dumps(ANSWER)},
        {
            "ai.prompt.messages": '[{"role":"user","content":[{"type":"text","text":"Hi"}]}]',
            "ai.response.text": "Hello",
        },
        {"ai.prompt": '{"prompt":"Hi"}', "ai.response.text": "Hello"},
        {
            "mlflow.spanType": '"LLM"',
            "mlflow.spanInputs": json.dumps({"model": "m", "messages": [QUESTION]}),
            "mlflow.spanOutputs": json.dumps({"choices": [{"index": 0, "message": ANSWER}]}),
        },
        {
            "langsmith.span.kind": "llm",
            "gen_ai.prompt": json.dumps(
                {
                    "messages": [
                        [{"lc": 1, "type": "constructor", "id": ["x", "HumanMessage"], "kwargs": {"content": "Hi"}}]
                    ]
                }
            ),
            "gen_ai.completion": json.dumps(
                {"generations": [[{"text": "Hello", "message": {"type": "ai", "data": {"content": "Hello"}}}]]}
            ),
        },
        {
            "events": json.dumps(
                [
                    {"event.name": "gen_ai.user.message", **QUESTION},
                    {"event.name": "gen_ai.choice", "index": 0, "message": ANSWER},
                ]
            )
        },
        {"function_input": '{"messages": [["user", "Hi"]]}', "function_output": "Hello"},
        {
            "gen_ai.input.messages": '["Hi"]',
            "gen_ai.output.messages": '[{"content":{"role":"model","parts":[{"text":"Hello"}]}}]',
        },
    ],
    ids=lambda attributes: next(iter(attributes)),
)
def test_one_conversation_has_one_form_in_every_convention(attributes: Attributes) -> None:
    assert texts(attributes) == ([QUESTION], [ANSWER])


def test_an_answer_that_came_apart_is_one_message() -> None:
    calls = [{"toolCallId": "c1", "toolName": "search", "input": '{"q": 1}'}]
    sent = {"ai.response.text": "Look:", "ai.response.toolCalls": json.dumps(calls), "ai.response.reasoning": "hm"}
    call = {"id": "c1", "name": "search", "arguments": {"q": 1}}
    expected = {"role": "assistant", "content": "Look:", "tool_calls": [call], "reasoning": "hm"}
    assert texts({"ai.operationId": "ai.generateText.doGenerate", **sent})[1] == [expected]


def test_a_second_account_tells_what_the_first_leaves_out() -> None:
    sent = {
        "gen_ai.output.messages": '[{"role":"assistant","parts":[]}]',
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.function_call.name": "search",
        "gen_ai.completion.0.function_call.arguments": '{"q": 1}',
    }
    call = {"id": None, "name": "search", "arguments": {"q": 1}}
    assert texts(sent)[1] == [{"role": "assistant", "content": "", "tool_calls": [call]}]


@pytest.mark.parametrize(
    "attributes",
    [
        {"openinference.span.kind": "TOOL", "tool.name": "search", "input.value": "{'q': 1}", "output.value": "found"},
        {
            "traceloop.span.kind": "tool",
            "traceloop.entity.name": "search",
            "traceloop.entity.input": '{"q":1}',
            "traceloop.entity.output": "found",
        },
        {
            "ai.operationId": "ai.toolCall",
            "ai.toolCall.name": "search",
            "ai.toolCall.args": '{"q":1}',
            "ai.toolCall.result": "found",
        },
        {"gen_ai.tool.name": "search", "tool_arguments": '{"q":1}', "tool_response": "found"},
        {
            "langfuse.observation.type": "tool",
            "gen_ai.tool.name": "search",
            "langfuse.observation.input": '{"q":1}',
            "langfuse.observation.output": "found",
        },
    ],
    ids=lambda attributes: next(iter(attributes)),
)
def test_a_tools_run_has_one_form_in_every_convention(attributes: Attributes) -> None:
    call = {"id": None, "name": "search", "arguments": {"q": 1}}
    asked = [{"role": "assistant", "content": "", "tool_calls": [call]}]
    assert texts(attributes) == (asked, [{"role": "tool", "content": "found"}])


def test_a_tools_span_events_tell_its_run() -> None:
    events = [
        Event("gen_ai.tool.message", 1, {"role": "tool", "content": '{"q": 1}', "id": "c1"}),
        Event("gen_ai.choice", 2, {"message": '[{"text": "found"}]', "id": "c1"}),
    ]
    given, answered = texts({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}, events=events)
    assert given == [
        {"role": "assistant", "content": "", "tool_calls": [{"id": None, "name": "search", "arguments": {"q": 1}}]}
    ]
    assert answered == [{"role": "tool", "content": "found"}]


PIXELS = "iVBORw0KGgo" + "A" * 85


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXELS}"}},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PIXELS}"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXELS}},
        {"type": "blob", "mime_type": "image/png", "modality": "image", "content": PIXELS},
        {"inline_data": {"mime_type": "image/png", "data": PIXELS}},
        {"type": "file", "mediaType": "image/png", "data": PIXELS},
        {"message_content": {"type": "image", "image": {"image": {"url": f"data:image/png;base64,{PIXELS}"}}}},
    ],
    ids=lambda part: next(iter(part)) + str(part.get("type")),
)
def test_images_are_noted_by_their_size(part: dict[str, object]) -> None:
    sent = json.dumps([{"role": "user", "content": [{"type": "text", "text": "What is this?"}, part]}])
    note = {"type": "image", "media_type": "image/png", "bytes": 72}
    given = [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, note]}]
    assert texts({"gen_ai.input.messages": sent})[0] == given


def test_vectors_are_no_texts() -> None:
    sent = {
        "openinference.span.kind": "EMBEDDING",
        "embedding.embeddings.0.embedding.text": "a",
        "embedding.embeddings.0.embedding.vector": [0.5, 0.25],
        "embedding.embeddings.1.embedding.text": "b",
        "output.value": '{"data": [{"embedding": [0.5, 0.25]}]}',
    }
    assert texts(sent) == ([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}], None)


def test_texts_are_kept_apart_from_the_other_attributes() -> None:
    sent = {"llm.input_messages.0.message.content": "Hi", "input.value": "Hi", "acme.key": 1, "llm.model_name": "m"}
    reading = read(span(1, {"openinference.span.kind": "LLM", **sent}))
    assert reading.kept == {"openinference.span.kind": "LLM", "acme.key": 1, "llm.model_name": "m"}
    assert reading.unknown == ("acme.key",)
    assert holds_text("gen_ai.prompt.12.content")
    assert holds_text("gen_ai.input.messages")
    assert not holds_text("gen_ai.prompt.name")
    assert not holds_text("acme.key")


leaves = st.integers() | st.text(min_size=1)
names = st.text("abcxyz_", min_size=1, max_size=4)
trees = st.recursive(
    leaves,
    lambda inner: st.lists(inner, min_size=1, max_size=3) | st.dictionaries(names, inner, min_size=1, max_size=3),
    max_leaves=8,
)


def spread(value: object, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], object]]:
    if isinstance(value, list):
        return [found for i, inner in enumerate(value) for found in spread(inner, (*path, str(i)))]
    if isinstance(value, dict):
        return [found for key, inner in value.items() for found in spread(inner, (*path, key))]
    return [(path, value)]


@given(st.lists(trees, min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_what_was_spread_over_keys_is_gathered_in_any_order(value: list[object], chance: random.Random) -> None:
    pieces = spread(value)
    chance.shuffle(pieces)
    assert flattened.gathered(pieces) == value


def real_spans() -> list[Span]:
    records = [record for case in corpus.cases(corpus.GOLDEN) for record in case.records() if record.kind == "traces"]
    return [found for record in records for found in otlp.decode(record.body, "traces", record.encoding).spans]


def test_the_order_of_attributes_changes_nothing() -> None:
    chance = random.Random(5)
    for found in real_spans():
        before = read(found)
        keys = list(found.attributes)
        chance.shuffle(keys)
        shuffled = Span(
            **{
                **{name: getattr(found, name) for name in Span.__dataclass_fields__},
                "attributes": {key: found.attributes[key] for key in keys},
            }
        )
        after = read(shuffled)
        assert (after.facts, after.content) == (before.facts, before.content)


def test_of_real_spans_no_convention_leaves_keys_unknown() -> None:
    unknown = {key for found in real_spans() for key in read(found).unknown}
    assert unknown == set()


def test_every_dialect_is_a_table_of_known_fields() -> None:
    known = {*LlmFacts.__dataclass_fields__, "tool_call_id", "entity", "graph_node", "ttft_ms"}
    from ingest.dialects.slots import CONTENT_FIELDS

    for dialect in DIALECTS:
        fields = {*dialect.fields, *dialect.indexed, *(field for inner in dialect.inside.values() for field in inner)}
        assert fields <= {*known, *CONTENT_FIELDS}, dialect.name
        assert not (dialect.repair and not dialect.marks), dialect.name
    assert len({dialect.name for dialect in DIALECTS}) == len(DIALECTS)
