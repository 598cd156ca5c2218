-- Traces that wait to be settled: spans or events of them arrived after they were last settled, or never were.
-- `first_ns` is when the first of what is stored of a trace arrived.
-- parameters: none
-- columns: trace_id, first_ns
-- order: trace_id
with arrivals as (
  select trace_id, max(batch) as batch, min(received_ns) as first_ns
  from (
    select trace_id, batch, received_ns from span_log
    union all
    select trace_id, batch, received_ns from event_log where trace_id is not null
  )
  group by trace_id
)
select a.trace_id, a.first_ns
from arrivals a left join settled_traces t on t.trace_id = a.trace_id
where t.batch is null or t.batch < a.batch
order by a.trace_id
