-- The lake's tables and views. Tables ending in _log only grow: what was received, in batches; the views above them
-- give one row per thing however often it was sent. `batch` numbers the converter's commits, `line` the rows of one.

create table span_log (
  trace_id varchar, span_id varchar, parent_span_id varchar, name varchar, span_kind varchar,
  start_ns bigint, end_ns bigint, status varchar, status_message varchar,
  service varchar, scope varchar, scope_version varchar,
  kind varchar, dialect varchar, provider varchar, model_requested varchar, model_returned varchar, reasoning_effort varchar,
  input_tokens bigint, cache_read_tokens bigint, cache_write_tokens bigint, output_tokens bigint, reasoning_tokens bigint,
  max_tokens bigint, tools_offered varchar, response_format varchar, reported_cost_usd double,
  error_type varchar, stream boolean, ttft_s double, session_id varchar, user_id varchar, response_id varchar,
  workflow varchar, agent varchar, tool varchar, prompt_name varchar, prompt_version varchar,
  policy_id varchar, policy_version varchar, policy_action varchar, policy_propensity double, policy_arm varchar,
  policy_candidates varchar, policy_probabilities varchar, policy_features varchar, policy_reason varchar,
  input_chars bigint, output_chars bigint, input_digest varchar,
  attributes varchar, resource varchar, events varchar, links varchar, unknown_keys varchar,
  received_ns bigint, batch bigint, line bigint
);

create table content_log (
  trace_id varchar, span_id varchar, input_text varchar, output_text varchar, tools varchar, batch bigint
);

create table event_log (
  event_id varchar, trace_id varchar, span_id varchar, name varchar, time_ns bigint, service varchar, body varchar,
  attributes varchar, received_ns bigint, batch bigint, line bigint
);

create table score_log (
  score_id varchar, trace_id varchar, span_id varchar, session_id varchar, response_id varchar, name varchar,
  value double, value01 double, label varchar, explanation varchar, source varchar, time_ns bigint,
  received_ns bigint, batch bigint, line bigint
);

create table settled_calls (
  trace_id varchar, span_id varchar, parent_call_id varchar, kind varchar, name varchar, service varchar, workflow varchar,
  agent varchar, tool varchar, provider varchar, model_requested varchar, model_returned varchar, reasoning_effort varchar,
  input_tokens bigint, cache_read_tokens bigint, cache_write_tokens bigint, output_tokens bigint, reasoning_tokens bigint,
  max_tokens bigint, tools_offered varchar, response_format varchar, cost_usd double, unpriced varchar,
  reported_cost_usd double, status varchar, error_type varchar, stream boolean, ttft_s double, session_id varchar,
  user_id varchar, response_id varchar, prompt_name varchar, prompt_version varchar, start_ns bigint, end_ns bigint,
  attempts bigint, dialect varchar, content_span_id varchar,
  policy_id varchar, policy_version varchar, policy_action varchar, policy_propensity double, policy_arm varchar,
  policy_candidates varchar, policy_probabilities varchar, policy_features varchar, policy_reason varchar
);

create table span_roles (trace_id varchar, span_id varchar, role varchar, call_id varchar);

-- A trace is settled up to and with `batch`; spans or events of a later batch make it wait again.
create table settled_traces (trace_id varchar, service varchar, spans bigint, batch bigint, settled_ns bigint);

-- One row per batch and minute of receipt; `position` is where the next read of the WAL starts.
create table ingest_log (
  batch bigint, position varchar, received_ns bigint, requests bigint, spans bigint, logs bigint, metric_points bigint,
  scores bigint, rejected bigint, problem varchar
);

-- Of several copies of a span an ended one wins, then the one received last.
create view spans as
with ranked as (
  select *, row_number() over (partition by trace_id, span_id order by (end_ns > 0) desc, batch desc, line desc) as place
  from span_log
)
select ranked.* exclude (place, batch, line), span_roles.role, span_roles.call_id
from ranked left join span_roles on span_roles.trace_id = ranked.trace_id and span_roles.span_id = ranked.span_id
where place = 1;

create view contents as
select
  trace_id, span_id,
  arg_max(input_text, batch) as input_text, arg_max(output_text, batch) as output_text, arg_max(tools, batch) as tools
from content_log
group by trace_id, span_id;

create view events as
select * exclude (batch, line, place)
from (select *, row_number() over (partition by event_id order by batch) as place from event_log)
where place = 1;

create view traces as
select trace_id, service, spans, settled_ns from settled_traces;

create view calls as
select
  c.trace_id, c.span_id, c.parent_call_id, c.kind, c.name, c.service, c.workflow, c.agent, c.tool, c.provider,
  c.model_requested, c.model_returned, c.reasoning_effort, c.input_tokens, c.cache_read_tokens, c.cache_write_tokens,
  c.output_tokens, c.reasoning_tokens, c.max_tokens, c.tools_offered, c.response_format, c.cost_usd, c.unpriced,
  c.reported_cost_usd, c.status, c.error_type, c.stream, c.ttft_s, c.session_id, c.user_id, c.response_id, c.prompt_name,
  c.prompt_version, c.start_ns, c.end_ns, c.attempts, c.dialect, t.input_text, t.output_text,
  c.policy_id, c.policy_version, c.policy_action, c.policy_propensity, c.policy_arm, c.policy_candidates,
  c.policy_probabilities, c.policy_features, c.policy_reason
from settled_calls c
left join contents t on t.trace_id = c.trace_id and t.span_id = c.content_span_id;

-- A score that names only a response belongs to the one call with that response id, if there is exactly one.
create view scores as
with latest as (
  select *, row_number() over (partition by score_id order by batch desc, line desc) as place from score_log
),
responses as (
  select response_id, any_value(trace_id) as trace_id, any_value(span_id) as span_id
  from settled_calls where response_id is not null group by response_id having count(*) = 1
)
select
  s.score_id, coalesce(s.trace_id, r.trace_id) as trace_id,
  case when s.trace_id is null then coalesce(s.span_id, r.span_id) else s.span_id end as span_id,
  s.session_id, s.response_id, s.name, s.value, s.value01, s.label, s.explanation, s.source, s.time_ns
from latest s left join responses r on r.response_id = s.response_id
where place = 1;
