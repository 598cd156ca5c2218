-- One list of what settling needs of a span and one choice among its copies, for all who ask; texts of calls that are
-- found by the trace alone.

-- The copy of a span with the greatest `precedence` counts: an ended one wins, then the one that ended last, then the
-- one that says most: copies sent while a span runs have growing counts. Equal copies are the rule.
create view span_copies as
select
  *,
  {
    'ended': end_ns > 0, 'end_ns': end_ns, 'tokens': coalesce(input_tokens, 0) + coalesce(output_tokens, 0),
    'chars': coalesce(input_chars, 0) + coalesce(output_chars, 0), 'said': coalesce(length(attributes), 0),
    'status': coalesce(status, ''), 'name': coalesce(name, ''), 'batch': batch, 'line': line
  } as precedence
from span_log;

create view settling_copies as
select
  trace_id, scope, span_id, parent_span_id, name, service, start_ns, end_ns, status, kind, dialect, provider,
  model_requested, model_returned, reasoning_effort, input_tokens, cache_read_tokens, cache_write_tokens,
  output_tokens, reasoning_tokens, cache_write_1h_tokens, input_audio_tokens, input_image_tokens,
  output_audio_tokens, output_image_tokens, web_search_calls, code_interpreter_calls, file_search_calls,
  search_size, service_tier, cache_hit, usage_rule, max_tokens, tools_offered, response_format, reported_cost_usd,
  error_type, stream, ttft_s, session_id, user_id, response_id, workflow, agent, tool, prompt_name,
  prompt_version, policy_id, policy_version, policy_action, policy_propensity, policy_arm, policy_candidates,
  policy_probabilities, policy_features, policy_reason, input_chars, output_chars, input_digest, received_ns,
  precedence
from span_copies;

create or replace view spans as
with chosen as (
  select * from span_copies
  qualify row_number() over (partition by trace_id, span_id order by precedence desc) = 1
)
select chosen.* exclude (batch, line, day, precedence), span_roles.role, span_roles.call_id
from chosen left join span_roles on span_roles.trace_id = chosen.trace_id and span_roles.span_id = chosen.span_id;

-- A call's texts nearly always lie in its own trace. Joined by the plain column, who asks for one trace reads no other
-- trace's texts (0.1 s instead of 1.0 s of work with 1,000,000 spans); the few that lie elsewhere are joined apart.
create or replace view calls as
with placed as (
  select *, case when content_trace_id is null then content_span_id end as own_content_span_id from settled_calls
),
lent as (
  select
    l.trace_id, l.span_id,
    arg_max(l.input_text, l.batch) as input_text, arg_max(l.output_text, l.batch) as output_text
  from content_log l
  join (
    select distinct content_trace_id, content_span_id from settled_calls where content_trace_id is not null
  ) c on l.trace_id = c.content_trace_id and l.span_id = c.content_span_id
  group by l.trace_id, l.span_id
)
select
  c.trace_id, c.span_id, c.parent_call_id, c.kind, c.name, c.service, c.workflow, c.agent, c.tool, c.provider,
  c.model_requested, c.model_returned, c.reasoning_effort, c.input_tokens, c.cache_read_tokens, c.cache_write_tokens,
  c.output_tokens, c.reasoning_tokens, c.cache_write_1h_tokens, c.input_audio_tokens, c.input_image_tokens,
  c.output_audio_tokens, c.output_image_tokens, c.web_search_calls, c.code_interpreter_calls, c.file_search_calls,
  c.search_size, c.service_tier, c.cache_hit, c.usage_rule, c.max_tokens, c.tools_offered, c.response_format,
  c.cost_usd, c.unpriced, c.price, c.reported_cost_usd, c.status, c.error_type, c.stream, c.ttft_s, c.session_id,
  c.user_id, c.response_id, c.prompt_name, c.prompt_version, c.start_ns, c.end_ns, c.attempts, c.attempt_of,
  coalesce(c.session_id, s.session_id, c.trace_id) as episode_id, c.dialect,
  coalesce(t.input_text, l.input_text) as input_text, coalesce(t.output_text, l.output_text) as output_text,
  c.policy_id, c.policy_version, c.policy_action, c.policy_propensity, c.policy_arm, c.policy_candidates,
  c.policy_probabilities, c.policy_features, c.policy_reason
from placed c
left join contents t on t.trace_id = c.trace_id and t.span_id = c.own_content_span_id
left join lent l on l.trace_id = c.content_trace_id and l.span_id = c.content_span_id
left join settled_traces s on s.trace_id = c.trace_id;
