-- What finding decisions needs of the settled calls, with all that a price depends on: no answers, and of the prompts only
-- the first one of each trace.
-- parameters: since_ns, until_ns
-- columns: trace_id, span_id, parent_call_id, kind, name, tool, status, attempt_of, service, workflow, agent, model_requested, model_returned, reasoning_effort, tools_offered, cost_usd, unpriced, session_id, response_id, prompt_name, prompt_version, start_ns, end_ns, input_text, policy_action, policy_propensity, policy_candidates, policy_probabilities, policy_features, provider, service_tier, search_size, cache_hit, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cache_write_1h_tokens, input_audio_tokens, input_image_tokens, reasoning_tokens, output_audio_tokens, output_image_tokens, web_search_calls, code_interpreter_calls, file_search_calls
-- order: trace_id, start_ns, span_id
with chosen as (
  select *,
    row_number() over (
      partition by trace_id
      order by content_span_id is null, start_ns, parent_call_id is not null, kind in ('llm', 'embedding'), span_id
    ) as place
  from settled_calls
  where ($since_ns::bigint is null or start_ns >= $since_ns::bigint)
    and ($until_ns::bigint is null or start_ns < $until_ns::bigint)
)
select
  c.trace_id, c.span_id, c.parent_call_id, c.kind, c.name, c.tool, c.status, c.attempt_of, c.service, c.workflow, c.agent,
  c.model_requested, c.model_returned, c.reasoning_effort, c.tools_offered, c.cost_usd, c.unpriced, c.session_id,
  c.response_id, c.prompt_name, c.prompt_version, c.start_ns, c.end_ns, t.input_text, c.policy_action,
  c.policy_propensity, c.policy_candidates, c.policy_probabilities, c.policy_features,
  c.provider, c.service_tier, c.search_size, c.cache_hit, c.input_tokens, c.output_tokens, c.cache_read_tokens,
  c.cache_write_tokens, c.cache_write_1h_tokens, c.input_audio_tokens, c.input_image_tokens, c.reasoning_tokens,
  c.output_audio_tokens, c.output_image_tokens, c.web_search_calls, c.code_interpreter_calls, c.file_search_calls
from chosen c
left join contents t on c.place = 1 and t.trace_id = c.trace_id and t.span_id = c.content_span_id
order by c.trace_id, c.start_ns, c.span_id
