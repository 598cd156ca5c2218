-- Of each service, its settled traces and their spans, and how many of the traces have a score.
-- parameters: service, since_ns, until_ns
-- columns: service, traces, spans, scored_traces
-- order: service
with judged as (
  select distinct trace_id from scores where trace_id is not null
)
select
  t.service, count(*) as traces, coalesce(sum(t.spans), 0)::bigint as spans, count(j.trace_id) as scored_traces
from settled_traces t left join judged j on j.trace_id = t.trace_id
where ($service::varchar is null or t.service = $service::varchar)
  and ($since_ns::bigint is null or t.start_ns >= $since_ns::bigint)
  and ($until_ns::bigint is null or t.start_ns < $until_ns::bigint)
group by t.service
order by t.service
