-- Traces that fit some filters, one page of them; `found` counts all that fit. NULL filters nothing. `action` is a logged
-- one, else, of traces that log none, the model; `ids` holds one trace a line, as a million of them are read a lot faster
-- from a text than from a list; `search` a part of the id of a trace, a session or a user; `unscored`
-- has no score that means something; `sort` is time, cost, duration or quality, `rising` the order. `quality` is the
-- newest score of the trace by the name that `quality_names` has for its service in `quality_services`, looked up here
-- only where it sorts.
-- parameters: service, since_ns, until_ns, model, action, agent, tool, status, unpriced, unscored, ids, search, quality_services, quality_names, sort, rising, most, skip
-- columns: found, trace_id, service, session_id, user_id, name, start_ns, end_ns, spans, calls, model_calls, errors, retries, unpriced, cost_usd, input_tokens, output_tokens, models, agents, tools, actions, quality
-- order: as `sort` says, then start_ns descending, trace_id
with named as (
  select unnest($quality_services::varchar[]) as service, unnest($quality_names::varchar[]) as name
),
told as materialized (  -- the newest counts, so copies need no sorting; see the view scores
  select trace_id, span_id, response_id, name, value01, time_ns
  from score_versions
  where value01 is not null and ($unscored::boolean or $sort::varchar = 'quality')
),
answered as (
  select response_id, any_value(trace_id) as trace_id from settled_calls
  where response_id in (select response_id from told where trace_id is null)
  group by response_id having count(*) = 1
),
owned as (
  select span_id, any_value(trace_id) as trace_id from span_roles
  where span_id in (select span_id from told where trace_id is null)
  group by span_id having count(distinct trace_id) = 1
),
scored as materialized (
  select trace_id, name, value01, time_ns from told where trace_id is not null
  union all
  select coalesce(o.trace_id, a.trace_id), t.name, t.value01, t.time_ns
  from told t left join owned o on o.span_id = t.span_id left join answered a on a.response_id = t.response_id
  where t.trace_id is null
),
qualities as materialized (
  select s.trace_id, arg_max(s.value01, s.time_ns) as quality
  from scored s join settled_traces t on t.trace_id = s.trace_id
  join named n on n.service = t.service and n.name = s.name
  where $sort::varchar = 'quality'
  group by s.trace_id
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
    and ($ids::varchar is null or trace_id in (select unnest(string_split($ids::varchar, chr(10)))))
    and ($search::varchar is null or contains(trace_id, lower($search::varchar))
      or contains(session_id, $search::varchar) or contains(user_id, $search::varchar))
    and ($unscored::boolean is not true or trace_id not in (select trace_id from scored where trace_id is not null))
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
