-- What pages ask of many calls, counted as the calls are settled: they never scan calls or spans.

-- More of a settled call. `scope` is the instrumentation that made its span; characters are those of the texts that
-- `content_span_id` names. `*_usd` divide `cost_usd` by what was paid for: uncached input, cache reads and writes,
-- output without reasoning, reasoning, and tools with fees by request. NULL: settled before this was noted.
alter table settled_calls add column scope varchar;
alter table settled_calls add column scope_version varchar;
alter table settled_calls add column input_chars bigint;
alter table settled_calls add column output_chars bigint;
alter table settled_calls add column input_usd double;
alter table settled_calls add column cache_read_usd double;
alter table settled_calls add column cache_write_usd double;
alter table settled_calls add column output_usd double;
alter table settled_calls add column reasoning_usd double;
alter table settled_calls add column tools_usd double;

-- What a trace came to, so that lists of traces need no join. `name` is of its earliest root; `start_ns` and `end_ns` are
-- of its spans; the rest sums its calls: `model_calls` are llm and embedding, `errors` of all kinds failed, `retries` were
-- tried again, `unpriced` should have a price and have none, so `cost_usd` is only of the others (NULL: no call has one).
-- Lists are JSON, each value once, sorted, NULL without one: `contains(models, to_json('a')::varchar)`; `models` answered,
-- or were asked for; `actions` are those of routing decisions.
alter table settled_traces add column name varchar;
alter table settled_traces add column start_ns bigint;
alter table settled_traces add column end_ns bigint;
alter table settled_traces add column user_id varchar;
alter table settled_traces add column calls bigint;
alter table settled_traces add column model_calls bigint;
alter table settled_traces add column errors bigint;
alter table settled_traces add column retries bigint;
alter table settled_traces add column unpriced bigint;
alter table settled_traces add column cost_usd double;
alter table settled_traces add column input_tokens bigint;
alter table settled_traces add column output_tokens bigint;
alter table settled_traces add column models varchar;
alter table settled_traces add column agents varchar;
alter table settled_traces add column tools varchar;
alter table settled_traces add column actions varchar;

-- Settled calls, counted. Always sum: a trace that is settled again, or priced again, leaves rows with negative counts
-- until the upkeep joins rows of one key, so group and keep what has `sum(calls) > 0`. A commit counts its calls in its own
-- transaction, so sums are those of `settled_calls` at every snapshot.
--
--   minute_ns     start of the minute (UTC), NULL: the call's start is unknown; of the hour where `grain_ns` is an hour:
--                 calls that are older than two days when they arrive, and what arrived more than a week ago
--   service, workflow, agent, kind, tool, provider, status, dialect, scope, scope_version      as in `settled_calls`
--   name          of the step, without the long numbers in it
--   model         that answered, else that was asked for
--   unpriced      why the calls have no cost although they should; NULL: they have one, or need none
--   retried       tried again afterwards: their cost bought nothing
--   calls         whose sums follow; `errors` of them failed; `priced` have a cost
--   *_tokens      as told, of a call at most 2**40; `cache_*` are inside the input, `reasoning` inside the output
--   *_usd         see above; what the parts leave of `cost_usd` was not divided
--   no_*          how many calls do not say: no_tokens neither input nor output; no_input and no_output texts (of those
--                 settled since this is noted); no_end is without an end or a start
--   latency_s     summed over the calls with both ends; their count is `calls - no_end`, and by how long they took:
--   under_*, longer                from the bound before up to this one, seconds (100ms: under a tenth)
create table calls_by_minute (
  minute_ns bigint, grain_ns bigint,
  service varchar, workflow varchar, agent varchar, kind varchar, name varchar, tool varchar, provider varchar,
  model varchar, status varchar, unpriced varchar, retried boolean, dialect varchar, scope varchar, scope_version varchar,
  calls bigint, errors bigint, priced bigint,
  input_tokens bigint, cache_read_tokens bigint, cache_write_tokens bigint, output_tokens bigint, reasoning_tokens bigint,
  cost_usd double, input_usd double, cache_read_usd double, cache_write_usd double, output_usd double,
  reasoning_usd double, tools_usd double,
  no_model bigint, no_tokens bigint, no_session bigint, no_user bigint, no_input bigint, no_output bigint, no_end bigint,
  latency_s double, under_100ms bigint, under_200ms bigint, under_500ms bigint, under_1s bigint, under_2s bigint,
  under_5s bigint, under_10s bigint, under_20s bigint, under_50s bigint, under_100s bigint, under_200s bigint,
  longer bigint,
  merged boolean, day date
);
alter table calls_by_minute set partitioned by (day);

