-- The scores of some traces, those that name only a span or a response of theirs among them (see the view scores).
-- parameters: trace_ids
-- columns: trace_id, span_id, session_id, response_id, name, value, value01, label, explanation, source, time_ns, probability
-- order: trace_id, name, time_ns, score_id
with bare as (  -- scores that name no trace, most often none
  select span_id, response_id from score_log where trace_id is null
),
named as (
  select distinct span_id from span_roles
  where list_contains($trace_ids::varchar[], trace_id) and span_id in (select span_id from bare)
),
owned as (
  select span_id, any_value(trace_id) as trace_id from span_roles
  where span_id in (select span_id from named) group by span_id having count(distinct trace_id) = 1
),
answered as (
  select response_id, any_value(trace_id) as trace_id, any_value(span_id) as span_id
  from settled_calls
  where response_id in (select response_id from bare)
  group by response_id having count(*) = 1
),
placed as (
  select * from score_versions
  where list_contains($trace_ids::varchar[], trace_id)
  union all
  select s.* replace (
    coalesce(o.trace_id, a.trace_id) as trace_id, coalesce(s.span_id, a.span_id) as span_id
  )
  from score_versions s
  left join owned o on o.span_id = s.span_id
  left join answered a on a.response_id = s.response_id
  where s.trace_id is null and list_contains($trace_ids::varchar[], coalesce(o.trace_id, a.trace_id))
)
select
  trace_id, span_id, session_id, response_id, name, value, value01, label, explanation, source, time_ns, probability
from placed
qualify row_number() over (
  partition by score_id, name, source, trace_id, span_id, session_id, response_id
  order by time_ns desc, batch desc, line desc
) = 1
order by trace_id, name, time_ns, score_id
