-- Of each service, its settled traces and their spans, and how many of the traces have a score; which trace a score without
-- one belongs to, as the view scores says it.
-- parameters: service, since_ns, until_ns
-- columns: service, traces, spans, scored_traces
-- order: service
with loose as (
  select span_id, response_id from score_log where trace_id is null
),
judged as (
  select trace_id from score_log where trace_id is not null
  union all
  select any_value(trace_id) from span_roles
  where span_id in (select span_id from loose where span_id is not null)
  group by span_id having count(distinct trace_id) = 1
  union all
  select any_value(trace_id) from settled_calls
  where response_id in (select response_id from loose where response_id is not null)
  group by response_id having count(*) = 1
)
select
  service, count(*) as traces, coalesce(sum(spans), 0)::bigint as spans,
  count(*) filter (where trace_id in (select trace_id from judged)) as scored_traces
from settled_traces
where ($service::varchar is null or service = $service::varchar)
  and ($since_ns::bigint is null or start_ns >= $since_ns::bigint)
  and ($until_ns::bigint is null or start_ns < $until_ns::bigint)
group by service
order by service