-- Calls that were settled before are counted once, here.
insert into calls_by_minute by name
select
  case when start_ns > 0 then start_ns - start_ns % grain_ns end as minute_ns, grain_ns,
  service, workflow, agent, kind,
  regexp_replace(name, '[0-9a-f]{12,}|[0-9]{9,}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]+', '*', 'g') as name,
  tool, provider, coalesce(model_returned, model_requested) as model, status, unpriced, attempt_of is not null as retried,
  dialect, scope, scope_version,
  count(*) as calls, count(*) filter (where status = 'error') as errors, count(cost_usd) as priced,
  coalesce(sum(greatest(least(coalesce(input_tokens, 0), 1099511627776), 0)), 0)::bigint as input_tokens,
  coalesce(sum(greatest(least(coalesce(cache_read_tokens, 0), 1099511627776), 0)), 0)::bigint as cache_read_tokens,
  coalesce(sum(greatest(least(coalesce(cache_write_tokens, 0), 1099511627776), 0)), 0)::bigint as cache_write_tokens,
  coalesce(sum(greatest(least(coalesce(output_tokens, 0), 1099511627776), 0)), 0)::bigint as output_tokens,
  coalesce(sum(greatest(least(coalesce(reasoning_tokens, 0), 1099511627776), 0)), 0)::bigint as reasoning_tokens,
  coalesce(sum(cost_usd), 0) as cost_usd, coalesce(sum(input_usd), 0) as input_usd,
  coalesce(sum(cache_read_usd), 0) as cache_read_usd, coalesce(sum(cache_write_usd), 0) as cache_write_usd,
  coalesce(sum(output_usd), 0) as output_usd, coalesce(sum(reasoning_usd), 0) as reasoning_usd,
  coalesce(sum(tools_usd), 0) as tools_usd,
  count(*) filter (where model_returned is null and model_requested is null) as no_model,
  count(*) filter (where input_tokens is null and output_tokens is null) as no_tokens,
  count(*) filter (where session_id is null) as no_session,
  count(*) filter (where user_id is null) as no_user,
  count(*) filter (where input_chars = 0) as no_input,
  count(*) filter (where output_chars = 0) as no_output,
  count(*) filter (where latency_s is null) as no_end,
  coalesce(sum(latency_s), 0) as latency_s,
  count(*) filter (where latency_s < 0.1) as under_100ms,
  count(*) filter (where latency_s >= 0.1 and latency_s < 0.2) as under_200ms,
  count(*) filter (where latency_s >= 0.2 and latency_s < 0.5) as under_500ms,
  count(*) filter (where latency_s >= 0.5 and latency_s < 1) as under_1s,
  count(*) filter (where latency_s >= 1 and latency_s < 2) as under_2s,
  count(*) filter (where latency_s >= 2 and latency_s < 5) as under_5s,
  count(*) filter (where latency_s >= 5 and latency_s < 10) as under_10s,
  count(*) filter (where latency_s >= 10 and latency_s < 20) as under_20s,
  count(*) filter (where latency_s >= 20 and latency_s < 50) as under_50s,
  count(*) filter (where latency_s >= 50 and latency_s < 100) as under_100s,
  count(*) filter (where latency_s >= 100 and latency_s < 200) as under_200s,
  count(*) filter (where latency_s >= 200) as longer,
  false as merged, day
from (
  select *, (end_ns::double - start_ns::double) / 1e9 as latency_s,
    case when day is null or start_ns < (day - date '1970-01-01') * 86400000000000 - 172800000000000
      then 3600000000000 else 60000000000 end as grain_ns
  from settled_calls
)
group by all;

update settled_traces set
  calls = f.calls, model_calls = f.model_calls, errors = f.errors, retries = f.retries, unpriced = f.unpriced,
  cost_usd = f.cost_usd, input_tokens = f.input_tokens, output_tokens = f.output_tokens, user_id = f.user_id,
  models = f.models, agents = f.agents, tools = f.tools, actions = f.actions, name = f.name, start_ns = f.start_ns,
  end_ns = f.end_ns
from (
  select
    trace_id, count(*) as calls, count(*) filter (where kind in ('llm', 'embedding')) as model_calls,
    count(*) filter (where status = 'error') as errors, count(attempt_of) as retries, count(unpriced) as unpriced,
    sum(cost_usd) as cost_usd,
    coalesce(sum(greatest(least(coalesce(input_tokens, 0), 1099511627776), 0)), 0)::bigint as input_tokens,
    coalesce(sum(greatest(least(coalesce(output_tokens, 0), 1099511627776), 0)), 0)::bigint as output_tokens,
    case when count(distinct user_id) = 1 then any_value(user_id) end as user_id,
    to_json(list_sort(list(distinct model) filter (where model is not null)))::varchar as models,
    to_json(list_sort(list(distinct agent) filter (where agent is not null)))::varchar as agents,
    to_json(list_sort(list(distinct tool) filter (where tool is not null)))::varchar as tools,
    to_json(list_sort(list(distinct policy_action) filter (where policy_action is not null)))::varchar as actions,
    arg_min(name, start_ns) as name, min(start_ns) as start_ns, max(end_ns) as end_ns
  from (select *, coalesce(model_returned, model_requested) as model from settled_calls)
  group by trace_id
) f
where f.trace_id = settled_traces.trace_id;

drop view traces;
create view traces as
select
  trace_id, service, spans, settled_ns, session_id, user_id, name, start_ns, end_ns, calls, model_calls, errors, retries,
  unpriced, cost_usd, input_tokens, output_tokens, models, agents, tools, actions
from settled_traces;

drop view settling_copies;
create view settling_copies as
select
  trace_id, scope, scope_version, span_id, parent_span_id, name, service, start_ns, end_ns, status, kind, dialect, provider,
  model_requested, model_returned, reasoning_effort, input_tokens, cache_read_tokens, cache_write_tokens,
  output_tokens, reasoning_tokens, cache_write_1h_tokens, input_audio_tokens, input_image_tokens,
  output_audio_tokens, output_image_tokens, web_search_calls, code_interpreter_calls, file_search_calls,
  search_size, service_tier, cache_hit, usage_rule, max_tokens, tools_offered, response_format, reported_cost_usd,
  error_type, stream, ttft_s, session_id, user_id, response_id, workflow, agent, tool, prompt_name,
  prompt_version, policy_id, policy_version, policy_action, policy_propensity, policy_arm, policy_candidates,
  policy_probabilities, policy_features, policy_reason, input_chars, output_chars, input_digest, received_ns,
  precedence
from span_copies;
