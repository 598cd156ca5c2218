-- trace_sizes
-- How many rows of spans and events the lake holds of some traces, copies included.
-- parameters: trace_ids
-- columns: trace_id, rows
-- order: trace_id
select trace_id, count(*) as rows
from (
  select trace_id from span_log where trace_id in (select unnest($trace_ids::varchar[]))
  union all
  select trace_id from event_log where trace_id in (select unnest($trace_ids::varchar[]))
)
group by trace_id
order by trace_id
