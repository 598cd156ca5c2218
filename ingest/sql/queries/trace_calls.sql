-- The settled calls of one trace; `content_span_id` is where its texts are, NULL: it has none. Bounds on
-- the start spare reading the rest.
-- parameters: trace_id, since_ns, until_ns
-- columns: trace_id, span_id, parent_call_id, kind, name, service, workflow, agent, tool, provider, model_requested, model_returned, reasoning_effort, input_tokens, cache_read_tokens, cache_write_tokens, output_tokens, reasoning_tokens, tools_offered, cost_usd, unpriced, status, error_type, ttft_s, cache_hit, session_id, user_id, response_id, prompt_name, prompt_version, start_ns, end_ns, attempts, attempt_of, content_trace_id, content_span_id, policy_id, policy_version, policy_action, policy_propensity, policy_arm, policy_candidates, policy_probabilities, policy_features, policy_reason
-- order: start_ns, span_id
select
  trace_id, span_id, parent_call_id, kind, name, service, workflow, agent, tool, provider, model_requested,
  model_returned, reasoning_effort, input_tokens, cache_read_tokens, cache_write_tokens, output_tokens,
  reasoning_tokens, tools_offered, cost_usd, unpriced, status, error_type, ttft_s, cache_hit, session_id, user_id,
  response_id, prompt_name, prompt_version, start_ns, end_ns, attempts, attempt_of,
  coalesce(content_trace_id, trace_id) as content_trace_id, content_span_id, policy_id, policy_version, policy_action,
  policy_propensity, policy_arm, policy_candidates, policy_probabilities, policy_features, policy_reason
from settled_calls
where trace_id = $trace_id::varchar
  and ($since_ns::bigint is null or start_ns >= $since_ns::bigint)
  and ($until_ns::bigint is null or start_ns < $until_ns::bigint)
order by start_ns, span_id
