-- What else a price depends on, how the input was counted (`usage_rule`), and by which price a call was priced (`price`).

alter table span_log add column cache_write_1h_tokens bigint;
alter table span_log add column input_audio_tokens bigint;
alter table span_log add column input_image_tokens bigint;
alter table span_log add column output_audio_tokens bigint;
alter table span_log add column output_image_tokens bigint;
alter table span_log add column web_search_calls bigint;
alter table span_log add column code_interpreter_calls bigint;
alter table span_log add column file_search_calls bigint;
alter table span_log add column search_size varchar;
alter table span_log add column service_tier varchar;
alter table span_log add column cache_hit boolean;
alter table span_log add column usage_rule varchar;
alter table settled_calls add column cache_write_1h_tokens bigint;
alter table settled_calls add column input_audio_tokens bigint;
alter table settled_calls add column input_image_tokens bigint;
alter table settled_calls add column output_audio_tokens bigint;
alter table settled_calls add column output_image_tokens bigint;
alter table settled_calls add column web_search_calls bigint;
alter table settled_calls add column code_interpreter_calls bigint;
alter table settled_calls add column file_search_calls bigint;
alter table settled_calls add column search_size varchar;
alter table settled_calls add column service_tier varchar;
alter table settled_calls add column cache_hit boolean;
alter table settled_calls add column usage_rule varchar;
alter table settled_calls add column price varchar;

create or replace view spans as
with ranked as (
  select
    *,
    row_number() over (
      partition by trace_id, span_id
      order by
        (end_ns > 0) desc, end_ns desc, coalesce(input_tokens, 0) + coalesce(output_tokens, 0) desc,
        input_chars + output_chars desc, length(attributes) desc, status, name, batch desc, line desc
    ) as place
  from span_log
)
select ranked.* exclude (place, batch, line, day), span_roles.role, span_roles.call_id
from ranked left join span_roles on span_roles.trace_id = ranked.trace_id and span_roles.span_id = ranked.span_id
where place = 1;

create or replace view calls as
select
  c.trace_id, c.span_id, c.parent_call_id, c.kind, c.name, c.service, c.workflow, c.agent, c.tool, c.provider,
  c.model_requested, c.model_returned, c.reasoning_effort, c.input_tokens, c.cache_read_tokens, c.cache_write_tokens,
  c.output_tokens, c.reasoning_tokens, c.cache_write_1h_tokens, c.input_audio_tokens, c.input_image_tokens,
  c.output_audio_tokens, c.output_image_tokens, c.web_search_calls, c.code_interpreter_calls, c.file_search_calls,
  c.search_size, c.service_tier, c.cache_hit, c.usage_rule, c.max_tokens, c.tools_offered, c.response_format, c.cost_usd, c.unpriced, c.price,
  c.reported_cost_usd, c.status, c.error_type, c.stream, c.ttft_s, c.session_id, c.user_id, c.response_id, c.prompt_name,
  c.prompt_version, c.start_ns, c.end_ns, c.attempts, c.attempt_of,
  coalesce(c.session_id, s.session_id, c.trace_id) as episode_id, c.dialect, t.input_text, t.output_text,
  c.policy_id, c.policy_version, c.policy_action, c.policy_propensity, c.policy_arm, c.policy_candidates,
  c.policy_probabilities, c.policy_features, c.policy_reason
from settled_calls c
left join contents t on t.trace_id = coalesce(c.content_trace_id, c.trace_id) and t.span_id = c.content_span_id
left join settled_traces s on s.trace_id = c.trace_id;

create or replace view steps as
with failed as (
  select trace_id, attempt_of, sum(cost_usd) as cost_usd, min(start_ns) as start_ns
  from settled_calls where attempt_of is not null group by trace_id, attempt_of
)
select
  c.* exclude (attempt_of) replace (
    case when f.cost_usd is null then c.cost_usd else coalesce(c.cost_usd, 0) + f.cost_usd end as cost_usd,
    least(c.start_ns, coalesce(f.start_ns, c.start_ns)) as start_ns
  )
from calls c
left join failed f on f.trace_id = c.trace_id and f.attempt_of = c.span_id
where c.attempt_of is null;
