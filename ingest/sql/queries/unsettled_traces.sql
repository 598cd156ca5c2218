-- Traces that wait to be settled: spans or events of them arrived after they were last settled, or never were.
-- parameters: none
-- columns: trace_id
-- order: trace_id
with arrivals as (
  select trace_id, max(batch) as batch
  from (
    select trace_id, batch from span_log
    union all
    select trace_id, batch from event_log where trace_id in (select trace_id from span_log)
  )
  group by trace_id
)
select a.trace_id
from arrivals a left join settled_traces t on t.trace_id = a.trace_id
where t.batch is null or t.batch < a.batch
order by a.trace_id
