-- Settled calls: one row per real step, priced, with the texts of its prompt and answer.
-- parameters: service, since_ns, until_ns
-- columns: trace_id, span_id, parent_call_id, kind, name, service, workflow, agent, tool, provider, model_requested, model_returned, reasoning_effort, input_tokens, cache_read_tokens, cache_write_tokens, output_tokens, reasoning_tokens, cache_write_1h_tokens, input_audio_tokens, input_image_tokens, output_audio_tokens, output_image_tokens, web_search_calls, code_interpreter_calls, file_search_calls, search_size, service_tier, cache_hit, usage_rule, max_tokens, tools_offered, response_format, cost_usd, unpriced, price, reported_cost_usd, status, error_type, stream, ttft_s, session_id, user_id, response_id, prompt_name, prompt_version, start_ns, end_ns, attempts, attempt_of, episode_id, dialect, input_text, output_text, policy_id, policy_version, policy_action, policy_propensity, policy_arm, policy_candidates, policy_probabilities, policy_features, policy_reason
-- order: start_ns, span_id
select *
from calls
where ($service::varchar is null or service = $service::varchar)
  and ($since_ns::bigint is null or start_ns >= $since_ns::bigint)
  and ($until_ns::bigint is null or start_ns < $until_ns::bigint)
order by start_ns, span_id
