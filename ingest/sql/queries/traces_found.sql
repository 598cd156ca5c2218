-- Traces that fit some filters, one page of them; `found` counts all that fit. NULL filters nothing. `action` is a logged
-- one, else, of traces that log none, the model; `search` a part of the id of a trace, a session or a user; `unscored`
-- has no score that means something; `sort` is time, cost, duration or quality, `rising` the order. `quality` is the
-- newest score of the trace by the name that `quality_names` has for its service in `quality_services`, looked up here
-- only where it sorts.
-- parameters: service, since_ns, until_ns, model, action, agent, tool, status, unpriced, unscored, ids, search, quality_services, quality_names, sort, rising, most, skip
-- columns: found, trace_id, service, session_id, user_id, name, start_ns, end_ns, spans, calls, model_calls, errors, retries, unpriced, cost_usd, input_tokens, output_tokens, models, agents, tools, actions, quality
-- order: as `sort` says, then start_ns descending, trace_id
with named as (
  select unnest($quality_services::varchar[]) as service, unnest($quality_names::varchar[]) as name
),
qualities as not materialized (
  select s.trace_id, arg_max(s.value01, s.time_ns) as quality
  from scores s join settled_traces t on t.trace_id = s.trace_id
  join named n on n.service = t.service and n.name = s.name
  where $sort::varchar = 'quality' and s.value01 is not null
  group by s.trace_id
),
scored as not materialized (
  select distinct trace_id from scores where $unscored::boolean and value01 is not null and trace_id is not null
),
fitting as not materialized (
  select *
  from traces t
  where ($service::varchar is null or service = $service::varchar)
    and ($since_ns::bigint is null or start_ns >= $since_ns::bigint)
    and ($until_ns::bigint is null or start_ns < $until_ns::bigint)
    and ($model::varchar is null or contains(models, to_json($model::varchar)::varchar))
    and ($action::varchar is null
      or contains(coalesce(actions, models), to_json($action::varchar)::varchar))
    and ($agent::varchar is null or contains(agents, to_json($agent::varchar)::varchar))
    and ($tool::varchar is null or contains(tools, to_json($tool::varchar)::varchar))
    and ($status::varchar is null or (errors > 0) = ($status::varchar = 'error'))
    and ($unpriced::boolean is not true or unpriced > 0)
    and ($ids::varchar[] is null or list_contains($ids::varchar[], trace_id))
    and ($search::varchar is null or contains(trace_id, lower($search::varchar))
      or contains(session_id, $search::varchar) or contains(user_id, $search::varchar))
    and ($unscored::boolean is not true or trace_id not in (select trace_id from scored))
),
ranked as not materialized (
  select
    f.*, q.quality,
    (case $sort::varchar
      when 'cost' then cost_usd when 'duration' then greatest(end_ns - start_ns, 0)::double when 'quality' then q.quality
      else start_ns::double end) * case when $rising::boolean then -1 else 1 end as place
  from fitting f left join qualities q on q.trace_id = f.trace_id
)
select
  (select count(*) from fitting) as found, trace_id, service, session_id, user_id, name, start_ns, end_ns, spans, calls,
  model_calls, errors, retries, unpriced, cost_usd, input_tokens, output_tokens, models, agents, tools, actions, quality
from ranked
order by place desc nulls last, start_ns desc, trace_id
limit coalesce($most::bigint, 50) offset coalesce($skip::bigint, 0)
