-- calls_within
-- Model calls, each once as `trace_spans` gives them, that may be recorded elsewhere, too: of some services that lasted
-- within some time, and those with some response ids between two times.
-- parameters: services, starts, ends, response_ids, from_ns, to_ns
-- columns: trace_id, scope, scope_version, span_id, parent_span_id, name, service, start_ns, end_ns, status, kind, dialect, provider, model_requested, model_returned, reasoning_effort, input_tokens, cache_read_tokens, cache_write_tokens, output_tokens, reasoning_tokens, cache_write_1h_tokens, input_audio_tokens, input_image_tokens, output_audio_tokens, output_image_tokens, web_search_calls, code_interpreter_calls, file_search_calls, search_size, service_tier, cache_hit, usage_rule, max_tokens, tools_offered, response_format, reported_cost_usd, error_type, stream, ttft_s, session_id, user_id, response_id, workflow, agent, tool, prompt_name, prompt_version, policy_id, policy_version, policy_action, policy_propensity, policy_arm, policy_candidates, policy_probabilities, policy_features, policy_reason, input_chars, output_chars, input_digest
-- order: trace_id, start_ns, span_id
with wanted as (
  select unnest($services::varchar[]) as service, unnest($starts::bigint[]) as start_ns, unnest($ends::bigint[]) as end_ns
)
select * exclude (received_ns, precedence)
from settling_copies c
where kind in ('llm', 'embedding')
  and start_ns between $from_ns::bigint and $to_ns::bigint
  and (
    response_id in (select unnest($response_ids::varchar[]))
    or exists (
      select 1 from wanted
      where wanted.service = c.service
        and c.start_ns <= wanted.end_ns and greatest(c.start_ns, c.end_ns) >= wanted.start_ns
    )
  )
qualify row_number() over (partition by trace_id, span_id order by precedence desc) = 1
order by trace_id, start_ns, span_id
