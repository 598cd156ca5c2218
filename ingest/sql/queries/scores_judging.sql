-- Scores given within some time, each with the trace that it judges, of one service or of all; see the view scores. `model`
-- is that of the trace ("several models"; NULL: it called none); `there` is whether the trace is, `start_ns` when it began; `of_step` whether a part
-- of it is judged, `part` which; delays are from the end of the trace, in seconds.
-- parameters: service, since_ns, until_ns
-- columns: trace, part, of_step, of_session, there, start_ns, service, model, name, source, value, value01, labelled, probability, time_ns, delay_s
-- order: time_ns, trace, name
with given as (
  select * from score_versions
  where ($since_ns::bigint is null or time_ns >= $since_ns::bigint)
  qualify row_number() over (
    partition by score_id, name, source, trace_id, span_id, session_id, response_id
    order by time_ns desc, batch desc, line desc
  ) = 1
),
responses as (
  select response_id, any_value(trace_id) as trace_id, any_value(span_id) as span_id
  from settled_calls
  where response_id in (select response_id from given where trace_id is null)
  group by response_id having count(*) = 1
),
owners as (
  select span_id, any_value(trace_id) as trace_id from span_roles
  where span_id in (select span_id from given where trace_id is null)
  group by span_id having count(distinct trace_id) = 1
),
placed as (
  select
    g.* exclude (trace_id, span_id), coalesce(g.trace_id, o.trace_id, r.trace_id) as trace_id,
    case when g.trace_id is null then coalesce(g.span_id, r.span_id) else g.span_id end as span_id
  from given g
  left join owners o on g.trace_id is null and o.span_id = g.span_id
  left join responses r on r.response_id = g.response_id
)
select
  case when p.trace_id is not null then hash(p.trace_id) end as trace,
  case when p.span_id is not null then hash(p.span_id) end as part, p.span_id is not null as of_step,
  p.trace_id is null and p.session_id is not null as of_session, t.trace_id is not null as there, t.start_ns, t.service,
  json_extract_string(case when contains(t.models, '","') then '["several models"]' else t.models end, '$[0]') as model,
  p.name, p.source, p.value, p.value01, p.label is not null as labelled, p.probability, p.time_ns,
  case when p.time_ns > 0 and t.end_ns > 0 then (p.time_ns - t.end_ns) / 1e9 end as delay_s
from placed p left join settled_traces t on t.trace_id = p.trace_id
where ($service::varchar is null or t.service = $service::varchar)
  and ($until_ns::bigint is null or p.time_ns < $until_ns::bigint)
order by p.time_ns, trace, p.name
