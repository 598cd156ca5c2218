-- Which of some traces were settled before.
-- parameters: trace_ids
-- columns: trace_id
-- order: trace_id
select trace_id
from settled_traces
where trace_id in (select unnest($trace_ids::varchar[]))
order by trace_id
