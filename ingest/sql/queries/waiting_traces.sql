-- How many traces wait to be settled, of those that anything arrived of in the last ten minutes of receipts: none waits
-- longer while a collector runs.
-- parameters: none
-- columns: traces
-- order: one row
with newest as (
  select max(received_ns) - 600000000000 as since_ns from ingest_log
),
arrivals as (
  select trace_id, max(batch) as batch
  from span_log where received_ns >= (select since_ns from newest) group by trace_id
)
select count(*) as traces
from arrivals a
left join (
  select trace_id, batch from settled_traces where settled_ns >= (select since_ns from newest)
) t on t.trace_id = a.trace_id
where t.batch is null or t.batch < a.batch
